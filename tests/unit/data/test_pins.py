"""Which revisions a run is told to read, and what is said where it read others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.core.helm_run_settings import Pins
from eval_factory.data import run_data
from eval_factory.data.hub import UNKNOWN_REVISION
from eval_factory.data.run_data import notes_on_revisions, pins_of, revisions_of, unlike_pinned
from eval_factory.data.sources import HubDataset, Listing, SourceFile, Sources, TaskSources, load_sources
from eval_factory.helm.names import HUB_DATASETS_FILE
from eval_factory.plan.run_plan import Plan
from unit.builders import plan

PINNED, OTHER = "1" * 40, "2" * 40


@pytest.fixture(autouse=True)
def _invented_table(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = SourceFile(path="a.json", url="{raw}/v1/a.json", upstream="{raw}/main/a.json")
    fixed = SourceFile(path="b.json", url="{raw}/v1/b.json")
    tasks = {
        "medec": TaskSources(scenario="medec", files=(moving, fixed)),
        "head_qa": TaskSources(scenario="head_qa", files=(fixed,)),
        "aci_bench": TaskSources(
            scenario="aci_bench",
            files=(
                SourceFile(path="known.json", url=f"{{raw}}/{PINNED}/known.json", sha256="a" * 64),
                SourceFile(path="any.json", url=f"{{raw}}/{OTHER}/any.json"),
                SourceFile(path="longer.json", url=f"{{raw}}/{PINNED}0/longer.json"),
            ),
        ),
        "medbullets": TaskSources(
            scenario="notes", listing=Listing(url="{raw}", files=f"{{raw}}/{PINNED}/notes/", count=1)
        ),
        "medication_qa": TaskSources(scenario="notes", listing=Listing(url="{raw}", files="{raw}/main/", count=1)),
        "pubmed_qa": TaskSources(
            scenario="pubmed_qa",
            hub=(
                HubDataset(id="org/pinned", config=None, revision=PINNED),
                HubDataset(id="org/script", config=None, revision=PINNED, script=True),
                HubDataset(id="org/newest", config=None, revision=None),
            ),
        ),
    }
    table: Sources = load_sources().model_copy(update={"tasks": tasks, "origins": {"raw": "https://raw.example"}})
    monkeypatch.setattr(run_data, "load_sources", lambda: table)


def task(name: str, tmp_path: Path) -> Plan:
    return plan({"config.type": name, "config.output_dir": str(tmp_path / "out")})


FILES = {"https://raw.example/main/a.json": "https://raw.example/v1/a.json"}
DATASETS = {"org/pinned": PINNED, "org/script": PINNED}


def test_files_of_a_branch_and_data_sets_with_a_revision_are_pinned(tmp_path: Path) -> None:
    assert pins_of(task("medec", tmp_path)) == Pins(FILES, {})
    assert pins_of(task("pubmed_qa", tmp_path)) == Pins({}, DATASETS)


def test_the_pins_of_several_plans_are_one(tmp_path: Path) -> None:
    assert pins_of(task("medec", tmp_path), task("pubmed_qa", tmp_path)) == Pins(FILES, DATASETS)


def test_where_nothing_moves_nothing_is_pinned(tmp_path: Path) -> None:
    assert pins_of(task("head_qa", tmp_path)) is None
    assert pins_of(task("aci_bench", tmp_path)) is None  # the table does not know it
    assert pins_of() is None


def loaded(here: Plan, **revisions: str) -> Plan:
    """A plan of which a run read these data sets."""
    here.rundir.helm.mkdir(parents=True)
    rows = [
        {"id": f"org/{name}", "config": "default", "revision": revision, "folder": "/x"}
        for name, revision in revisions.items()
    ]
    (here.rundir.helm / HUB_DATASETS_FILE).write_text(json.dumps(rows))
    return here


@pytest.mark.parametrize(
    ("read", "told"),
    [(OTHER, f"revision {OTHER}"), (UNKNOWN_REVISION, "an unknown revision")],
    ids=["other", "unknown"],
)
def test_another_revision_than_the_pinned_one_is_said(read: str, told: str, tmp_path: Path) -> None:
    assert notes_on_revisions(loaded(task("pubmed_qa", tmp_path), pinned=read)) == [
        f"org/pinned was read at {told}, not at the pinned {PINNED}: scores may not compare"
    ]


def test_nothing_is_said_of_what_is_pinned_or_has_no_pin(tmp_path: Path) -> None:
    """A data set with a loading script is run at its revision, but its cache does not say at which."""
    here = task("pubmed_qa", tmp_path)
    assert notes_on_revisions(here) == []
    here = loaded(here, pinned=PINNED, script=OTHER, newest=OTHER, unknown=OTHER)
    assert notes_on_revisions(here) == []


def test_the_revisions_of_data_sets_that_were_read(tmp_path: Path) -> None:
    here = loaded(task("pubmed_qa", tmp_path), pinned=OTHER, script=PINNED, newest=UNKNOWN_REVISION)
    assert revisions_of(here, {}) == {"hub:org/pinned": OTHER, "hub:org/script": PINNED}
    assert list(unlike_pinned(here, {})) == [("org/pinned", PINNED, OTHER)]


def test_the_revisions_of_files_that_were_read(tmp_path: Path) -> None:
    here, folder = task("aci_bench", tmp_path), "scenarios/aci_bench"
    files = {f"{folder}/known.json": "a" * 64, f"{folder}/any.json": "b" * 64, f"{folder}/longer.json": "c" * 64}
    assert revisions_of(here, files) == {f"{folder}/known.json": PINNED, f"{folder}/any.json": OTHER}
    assert list(unlike_pinned(here, files)) == []
    edited = {**files, f"{folder}/known.json": "d" * 64, f"{folder}/any.json": "e" * 64}
    assert revisions_of(here, edited) == {f"{folder}/any.json": OTHER}
    assert list(unlike_pinned(here, edited)) == [(f"{folder}/known.json", "a" * 64, "d" * 64)]
    assert revisions_of(here, {}) == {}
    assert list(unlike_pinned(here, {})) == []


def test_the_revision_of_a_folder_whose_files_are_listed(tmp_path: Path) -> None:
    assert revisions_of(task("medbullets", tmp_path), {"scenarios/notes/1.txt": "a" * 64}) == {
        "scenarios/notes": PINNED
    }
    assert revisions_of(task("medbullets", tmp_path), {"scenarios/notes2/1.txt": "a" * 64}) == {}
    assert revisions_of(task("medication_qa", tmp_path), {"scenarios/notes/1.txt": "a" * 64}) == {}
