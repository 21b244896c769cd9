#!/usr/bin/env python3
"""The program that action.yml runs: a preview of changed run configs, evaluations, or a gate.
SETTINGS are the variables it reads.

Nothing here goes through a shell: file names and inputs are arguments. A preview sees no variable
whose name is a secret's, and of file names and file contents nothing is Markdown, HTML or a command
to the CI system.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory import api
from eval_factory.core.errors import ConfigError, EvalFactoryError, PrerequisiteError
from eval_factory.core.foreign_text import printable, printable_lines
from eval_factory.core.plain_yaml import YamlError, parse
from eval_factory.core.secrets import names_a_secret

SETTINGS = {
    "EF_MODE": "preview, evaluate or gate",
    "EF_RUN_CONFIGS": "git's glob patterns of run configs, a line each",
    "EF_BASE": "the commit that changes are against; "
    "all run configs that match are previewed if not given",
    "EF_POLICY": "the gate's policy",
    "EF_CANDIDATES": "output folders, a line each",
    "EF_BASELINES": "output folders, a line each",
    "EF_JUNIT": "the file for JUnit XML",
    "EF_ARGS": "more arguments of run_eval or gate, a line each",
}
JOB_SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_BYTES_OF_DETAILS = 700_000
"""GitHub shows at most 1 MiB of a step's summary."""
NO_COMMIT = "0" * 40
"""The name that GitHub and GitLab give to the commit before a branch's first push."""
INTERRUPTED = 130
EXIT_CODES = {
    0: "complete",
    1: "a score is not reportable",
    2: "wrong configuration",
    3: "something is missing",
    4: "HELM failed",
    5: "the folder is in use",
    70: "a defect",
    INTERRUPTED: "interrupted",
}

