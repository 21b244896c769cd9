"""Folders with made-up results, compared: pairs, flips, failures and their bounds, reasons, more than two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis.comparison import compare, compare_pairs, with_corrected_p_values
from eval_factory.analysis.comparison_reasons import Reason, Side, values_of
from eval_factory.analysis.comparison_records import Comparison, Failed, Flips, Model
from eval_factory.analysis.gate_groups import difference_in_group
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import (
    PASSPORT_FILE,
    InstanceRecord,
    JudgeCorrection,
    RubricReport,
    RubricVotes,
)
from eval_factory.report.reader import load_result
from eval_factory.scoring.methods import STATISTICS_VERSION
from eval_factory.scoring.paired import equivalence, non_inferiority, paired_difference
from facts import each_says, says
from known import there
from stored_results import PROVENANCE, instance, result, right_or_wrong, written


def only(folders: list[Path], **options: Any) -> Comparison:
    compared = compare(folders, **options)
    assert (compared.comparable, compared.reasons, compared.ranks) == (True, (), ())
    (one,) = compared.comparisons
    return one


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """Of 20: 2 that a alone has right, 6 that b alone has right."""
    other = replace(PROVENANCE, target="org/other")
    return [
        right_or_wrong(tmp_path / "a", "1" * 10 + "11" + "000000" + "00"),
        right_or_wrong(tmp_path / "b", "1" * 10 + "00" + "111111" + "00", provenance=other),
    ]


def test_two_folders(pair: list[Path]) -> None:
    one = only(pair)
    assert (one.task, one.metric, one.right_or_wrong, one.higher_is_better) == (
        "pubmed_qa",
        "exact_match",
        True,
        True,
    )
    assert (one.a, one.b) == (Model("A", pair[0], "org/model"), Model("B", pair[1], "org/other"))
    values_a = [1.0] * 12 + [0.0] * 8
    values_b = [1.0] * 10 + [0.0] * 2 + [1.0] * 6 + [0.0] * 2
    assert one.paired == paired_difference(values_a, values_b)
    assert one.paired.difference == pytest.approx(0.2)
    assert one.flips == Flips(("q10", "q11"), ("q12", "q13", "q14", "q15", "q16", "q17"))
    assert one.failed == Failed(0, 0, 0)
    assert one.bounds == pytest.approx((0.2, 0.2))
    assert (one.margin, one.non_inferiority, one.equivalence, one.p_holm) == (
        None,
        None,
        None,
        None,
    )
    assert one.advantage == one.paired.difference
    assert one.significant is one.paired.is_significant is False
    shown = replace(one, paired=replace(one.paired, p_value=0.02, ci_low=0.1))
    assert [replace(shown, p_holm=p_holm).significant for p_holm in (None, 0.05, 0.04)] == [
        True,
        False,
        True,
    ]


def test_a_margin_is_concluded_on(pair: list[Path]) -> None:
    for margin in (0.05, 0.5):
        one = only(pair, margin=margin)
        assert (one.margin, one.non_inferiority) == (margin, non_inferiority(one.paired, margin))
        assert one.equivalence == equivalence(one.paired, margin)


def test_what_failed_on_one_side_is_out_of_both_and_bounded(tmp_path: Path) -> None:
    folders = [
        right_or_wrong(tmp_path / "a", "1101x01xx0"),
        right_or_wrong(tmp_path / "b", "1111x1x111"),
    ]
    one = only(folders)
    assert (one.failed, one.failed.total) == (Failed(a_only=2, b_only=1, both=1), 4)
    assert (one.paired.n, one.flips) == (6, Flips((), ("q2", "q5", "q9")))
    # three of ten better, and for the missing: q4 -1..1, q6 -1..0 (a has it right), q7 and q8 0..1
    assert one.bounds == pytest.approx((0.1, 0.6))


def test_cases_of_a_rubric_have_each_a_scale_of_their_own(tmp_path: Path) -> None:
    """Each can lose three times its points; all but one of 30 are equal, and that one is lost in b."""
    criteria = (
        {"criterion": "good", "points": 2, "verdict": "met", "tags": [], "judges": {}},
        {"criterion": "bad", "points": -6, "verdict": "met", "tags": [], "judges": {}},
    )
    about: dict[str, Any] = {"criteria": criteria, "categories": {"topic": "x"}}
    equal = [instance(f"q{one}", 1.0, **about) for one in range(29)]
    folders = [
        written(tmp_path / name, result([*equal, instance("q29", last, **about)]))
        for name, last in (("a", 1.0), ("b", -3.0))
    ]
    one = only(folders)
    expected = paired_difference([1.0] * 30, [1.0] * 29 + [-3.0], scale=(-3.0, 1.0))
    assert one.scale is None
    assert (one.paired.ci_low, one.paired.ci_high) == (expected.ci_low, expected.ci_high)
    assert (one.paired.ci_low or 0.0) < -0.4
    within = difference_in_group(
        load_result(folders[0]), load_result(folders[1]), one, ("topic", "x")
    )
    assert within is not None
    assert (within.ci_low, within.ci_high) == (one.paired.ci_low, one.paired.ci_high)


def rated(folder: Path, values: list[float], **about: Any) -> Path:
    """`about`: what is known of the metric's direction and scale."""
    made = result([instance(f"q{number}", value) for number, value in enumerate(values)])
    return written(
        folder, replace(made, scores={"exact_match": replace(made.scores["exact_match"], **about)})
    )


