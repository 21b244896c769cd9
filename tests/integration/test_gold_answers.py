"""Fed the gold answers, a benchmark gives full marks: by HELM's own rule, or by the corrected one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.tasks.errata import load_errata
from gold_answers import gold_answers
from program_runs import Outcome, Run, more_data
from scripted_endpoint import ScriptedEndpoint

INSTANCES = 250
CORRECTED = {
    "medcalc_bench": "medcalc_bench_accuracy.corrected",
    "medec": "medec_error_sentence_accuracy.corrected",
    "ehr_sql": "ehr_sql_execution_accuracy.corrected",
}
HELMS_OWN = ("medec", *more_data("pubmed_qa", "head_qa", "race_based_med"))


@pytest.fixture
def with_gold(
    run_program: Run,
    data_environment: dict[str, str],
    place_data: Callable[[Path, str], None],
    tmp_path: Path,
) -> Callable[..., Outcome]:
    def run(task: str, **params: Any) -> Outcome:
        place_data(tmp_path / "out" / "helm", task)
        with ScriptedEndpoint(lambda _prompt: "?") as endpoint:
            asked = {
                "limit_samples": INSTANCES,
                "extra": {"max_unreadable": 1.0},
                **params,
            }  # "?" is no answer
            first = run_program(task, endpoint.url, params=asked, env=data_environment)
            assert first.returncode == 0, first.stderr
            gold = gold_answers(first)
            endpoint.answer = lambda prompt: gold.get(prompt, "")
            outcome = run_program(
                task,
                endpoint.url,
                "--fresh",
                params={"limit_samples": INSTANCES, "parallelism": 16, **params},
                env=data_environment,
            )
            assert outcome.returncode == 0, outcome.stderr
            return outcome

    return run


@pytest.mark.medical_data
@pytest.mark.parametrize("task", ["medcalc_bench", *more_data("ehr_sql", "medec")])
def test_the_corrected_score_of_the_gold_answers_is_full(
    task: str, with_gold: Callable[..., Outcome]
) -> None:
    outcome = with_gold(task)
    label = CORRECTED[task]
    corrected = {
        name: value for name, value in outcome.scores().items() if name.endswith(".corrected")
    }
    assert label in corrected
    assert set(corrected.values()) == {1.0}, corrected
    assert outcome.scores()[label.removesuffix(".corrected")] < 1.0
    notes = [
        note
        for note in outcome.document()["validity"]["notes"]
        if note.startswith(label) and "(errata" in note
    ]
    about = [erratum.id for erratum in load_errata().of(task) if erratum.label == label]
    assert about
    for erratum, note in zip(about, notes, strict=True):
        assert f"(errata {load_errata().version}, {erratum}" in note


@pytest.mark.medical_data
@pytest.mark.parametrize("task", HELMS_OWN)
def test_helms_score_of_the_gold_answers_is_full(
    task: str, with_gold: Callable[..., Outcome]
) -> None:
    outcome = with_gold(task)
    main = outcome.document()["main_metric"]
    assert outcome.scores()[main] == 1.0
    assert outcome.scores().get(f"{main}.corrected", 1.0) == 1.0
    assert (f"{main}.corrected" in outcome.scores()) is (task in CORRECTED)
