"""Tests of what of a configuration depends on the task."""

from __future__ import annotations

import json
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


ORDERS = "config.params.extra.shuffle_choices"


def shuffled(type_: str, orders: Any = 3, **more: Any) -> dict[str, Any]:
    return {"config.type": type_, ORDERS: orders, **more}


@pytest.mark.parametrize(
    "type_",
    [
        "sample_medical_qa",
        "head_qa",
        "medbullets",
        "medhelm_med_qa",
        "medhelm_med_mcqa",
        "helm:mmlu:subject=anatomy",
    ],
)
def test_questions_with_lettered_options_take_it(type_: str) -> None:
    assert evaluation(shuffled(type_)).task.helm.letter_meaning == "by place"


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        ("pubmed_qa", "say what each letter stands for"),
        ("race_based_med", "say what each letter stands for"),
        ("medec", "does not put letters before the options"),
        ("aci_bench", "does not put letters before the options"),
        ("helm:med_qa:data_augmentation=canonical", "cannot be used with data_augmentation"),
        (
            "helm:mmlu:subject=anatomy,method=multiple_choice_separate_original",
            "method=multiple_choice_separate_orig",
        ),
    ],
)
def test_others_say_why_not(type_: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"extra.shuffle_choices: .*{why}"):
        evaluation(shuffled(type_))
    assert evaluation({"config.type": type_}).run.config.params.extra.shuffle_choices is None


@pytest.mark.parametrize("orders", [1, 25, 0, 2.5, True, "many"])
def test_how_many_orders_there_may_be(orders: Any) -> None:
    with pytest.raises(ConfigError, match="shuffle_choices"):
        evaluation(shuffled("sample_medical_qa", orders))
    for allowed in (2, 24):
        assert (
            evaluation(
                shuffled("sample_medical_qa", allowed)
            ).run.config.params.extra.shuffle_choices
            == allowed
        )


def test_it_makes_another_run_and_helm_run_is_told() -> None:
    plain, three, four = (plan(shuffled("sample_medical_qa", orders)) for orders in (None, 3, 4))
    assert len({plain.identity, three.identity, four.identity}) == 3
    assert run_entry(three).startswith("sample_medical_qa:shuffle_choices=3,")
    assert "shuffle_choices" not in run_entry(plain)


def test_more_metrics_are_for_free_text_and_a_known_main_metric() -> None:
    more = {"config.params.extra.metrics": ["f1_score", "rouge_l"]}
    assert ":more_metrics=f1_score+rouge_l," in run_entry(plan({"config.type": "medec", **more}))
    for type_ in ("sample_medical_qa", "healthbench", "helm:covid_dialog", "custom"):
        with pytest.raises(ConfigError, match=r"extra\.metrics: .* cannot have further metrics"):
            evaluation({"config.type": type_, **more})


@pytest.mark.parametrize("task", ["medi_qa", "healthbench", "aci_bench", "helm:live_qa"])
@pytest.mark.parametrize("key", ["pushback", "confidence", "allow_abstain"])
def test_what_needs_an_answer_that_is_right_or_wrong_is_refused_where_judges_read(
    task: str, key: str
) -> None:
    value = {"pushback": 2, "confidence": "stated", "allow_abstain": True}[key]
    with pytest.raises(
        ConfigError,
        match=naming(f"extra.{key}", str(task), "right or wrong"),
    ):
        evaluation({"config.type": task, f"{EXTRA}.{key}": value})
    repeated = evaluation({"config.type": task, f"{EXTRA}.repeats": 3})
    assert repeated.run.config.params.extra.repeats == 3


@pytest.mark.parametrize(
    "task",
    ["pubmed_qa", "head_qa", "medec", "medcalc_bench", "ehr_sql", "helm:mmlu:subject=anatomy"],
)
def test_short_answers_can_be_doubted(task: str) -> None:
    asked = plan(
        {
            "config.type": task,
            f"{EXTRA}.pushback": 2,
            f"{EXTRA}.confidence": "stated",
            f"{EXTRA}.repeats": 3,
        }
    )
    assert asked.askings == 1 + 2 + 2 + 1
    assert "repeats=3,pushback=2," in run_entry(asked)
    assert "confidence=stated," in run_entry(asked)
    with pytest.raises(
        ConfigError,
        match=naming("confidence", "stated_only cannot", "with pushback", "take stated"),
    ):
        evaluation(
            {"config.type": task, f"{EXTRA}.pushback": 2, f"{EXTRA}.confidence": "stated_only"}
        )
    alone = plan(
        {
            "config.type": task,
            f"{EXTRA}.confidence": "stated_only",
            "config.params.max_new_tokens": 9,
        }
    )
    assert (
        alone.askings,
        run_entry(alone).index("num_output_tokens") < run_entry(alone).index("confidence"),
    ) == (
        1,
        True,
    )


