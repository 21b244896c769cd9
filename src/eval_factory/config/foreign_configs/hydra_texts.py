"""What Hydra and OmegaConf put into texts: `???` and `${...}`, as `${NAME}` of the environment.

https://omegaconf.readthedocs.io/en/latest/usage.html (mandatory values, interpolation),
https://omegaconf.readthedocs.io/en/latest/custom_resolvers.html (oc.env, oc.decode).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from eval_factory.config.foreign_configs.findings import Finding

MISSING = "???"
_INNERMOST = re.compile(r"\$\{([^${}]*)\}")
_FROM_ENVIRONMENT = re.compile(r"oc\.env:\s*([A-Za-z_]\w*)\s*(?:,(.*))?\Z", re.DOTALL)
_DECODED = re.compile("oc\\.decode:\\s*(\1[^\1\2]*\2)\\s*\\Z")
_START, _END = "\1", "\2"
"""Around a variable of the environment while what is outside of it is followed: both are written with `${`."""
_NO_DEFAULT = (None, "null", "None")
_DEEPEST = 10
"""References to references."""


def variable_for(path: str) -> str:
    """The variable of the environment that stands for a value which is not in the file: MODEL_URL."""
    name = path.rpartition(".")[2]
    return re.sub(r"\W", "_", f"model_{name}" if name == "url" else name).upper()


def plain_tree(tree: Any, document: Mapping[str, Any], path: str, findings: list[Finding]) -> Any:
    """A part of a document with every text as it would be written here; null, and a finding, where that cannot be."""
    if isinstance(tree, Mapping):
        return {
            name: plain_tree(value, document, f"{path}.{name}" if path else str(name), findings)
            for name, value in tree.items()
        }
    if isinstance(tree, list):
        return [plain_tree(value, document, f"{path}[{number}]", findings) for number, value in enumerate(tree)]
    if not isinstance(tree, str):
        return tree
    if tree == MISSING:
        return f"${{{variable_for(path)}}}"
    found = _resolved(tree, document, 0)
    if found is None:
        findings.append(Finding(path, "is an interpolation that is not followed here", "write the value itself"))
    return found.replace(_START, "${").replace(_END, "}") if isinstance(found, str) else found


def _resolved(text: str, document: Mapping[str, Any], depth: int) -> Any:
    """The text with the values of its interpolations; of one that is the whole text, the value with its own type."""
    while (match := _INNERMOST.search(text)) is not None:
        value = _value_of(match[1], document, depth)
        if value is None:
            return None
        if match[0] == text and not isinstance(value, str):
            return value
        text = f"{text[: match.start()]}{value}{text[match.end() :]}"
    return text


def _value_of(expression: str, document: Mapping[str, Any], depth: int) -> Any:
    variable = _FROM_ENVIRONMENT.match(expression)
    if variable:
        default = None if variable[2] is None else variable[2].strip().strip("'\"")
        return f"{_START}{variable[1]}{'' if default in _NO_DEFAULT else f':-{default}'}{_END}"
    decoded = _DECODED.match(expression)
    if decoded:
        return decoded[1]
    value: Any = document
    for name in expression.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        known = value != MISSING and depth < _DEEPEST
        return _resolved(value, document, depth + 1) if known else None
    return value if isinstance(value, (int, float)) else None
