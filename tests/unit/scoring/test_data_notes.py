from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.errors import HelmError
from eval_factory.core.results import Score, Stats
from eval_factory.helm.names import CODE_EXECUTION_FILE, LIMITED_RECORDS_FILE
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.data_notes import NO_ROWS, NOT_CONFINED, notes_on_data, notes_on_labels
from eval_factory.scoring.notes import Importance
from eval_factory.tasks.framework import About
from unit.builders import plan


def here(tmp_path: Path, task: str) -> Plan:
    made = plan({"config.type": task, "config.output_dir": str(tmp_path)})
    made.rundir.helm.mkdir(parents=True, exist_ok=True)
    return made


@pytest.mark.parametrize(("statement", "notes"), [("SELECT 1", [NO_ROWS]), ("INSERT INTO patient VALUES (1)", [])])
def test_a_database_without_rows_is_said(statement: str, notes: list[str], tmp_path: Path) -> None:
    made = here(tmp_path, "ehr_sql")
    assert notes_on_data(made) == []
    assert [note.text for note in notes_on_data(made, [NO_ROWS, "other"])] == [NO_ROWS]  # as it was told before
    database = made.rundir.helm / "scenarios" / "ehr_sql" / "eicu.sqlite"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(f'CREATE TABLE "odd ""name" (a); CREATE TABLE patient (a); {statement};')
    assert [note.text for note in notes_on_data(made, [NO_ROWS])] == notes
    assert all(note.importance == Importance.NO_RESULT for note in notes_on_data(made))


def test_of_a_database_that_cannot_be_read_nothing_is_said(tmp_path: Path) -> None:
    made = here(tmp_path, "ehr_sql")
    database = made.rundir.helm / "scenarios" / "ehr_sql" / "eicu.sqlite"
    database.parent.mkdir(parents=True)
    database.write_text("no database")
    assert notes_on_data(made) == []


def write(made: Plan, **limits: object) -> None:
    (made.rundir.helm / LIMITED_RECORDS_FILE).write_text(json.dumps(limits))


@pytest.mark.parametrize(
    ("limits", "beginnings"),
    [
        ({"records": 9, "left_out": 3}, ["3 of 9 patients"]),
        ({"records": 9, "cut": 2}, ["2 of 9 records are longer"]),
        ({"records": 9, "left_out": 0}, []),
        ({"records": 9, "left_out": 3, "run_spec": "medalign"}, []),  # of an earlier run in the same folder
    ],
)
def test_what_max_length_did(limits: dict[str, object], beginnings: list[str], tmp_path: Path) -> None:
    made = here(tmp_path, "helm:ehrshot:subject=guo_icu,data_path=x")
    assert notes_on_data(made) == []
    write(made, **{"run_spec": "ehrshot", "max_length": 100, **limits})
    notes = notes_on_data(made)
    assert len(notes) == len(beginnings)
    assert all(note.text.startswith(beginning) for note, beginning in zip(notes, beginnings, strict=True))


def test_a_damaged_record_is_helms_failure(tmp_path: Path) -> None:
    made = here(tmp_path, "pubmed_qa")
    write(made, run_spec="ehrshot")
    with pytest.raises(HelmError, match=LIMITED_RECORDS_FILE):
        notes_on_data(made)


def executed(made: Plan, **known: object) -> None:
    (made.rundir.helm / CODE_EXECUTION_FILE).write_text(json.dumps(known))


def humaneval(tmp_path: Path) -> Plan:
    flags = {"config.type": "helm:code:dataset=humaneval", "config.params.extra.allow_code_execution": True}
    made = plan({**flags, "config.output_dir": str(tmp_path)})
    made.rundir.helm.mkdir(parents=True)
    return made


def test_how_answers_were_executed(tmp_path: Path) -> None:
    made = humaneval(tmp_path)
    assert notes_on_data(made) == []
    executed(made, run_specs=["code"], by=["a process", "bubblewrap"], still_can=[])
    assert notes_on_data(made) == [
        (Importance.BACKGROUND, "what the model answered was executed, in a process, in bubblewrap")
    ]
    executed(made, run_specs=["code"], by=["a process"], still_can=["use the network", "start processes"], ended=3)
    assert notes_on_data(made) == [
        (Importance.BACKGROUND, "what the model answered was executed, in a process"),
        (
            Importance.DOUBTFUL,
            "NOT wholly confined on this machine: what was executed could use the network, start processes; install bubblewrap",
        ),
        (Importance.INCOMPLETE, "3 answers ended the process that executed them, and count as wrong"),
    ]
    executed(made, run_specs=["bird_sql"], by=["a process"], still_can=["use the network"])
    assert notes_on_data(made) == []


def test_queries_that_had_less_time_are_counted(tmp_path: Path) -> None:
    made = here(tmp_path, "ehr_sql")
    executed(made, shortened=7)
    (note,) = notes_on_data(made)
    assert note.importance == Importance.INCOMPLETE
    assert note.text.startswith(
        "7 queries of the model were ended after 1 s, because its slow ones had taken 600 s together"
    )


def test_what_is_not_confined_by_us_is_said(tmp_path: Path) -> None:
    flags = {"config.type": "helm:bigcodebench:version=v0.1.3", "config.params.extra.allow_code_execution": True}
    (note,) = notes_on_data(plan({**flags, "config.output_dir": str(tmp_path)}))
    assert note == (Importance.DOUBTFUL, NOT_CONFINED)


def test_an_interval_that_reaches_the_ceiling_of_wrong_labels_is_noted() -> None:
    """Wrong labels that cost 16 to 23 points let a model that is right score 0.77 to 0.84."""
    about = About(
        tags=(), access="public", source="x", instances=None, label_noise=(0.16, 0.23), label_audit="by an audit"
    )

    def scores(**highs: float | None) -> dict[str, Score]:
        return {
            name.replace("_c", ".corrected"): Score(0.7, Stats(9, 0.7, None, None, 0.6, high, None), "m", "test", None)
            for name, high in highs.items()
        }

    (note,) = notes_on_labels("m", scores(m=0.77, m_c=0.76, other=1.0), about)
    assert note.text.startswith("m: the 95 % interval, up to 0.7700, reaches 0.77 .. 0.84, the most that wrong labels")
    assert (note.importance, note.text.endswith("(by an audit)")) == (Importance.DOUBTFUL, True)
    assert [note.text[:12] for note in notes_on_labels("m", scores(m_c=0.9), about)] == ["m.corrected:"]
    assert list(notes_on_labels("m", scores(m=0.7699, m_c=None), about)) == []
    assert list(notes_on_labels("m", scores(m=1.0), replace(about, label_noise=None))) == []
