"""What is said of the user's own files that a run reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import evaluation
from eval_factory.config.own_data import own_data_faults, own_data_of
from eval_factory.tasks.framework import FileLayout, HelmEntry, ScenarioParameter

EXTRA = "config.params.extra"


def test_what_is_wrong_with_the_data_is_followed_by_what_they_have_to_be(tmp_path: Path) -> None:
    here = evaluation(
        {"config.type": "shc_bmt_med", f"{EXTRA}.data_path": str(tmp_path / "none.csv")}
    )
    (first, *others) = own_data_faults(here)
    assert first.startswith(f"config.params.extra.data_path: {tmp_path / 'none.csv'}")
    after = others[others.index("shc_bmt_med needs:") + 1 :]
    assert after
    assert all(line.startswith("  ") for line in after)


def test_nothing_is_wrong_where_nothing_is_known_of_the_form(tmp_path: Path) -> None:
    rules = {"data_path": ScenarioParameter(path=True, layout=(FileLayout(),))}
    helm = HelmEntry(run_spec="r", scenario="s", main_metric=None, parameters=rules)
    here = evaluation().with_extra({"data_path": str(tmp_path / "none")})
    here = replace(here, task=replace(here.task, helm=helm))
    assert own_data_of(here) is not None
    assert own_data_faults(here) == []
