"""`eval-factory data ...` as it is typed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from facts import says
from invented_bundle import bundle_without_the_hub, folder_to_import
from program_runs import program_each


def each(
    *commands: str, cwd: Path, before: tuple[str, ...] = ()
) -> list[subprocess.CompletedProcess[str]]:
    return program_each(
        *(["data", *command.split()] for command in commands), cwd=cwd, before=before
    )


def test_ls_names_every_task_and_its_source(tmp_path: Path) -> None:
    listed, as_json = each("ls --tsv", "ls --json", cwd=tmp_path)
    lines = {line.split("\t")[0]: line.split("\t") for line in listed.stdout.splitlines()}
    assert lines["pubmed_qa"] == [
        "pubmed_qa",
        "not there",
        "-",
        "data/test_set.json",
        "raw.githubusercontent.com",
    ]
    assert lines["clear"][1] == "your own"
    assert lines["sample_medical_qa"][1] == "needs none"
    records = {record["task"]: record for record in json.loads(as_json.stdout)}
    assert records["medhallu"]["hub"][0]["pinned"] == "515060458a945c633debc6fd5baac7764416b724"


def test_ls_of_a_bundle(bundle: Path, tmp_path: Path) -> None:
    there, none = each(f"ls {bundle}", f"ls {tmp_path}", cwd=tmp_path)
    assert there.returncode == 0, there.stderr
    assert "is not a data bundle" in none.stderr


def test_import_verify_pack_unpack(tmp_path: Path) -> None:
    given = folder_to_import(tmp_path / "given")
    for name in ("scenarios/questions/data/set.json", "hub/org/Some-Calc/README.md"):
        assert (given / name).is_file()
    for done in each(
        "import given --to b", "verify b", "pack b b.tar.gz", "unpack b.tar.gz c", cwd=tmp_path
    ):
        assert done.returncode == 0, done.stderr
    (tmp_path / "c/scenarios/notes/a 1.txt").unlink()
    (verified,) = each("verify c", cwd=tmp_path)
    assert verified.returncode == 3
    assert verified.stdout == "missing: scenarios/notes/a 1.txt\n"
    says(verified.stderr, "c: differs", "1 missing", "0 altered", "0 extra")


MISTAKES = {
    "pull pubmedqa --to b": (2, "there is no task pubmedqa"),
    "pull --to b": (2, "Missing argument"),
    "pull pubmed_qa --to b --origin x": (2, "no origin 'x'"),
    "pull pubmed_qa --to b --origin raw=http://127.0.0.1:9": (3, "127.0.0.1:9 cannot be reached"),
    "verify nowhere": (3, "is not a data bundle"),
    "ls nowhere": (3, "is not a data bundle"),
    "pack nowhere x.tar.gz": (3, "is not a data bundle"),
    "pack nowhere x.zip": (2, "ends with .tar.gz"),
    "unpack x.tar.gz b": (2, "is not a file"),
    "import nowhere --to b": (2, "is not a folder"),
    "import . --to .": (2, "name another folder"),
}


def test_mistakes_have_a_message_and_an_exit_code(tmp_path: Path) -> None:
    for (command, (code, message)), done in zip(
        MISTAKES.items(), each(*MISTAKES, cwd=tmp_path), strict=True
    ):
        assert done.returncode == code, (command, done.stderr)
        assert message in done.stderr, command
        assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle `bundle`, packed as `x.tar.gz`, a file `f`, a folder `d.tar.gz`, all in one folder, which is returned."""
    folder = tmp_path_factory.mktemp("packed")
    assert bundle_without_the_hub(folder) == folder / "bundle"
    (done,) = each("pack bundle x.tar.gz", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "f").write_text("x")
    (folder / "d.tar.gz").mkdir()
    return folder


PATHS_THAT_CANNOT_BE = {
    "pack bundle f/y.tar.gz": (3, "f"),
    "pack bundle d.tar.gz": (2, "d.tar.gz: is a folder"),
    "pack bundle bundle/y.tar.gz": (
        2,
        "bundle/y.tar.gz: an archive cannot be inside the data bundle",
    ),
    "unpack x.tar.gz f/y": (3, "f/y: cannot be written to"),
    "unpack x.tar.gz f": (2, "f: is not a folder"),
    "unpack x.tar.gz bundle": (2, "bundle: already exists"),
    "unpack d.tar.gz y": (2, "d.tar.gz: is not a file"),
    "import given --to f": (2, "f: is not a folder"),
}


def test_a_path_that_cannot_be_is_named(packed: Path) -> None:
    before = sorted(packed.rglob("*"))
    *ended, verified = each(*PATHS_THAT_CANNOT_BE, "verify bundle", cwd=packed)
    for (command, (code, message)), done in zip(PATHS_THAT_CANNOT_BE.items(), ended, strict=True):
        assert done.returncode == code, (command, done.stderr)
        assert message in done.stderr, command
    assert sorted(packed.rglob("*")) == before
    assert verified.returncode == 0


def as_a_user() -> tuple[str, ...]:
    """Return what to put before a command so that modes of files count, for root too."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("needs a user that is not root, or setpriv: root may read and write everything")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.fixture
def closed(packed: Path) -> Iterator[Path]:
    """Beside the bundle `unreadable` and `closed`, which hold what may not be read, and the folder `readonly`."""
    for name in ("unreadable", "closed"):
        shutil.copytree(packed / "bundle", packed / name)
    (packed / "readonly").mkdir(mode=0o500)
    (packed / "unreadable/scenarios/notes/a 1.txt").chmod(0)
    (packed / "closed/scenarios").chmod(0)
    yield packed
    (packed / "closed/scenarios").chmod(0o700)


def test_what_may_not_be_read_or_written_is_named(closed: Path) -> None:
    said = {
        "pack bundle readonly/y.tar.gz": "readonly/.y.tar.gz.part: Permission denied",
        "unpack x.tar.gz readonly/y": "readonly/y: cannot be written to: Permission denied",
        "unpack x.tar.gz readonly": "readonly: cannot be written to: Permission denied",
        "import given --to readonly/y": "readonly/y: cannot be written to: Permission denied",
        "verify unreadable": "a 1.txt: cannot be read: Permission denied",
        "pack unreadable y.tar.gz": "a 1.txt: cannot be read: Permission denied",
        "verify closed": "B - 2.txt: cannot be read: Permission denied",
        "import unreadable --to y": "a 1.txt: Permission denied",
    }
    before = sorted(closed.iterdir())
    for (command, message), done in zip(
        said.items(), each(*said, cwd=closed, before=as_a_user()), strict=True
    ):
        assert done.returncode == 3, (command, done.stderr)
        assert message in done.stderr, command
    assert sorted(closed.iterdir()) == before
    assert list((closed / "readonly").iterdir()) == []


def test_what_a_killed_command_left_is_swept_by_verify_or_stays_where_nobody_may_write(
    bundle: Path,
) -> None:
    left = bundle / ".staging-x"
    for mode, swept in ((0o700, True), (0o500, False)):
        left.mkdir()
        (left / "a").write_text("x")
        (bundle / ".lock").unlink()
        bundle.chmod(mode)
        (verified,) = each("verify bundle", cwd=bundle.parent, before=as_a_user())
        bundle.chmod(0o700)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert left.exists() is not swept