def test_a_metric_that_is_better_when_lower(tmp_path: Path) -> None:
    about: dict[str, Any] = {"higher_is_better": False, "scale": (0.0, 1.0)}
    folders = [
        rated(tmp_path / name, [value] * 40, **about) for name, value in (("a", 0.5), ("b", 0.2))
    ]
    one = only(folders, margin=0.1)
    assert one.paired.difference == pytest.approx(-0.3)
    assert one.advantage == pytest.approx(0.3)
    assert (one.non_inferiority, one.right_or_wrong, one.higher_is_better) == (
        "shown",
        False,
        False,
    )
    assert (one.flips.a_only, len(one.flips.b_only)) == ((), 40)
    assert only(folders[::-1], margin=0.1).non_inferiority == "refuted"


def test_values_beyond_every_known_scale_have_no_bounds(tmp_path: Path) -> None:
    one = only([rated(tmp_path / "a", [12.0, 4.0]), rated(tmp_path / "b", [13.0, 7.0])])
    assert (one.scale, one.bounds) == (None, None)
    assert one.paired.ci_low == pytest.approx(2 - 12.7062)


def test_another_metric_and_another_split(tmp_path: Path) -> None:
    def rows(value: float) -> list[InstanceRecord]:
        return [
            instance("q0", 1.0),
            instance("q1", value, split="valid"),
            instance("q2", 1.0, metric="f1"),
        ]

    labels = ["exact_match", "exact_match@valid", "f1"]
    folders = [
        written(tmp_path / name, result(rows(value), labels))
        for name, value in (("a", 1.0), ("b", 0.0))
    ]
    assert only(folders, metric="exact_match@valid").flips == Flips(("q1",), ())
    assert only(folders, metric="f1").paired.difference == 0
    assert only(folders).paired.n == 1
    compared = compare(folders, metric="none")
    said = "has no score none; it has exact_match, exact_match@valid, f1"
    assert compared.reasons == tuple(Reason("metric", f"{label} {said}") for label in "AB")
    assert (compared.comparisons, compared.comparable) == ((), False)
    assert not compare(folders, metric="none", allow=["prompts"]).comparable


def test_clusters_are_counted_and_who_has_none_stands_alone(tmp_path: Path) -> None:
    def rows(values: str) -> list[InstanceRecord]:
        clusters = ("note", "note", "q3", None)
        return [
            instance(f"q{at}", float(values[at]), cluster=cluster)
            for at, cluster in enumerate(clusters)
        ]

    one = only([written(tmp_path / values, result(rows(values))) for values in ("0000", "1101")])
    assert one.paired.clusters == 3
    assert one.paired.p_value == 0.5  # of 3 sources, 2 flipped
    without = [replace(record, cluster=None) for record in rows("0000")]
    folders = [
        written(tmp_path / "a", result(without)),
        written(tmp_path / "b", result(rows("1101"))),
    ]
    assert only(folders).paired.clusters == 3
    assert only(folders[::-1]).paired.clusters == 3


