"""Which jury agrees best: by hand, and without the luck of the choice."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import f1_score

from eval_factory.scoring.jury_choice import BestJury, best_juries
from eval_factory.tasks.physician_labels import LabelledItem
from known import near, there


def labelled(truth: list[bool]) -> list[LabelledItem]:
    return [LabelledItem(f"c{at}", False, (met, met), ("a", "b")) for at, met in enumerate(truth)]


def drawn(count: int, *right: float) -> tuple[list[LabelledItem], dict[str, list[bool]]]:
    """`right`: of each judge the chance of being right."""
    rng = np.random.default_rng(2)
    truth = [bool(rng.random() < 0.6) for _ in range(count)]
    said = {
        f"j{at}": [met is bool(rng.random() < chance) for met in truth]
        for at, chance in enumerate(right)
    }
    return labelled(truth), said


def test_the_majority_of_three_judges_that_err_apart_is_better_than_the_best_alone() -> None:
    items, said = drawn(300, 0.8, 0.82, 0.78, 0.5)
    one, three = best_juries(items, said, {"j0": 1.0, "j1": 2.0, "j2": 3.5, "j3": 9.0})
    assert (one.judges, one.cost_per_1000) == (("j1",), 2.0)
    assert (three.judges, three.cost_per_1000) == (("j0", "j1", "j2"), near(6.5))
    truth = [item.labels[0] for item in items]
    majority = [sum(votes) > 1 for votes in zip(said["j0"], said["j1"], said["j2"], strict=True)]
    assert three.f1_macro == near(f1_score(truth, majority, average="macro"))
    assert three.cross_validated.value == near(three.f1_macro), "the same three in each part"
    assert (
        there(three.cross_validated.ci_low) < three.f1_macro < there(three.cross_validated.ci_high)
    )


def test_judges_at_random_show_the_luck_of_the_choice() -> None:
    """The best of ten on the same labels looks better than it is on others."""
    items, said = drawn(120, *[0.5] * 10)
    best = best_juries(items, said, {})[0]
    assert best.f1_macro > there(best.cross_validated.value) + 0.05


def test_sizes_are_odd_up_to_seven_and_a_missing_price_is_no_price() -> None:
    items, said = drawn(40, *[0.8] * 9)
    found = best_juries(items, said, {"j0": 1.0})
    assert [len(one.judges) for one in found] == [1, 3, 5, 7]
    assert all(one.cost_per_1000 is None for one in found[1:])


def test_judges_that_say_one_thing_are_no_error() -> None:
    items = labelled([True, False, True, False, True, False])
    always = {"j0": [True] * 6, "j1": [False] * 6}
    (only,) = best_juries(items, always, {})
    assert isinstance(only, BestJury)