_MARKUP = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`|[]!*~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
"""The characters that would end a table's cell, begin a link, an image or HTML, or make words bold.
"""
MIN_FENCE = 3


def markdown_cell(words: str) -> str:
    """A text that shows as it is, on one line, in a table or a sentence."""
    return printable(words).translate(_MARKUP)


def code_block(text: str) -> str:
    """Lines that show as they are; no backticks in them end the block."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(MIN_FENCE, longest + 1)
    return f"{fence}\n{printable_lines(text).rstrip()}\n{fence}\n"


@dataclass(frozen=True)
class Previewed:
    name: str
    exit_code: int
    told: str
    """One line: what would be run, or what is wrong."""
    text: str
    """All that `--dry_run` shows; all that is wrong."""


def main() -> int:
    env = os.environ
    modes: Mapping[str, Callable[[Mapping[str, str]], int]] = {
        "preview": preview,
        "evaluate": evaluate,
        "gate": gate,
    }
    mode = env.get("EF_MODE", "")
    try:
        if mode not in modes:
            raise ConfigError(f"mode: must be preview, evaluate or gate, not {mode!r}")
        return modes[mode](env)
    except EvalFactoryError as error:
        print(
            *(f"eval-factory: {printable(line)}" for line in str(error).split("\n")),
            sep="\n",
            file=sys.stderr,
        )
        return error.exit_code


def preview(env: Mapping[str, str]) -> int:
    """A dry run of each run config that was changed; nothing is asked, no key is needed."""
    root = Path.cwd()
    base = _commit(env.get("EF_BASE", ""))
    names = list(_run_configs(env, base))
    visible = {name: value for name, value in env.items() if not names_a_secret(name)}
    found = [_previewed(root, name, visible, base) for name in names]
    for one in found:
        print(
            printable(
                f"{'valid' if one.exit_code == 0 else f'exit {one.exit_code}'}: {one.name}: "
                f"{one.told}"
            )
        )
    what = "changed run config" if base else "run config"
    if not found:
        print(f"no {what} matches")
    _add_summary(env, _summary_of_preview(found, what))
    return max((one.exit_code for one in found), default=0)


def _previewed(root: Path, name: str, env: Mapping[str, str], base: str | None) -> Previewed:
    path = root / name
    if any(
        place.is_symlink()
        for place in (path, *path.parents)
        if place.is_relative_to(root) and place != root
    ):
        problem = "is a symbolic link, which a preview does not follow"
        return Previewed(name, ConfigError.exit_code, problem, problem)
    try:
        text = api.dry_run(path, env=env).text
        if base is not None:
            text = f"{_difference(path, name, base, env)}{text}"
    except EvalFactoryError as error:
        problems = str(error).replace(f"{root}{os.sep}", "").split("\n")
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Previewed(name, error.exit_code, problems[0] + more, "\n".join(problems))
    return Previewed(name, 0, "a run would start", text)


def _difference(path: Path, name: str, base: str, env: Mapping[str, str]) -> str:
    """Return what the change does, above the preview; empty if the base has no such valid file."""
    try:
        before = parse(os.fsdecode(_git("show", f"{base}:{name}")))
        found = api.dry_run(path, env=env, options=api.Options(diff=before)).text
    except (EvalFactoryError, YamlError):
        return ""
    return f"# what differs from the base\n{found}\n"


def _summary_of_preview(found: Sequence[Previewed], what: str) -> str:
    if not found:
        return f"## Preview of run configs\n\nNo {what} matches.\n"
    lines = [
        "## Preview of run configs",
        "",
        "| run config | exit code | what is said |",
        "|---|---|---|",
    ]
    lines += [
        f"| {markdown_cell(one.name)} | {one.exit_code} | {markdown_cell(one.told)} |"
        for one in found
    ]
    text = "\n".join(lines) + "\n"
    left_out = 0
    for one in found:
        details = (
            f"\n<details><summary>{markdown_cell(one.name)}</summary>\n\n{code_block(one.text)}\n"
            "</details>\n"
        )
        if len((text + details).encode()) > MOST_BYTES_OF_DETAILS:
            left_out += 1
        else:
            text += details
    return text + (
        f"\nDetails of {left_out} are left out: the page would be too large.\n" if left_out else ""
    )


def evaluate(env: Mapping[str, str]) -> int:
    """Run each run config, one after the other; the highest exit code is the job's."""
    codes: dict[str, int] = {}
    for name in _run_configs(env, None):
        path = Path.cwd() / name
        print(printable(f"evaluating {name}"), flush=True)
        codes[name] = _program("run_eval", f"--run_config={path}", *_lines(env, "EF_ARGS"))
        if codes[name] == INTERRUPTED:
            break
    if not codes:
        raise ConfigError(
            "run-configs: no file that git knows matches these patterns; is it committed?"
        )
    lines = ["## Evaluations", "", "| run config | exit code | |", "|---|---|---|"]
    lines += [
        f"| {markdown_cell(name)} | {code} | {EXIT_CODES.get(code, 'unknown')} |"
        for name, code in codes.items()
    ]
    _add_summary(env, "\n".join(lines) + "\n")
    return max(codes.values())


def gate(env: Mapping[str, str]) -> int:
    """Run `eval-factory gate`, which adds to the job's summary itself."""
    policy = env.get("EF_POLICY", "").strip()
    candidates = _lines(env, "EF_CANDIDATES")
    if not policy or not candidates:
        raise ConfigError("gate: give policy and candidates")
    junit = env.get("EF_JUNIT", "").strip()
    return _program(
        "gate",
        *(f"--candidate={folder}" for folder in candidates),
        *(f"--baseline={folder}" for folder in _lines(env, "EF_BASELINES")),
        *([f"--junit={junit}"] if junit else []),
        *_lines(env, "EF_ARGS"),
        "--",
        policy,
    )


def _program(*arguments: str) -> int:
    """The installed command: `python -m` would import what lies in the checkout."""
    command = Path(sys.executable).with_name("eval-factory")
    code = subprocess.run([str(command), *arguments], check=False).returncode
    return code if code >= 0 else 128 - code  # killed by a signal, as a shell says it


def _run_configs(env: Mapping[str, str], base: str | None) -> Iterator[str]:
    """Yield the run configs of the checkout: all that match, or those added or changed since the
    base.
    """
    patterns = [f":(glob){line}" for line in _lines(env, "EF_RUN_CONFIGS")]
    if not patterns:
        raise ConfigError("run-configs: give a pattern, such as evaluations/**/*.yml")
    if base is None:
        listed = _git("ls-files", "-z", "--", *patterns)
    else:
        changed = (
            "diff",
            "--name-only",
            "-z",
            "--no-renames",
            "--diff-filter=AMT",
            f"{base}...HEAD",
        )
        listed = _git(*changed, "--", *patterns)
    return (os.fsdecode(name) for name in sorted(set(listed.split(b"\0"))) if name)


def _commit(base: str) -> str | None:
    if base.strip() in ("", NO_COMMIT):
        return None
    try:
        return os.fsdecode(
            _git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base.strip()}^{{commit}}"
            )
        )
    except PrerequisiteError:
        raise PrerequisiteError(
            f"base {base!r}: is not a commit of this checkout; check out with fetch-depth: 0"
        ) from None


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "--no-pager", *arguments], capture_output=True, check=False)
    if done.returncode:
        said = os.fsdecode(done.stderr).strip() or f"exit code {done.returncode}"
        raise PrerequisiteError(
            f"git {arguments[0]} failed (check out with fetch-depth: 0): {said}"
        )
    return done.stdout.removesuffix(b"\n")


def _lines(env: Mapping[str, str], name: str) -> list[str]:
    return [line.strip() for line in env.get(name, "").splitlines() if line.strip()]


def _add_summary(env: Mapping[str, str], text: str) -> None:
    if summary := env.get(JOB_SUMMARY):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
