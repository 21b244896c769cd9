"""The table of floors that comes with the package."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from eval_factory.core.results import Floor
from eval_factory.tasks import errata as module
from eval_factory.tasks.errata import floors_table, known_floors, load_errata
from eval_factory.tasks.framework import load_framework

FLOOR = Floor(best="always A", value=0.5, instances=4, answers={"always A": 0.5})


def test_floors_are_known_by_the_hash_as_long_as_the_rules_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {"a" * 64: {"task": "t", "floors": {"m": asdict(FLOOR)}}}
    for newer, known in ((0, {"m": asdict(FLOOR)}), (1, None)):
        table = {"errata_version": load_errata().version + newer, "sets": sets}
        monkeypatch.setattr(module, "floors_table", lambda table=table: table)
        assert (known_floors("a" * 64), known_floors("b" * 64)) == (known, None)


def test_the_table_says_of_public_sets_what_is_known_of_them() -> None:
    found = {sha256: str(one["task"]) for sha256, one in floors_table()["sets"].items()}
    shipped = {
        task: {label: Floor(**floor) for label, floor in (known_floors(sha256) or {}).items()}
        for sha256, task in found.items()
    }
    tasks = {task.name: task for task in load_framework().evaluations}
    main = {task: floors[str(tasks[task].helm.main_metric)] for task, floors in shipped.items()}
    assert round(main["medec"].answers["empty"], 2) == 0.52
    assert (main["pubmed_qa"].best, round(main["pubmed_qa"].value, 2)) == ("always A", 0.55)
    assert (main["head_qa"].best, round(main["head_qa"].value, 3)) == ("longest option", 0.3)
    assert (main["race_based_med"].best, round(main["race_based_med"].value, 2)) == ("majority by question", 0.83)
    assert (main["medcalc_bench"].best, round(main["medcalc_bench"].value, 3)) == ("majority by calculator", 0.123)
    assert main["pubmed_qa"].answers["random"] == pytest.approx(1 / 3)
    assert {name: floor.instances for name, floor in main.items()} == {
        "pubmed_qa": 1000, "medec": 597, "head_qa": 2675, "medcalc_bench": 1047, "race_based_med": 167,
    }  # fmt: skip
    for floors in shipped.values():
        for floor in floors.values():
            assert floor.value == floor.answers[floor.best] == max(floor.answers.values())
