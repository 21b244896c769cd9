"""How many answers have to be rated."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.report.reader import load_result
from eval_factory.scoring.intervals import design_effect
from eval_factory.scoring.prediction_powered import Expected, half_width_of, needed_for
from eval_factory.workflows import annotate
from eval_factory.workflows.annotate import Known, import_sheets, known_of, plan_of, planned
from rated_folder import ANSWERS, exported, filled_in, folder_to_rate, is_right, people_say

EXPECTED = Expected(1000, 3.0, 1.0, (1.0, 5.0))
KNOWN = Known("jury", EXPECTED, 4.0)


def test_a_table_of_correlations() -> None:
    found = planned(KNOWN, None)
    assert found.half_widths == pytest.approx((0.4, 0.2, 0.12))
    assert [row.correlation for row in found.rows] == [0.0, 0.3, 0.5, 0.7, 0.9]
    for row in found.rows:
        assert row.needed == tuple(needed_for(width, EXPECTED, row.correlation) for width in found.half_widths)
        assert row.least_width == half_width_of(1000, EXPECTED, row.correlation)
    lines = found.lines()
    assert lines[0] == "jury: 1000 answers, mean 3, standard deviation 1 (from the judges' scores)"
    assert lines[2].split("  ")[-1].strip() == "all rated"
    assert len({len(line) for line in lines[2:8]}) == 1
    assert "0.90" in lines[7]


def test_a_width_that_is_wanted_and_a_correlation_that_was_measured() -> None:
    found = planned(replace(KNOWN, correlation=0.6, rated=40), 0.3)
    assert [(row.correlation, row.measured) for row in found.rows][3] == (0.6, True)
    assert found.rows[3].needed == (needed_for(0.3, EXPECTED, 0.6),)
    assert found.rows[3].least_width == half_width_of(1000, EXPECTED, 0.6)
    assert "from 40 rated answers" in found.lines()[0]
    assert "0.60 (measured)" in found.lines()[6]
    against = planned(replace(KNOWN, correlation=-0.6), 0.3)
    assert [(row.correlation, row.measured) for row in against.rows][:2] == [(0.0, False), (0.0, True)]


def test_what_no_number_of_ratings_reaches() -> None:
    found = planned(KNOWN, 0.01)
    assert {row.needed for row in found.rows} == {(None,)}
    assert found.lines()[3].split()[1] == "-"
    one_source = planned(replace(KNOWN, expected=replace(EXPECTED, sharing=1000.0)), 0.3)
    assert one_source.lines()[3].split() == ["0.00", "-", "-"]


def test_a_folder_before_and_after_ratings(tmp_path: Path) -> None:
    folder = folder_to_rate(tmp_path / "out")
    values = [is_right(one) for one in range(ANSWERS)]
    expected = Expected(ANSWERS, statistics.fmean(values), statistics.stdev(values), (0.0, 1.0))
    assert known_of(folder.root) == Known("exact_match", expected, 1.0)
    made = exported(folder, tmp_path / "sheet", raters=1)
    import_sheets(folder.root, [filled_in(made, "1", people_say)])
    found = plan_of(folder.root, 0.2).known
    people = [float(people_say(one, 1) == "yes") for one in made.sample.answers]
    judged = [is_right(int(one.key.id[2:])) for one in made.sample.answers]
    assert found.rated == 40
    assert found.expected == replace(expected, mean=statistics.fmean(people), stddev=statistics.stdev(people))
    assert found.correlation == pytest.approx(statistics.correlation(people, judged))


def test_people_who_say_one_thing_have_no_correlation(tmp_path: Path) -> None:
    folder = folder_to_rate(tmp_path / "out", 20)
    made = exported(folder, tmp_path / "sheet", raters=1)
    few = {one.code for one in made.sample.answers[:9]}
    import_sheets(folder.root, [filled_in(made, "1", lambda one, _: "yes" if one.code in few else "")])
    assert (known_of(folder.root).rated, known_of(folder.root).correlation) == (9, None)
    import_sheets(folder.root, [filled_in(made, "1", lambda _one, _number: "yes")])
    found = known_of(folder.root)
    assert (found.rated, found.correlation) == (20, 0.0)
    assert found.expected.stddev > 0  # the judges': people who agree about twenty answers need not agree about all


def test_what_the_answers_share_and_what_a_rubric_can_take_away(tmp_path: Path) -> None:
    stored = load_result(folder_to_rate(tmp_path / "out").root)
    no_scale = {"exact_match": replace(stored.result.scores["exact_match"], scale=None)}

    def known(**changes: Any) -> Known:
        records = [replace(one, **changes) for one in stored.result.instances]
        result = replace(stored.result, instances=records, scores=no_scale)
        with patch.object(annotate, "load_result", return_value=replace(stored, result=result)):
            return known_of(stored.folder)

    found = known(cluster="one", criteria=({"points": 2.0}, {"points": -1.0}))
    effect = design_effect([is_right(one) for one in range(ANSWERS)], (-0.5, 1.0), ["one"] * ANSWERS)
    assert (found.expected.design_effect, found.expected.sharing) == (effect, ANSWERS)
    assert (found.expected.scale, found.span) == ((-0.5, 1.0), 1.0)
    with pytest.raises(ConfigError, match="exact_match has one value and no scale: nothing can be planned"):
        known(metrics={"exact_match": 1.0})


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan])
def test_a_width_that_is_none(tmp_path: Path, width: float) -> None:
    with pytest.raises(ConfigError, match=r"--half_width .*: give a number above 0"):
        plan_of(tmp_path, width)
