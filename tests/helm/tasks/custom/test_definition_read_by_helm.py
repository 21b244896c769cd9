"""A custom benchmark as HELM reads it."""

from __future__ import annotations

import json
from pathlib import Path

from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.custom_benchmark import METRICS
from unit.builders import evaluation
from unit.tasks.custom.test_definition import JURY, custom, write


def test_the_metrics_are_helms(tmp_path: Path) -> None:
    from helm.benchmark.run_specs.medhelm.benchmark_config import SUMMARIZATION_METRICS

    assert {"exact_match", "jury_score", *SUMMARIZATION_METRICS} == set(METRICS)


def test_helm_reads_what_we_write_for_it(tmp_path: Path) -> None:
    from helm.benchmark.run_specs.medhelm.benchmark_config import get_benchmark_config_from_path

    from eval_factory.helm.model_files import deployment_of, model_files

    here = make_plan(evaluation(custom(write(tmp_path, {**JURY, "max_tokens": 9}))))
    files = model_files(here)
    assert "judges.yaml" not in files
    (tmp_path / "written.yaml").write_text(files["benchmark.yaml"])
    read = get_benchmark_config_from_path(str(tmp_path / "written.yaml"))
    assert (read.name, read.max_tokens, read.prompt_file) == ("mine", 9, str(tmp_path / "prompt.txt"))
    assert [judge.model_deployment for judge in read.main_metric.judges] == [deployment_of(j) for j in here.judges]
    (spec,) = read.get_annotator_specs()
    assert json.loads(json.dumps(spec.args["annotation_criteria"])) == {"accuracy": ["score", "explanation"]}
