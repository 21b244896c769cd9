"""The index of run specs is the installed HELM's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EVERY_RUN_SPEC = """
import sys
from eval_factory.tasks.run_specs import load_index
from eval_factory.helm_plugin.patches import speed as fast_startup
from helm.benchmark import run_spec
names = list(load_index().run_specs)
sys.argv = ["helm-run", "--run-entries", *(f"{name}:model=x/y" for name in names)]
def all_of_them():
    raise SystemExit("every module was imported")
run_spec.discover_run_spec_functions = all_of_them
fast_startup.import_only_the_run_specs_that_are_asked()
missing = [name for name in names if run_spec.get_run_spec_function(name) is None]
sys.exit(f"not found: {missing}" if missing else 0)
"""


def test_the_index_is_what_helms_source_gives(root: Path, tmp_path: Path) -> None:
    """After another HELM is installed: python scripts/make_helm_index.py"""
    anew = tmp_path / "index.json"
    script = root / "scripts" / "make_helm_index.py"
    subprocess.run([sys.executable, str(script), str(anew)], check=True, capture_output=True, timeout=120)
    packaged = root / "src" / "eval_factory" / "tasks" / "helm_index.json"
    assert anew.read_text("utf-8") == packaged.read_text("utf-8")


def test_the_plug_in_finds_every_run_spec_by_its_module() -> None:
    argv = [sys.executable, "-c", EVERY_RUN_SPEC]
    finished = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr[-2000:]
