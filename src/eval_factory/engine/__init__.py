"""Old names of classes and modules that earlier versions wrote into output folders and printed commands.

HELM and Python's logging load `eval_factory.engine.client.EndpointClient` in a `model_deployments.yaml`, and the like,
by name. Importing a module here gives the one that took its place; nothing is imported before that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    f"{__name__}.{module}": f"eval_factory.helm_plugin.{module}"
    for module in ("client", "log_filter", "plugin", "runner")
}


class _Moved(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """The import system takes what stands in `sys.modules` now."""
        sys.modules[module.__name__] = importlib.import_module(MOVED[module.__name__])


sys.meta_path.append(_Moved())
