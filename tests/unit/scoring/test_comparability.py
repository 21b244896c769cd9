"""Settings that let a run stand beside MedHELM's leaderboard, and each reason against it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.results import AskedEndpoint, Comparability, Deviation, Instances, Provenance
from eval_factory.core.rundir import RunDir
from eval_factory.helm.names import RUN_RECORD_FILE
from eval_factory.helm.output import AdapterSpec
from eval_factory.scoring.comparability import ComparedRun, comparability_of
from facts import says

MODEL = "target.api_endpoint.model_id"
EXTRA = "config.params.extra"
CHANGES = "target.api_endpoint.adapter_config"
PLAIN: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0, "top_p": 1}
ALL = Instances(requested=1000, scored=1000, failed=0, empty=0, truncated=0, filtered=0)
JUDGE: dict[str, Any] = {"max_tokens": 4096, "temperature": 0.0, "top_p": 1}
JURY = {
    "gpt": "gpt-4o-2024-05-13",
    "llama": "meta/llama-3.3-70b-instruct",
    "claude": "claude-3-7-sonnet-20250219",
}
GRANTED_MORE = (
    "the leaderboard granted 4000 tokens to deepseek-r1, gemini-2.5-pro-preview-05-06, gpt-5-2025-08-07,"
    " gpt-5-mini-2025-08-07, o3-mini-2025-01-31, o4-mini-2025-04-16"
)


def endpoint(model: str, *sampling: dict[str, Any], stated: str | None = None) -> AskedEndpoint:
    return AskedEndpoint(model, "host", sampling, 1, {stated: 1} if stated else {}, 0, None)


def facts_of(
    flags: dict[str, Any] | None = None,
    *sampling: dict[str, Any],
    asked: int = 1000,
    judges: dict[str, AskedEndpoint] | None = None,
    adapter: dict[str, Any] | None = None,
    **changes: Any,
) -> ComparedRun:
    """A run of pubmed_qa, all of it; `changes` are counts of instances, or of the provenance."""
    here = plan(flags)
    counts = {
        name: changes.pop(name) for name in list(changes) if name in Instances.__dataclass_fields__
    }
    endpoints = {"model": endpoint(here.model.model_id, *(sampling or (PLAIN,))), **(judges or {})}
    made = Provenance("1", "0.5.16", "3.11", {}, {}, "0" * 64, "v1", 4, None, "m")
    spec = {"max_tokens": 1, "temperature": 0.0, "max_train_instances": 0, **(adapter or {})}
    made = replace(made, endpoints=endpoints, **changes)
    return ComparedRun(here, AdapterSpec.model_validate(spec), replace(ALL, **counts), asked, made)


def told(*args: Any, **changes: Any) -> Comparability:
    return comparability_of(facts_of(*args, **changes))


def deviations(*args: Any, **changes: Any) -> list[Deviation]:
    found = told(*args, **changes)
    assert found.medhelm_settings is (not found.deviations)
    return list(found.deviations)


@pytest.mark.parametrize(
    ("sent", "here"),
    [
        ([{**PLAIN, "max_tokens": 16}], 16),
        ([PLAIN, {**PLAIN, "max_tokens": 16}], "1, 16"),
        ([{"temperature": 0.0, "top_p": 1}], "not sent"),
        ([{"temperature": 0.0, "top_p": 1, "max_completion_tokens": 16}], 16),
    ],
)
def test_another_number_of_tokens(sent: list[dict[str, Any]], here: str | int) -> None:
    assert told() == Comparability(medhelm_settings=True)
    (found,) = deviations(None, *sent)
    assert found == Deviation("max_tokens", 1, here, found.effect)
    says(found.effect, "cut off", "another length")
    assert GRANTED_MORE in found.effect


def test_tokens_may_be_sent_under_another_name() -> None:
    others = {"temperature": 0.0, "top_p": 1}
    renamed = {f"{CHANGES}.params_to_rename": {"max_tokens": "max_output_tokens"}}
    assert deviations(None, {**others, "max_completion_tokens": 1}) == []
    assert deviations(renamed, {**others, "max_output_tokens": 1}) == []
    assert [one.setting for one in deviations(None, {**others, "max_output_tokens": 1})] == [
        "max_tokens"
    ]


def test_models_that_think_were_granted_more() -> None:
    for model, granted in (
        ("deepseek-ai/deepseek-r1", 4000),
        ("azure/o3-mini-2025-01-31", 4000),
        ("o3-mini", 4000),
        ("openai/gpt-4o-2024-05-13", 1),
        ("deepseek-r1-distill", 1),
    ):
        assert deviations({MODEL: model}, {**PLAIN, "max_tokens": granted}) == []
        (other,) = deviations({MODEL: model}, {**PLAIN, "max_tokens": granted + 1})
        assert (other.leaderboard, other.here) == (granted, granted + 1)


@pytest.mark.parametrize(
    ("field", "value", "there", "effect"),
    [
        ("temperature", 0.7, 0.0, "answers vary from run to run"),
        ("top_p", 0.5, 1.0, "the model chooses each word from another set of words"),
    ],
)
def test_sampling(field: str, value: float, there: float, effect: str) -> None:
    assert deviations(None, {**PLAIN, field: value}) == [Deviation(field, there, value, effect)]
    left_out = {name: given for name, given in PLAIN.items() if name != field}
    (found,) = deviations(None, left_out)
    assert (found.setting, found.leaderboard, found.here) == (field, there, "not sent")
    says(found.effect, "model's own default")
    assert [one.here for one in deviations(None, PLAIN, {**PLAIN, field: value})] == [
        f"{PLAIN[field]}, {value}"
    ]


def test_where_nothing_was_answered_what_was_to_be_sent_counts() -> None:
    def of(flags: dict[str, Any] | None = None, **adapter: Any) -> list[tuple[str, object]]:
        facts = facts_of(flags, adapter=adapter)
        none, unanswered = (
            comparability_of(
                replace(facts, provenance=replace(facts.provenance, endpoints=endpoints))
            ).deviations
            for endpoints in (dict[str, AskedEndpoint](), {"model": endpoint("org/model")})
        )
        assert none == unanswered
        return [(one.setting, one.here) for one in none]

    assert of() == of({"config.params.top_p": 1.0}) == []
    assert (of(max_tokens=5), of(temperature=1.0)) == ([("max_tokens", 5)], [("temperature", 1.0)])
    assert of({"config.params.top_p": 0.5}) == [("top_p", 0.5)]
    # not known
    assert of(max_tokens=None, temperature=1.0) == of(max_tokens=5, temperature=None) == []


def test_fields_that_the_user_adds_or_renames() -> None:
    effect = "the endpoint may give other answers"
    added = {
        f"{CHANGES}.params_to_add": {
            "reasoning_effort": "low",
            "top_p": 0.5,
            "max_completion_tokens": 1,
        }
    }
    assert deviations(added, PLAIN) == [
        Deviation("params_to_add: reasoning_effort", "not sent", "low", effect)
    ]
    (long,) = deviations({f"{CHANGES}.params_to_add": {"stop": "x" * 999}})
    assert len(str(long.here)) == 200
    renamed = {f"{CHANGES}.params_to_rename": {"temperature": "heat", "max_tokens": "max_new"}}
    assert deviations(renamed, PLAIN) == [
        Deviation("params_to_rename: temperature", "temperature", "heat", effect)
    ]
    limit = {
        f"{CHANGES}.params_to_rename": {"max_tokens": "max_new"},
        f"{CHANGES}.params_to_add": {"max_new": 1},
    }
    assert deviations(limit, {"temperature": 0.0, "top_p": 1, "max_new": 1}) == []


PROMPT = {f"{CHANGES}.custom_system_prompt": "Be brief."}


@pytest.mark.parametrize(
    ("flags", "changes", "deviation"),
    [
        (
            PROMPT,
            {},
            (
                "system prompt",
                "none",
                "custom_system_prompt",
                "the model gets more instructions than the benchmark has",
            ),
        ),
        (
            {**PROMPT, "target.api_endpoint.type": "completions"},
            {},  # which have none
            (
                "endpoint type",
                "chat",
                "completions",
                "the model sees the prompt without its chat format",
            ),
        ),
        (
            {f"{EXTRA}.max_length": 2048},
            {"prompt_truncated": 4},
            ("max_length", "none", 2048, "4 of 1000 prompts were cut"),
        ),
        ({}, {"failed": 3}, ("failed instances", 0, 3, "they are left out of the score")),
        (
            {f"{EXTRA}.on_failure": "zero"},
            {"failed": 3},
            ("failed instances", 0, 3, "they count as 0"),
        ),
        (
            {},
            {"thinking_stripped": 7},
            (
                "thinking",
                "scored",
                "taken out",
                "eval-factory took the model's thinking out of 7 answers before it scored them; HELM alone scores all of the text",
            ),
        ),
        (
            {},
            {"unjudged": 2},
            (
                "answers without a judgement",
                "rated 1",
                "left out of the score",
                "2 answers have no judgement; the score whose name ends with .helm is HELM's own value",
            ),
        ),
    ],
)
def test_what_was_otherwise(
    flags: dict[str, Any], changes: dict[str, Any], deviation: tuple[Any, ...]
) -> None:
    assert deviations(flags, **changes) == [Deviation(*deviation)]


def test_a_scenario_that_limits_records_itself() -> None:
    flags = {
        "config.type": "ehrshot",
        f"{EXTRA}.subject": "lab_anemia",
        f"{EXTRA}.data_path": "/data",
    }
    other = Deviation(
        "max_length", 100_000, 5000, "other records are left out, or shown only in part"
    )
    for given, expected in ((None, []), (100_000, []), (5000, [other])):
        found = deviations({**flags, f"{EXTRA}.max_length": given})
        assert [one for one in found if one.setting == "max_length"] == expected


def test_trials() -> None:
    three = {f"{EXTRA}.num_train_trials": 3}
    adapter = {"num_train_trials": 3, "max_train_instances": 5}
    (examples,) = deviations(three, adapter=adapter)
    assert examples == Deviation("num_train_trials", 1, 3, examples.effect)
    says(examples.effect, "other examples")
    remark = (
        "num_train_trials: 3 has no effect: the prompts have no examples, so HELM makes one trial"
    )
    assert told(three) == Comparability(True, remarks=(remark,))
    assert told({f"{EXTRA}.num_train_trials": 1}).remarks == ()
    assert told(three, adapter={"max_train_instances": 5}).remarks == ()


@pytest.mark.parametrize(
    ("task", "limit", "asked", "there"),
    [
        ("medec", None, 597, None),
        ("medec", 1000, 597, None),
        ("medec", 598, 597, None),
        ("medec", 596, 596, 1000),
        ("medec", 597, 597, None),  # all that there are
        ("medec", 5000, 1001, 1000),
        ("ehr_sql", None, 2909, 1000),
        ("ehr_sql", 1000, 1000, None),
        ("ehr_sql", 1001, 1001, 1000),
        ("ehr_sql", 999, 999, 1000),
        ("med_dialog", 999, 999, 1000),  # nobody has counted these
    ],
)
def test_the_sample(task: str, limit: int | None, asked: int, there: int | None) -> None:
    flags = {"config.type": task, "config.params.limit_samples": limit}
    found = [one for one in deviations(flags, asked=asked) if one.setting == "limit_samples"]
    assert [(one.leaderboard, one.here) for one in found] == (
        [] if there is None else [(there, limit or "none")]
    )


@pytest.mark.parametrize(
    ("limit", "asked", "settings"),
    [
        (1000, 1000, ["sample_seed"]),
        (999, 999, ["limit_samples", "sample_seed"]),
        (5000, 2909, ["limit_samples"]),
        (1001, 1001, ["limit_samples", "sample_seed"]),
    ],
)
def test_a_sample_of_another_draw(limit: int, asked: int, settings: list[str]) -> None:
    flags = {
        "config.type": "ehr_sql",
        "config.params.limit_samples": limit,
        f"{EXTRA}.sample_seed": 0,
    }
    found = {one.setting: one for one in deviations(flags, asked=asked) if one.setting in settings}
    assert list(found) == settings
    if "sample_seed" in settings:
        effect = "these are not the instances that HELM draws"
        assert found["sample_seed"] == Deviation("sample_seed", "HELM's draw", 0, effect)
    if asked > 1000:
        says(found["limit_samples"].effect, "limit_samples to 1000", "sample_seed out")
    elif "limit_samples" in settings:
        assert found["limit_samples"].effect == "999 instances were asked", (
            "no part of the leaderboard's"
        )


def test_named_instances_are_no_sample() -> None:
    flags = {"config.type": "ehr_sql", f"{EXTRA}.instances": ["id1", "id2"]}
    sampled = [
        one for one in deviations(flags, asked=2) if one.setting in ("instances", "limit_samples")
    ]
    (drawn,) = sampled
    assert drawn == Deviation("instances", "HELM's draw", "2 by name", drawn.effect)
    says(drawn.effect, "not a random sample")


def test_a_run_that_was_stopped_has_another_sample(tmp_path: Path) -> None:
    flags = {
        "config.type": "ehr_sql",
        "config.output_dir": str(tmp_path),
        f"{EXTRA}.stop_when.half_width": 0.1,
    }
    for asked, settings in ((100, ["limit_samples", "stop_when"]), (2909, ["limit_samples"])):
        (tmp_path / "helm").mkdir(exist_ok=True)
        record = {"drawn_sample": {"asked": asked, "of": 2909}}
        (tmp_path / "helm" / RUN_RECORD_FILE).write_text(json.dumps(record))
        found = deviations(flags, asked=asked)
        assert [
            one.setting for one in found if one.setting in ("limit_samples", "stop_when")
        ] == settings


def test_of_the_users_own_files_nobody_knows(tmp_path: Path) -> None:
    flags = {"config.type": "mimic_bhc", f"{EXTRA}.data_path": str(tmp_path)}
    (found, *_) = [one for one in deviations(flags) if one.setting == "data"]
    effect = "nobody can tell whether your files have the same content as the leaderboard's"
    assert found == Deviation(
        "data", "unknown", "your own files (provenance.dataset_files)", effect
    )


@pytest.mark.parametrize(
    ("revisions", "here"),
    [
        ({}, "unknown"),
        ({"hub:a": "2" * 40, "b": "1" * 40, "c": "2" * 40}, f"{'1' * 40}, {'2' * 40}"),
    ],
)
def test_equality_is_never_claimed_of_data_at_their_newest(
    revisions: dict[str, str], here: str
) -> None:
    tokens = {**PLAIN, "max_tokens": 10}
    (found,) = deviations({"config.type": "medcalc_bench"}, tokens, dataset_revisions=revisions)
    assert (found.setting, found.leaderboard, found.here) == ("data revision", "unknown", here)
    says(found.effect, "nobody recorded")


def test_files_that_are_not_the_pinned_ones() -> None:
    name = "scenarios/pubmed_qa/data/test_set.json"
    pinned = "8b3276be8942ebbd77f3ddcda12c1749bf0e490045a736fd8438ee40cf37a41d"
    assert deviations(dataset_files={name: pinned}) == []
    (found,) = deviations(dataset_files={name: "f" * 64})
    assert found == Deviation(f"data: {name}", pinned, "f" * 64, found.effect)
    says(found.effect, "other questions")


def test_a_data_set_at_another_revision(tmp_path: Path) -> None:
    (tmp_path / "helm").mkdir()
    entry = {
        "id": "UTAustin-AIHealth/MedHallu",
        "config": "c",
        "revision": "new",
        "folder": str(tmp_path),
    }
    (tmp_path / "helm" / RUN_RECORD_FILE).write_text(json.dumps({"datasets": [entry]}))
    facts = facts_of({"config.type": "medhallu"}, {**PLAIN, "max_tokens": 5})
    there = replace(facts, plan=replace(facts.plan, rundir=RunDir(tmp_path)))
    (found,) = [one for one in comparability_of(there).deviations if one.setting != "limit_samples"]
    assert (found.setting, found.here) == ("data: UTAustin-AIHealth/MedHallu", "new")


def judged(
    jury: dict[str, str] | None = None,
    sampling: dict[str, Any] = JUDGE,
    stated: dict[str, str] | None = None,
) -> list[Deviation]:
    """Of aci_bench with its own jury, or another. `stated`: what a judge's answers call themselves."""
    others = stated or {}
    own = [{"name": name, "model_id": model} for name, model in jury.items()] if jury else None
    judges = {
        name: endpoint(model, sampling, stated=others.get(name))
        for name, model in (jury or JURY).items()
    }
    flags = {"config.type": "aci_bench", f"{EXTRA}.judges": own}
    return deviations(flags, {**PLAIN, "max_tokens": 768}, judges=judges, asked=120)


