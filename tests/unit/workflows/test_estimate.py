"""Tests of what a run will take, from what is known before it asks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation, plan
from eval_factory.config.load import load_run_config
from eval_factory.core.budget import Budget, LongPrompts, Price
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.plan import prices
from eval_factory.plan.run_plan import leaves_of
from eval_factory.report.reader import load_result
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.typical_tokens import TypicalRequest, typical_requests
from eval_factory.workflows import estimate as module
from eval_factory.workflows import measured_prompts
from eval_factory.workflows.estimate import RUN_FIRST, CachedFigures, estimate
from eval_factory.workflows.estimate_records import Estimate, RoleEstimate
from eval_factory.workflows.measured_prompts import PromptSizes
from facts import each_says, says

MEASURED = PromptSizes(10, 4000, 50)


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def price(url: str, model_id: str, at: datetime, *, by_batch: bool) -> Price | None:
        assert not by_batch
        return Price(1.0, 10.0, source="genai-prices 7") if model_id == "org/model" else None

    monkeypatch.setattr(prices, "library_price", price)
    monkeypatch.setattr(module, "typical_requests", dict)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[PromptSizes]:
    """Return what is found in the data; nothing may be looked for where it is empty."""
    found: list[PromptSizes] = []
    monkeypatch.setattr(module, "prompt_sizes", lambda _plan, _env: found.pop())
    return found


def of(tmp_path: Path, look: bool = True, **flags: Any) -> Estimate:
    given = {name.replace("__", "."): value for name, value in flags.items()}
    return estimate(
        evaluation({"config.output_dir": str(tmp_path), **given}), {}, look_at_data=look
    )


def answers(
    tmp_path: Path, task: str, *kept: tuple[str, str, Any], latencies: Sequence[float] = ()
) -> Path:
    """Of half a second each, unless said otherwise, in a folder where `task` was run."""
    (tmp_path / "run_config.yml").write_text(f"config: {{type: {task}}}\n")
    cache = ResponseCache(tmp_path / "cache.db", "run")
    for number, (role, model, usage) in enumerate(kept):
        took = latencies[number] if latencies else 0.5
        attempt = Attempt(f"k{number}", role, 1, "answered", 200, None, 1.0, took)
        cache.save(Answer(f"k{number}", role, model, {}, {"usage": usage}, 1.0, took), attempt)
    cache.close()
    return cache.path


TOKENS = {"prompt_tokens": 100, "completion_tokens": 20}


def test_tokens_are_of_the_data_where_nothing_was_asked_yet(
    tmp_path: Path, sizes: list[PromptSizes]
) -> None:
    sizes.append(MEASURED)
    found = of(tmp_path)
    (model,) = found.roles
    assert (model.requests, model.prompt_tokens, model.completion_tokens) == (10, 1000.0, 50.0)
    assert model.cost == pytest.approx((1000 * 1 + 50 * 10) / 1e6)
    assert model.hours is None
    says(model.sources["tokens"], "prompts in", "4 bytes a token", "each answer")
    assert model.sources["time"] == RUN_FIRST
    assert (found.requests, found.tokens, found.cached_answers) == (10, 1050.0, 0)


def test_pictures_are_counted_and_the_estimate_says_how(
    tmp_path: Path, sizes: list[PromptSizes]
) -> None:
    sizes.append(replace(MEASURED, media_tokens=7650))
    (model,) = of(tmp_path).roles
    assert model.prompt_tokens == 1000.0 + 7650
    says(model.sources["tokens"], "OpenAI", "85 tokens", "170 a tile")


def test_rates_of_long_prompts(
    tmp_path: Path, sizes: list[PromptSizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For their answers too; a request is as long as the mean."""
    price = Price(1.0, 10.0, long_prompts=(LongPrompts(2.0, 20.0, above=99),))
    monkeypatch.setattr(prices, "library_price", lambda *_, **__: price)
    sizes.append(MEASURED)
    assert of(tmp_path).cost == pytest.approx((1000 * 2 + 50 * 20) / 1e6)
    sizes.append(PromptSizes(10, 3960, 55))
    assert of(tmp_path).cost == pytest.approx((990 * 1 + 55 * 10) / 1e6)


