from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import MINIMAL, evaluation
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.merge import Source
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import RUNTIME_SETTINGS, URL_SETTING, identity_of, leaves_of
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.dry_run import preview
from facts import naming


def test_what_the_user_set_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(
        "config: {type: med_dialog_icliniq, params: {limit_samples: 3, max_retries: null, extra: {judges: "
        "[{name: a, model_id: b}]}}}\ntarget: {api_endpoint: {adapter_config: {params_to_add: {a.b: {c: 1}}}}}\n"
    )
    found = evaluation({"config.type": None, "config.params.parallelism": 4}, file=file).as_given()
    params = found["config"].pop("params")
    assert found["config"] == {"type": "med_dialog_icliniq", "output_dir": "/results/x"}
    assert {name: params[name] for name in params if name != "extra"} == {
        "limit_samples": 3,
        "parallelism": 4,
    }
    assert list(params["extra"]) == ["judges"]
    assert params["extra"]["judges"] == [{"name": "a", "model_id": "b"}]
    assert found["target"]["api_endpoint"] == {
        "url": "https://host.example/v1",
        "model_id": "org/model",
        "type": "chat",
        "adapter_config": {"params_to_add": {"a.b": {"c": 1}}},
    }


def test_what_a_task_sets_is_not_the_users_unless_the_user_sets_it_too() -> None:
    plain = evaluation({"config.type": "med_dialog"})
    default = plain.as_dict()["config"]["params"]["extra"]["subset"]
    assert default == plain.task.run_config["config"]["params"]["extra"]["subset"]
    assert "params" not in plain.as_given()["config"]
    same = evaluation({"config.type": "med_dialog", "config.params.extra.subset": default})
    assert same.as_given()["config"]["params"] == {"extra": {"subset": default}}


@pytest.mark.parametrize(
    "key",
    [
        "sk-canary0123456789abcdef",
        "nvapi-canary-0123456789",
        "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9v",
        "a-b-canary",
        "2canary",
        "canary 1",
    ],
)
def test_a_key_where_a_name_belongs_is_never_shown(key: str) -> None:
    with pytest.raises(ConfigError, match=naming("NAME", "environment variable")) as raised:
        evaluation({"target.api_endpoint.api_key": key})
    assert key not in str(raised.value)


def test_a_key_written_into_requests_is_refused_and_another_of_a_variable_makes_no_other_run() -> (
    None
):
    place = "target.api_endpoint.adapter_config.params_to_add"
    with pytest.raises(ConfigError, match=naming("a key")) as raised:
        evaluation({place: {"user": {"x": "sk-canary0123456789abcdef"}}})
    assert "canary" not in str(raised.value)
    found = evaluation({place: {"user_token": "${A}", "effort": "low"}}, A="9bQzCANARY7Kd0PL")
    assert found.run.target.api_endpoint.adapter_config.params_to_add == {
        "user_token": "${A}",
        "effort": "low",
    }
    assert "A" in found.key_variables()
    url = {"target.api_endpoint.url": "https://h/v1?key=${A_KEY}"}
    assert (
        len(
            {
                identity_of(evaluation(url, A_KEY=key))
                for key in ("9bQzCANARY7Kd0PL", "other-key-0123")
            }
        )
        == 1
    )


def _paths(group: str, *names: str) -> set[str]:
    return {f"{group}.{name}" for name in names}