@pytest.mark.parametrize(
    ("jury", "stated", "here"),
    [
        (None, {}, None),
        (
            {"a": "openai/gpt-4o-2024-05-13", "b": "llama-3.3-70b-instruct", "c": JURY["claude"]},
            {},
            None,
        ),
        (
            {**JURY, "gpt": "gpt-4o-2024-08-06"},
            {},
            "gpt-4o-2024-08-06, meta/llama-3.3-70b-instruct, claude-3-7-sonnet-20250219",
        ),
        ({"gpt": JURY["gpt"]}, {}, "gpt-4o-2024-05-13"),
        (
            {**JURY, "other": "x"},
            {},
            "gpt-4o-2024-05-13, meta/llama-3.3-70b-instruct, claude-3-7-sonnet-20250219, x",
        ),
        (JURY, {"llama": "mistral"}, "gpt-4o-2024-05-13, mistral, claude-3-7-sonnet-20250219"),
    ],
)
def test_another_jury(
    jury: dict[str, str] | None, stated: dict[str, str], here: str | None
) -> None:
    there = "gpt-4o-2024-05-13, llama-3.3-70b-instruct, claude-3-7-sonnet-20250219"
    effect = "another jury rates by another standard"
    assert judged(jury, stated=stated) == (
        [Deviation("judges", there, here, effect)] if here else []
    )


