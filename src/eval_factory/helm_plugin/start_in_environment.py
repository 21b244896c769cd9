"""Starts a HELM program in an environment in which eval-factory is not installed.

Usage: `python start_in_environment.py MODULE ARGUMENTS...`, with the Python of that environment.
The package eval_factory to which this file belongs is imported by its path. The packages that are
installed next to eval_factory belong to another environment, so their folder is not added to
`sys.path`.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

package = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location(
    package.name, package / "__init__.py", submodule_search_locations=[str(package)]
)
assert spec is not None  # noqa: S101 - the file exists
assert spec.loader is not None  # noqa: S101 - a file always has a loader
sys.modules[package.name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
del sys.path[0]  # the folder of this file, which Python put first
del sys.argv[0]  # the path of this file; now MODULE is first
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