CHANGES_RESULTS = frozenset(
    {"config.type", URL_SETTING}
    | _paths("config.params", "limit_samples", "max_new_tokens", "temperature", "top_p")
    | _paths(
        "config.params.extra",
        "benchmark",  # by what its files hold, wherever they are
        "judges",  # but for JUDGE_RUNTIME_SETTINGS
        "data_path",
        "num_output_tokens",
        "max_length",
        "subject",
        "condition",
        "subset",
        "language",
        "category",
        "version",
        "num_train_trials",
        "metrics",
        "criteria_per_request",
        "shuffle_choices",
        "upstream",
        "max_image_side",
        "keep_image_metadata",
        "probe_judges",
        "sample_seed",
        "instances",
        "repeats",
        "perturb",
        "pushback",
        "confidence",
        "allow_abstain",
        "cost_of_wrong",
        "chance_questions",  # only where something is asked again
        "ask_unread",
        "options_only",
        "none_of_the_others",
        "answer_style",  # only where it is not the benchmark's own
        "blind_control",
        "judges_see_images",
        "only_generate",
    )
    | _paths(
        "config.params.extra.stop_when",
        "half_width",
        "beats_floor",
        "differs_from",
        "alpha",
        "seed",
        "first",
    )
    | _paths("target.api_endpoint", "model_id", "type")
    | _paths(
        "target.api_endpoint.adapter_config",
        "use_nvcf",
        "params_to_remove",
        "custom_system_prompt",
        "start_reasoning_token",
        "end_reasoning_token",
        "params_to_add",
        "params_to_rename",  # mappings of the user's own keys
    )
)


def test_every_value_is_classed() -> None:
    """A new configuration field has to say whether it changes results; a run is known again by those that do."""
    paths = {path for path, _ in leaves_of(evaluation().as_dict())}
    assert paths == RUNTIME_SETTINGS | CHANGES_RESULTS
    assert not RUNTIME_SETTINGS & CHANGES_RESULTS


@pytest.mark.parametrize(
    ("path", "value", "changes"),
    [
        ("config.params.limit_samples", 3, True),
        ("config.params.temperature", 0.5, True),
        ("target.api_endpoint.url", "https://other.example/v1", True),
        ("target.api_endpoint.model_id", "org/other", True),
        ("config.params.parallelism", 9, False),
        ("config.params.request_timeout", 9, False),
        ("config.output_dir", "/elsewhere", False),
        ("config.type", "helm.pubmed_qa", False),
        ("target.api_endpoint.training_cutoff", "2024-06", False),
    ],
)
def test_identity(path: str, value: object, changes: bool) -> None:
    assert (identity_of(evaluation()) != identity_of(evaluation({path: value}))) is changes


def test_what_chance_loses_is_of_the_identity_only_where_something_is_asked_again() -> None:
    none = {"config.params.extra.chance_questions": 0}
    again = {"config.params.extra.pushback": 1}
    assert identity_of(evaluation()) == identity_of(evaluation(none))
    assert identity_of(evaluation(again)) != identity_of(evaluation({**again, **none}))


CLEAR = {"config.type": "clear", "config.params.extra.data_path": "/d"}
CONDITION = "config.params.extra.condition"
SUBJECT = "config.params.extra.subject"