def test_tokens_are_of_earlier_answers_where_there_are_any(
    tmp_path: Path, sizes: list[PromptSizes]
) -> None:
    sizes.append(MEASURED)
    answers(
        tmp_path,
        "pubmed_qa",
        ("model", "org/model", TOKENS),
        ("model", "other", {"prompt_tokens": 9}),
    )
    found = of(tmp_path, config__params__parallelism=5)
    (model,) = found.roles
    assert (model.prompt_tokens, model.completion_tokens) == (1000.0, 200.0)
    assert model.cost == pytest.approx((1000 * 1 + 200 * 10) / 1e6)
    assert model.hours == pytest.approx(10 * 0.5 / 5 / 3600)
    says(model.sources["time"], "0.5 s a request", "5 at once")
    assert found.cached_answers == 1


def test_what_answers_say_they_cost_goes_before_a_price(tmp_path: Path) -> None:
    answers(tmp_path, "pubmed_qa", ("model", "org/model", {**TOKENS, "cost": 0.25}))
    (model,) = of(tmp_path, look=False, config__params__limit_samples=8).roles
    assert model.cost == 2.0
    says(model.sources["cost"], "endpoint: ", "1 answers")


@pytest.mark.parametrize(
    ("limits", "seconds", "source"),
    [
        ({}, 100 * 0.5 / 4, "0.5 s a request, 4 at once"),
        ({"requests_per_minute": 20}, 300.0, "20 requests a minute"),
        ({"tokens_per_minute": 600}, 1200.0, "600 tokens a minute"),
        ({"tokens_per_minute": 600, "requests_per_minute": 20}, 1200.0, "600 tokens a minute"),
        ({"requests_per_minute": 100_000}, 100 * 0.5 / 4, "0.5 s a request, 4 at once"),
    ],
)
def test_the_tightest_limit_says_how_long(
    tmp_path: Path, limits: dict[str, int], seconds: float, source: str
) -> None:
    answers(tmp_path, "pubmed_qa", ("model", "org/model", TOKENS))
    given = {f"target__api_endpoint__{name}": value for name, value in limits.items()}
    (model,) = of(tmp_path, look=False, config__params__limit_samples=100, **given).roles
    assert model.hours == pytest.approx(seconds / 3600)
    assert model.sources["time"] == source


def test_a_judge_is_asked_for_each_answer(tmp_path: Path) -> None:
    found = of(tmp_path, look=False, config__type="aci_bench", config__params__limit_samples=7)
    assert [(one.role, one.requests) for one in found.roles] == [
        ("model", 7),
        ("gpt", 7),
        ("llama", 7),
        ("claude", 7),
    ]
    assert found.requests == 28
    says(found.roles[1].sources["requests"], "again", "cannot be used")
    says(found.roles[2].sources["cost"], "unknown: ", "no price", "meta/llama")
    assert found.tokens is found.cost is found.hours is None


JUDGED_BY_TWO: dict[str, Any] = {
    "config__type": "healthbench",
    "config__params__extra__judges": [
        {"name": name, "model_id": name, "parallelism": 8} for name in ("gpt", "llama")
    ],
}


@pytest.mark.parametrize("at_once", [None, 4])
def test_a_judge_is_asked_for_each_criterion(
    tmp_path: Path, sizes: list[PromptSizes], at_once: int | None
) -> None:
    sizes.append(PromptSizes(10, 4000, 50, judge_requests=70))
    found = of(tmp_path, **JUDGED_BY_TWO, config__params__extra__criteria_per_request=at_once)
    assert [(one.role, one.requests) for one in found.roles] == [
        ("model", 10),
        ("gpt", 70),
        ("llama", 70),
    ]
    assert found.requests == 150
    says(found.roles[0].sources["requests"], "counted in", "trial and perturbation")
    says(found.roles[1].sources["requests"], "criteria counted", "judge")
    assert not sizes
    sizes.append(PromptSizes(20, 4000, 50, judge_requests=70))
    probed = of(tmp_path, **JUDGED_BY_TWO, config__params__extra__probe_judges=True).roles[1]
    assert (probed.requests, probed.sources["requests"].rpartition("; ")[2]) == (
        105,
        "35 more with probe_judges",
    )
    unknown = of(tmp_path, look=False, **JUDGED_BY_TWO)
    assert [one.requests for one in unknown.roles] == [5000, None, None], "nothing is guessed"
    says(unknown.roles[1].sources["requests"], "unknown: ", "number of criteria")


