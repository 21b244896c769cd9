"""Calibration, risk and coverage, against loops written from their definitions."""

from __future__ import annotations

import json
import math
import random
import statistics
from itertools import product
from pathlib import Path

import pytest

from builders import plan
from eval_factory.helm import names, output
from eval_factory.scoring.confidence import (
    Answer,
    ConfidenceOfAnswers,
    area_under_risk,
    brier_parts,
    groups_by_confidence,
    interval_of_error,
    probability_of,
    risk_at,
    squared_error,
)


def answers(*pairs: tuple[float, float]) -> list[Answer]:
    return [Answer(sure, right, number) for number, (sure, right) in enumerate(pairs)]


def drawn(count: int, gap: float, seed: int = 0) -> list[Answer]:
    """Right with the stated confidence less a gap."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    sure = [chance.choice((0.5, 0.6, 0.7, 0.8, 0.9)) for _ in range(count)]
    return answers(*((one, float(chance.random() < one - gap)) for one in sure))


def test_groups_hold_equally_many_and_never_part_equal_confidences() -> None:
    whole = answers(*((number / 100, 1.0) for number in range(100)))
    assert [len(group) for group in groups_by_confidence(whole)] == [10] * 10
    assert len(groups_by_confidence(answers(*[(0.9, 1.0)] * 50))) == 1
    few = answers(*[(0.1, 0.0)] * 2, *[(0.9, 1.0)] * 40)
    assert sum(map(len, groups_by_confidence(few))) == 42
    for group in groups_by_confidence(drawn(200, 0.0)):
        assert len({one.confidence for one in group}) == 1
    assert (
        min(map(len, groups_by_confidence(answers(*((number / 17, 1.0) for number in range(17))))))
        >= 5
    )


def test_the_squared_error_is_that_of_pairs_in_a_group() -> None:
    """The mean over pairs of different answers of the product of their gaps: what J. Broecker's estimate is."""
    for group in groups_by_confidence(drawn(120, 0.2)):
        gaps = [one.confidence - one.right for one in group]
        pairs = [a * b for (i, a), (j, b) in product(enumerate(gaps), enumerate(gaps)) if i != j]
        assert squared_error([group]) == pytest.approx(statistics.fmean(pairs))


def test_the_estimate_has_no_bias_where_the_plain_one_has() -> None:
    samples = [groups_by_confidence(drawn(60, 0.0, seed)) for seed in range(300)]
    plain = statistics.fmean(
        sum(
            len(group) * statistics.fmean(one.confidence - one.right for one in group) ** 2
            for group in groups
        )
        / 60
        for groups in samples
    )
    estimates = [squared_error(groups) for groups in samples]
    noise = statistics.stdev(estimates) / math.sqrt(len(estimates))
    assert abs(statistics.fmean(estimates)) < 4 * noise
    assert plain > 10 * noise


def test_the_interval_holds_a_true_error_and_is_no_point_at_the_ceiling() -> None:
    held = sum(
        low <= 0.2 <= high
        for low, high in (
            interval_of_error(groups_by_confidence(drawn(150, 0.2, seed)), 200)
            for seed in range(60)
        )
    )
    assert held >= 52
    low, high = interval_of_error(groups_by_confidence(answers(*[(0.95, 1.0)] * 100)))
    assert low < 0.05 < high


