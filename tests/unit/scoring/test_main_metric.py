"""The main metric of a result, and the places of answers that HELM cannot score."""

from __future__ import annotations

from builders import draft
from eval_factory.scoring.main_metric import MainMetric
from eval_factory.scoring.metric_scores import UnscorableAnswers
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.scores import InstanceKey, MetricValues, mean_score
from eval_factory.scoring.tally import Tally


def metric() -> MetricValues:
    return MetricValues("m", "m", 1.0, values={("a", 0, None): 1.0}, split="test")


def test_how_the_main_metric_was_chosen_is_a_doubt_and_without_a_score_more() -> None:
    made = draft(
        main="m", main_metric_notes=("w",), scores={"m": mean_score(metric(), metric().values)}
    )
    made.notes.add(Importance.BACKGROUND, "known")
    MainMetric().conclude(made)
    assert (made.notes.texts(), made.notes.urgent) == (("w", "known"), 0)
    without = draft(main="m", main_metric_notes=("w",))
    MainMetric().conclude(without)
    assert without.notes.urgent == 1


def test_an_unscorable_answer_keeps_its_place_in_the_metric_of_its_split_alone() -> None:
    here: InstanceKey = ("b", 0, None)
    perturbed: InstanceKey = ("c", 0, "typos")
    elsewhere: InstanceKey = ("d", 0, None)
    unscorable = {here: ("why", "test"), perturbed: ("why", "test"), elsewhere: ("why", "valid")}
    of_split = metric()
    empty = MetricValues("n", "n", None, split="test")
    UnscorableAnswers().complete(
        draft(tally=Tally(unscorable=dict(unscorable)), metrics=[of_split, empty])
    )
    assert of_split.values == {("a", 0, None): 1.0, here: 0.0}
    assert (of_split.helm_mean, empty.values) == (None, {})
