"""The index of run specs is the installed HELM's; what it says of packages is what importing HELM stumbles over."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from eval_factory.helm import environments
from eval_factory.helm.environments import environment_of
from eval_factory.tasks.upstreams import HELM

EVERY_RUN_SPEC = """
import sys
from eval_factory.tasks.run_specs import load_index
from eval_factory.helm_plugin.patches.patch_registry import patch_named
from helm.benchmark import run_spec
names = list(load_index().run_specs)
sys.argv = ["helm-run", "--run-entries", *(f"{name}:model=x/y" for name in names)]
def all_of_them():
    raise SystemExit("every module was imported")
run_spec.discover_run_spec_functions = all_of_them
patch_named("import_only_the_run_specs_that_are_asked").apply()
missing = [name for name in names if run_spec.get_run_spec_function(name) is None]
sys.exit(f"not found: {missing}" if missing else 0)
"""


def run(code: str, given: str = "") -> str:
    argv = [sys.executable, "-c", code]
    finished = subprocess.run(
        argv, input=given, capture_output=True, text=True, timeout=240, check=False
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    return finished.stdout


def test_the_index_is_what_helms_source_gives(root: Path, tmp_path: Path) -> None:
    """After another HELM is installed: python scripts/make_helm_index.py"""
    anew = tmp_path / "index.json"
    script = root / "scripts" / "make_helm_index.py"
    subprocess.run(
        [sys.executable, str(script), str(anew)], check=True, capture_output=True, timeout=120
    )
    packaged = root / "src" / "eval_factory" / "tasks" / "helm_index.json"
    assert anew.read_text("utf-8") == packaged.read_text("utf-8")


def test_the_plug_in_finds_every_run_spec_by_its_module() -> None:
    run(EVERY_RUN_SPEC)


IMPORT_PARTS = """
import json, sys
sys.argv = ["helm-run"]
from eval_factory.helm_plugin.patches import lighter
lighter.replace_missing_torch()
from helm.common.object_spec import get_class_by_name
errors = {}
for name, path in json.load(sys.stdin).items():
    try:
        get_class_by_name(f"helm.benchmark.metrics.{path}")
    except Exception as error:
        errors[name] = str(error)
json.dump(errors, sys.stdout)
"""


def test_what_is_known_to_be_missing_is_missing() -> None:
    metrics = {
        "ifeval": "ifeval_metrics.IFEvalMetric",
        "msmarco": "ranking_metrics.RankingMetric",
        "flores": "machine_translation_metrics.MachineTranslationMetric",
        "copyright": "copyright_metrics.BasicCopyrightMetric",
        "mmlu": "basic_metrics.BasicReferenceMetric",
    }
    errors: dict[str, str] = json.loads(run(IMPORT_PARTS, json.dumps(metrics)).splitlines()[-1])
    for name in metrics:
        missing = environments.missing_for(name, environment_of(HELM))
        assert (name in errors) == bool(missing), errors.get(name)
        assert not missing or any(module in errors[name] for module in missing), errors[name]
