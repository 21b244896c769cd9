"""`eval-factory data ...` as it is typed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory.data.sources import load_sources
from invented_bundle import Origin, folder_to_import, listing


def eval_factory(*arguments: str, cwd: Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", "eval_factory", "data", *arguments],
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


def test_ls_takes_the_bundle_as_its_sisters_do(bundle: Path, tmp_path: Path) -> None:
    by_place = eval_factory("ls", str(bundle), cwd=tmp_path)
    assert by_place.returncode == 0, by_place.stderr
    assert by_place.stdout == eval_factory("ls", "--data_dir", str(bundle), cwd=tmp_path).stdout
    assert "is no data bundle" in eval_factory("ls", str(tmp_path), cwd=tmp_path).stderr
    both = eval_factory("ls", str(bundle), "--data_dir", "other", cwd=tmp_path)
    assert both.returncode == 2
    assert "are two bundles; name one of them" in both.stderr


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


@pytest.fixture
def packed(bundle: Path, tmp_path: Path) -> Path:
    """A bundle `bundle`, packed as `x.tar.gz`, a file `f`, a folder `d.tar.gz`, all in one folder, which is returned."""
    assert eval_factory("pack", "bundle", "x.tar.gz", cwd=tmp_path).returncode == 0
    (tmp_path / "f").write_text("x")
    (tmp_path / "d.tar.gz").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pack", "bundle", "f/y.tar.gz"], 3, "f"),
        (["pack", "bundle", "d.tar.gz"], 2, "d.tar.gz: is a folder"),
        (["pack", "bundle", "bundle/y.tar.gz"], 2, "bundle/y.tar.gz: an archive cannot be inside the data bundle"),
        (["unpack", "x.tar.gz", "f/y"], 3, "f/y: cannot be written to"),
        (["unpack", "x.tar.gz", "f"], 2, "f: is no folder"),
        (["unpack", "x.tar.gz", "bundle"], 2, "bundle: is there already"),
        (["unpack", "d.tar.gz", "y"], 2, "d.tar.gz: is no file"),
        (["import", "given", "--to", "f"], 2, "f: is no folder"),
    ],
)
def test_a_path_that_cannot_be_is_named(arguments: list[str], code: int, message: str, packed: Path) -> None:
    before = sorted(packed.rglob("*"))
    finished = eval_factory(*arguments, cwd=packed)
    assert finished.returncode == code, finished.stderr
    assert message in finished.stderr
    assert sorted(packed.rglob("*")) == before
    assert eval_factory("verify", "bundle", cwd=packed).returncode == 0


def as_a_user() -> tuple[str, ...]:
    """What to put before a command so that modes of files count, for root too."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("needs a user that is not root, or setpriv: root may read and write everything")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack", "bundle", "readonly/y.tar.gz"], "readonly/.y.tar.gz.part: Permission denied"),
        (["unpack", "x.tar.gz", "readonly/y"], "readonly/y: cannot be written to: Permission denied"),
        (["unpack", "x.tar.gz", "readonly"], "readonly: cannot be written to: Permission denied"),
        (["import", "given", "--to", "readonly/y"], "readonly/y: cannot be written to: Permission denied"),
        (["verify", "unreadable"], "a 1.txt: cannot be read: Permission denied"),
        (["pack", "unreadable", "y.tar.gz"], "a 1.txt: cannot be read: Permission denied"),
        (["verify", "closed"], "B - 2.txt: cannot be read: Permission denied"),
        (["import", "unreadable", "--to", "y"], "a 1.txt: Permission denied"),
    ],
)
def test_what_may_not_be_read_or_written_is_named(arguments: list[str], message: str, packed: Path) -> None:
    for name in ("unreadable", "closed"):
        shutil.copytree(packed / "bundle", packed / name)
    (packed / "readonly").mkdir(mode=0o500)
    (packed / "unreadable/scenarios/notes/a 1.txt").chmod(0)
    (packed / "closed/scenarios").chmod(0)
    try:
        before = sorted(packed.iterdir())
        finished = eval_factory(*arguments, cwd=packed, before=as_a_user())
        assert finished.returncode == 3, finished.stderr
        assert message in finished.stderr
        assert sorted(packed.iterdir()) == before
        assert list((packed / "readonly").iterdir()) == []
    finally:
        (packed / "closed/scenarios").chmod(0o700)


def test_what_a_killed_command_left_is_swept_by_verify(packed: Path) -> None:
    (packed / "bundle/.staging-x").mkdir()
    (packed / "bundle/.staging-x/a").write_text("x")
    verified = eval_factory("verify", "bundle", cwd=packed)
    assert verified.returncode == 0, verified.stdout
    assert not (packed / "bundle/.staging-x").exists()


def test_a_bundle_that_may_not_be_written_is_verified_all_the_same(packed: Path) -> None:
    (packed / "bundle/.staging-x").mkdir()
    (packed / "bundle/.staging-x/a").write_text("x")
    (packed / "bundle/.lock").unlink()
    (packed / "bundle").chmod(0o500)
    verified = eval_factory("verify", "bundle", cwd=packed, before=as_a_user())
    (packed / "bundle").chmod(0o700)
    assert verified.returncode == 0, verified.stdout + verified.stderr


PORTAL = b"<html>Please log in</html>"


def test_a_login_page_is_pulled_as_nothing(tmp_path: Path, origin: Origin) -> None:
    """A captive portal answers every request with status 200 and its own page."""
    origin.everything = (200, PORTAL, {"Content-Type": "text/html"})
    tasks = ("race_based_med", "med_dialog", "mtsamples_procedures", "ehr_sql", "medhelm_med_mcqa", "leaderboards")
    origins = [f"--origin={name}={origin.url}" for name in load_sources().origins]
    pulled = eval_factory("pull", *tasks, "--to", "b", *origins, cwd=tmp_path)
    assert pulled.returncode == 3, pulled.stderr
    lines = [line.removeprefix("eval-factory: ") for line in pulled.stderr.splitlines()]
    assert [line.partition(":")[0] for line in lines] == list(tasks)
    assert all("a web page came, not the file" in line or "the answer is no JSON" in line for line in lines)
    assert list(tmp_path.iterdir()) == []


def test_texts_are_compared_with_what_github_lists(tmp_path: Path, origin: Origin) -> None:
    """The list is honest, the texts are a portal's."""
    wanted = load_sources().tasks["mtsamples_procedures"].listing
    assert wanted is not None
    origin.everything = (200, PORTAL, {})
    path = wanted.url.removeprefix("{api}").partition("?")[0]
    origin.altered[path] = (200, listing({f"{number}.txt": b"PLAN: walk" for number in range(wanted.count)}), {})
    origins = [f"--origin={name}={origin.url}" for name in ("api", "raw")]
    pulled = eval_factory("pull", "mtsamples_procedures", "--to", "b", *origins, cwd=tmp_path)
    assert pulled.returncode == 3, pulled.stderr
    assert "a web page came, not the file" in pulled.stderr
    assert list(tmp_path.iterdir()) == []