@pytest.mark.parametrize(
    ("field", "there"), [("temperature", 0.0), ("top_p", 1.0), ("max_tokens", 4096)]
)
def test_judges_that_were_asked_otherwise(field: str, there: float) -> None:
    deviations = judged(sampling={**JUDGE, field: 0.5})
    names = [f"judge {role}: {field}" for role in JURY]
    assert [deviation.setting for deviation in deviations] == names
    for deviation in deviations:
        assert (deviation.leaderboard, deviation.here) == (there, 0.5)
        says(deviation.effect, "the judge's ratings")


def test_rows_that_helm_takes_for_one_are_said_and_no_deviation() -> None:
    remark = (
        "HELM uses 167 of the data's 171 rows, because HELM counts equal texts once; "
        "so did the leaderboard"
    )
    assert told({"config.type": "race_based_med"}, asked=167) == Comparability(
        True, remarks=(remark,)
    )


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ({"config.type": "medbullets_freetext"}, "medbullets_freetext"),
        ({"config.type": "sample_medical_qa"}, "sample_medical_qa"),
        ({"config.type": "head_qa", f"{EXTRA}.language": "es"}, "head_qa with language=es"),
        (
            {"config.type": "head_qa", f"{EXTRA}.category": "biology"},
            "head_qa with category=biology",
        ),
        (
            {
                "config.type": "n2c2_ct_matching",
                f"{EXTRA}.subject": "ENGLISH",
                f"{EXTRA}.data_path": "/data",
            },
            "n2c2_ct_matching with subject=ENGLISH",
        ),
    ],
)
def test_of_what_the_leaderboard_did_not_run_there_is_nothing_to_compare_with(
    flags: dict[str, Any], what: str
) -> None:
    board = "MedHELM's leaderboard (crfm-helm 0.5.16)"
    reason = f"{what} is not on {board}"
    assert told(flags) == Comparability(None, reason)


