"""Each item that a run fills holds that run's own numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from described_runs import CONFIG, TARGET, hostile, of_a_jury, plain
from eval_factory.core.results import Instances, Score, TaskResult
from eval_factory.report.papers import Described, forms


def answers_of(made: TaskResult, config: Any = CONFIG, target: Any = TARGET) -> dict[str, list[str]]:
    """Item -> what is known, of the items that a run fills; sources are numbered over all of them."""
    run = Described(made, config, target)
    run.cite("tripod_llm")
    return {name: run.said(one["known"]) for name, one in forms()["tripod_llm"].items() if "known" in one}


def told(item: str, made: TaskResult, config: Any = CONFIG) -> str:
    return " ".join(answers_of(made, config)[item])


@pytest.mark.parametrize(
    ("item", "truth"),
    [
        ("5a", "revision 1f00b98"), ("5d", "list 3 of eval-factory"),
        ("5d", f"HELM 0.5.16 read the data and made the prompts of them. The SHA-256 of all prompts is {'b' * 64}."),
        ("5e", "19 of 20 requested instances have a score; 1 failed."),
        ("6a", "org/model, asked through"), ("6a", "from 2026-01-02T03:04:05Z"),
        ("6b", "trained and tuned nothing: org/model was asked"), ("6c", "max_tokens = 1 and temperature = 0.0"),
        ("6c", "(zero-shot). No system prompt"), ("6d", "reasoning was removed from 0 answers. 4 answers had none"),
        ("7a", "The main metric was exact_match"), ("7c", "by the chat API"), ("7c", "Wilson's score interval"),
        ("7c", "to 2026-01-02T03:05:06Z"), ("7d", "No judge was asked"),
        ("7e", "no model (always A) scores 0.5520."), ("7e", "temperature 0.7 (leaderboard: 0.0)"),
        ("9a", "were those of HELM 0.5.16"), ("12", "The last run took 1.0 s; 1 run made the result."),
        ("12", "1 request was sent, 0 answers came"), ("12", "1 prompt tokens and 1 completion tokens"),
        ("12", "one machine (x86_64)"), ("14e", "licence: MIT"),
        ("14e", "Access to them: public."), ("14f", "eval-factory 1, crfm-helm 0.5.16"), ("14f", "is identity."),
        ("16a", "20 instances (split test: 20) were asked, of 1,000"), ("16a", "1 failed"),
        ("16d", "exact_match over 19 instances."), ("17", "exact_match = 0.7368 (95 % interval 0.5121 to 0.8819)."),
    ],
)  # fmt: skip
def test_of_a_plain_run(item: str, truth: str) -> None:
    assert truth in told(item, plain())


@pytest.mark.parametrize(
    ("item", "truth"),
    [
        ("7b", "Krippendorff's alpha for ordinal ratings [4], is 0.614."), ("7d", "kind (judge/one; temperature = 0.0), 3 of 3"),
        ("7d", "5 of 6 judgements"), ("8a", "language models rated them"), ("8a", f"template: {'c' * 64}."),
        ("8b", "2 judges rated them (kind 3 of 3, strict 2 of 3). 5 of 6 judgements were given."), ("8b", "is 0.614."),
        ("8c", "kind is judge/one, asked with temperature = 0.0. Of the answers: strict is judge/two."),
        ("17", "this score may not be reported"), ("17", "medication_qa_accuracy = 4.2500"),
    ],
)  # fmt: skip
def test_of_a_jury(item: str, truth: str) -> None:
    assert truth in told(item, of_a_jury())


def test_what_a_run_does_not_have_is_not_told() -> None:
    for item in ("7b", "8a", "8b", "8c"):
        assert told(item, plain()) == ""
    assert "may not be reported" not in told("17", plain())
    made = plain()
    bare = replace(
        made, provenance=replace(made.provenance, endpoints={}, platform={}, dataset_files={}, dataset_revisions={}),
        usage=replace(made.usage, all_runs=replace(made.usage.all_runs, total=replace(
            made.usage.all_runs.total, prompt_tokens=None, latency_p50_s=None, requests=7, cached=2))),
        comparability=None, scores={}, validity=replace(made.validity, floors={}),
    )  # fmt: skip
    assert told("12", bare) == (
        "The last run took 1.0 s; 1 run made the result. 7 requests were sent, 2 answers came from a cache."
    )
    assert told("7e", bare) == ""
    assert told("16d", bare) == ""
    own = told("14e", bare, {"params": {"extra": {"data_path": "x"}}})
    assert own.startswith("Its data were files of the authors. The output folder")
    custom = told("5d", replace(bare, task="custom.x"), {"params": {"extra": {"benchmark": "x"}}})
    assert custom.startswith("The SHA-256 of all prompts")
    assert answers_of(bare, {}, {})["7c"][1] == "Answers were asked for by the API of an OpenAI-compatible endpoint."


def test_groups_trials_and_the_commit() -> None:
    made = plain()
    score = made.scores["exact_match"]
    tried = replace(score, stats=replace(score.stats, trials=3, trial_stddev=0.0125, clusters=7))
    bare = Score(0.25, replace(score.stats, count=1, ci_low=None), "other")
    grouped = replace(
        made, scores={"exact_match": tried, "other": bare}, provenance=replace(made.provenance, git_hash="c0ffee"),
        groups={"kind": {"a": {"exact_match": bare}, "b": {}}},
        validity=replace(made.validity, instances=Instances(9, 9, 0, 0, 0, 0, thinking_stripped=1, prompt_truncated=1)),
    )  # fmt: skip
    assert "Each instance was asked 3 times; standard deviation of the trials 0.0125." in told("6c", grouped)
    assert "The commit of eval-factory is c0ffee." in told("14f", grouped)
    assert "The commit" not in told("14f", made)
    assert told("16d", grouped).endswith("other over 1 instance. The instances share 7 sources, which the interval takes"
                                         " into account. By kind: 2 groups.")  # fmt: skip
    assert told("17", grouped).endswith("other = 0.2500. kind a = 0.2500, 1 instance.")
    assert told("7a", grouped).endswith("Beside it: other.")
    assert "1 prompt was cut" in told("5d", grouped)
    assert "removed from 1 answer." in told("6d", grouped)
    once = replace(tried, stats=replace(tried.stats, trial_stddev=None))
    assert "asked 3 times." in told("6c", replace(grouped, scores={"exact_match": once}))


LETTERS = {3: "ab", 5: "abcde", 6: "abcde", 7: "abcde", 8: "abc", 9: "ab", 14: "abcdef", 16: "abcd", 19: "abcdefg"}


def test_the_items_are_those_of_the_table_and_each_that_is_filled_says_what_it_does_not_know() -> None:
    items = forms()["tripod_llm"]
    assert list(items) == [f"{number}{letter}" for number in range(1, 20) for letter in LETTERS.get(number, [""])]
    assert len({one["topic"] for one in items.values()}) == len(items)
    assert all(one["unknown"] for one in items.values() if "known" in one)


@pytest.mark.parametrize("config", [{}, CONFIG])
def test_hostile_values_are_one_printable_line(config: dict[str, Any]) -> None:
    for known in answers_of(hostile(), config, {}).values():
        assert all(sentence.isprintable() for sentence in known)
