"""Which revisions a run is told to read, and what is said where it read others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.helm_run_settings import Pins
from eval_factory.data import pins
from eval_factory.data.hub import UNKNOWN_REVISION
from eval_factory.data.pins import (
    differences_from_pinned,
    notes_on_revisions,
    pins_of,
    revisions_of,
)
from eval_factory.data.sources import (
    HubDataset,
    Listing,
    SourceFile,
    Sources,
    TaskSources,
    load_sources,
)
from eval_factory.helm.names import RUN_RECORD_FILE
from eval_factory.plan.run_plan import Plan
from facts import each_says

PINNED = "1" * 40
OTHER = "2" * 40


def _file(name: str, revision: str, **known: Any) -> SourceFile:
    return SourceFile(path=f"{name}.json", url=f"{{raw}}/{revision}/{name}.json", **known)


@pytest.fixture(autouse=True)
def _invented_table(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = _file("b", "v1")
    of_med_dialog = (_file("read", PINNED, when="icliniq"), _file("other", OTHER, when="other"))
    of_aci = (
        _file("known", PINNED, sha256="a" * 64),
        _file("any", OTHER),
        _file("longer", f"{PINNED}0"),
    )
    of_hub = (
        HubDataset(id="org/pinned", config=None, revision=PINNED),
        HubDataset(id="org/newest", config=None, revision=None),
        HubDataset(id="org/script", config=None, revision=PINNED, script=True),
    )
    listings = {"medbullets": f"{{raw}}/{PINNED}/notes/", "medication_qa": "{raw}/main/"}
    tasks = {
        "medec": TaskSources(
            scenario="medec", files=(_file("a", "v1", upstream="{raw}/main/a.json"), fixed)
        ),
        "head_qa": TaskSources(scenario="head_qa", files=(fixed,)),
        "aci_bench": TaskSources(scenario="aci_bench", files=of_aci),
        "med_dialog": TaskSources(
            scenario="med_dialog", files=of_med_dialog, default_part="icliniq"
        ),
        "pubmed_qa": TaskSources(scenario="pubmed_qa", hub=of_hub),
        **{
            name: TaskSources(scenario="notes", listing=Listing(url="{raw}", files=files, count=1))
            for name, files in listings.items()
        },
    }
    table: Sources = load_sources().model_copy(
        update={"tasks": tasks, "origins": {"raw": "https://raw.example"}}
    )
    monkeypatch.setattr(pins, "load_sources", lambda: table)


def task(name: str, tmp_path: Path) -> Plan:
    return plan({"config.type": name, "config.output_dir": str(tmp_path / "out")})


FILES = {"https://raw.example/main/a.json": "https://raw.example/v1/a.json"}
DATASETS = {"org/pinned": PINNED, "org/script": PINNED}


def test_files_of_a_branch_and_data_sets_with_a_revision_are_pinned(tmp_path: Path) -> None:
    medec = task("medec", tmp_path)
    pubmed_qa = task("pubmed_qa", tmp_path)
    assert (pins_of(medec), pins_of(pubmed_qa)) == (Pins(FILES, {}), Pins({}, DATASETS))
    assert pins_of(medec, pubmed_qa) == Pins(FILES, DATASETS)
    for nothing_moves in ("head_qa", "aci_bench"):
        assert pins_of(task(nothing_moves, tmp_path)) is None
    assert pins_of() is None


def loaded(here: Plan, **revisions: str) -> Plan:
    """A plan of which a run read these data sets."""
    here.rundir.helm.mkdir(parents=True)
    usual = {"config": "default", "folder": "/x"}
    rows = [
        {**usual, "id": f"org/{name}", "revision": revision} for name, revision in revisions.items()
    ]
    (here.rundir.helm / RUN_RECORD_FILE).write_text(json.dumps({"datasets": rows}))
    return here


@pytest.mark.parametrize(
    ("read", "told"),
    [(OTHER, f"revision {OTHER}"), (UNKNOWN_REVISION, "an unknown revision")],
    ids=["other", "unknown"],
)
def test_another_revision_than_the_pinned_one_is_said(read: str, told: str, tmp_path: Path) -> None:
    each_says(
        notes_on_revisions(loaded(task("pubmed_qa", tmp_path), pinned=read)),
        ["org/pinned", str(told), f"pinned {PINNED}"],
    )


def test_nothing_is_said_of_what_is_pinned_or_has_no_pin(tmp_path: Path) -> None:
    """A data set with a loading script is run at its revision, but its cache does not say at which."""
    here = task("pubmed_qa", tmp_path)
    assert notes_on_revisions(here) == []
    other = loaded(
        task("pubmed_qa", tmp_path / "x"), pinned=OTHER, script=PINNED, newest=UNKNOWN_REVISION
    )
    assert revisions_of(other, {}) == {"hub:org/pinned": OTHER, "hub:org/script": PINNED}
    assert list(differences_from_pinned(other, {})) == [("org/pinned", PINNED, OTHER)]
    here = loaded(here, pinned=PINNED, script=OTHER, newest=OTHER, unknown=OTHER)
    assert notes_on_revisions(here) == []


def test_the_revisions_of_files_that_were_read(tmp_path: Path) -> None:
    here = task("aci_bench", tmp_path)
    folder = "scenarios/aci_bench"
    files = {
        f"{folder}/known.json": "a" * 64,
        f"{folder}/any.json": "b" * 64,
        f"{folder}/longer.json": "c" * 64,
    }
    assert revisions_of(here, files) == {
        f"{folder}/known.json": PINNED,
        f"{folder}/any.json": OTHER,
    }
    assert list(differences_from_pinned(here, files)) == []
    edited = {**files, f"{folder}/known.json": "d" * 64, f"{folder}/any.json": "e" * 64}
    assert revisions_of(here, edited) == {f"{folder}/any.json": OTHER}
    assert list(differences_from_pinned(here, edited)) == [
        (f"{folder}/known.json", "a" * 64, "d" * 64)
    ]
    assert revisions_of(here, {}) == {}
    assert list(differences_from_pinned(here, {})) == []


def test_the_revisions_of_files_of_other_subsets_in_the_folder(tmp_path: Path) -> None:
    folder = "scenarios/med_dialog"
    files = {f"{folder}/read.json": "a" * 64, f"{folder}/other.json": "b" * 64}
    found = revisions_of(task("med_dialog", tmp_path), files)
    assert found == {f"{folder}/read.json": PINNED, f"{folder}/other.json": OTHER}


@pytest.mark.parametrize(
    ("name", "folder", "known"),
    [
        ("medbullets", "notes", {"scenarios/notes": PINNED}),
        ("medbullets", "notes2", {}),
        ("medication_qa", "notes", {}),
    ],
)
def test_the_revision_of_a_folder_whose_files_are_listed(
    name: str, folder: str, known: Any, tmp_path: Path
) -> None:
    assert revisions_of(task(name, tmp_path), {f"scenarios/{folder}/1.txt": "a" * 64}) == known
