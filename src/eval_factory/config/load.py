"""Reads the parts of a configuration as plain values: a file, `--overrides`, or a mapping.

This module also replaces `${NAME}` in texts by the values of environment variables.
"""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eval_factory.config.merge import put
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import (
    MAX_LEVELS,
    YamlError,
    YamlSyntaxError,
    load_mapping,
    not_finite,
    parse,
)
from eval_factory.core.secrets import field_names_a_secret, names_a_secret

# The path of an endpoint in a run config or in a suite.
_ENDPOINT = r"(?:target|suite\.targets\[\d+\])\.api_endpoint"
# The path of a list of judges: in a run config, in the `params` of a suite, or in a suite itself.
_JUDGES = r"(?:config\.params\.extra|suite(?:\.\w+\[\d+\])?\.params\.extra|suite)\.judges"
_URL_PATH = re.compile(rf"(?:{_ENDPOINT}|{_JUDGES}\[\d+\])\.url(?:\[\d+\])?")
_HEADER_PATH = re.compile(rf"(?:{_ENDPOINT}|{_JUDGES}\[\d+\])\.headers\.")
_ADDED_PARAMETER_PATH = re.compile(rf"{_ENDPOINT}\.adapter_config\.params_to_add\.")
# Matches the first "/", "?" or "#" after the host of a URL, but not the two slashes of `https://`.
_PAST_THE_HOST = re.compile(r"[^/:][/?#]")
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def load_run_config(path: Path) -> dict[str, Any]:
    """Return the content of a run config. Raises ConfigError if the file cannot be read."""
    return load_mapping(path, needs="at least `config:` with `type:`, and `target:`")


def each_text(value: Any, change: Callable[[str, str], Any], path: str = "") -> Any:
    """Return a copy of a tree in which `change` replaced each text. Keys are not changed.

    Args:
        value: mappings, lists and texts at any depth.
        change: gets the path of a text and the text, and returns the replacement.
        path: the path of `value` in its file; empty at the top. `[0]` names an entry of a list.
    """
    if isinstance(value, Mapping):
        changed = {}
        for key, item in value.items():
            changed[key] = each_text(item, change, f"{path}.{key}" if path else str(key))
        return changed
    if isinstance(value, list):
        return [each_text(item, change, f"{path}[{number}]") for number, item in enumerate(value)]
    if isinstance(value, str):
        return change(path, value)
    return value


def interpolate(tree: Any, env: Mapping[str, str], tree_path: str, problems: list[str]) -> Any:
    """Return a copy of a tree with `${NAME}` and `${NAME:-default}` replaced in every text.

    A variable that has a value stays if it is in a header. A secret variable that has a value also
    stays in a URL or in `params_to_add`. All files show `${NAME}` in place of the secret, and only
    the client that sends a request inserts the value. An empty variable counts as not set.

    Args:
        tree: a run config, or a part of a run config.
        env: the environment variables.
        tree_path: the dotted path of the tree in its file; empty at the top.
        problems: the list to which a message is added for each variable that is not set and has no
            default.
    """

    def fill_in(path: str, text: str) -> Any:
        def replacement(match: re.Match[str]) -> str:
            name = match["name"]
            value = env.get(name) or match["default"]
            if value is None:
                unset = (
                    f"the environment variable {name} "
                    f"is not set (write ${{{name}:-value}} for a default)"
                )
                problems.append(f"{path}: {unset}")
                return ""
            if env.get(name) and _is_secret(match, path):
                return f"${{{name}}}"
            return value

        replaced = _VARIABLE.sub(replacement, text)
        if replaced == text or not _VARIABLE.fullmatch(text):
            return replaced
        # The variable is the complete value. Its text may then be a number, true, false or null.
        try:
            typed = parse(replaced)
        except YamlError:
            return replaced
        if isinstance(typed, (int, float, bool)) or typed is None:
            return typed
        return replaced

    return each_text(tree, fill_in, tree_path)