def test_what_nobody_counted_is_not_known(tmp_path: Path, sizes: list[PromptSizes]) -> None:
    sizes.append(PromptSizes(None, reason="its data are not here"))
    (model,) = of(tmp_path, config__type="helm:mmlu:subject=anatomy").roles
    assert model.requests is None
    says(model.sources["requests"], "unknown: ", "number of instances", "not here")
    assert model.sources["tokens"].startswith(RUN_FIRST)
    says(model.sources["tokens"], "not here")


def test_the_result_of_this_very_run_says_how_many(
    finished: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is looked for in the data then."""
    document = load_run_config(finished.run_config)
    leaves = leaves_of({name: document[name] for name in ("config", "target")}, "")
    given = {path: value for path, value in leaves if value is not None}
    monkeypatch.setattr(module, "prompt_sizes", lambda *_: pytest.fail("the data are looked at"))
    same = {"config.output_dir": str(finished.root)}
    monkeypatch.setattr(module, "cached_figures", lambda *_: CachedFigures(4, 10.0, 1.0, 0.5, None))
    found = estimate(evaluation({**given, **same}), {})
    assert found.requests == load_result(finished.root).result.validity.instances.requested
    says(found.roles[0].sources["requests"], "the result")


ROLE = RoleEstimate("model", "m", 10, 100.0, 20.0, 0.5, 2.0, {"cost": "table"})


def test_what_a_limit_will_stop_is_said() -> None:
    tight = Estimate("t", (ROLE,), 0, Budget(0.49, 9, 119, 7199.0))
    assert tight.exceeded_limits == {
        "max_cost": 0.5,
        "max_requests": 10,
        "max_tokens_total": 120.0,
        "max_wall_s": 7200.0,
    }
    says(tight.to_text(), "max_cost (0.49)", "before the end")


def test_the_texts_hold_every_figure_and_its_source() -> None:
    whole = Estimate("t", (ROLE, RoleEstimate("a", "j", 5, 1.0, 1.0, 0.25, 0.01, {})), 4, Budget())
    text = whole.to_text()
    each_says(
        text.splitlines()[:3],
        ["t: 15 requests", "122 tokens", "0.75 USD", "2.0 h"],
        ["model (m): 10 requests", "120 tokens", "0.5 USD", "2.0 h"],
        ["cost: table"],
    )
    says(text, "a (j): 5 requests", "2 tokens", "0.25 USD", "0.6 min")
    assert "4 answers are stored" in text
    document = json.loads(json.dumps(whole.as_dict()))
    assert (document["requests"], document["cost"], document["kept_answers"]) == (15, 0.75, 4)
    assert document["roles"][0]["sources"] == {"cost": "table"}
    unknown = Estimate(
        "t", (RoleEstimate("model", "m", None, None, None, None, None, {}),), 0, Budget()
    )
    says(
        unknown.to_text().splitlines()[0],
        "t: unknown requests",
        "unknown tokens",
        "unknown cost",
        "unknown time",
    )


@pytest.mark.parametrize(
    ("extra", "askings"),
    [
        ({"shuffle_choices": 3}, 3),
        ({"repeats": 5}, 5),
        ({"perturb": ["typos", "units"], "chance_questions": 0}, 3),
        ({"pushback": 2, "chance_questions": 0}, 3),
        ({"confidence": "stated"}, 2),
        ({"confidence": "logprobs"}, 1),
        ({"allow_abstain": True}, 2),
        ({"repeats": 2, "pushback": 1, "shuffle_choices": 2}, 4),
    ],
)
def test_each_asking_of_a_question_is_a_request(
    tmp_path: Path, extra: dict[str, object], askings: int
) -> None:
    flags = {"config.type": "sample_medical_qa", "config.output_dir": str(tmp_path / "x")}
    given = {f"config.params.extra.{name}": value for name, value in extra.items()}
    found = estimate(evaluation({**flags, **given}), {}, look_at_data=False)
    assert found.requests == 40 * askings
    how = f" x {askings} (each question unchanged and asked again), at most" if askings > 1 else ""
    assert found.roles[0].sources["requests"].endswith(f"x 1 trial{how}")


@pytest.mark.parametrize(("chance", "more"), [(100, 40), (10, 10)])
def test_questions_that_were_right_are_asked_once_more_beside_what_loses_answers(
    tmp_path: Path, chance: int, more: int
) -> None:
    flags = {"config.type": "sample_medical_qa", "config.output_dir": str(tmp_path / "x")}
    extra = {"config.params.extra.pushback": 1, "config.params.extra.chance_questions": chance}
    found = estimate(evaluation({**flags, **extra}), {}, look_at_data=False)
    assert found.requests == 40 * 2 + more


def test_means_are_of_one_model_in_one_role_and_of_what_all_answers_say(tmp_path: Path) -> None:
    many = {"prompt_tokens": 900, "completion_tokens": 900, "cost": 9.0}
    path = answers(
        tmp_path,
        "x",
        ("model", "m", {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.5}),
        ("model", "m", {"prompt_tokens": 30, "completion_tokens": 4, "cost": 1.5}),
        ("model", "other", many),
        ("gpt", "m", many),
        ("strict", "m", {"prompt_tokens": 10, "cost": 0.5}),
        ("strict", "m", None),
        latencies=[1.0, 2.0, 9.0, 9.0, 1.0, 3.0],
    )
    assert module.cached_figures(path, "model", "m") == CachedFigures(2, 20.0, 3.0, 1.5, 1.0)
    assert module.cached_figures(path, "strict", "m") == CachedFigures(2, None, None, 2.0, None)


EVENT = {"event": "measured", "requests": 3, "prompt_bytes": 400, "most_tokens": 15}


def test_a_run_that_was_measured_and_data_that_are_not_here() -> None:
    assert measured_prompts.sizes_in(
        [{"event": "phase", "phase": "loading data"}, EVENT]
    ) == PromptSizes(3, 400, 15)
    assert measured_prompts.sizes_in([{**EVENT, "judge_requests": 7}]) == PromptSizes(
        3, 400, 15, judge_requests=7
    )
    failed = {
        "event": "run_failed",
        "error": "DownloadError: https://host/file could not be downloaded",
    }
    says(str(measured_prompts.sizes_in([failed]).reason), "missing or incomplete", "DownloadError")
    assert measured_prompts.sizes_in([]).reason.endswith("HELM made no requests")


def test_a_bundle_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    """Found before anything is started."""
    there = {
        "config.params.extra.data_dir": str(tmp_path / "no bundle"),
        "config.output_dir": str(tmp_path / "out"),
    }
    found = measured_prompts.prompt_sizes(plan(there), {})
    assert found.requests is None
    assert "no bundle" in found.reason
    assert "\n" not in found.reason
    assert not (tmp_path / "out").exists()


def test_typical_sizes_serve_where_no_data_are_here(
    tmp_path: Path, sizes: list[PromptSizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    typical = TypicalRequest(prompt_bytes=400, answer_tokens=7, source="its paper")
    monkeypatch.setattr(module, "typical_requests", lambda: {"pubmed_qa": typical})
    sizes.append(PromptSizes(None, reason="not here"))
    (model,) = of(tmp_path, config__params__limit_samples=20).roles
    assert (model.requests, model.prompt_tokens, model.completion_tokens) == (20, 2000.0, 140.0)
    says(model.sources["tokens"], "typical", "its paper")
    assert model.cost == pytest.approx((2000 * 1 + 140 * 10) / 1e6)


def test_a_quick_estimate_makes_no_requests_of_a_task_whose_typical_sizes_are_known(
    tmp_path: Path, sizes: list[PromptSizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    typical = TypicalRequest(prompt_bytes=400, answer_tokens=7, source="its paper")
    monkeypatch.setattr(module, "typical_requests", lambda: {"pubmed_qa": typical})
    one = evaluation({"config.output_dir": str(tmp_path), "config.params.limit_samples": 20})
    assert estimate(one, {}, quick=True).tokens == 2140.0
    assert sizes == []


def test_the_answers_room_that_a_user_gives_replaces_the_typical_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typical = TypicalRequest(prompt_bytes=400, answer_tokens=7, source="its paper")
    monkeypatch.setattr(module, "typical_requests", lambda: {"pubmed_qa": typical})
    (model,) = of(
        tmp_path, look=False, config__params__limit_samples=20, config__params__max_new_tokens=50
    ).roles
    assert model.completion_tokens == 1000.0


def test_every_typical_size_belongs_to_a_public_task_and_names_its_source() -> None:
    public = {one.name for one in load_framework().evaluations if one.about.access == "public"}
    typical = typical_requests()
    assert set(typical) <= public
    assert len(typical) > 25
    for name, request in typical.items():
        assert request.prompt_bytes > 20, name
        assert request.answer_tokens >= 1, name
        assert request.source.startswith(("measured on", "made of")), name
