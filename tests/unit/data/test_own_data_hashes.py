"""Own files are known by content, and hashed once a change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from builders import plan
from eval_factory.core.rundir import sha256_of
from eval_factory.data import own_data_hashes
from eval_factory.data.own_data_hashes import hash_own_data, own_data_hashes_of
from eval_factory.plan.run_plan import Plan


def mimic_rrs(tmp_path: Path) -> Plan:
    (tmp_path / "own").mkdir(exist_ok=True)
    for name in ("findings", "impression"):
        (tmp_path / "own" / f"test.{name}.tok").write_text(f"{name}\n")
    flags = {"config.type": "mimic_rrs", "config.params.extra.data_path": str(tmp_path / "own")}
    return plan({**flags, "config.output_dir": str(tmp_path / "out")})


def test_files_of_the_layout_by_name(tmp_path: Path) -> None:
    here = mimic_rrs(tmp_path)
    (tmp_path / "own" / "notes.txt").write_text("not read by HELM")
    found = hash_own_data(here, pytest.fail)
    assert found == own_data_hashes_of(here.rundir)
    assert list(found) == ["data_path/test.findings.tok", "data_path/test.impression.tok"]
    assert found["data_path/test.findings.tok"] == hashlib.sha256(b"findings\n").hexdigest()
    entry = f"helm:shc_bmt_med:data_path={tmp_path}/own/notes.txt"
    here = plan({"config.type": entry, "config.output_dir": str(tmp_path / "out")})
    assert hash_own_data(here, pytest.fail) == {
        "data_path": hashlib.sha256(b"not read by HELM").hexdigest()
    }


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = mimic_rrs(tmp_path)
    first = hash_own_data(here, pytest.fail)
    read: list[str] = []

    def noting(path: Path) -> str:
        read.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(own_data_hashes, "sha256_of", noting)
    assert hash_own_data(here, pytest.fail) == first
    assert read == []
    file = tmp_path / "own" / "test.findings.tok"
    before = file.stat()
    file.write_text("fiNdings\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as an edit that hides itself
    second = hash_own_data(here, pytest.fail)
    assert read == ["test.findings.tok"]
    assert [name for name in first if second[name] != first[name]] == [
        "data_path/test.findings.tok"
    ]


def test_much_to_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_data_hashes, "SLOW_SIZE", 10)
    said: list[str] = []
    hash_own_data(mimic_rrs(tmp_path), said.append)
    assert len(said) == 1
    assert "GB of data_path" in said[0]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {}}'])
def test_a_damaged_record_is_made_anew_and_other_tasks_have_none(text: str, tmp_path: Path) -> None:
    here = mimic_rrs(tmp_path)
    first = hash_own_data(here, pytest.fail)
    here.rundir.own_data.write_text(text)
    assert hash_own_data(here, pytest.fail) == first
    other = plan({"config.output_dir": str(tmp_path / "out")})
    assert hash_own_data(other, pytest.fail) == own_data_hashes_of(other.rundir) == {}
