#!/usr/bin/env python3
"""Checks how densely the code is packed; `nox -s lint` runs it. `--lower` lowers the limits.

Four things must not occur at all: packed assignments, nested expressions, arithmetic with truth
values, and docstrings that begin without their subject (those of tests may).

Three more things may occur: conditional expressions, comprehensions and vague names. Their rate in
a package of `src` must not exceed the package's limit in `scripts/form_limits.json`, or the goal
(`GOALS`) if the goal is higher. The limits may only fall.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = ROOT / "scripts" / "form_limits.json"
FOLDERS = ("src", "tests", "scripts", "benchmarks", "docs")
PACKAGES = ROOT / "src" / "eval_factory"

GOALS = {"conditionals": 15.0, "comprehensions": 25.0, "vague_names": 5.0}
"""A dict from the name of a count to the rate that every package may have: per 1,000 lines of code;
for `vague_names`, per 1,000 names.
"""
VAGUE = frozenset(
    (
        *("one", "found", "other", "others", "each", "said", "asked", "some", "most", "least"),
        *("known", "own", "again", "both", "ends", "what", "where", "how", "which", "more"),
    )
)
"""Names that do not say what the value is."""

WITHOUT_SUBJECT = frozenset(("Of", "What", "Whether", "Where"))
"""Words that no docstring begins with."""
WITHOUT_ITS_SUBJECT = "a docstring that begins without its subject"

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult)


@dataclass
class Form:
    """The findings and counts of some files."""

    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def rates(self) -> dict[str, float]:
        """Return the rate of each count per 1,000 lines, or names, rounded to one decimal."""
        lines = self.counts["lines"] or 1
        names = self.counts["names"] or 1
        return {
            "conditionals": round(1000 * self.counts["conditionals"] / lines, 1),
            "comprehensions": round(1000 * self.counts["comprehensions"] / lines, 1),
            "vague_names": round(1000 * self.counts["vague_names"] / names, 1),
        }


def is_packed(node: ast.AST) -> bool:
    """Return True for `a, b = x, y`. A swap such as `a, b = b, a` is not packed."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    targets = {ast.unparse(part) for part in target.elts}
    return targets != {ast.unparse(part) for part in node.value.elts}


def is_nested(node: ast.AST) -> bool:
    """Return True for a conditional expression within another, and for a comprehension with two
    loops or two conditions.
    """
    if isinstance(node, ast.IfExp):
        conditionals = [inner for inner in ast.walk(node) if isinstance(inner, ast.IfExp)]
        return len(conditionals) > 1
    if isinstance(node, COMPREHENSIONS):
        return len(node.generators) > 1 or len(node.generators[0].ifs) > 1
    return False


def is_truth_value(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, (ast.Compare, ast.BoolOp))


def is_boolean_arithmetic(node: ast.AST) -> bool:
    """Return True for `count -= not counts`, `"s" * (count != 1)`, `total += tokens or 0`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ARITHMETIC):
        return is_truth_value(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ARITHMETIC):
        return is_truth_value(node.left) or is_truth_value(node.right)
    return False


def is_docstring_without_subject(node: ast.AST) -> bool:
    """Return True for a docstring such as "Of a run." or "Whether it ended.", without a subject."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    text = node.value.value
    if not isinstance(text, str) or not text.strip():
        return False
    return text.split()[0] in WITHOUT_SUBJECT


FORBIDDEN = {
    "several values in one assignment": is_packed,
    "a conditional expression in another, or a comprehension of two loops or conditions": is_nested,
    "arithmetic with a truth value": is_boolean_arithmetic,
    WITHOUT_ITS_SUBJECT: is_docstring_without_subject,
}
"""A dict from the text of a finding to the function that returns True for such a node."""


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names of variables and arguments.

    Arguments of special methods are left out: `other` of `__eq__` is a convention.
    """
    conventional: set[ast.arg] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            conventional.update(node.args.args)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node not in conventional:
            yield node.arg
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def form_of(files: Iterable[Path]) -> Form:
    form = Form()
    for file in files:
        text = file.read_text(encoding="utf-8")
        add(form, text, file.relative_to(ROOT).as_posix())
    return form


def add(form: Form, text: str, file: str) -> None:
    """Add the findings and counts of a file's text; `file` is its name in findings."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            form.counts["lines"] += 1
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for finding, is_forbidden in FORBIDDEN.items():
            if file.startswith("tests/") and finding == WITHOUT_ITS_SUBJECT:
                continue
            if is_forbidden(node):
                form.findings.append(f"{file}:{getattr(node, 'lineno', 0)}: {finding}")
        if isinstance(node, ast.IfExp):
            form.counts["conditionals"] += 1
        if isinstance(node, COMPREHENSIONS):
            form.counts["comprehensions"] += 1
    for name in names_in(tree):
        form.counts["names"] += 1
        if name in VAGUE:
            form.counts["vague_names"] += 1


def packages() -> dict[str, Form]:
    """Return the form of each package of `src`, by the package's name.

    The modules that are in no subpackage have the name `eval_factory`.
    """
    forms = {"eval_factory": form_of(sorted(PACKAGES.glob("*.py")))}
    for folder in sorted(PACKAGES.iterdir()):
        files = sorted(folder.rglob("*.py"))
        if files:
            forms[folder.name] = form_of(files)
    return forms


Limits = Mapping[str, Mapping[str, float]]  # package -> name of a count -> its rate or limit


def too_dense(rates: Limits, limits: Limits) -> Iterator[str]:
    """Yield a line for each rate of a package that is above its limit and above the goal."""
    for package, by_name in rates.items():
        for name, rate in by_name.items():
            limit = max(GOALS[name], limits.get(package, {}).get(name, 0.0))
            if rate > limit:
                yield f"{package}: {rate} {name} per 1,000, at most {limit}"


def lowered(rates: Limits, limits: Limits) -> dict[str, dict[str, float]]:
    """Return the limits, lowered to each rate that has fallen, but not below the goals.

    A package without limits gets the goals.
    """
    lower: dict[str, dict[str, float]] = {}
    for package, by_name in rates.items():
        before = limits.get(package, GOALS)
        lower[package] = {}
        for name, rate in by_name.items():
            lower[package][name] = max(GOALS[name], min(rate, before[name]))
    return lower


def main() -> int:
    """Print the problems, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="write the rates that have fallen")
    lower = parser.parse_args().lower
    problems: list[str] = []
    for folder in FOLDERS:
        problems += form_of(sorted((ROOT / folder).rglob("*.py"))).findings
    rates = {package: form.rates() for package, form in packages().items()}
    limits = json.loads(LIMITS.read_text(encoding="utf-8"))
    problems += too_dense(rates, limits)
    if lower:
        text = json.dumps(lowered(rates, limits), indent=2) + "\n"
        LIMITS.write_text(text, encoding="utf-8")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
