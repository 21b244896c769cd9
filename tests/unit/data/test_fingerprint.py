"""The user's own files are known again by content, and hashed once for each change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from eval_factory.core.rundir import sha256_of
from eval_factory.data import run_data
from eval_factory.data.run_data import hashes_of, look_at_own_data
from eval_factory.plan.run_plan import Plan
from unit.builders import plan


def mimic_rrs(tmp_path: Path) -> Plan:
    (tmp_path / "own").mkdir(exist_ok=True)
    for name in ("findings", "impression"):
        (tmp_path / "own" / f"test.{name}.tok").write_text(f"{name}\n")
    flags = {"config.type": "mimic_rrs", "config.params.extra.data_path": str(tmp_path / "own")}
    return plan({**flags, "config.output_dir": str(tmp_path / "out")})


def test_files_of_the_layout_by_name(tmp_path: Path) -> None:
    here = mimic_rrs(tmp_path)
    (tmp_path / "own" / "notes.txt").write_text("not read by HELM")
    found = look_at_own_data(here, pytest.fail)
    assert found == hashes_of(here.rundir)
    assert list(found) == ["data_path/test.findings.tok", "data_path/test.impression.tok"]
    assert found["data_path/test.findings.tok"] == hashlib.sha256(b"findings\n").hexdigest()
    entry = f"helm:shc_bmt_med:data_path={tmp_path}/own/notes.txt"
    here = plan({"config.type": entry, "config.output_dir": str(tmp_path / "out")})
    assert look_at_own_data(here, pytest.fail) == {"data_path": hashlib.sha256(b"not read by HELM").hexdigest()}


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = mimic_rrs(tmp_path)
    first = look_at_own_data(here, pytest.fail)
    read: list[str] = []

    def noting(path: Path) -> str:
        read.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(run_data, "sha256_of", noting)
    assert look_at_own_data(here, pytest.fail) == first
    assert read == []
    file = tmp_path / "own" / "test.findings.tok"
    before = file.stat()
    file.write_text("fiNdings\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as an edit that hides itself
    second = look_at_own_data(here, pytest.fail)
    assert read == ["test.findings.tok"]
    assert second["data_path/test.findings.tok"] != first["data_path/test.findings.tok"]
    assert second["data_path/test.impression.tok"] == first["data_path/test.impression.tok"]


def test_much_to_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "TAKES_LONG", 10)
    said: list[str] = []
    look_at_own_data(mimic_rrs(tmp_path), said.append)
    assert len(said) == 1
    assert "GB of data_path" in said[0]


def test_other_tasks_have_none(tmp_path: Path) -> None:
    look_at_own_data(mimic_rrs(tmp_path), pytest.fail)
    other = plan({"config.output_dir": str(tmp_path / "out")})
    assert look_at_own_data(other, pytest.fail) == {}
    assert hashes_of(other.rundir) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {}}'])
def test_a_damaged_record_is_made_anew(text: str, tmp_path: Path) -> None:
    here = mimic_rrs(tmp_path)
    first = look_at_own_data(here, pytest.fail)
    here.rundir.own_data.write_text(text)
    assert look_at_own_data(here, pytest.fail) == first
