"""Reads and writes all YAML documents.

A user's document may contain only mappings, lists, texts, numbers, true, false and null, and at
most `MAX_NODES` values: with aliases, ten lines could expand to more values than fit into memory.
Documents that eval-factory itself wrote or contains are read without these checks, and much faster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from eval_factory.core.enums import TextEnum
from eval_factory.core.errors import ConfigError
from eval_factory.core.safe_files import open_regular

MAX_CONFIG_BYTES = 256 * 1024  # the largest size of a user's file

# the largest number of values in a user's document; an alias counts as all values it refers to
MAX_NODES = 100_000

MAX_LEVELS = 50  # the largest number of nested levels in a user's document
MAX_NUMBER_CHARACTERS = 100  # the largest number of characters in a number

_TAG = "tag:yaml.org,2002:"
_INT = f"{_TAG}int"
_STR = f"{_TAG}str"
_MERGE = f"{_TAG}merge"
_NUMBERS = (_INT, f"{_TAG}float")
_ALLOWED_TAGS = frozenset(
    {_STR, *_NUMBERS, _MERGE, f"{_TAG}map", f"{_TAG}seq", f"{_TAG}bool", f"{_TAG}null"}
)


try:
    _FastBase: Any = yaml.CSafeLoader
except AttributeError:  # PyYAML built without libyaml
    _FastBase = yaml.SafeLoader


class YamlError(ValueError):
    """A document that is not allowed; the message has the line if it is known."""


class YamlSyntaxError(YamlError):
    """A text that is not YAML."""


class _FastLoader(_FastBase):  # type: ignore[misc]
    """A loader of documents that eval-factory wrote."""


def _finite_float(loader: Any, node: yaml.ScalarNode) -> float:
    """Return a number. Raises YamlSyntaxError if the number is infinite or NaN."""
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        raise YamlSyntaxError(_located(node, f"{node.value[:20]} is not a finite number"))
    return value


_FastLoader.add_constructor(f"{_TAG}float", _finite_float)


class _CheckedLoader(yaml.SafeLoader):
    """A loader of users' documents, which checks their values.

    A repeated key is an error. PyYAML would silently use the last value.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """Return the document. Raises YamlError if it has too many values or levels."""
        nodes, levels = _measured(node, known={}, above=set())
        if levels > MAX_LEVELS:
            raise YamlError(f"is nested too deeply: {levels} levels, {MAX_LEVELS} at most")
        if nodes > MAX_NODES:
            raise YamlError(
                f"has {nodes:,} values with those of its aliases; {MAX_NODES:,} at most"
            )
        return super().construct_document(node)

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = True,  # noqa: ARG002 - always deep
    ) -> dict[Any, Any]:
        """Return a mapping with text keys. Raises YamlError if a key is repeated."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise YamlError(_located(key_node, f"the key {key_node.value!r} is written twice"))
            seen.add(key_node.value)
        return {
            str(key): value for key, value in super().construct_mapping(node, deep=True).items()
        }


def _whole_number(loader: Any, node: yaml.ScalarNode) -> int | str:
    """Return a whole number; a text such as `1:30` is returned unchanged.

    YAML 1.1 would read `1:30` as 90 (a number of base 60), but the user means a time.
    """
    text = str(node.value)
    if ":" in text:
        return text
    number: int = loader.construct_yaml_int(node)
    return number


def _number(loader: Any, node: yaml.ScalarNode) -> float | str:
    """Return a number; a text such as `1:30.5` is returned unchanged (see `_whole_number`).

    A number that is infinite or NaN is returned too: `parse` reports it with its path.
    """
    text = str(node.value)
    if ":" in text:
        return text
    number: float = loader.construct_yaml_float(node)
    return number


_CheckedLoader.add_constructor(f"{_TAG}int", _whole_number)
_CheckedLoader.add_constructor(f"{_TAG}float", _number)


def parse(text: str) -> Any:
    """Return the document in a user's text; None if the text is empty.

    All keys are texts: a number as a key becomes the text of its digits.

    Raises:
        YamlSyntaxError: the text is not YAML.
        YamlError: the document has values that are not allowed, too many values, or numbers that
            are not finite.
    """
    try:
        document = yaml.load(text, Loader=_CheckedLoader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise YamlSyntaxError(_syntax_problem(error)) from None
    except RecursionError:
        raise YamlError("is nested too deeply") from None
    except YamlError:  # is a ValueError, and already has its message
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
    ):  # raised by PyYAML, for example for `!!int x`
        raise YamlError("holds a value that is not what its tag says") from None
    path = next(paths_not_finite(document), None)
    if path is not None:
        raise YamlError(f"{path}: must be a finite number")
    return document


def load_mapping(path: Path, *, needs: str, inside: Path | None = None) -> dict[str, Any]:
    """Return the mapping in a user's YAML file.

    Args:
        path: the path of the file.
        needs: the required keys, as a text for the messages about a file without a mapping.
        inside: the folder that must contain the file, also after links are followed; None: any
            folder.

    Raises:
        ConfigError: the file cannot be read, is too large, or is not in the folder `inside`. Or its
            text is not YAML, is empty, is not a mapping, or has values that are not allowed.
    """
    try:
        with open_regular(path, inside) as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            raise ConfigError(
                f"{path}: is larger than {MAX_CONFIG_BYTES // 1024} KiB; is it the right file?"
            )
        document = parse(content.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder, not a file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not a UTF-8 text file") from None
    except YamlError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        raise ConfigError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if document is None:
        raise ConfigError(f"{path}: is empty; it needs {needs}")
    if not isinstance(document, dict):
        kind = {list: "a list", str: "a text", bool: "true or false"}.get(
            type(document), "a number"
        )
        raise ConfigError(f"{path}: holds {kind} instead of a mapping; it needs {needs}")
    return document


def parse_own_text(text: str) -> Any:
    """Return the document in a text that eval-factory wrote, or that its package contains.

    Raises YamlSyntaxError if the text is not YAML, because it was changed or is incomplete.
    """
    try:
        return yaml.load(text, Loader=_FastLoader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise YamlSyntaxError(_syntax_problem(error)) from None


def load_packaged(path: str) -> Any:
    """Return the document in a YAML file of eval-factory's package.

    Args:
        path: the path below the package, such as `config/descriptions.yml`.
    """
    return parse_own_text((Path(__file__).parents[1] / path).read_text(encoding="utf-8"))


def _syntax_problem(error: yaml.YAMLError) -> str:
    """Return the message for a text that is not YAML, with the line and column if known."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "is not valid YAML"
    if mark is None:
        return f"is not valid YAML: {problem}"
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def _located(node: yaml.Node, problem: str) -> str:
    """Return the text of a problem, after the line and column of the value with the problem."""
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: {problem}"


