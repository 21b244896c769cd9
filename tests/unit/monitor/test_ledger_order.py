"""Lines of a ledger whose hashes were made again: what each says has to fit the others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.monitor.ledger import Ledger
from eval_factory.monitor.ledger_order import FIELDS, order_problems
from eval_factory.monitor.verification import _collected, _is_same_value, verify_panel

Lines = list[dict[str, Any]]
RUN = {"task": "q", "folder": "baseline/1/1/model/q", "sha256": "ab" * 32}
NO_GROUP: dict[str, Any] = {"field": None, "value": None}
KINDS = ["baseline", "begun", "look", "begun", "not_made", "note", "begun", "look", "change"]


def sound() -> Lines:
    lines: Lines = []
    look = 0
    for number, kind in enumerate(KINDS, start=1):
        line: dict[str, Any] = dict.fromkeys(FIELDS[kind], "x")
        if kind == "begun":
            look += 1
        line |= {"number": number, "kind": kind, "epoch": 1, "panel": "ab"}
        line["at"] = f"2025-01-{number:02}T06:00:00Z"
        if "look" in line:
            line["look"] = look
        if kind == "look":
            line["folder"] = f"looks/{look:04}"
        if kind == "look":
            line |= {"runs": [dict(RUN)], "evidence": 1}
        lines.append(line)
    target = {"name": "model", "model": "m/one"}
    lines[0] |= {
        "seed": 0,
        "repeats": [{"folder": "baseline/1/1", "values": "ab" * 32, "runs": [dict(RUN)]}],
        "fixed": {"repeats": 1, "limits": {"q": [None, 0.02], "q, topic=heart": ["f1", 0.1]}},
        "limits": [
            {"name": "q", "task": "q", "metric": "f1", "max_drop": 0.02} | NO_GROUP,
            {"name": "q, topic=heart", "task": "q", "metric": "f1", "max_drop": 0.1}
            | {"field": "topic", "value": "heart"},
        ],
        "target": target,
        "policy_sha256": "cd" * 32,
    }
    lines[-1] |= {"change": 1, "folder": "changes/0001", "outcome": "fail", "runs": [dict(RUN)]}
    lines[-1] |= {"old": dict(target), "policy_sha256": "cd" * 32}
    lines[-1]["new"] = {"name": "model", "model": "m/two", "fixed": {}}
    return lines


def problems(lines: Lines) -> list[str]:
    for number, line in enumerate(lines, start=1):
        line["number"] = number
    return list(order_problems(lines))


def test_a_sound_ledger() -> None:
    assert problems(sound()) == []


def test_a_line_may_name_the_rule_that_read_its_answers() -> None:
    lines = sound()
    lines[0] |= {"reader": 1, "statistics": 2}
    lines[2] |= {"reader": 2, "baseline_again": []}
    assert problems(lines) == []


def as_note(lines: Lines) -> None:
    lines[2]["kind"] = "note"


def as_true_note(lines: Lines) -> None:
    lines[2] = {**lines[5]}


def without_begun(lines: Lines) -> None:
    del lines[1]


def without_look(lines: Lines) -> None:
    del lines[2]


def without_both(lines: Lines) -> None:
    del lines[1:3]


def without_baseline(lines: Lines) -> None:
    del lines[0]


def setting(number: int, **fields: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        lines[number] |= fields

    return change


def within(number: int, *path: str | int, **fields: Any) -> Callable[[Lines], None]:
    """Sets fields of a part of a line."""

    def change(lines: Lines) -> None:
        part: Any = lines[number]
        for key in path:
            part = part[key]
        part |= fields

    return change


@pytest.mark.parametrize(
    "change",
    [
        as_note,
        as_true_note,
        without_begun,
        without_look,
        without_both,
        without_baseline,
        setting(1, look=7),
        setting(2, look=2),
        setting(2, folder="looks/0009"),
        setting(4, kind="unknown"),
        setting(4, kind=["look"]),
        setting(5, more=1),
        setting(3, epoch=2),
        setting(3, panel="cd"),
        setting(0, epoch=3),
        within(0, "fixed", repeats=2),
        within(0, "repeats", 0, folder="elsewhere"),
        within(0, "repeats", 0, more=1),
        within(0, "repeats", 0, "runs", 0, more=1),
        within(2, "runs", 0, more=1),
        within(0, "target", more=1),
        within(8, "new", more=1),
        within(0, "limits", 0, field="topic"),
        within(0, "limits", 1, value="lung"),
        within(0, "limits", 0, task="another"),
        within(0, "limits", 0, max_drop=0.3),
        within(0, "limits", 1, metric="f2"),
        within(0, "fixed", "limits", another=[None, 0.1]),
        setting(0, why=""),
        setting(0, why=None),
        setting(4, reason=" "),
        setting(5, text=["x"]),
        setting(0, policy_sha256="x"),
        setting(8, policy_sha256="ef" * 32),
        setting(8, outcome="good"),
        setting(8, old={"name": "model", "model": "m/three"}),
        setting(0, figures_version=99),
        setting(0, figures_version="2"),
        setting(0, statistics=-3),
        setting(2, reader=99),
        setting(2, reader=True),
        setting(2, look=True),
        setting(0, seed="0"),
        setting(2, evidence=1.0),
        setting(2, epoch=True),
        setting(7, at="2025-01-08t06:00:00z"),
        setting(8, change=2),
        setting(8, folder="changes/0002"),
        setting(7, at="2020-01-01T00:00:00Z"),
        setting(7, at="9020-01-01T00:00:00Z"),
        setting(7, at="yesterday"),
    ],
)
def test_each_change_is_found(change: Callable[[Lines], None]) -> None:
    lines = copy.deepcopy(sound())
    change(lines)
    assert problems(lines)


@pytest.mark.parametrize("changes", [{"target": "x"}, {"repeats": "x"}, {"runs": 5}])
def test_a_part_of_another_kind_is_a_finding(changes: dict[str, Any]) -> None:
    lines = copy.deepcopy(sound())
    setting(0, **changes)(lines)
    assert _collected("ledger.jsonl", order_problems(lines))


def test_a_truth_value_is_no_number() -> None:
    assert not _is_same_value(True, 1)
    assert not _is_same_value(0.0, False)
    assert _is_same_value({"a": [True, 1, None]}, {"a": [True, 1, None]})


def test_infinity_is_no_number(tmp_path: Path) -> None:
    assert not _is_same_value(float("inf"), 0.5)
    assert not _is_same_value(0.5, float("nan"))
    for number in ("Infinity", "NaN", "1e999"):
        ledger = Ledger(tmp_path)
        ledger.file.write_text(f'{{"number": 1, "e": {number}, "previous": "{"0" * 64}"}}\n')
        assert any("JSON" in problem for problem in ledger.read().problems)


def test_a_key_stands_once(tmp_path: Path) -> None:
    """Of two alarms some readers take the first, this program the last."""
    ledger = Ledger(tmp_path)
    ledger.file.write_text(f'{{"number": 1, "e": {{"a": 1, "a": 2}}, "previous": "{"0" * 64}"}}\n')
    assert any("JSON" in problem for problem in ledger.read().problems)


@pytest.mark.parametrize("folder", ["looks/0001", "baseline/1/1"])
def test_folders_without_any_line(folder: str, tmp_path: Path) -> None:
    assert verify_panel(tmp_path) == []
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "values.json").write_text("{}")
    (finding,) = verify_panel(tmp_path)
    assert folder in finding