@pytest.mark.parametrize(
    "flags",
    [
        {"config.type": "head_qa", f"{EXTRA}.language": "en"},  # HELM's default
        {"config.type": "medcalc_bench", f"{EXTRA}.version": "v1.0"},
        {"config.type": "med_dialog_icliniq"},
        {"config.type": "med_dialog", f"{EXTRA}.subset": "healthcaremagic"},
        {
            "config.type": "n2c2_ct_matching",
            f"{EXTRA}.subject": "ABDOMINAL",
            f"{EXTRA}.data_path": "/data",
        },
    ],
)
def test_arguments_with_which_the_leaderboard_has_a_result(flags: dict[str, Any]) -> None:
    assert told(flags).medhelm_settings is not None


def test_an_entry_may_differ_from_all_others() -> None:
    note = {
        "config.type": "mimic_bhc",
        f"{EXTRA}.data_path": "/data",
        MODEL: "openai/gpt-5-2025-08-07",
    }
    settings = [
        one.setting
        for one in deviations(note, {**PLAIN, "max_tokens": 10000}, adapter={"max_tokens": 1024})
    ]
    assert "max_tokens" not in settings
    case = {
        "config.type": "clear",
        f"{EXTRA}.condition": "chronic_pain",
        f"{EXTRA}.data_path": "/data",
    }
    (found,) = [one for one in deviations(case, asked=101) if one.setting == "limit_samples"]
    assert found.leaderboard == 100


def test_of_another_upstream_the_leaderboards_settings_are_unknown() -> None:
    found = told({f"{EXTRA}.upstream": "medhelm"})
    assert (found.medhelm_settings, found.deviations) == (None, ())
    says(str(found.reason), "medhelm 0.8.0", "unknown", "crfm-helm 0.5.16")