def test_an_interval_of_sources_that_are_right_or_wrong_as_one_is_wider() -> None:
    pairs = [(0.7, float(number // 5 % 3 != 0)) for number in range(150)]
    alone = answers(*pairs)
    shared = [one._replace(source=number // 5) for number, one in enumerate(alone)]
    widths = [
        high - low
        for low, high in (
            interval_of_error(groups_by_confidence(sample)) for sample in (alone, shared)
        )
    ]
    assert widths[1] > 1.7 * widths[0]


def test_no_resolution_is_none_in_the_mean() -> None:
    """A confidence that says nothing: what groups differ by is chance, and is taken out."""
    chance = random.Random(0)  # noqa: S311 - no secret
    found = []
    for _ in range(200):
        sample = answers(*((number / 100, float(chance.random() < 0.5)) for number in range(100)))
        found.append(brier_parts(groups_by_confidence(sample))[1])
    assert statistics.fmean(found) < 0.013, "the plain one is 0.0225"


def test_the_parts_of_the_brier_score_give_it() -> None:
    sample = drawn(2000, 0.1)
    reliability, resolution, uncertainty = brier_parts(groups_by_confidence(sample))
    brier = statistics.fmean((one.confidence - one.right) ** 2 for one in sample)
    assert reliability - resolution + uncertainty == pytest.approx(brier, abs=0.002)
    assert reliability == pytest.approx(0.01, abs=0.006)


def test_risk_by_coverage_counts_the_surest_first_and_ties_in_any_order() -> None:
    sample = answers((0.9, 1.0), (0.8, 0.0), (0.8, 1.0), (0.1, 0.0))
    assert risk_at(sample, 0.25) == (0.25, 0.0)
    assert risk_at(sample, 0.5) == (0.5, 0.25)
    assert risk_at(sample, 1.0) == (1.0, 0.5)
    assert area_under_risk(sample) == pytest.approx((0 + 0.25 + 1 / 3 + 0.5) / 4)
    assert area_under_risk(sample[::-1]) == area_under_risk(sample)


@pytest.mark.parametrize(
    ("label", "tokens", "found"),
    [
        ("B", [("B", -0.5)], math.exp(-0.5)),
        ("B", [(" B", -0.5), (".", -3.0)], math.exp(-0.5)),
        (
            "B",
            [("B", -9.0), (" or", -1.0), (" B", -0.5)],
            math.exp(-0.5),
        ),  # the last one is the answer
        ("maybe", [("may", -0.5), ("be", -0.25), ("!", -7.0)], math.exp(-0.75)),
        ("C", [("B", -0.5)], None),
        ("B", [], None),
        ("", [("B", -0.5)], None),
    ],
)
def test_the_probability_of_a_label_is_that_of_its_tokens(
    label: str, tokens: list[tuple[str, float]], found: float | None
) -> None:
    assert probability_of(label, tokens) == (None if found is None else pytest.approx(found))


def test_too_few_answers_say_nothing_and_what_was_not_read_is_counted() -> None:
    part = ConfidenceOfAnswers(
        "stated", confidences={("a", 0): 0.9, ("b", 0): None, ("c", 0): None, ("gone", 0): 0.5}
    )
    found = part.make_report({("a", 0): 1.0, ("b", 0): 0.0, ("c", 0): 1.0}, lambda _units: None)
    assert (found.questions, found.unread, found.mean) == (1, 2, None)


def test_a_report_of_forty_answers_holds_together() -> None:
    sources = {f"q{number}": f"s{number // 4}" for number in range(40)}
    known: dict[tuple[str, int], float | None] = {
        (name, 0): 0.9 if number % 2 else 0.6 for number, name in enumerate(sources)
    }
    values = {unit: float(number % 5 > 0) for number, unit in enumerate(known)}
    found = ConfidenceOfAnswers("stated", confidences=known).make_report(
        values, lambda units: [sources[name] for name, _ in units]
    )
    assert (found.questions, found.unread, [one.count for one in found.bins]) == (40, 0, [20, 20])
    assert [(one.confidence, one.right) for one in found.bins] == [
        pytest.approx(pair) for pair in ((0.6, 0.8), (0.9, 0.8))
    ]
    assert found.risk_coverage[-1] == pytest.approx((1.0, 0.2))
    assert [
        share.value for share in (found.mean, found.right, found.brier) if share
    ] == pytest.approx([0.75, 0.8, 0.185])
    assert found.area is not None
    assert found.area.ci_low is not None
    assert found.area.ci_high is not None
    assert found.area.ci_low < found.area.value < found.area.ci_high


def state_of(text: str, instance: str = "q") -> output.RequestState:
    return output.RequestState.model_validate(
        {
            "instance": {"id": instance, "input": {"text": "?"}},
            "train_trial_index": 0,
            "request": {},
            "result": {"success": True, "completions": [{"text": text}]},
        }
    )


def test_replies_are_read_from_the_file_that_helm_run_wrote(tmp_path: Path) -> None:
    made = plan(
        {
            "config.type": "sample_medical_qa",
            "config.params.extra.confidence": "stated",
            "config.output_dir": str(tmp_path),
        }
    )
    file = made.rundir.helm / names.CONFIDENCE_FILE
    file.parent.mkdir(parents=True)
    lines = [("a", "80", None), ("b", None, "HTTP 500"), ("c", "very", None)]
    replies = [
        {"instance": one, "trial": 0, "reply": reply, "error": error} for one, reply, error in lines
    ]
    file.write_text(json.dumps(replies), encoding="utf-8")
    part = ConfidenceOfAnswers.of(made, lambda _state: ())
    assert part is not None
    for name in ("a", "b", "c", "d"):
        part.add((name, 0), state_of("A", name), "A")
    assert part.confidences == {("a", 0): 0.8, ("b", 0): None, ("c", 0): None, ("d", 0): None}
    file.write_text("{", encoding="utf-8")
    broken = ConfidenceOfAnswers.of(made, lambda _state: ())
    assert (broken is None or broken.replies) == {}


def test_log_probabilities_are_those_of_the_label_or_of_the_whole_answer() -> None:
    asked = plan({"config.type": "sample_medical_qa", "config.params.extra.confidence": "logprobs"})
    part = ConfidenceOfAnswers.of(
        asked, lambda state: [(state.result.completions[0].text if state.result else "", -0.5)]
    )
    assert part is not None
    part.add(("a", 0), state_of("A"), "A")
    part.add(("b", 0), state_of("not a label"), "")
    assert list(part.confidences.values()) == pytest.approx([math.exp(-0.5)] * 2)
    assert ConfidenceOfAnswers.of(plan(), lambda _state: ()) is None


def test_a_rare_level_is_a_group_of_its_own() -> None:
    stated = [(0.7, 1.0)] * 92 + [(0.9, 1.0)] * 90 + [(0.99, 0.0)] * 18
    assert [len(group) for group in groups_by_confidence(answers(*stated))] == [92, 90, 18]
    assert [len(group) for group in groups_by_confidence(answers(*stated[:-14]))] == [92, 94]
    first_rare = [(0.1, 1.0)] * 2 + [(0.7, 1.0)] * 30
    assert [len(group) for group in groups_by_confidence(answers(*first_rare))] == [32]


def test_levels_of_shared_sources_err_together() -> None:
    """Each source is right or wrong as one, at each of five levels."""
    pairs = []
    for number in range(150):
        sure = (0.6, 0.7, 0.8, 0.9, 0.95)[number % 5]
        pairs.append((sure, float(number // 5 % 3 != 0)))
    alone = answers(*pairs)
    shared = [one._replace(source=number // 5) for number, one in enumerate(alone)]
    widths = []
    for sample in (alone, shared):
        low, high = interval_of_error(groups_by_confidence(sample))
        widths.append(high - low)
    assert widths[1] > 1.3 * widths[0]