def test_subject_is_another_name_of_clears_condition() -> None:
    by_condition = evaluation({**CLEAR, CONDITION: "major_depression"})
    by_subject = evaluation({**CLEAR, SUBJECT: "major_depression"})
    assert by_subject.run == by_condition.run
    assert by_subject.sources[CONDITION] is Source.FLAG
    assert SUBJECT not in by_subject.sources
    assert identity_of(by_subject) == identity_of(by_condition)
    lines = [line.split() for line in preview(by_subject, ["helm-run"]).splitlines()]
    assert ["#", CONDITION, "flag:", "major_depression"] in lines
    assert not [line for line in lines if line[1:2] == [SUBJECT]]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {SUBJECT: "chronic_pain", CONDITION: "unemployment"},
            "condition and subject are the same setting of clear and differ",
        ),
        ({SUBJECT: "depression"}, r"condition: must be one of .*, got 'depression'"),
        ({}, "condition: is missing"),
        ({CONDITION: "unemployment", "config.params.extra.data_path": "a,b"}, "not hold a comma"),
    ],
)
def test_what_clear_cannot_be_run_with(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        evaluation({**CLEAR, **flags})


def test_what_is_not_needed_has_its_default() -> None:
    assert (
        evaluation({"config.type": "med_dialog"}).run.config.params.extra.subset
        == "healthcaremagic"
    )
    medalign = evaluation({"config.type": "medalign", "config.params.extra.data_path": "/d"})
    assert medalign.run.config.params.extra.max_length == 100_000


NUMBERS = [
    "request_timeout",
    "temperature",
    "top_p",
    "max_retries",
    "parallelism",
    "limit_samples",
    "max_new_tokens",
    "extra.max_judge_failures",
    "extra.max_model_mismatch",
    "extra.max_unreadable",
    "extra.min_coverage",
    "extra.stop_after_failures",
    "extra.max_length",
    "extra.num_train_trials",
]


@pytest.mark.parametrize(
    "path",
    [
        *(f"config.params.{name}" for name in NUMBERS),
        *(f"target.api_endpoint.{name}" for name in ("requests_per_minute", "tokens_per_minute")),
    ],
)
def test_true_is_no_number_and_absurd_ones_are_refused(path: str) -> None:
    absurd = () if path.endswith("stop_after_failures") else (1e10, 10**10)
    for value in (True, False, *absurd, float("inf"), float("nan"), "x"):
        with pytest.raises(ConfigError, match=rf"{path}: must be") as raised:
            evaluation({path: value})
        (problem,) = raised.value.problems
        assert not isinstance(value, bool) or str(value).lower() in problem.lower()


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("request_timeout", 0.001, 86400),
        ("temperature", 0, 100),
        ("top_p", 0.01, 1),
        ("limit_samples", 1, 10**9),
        ("parallelism", 1, 4096),
        ("extra.num_train_trials", 1, 1000),
        ("extra.min_coverage", 0, 1),
    ],
)
def test_numbers_have_their_ends(name: str, least: float, most: float) -> None:
    for value in (least, most):
        evaluation({f"config.params.{name}": value})
    for value, said in ((least - 1, "greater than"), (most + 1, "less than or equal to")):
        with pytest.raises(ConfigError, match=f"must be {said}"):
            evaluation({f"config.params.{name}": value})


def test_a_training_cutoff_is_a_month(tmp_path: Path) -> None:
    path = "target.api_endpoint.training_cutoff"
    file = tmp_path / "run.yml"
    for text in ("2024-06", "'2024-06'", "${CUTOFF}"):
        file.write_text(
            f"target:\n  api_endpoint:\n    training_cutoff: {text}\n", encoding="utf-8"
        )
        assert (
            evaluation(file=file, CUTOFF="2024-06").run.target.api_endpoint.training_cutoff
            == "2024-06"
        )
    assert evaluation({path: None}).run.target.api_endpoint.training_cutoff is None
    for value in (
        2024,
        True,
        "2024",
        "2024-6",
        "2024-13",
        "2024-06-30",
        "June 2024",
        "2024-06\n",
        ["2024-06"],
    ):
        with pytest.raises(ConfigError, match=naming(f"{path}: ", "a month", "2024-06")):
            evaluation({path: value})


def test_a_parameter_that_is_given_twice_keeps_its_own_source() -> None:
    request = RunRequest(
        flags={**MINIMAL, **CLEAR, CONDITION: "homelessness"},
        overrides=(f"{SUBJECT}=homelessness",),
    )
    found = build_evaluation(request, load_framework(), {})
    assert found.sources[CONDITION] is Source.FLAG
    assert SUBJECT not in found.sources
    other = evaluation(
        {"config.type": "ehrshot", "config.params.extra.data_path": "/x", SUBJECT: "lab_anemia"}
    )
    assert other.sources[SUBJECT] is Source.FLAG


def test_a_benchmark_that_cannot_be_run_is_refused_with_the_reason() -> None:
    with pytest.raises(
        ConfigError, match=naming("csedb cannot be run", "licence", "new_benchmark")
    ):
        evaluation({"config.type": "csedb"})
    assert not set(load_framework().refused) & set(load_framework().names())
