"""`eval-factory data ...` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from unit.data.invented import folder_to_import


def eval_factory(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eval_factory", "data", *arguments],
        cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_ls_names_every_task_and_its_source(tmp_path: Path) -> None:
    listed = eval_factory("ls", cwd=tmp_path)
    lines = {line.split("\t")[0]: line.split("\t") for line in listed.stdout.splitlines()}
    assert lines["pubmed_qa"] == ["pubmed_qa", "not there", "-", "data/test_set.json", "raw.githubusercontent.com"]
    assert lines["clear"][1] == "your own"
    assert lines["sample_medical_qa"][1] == "needs none"
    records = {record["task"]: record for record in json.loads(eval_factory("ls", "--json", cwd=tmp_path).stdout)}
    assert records["medhallu"]["hub"][0]["pinned"] == "515060458a945c633debc6fd5baac7764416b724"


def test_import_verify_pack_unpack(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    for name in ("scenarios/questions/data/set.json", "hub/org/Some-Calc/README.md"):
        assert (given / name).is_file()
    done = eval_factory("import", "given", "--to", "b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert eval_factory("verify", "b", cwd=tmp_path).returncode == 0
    assert eval_factory("pack", "b", "b.tar.gz", cwd=tmp_path).returncode == 0
    assert eval_factory("unpack", "b.tar.gz", "c", cwd=tmp_path).returncode == 0
    (tmp_path / "c/scenarios/notes/a 1.txt").unlink()
    verified = eval_factory("verify", "c", cwd=tmp_path)
    assert verified.returncode == 3
    assert verified.stdout == "missing: scenarios/notes/a 1.txt\n"
    assert verified.stderr == "eval-factory: c: differs from its manifest: 1 missing, 0 altered, 0 extra\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pull", "pubmedqa", "--to", "b"], 2, "there is no task pubmedqa"),
        (["pull", "--to", "b"], 2, "Missing argument"),
        (["pull", "pubmed_qa", "--to", "b", "--origin", "x"], 2, "no origin 'x'"),
        (["pull", "pubmed_qa", "--to", "b", "--origin", "raw=http://127.0.0.1:9"], 3, "127.0.0.1:9 cannot be reached"),
        (["verify", "nowhere"], 3, "is no data bundle"),
        (["ls", "--data_dir", "nowhere"], 3, "is no data bundle"),
        (["pack", "nowhere", "x.tar.gz"], 3, "is no data bundle"),
        (["pack", "nowhere", "x.zip"], 2, "ends with .tar.gz"),
        (["unpack", "x.tar.gz", "b"], 2, "is no file"),
        (["import", "nowhere", "--to", "b"], 2, "is no folder"),
        (["import", ".", "--to", "."], 2, "name another one"),
    ],
)
def test_mistakes_have_a_message_and_an_exit_code(
    arguments: list[str], code: int, message: str, tmp_path: Path
) -> None:
    finished = eval_factory(*arguments, cwd=tmp_path)
    assert finished.returncode == code, finished.stderr
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert list(tmp_path.iterdir()) == []
