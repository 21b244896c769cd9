"""The index of packages against what importing HELM's metrics stumbles over."""

from __future__ import annotations

import json
import subprocess
import sys

from eval_factory.helm import packages

IMPORT_PARTS = """
import json, sys
sys.argv = ["helm-run"]
from eval_factory.helm_plugin.patches import optional_deps
optional_deps.replace_missing_torch()
from helm.common.object_spec import get_class_by_name
errors = {}
for name, path in json.load(sys.stdin).items():
    try:
        get_class_by_name(path)
    except Exception as error:
        errors[name] = str(error)
json.dump(errors, sys.stdout)
"""


def test_what_is_known_to_be_missing_is_missing() -> None:
    metrics = {
        "ifeval": "helm.benchmark.metrics.ifeval_metrics.IFEvalMetric",
        "msmarco": "helm.benchmark.metrics.ranking_metrics.RankingMetric",
        "flores": "helm.benchmark.metrics.machine_translation_metrics.MachineTranslationMetric",
        "copyright": "helm.benchmark.metrics.copyright_metrics.BasicCopyrightMetric",
        "mmlu": "helm.benchmark.metrics.basic_metrics.BasicReferenceMetric",
    }
    finished = subprocess.run(
        [sys.executable, "-c", IMPORT_PARTS], input=json.dumps(metrics), capture_output=True, text=True, timeout=240,
        check=True,
    )  # fmt: skip
    errors: dict[str, str] = json.loads(finished.stdout.splitlines()[-1])
    for name in metrics:
        missing = packages.missing_for(name)
        assert (name in errors) == bool(missing), errors.get(name)
        assert not missing or any(module in errors[name] for module in missing), errors[name]