def _measured(
    node: yaml.Node, known: dict[int, tuple[int, int]], above: set[int]
) -> tuple[int, int]:
    """Return (number of values, number of nested levels) of a node, with aliases expanded.

    Args:
        node: a value of the document.
        known: id of a node -> its result, if the node was measured before.
        above: the ids of the nodes that contain this node.

    Raises:
        YamlError: a value is not allowed, or an alias refers to a value that contains the alias.
    """
    if id(node) in above:
        raise YamlError(_located(node, "an alias refers to a value that contains it"))
    if id(node) in known:
        return known[id(node)]
    _check_kind(node)
    above.add(id(node))
    values = 1  # the node itself
    levels_below = 0
    entries = node.value if isinstance(node, yaml.CollectionNode) else ()
    for entry in entries:
        children = [entry]
        if isinstance(node, yaml.MappingNode):
            _check_key(entry[0])
            children = entry  # the key and the value
        for child in children:
            values_of_child, levels_of_child = _measured(child, known, above)
            values += values_of_child
            levels_below = max(levels_below, levels_of_child)
    above.remove(id(node))
    known[id(node)] = (values, levels_below + 1)
    return known[id(node)]


def _check_key(key: yaml.Node) -> None:
    """Raise YamlError if a key of a mapping is not a text or a whole number.

    A key whose tag is not allowed at all is not reported here, but by `_check_kind`.
    """
    if not isinstance(key, yaml.ScalarNode):
        raise YamlError(_located(key, "a key must be text, not a list or a mapping"))
    if key.tag in _ALLOWED_TAGS and key.tag not in (_STR, _INT, _MERGE):
        kind = key.tag.removeprefix(_TAG)
        raise YamlError(
            _located(key, f"a key must be text: {key.value!r} is read as {kind}; put it in quotes")
        )


