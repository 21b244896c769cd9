"""Tests of what of a configuration depends on the task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation, plan
from eval_factory.config.rules import prescribed_judges_by_role, with_task_rules
from eval_factory.core.errors import ConfigError
from eval_factory.helm.command import run_entry
from facts import each_says, naming, says

EXTRA = "config.params.extra"


def test_an_endpoint_of_a_type_that_the_task_cannot_be_run_on() -> None:
    problems: list[str] = []
    here = evaluation({"target.api_endpoint.type": "completions"})
    with_task_rules(replace(here, task=here.task.only_on(["chat"])), problems)
    each_says(problems, ["target.api_endpoint.type", "pubmed_qa", "chat", "not on completions"])
    problems.clear()
    with_task_rules(here, problems)
    assert problems == []


JUDGES, LANGUAGE, SUBSET, TOKENS = (
    f"{EXTRA}.{name}" for name in ("judges", "language", "subset", "num_output_tokens")
)
SEE = f"{EXTRA}.judges_see_images"
MINE = [{"name": "mine", "model_id": "m"}]
BELONGS = "it belongs to head_qa, slake, careqa, mmlu_clinical_afr"
SAME = "max_new_tokens and extra.num_output_tokens are the same setting and differ (5 and 6); give one of them"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({JUDGES: MINE}, [f"{JUDGES}: pubmed_qa is not scored by judges"]),
        # A structured judge of such a task is not told that HELM has prompts for it.
        (
            {JUDGES: [{**MINE[0], "structured": True}]},
            [f"{JUDGES}: pubmed_qa is not scored by judges"],
        ),
        (
            {"config.type": "helm:harm_bench", JUDGES: MINE},
            [f"{JUDGES}: helm:harm_bench has no judge 'mine'; HELM prescribes gpt"],
        ),
        (
            {
                "config.type": "helm:harm_bench",
                JUDGES: [{"name": "gpt", "model_id": "m", "structured": True}],
            },
            [
                f"{JUDGES}.gpt.structured: helm:harm_bench asks its judges with HELM's own prompts, whose answers are not JSON; leave it out"
            ],
        ),
        (
            {"config.type": "aci_bench", "config.output_dir": "a,b"},
            [
                "config.output_dir: must not hold a comma for a task with judges: HELM ends a value at a comma"
            ],
        ),
        (
            {f"{EXTRA}.instances": ["id1"], "config.params.limit_samples": 5},
            [f"{EXTRA}.instances: names the instances to ask, so leave limit_samples out"],
        ),
        ({SEE: True}, [f"{SEE}: pubmed_qa is not scored by judges; leave it out"]),
        (
            {"config.type": "aci_bench", SEE: True},
            [f"{SEE}: aci_bench shows no pictures; leave it out"],
        ),
        ({LANGUAGE: "en"}, [f"{LANGUAGE}: pubmed_qa has no language; {BELONGS}"]),
        (
            {"config.type": "helm:boolq", f"{EXTRA}.subject": "x"},
            [
                f"{EXTRA}.subject: write the arguments of a run entry in config.type: helm:boolq:subject=x"
            ],
        ),
        (
            {"config.type": "med_dialog", SUBSET: "healthcaremagik"},
            [
                f"{SUBSET}: must be one of healthcaremagic, icliniq, got 'healthcaremagik', did you mean 'healthcaremagic'?"
            ],
        ),
        (
            {"config.type": "med_dialog", SUBSET: "x"},
            [f"{SUBSET}: must be one of healthcaremagic, icliniq, got 'x'"],
        ),
        (
            {"config.type": "med_dialog_icliniq", SUBSET: "healthcaremagic"},
            [f"{SUBSET}: med_dialog_icliniq is subset=icliniq, got 'healthcaremagic'"],
        ),
        ({"config.params.max_new_tokens": 5, TOKENS: 6}, [f"config.params: {SAME}"]),
    ],
)
def test_what_the_task_does_not_take_is_told(flags: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluation(flags)
    assert caught.value.problems == said


def test_what_the_task_takes() -> None:
    assert evaluation(
        {"config.type": "helm:harm_bench", JUDGES: [{"name": "gpt", "model_id": "m"}]}
    )
    assert evaluation({"config.type": "aci_bench", JUDGES: MINE})
    assert evaluation({"config.output_dir": "a,b"})
    for subset in (None, "icliniq"):
        found = evaluation({"config.type": "med_dialog_icliniq", SUBSET: subset})
        assert found.run.config.params.extra.subset == "icliniq"
    for tokens in ((5, 5), (5, None), (None, 5)):
        given = {"config.params.max_new_tokens": tokens[0], TOKENS: tokens[1]}
        assert evaluation(given).num_output_tokens == 5


def test_a_parameter_that_is_missing_is_told_with_what_it_may_be() -> None:
    with pytest.raises(ConfigError) as caught:
        evaluation({"config.type": "clear"})
    condition = next(text for text in caught.value.problems if ".condition:" in text)
    says(condition, "config.params.extra.condition", "is missing", "one of")
    path = next(text for text in caught.value.problems if ".data_path:" in text)
    says(path, "is missing", "eval-factory ls clear")


def test_a_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = evaluation(
        {
            "config.type": "ehrshot",
            f"{EXTRA}.subject": "lab_anemia",
            f"{EXTRA}.data_path": "some/where",
        }
    )
    assert found.run.config.params.extra.data_path == str(tmp_path / "some" / "where")


@pytest.mark.parametrize(
    ("deployments", "roles"),
    [
        ((), {}),
        (("openai/gpt-4o",), {"gpt": "openai/gpt-4o"}),
        (
            ("meta/llama-3", "anthropic/claude-3"),
            {"llama": "meta/llama-3", "claude": "anthropic/claude-3"},
        ),
        (("azure/gpt-4o",), {"gpt": "azure/gpt-4o"}),
        (("anthropic/opus",), {"claude": "anthropic/opus"}),
        (("mistral/m",), {"mistral": "mistral/m"}),
        (
            ("openai/gpt-4o", "openai/GPT 4.1"),
            {"gpt": "openai/gpt-4o", "gpt-4-1": "openai/GPT 4.1"},
        ),
        (("openai/gpt-4o", "openai/gpt-4o"), {"gpt": "openai/gpt-4o"}),
        (("no-slash",), {}),
    ],
)
def test_roles_of_the_judges_that_helm_prescribes(
    deployments: tuple[str, ...], roles: dict[str, str]
) -> None:
    assert prescribed_judges_by_role(deployments) == roles


SEED = "config.params.extra.sample_seed"
LIMIT = "config.params.limit_samples"


def test_a_sample_is_drawn_of_a_limited_run_and_makes_another_run() -> None:
    with pytest.raises(
        ConfigError,
        match=naming("extra.sample_seed", "config.params.limit_samples"),
    ):
        evaluation({SEED: 0})
    for wrong in (-1, 1.5, True, "7"):
        with pytest.raises(ConfigError, match="sample_seed"):
            evaluation({SEED: wrong, LIMIT: 5})
    assert (
        evaluation(
            {SEED: 3, "config.type": "helm:med_qa:max_eval_instances=5"}
        ).run.config.params.limit_samples
        is None
    )
    plans = [plan({LIMIT: 5, SEED: seed}) for seed in (None, 0, 1)]
    assert len({one.identity for one in plans}) == 3
    assert len({run_entry(one) for one in plans}) == 1, "helm-run is told beside its run entry"


def test_a_share_is_of_the_instances_that_the_task_has() -> None:
    for share, asked in ((0.1, 100), (0.0001, 1), (0.9999, 1000)):
        assert evaluation({LIMIT: share}).run.config.params.limit_samples == asked, (
            "of pubmed_qa's 1,000, rounded up"
        )
    for name, wrong in (
        ("pubmed_qa", 1.5),
        ("pubmed_qa", 0.0),
        ("pubmed_qa", -0.1),
        ("helm:boolq", 0.1),
    ):
        with pytest.raises(ConfigError, match="limit_samples"):
            evaluation({LIMIT: wrong, "config.type": name})


STOP = "config.params.extra.stop_when"


def test_a_rule_to_stop_is_one_and_makes_another_run() -> None:
    plain = plan()
    half = plan({f"{STOP}.half_width": 0.05})
    others = [
        plan({f"{STOP}.half_width": 0.05, f"{STOP}.{name}": value})
        for name, value in (("seed", 1), ("first", 60), ("alpha", 0.01))
    ]
    assert plain.evaluation.stop_when is None
    assert len({one.identity for one in (plain, half, *others)}) == 5
    text = evaluation({f"{STOP}.differs_from": "other"}).stop_when
    assert text is not None
    assert text.differs_from == str(Path("other").absolute())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {"half_width": 0.1, "beats_floor": True},
            "has half_width and beats_floor; give one of them",
        ),
        ({"alpha": 0.1}, "names no rule; give half_width, beats_floor or differs_from"),
        ({"half_width": 0}, "half_width"),
        ({"half_width": 0.1, "first": 5}, "first"),
        ({"half_width": 0.1, "alpha": 0.6}, "alpha"),
        ({"half_with": 0.1}, "half_width"),
        (
            {"half_width": 0.1, SEED: 3, LIMIT: 100},
            "cannot be used with sample_seed .* leave sample_seed out",
        ),
        (
            {"half_width": 0.1, LIMIT: 50},
            "50 of at most 50 instances .limit_samples., so there would be no second look",
        ),
        (
            {"half_width": 0.1, "config.type": "helm:med_qa:max_eval_instances=90"},
            "write config.params.limit_samples",
        ),
        (
            {"beats_floor": True, "config.type": "medication_qa"},
            "best score without a model is not known if judges score the answers; also set",
        ),
        (
            {"half_width": 0.1, "config.params.extra.judge_passport": "p"},
            "cannot be used with judge_passport",
        ),
    ],
)
def test_what_a_run_cannot_be_stopped_by(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        evaluation(
            {name if "." in name else f"{STOP}.{name}": value for name, value in flags.items()}
        )


def test_more_metrics_are_for_free_text_and_a_known_main_metric() -> None:
    more = {"config.params.extra.metrics": ["f1_score", "rouge_l"]}
    assert ":more_metrics=f1_score+rouge_l," in run_entry(plan({"config.type": "medec", **more}))
    for type_ in ("sample_medical_qa", "healthbench", "helm:covid_dialog", "custom"):
        with pytest.raises(ConfigError, match=r"extra\.metrics: .* cannot have further metrics"):
            evaluation({"config.type": type_, **more})
