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

from eval_factory.config.merge import set_at_path
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import (
    MAX_LEVELS,
    YamlError,
    YamlSyntaxError,
    load_mapping,
    parse,
    paths_not_finite,
)
from eval_factory.core.secrets import field_names_a_secret, names_a_secret

# The path of an endpoint: `target.api_endpoint` in a run config, or
# `suite.targets[0].api_endpoint` in a suite.
_ENDPOINT = r"(?:target|suite\.targets\[\d+\])\.api_endpoint"
# The path of a list of judges: `config.params.extra.judges` in a run config,
# `suite.params.extra.judges` or `suite.variants[0].params.extra.judges` in the `params` of a suite,
# or `suite.judges` in a suite itself.
_JUDGES = r"(?:config\.params\.extra|suite(?:\.\w+\[\d+\])?\.params\.extra|suite)\.judges"
# `target.api_endpoint.url`, `suite.judges[1].url[0]`
_URL_PATH = re.compile(rf"(?:{_ENDPOINT}|{_JUDGES}\[\d+\])\.url(?:\[\d+\])?")
# the beginning of `target.api_endpoint.headers.X-Team`
_HEADER_PATH = re.compile(rf"(?:{_ENDPOINT}|{_JUDGES}\[\d+\])\.headers\.")
# the beginning of `target.api_endpoint.adapter_config.params_to_add.user`
_ADDED_PARAMETER_PATH = re.compile(rf"{_ENDPOINT}\.adapter_config\.params_to_add\.")
# The end of the host and the sign after it: `m/` in `https://api.com/v1`. The two slashes of
# `https://` do not match, because a colon or a slash is before each of them.
_PAST_THE_HOST = re.compile(r"[^/:][/?#]")
# `${NAME}` or `${NAME:-default}`
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def load_run_config(path: Path) -> dict[str, Any]:
    """Return the content of a run config. Raises ConfigError if the file cannot be read."""
    return load_mapping(path, needs="at least `config:` with `type:`, and `target:`")


def map_texts(value: Any, change: Callable[[str, str], Any], path: str = "") -> Any:
    """Return a copy of a tree in which `change` replaced each text. Keys are not changed.

    Args:
        value: mappings, lists and texts at any depth.
        change: gets the path of a text and the text, and returns the replacement.
        path: the path of `value` in its file; empty at the top. `[0]` names an entry of a list.
    """
    if isinstance(value, Mapping):
        changed = {}
        for key, item in value.items():
            item_path = f"{path}.{key}" if path else str(key)
            changed[key] = map_texts(item, change, item_path)
        return changed
    if isinstance(value, list):
        return [map_texts(item, change, f"{path}[{number}]") for number, item in enumerate(value)]
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
        replaced = _VARIABLE.sub(lambda match: _variable_text(match, path, env, problems), text)
        is_one_variable = _VARIABLE.fullmatch(text) is not None
        if is_one_variable and replaced != text:
            return _typed(replaced)
        return replaced

    return map_texts(tree, fill_in, tree_path)


def _variable_text(
    match: re.Match[str], path: str, env: Mapping[str, str], problems: list[str]
) -> str:
    """Return the text that replaces a variable: its value, its default, or itself for a secret.

    A variable without a value and a default becomes an empty text, and a problem is added.

    Args:
        match: the variable in its text.
        path: the path of the text in its file.
        env: the environment variables.
        problems: the list to which a message is added.
    """
    name = match["name"]
    value = env.get(name) or match["default"]
    if value is None:
        unset = (
            f"the environment variable {name} is not set (write ${{{name}:-value}} for a default)"
        )
        problems.append(f"{path}: {unset}")
        return ""
    # Only the value of the environment is hidden: a default is in the user's file already.
    if env.get(name) and _is_secret(match, path):
        return f"${{{name}}}"
    return value


def _typed(text: str) -> Any:
    """Return a number, true, false or null if the text stands for one in YAML; else the text.

    The text is that of a variable which is a complete value, such as `limit_samples: ${LIMIT}`.
    """
    try:
        value = parse(text)
    except YamlError:
        return text
    if isinstance(value, (int, float, bool)) or value is None:
        return value
    return text


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
        # In `https://host/path?token=${NAME}`, the field is `token`.
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
            set_at_path(tree, names, parsed)
    if problems:
        raise ConfigError(problems)
    return tree


# A complete quotation such as `'a,b'`; or a single quotation mark, bracket, brace or comma.
_QUOTED_OR_SIGN = re.compile(r"""'[^']*'|"[^"]*"|['"\[\]{},]""")


def _split_outside_quotes(text: str) -> list[str]:
    """Return the parts of a text between the commas that are outside quotes and brackets.

    Blank parts are left out. Raises ConfigError if a quote is not closed.
    """
    parts = []
    depth = 0  # the number of brackets and braces that are open
    start = 0  # the index at which the current part begins
    for token in _QUOTED_OR_SIGN.finditer(text):
        if token[0] in ("'", '"'):  # a quotation mark without its counterpart
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


def nest_paths(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict with dotted paths as nested dicts.

    `{"config.params.top_p": 1}` becomes `{"config": {"params": {"top_p": 1}}}`.
    """
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        set_at_path(tree, path.split("."), value)
    return tree


def as_yaml_values(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of a mapping with values that a YAML file could hold.

    The copy consists of dicts, lists, texts, numbers, booleans and None. Similar objects of
    programs are converted: other mappings, tuples, paths, numbers of NumPy, and texts of an enum.

    Raises:
        ConfigError: a value cannot be converted. The message states only the path and the type of
            the value, because the value may be a secret.
    """
    document: dict[str, Any] = _plain(mapping, path="", level=1)
    if infinite := list(paths_not_finite(document)):
        raise ConfigError([f"{path}: must be a finite number" for path in infinite])
    return document


def _plain(value: Any, path: str, level: int) -> Any:
    """Return a copy of a value for `as_yaml_values`; raise ConfigError if it cannot be converted.

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
