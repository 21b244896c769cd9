"""The calibration of a judge: the published figures, parts of the items, and intervals that cover."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from judge_coverage import SITUATIONS, coverage, coverage_of_categories
from sklearn.metrics import cohen_kappa_score

from eval_factory.scoring.agreement_figures import AgreementPart
from eval_factory.scoring.judge_calibration import calibration_of
from eval_factory.tasks.physician_labels import read_labels
from known import there
from labelled_items import item, judge_and_physicians


@pytest.mark.medical_data
def test_the_figures_of_the_published_items(medical_data: Path) -> None:
    folder = medical_data / "healthbench-judges"
    expected = json.loads((folder / "expected.json").read_text("utf-8"))
    read = read_labels(folder / "physician_labels_60.jsonl", "judge_label")
    found = calibration_of(read.rows)
    judge, physicians = judge_and_physicians(found.total)
    assert (read.problems, found.total.items, found.total.labels) == (
        [],
        expected["items"],
        expected["labels"],
    )
    for figure, name in (
        (judge["f1_macro"], "judge_f1"),
        (judge["kappa"], "judge_kappa"),
        (judge["bias"], "bias"),
        (physicians["f1_macro"], "physician_f1"),
        (physicians["kappa"], "physician_kappa"),
    ):
        assert figure.value == pytest.approx(expected[name], abs=1e-10), name
    assert found.gap.value == pytest.approx(expected["judge_f1"] - expected["physician_f1"])
    assert (physicians["bias"].value, found.conversations, found.physicians) == (0, 60, 76)
    assert all(part.judge is None for part in found.categories.values()), "none has ten items"


def test_a_category_below_ten_items_has_its_count_alone() -> None:
    items = [item(number, [True, number % 2 > 0], number % 3 > 0, "large") for number in range(10)]
    items += [item(f"s{number}", [True, False], True, "small") for number in range(9)]
    found = calibration_of(items).categories
    assert list(found) == ["large", "small"]
    assert (found["small"], found["large"].judge is None) == (
        AgreementPart(9, 18, None, None),
        False,
    )
    alone = calibration_of(
        [item(number, [True], number % 3 > 0, "alone") for number in range(12)] + items
    )
    assert alone.categories["alone"].physicians is None, "no physician stands beside another"


def test_thirds_by_the_length_of_the_answer() -> None:
    items = [
        item(number, [True, number % 2 > 0], number % 3 > 0, length=1000 + number)
        for number in range(30)
    ]
    found = calibration_of(items).lengths
    assert {name: part.items for name, part in found.items()} == {
        "up to 1,009": 10,
        "1,010 to 1,019": 10,
        "1,020 and more": 10,
    }
    assert all(part.judge is not None for part in found.values())
    assert calibration_of([*items, item("x", [True, True], True)]).lengths == {}, (
        "one has no length"
    )
    same = calibration_of([item(number, [True, False], True, length=5) for number in range(30)])
    assert [part.items for part in same.lengths.values()] == [30]


LEAST = 0.92
LEAST_POOLED = 0.89
"""Of 1,000 samples at 94 %, fewer than one series in 200 covers less; of pooled categories 91.1 % were measured."""


@pytest.mark.simulation
@pytest.mark.parametrize("name", SITUATIONS)
def test_intervals_cover_the_truth(name: str) -> None:
    assert {key: share for key, share in coverage(name, 1_000).items() if share < LEAST} == {}


@pytest.mark.simulation
@pytest.mark.parametrize("apart", [0.0, 0.1, 0.25])
def test_pooled_categories_cover_their_own_truth(apart: float) -> None:
    """Lowest where they are far apart: the sensitivity, whose ends the normal model does not know."""
    assert min(coverage_of_categories(apart, 150).values()) > LEAST_POOLED


def test_the_majority_and_each_physician() -> None:
    """A tie is no majority; who labelled fewer than ten items has no figure."""
    items = [item(at, [True, True, at % 2 == 0], at % 4 != 3) for at in range(12)]
    items.append(item("tie", [True, False], judged=True))
    found = calibration_of(items)
    majority = judge_and_physicians(there(found.majority))[0]
    assert (there(found.majority).items, majority["sensitivity"].value) == (12, 0.75)
    assert majority["bias"].value == pytest.approx(-0.25)
    assert {name: part.items for name, part in found.by_physician.items()} == {
        "doctor 0": 13,
        "doctor 1": 13,
        "doctor 2": 12,
    }
    third = judge_and_physicians(found.by_physician["doctor 2"])[0]
    said = [at % 4 != 3 for at in range(12)]
    labelled = [at % 2 == 0 for at in range(12)]
    assert third["kappa"].value == pytest.approx(cohen_kappa_score(said, labelled))
    assert calibration_of([item("tie", [True, False], judged=True)]).majority is None
    few = calibration_of([item(at, [True, False], judged=True) for at in range(9)])
    assert few.by_physician["doctor 0"].judge is None
