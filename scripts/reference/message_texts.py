"""Which texts of the source are messages, read from its syntax: what is raised, by class, and what is built for it.

A text's placeholders are shown as `<name>`. An argument that is no text is followed to where it is made: the function
that is called, the list that is appended to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TypeGuard

Function = ast.FunctionDef | ast.AsyncFunctionDef
NO_MESSAGE = re.compile(
    r"^\s*(SELECT|CASE|CREATE|INSERT|PRAGMA|UPDATE|DELETE|DROP|BEGIN|ALTER)\b"
    r"|\(\?[:P<=!i]|\\[sdbwZ]|%\(|^<(!|/|\w+ \w+=)|\{%"
)
"""SQL, patterns, formats of logs, HTML."""
PLACEHOLDER = re.compile(r"<[^<>]*>|\{[^{}]*\}|%[sdrg]")
LEAST_WORDS = 3
DEEPEST = 5
ADDS = {"append", "add", "extend", "insert"}


def template(node: ast.expr) -> str | None:
    """A text with `<name>` where a value is put in; None for what is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_part(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = template(node.left), template(node.right)
        if left is None and right is None:
            return None
        return (left or f"<{name_of(node.left)}>") + (right or f"<{name_of(node.right)}>")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return template(node.func.value)
    return None


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.FormattedValue):
        return f"<{name_of(part.value)}>"
    return str(part.value) if isinstance(part, ast.Constant) else "<...>"


def name_of(node: ast.expr) -> str:
    """What a reader calls the value: the last name in the expression."""
    if isinstance(node, ast.Name):
        return node.id.strip("_").lower()
    if isinstance(node, ast.Attribute):
        return node.attr.strip("_")
    if isinstance(node, ast.Call):
        return name_of(node.args[0]) if node.args else name_of(node.func)
    if isinstance(node, ast.BoolOp):
        return name_of(node.values[0])
    if isinstance(node, ast.Subscript):
        return name_of(node.value)
    return "..."


def is_message(text: str | None) -> bool:
    """Words that somebody reads."""
    if text is None or NO_MESSAGE.search(text):
        return False
    words = re.findall(r"[A-Za-z]{2,}", PLACEHOLDER.sub(" ", text))
    return len(words) >= LEAST_WORDS and " " in text.strip()


@dataclass
class Module:
    """A file of the source."""

    path: str
    """Below the package."""
    tree: ast.Module

    @cached_property
    def functions(self) -> dict[str, list[Function]]:
        found: dict[str, list[Function]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                found.setdefault(node.name, []).append(node)
        return found

    @cached_property
    def calls(self) -> list[tuple[Function | None, ast.Call]]:
        return list(_calls(self.tree))

    @cached_property
    def constants(self) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
        return found

    @cached_property
    def imported(self) -> dict[str, str]:
        """A name -> the module that it comes from."""
        return {
            alias.asname or alias.name: node.module or ""
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }


@dataclass
class Source:
    """All modules of a package."""

    modules: dict[str, Module]
    """By their dotted names."""

    @classmethod
    def of(cls, package: Path) -> Source:
        modules = {}
        for file in sorted(package.rglob("*.py")):
            inside = file.relative_to(package)
            dotted = ".".join((package.name, *inside.with_suffix("").parts)).removesuffix(".__init__")
            modules[dotted] = Module(inside.as_posix(), ast.parse(file.read_text("utf-8")))
        return cls(modules)

    def raised(self, classes: dict[str, int]) -> Iterator[tuple[int, str, str]]:
        """Exit code, module and text of all that is raised as one of these classes."""
        for module in self.modules.values():
            for function, call in module.calls:
                code = classes.get(_called(call))
                if code is None:
                    continue
                walk = Walk(self)
                for argument in call.args:
                    for text in walk.texts(argument, module, function, DEEPEST):
                        yield code, module.path, text


def _called(call: ast.Call) -> str:
    """The last part of the name that is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _calls(tree: ast.Module) -> Iterator[tuple[Function | None, ast.Call]]:
    """Every call with the function that it stands in."""

    def below(node: ast.AST, function: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = child if isinstance(child, Function) else function
            if isinstance(child, ast.Call):
                yield function, child
            yield from below(child, inner)

    return below(tree, None)


@dataclass
class Walk:
    """One argument, followed to the texts that it is made of; each function is gone into once."""

    source: Source
    gone_into: set[int] = field(default_factory=set)

    def texts(self, node: ast.expr, module: Module, function: Function | None, depth: int) -> Iterator[str]:
        text = template(node)
        if is_message(text):
            yield str(text)
            return
        if depth == 0:
            return
        if isinstance(node, ast.Name):
            yield from self._named(node.id, module, function, depth - 1)
        elif isinstance(node, ast.Attribute) and node.attr in module.functions:
            yield from self._made_by(node.attr, module, depth - 1)
        for child in ast.iter_child_nodes(node):
            inner = child.iter if isinstance(child, ast.comprehension) else child
            if isinstance(inner, ast.expr):
                yield from self.texts(inner, module, function, depth - 1)

    def _named(self, name: str, module: Module, function: Function | None, depth: int) -> Iterator[str]:
        if function is not None:
            for value in _assigned(name, function):
                yield from self.texts(value, module, function, depth)
        if name in module.constants:
            yield from self.texts(module.constants[name], module, None, depth)
        yield from self._made_by(name, module, depth)

    def _made_by(self, name: str, module: Module, depth: int) -> Iterator[str]:
        """What the functions of that name return, yield or append, here or where they are imported from."""
        home = module
        if name not in module.functions and name in module.imported:
            home = self.source.modules.get(module.imported[name], module)
        for function in home.functions.get(name, []):
            if id(function) in self.gone_into:
                continue
            self.gone_into.add(id(function))
            for value in _given(function):
                yield from self.texts(value, home, function, depth)


@cache
def _nodes(function: Function) -> list[ast.AST]:
    return list(ast.walk(function))


def _assigned(name: str, function: Function) -> Iterator[ast.expr]:
    """What a variable holds or is added to it, anywhere in a function."""
    for node in _nodes(function):
        if isinstance(node, ast.Assign) and any(_is(target, name) for target in node.targets):
            yield node.value
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and _is(node.target, name):
            if node.value is not None:
                yield node.value
        elif _adds_to(node, name):
            yield from node.args
        if isinstance(node, ast.Call) and any(_is(argument, name) for argument in node.args):
            yield node.func  # a function that may add to it


def _given(function: Function) -> Iterator[ast.expr]:
    for node in _nodes(function):
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None:
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ADDS:
            yield from node.args


def _adds_to(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    """`name.append(...)` and the like."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in ADDS and _is(node.func.value, name)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def other_texts(module: Module, known: set[str]) -> Iterator[str]:
    """Every further message of a module: warnings, notes, parts of messages, lines of screens."""
    apart = set(_no_texts(module.tree))
    todo: list[ast.AST] = [module.tree]
    while todo:
        node = todo.pop()
        if id(node) in apart:
            continue
        text = template(node) if isinstance(node, ast.expr) else None
        if text is None:
            todo.extend(reversed(list(ast.iter_child_nodes(node))))
        elif is_message(text) and text not in known:
            yield text


def _no_texts(tree: ast.Module) -> Iterator[int]:
    """Docstrings, and what decorators say (help of options: the page of commands has it)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node)
        elif isinstance(node, Function):
            yield from map(id, node.decorator_list)
