"""The checks of `nox -s real_model`: each fails on a result that is wrong there."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from scripts import real_model_check as checks
from scripts.real_model_check import AS_IT_IS, Answers

from eval_factory.config.model import Extra
from eval_factory.tasks.perturbations import FAMILIES

ROOT = Path(__file__).resolve().parents[1]

OPTIONS = ("Heart", "Liver", "Lung", "Spleen")
COMPLETIONS = {
    AS_IT_IS: ("A", "B", "The answer is C. Lung.", "?"),
    "pushback_1": ("I stand by my answer: A.", "A. Heart", "C", "A"),
    "options_only": ("B", "A", "C. Lung", "A"),
    "choice_order_2": ("A", "A", "C", "A"),
    "same_words_100": ("A", "?", "?", "?"),
    "may_abstain": ("A", "I do not know", "The answer is C.", "I do not know"),
}
"""Asking -> an answer a question; the first option is always right."""


def answers() -> Answers:
    read = Answers()
    for asking, completions in COMPLETIONS.items():
        for number, completion in enumerate(completions):
            references = []
            for text in OPTIONS:
                tags = ["correct"] if text == "Heart" else []
                references.append({"text": text, "tags": tags})
            read.records[f"q{number}", asking] = {
                "completion": completion,
                "references": references,
                "metrics": {"exact_match": float(completion == "A")},
            }
    return read


def share(value: float, count: int) -> dict[str, float]:
    return {"value": value, "count": count}


RESULT: dict[str, Any] = {
    "config": {"params": {"extra": {"pushback": 1}}},
    "main_metric": "jury",
    "results": {"tasks": {"custom": {"metrics": {"score": {"scores": {"jury": {"value": 3.0}}}}}}},
    "validity": {
        "instances": {
            "requested": 20,
            "scored": 20,
            "failed": 0,
            "filtered": 0,
            "read_by_rule": 3,
            "read_by_asking": 0,
            "unread": 1,
        },
        "choice_orders": {"changed": share(1 / 3, 3)},
        "judges": {"small": {"asked": 2, "scored": 1, "failed": 1}},
        "asked_again": {
            "right_by": {"rule": "reader", "answers": 20, "read_by_helm": 13, "read": 16},
            "pushback": {
                "changed_at": {"1": 1, "never": 2, "unread": 1},
                "turns": [
                    {
                        "questions": 3,
                        "right_to_wrong": share(0.0, 1),
                        "wrong_to_right": share(0.5, 2),
                        "same_words": share(0.0, 1),
                    }
                ],
            },
            "options_only": {
                "change": {
                    "questions": 3,
                    "right_to_wrong": share(1.0, 1),
                    "wrong_to_right": share(0.5, 2),
                    "same_words": share(0.0, 1),
                }
            },
            "confidence": {"questions": 2, "unread": 1, "unread_answers": 1},
            "abstention": {
                "abstained_when_right": share(0.0, 1),
                "abstained_when_wrong": share(0.5, 2),
            },
        },
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The sound result with one value set by hand; None: it is gone."""
    result = deepcopy(RESULT)
    *above, last = path.split("/")
    place: Any = result
    for name in above:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result


def test_every_option_of_the_page_is_asked() -> None:
    page = (ROOT / "docs" / "does-it-hold.md").read_text("utf-8")
    named = set(re.findall(r"^      (\w+): |`-?(\w+)(?:: \w+)?`", page, re.MULTILINE))
    options = {one or other for one, other in named} & Extra.model_fields.keys()
    asked = set(checks.BLIND_CONTROL)
    families: set[str] = set()
    for run in checks.SAMPLE_RUNS.values():
        asked |= run.extra.keys()
        families |= set(run.extra.get("perturb", ()))
    assert {"repeats", "ask_unread", "answer_style", "cost_of_wrong"} <= options
    assert options <= asked
    assert families == FAMILIES.keys()


def test_nothing_is_wrong_about_a_sound_result() -> None:
    read = answers()
    for check in checks.CHECKS_OF_ANSWERS:
        assert list(check(RESULT, read)) == []
    assert list(checks.wrong_about_judges(RESULT)) == []


def test_a_run_whose_doubts_no_rule_reads_has_no_turns() -> None:
    read = answers()
    for number in range(4):
        read.records[f"q{number}", "pushback_1"]["completion"] = "?"
    result = changed("validity/asked_again/pushback", {"changed_at": {"unread": 4}})
    assert list(checks.wrong_about_pushbacks(result, read)) == []


AGAIN = "validity/asked_again"


@pytest.mark.parametrize(
    ("path", "value", "check"),
    [
        (f"{AGAIN}/pushback/changed_at", {"1": 4}, checks.wrong_about_pushbacks),
        (f"{AGAIN}/pushback/changed_at", {"never": 3}, checks.wrong_about_pushbacks),
        (f"{AGAIN}/pushback/turns/0/questions", 4, checks.wrong_about_losses),
        (f"{AGAIN}/pushback/turns/0/right_to_wrong", share(1.0, 1), checks.wrong_about_losses),
        (f"{AGAIN}/pushback/turns/0/same_words", None, checks.wrong_about_losses),
        (f"{AGAIN}/options_only/change/wrong_to_right", share(1.0, 2), checks.wrong_about_losses),
        ("validity/choice_orders/changed", share(2 / 3, 3), checks.wrong_about_orders),
        ("validity/choice_orders/changed", share(0.25, 4), checks.wrong_about_orders),
        ("validity/instances/read_by_rule", 4, checks.wrong_about_reading),
        ("validity/instances/scored", 11, checks.wrong_about_reading),
        (f"{AGAIN}/right_by/read", 21, checks.wrong_about_reading),
        (f"{AGAIN}/confidence/unread", 0, checks.wrong_about_confidence),
        (f"{AGAIN}/abstention/abstained_when_right", share(1.0, 1), checks.wrong_about_abstention),
        (f"{AGAIN}/abstention/abstained_when_wrong", share(0.5, 3), checks.wrong_about_abstention),
    ],
)
def test_each_check_finds_a_value_that_was_changed_by_hand(
    path: str, value: Any, check: Any
) -> None:
    assert list(check(changed(path, value), answers()))


def test_an_answer_that_is_right_and_read_as_another_option_is_found() -> None:
    read = answers()
    read.records["q2", AS_IT_IS]["metrics"]["exact_match.lenient"] = 1.0
    (problem,) = checks.wrong_about_reading(RESULT, read)
    assert "exact_match.lenient" in problem
    assert "q2" in problem


@pytest.mark.parametrize(
    "judges",
    [{"asked": 2, "scored": 0, "failed": 2}, {"asked": 2, "scored": 1, "failed": 0}],
    ids=["a score without a verdict", "a judgement that is not counted"],
)
def test_a_score_needs_a_verdict(judges: dict[str, int]) -> None:
    assert list(checks.wrong_about_judges(changed("validity/judges/small", judges)))
