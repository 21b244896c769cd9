"""`data pull` against a server on loopback that plays GitHub and the Hub."""

from __future__ import annotations

import contextlib
import io
import json
import random
import sqlite3
import zipfile
from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.data.bundle import compare_files, read_file_list, read_manifest
from eval_factory.data.pull import RETRIES, pull
from eval_factory.data.sources import Sources
from invented_bundle import NOTES, QUESTIONS, REVISION, TABLE, Origin, digest, sources


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_factory.data.pull.RETRIES", RETRIES.new(backoff_factor=0))


def no_line(_line: str) -> None:
    pass


def test_everything_a_task_needs(tmp_path: Path, origin: Origin) -> None:
    said: list[str] = []
    pull(["questions", "notes", "calc", "records", "own"], tmp_path / "b", origin.sources(), said.append)
    manifest = read_manifest(tmp_path / "b")
    assert not compare_files(tmp_path / "b", manifest)
    assert manifest.tasks == ["calc", "notes", "questions"]
    listed = manifest.paths()
    assert listed["scenarios/questions/data/set.json"].source == f"{origin.url}/q/set.json"
    assert (tmp_path / "b/scenarios/questions/data/set.json").read_bytes() == QUESTIONS
    assert read_file_list(tmp_path / "b/file_lists/notes.json") == list(NOTES)
    assert {"tiktoken/0123", "nltk_data/tokenizers/punkt_tab/english/abbrev_types.txt"} <= set(listed)
    assert not any("danish" in path for path in listed)
    (entry,) = manifest.hub
    assert (entry.revision, entry.source) == (REVISION, f"hub:org/Some-Calc@{REVISION}")
    assert entry.folder.endswith(f"/default/0.0.0/{REVISION}")
    assert any("no revision was pinned: this one is recorded" in line for line in said)
    assert any(line.startswith("own: its data are your own") for line in said)


