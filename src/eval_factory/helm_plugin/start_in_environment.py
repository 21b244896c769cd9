"""Starts a program of HELM in an environment that has no eval-factory: `python
start_in_environment.py MODULE ...`.

eval-factory is imported from where this file lies, and nothing else is: its neighbours belong to
another environment.
"""

import importlib.util
import runpy
import sys
from pathlib import Path

package = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location(
    package.name, package / "__init__.py", submodule_search_locations=[str(package)]
)
assert spec is not None  # noqa: S101 - it is a file that is there
assert spec.loader is not None  # noqa: S101
sys.modules[package.name] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.path[0:1] = []  # this file's folder
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
