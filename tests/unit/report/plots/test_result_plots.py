"""Which plots a result has, and what is on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.results import (
    Floor,
    InstanceRecord,
    JudgeCounts,
    JuryReport,
    Score,
    Stats,
    TaskResult,
)
from eval_factory.report.drawing import Drawing
from eval_factory.report.result_plots import InstanceNumbers, plots_of
from facts import says
from stored_results import instance, result


def score(value: float, count: int = 40, **stats: Any) -> Score:
    return Score(
        value,
        Stats(
            count,
            value,
            stddev=None,
            stderr=None,
            ci_low=value - 0.1,
            ci_high=value + 0.1,
            ci_method="wilson",
            **stats,
        ),
        "exact_match",
        "test",
        higher_is_better=True,
        scale=(0, 1),
        unit="share",
    )


RECORDS = [instance(f"q{number}", value) for number, value in enumerate([1.0, 0.0, 1.0, None])]


@pytest.fixture
def made() -> TaskResult:
    return replace(result(RECORDS), scores={"exact_match": score(0.5)})


def with_validity(made: TaskResult, **changes: Any) -> TaskResult:
    return replace(made, validity=replace(made.validity, **changes))


def texts(drawing: Drawing) -> list[str]:
    return [shape.text for shape in drawing.shapes if shape.tag == "text"]


def test_a_plain_result_has_its_plots_in_order(made: TaskResult) -> None:
    plots = plots_of(made)
    assert list(plots) == ["score", "distribution", "latency", "validity"]
    assert plots["score"].title == "pubmed_qa: exact_match of org/model"
    says(
        plots["score"].description,
        "exact_match (higher is better)",
        "0.500",
        "0.400 to 0.600",
        "95 %",
    )
    says(plots["distribution"].description, "3 values", "0: 1; 1: 2")
    says(" ".join(texts(plots["distribution"])), "exact_match of", "3 instances")
    says(plots["latency"].description, "4 values", "0.1: 4", "median: 0.100", "faster than: 0.100")


def test_which_way_is_better_is_said(made: TaskResult) -> None:
    def told(better: bool | None) -> str:
        changed = replace(
            made, scores={"exact_match": replace(score(0.5), higher_is_better=better)}
        )
        return plots_of(changed)["score"].description.partition(":")[0]

    assert [told(better) for better in (True, False, None)] == [
        "exact_match (higher is better)",
        "exact_match (lower is better)",
        "exact_match",
    ]


def test_the_score_stands_beside_trivial_answers_and_bounds(made: TaskResult) -> None:
    floor = Floor("always A", 0.45, 4, {"always A": 0.45, "random": 0.25})
    plots = plots_of(
        with_validity(made, floors={"exact_match": floor}, bounds={"exact_match": (0.375, 0.625)})
    )
    says(
        plots["score"].description,
        "(always A): 0.450",
        "chance",
        "at random): 0.250",
        "0.375 ... 0.625",
    )
    random = replace(floor, best="random", value=0.5)
    alone = plots_of(
        with_validity(made, floors={"exact_match": random}, bounds={"exact_match": (0.5, 0.5)})
    )
    says(alone["score"].description, "(random): 0.500")
    assert "chance" not in alone["score"].description
    assert not any(shape.tag == "rect" for shape in alone["score"].shapes)


def test_a_corrected_score_has_a_plot_of_its_own(made: TaskResult) -> None:
    both = replace(made, scores={**made.scores, "exact_match.corrected": score(0.75)})
    assert list(plots_of(both))[:2] == ["score", "score-corrected"]
    assert "0.750" in plots_of(both)["score-corrected"].description
    none = plots_of(replace(made, scores={}))
    assert list(none) == ["latency", "validity"]


def groups(**by_value: Score) -> dict[str, dict[str, Score]]:
    return {value: {"exact_match": one} for value, one in by_value.items()}


def test_groups_are_plotted_by_field(made: TaskResult) -> None:
    found = {
        "error type": groups(a=score(0.25, 12, p_holm=0.01), b=score(0.75, 20, p_holm=0.5)),
        "中": groups(e=score(0.5, 10)),
        "error/type": groups(c=score(0.5, 40), d=score(0.5, 12, p_holm=0.05)),
        "other": {"x": {"f1": score(0.5)}},
    }
    plots = plots_of(replace(made, groups=found))
    assert list(plots)[1:4] == ["groups-error-type", "groups-2", "groups-error-type-3"]
    first = plots["groups-error-type"]
    says(first.title, "pubmed_qa: exact_match", "by error type")
    says(
        first.description,
        "all instances: 0.500",
        "b (20 instances): 0.750",
        "0.650 to 0.850",
        "a (12 instances): 0.250",
        "0.150 to 0.350",
        "diamond",
        "p < 0.05, Holm",
        "8 instances",
        "too small",
    )
    assert sum(shape.tag == "polygon" for shape in first.shapes) == 1
    second = plots["groups-error-type-3"]  # more instances in groups than in all: one may be in two
    assert "too small" not in second.description
    assert "diamond" not in second.description
    without = plots_of(replace(made, groups={"error type": found["error type"]}, scores={}))
    assert without["groups-error-type"].description.startswith("b (20 instances)")


def test_a_jury_has_its_means_and_each_judges_ratings(made: TaskResult) -> None:
    jury = JuryReport({"gpt": 4.25, "llama": 3.0}, None, {}, {})
    rated = [
        instance("q0", 1.0, judges={"gpt": 4.5, "llama": 3.0}),
        instance("q1", 0.0, judges={"gpt": 4.0}),
    ]
    changed = with_validity(made, jury=jury, judges={"gpt": JudgeCounts(4, 3, 1)})
    rating = replace(score(3.5), scale=(1, 5))
    plots = plots_of(replace(changed, instances=rated, scores={"exact_match": rating}))
    assert list(plots) == [
        "score",
        "distribution",
        "judges",
        "ratings-gpt",
        "ratings-llama",
        "latency",
        "validity",
    ]
    says(plots["judges"].description, "gpt: 4.25 (3 of", "of 4", "llama: 3.00")
    assert [text for text in texts(plots["judges"]) if text.isdigit()] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    says(plots["ratings-gpt"].description, "2 values", "4: 1; 4.5: 1")
    says(" ".join(texts(plots["ratings-gpt"])), "rating by gpt", "2 answers")
    late = [
        instance("q0", 1.0, judges={"llama": 3.0, "own": 2.0}),
        instance("q1", 0.0, judges={"gpt": 4.0}),
    ]
    both = with_validity(changed, judges=dict.fromkeys(("gpt", "llama"), JudgeCounts(4, 3, 1)))
    assert list(plots_of(replace(both, instances=late)))[3:6] == [
        "ratings-gpt",
        "ratings-llama",
        "ratings-own",
    ]
    assert "judges" not in plots_of(with_validity(made, jury=JuryReport({}, None, {}, {})))


def test_validity_shows_the_trouble_that_there_is(made: TaskResult) -> None:
    counts = replace(
        made.validity.instances, requested=40, scored=30, failed=0, empty=2, unjudged=3
    )
    drawing = plots_of(with_validity(made, instances=counts))["validity"]
    says(
        drawing.description,
        "scored: 30 of 40",
        "failed: 0 of 40",
        "empty: 2 of 40",
        "unjudged: 3 of 40",
    )
    assert drawing.description.count("40") == 4
    scored, failed, empty, _ = [shape for shape in drawing.shapes if shape.tag == "rect"]
    assert (scored.colour, failed.colour, empty.colour) == ("data", "grid", "grid")
    assert scored.attributes["width"] == 225  # 300 pixels are the 40 that were asked
    more = {
        "truncated": 1,
        "filtered": 2,
        "unparsed": 3,
        "refused": 4,
        "thinking_unfinished": 5,
        "prompt_truncated": 6,
    }
    all_kinds = replace(counts, **more)
    kinds = plots_of(with_validity(made, instances=all_kinds))["validity"].description
    says(
        kinds,
        "scored: 30 of 40",
        "failed: 0 of 40",
        "empty: 2 of 40",
        "cut off: 1 of",
        "filtered: 2 of 40",
        "unjudged: 3 of 40",
        "asked for: 3 of",
        "refused: 4 of 40",
        "thinking unfinished: 5 of",
        "prompt cut: 6 of",
    )
    assert kinds.count("40") == 10
    nothing = replace(counts, requested=0, scored=0, empty=0, unjudged=0)
    none = plots_of(with_validity(made, instances=nothing))["validity"].description
    says(none, "scored: 0 of 0", "failed: 0 of 0")
    assert none.count(" of ") == 2


def numbers_of(records: Iterable[InstanceRecord], main: Score | None) -> InstanceNumbers:
    found = InstanceNumbers()
    for record in records:
        found.add(record, main)
    return found


def test_the_distribution_is_of_the_instances_that_the_score_is_of() -> None:
    main = score(0.5)
    others = [
        instance("a", 1.0, split="valid"),
        instance("b", 1.0, perturbation="typos"),
        instance("c", 1.0, metric="f1"),
        instance("d", 1.0, error="HTTP 500"),
        instance("e", 0.25, latency_s=None),
    ]
    found = numbers_of(others, main)
    assert found.values == [0.25]
    assert found.latencies == [0.1] * 4
    assert numbers_of(others, replace(main, perturbation="typos")).values == [1.0]
    assert numbers_of([instance("a", 1.0, split="")], replace(main, split=None)).values == [1.0]
    assert numbers_of(others, None).values == []


def test_latencies_have_their_median_and_95th_percentile(made: TaskResult) -> None:
    slow = [instance(f"q{number}", 1.0, latency_s=float(number)) for number in range(101)]
    drawing = plots_of(replace(made, instances=slow))["latency"]
    says(drawing.description, "median: 50.0", "faster than: 95.0")
    assert (
        len(
            [
                shape
                for shape in drawing.shapes
                if shape.tag == "line" and "stroke-dasharray" in shape.attributes
            ]
        )
        == 2
    )
    one = plots_of(replace(made, instances=slow[1:2]))["latency"]
    says(one.description, "1 values", "1: 1", "median: 1.000")


def test_each_field_has_a_plot_of_its_own(made: TaskResult) -> None:
    fields = ("a-3", "a", "A")
    by_field = {name: {"b": {"exact_match": score(0.5)}} for name in fields}
    plots = plots_of(replace(made, groups=by_field))
    names = [name for name in plots if name.startswith("groups-")]
    assert names == ["groups-a-3", "groups-a", "groups-A-3-3"]