def _is_secret(match: re.Match[str], path: str) -> bool:
    """Return True if a variable holds a secret.

    A variable in a header is always a secret. A variable in the host of a URL is never a secret.
    After the host, and in `params_to_add`, the names decide: a variable is a secret if its own
    name, or the name of its field, is a word for a secret, such as `token`.

    Args:
        match: the variable in its text.
        path: the path of the text in its file.
    """
    if _HEADER_PATH.match(path):
        return True
    if _ADDED_PARAMETER_PATH.match(path):
        field = path.rpartition(".")[2]
    elif _URL_PATH.fullmatch(path):
        url_before_variable = match.string[: match.start()]
        if not _PAST_THE_HOST.search(url_before_variable):
            return False  # The variable is in the host.
        # In `https://host/path?token=`, the field is `token`.
        field = re.split("[/?&;#]", url_before_variable)[-1].rpartition("=")[0]
    else:
        return False
    return names_a_secret(match["name"]) or field_names_a_secret(field)


def parse_overrides(texts: tuple[str, ...]) -> dict[str, Any]:
    """Return overrides such as `a.b=c,d.e="x,y"` as a nested mapping.

    Values are read as YAML. Commas inside quotes or brackets do not separate overrides.

    Raises:
        ConfigError: an override has no `=`, an empty key, too many levels, or an unusable value.
    """
    tree: dict[str, Any] = {}
    problems: list[str] = []
    for text in texts:
        for part in _split_outside_quotes(text):
            key, equals, value = part.partition("=")
            names = [name.strip() for name in key.split(".")]
            if not equals or not all(names):
                problems.append(f"--overrides: expected path.to.key=value, got {part.strip()!r}")
                continue
            if len(names) > MAX_LEVELS:
                problems.append(
                    f"--overrides: {len(names)} names in one path; {MAX_LEVELS} at most"
                )
                continue
            try:
                # YAML would read an empty value as null.
                parsed = parse(value) if value.strip() else ""
            except YamlSyntaxError:
                parsed = value  # A value that is not valid YAML is a text.
            except YamlError as error:
                problems.append(f"--overrides: {key.strip()}: {error}")
                continue
            put(tree, names, parsed)
    if problems:
        raise ConfigError(problems)
    return tree


def _split_outside_quotes(text: str) -> list[str]:
    """Return the parts of a text between the commas that are outside quotes and brackets.

    Blank parts are left out. Raises ConfigError if a quote is not closed.
    """
    parts = []
    depth = 0
    start = 0
    for token in re.finditer(r"""'[^']*'|"[^"]*"|['"\[\]{},]""", text):
        if token[0] in ("'", '"'):
            raise ConfigError(f"--overrides: a quote is not closed in {text!r}")
        if token[0] in ("[", "{"):
            depth += 1
        if token[0] in ("]", "}"):
            depth -= 1
        if token[0] == "," and depth == 0:
            parts.append(text[start : token.start()])
            start = token.end()
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict with dotted paths as nested dicts.

    `{"config.params.top_p": 1}` becomes `{"config": {"params": {"top_p": 1}}}`.
    """
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        put(tree, path.split("."), value)
    return tree


def plain_document(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of a mapping with values that a YAML file could hold.

    The copy consists of dicts, lists, texts, numbers, booleans and None. Similar objects of
    programs are converted: other mappings, tuples, paths, numbers of NumPy, and texts of an enum.

    Raises:
        ConfigError: a value cannot be converted. The message states only the path and the type of
            the value, because the value may be a secret.
    """
    document: dict[str, Any] = _plain(mapping, path="", level=1)
    if infinite := list(not_finite(document)):
        raise ConfigError([f"{path}: must be a finite number" for path in infinite])
    return document


def _plain(value: Any, path: str, level: int) -> Any:
    """Return a copy of a value for `plain_document`; raise ConfigError if it cannot be converted.

    Args:
        value: the value to convert.
        path: the dotted path of the value; empty for the complete document.
        level: the depth of the value in the document, which itself has level 1.
    """
    if level > MAX_LEVELS:
        raise ConfigError(
            f"{path.partition('.')[0]}: is nested too deeply: {MAX_LEVELS} levels at most"
        )
    if isinstance(value, Mapping):
        plain = {}
        for key, item in value.items():
            plain[str(key)] = _plain(item, f"{path}.{key}".lstrip("."), level + 1)
        return plain
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{number}]", level + 1) for number, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # a plain text, also if the value is a member of an enum
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    allowed_values = "a run config holds texts, numbers, true, false, null, lists and mappings"
    raise ConfigError(f"{path}: is of the type {type(value).__qualname__}; {allowed_values}")