def test_main_metrics_that_differ_are_a_reason(tmp_path: Path) -> None:
    rows = [instance("q0", 1.0)]
    a = written(tmp_path / "a", result(rows))
    b = written(tmp_path / "b", result(rows, ["f1", "exact_match"]))
    (reason,) = compare([a, b]).reasons
    assert reason == Reason("metric", reason.message)
    says(reason.message, "B's main metric", "f1", "A's is exact_match", "--metric")
    assert only([a, b], metric="exact_match").paired.n == 1


def test_a_reason_is_accepted_by_its_name_and_kept(tmp_path: Path) -> None:
    other = replace(PROVENANCE, errata_version=9, helm="0.6")
    folders = [
        right_or_wrong(tmp_path / "a", "1101"),
        right_or_wrong(tmp_path / "b", "1001", provenance=other),
    ]
    assert {reason.name for reason in compare(folders).reasons} == {"errata", "helm"}
    refused = compare(folders, allow=["errata"])
    assert [reason.name for reason in refused.reasons] == ["helm"]
    assert (refused.comparisons, [model.label for model in refused.models]) == ((), ["A", "B"])
    compared = compare(folders, allow=["errata", "helm"])
    assert [reason.name for reason in compared.accepted] == ["errata", "helm"]
    assert len(compared.comparisons) == 1
    nothing_shared = [right_or_wrong(tmp_path / values, values) for values in ("1x", "x1")]
    assert [reason.name for reason in compare(nothing_shared, allow=["coverage"]).reasons] == [
        "no_pairs"
    ]


def test_three_folders_are_corrected_and_ranked(tmp_path: Path) -> None:
    values = {"a": "1" * 50 + "0" * 50, "b": "1" * 80 + "0" * 20, "c": "1" * 46 + "0" * 54}
    compared = compare([right_or_wrong(tmp_path / name, text) for name, text in values.items()])
    assert [(one.a.label, one.b.label) for one in compared.comparisons] == [
        ("A", "B"),
        ("A", "C"),
        ("B", "C"),
    ]
    a_b, a_c, b_c = compared.comparisons
    assert a_c.paired.p_value == a_c.p_holm == 0.125
    assert a_b.p_holm == pytest.approx(2 * there(a_b.paired.p_value))
    assert b_c.p_holm == pytest.approx(3 * there(b_c.paired.p_value))
    assert [one.significant for one in compared.comparisons] == [True, False, True]
    ranks = [(one.model.label, one.best, one.worst) for one in compared.ranks]
    assert ranks == [("A", 2, 3), ("B", 1, 1), ("C", 2, 3)]


def test_what_cannot_be_asked_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        compare([tmp_path], margin=0.0, allow=["metric", "prompts", "nonsense"])
    each_says(
        wrong.value.problems,
        ["compare: ", "two folders"],
        ["compare: --margin 0.0"],
        ["compare: --allow metric", "nonsense: ", "coverage, data, errata, helm"],
    )
    with pytest.raises(ConfigError, match="nan"):
        compare([tmp_path, tmp_path], margin=float("nan"))
    with pytest.raises(PrerequisiteError, match="there is no result"):
        compare([tmp_path, tmp_path])


def side(folder: Path) -> Side:
    stored = load_result(folder)
    main = stored.result.scores[stored.result.main_metric]
    return Side(
        folder.name, stored, values_of(stored.result.instances, main), stored.result.main_metric
    )


def test_pairs_that_cannot_be_compared_keep_no_others_from_it(tmp_path: Path) -> None:
    folders = [
        right_or_wrong(tmp_path / name, values)
        for name, values in (("x", "1" * 10), ("y", "0" * 9 + "1"))
    ]
    other = right_or_wrong(
        tmp_path / "z", "1" * 10, provenance=replace(PROVENANCE, errata_version=9)
    )
    first, *others = compare_pairs([side(folder) for folder in (*folders, other)])
    assert (first.a, first.b) == (
        Model("x", folders[0], "org/model"),
        Model("y", folders[1], "org/model"),
    )
    alone = only(folders).paired
    assert first.comparison is not None
    assert (first.comparison.paired, first.comparison.p_holm, first.reasons) == (
        alone,
        alone.p_value,
        (),
    )
    assert [(pair.a.label, pair.b.label, pair.comparison) for pair in others] == [
        ("x", "z", None),
        ("y", "z", None),
    ]
    (reason,) = others[0].reasons
    says(reason.message, "x and z", "known defects", "errata 3 and 9")


