"""Tasks that other packages add: entry points of the group `eval_factory.tasks`, each the name of a package.

Beside the package's modules lies `eval_factory.yml`: `evaluations` as in framework.yml, `errata` as in errata.yml, and
`helm_plugin`, the module that registers the run specs inside helm-run. Its code is named `package.module:function`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata, resources
from typing import Any

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import parse_own

GROUP = "eval_factory.tasks"
FILE_NAME = "eval_factory.yml"
_KEYS = {"evaluations", "errata", "helm_plugin"}


@dataclass(frozen=True)
class PlugIn:
    package: str  # as it is installed: name of the distribution
    document: Mapping[str, Any]

    @property
    def helm_plugin(self) -> str | None:
        return self.document.get("helm_plugin")

    def refused(self, why: object) -> ConfigError:
        return ConfigError(
            f"the package {self.package}, which adds tasks ({GROUP}), cannot be used: {why}\n"
            f"  correct it, or take it out: pip uninstall {self.package}"
        )


@lru_cache(maxsize=1)
def plug_ins() -> tuple[PlugIn, ...]:
    """Those of this environment, by the names of their packages. Raises ConfigError: one cannot be read."""
    found = []
    for point in sorted(metadata.entry_points(group=GROUP), key=lambda point: str(point.dist and point.dist.name)):
        package = point.dist.name if point.dist is not None else point.value
        try:
            document = parse_own((resources.files(point.module) / FILE_NAME).read_text(encoding="utf-8"))
            unknown = sorted(set(document) - _KEYS)
        except Exception as error:  # whatever its module raises when it is imported
            raise PlugIn(package, {}).refused(f"{type(error).__name__}: {error}") from error
        plug_in = PlugIn(package, document)
        if unknown:
            raise plug_in.refused(f"{FILE_NAME}: {', '.join(unknown)}: no known key; known: {', '.join(sorted(_KEYS))}")
        found.append(plug_in)
    return tuple(found)


def is_code(name: str | None) -> bool:
    """Whether a plug-in's function is named, and nothing of this program's."""
    return name is not None and ":" in name


def code_named(name: str) -> Any:
    """The function `package.module:function`. Raises ImportError, AttributeError: there is none."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
