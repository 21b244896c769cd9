"""A custom benchmark as HELM reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builders import evaluation
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.custom_benchmark import METRICS
from eval_factory.tasks.custom_table import QUASI_METRICS, becomes_nothing
from unit.tasks.custom.test_definition import JURY, custom, write


def test_the_metrics_are_helms() -> None:
    from helm.benchmark.run_specs.medhelm.benchmark_config import SUMMARIZATION_METRICS

    assert {"exact_match", "jury_score", *SUMMARIZATION_METRICS} == set(METRICS)


def test_helm_reads_what_we_write_for_it(tmp_path: Path) -> None:
    from helm.benchmark.run_specs.medhelm.benchmark_config import get_benchmark_config_from_path

    from eval_factory.helm.command import deployment_of, model_files

    here = make_plan(evaluation(custom(write(tmp_path, {**JURY, "max_tokens": 9}))))
    files = model_files(here)
    assert "judges.yaml" not in files
    (tmp_path / "written.yaml").write_text(files["benchmark.yaml"])
    read = get_benchmark_config_from_path(str(tmp_path / "written.yaml"))
    assert (read.name, read.max_tokens, read.prompt_file) == (
        "mine",
        9,
        str(tmp_path / "prompt.txt"),
    )
    assert [judge.model_deployment for judge in read.main_metric.judges] == [
        deployment_of(j) for j in here.judges
    ]
    (spec,) = read.get_annotator_specs()
    assert json.loads(json.dumps(spec.args["annotation_criteria"])) == {
        "accuracy": ["score", "explanation"]
    }


@pytest.mark.parametrize(
    "answer",
    [
        "A",
        "a",
        " An ",
        "the",
        "The A.",
        "(A)",
        "a-n",
        "t.h.e",
        "--",
        "",
        " \n",
        "A a",
        "B",
        "as",
        "A1",
        "+1",
        "±",
        "A_",
        "Ä",
        "\uff41",
    ],
)
def test_what_becomes_nothing_is_helms_rule(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from helm.benchmark.metrics import nltk_helper

    monkeypatch.setattr(nltk_helper, "install_nltk_resources", lambda: None)  # it downloads
    from helm.benchmark.metrics import evaluate_reference_metrics as helm

    assert becomes_nothing(answer) is (helm.normalize_text(answer) == "")
    if becomes_nothing(answer):
        assert helm.quasi_prefix_exact_match(answer, "anything") == 1
        assert helm.quasi_exact_match(answer, "the") == 1
    assert all(hasattr(helm, name) for name in QUASI_METRICS)