def test_p_values_of_pairs_are_corrected_for_those_that_were_compared(tmp_path: Path) -> None:
    values = {"x": "1" * 20, "y": "1" * 10 + "0" * 10, "z": "1" * 18 + "00"}
    pairs = compare_pairs(
        [side(right_or_wrong(tmp_path / name, row)) for name, row in values.items()]
    )
    found = [pair.comparison for pair in pairs]
    alone = compare([tmp_path / name for name in values])
    assert [one and one.p_holm for one in found] == [one.p_holm for one in alone.comparisons]
    twice = with_corrected_p_values([*pairs, replace(pairs[0], comparison=None), *pairs])
    assert twice[3].comparison is None
    assert twice[0].comparison is not None
    p_value = there(alone.comparisons[0].paired.p_value)
    assert twice[0].comparison.p_holm == pytest.approx(6 * p_value)
    assert compare_pairs([]) == ()


CORRECTED_SCORE = "rubric_score.judge_corrected"


def corrected_by_labels(
    folder: Path,
    right: int,
    youden_stderr: float | None,
    version: int = STATISTICS_VERSION,
    passport: str = "5",
) -> Path:
    """A rubric's score of 40 cases, divided by sensitivity + specificity - 1 = 0.8.

    `version`: of the statistics that corrected it; `passport`: the digit of its judge's hash.
    """
    records = [
        instance(f"q{number}", float(number < right), CORRECTED_SCORE) for number in range(40)
    ]
    provenance = replace(
        PROVENANCE,
        statistics_version=version,
        dataset_files={PASSPORT_FILE: passport * 64},
    )
    made = result(records, (CORRECTED_SCORE,), provenance=provenance)
    correction = JudgeCorrection(
        judge="kind",
        judge_score=0.5,
        value=right / 40,
        ci_low=0.1,
        ci_high=0.9,
        ci_method="m",
        sensitivity=0.9,
        specificity=0.9,
        labels=300,
        matched_points=1.0,
        passport_date="2026-05-06",
        passport_sha256=passport * 64,
        categories={},
        youden_stderr=youden_stderr,
    )
    votes = RubricVotes(40, right, 40 - right, 0)
    rubric = RubricReport(votes, {"kind": votes}, {}, correction=correction)
    return written(folder, replace(made, validity=replace(made.validity, rubric=rubric)))


def test_scores_corrected_by_two_methods_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """The first version of the statistics corrected to the labels, later ones to the truth."""
    labels = corrected_by_labels(tmp_path / "labels", 10, None, version=1)
    truth = corrected_by_labels(tmp_path / "truth", 30, 0.02, version=2)
    now = corrected_by_labels(tmp_path / "now", 30, 0.02)
    found = compare([labels, now], metric=CORRECTED_SCORE)
    assert (found.comparable, found.comparisons) == (False, ())
    (reason,) = found.reasons
    assert reason.name == "judges"
    says(reason.message, "A and B", "labels", "truth", "rescore the older")
    only([truth, now], metric=CORRECTED_SCORE)
    other_passport = corrected_by_labels(tmp_path / "other", 10, None, 1, passport="6")
    found = compare([other_passport, now], metric=CORRECTED_SCORE)
    assert not found.comparable
    each_says([reason.message for reason in found.reasons], ["passports"], ["rescore the older"])


def test_a_difference_of_corrected_scores_is_as_uncertain_as_the_labels(tmp_path: Path) -> None:
    widths = []
    for stderr in (None, 0.02, 0.2):
        folder = tmp_path / str(stderr)
        sides = [
            corrected_by_labels(folder / "a", 10, stderr),
            corrected_by_labels(folder / "b", 30, 0.01 if stderr else None),
        ]
        found = only(sides, metric=CORRECTED_SCORE).paired
        assert found.difference == pytest.approx(0.5)
        widths.append(there(found.ci_high) - there(found.ci_low))
    without, little, much = widths
    assert without < little < much
    # to each side sqrt(half^2 + (1.96 * 0.5 * 0.2 / 0.8)^2), of nearly equal sides
    expected = 2 * ((without / 2) ** 2 + (1.96 * 0.5 * 0.25) ** 2) ** 0.5
    assert much == pytest.approx(expected, rel=0.05)
