"""Data sets that other processes read or prepare."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory.data.bundle_changes import open_staging
from eval_factory.data.hub import prepare_cache
from eval_factory.data.importing import import_folder
from eval_factory.data.sources import HubDataset
from invented_bundle import folder_to_import, scripted, sources


def no_line(_line: str) -> None:
    pass


def test_an_imported_data_set_is_loaded_as_the_hubs(tmp_path: Path) -> None:
    root = tmp_path / "bundle"
    import_folder(folder_to_import(tmp_path / "given"), root, sources(), no_line)
    script = "import datasets; print(datasets.load_dataset('org/Some-Calc', revision='x')['test']['answer'])"
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(root / "hf"), "PATH": os.environ["PATH"]}
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.stdout == "['so', 'she']\n", finished.stderr


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (bwrap)")
def test_a_script_that_is_pulled_sees_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is run at a known revision only, and writes into no other folder."""
    monkeypatch.setenv("MY_SECRET_KEY", "sk-canary-0123456789abcdef")
    repository = tmp_path / "repository" / "some_calc"
    trace = tmp_path / "trace"
    repository.mkdir(parents=True)
    (repository / "some_calc.py").write_text(scripted(trace))
    known = HubDataset(id="org/some_calc", config=None, revision="ab" * 20, script=True)
    with open_staging(tmp_path / "bundle", sources()) as stage:
        prepare_cache(repository, known, revision=known.revision, source="hub:x", staging=stage)
        (entry,) = stage.hub
        (table,) = (stage.folder / entry.folder).glob("*.arrow")
        assert b"no key" in table.read_bytes()
    assert not trace.exists()
