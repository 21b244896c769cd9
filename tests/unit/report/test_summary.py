"""A result -> the lines that a run ends with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import plan
from eval_factory.core import results
from eval_factory.core.results import (
    Comparability,
    Deviation,
    FailureCause,
    Floor,
    JuryReport,
    Spent,
    TaskResult,
)
from eval_factory.report.result_sentences import clinician_headline
from eval_factory.report.summary import headline, result_summary
from facts import says
from unit.report.test_result_sentences import FOUND


def causes(*counts: int) -> tuple[FailureCause, ...]:
    return tuple(FailureCause("model", count, f"HTTP 400: cause {count}", None) for count in counts)


def changed(result: TaskResult, **validity: Any) -> TaskResult:
    return replace(result, validity=replace(result.validity, **validity))


def shown(result: TaskResult) -> list[str]:
    return result_summary(result, plan().rundir).split("\n")


def test_the_best_trivial_answer_and_what_people_say_stand_below_the_score(
    result: TaskResult,
) -> None:
    floor = Floor("always A", 0.55, 4, {"always A": 0.55})
    other = Floor("empty", 0.2, 4, {"empty": 0.2})
    of_two = changed(result, floors={"exact_match": floor, "other": other})
    says(shown(of_two)[1], "needs no model scores")
    says(shown(of_two)[2], "without a model: 0.5500", "always answering A")
    assert "corrected" not in shown(of_two)[2]
    both = changed(result, floors={"exact_match": floor, "exact_match.corrected": other})
    says(shown(both)[2], "0.5500 (always answering A)", "corrected: 0.2000 (empty)")
    assert shown(changed(result, floors={"other": other})) == shown(result)
    assert "without a model" not in result_summary(result, plan().rundir)
    lines = shown(replace(result, clinicians=FOUND))
    assert lines[1] == f"  {clinician_headline(FOUND)}"
    assert [*lines[:1], *lines[2:]] == shown(result)


def test_the_screen_says_why_instances_failed_and_what_may_help(result: TaskResult) -> None:
    failures = (
        FailureCause("model", 8, "HTTP 400: too long", "try it"),
        FailureCause("gpt", 3, "HTTP 500: boom", None),
    )
    lines = shown(changed(result, failures=failures))
    at = lines.index("  failed: 8 x HTTP 400: too long; try it")
    says(lines[at + 1], "judge gpt", "3 x HTTP 500", "boom")
    assert lines[at - 1].startswith("  instances: ")
    assert lines[at + 2].startswith("  requests: ")


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("It is so.", "It is so"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 120 + " ..."),
        (f"{'x' * 119} yz", "x" * 119 + " ..."),
    ],
)
def test_a_cause_is_short_on_the_screen(cause: str, told: str, result: TaskResult) -> None:
    failures = (FailureCause("model", 2, cause, "try it"),)
    assert f"  failed: 2 x {told}; try it" in shown(changed(result, failures=failures))


def test_the_screen_shows_the_most_frequent_causes(result: TaskResult) -> None:
    lines = [
        line
        for line in shown(changed(result, failures=causes(*range(9, 2, -1))))
        if "cause" in line
    ]
    assert [line.split()[1] for line in lines[:-1]] == ["9", "8", "7", "6", "5"]
    says(lines[-1], "2 more causes", "validity.failures, report.html")
    assert "more cause" not in "".join(shown(changed(result, failures=causes(5, 4, 3, 2, 1))))
    one_more = shown(changed(result, failures=causes(6, 5, 4, 3, 2, 1)))
    (more,) = [line for line in one_more if "more cause" in line]
    says(more, "1 more cause", "validity.failures, report.html")


@pytest.mark.parametrize(
    ("count", "urgent", "shown_notes", "rest"),
    [
        (0, 0, 0, None),
        (3, 3, 3, None),
        (8, 0, 0, "8 notes"),
        (8, 6, 6, "2 more notes"),
        (6, None, 5, "1 more note"),  # of an earlier version, which did not say how many are urgent
    ],
)
def test_urgent_notes_are_shown_and_the_others_counted(
    count: int, urgent: int | None, shown_notes: int, rest: str | None, result: TaskResult
) -> None:
    notes = tuple(f"number {number}" for number in range(count))
    lines = shown(changed(result, notes=notes, urgent_notes=urgent))
    found = [line for line in lines if line.startswith("  note: ")]
    assert found == [f"  note: number {number}" for number in range(shown_notes)]
    counted = [line for line in lines if "on the page" in line]
    assert len(counted) == (rest is not None)
    assert all((rest or "") in line for line in counted)
    page, ended = lines[-2:]
    assert page.strip() == f"page: {plan().rundir.report_html}"
    assert ended.strip().startswith("results: ")


def test_the_screen_says_which_split_a_score_is_of(result: TaskResult) -> None:
    of_valid = results.Score(0.25, result.scores["exact_match"].stats, "exact_match", "valid")
    split = changed(result, splits={"test": 4, "train": 1, "valid": 2}, main_split="test")
    lines = shown(replace(split, scores={**result.scores, "exact_match@valid": of_valid}))
    first, second, third, fourth, *_ = lines
    says(first, "pubmed_qa", "exact_match = 0.5000", "4 instances", "split test", "95 % interval")
    says(second, "split train", "1 instance more", "without this score")
    says(third, "split valid", "2 instances more", "exact_match@valid = 0.2500")
    says(fourth, "7 instances", "trial and perturbation")


def test_a_score_over_fewer_instances_says_so(result: TaskResult) -> None:
    counts = replace(result.validity.instances, scored=5)
    first, *_ = shown(changed(result, instances=counts))
    says(first, "exact_match = 0.5000", "4 instances", "95")
    assert "split" not in first
    assert "over" not in shown(result)[0]
    assert "perturbation" not in shown(result)[1]


def spent(requests: int, tokens: int | None) -> Spent:
    return Spent(
        requests=requests,
        cached=1,
        retries=2,
        prompt_tokens=tokens,
        completion_tokens=tokens,
        latency_p50_s=0.5,
        latency_p95_s=None,
    )


def used(
    now: Spent, ever: Spent | None = None, runs: int = 1, roles: dict[str, Spent] | None = None
) -> results.Usage:
    by_role = [results.SpentByRole(one, roles or {}) for one in (now, ever or now)]
    return results.Usage(by_role[0], by_role[1], runs, 1.0)


def test_the_screen_shows_the_usage_of_this_run_by_role_and_of_all_runs(result: TaskResult) -> None:
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    lines = shown(replace(result, usage=used(spent(7, 40), spent(9, 90), 3, both)))
    at = lines.index(
        "  requests: 7 sent, 1 from the cache, 2 retries; 40 prompt and 40 completion tokens"
    )
    judge, model, before = lines[at + 1 : at + 4]
    says(judge, "gpt: 4 sent", "1 from the cache", "2 retries", "40 prompt", "40 completion tokens")
    says(model, "model: 3 sent", "1 from the cache", "2 retries")
    assert "tokens" not in model
    says(
        before,
        "2 runs before",
        "9 sent",
        "1 from the cache",
        "2 retries",
        "90 prompt",
        "90 completion tokens",
    )
    twice = shown(replace(result, usage=used(spent(7, 40), spent(9, None), 2)))
    (before,) = [line for line in twice if "before" in line]
    says(before, "1 run before", "9 sent", "1 from the cache", "2 retries")
    alone = replace(result, usage=used(spent(7, 40), roles={"model": spent(7, 40)}))
    assert result_summary(alone, plan().rundir).count(" sent") == 1


def test_the_whole_summary_of_a_plain_run(result: TaskResult) -> None:
    score = result.scores["exact_match"].stats
    lines = shown(replace(changed(result, notes=()), usage=used(spent(7, None))))
    assert len(lines) == 6
    says(lines[0], "exact_match = 0.5000", f"{score.ci_low:.4f} .. {score.ci_high:.4f}")
    says(lines[1], "4 of 4 scored", "0 failed", "0 empty", "0 cut off", "0 filtered")
    says(lines[2], "7 sent", "1 from the cache", "2 retries")
    says(lines[3], "settings", "MedHELM's leaderboard")
    assert lines[4] == f"  page: {plan().rundir.report_html}"
    assert lines[5] == f"  results: {plan().rundir.evaluation_config}"


UNLIKE = "  these settings are not those of MedHELM's leaderboard (crfm-helm 0.5.16):"
UNKNOWN = (Deviation("data revision", "unknown", "unknown", "effect"),)
FIVE = tuple(Deviation(f"s{number}", "other", number, "effect") for number in range(5))
THREE = "s0 0 (there other); s1 1 (there other); s2 2 (there other)"


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            Comparability(False, None, UNKNOWN),
            [f"{UNLIKE} data revision unknown on both sides"],
        ),
        (Comparability(False, None, FIVE[:1]), [f"{UNLIKE} s0 0 (there other)"]),
        (Comparability(False, None, FIVE[:3]), [f"{UNLIKE} {THREE}"]),
        (Comparability(False, None, FIVE), [f"{UNLIKE} {THREE} and 2 more (see comparability)"]),
        (Comparability(None, "nothing to compare with"), []),
        (Comparability(True), ["  settings: those of MedHELM's leaderboard (crfm-helm 0.5.16)"]),
        (None, []),
    ],
)
def test_settings_beside_the_leaderboards(
    record: Comparability | None, told: list[str], result: TaskResult
) -> None:
    before = shown(replace(result, comparability=None))  # as of a result of an earlier version
    assert [
        line for line in shown(replace(result, comparability=record)) if line not in before
    ] == told


@pytest.mark.parametrize("unknown", ["ci_low", "ci_high"])
def test_an_interval_that_is_not_defined_is_not_shown(unknown: str, result: TaskResult) -> None:
    score = result.scores["exact_match"]
    changes: dict[str, Any] = {unknown: None}
    bare = replace(score, stats=replace(score.stats, **changes))
    first, *_ = shown(replace(result, scores={"exact_match": bare}))
    assert first == "pubmed_qa: exact_match = 0.5000"


def test_a_score_that_is_absent_is_said(result: TaskResult) -> None:
    none = replace(changed(result, splits={"test": 4, "valid": 2}, main_split="test"), scores={})
    first, second, *_ = shown(none)
    says(first, "exact_match could not")
    says(second, "split valid", "2 instances more", "without this score")


def test_where_no_instance_has_a_score_no_split_is_called_another(result: TaskResult) -> None:
    none = replace(changed(result, splits={"test": 4}, main_split=None), scores={})
    first, *rest = shown(none)
    says(first, "exact_match could not")
    assert not [line for line in rest if "split" in line]


def test_counts_of_instances_stand_each_in_its_place(result: TaskResult) -> None:
    changes = {
        "requested": 9,
        "scored": 3,
        "failed": 1,
        "empty": 2,
        "truncated": 4,
        "filtered": 5,
        "unjudged": 6,
    }
    counts = replace(result.validity.instances, **changes)
    with_trials = shown(changed(result, instances=counts))
    (told,) = [line for line in with_trials if line.startswith("  instances: ")]
    says(told, "3 of 9 scored", "1 failed", "2 empty", "4 cut off", "5 filtered")
    says(told, "4 instances", "trial and perturbation")
    judged = changed(
        result, instances=counts, splits={"test": 9}, judges={"gpt": results.JudgeCounts(1, 1, 0)}
    )
    says(shown(judged), "5 filtered, 6 unjudged")


@pytest.mark.parametrize(("alpha", "told"), [(None, "not defined"), (0.12345, "0.123")])
def test_a_jury_is_shown_by_its_means_and_agreement(
    alpha: float | None, told: str, result: TaskResult
) -> None:
    jury = JuryReport({"gpt": 4.256, "llama": 3.0}, alpha, {}, {})
    line = next(line for line in shown(changed(result, jury=jury)) if "mean ratings" in line)
    says(line, "gpt 4.26, llama 3.00", "Krippendorff's alpha")
    assert line.endswith(f"): {told}")
    assert "judges" not in "".join(shown(changed(result, jury=JuryReport({}, alpha, {}, {}))))


def test_tokens_are_shown_where_both_are_known(result: TaskResult) -> None:
    def line(prompt: int | None, completion: int | None) -> str:
        lines = shown(
            replace(
                result,
                usage=used(
                    Spent(
                        requests=1,
                        cached=0,
                        retries=0,
                        prompt_tokens=prompt,
                        completion_tokens=completion,
                        latency_p50_s=None,
                        latency_p95_s=None,
                    )
                ),
            )
        )
        return next(line for line in lines if "sent" in line)

    says(line(7, 8), "1 sent", "0 from the cache", "0 retries", "7 prompt", "8 completion tokens")
    assert line(7, None) == line(None, 8)
    assert "tokens" not in line(7, None)


def with_corrected(result: TaskResult, count: int) -> TaskResult:
    stats = replace(result.scores["exact_match"].stats, count=count, ci_low=0.125, ci_high=0.875)
    corrected = results.Score(0.75, stats, "exact_match.corrected", "test")
    both = {**result.scores, "exact_match.corrected": corrected}
    return replace(result, scores=both, groups={"category": {"odd": both, "even": result.scores}})


def test_the_headline_shows_the_corrected_value_beside_helms(result: TaskResult) -> None:
    first, second, *_ = shown(with_corrected(result, 4))
    says(first, "exact_match = 0.5000", "95 % interval")
    says(second, "  corrected = 0.7500", "0.1250 .. 0.8750")
    fewer = shown(with_corrected(result, 3))[1].strip()
    says(fewer, "corrected = 0.7500", "3 instances", "0.1250 .. 0.8750")
    assert headline(with_corrected(result, 3)) == f"{first}; {fewer}"
    assert headline(result) == shown(result)[0]
    assert "corrected" not in "".join(shown(result))
    alone = replace(result, scores={"exact_match.corrected": result.scores["exact_match"]})
    says(headline(alone), "exact_match could not")


def test_answers_that_say_nothing_are_shown_and_a_rubric_has_one_line(result: TaskResult) -> None:
    said = "reads nothing"
    counts = replace(result.validity.instances, unreadable=3)
    says(result_summary(changed(result, instances=counts), plan().rundir), "3 answers", said)
    assert said not in result_summary(result, plan().rundir)
    report = results.RubricReport(results.RubricVotes(3, 2, 1, 0), {}, {})
    lines = shown(changed(result, rubric=report))
    (criteria,) = [line for line in lines if line.startswith("  criteria: ")]
    says(criteria, "2 of 3 criteria", "1 not met")
    assert len(lines) == len(shown(result)) + 1