def test_conversations_have_no_place_for_stated_only(tmp_path: Path) -> None:
    row = {
        "messages": [{"role": "user", "content": "A. a B. b"}],
        "correct_answer": "A",
        "incorrect_answers": ["B"],
    }
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    about = {
        "name": "mine",
        "description": "d",
        "dataset_file": "c.jsonl",
        "metrics": [{"name": "exact_match"}],
    }
    (tmp_path / "b.yaml").write_text(json.dumps(about))
    custom = {"config.type": "custom", f"{EXTRA}.benchmark": str(tmp_path / "b.yaml")}
    assert evaluation({**custom, f"{EXTRA}.confidence": "stated"}).task.name == "custom.mine"
    with pytest.raises(
        ConfigError, match=naming("changes the instructions", "stated_only", "take stated")
    ):
        evaluation({**custom, f"{EXTRA}.confidence": "stated_only"})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("repeats", 1, "repeats"),
        ("repeats", 101, "repeats"),
        ("pushback", 0, "pushback"),
        ("pushback", 7, "pushback"),
        ("perturb", [], "perturb"),
        ("perturb", ["typos", "typos"], "names typos twice"),
        ("perturb", ["typo"], "no family is called 'typo', did you mean 'typos'"),
        ("confidence", "guessed", "confidence"),
        (
            "perturb",
            ["gender", "race", "typos"],
            r"perturb: gender, race may change the right answers of pubmed_qa",
        ),
        ("perturb", ["dialect", "typos"], r"perturb: dialect: .*perturb_unchecked"),
        ("cost_of_wrong", -1, "cost_of_wrong"),
    ],
)
def test_a_slip_in_what_is_asked_again(key: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        evaluation({"config.type": "pubmed_qa", f"{EXTRA}.{key}": value})


def test_families_that_a_clinician_has_to_read_are_allowed_by_name() -> None:
    allowed = {f"{EXTRA}.perturb": ["dialect"], f"{EXTRA}.perturb_unchecked": True}
    made = evaluation({"config.type": "pubmed_qa", **allowed})
    assert made.run.config.params.extra.perturb == ["dialect"]


def test_two_ways_of_changing_questions_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="cannot be used with data_augmentation"):
        evaluation(
            {"config.type": "helm:pubmed_qa:data_augmentation=robustness", f"{EXTRA}.repeats": 2}
        )


def test_log_probabilities_are_asked_for_once() -> None:
    asked = plan({"config.type": "pubmed_qa", f"{EXTRA}.confidence": "logprobs"})
    assert (asked.model.adapter.params_to_add, asked.askings) == ({"logprobs": True}, 1)
    assert "confidence" not in run_entry(asked)
    completions = {
        "config.type": "pubmed_qa",
        f"{EXTRA}.confidence": "logprobs",
        "target.api_endpoint.type": "completions",
    }
    assert plan(completions).model.adapter.params_to_add == {"logprobs": 1}
    with pytest.raises(ConfigError, match=naming("confidence", "logprobs")):
        evaluation(
            {**completions, "target.api_endpoint.adapter_config.params_to_add": {"logprobs": 5}}
        )


def test_what_is_asked_again_makes_another_run_and_a_cost_that_nobody_is_told_does_not() -> None:
    base = {"config.type": "pubmed_qa"}
    plain = plan(base).identity
    others = [
        ("repeats", 2),
        ("perturb", ["typos"]),
        ("pushback", 1),
        ("confidence", "stated"),
        ("allow_abstain", True),
    ]
    identities = {plan({**base, f"{EXTRA}.{name}": value}).identity for name, value in others}
    assert len(identities | {plain}) == 6
    assert plan({**base, f"{EXTRA}.cost_of_wrong": 5}).identity == plain
    told = {**base, f"{EXTRA}.allow_abstain": True}
    assert plan({**told, f"{EXTRA}.cost_of_wrong": 5}).identity != plan(told).identity


REASONED = {f"{EXTRA}.answer_style": "reasoned"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"config.type": "mmlu_pro_health"}, "mmlu_pro_health"),
        ({"config.type": "medec"}, "medec"),
        ({"config.type": "head_qa", "target.api_endpoint.type": "completions"}, "completions"),
        ({"config.type": "head_qa", f"{EXTRA}.confidence": "logprobs"}, "logprobs"),
        ({"config.type": "med_qa", f"{EXTRA}.num_train_trials": 2}, "num_train_trials"),
    ],
)
def test_reasoned_answers_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=naming(named)):
        evaluation({**given, **REASONED})


def test_reasoned_answers_are_another_run_with_the_users_tokens_last() -> None:
    tokens = {f"{EXTRA}.num_output_tokens": 4096}
    asked = plan({"config.type": "head_qa", **REASONED, **tokens})
    assert asked.identity != plan({"config.type": "head_qa", **tokens}).identity
    assert "answer_style=head_qa,num_output_tokens=4096" in run_entry(asked)


@pytest.mark.parametrize(
    ("task", "key"),
    [
        ("pubmed_qa", "options_only"),
        ("pubmed_qa", "none_of_the_others"),
        ("medec", "options_only"),
        ("medcalc_bench", "ask_unread"),
        ("medi_qa", "ask_unread"),
    ],
)
def test_what_needs_choices_is_refused_where_there_are_none(task: str, key: str) -> None:
    with pytest.raises(ConfigError, match=naming(f"extra.{key}", task)):
        evaluation({"config.type": task, f"{EXTRA}.{key}": True})
