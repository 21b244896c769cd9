"""A result -> the lines that a run ends with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.results import (
    Comparability,
    Deviation,
    FailureCause,
    Floor,
    JudgeCounts,
    JuryReport,
    RubricReport,
    RubricVotes,
    Score,
    Spent,
    SpentByRole,
    TaskResult,
    Usage,
)
from eval_factory.report.screen import headline, result_summary
from eval_factory.report.sentences import clinician_headline
from unit.builders import plan
from unit.report.test_sentences import FOUND


def causes(*counts: int) -> tuple[FailureCause, ...]:
    return tuple(FailureCause("model", count, f"HTTP 400: cause {count}", None) for count in counts)


def changed(result: TaskResult, **validity: Any) -> TaskResult:
    return replace(result, validity=replace(result.validity, **validity))


def shown(result: TaskResult) -> list[str]:
    return result_summary(result, plan().rundir).split("\n")


def test_what_people_say_stands_below_the_score(result: TaskResult) -> None:
    lines = shown(replace(result, clinicians=FOUND))
    assert lines[1] == f"  {clinician_headline(FOUND)}"
    assert [*lines[:1], *lines[2:]] == shown(result)


def test_the_best_trivial_answer_stands_below_the_score(result: TaskResult) -> None:
    floor, other = Floor("always A", 0.55, 4, {"always A": 0.55}), Floor("empty", 0.2, 4, {"empty": 0.2})
    assert shown(changed(result, floors={"exact_match": floor, "other": other}))[1] == (
        "  best trivial answer: always A 0.5500"
    )
    both = changed(result, floors={"exact_match": floor, "exact_match.corrected": other})
    assert shown(both)[1] == "  best trivial answer: always A 0.5500; corrected: empty 0.2000"
    assert shown(changed(result, floors={"other": other})) == shown(result)
    assert "trivial" not in result_summary(result, plan().rundir)


def test_the_screen_says_why_instances_failed_and_what_may_help(result: TaskResult) -> None:
    failures = (
        FailureCause("model", 8, "HTTP 400: maximum context length is 768 tokens", "try max_length"),
        FailureCause("gpt", 3, "HTTP 500: boom", None),
    )
    lines = shown(changed(result, failures=failures))
    at = lines.index("  failed: 8 x HTTP 400: maximum context length is 768 tokens; try max_length")
    assert lines[at + 1] == "  judge gpt: 3 x HTTP 500: boom"
    assert lines[at - 1].startswith("  instances: ")
    assert lines[at + 2].startswith("  requests: ")


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("It is so.", "It is so"), ("x" * 120, "x" * 120), ("x" * 121, "x" * 120 + " ..."),
        (f"{'x' * 119} yz", "x" * 119 + " ..."),
    ],
)  # fmt: skip
def test_a_cause_is_short_on_the_screen(cause: str, told: str, result: TaskResult) -> None:
    failures = (FailureCause("model", 2, cause, "try it"),)
    assert f"  failed: 2 x {told}; try it" in shown(changed(result, failures=failures))


def test_the_screen_shows_the_most_frequent_causes(result: TaskResult) -> None:
    lines = [line for line in shown(changed(result, failures=causes(*range(9, 2, -1)))) if "cause" in line]
    assert [line.split()[1] for line in lines[:-1]] == ["9", "8", "7", "6", "5"]
    assert lines[-1] == "  2 more causes of failures: validity.failures, report.html"
    assert not any("more cause" in line for line in shown(changed(result, failures=causes(*range(5, 0, -1)))))
    one_more = shown(changed(result, failures=causes(*range(6, 0, -1))))
    assert "  1 more cause of failures: validity.failures, report.html" in one_more


@pytest.mark.parametrize(("count", "more"), [(0, None), (5, None), (6, "1 more note"), (8, "3 more notes")])
def test_the_screen_shows_five_notes_and_says_where_the_rest_is(
    count: int, more: str | None, result: TaskResult
) -> None:
    lines = shown(changed(result, notes=tuple(f"number {number}" for number in range(count))))
    assert [line for line in lines if "note: " in line] == [
        f"  note: number {number}" for number in range(min(count, 5))
    ]
    told = [line for line in lines if "more note" in line]
    assert told == ([f"  {more} of less weight: validity.notes, report.html"] if more else [])


def test_the_screen_says_which_split_a_score_is_of(result: TaskResult) -> None:
    of_valid = Score(0.25, result.scores["exact_match"].stats, "exact_match", "valid")
    split = replace(
        changed(result, splits={"test": 4, "train": 1, "valid": 2}, main_split="test"),
        scores={**result.scores, "exact_match@valid": of_valid},
    )
    first, second, third, fourth, *_ = shown(split)
    assert first.startswith("pubmed_qa: exact_match = 0.5000 over the 4 instances of split test  (95 % interval")
    assert second == "  split train: 1 instance more have no such score"
    assert third == "  split valid: 2 instances more: exact_match@valid = 0.2500"
    assert fourth.endswith("(7 instances, each trial and perturbation counted)")


def test_a_score_over_fewer_instances_says_so(result: TaskResult) -> None:
    counts = replace(result.validity.instances, scored=5)
    assert shown(changed(result, instances=counts))[0].startswith(
        "pubmed_qa: exact_match = 0.5000 over 4 instances  (95"
    )
    assert "over" not in shown(result)[0]
    assert "perturbation" not in shown(result)[1]


def spent(requests: int, tokens: int | None) -> Spent:
    return Spent(requests, 1, 2, tokens, tokens, 0.5, None)


def test_the_screen_shows_the_usage_of_this_run_by_role_and_of_all_runs(result: TaskResult) -> None:
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    usage = Usage(SpentByRole(spent(7, 40), both), SpentByRole(spent(9, 90), both), 3, 1.0)
    lines = shown(replace(result, usage=usage))
    at = lines.index("  requests: 7 sent, 1 from the cache, 2 retries; 40 prompt and 40 completion tokens")
    assert lines[at + 1 : at + 4] == [
        "    gpt: 4 sent, 1 from the cache, 2 retries; 40 prompt and 40 completion tokens",
        "    model: 3 sent, 1 from the cache, 2 retries",
        "  with the 2 runs before: 9 sent, 1 from the cache, 2 retries; 90 prompt and 90 completion tokens",
    ]
    twice = Usage(SpentByRole(spent(7, 40), {}), SpentByRole(spent(9, None), {}), 2, 1.0)
    assert "  with the 1 run before: 9 sent, 1 from the cache, 2 retries" in shown(replace(result, usage=twice))
    alone = Usage(SpentByRole(spent(7, 40), {"model": spent(7, 40)}), SpentByRole(spent(7, 40), {}), 1, 1.0)
    assert len([line for line in shown(replace(result, usage=alone)) if "sent" in line]) == 1


def test_the_whole_summary_of_a_plain_run(result: TaskResult) -> None:
    score = result.scores["exact_match"].stats
    assert shown(replace(changed(result, notes=()), usage=plain_usage())) == [
        f"pubmed_qa: exact_match = 0.5000  (95 % interval {score.ci_low:.4f} .. {score.ci_high:.4f})",
        "  instances: 4 of 4 scored; 0 failed, 0 empty, 0 cut off, 0 filtered",
        "  requests: 7 sent, 1 from the cache, 2 retries",
        "  settings: those of MedHELM's leaderboard",
        f"  results: {plan().rundir.evaluation_config}",
    ]


def line_on_comparability(result: TaskResult, record: Comparability | None) -> list[str]:
    """What the summary says beside what it says of a result of an earlier version."""
    before = shown(replace(result, comparability=None))
    return [line for line in shown(replace(result, comparability=record)) if line not in before]


def test_what_is_known_neither_here_nor_there_is_said_once(result: TaskResult) -> None:
    unknown = Comparability(False, None, (Deviation("data revision", "unknown", "unknown", "effect"),))
    (line,) = line_on_comparability(result, unknown)
    assert line == "  settings unlike those of MedHELM's leaderboard: data revision known neither here nor there"


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "s0 0 (there other)"),
        (3, "s0 0 (there other); s1 1 (there other); s2 2 (there other)"),
        (5, "s0 0 (there other); s1 1 (there other); s2 2 (there other) and 2 more, see comparability"),
    ],
)
def test_settings_that_are_not_the_leaderboards(count: int, told: str, result: TaskResult) -> None:
    deviations = tuple(Deviation(f"s{number}", "other", number, "effect") for number in range(count))
    line = f"  settings unlike those of MedHELM's leaderboard: {told}"
    assert line_on_comparability(result, Comparability(False, None, deviations)) == [line]


def test_where_the_leaderboard_has_no_such_result_that_is_said(result: TaskResult) -> None:
    assert line_on_comparability(result, Comparability(None, "nothing to compare with")) == [
        "  nothing to compare with"
    ]
    assert line_on_comparability(result, Comparability(True)) == ["  settings: those of MedHELM's leaderboard"]
    assert line_on_comparability(result, None) == []


def plain_usage() -> Usage:
    return Usage(SpentByRole(spent(7, None), {}), SpentByRole(spent(7, None), {}), 1, 1.0)


@pytest.mark.parametrize("unknown", ["ci_low", "ci_high"])
def test_an_interval_that_is_not_defined_is_not_shown(unknown: str, result: TaskResult) -> None:
    score = result.scores["exact_match"]
    changes: dict[str, Any] = {unknown: None}
    without = replace(score, stats=replace(score.stats, **changes))
    first, *_ = shown(replace(result, scores={"exact_match": without}))
    assert first == "pubmed_qa: exact_match = 0.5000"


def test_a_score_that_is_absent_is_said(result: TaskResult) -> None:
    none = replace(changed(result, splits={"test": 4, "valid": 2}, main_split="test"), scores={})
    first, second, *_ = shown(none)
    assert first == "pubmed_qa: exact_match could not be computed"
    assert second == "  split valid: 2 instances more have no such score"


def test_counts_of_instances_stand_each_in_its_place(result: TaskResult) -> None:
    counts = replace(
        result.validity.instances, requested=9, scored=3, failed=1, empty=2, truncated=4, filtered=5, unjudged=6
    )
    line = "  instances: 3 of 9 scored; 1 failed, 2 empty, 4 cut off, 5 filtered"
    assert f"{line} (4 instances, each trial and perturbation counted)" in shown(changed(result, instances=counts))
    judged = changed(result, instances=counts, splits={"test": 9}, judges={"gpt": JudgeCounts(1, 1, 0)})
    assert f"{line}, 6 unjudged" in shown(judged)


@pytest.mark.parametrize(("alpha", "told"), [(None, "not defined"), (0.12345, "0.123")])
def test_a_jury_is_shown_by_its_means_and_agreement(alpha: float | None, told: str, result: TaskResult) -> None:
    jury = JuryReport({"gpt": 4.256, "llama": 3.0}, alpha, {}, {})
    line = f"  judges' mean ratings: gpt 4.26, llama 3.00; agreement (Krippendorff's alpha): {told}"
    assert line in shown(changed(result, jury=jury))
    assert not any("judges" in line for line in shown(changed(result, jury=JuryReport({}, alpha, {}, {}))))


def test_tokens_are_shown_where_both_are_known(result: TaskResult) -> None:
    def line(prompt: int | None, completion: int | None) -> str:
        total = Spent(1, 0, 0, prompt, completion, None, None)
        usage = Usage(SpentByRole(total, {}), SpentByRole(total, {}), 1, 1.0)
        return next(line for line in shown(replace(result, usage=usage)) if "sent" in line)

    assert line(7, 8) == "  requests: 1 sent, 0 from the cache, 0 retries; 7 prompt and 8 completion tokens"
    assert line(7, None) == line(None, 8) == "  requests: 1 sent, 0 from the cache, 0 retries"


def with_corrected(result: TaskResult, count: int) -> TaskResult:
    stats = replace(result.scores["exact_match"].stats, count=count, ci_low=0.125, ci_high=0.875)
    corrected = Score(0.75, stats, "exact_match.corrected", "test")
    both = {**result.scores, "exact_match.corrected": corrected}
    return replace(result, scores=both, groups={"category": {"odd": both, "even": result.scores}})


def test_the_headline_shows_the_corrected_value_beside_helms(result: TaskResult) -> None:
    first, second, *_ = shown(with_corrected(result, 4))
    assert first.startswith("pubmed_qa: exact_match = 0.5000  (95 % interval ")
    assert second == "  corrected = 0.7500  (95 % interval 0.1250 .. 0.8750)"
    fewer = "corrected = 0.7500 over 3 instances  (95 % interval 0.1250 .. 0.8750)"
    assert shown(with_corrected(result, 3))[1] == f"  {fewer}"
    assert headline(with_corrected(result, 3)) == f"{first}; {fewer}"
    assert headline(result) == shown(result)[0]
    assert "corrected" not in "".join(shown(result))
    alone = replace(result, scores={"exact_match.corrected": result.scores["exact_match"]})
    assert headline(alone) == "pubmed_qa: exact_match could not be computed"


def test_answers_that_say_nothing_are_shown(result: TaskResult) -> None:
    said = "3 answers say nothing that can be scored"
    counts = replace(result.validity.instances, unreadable=3)
    assert f"; {said}\n" in result_summary(changed(result, instances=counts), plan().rundir)
    assert said not in result_summary(result, plan().rundir)


def test_a_rubric_has_one_line(result: TaskResult) -> None:
    report = RubricReport(RubricVotes(3, 2, 1, 0), {}, {})
    lines = shown(changed(result, rubric=report))
    assert "  criteria: 2 of 3 criteria met, 1 not met" in lines
    assert len(lines) == len(shown(result)) + 1