def test_without_a_network_each_task_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    nowhere = sources().with_origins({"raw": "http://127.0.0.1:9", "hub": "http://127.0.0.1:9"})
    with pytest.raises(PrerequisiteError) as raised:
        pull(["questions", "notes", "calc"], tmp_path / "new" / "b", nowhere, no_line)
    lines = str(raised.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["questions", "notes", "calc"]
    assert all("cannot be reached" in line and "is there a network here?" in line for line in lines)
    assert not (tmp_path / "new").exists()


def test_what_one_task_lacks_does_not_keep_another_back(tmp_path: Path, origin: Origin) -> None:
    origin.altered["/notes/a 1.txt"] = (404, b"", {})
    with pytest.raises(PrerequisiteError, match=r"^notes: not pulled, nothing was written: .*HTTP 404$"):
        pull(["notes", "questions"], tmp_path / "b", origin.sources(), no_line)
    manifest = read_manifest(tmp_path / "b")
    assert manifest.tasks == ["questions"]
    assert not compare_files(tmp_path / "b", manifest)


BAD_ANSWERS = {
    "other content": (200, b'{"1": "Was it?"}', {}),
    "cut off": (200, QUESTIONS, {"Content-Length": "400"}),
    "an error": (500, b"", {"Retry-After": "0"}),
}


PORTAL = b"\n<!DOCTYPE html>\n<html>Please log in</html>\n"


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/html; charset=utf-8"}])
@pytest.mark.parametrize("name", ["a.docx", "a.sqlite", "a.json", "a.csv", "a.conf"])
def test_a_page_to_log_in_is_no_data(name: str, headers: dict[str, str], tmp_path: Path, origin: Origin) -> None:
    origin.altered[f"/q/{name}"] = (200, PORTAL, headers)
    with pytest.raises(PrerequisiteError, match="a web page came, not the file"):
        pull(["one"], tmp_path / "b", with_file(name, origin), no_line)
    assert not (tmp_path / "b").exists()


def test_a_page_without_a_pages_beginning_is_known_by_its_type(tmp_path: Path, origin: Origin) -> None:
    origin.altered["/q/a.csv"] = (200, b"<!-- hello --><p>Please log in", {"Content-Type": "text/html"})
    with pytest.raises(PrerequisiteError, match="a web page came"):
        pull(["one"], tmp_path / "b", with_file("a.csv", origin), no_line)


def with_file(name: str, origin: Origin) -> Sources:
    """A table of one task with one file, of which no hash is known."""
    task = {"scenario": "one", "files": [{"path": name, "url": f"{{raw}}/q/{name}"}]}
    table = {**ARCHIVED, "tasks": {"one": task}}
    return Sources.model_validate(table).with_origins({"raw": origin.url})


def _docx() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", random.Random(1).randbytes(20_000))  # noqa: S311
    return held.getvalue()


def _sqlite(folder: Path) -> bytes:
    with contextlib.closing(sqlite3.connect(folder / "made.sqlite")) as database:
        database.execute("CREATE TABLE patient (name TEXT)")
        database.executemany("INSERT INTO patient VALUES (?)", [("n" * 100,)] * 1000)
        database.commit()
    return (folder / "made.sqlite").read_bytes()


@pytest.mark.parametrize("name", ["a.docx", "a.sqlite", "a.json"])
def test_half_a_file_is_not_taken_where_the_server_does_not_say_how_long_it_is(
    name: str, tmp_path: Path, origin: Origin
) -> None:
    whole = {"a.docx": _docx(), "a.sqlite": _sqlite(tmp_path), "a.json": json.dumps({"data": ["x"] * 1000}).encode()}[
        name
    ]
    for cut in (whole[: len(whole) // 2], b""):
        origin.files[f"/q/{name}"] = cut
        with pytest.raises(PrerequisiteError, match=r"is no zip|SQLite database|is no JSON|it is empty"):
            pull(["one"], tmp_path / "b", with_file(name, origin), no_line)
        assert not (tmp_path / "b").exists()
    origin.files[f"/q/{name}"] = whole
    pull(["one"], tmp_path / "b", with_file(name, origin), no_line)
    assert (tmp_path / "b/scenarios/one" / name).read_bytes() == whole


def test_a_damaged_member_of_a_document_is_found(tmp_path: Path, origin: Origin) -> None:
    whole = _docx()
    origin.files["/q/a.docx"] = whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]
    with pytest.raises(PrerequisiteError, match="is no zip file that can be used"):
        pull(["one"], tmp_path / "b", with_file("a.docx", origin), no_line)


@pytest.mark.parametrize(("came", "message"), [
    (PORTAL, "a web page came"), (b"PLAN: wal", "9 of 10 bytes came"), (b"PLAN: wall", "is not what is listed"),
])  # fmt: skip
def test_a_text_is_the_one_that_is_listed(came: bytes, message: str, tmp_path: Path, origin: Origin) -> None:
    origin.altered["/notes/a 1.txt"] = (200, came, {})
    with pytest.raises(PrerequisiteError, match=message):
        pull(["notes"], tmp_path / "b", origin.sources(), no_line)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("kind", BAD_ANSWERS)
def test_a_file_is_whole_and_as_known_or_not_there(kind: str, tmp_path: Path, origin: Origin) -> None:
    origin.altered["/q/set.json"] = BAD_ANSWERS[kind]
    with pytest.raises(PrerequisiteError, match="questions: not pulled"):
        pull(["questions"], tmp_path / "b", origin.sources(), no_line)
    assert not (tmp_path / "b").exists()


def test_a_busy_server_is_asked_again(tmp_path: Path, origin: Origin) -> None:
    origin.fail_first["/q/set.json"] = 2
    pull(["questions"], tmp_path / "b", origin.sources(), no_line)
    assert origin.asked["/q/set.json"] == 3


@pytest.mark.parametrize("names", ['["../x.txt"]', '[{"name": "../x.txt"}, {"name": "y.txt"}]', '[{"name": "a.txt"}]'])
def test_a_list_of_files_that_is_none_is_refused(names: str, tmp_path: Path, origin: Origin) -> None:
    origin.altered["/list"] = (200, names.encode(), {})
    with pytest.raises(PrerequisiteError, match=r"is no list of files|lists 1 files, 2 are known"):
        pull(["notes"], tmp_path / "b", origin.sources(), no_line)
    assert not (tmp_path / "b").exists()


def test_a_new_revision_takes_the_place_of_the_old_one(tmp_path: Path, origin: Origin) -> None:
    pull(["calc"], tmp_path / "b", origin.sources(), no_line)
    for path in list(origin.files):
        if REVISION in path or path.startswith("/api/"):
            content = origin.files[path].replace(REVISION.encode(), b"cd" * 20)
            origin.files[path.replace(REVISION, "cd" * 20)] = content
    pull(["calc"], tmp_path / "b", origin.sources(), no_line)
    manifest = read_manifest(tmp_path / "b")
    assert [entry.revision for entry in manifest.hub] == ["cd" * 20]
    assert not compare_files(tmp_path / "b", manifest)


def test_what_no_benchmark_reads_may_be_missing(tmp_path: Path, origin: Origin) -> None:
    origin.altered["/punkt_tab.zip"] = (200, b"no zip", {})
    said: list[str] = []
    pull(["questions"], tmp_path / "b", origin.sources(), said.append)
    assert said[-1].startswith("nltk punkt_tab: not pulled")
    assert not compare_files(tmp_path / "b", read_manifest(tmp_path / "b"))


def test_mistakes_are_said_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no task pubmed"):
        pull(["pubmed"], tmp_path / "b", sources(), no_line)
    with pytest.raises(ConfigError, match="no origin 'rww'"):
        sources().with_origins({"rww": "http://x"})
    with pytest.raises(ConfigError, match="without a user name") as raised:
        sources().with_origins({"raw": "http://user:canary@x"})
    assert "canary" not in str(raised.value)


ARCHIVED = {
    "format": 1,
    "origins": {"raw": "http://raw.invalid", "hub": "http://hub.invalid"},
    "tasks": {
        "exam": {
            "scenario": "exam",
            "files": [
                {"path": f"data/{name}", "url": "{raw}/exam.zip", "member": name} for name in ("dev.json", "train.json")
            ],
        }
    },
    "tiktoken": {},
    "nltk": {},
}


def test_files_of_one_archive(tmp_path: Path, origin: Origin) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("dev.json", "1")
        archive.writestr("train.json", "2")
        archive.writestr("../outside", "3")
    origin.files["/exam.zip"] = held.getvalue()
    table = Sources.model_validate(ARCHIVED).with_origins({"raw": origin.url})
    pull(["exam"], tmp_path / "b", table, no_line)
    assert origin.asked["/exam.zip"] == 1
    assert set(read_manifest(tmp_path / "b").paths()) == {
        "scenarios/exam/data/dev.json", "scenarios/exam/data/train.json"
    }  # fmt: skip
    assert not compare_files(tmp_path / "b", read_manifest(tmp_path / "b"))


@pytest.mark.parametrize("content", [b"<html>are you a robot?</html>", b"PK\x05\x06" + bytes(18)])
def test_an_archive_that_is_none_or_holds_something_else(content: bytes, tmp_path: Path, origin: Origin) -> None:
    origin.files["/exam.zip"] = content
    table = Sources.model_validate(ARCHIVED).with_origins({"raw": origin.url})
    with pytest.raises(PrerequisiteError, match=r"a web page came|the archive holds no"):
        pull(["exam"], tmp_path / "b", table, no_line)


def test_the_leaderboards_confs(tmp_path: Path, origin: Origin) -> None:
    conf = b"entries: []"
    origin.files["/confs/run_entries_a.conf"] = conf
    table = Sources.model_validate(
        {**ARCHIVED, "presentation": {"url": "{raw}/confs/", "files": {"run_entries_a.conf": digest(conf)}}}
    ).with_origins({"raw": origin.url})
    pull(["leaderboards"], tmp_path / "b", table, no_line)
    assert (tmp_path / "b" / "presentation" / "run_entries_a.conf").read_bytes() == b"entries: []"
    assert not compare_files(tmp_path / "b", read_manifest(tmp_path / "b"))


def scripted(revision: str | None) -> Sources:
    exam = {"id": "org/exam_qa", "config": "en", "revision": revision}
    return Sources.model_validate(
        {
            "format": 1,
            "origins": {"raw": "http://raw.invalid", "hub": "http://hub.invalid"},
            "tasks": {"exam": {"scenario": "exam", "hub": [exam]}},
            "tiktoken": {},
            "nltk": {},
        }
    )


@pytest.mark.parametrize("pinned", [None, REVISION, "cd" * 20])
def test_a_data_set_with_a_script_is_taken_as_the_hub_converted_it(
    pinned: str | None, tmp_path: Path, origin: Origin
) -> None:
    """As `load_dataset` does where it may not run the script, which is what HELM's head_qa does."""
    names = ["exam_qa.py", "README.md"]
    info = {"id": "org/exam_qa", "sha": REVISION, "siblings": [{"rfilename": name} for name in names]}
    converted = "ef" * 20
    table = {"type": "file", "path": "en/test/0000.parquet", "size": len(TABLE), "oid": "0" * 40}
    other = {"type": "file", "path": "es/test/0000.parquet", "size": len(TABLE), "oid": "0" * 40}
    origin.files |= {
        "/api/datasets/org/exam_qa": json.dumps(info).encode(),
        f"/api/datasets/org/exam_qa/revision/{pinned}": json.dumps(info | {"sha": pinned}).encode(),
        "/api/datasets/org/exam_qa/revision/refs/convert/parquet": json.dumps(
            {"id": "org/exam_qa", "sha": converted, "siblings": [{"rfilename": "en/test/0000.parquet"}]}
        ).encode(),
        f"/api/datasets/org/exam_qa/tree/{converted}": json.dumps([table, other]).encode(),
        f"/datasets/org/exam_qa/resolve/{converted}/en/test/0000.parquet": TABLE,
    }
    said: list[str] = []
    pull(["exam"], tmp_path / "b", scripted(pinned).with_origins({"hub": origin.url}), said.append)
    (entry,) = read_manifest(tmp_path / "b").hub
    assert (entry.id, entry.config, entry.revision) == ("org/exam_qa", "en", REVISION)
    assert entry.folder.endswith(f"/en/0.0.0/{REVISION}")
    assert not any("es/" in path for path in origin.asked if "resolve" in path)
    assert any(f"not the pinned {pinned}" in line for line in said) == (pinned not in (None, REVISION))


def test_where_the_hub_has_the_pinned_revision_no_more_the_newest_is_taken(tmp_path: Path, origin: Origin) -> None:
    gone = "cd" * 20
    origin.altered[f"/api/datasets/org/Some-Calc/revision/{gone}"] = (
        404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"}
    )  # fmt: skip
    table = origin.sources()
    (dataset,) = table.tasks["calc"].hub
    table.tasks["calc"] = table.tasks["calc"].model_copy(
        update={"hub": (dataset.model_copy(update={"revision": gone}),)}
    )
    said: list[str] = []
    pull(["calc"], tmp_path / "b", table, said.append)
    assert [entry.revision for entry in read_manifest(tmp_path / "b").hub] == [REVISION]
    assert any(f"not the pinned {gone}" in line for line in said)
