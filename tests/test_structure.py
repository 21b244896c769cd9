"""No circle of files, no module name twice, no function that is too long."""

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


def too_long(source: str) -> Iterator[str]:
    """Functions beyond the limit, by name; how often one branches is ruff's matter."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_LINES:
                yield f"{node.name}: {lines} lines"


def test_no_function_is_too_long() -> None:
    found = {str(path.relative_to(PACKAGE)): list(too_long(path.read_text("utf-8"))) for path in PACKAGE.rglob("*.py")}
    assert {name: functions for name, functions in found.items() if functions} == {}
    assert list(too_long("def f(x):\n" + "    x += 1\n" * 60)) == ["f: 61 lines"]
    assert list(too_long("def f(x):\n    return [y for y in x if y]")) == []


def test_a_class_variable_says_what_it_is() -> None:
    """On Python 3.10, pydantic cannot read a class with a plain `ClassVar`, and CI runs on one version alone."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.annotation, ast.Name)
        and node.annotation.id == "ClassVar"
    ]
    assert found == []