def _check_kind(node: yaml.Node) -> None:
    """Raise YamlError if a value has a type that is not allowed, is too long a number, or cannot be
    written to a file.
    """
    if node.tag == f"{_TAG}timestamp":
        raise YamlError(_located(node, "is read as a date; put it in quotes"))
    if node.tag not in _ALLOWED_TAGS:
        shown = f"!!{node.tag.removeprefix(_TAG)}" if node.tag.startswith(_TAG) else node.tag
        plain = "a configuration holds texts, numbers, true, false, null, lists and mappings"
        raise YamlError(_located(node, f"is {shown}; {plain}"))
    if isinstance(node, yaml.ScalarNode):
        if node.tag in _NUMBERS and len(node.value) > MAX_NUMBER_CHARACTERS:
            raise YamlError(
                _located(
                    node,
                    f"a number of {len(node.value):,} characters; at most {MAX_NUMBER_CHARACTERS}",
                )
            )
        if not is_writable(node.value):
            raise YamlError(
                _located(node, "holds half a character (a lone surrogate), which no file can hold")
            )


def is_writable(text: str) -> bool:
    """Return True if a text can be written to a file.

    A text cannot be written if it contains a lone surrogate, which may stand for bytes that are not
    UTF-8.
    """
    return re.search("[\ud800-\udfff]", text) is None


def paths_not_writable(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each text that cannot be written to a file.

    For a key that cannot be written, the path of its mapping is yielded.
    """
    for leaf_path, value in _leaves(tree, path):
        if isinstance(value, str) and not is_writable(value):
            yield leaf_path


def paths_not_finite(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each number that is infinite or NaN."""
    for leaf_path, value in _leaves(tree, path):
        if isinstance(value, float) and not math.isfinite(value):
            yield leaf_path or "the value"


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of each value that is neither a mapping nor a list.

    A key that cannot be written to a file is yielded as a value, with the path of its mapping.
    """
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if is_writable(str(key)):
                yield from _leaves(value, f"{path}.{key}" if path else str(key))
            else:
                yield path or "a key", str(key)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from _leaves(value, f"{path}[{number}]")
    else:
        yield path, tree


class OneLineMapping(dict[str, Any]):
    """A mapping that is written in flow style: `{a: 1, b: 2}`."""


class OneLineList(list[Any]):
    """A list that is written in flow style: `[1, 2]`."""


class _Dumper(yaml.SafeDumper):
    """Writes documents without anchors and aliases, which some readers of YAML do not support."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class asks per value
        """Return True: no value is written as an alias."""
        return True


_Dumper.add_multi_representer(TextEnum, lambda dumper, data: dumper.represent_str(str(data)))
_Dumper.add_representer(
    OneLineMapping,
    lambda dumper, data: dumper.represent_mapping(f"{_TAG}map", data, flow_style=True),
)
_Dumper.add_representer(
    OneLineList, lambda dumper, data: dumper.represent_sequence(f"{_TAG}seq", data, flow_style=True)
)


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return a document as YAML text, with the keys in their order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
