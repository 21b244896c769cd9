"""No circle of files, no module name twice, no function that is too long or has too many branches."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "eval_factory"
MAX_LINES = 60
MAX_BRANCHES = 15


def circle_in(imports: Mapping[str, AbstractSet[str]]) -> list[str]:
    """The modules of one circle; imports inside functions count, those for types alone do not."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("eval_factory", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert circle_in(imports) == []
    importer, imported = next((one, next(iter(others))) for one, others in imports.items() if others)
    assert {importer, imported} <= set(circle_in({**imports, imported: imports[imported] | {importer}}))


def names_used_twice(modules: Iterable[Path]) -> set[str]:
    """File names that stand in more than one folder."""
    counts = Counter(path.name for path in modules)
    return {name for name, times in counts.items() if times > 1 and name != "__init__.py"}


def test_no_module_name_is_used_twice() -> None:
    assert names_used_twice(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")) == set()
    sound = ["core/__init__.py", "report/__init__.py", "errors.py"]
    assert names_used_twice(map(Path, sound)) == set()
    assert names_used_twice(map(Path, [*sound, "core/logs.py", "report/logs.py"])) == {"logs.py"}


def branches(function: ast.AST) -> int:
    """Where a reader has to think of two ways: conditions, loops, handlers, ternaries, comprehensions, `and` and `or`."""
    ways = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case, ast.comprehension)
    nodes = list(ast.walk(function))
    both = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return both + sum(isinstance(node, ways) for node in nodes)


def too_much(source: str) -> Iterator[str]:
    """Functions beyond a limit, by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_LINES or branches(node) > MAX_BRANCHES:
                yield f"{node.name}: {lines} lines, {branches(node)} branches"


def test_no_function_is_too_long_or_branches_too_often() -> None:
    found = {str(path.relative_to(PACKAGE)): list(too_much(path.read_text("utf-8"))) for path in PACKAGE.rglob("*.py")}
    assert {name: functions for name, functions in found.items() if functions} == {}
    assert list(too_much("def f(x):\n" + "    x += 1\n" * 60)) == ["f: 61 lines, 0 branches"]
    assert list(too_much("def f(x):\n    return " + " or ".join(["x"] * 17))) == ["f: 2 lines, 16 branches"]
    assert list(too_much("def f(x):\n    return [y for y in x if y]")) == []
