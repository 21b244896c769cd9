"""`data pull` against a server on loopback that plays GitHub and the Hub."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.data.bundle import compare_files, read_file_list, read_manifest
from eval_factory.data.pull import RETRIES, difference_from_blob, is_web_page, pull
from eval_factory.data.sources import Sources
from facts import naming, says
from invented_bundle import NOTES, QUESTIONS, REVISION, TABLE, Origin, digest, sources


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_factory.data.pull.RETRIES", RETRIES.new(backoff_factor=0))


def not_pulled(said: str, task: str, table: Sources, folder: Path) -> None:
    """It is refused, and nothing is left."""
    with pytest.raises(PrerequisiteError, match=said):
        pull([task], folder, table, print)
    assert not folder.exists()


def test_everything_a_task_needs(tmp_path: Path, origin: Origin) -> None:
    said: list[str] = []
    pull(
        ["questions", "notes", "calc", "records", "own"],
        tmp_path / "b",
        origin.sources(),
        said.append,
    )
    manifest = read_manifest(tmp_path / "b")
    assert not compare_files(tmp_path / "b", manifest)
    assert manifest.tasks == ["calc", "notes", "questions"]
    listed = manifest.file_by_path()
    assert listed["scenarios/questions/data/set.json"].source == f"{origin.url}/q/set.json"
    assert (tmp_path / "b/scenarios/questions/data/set.json").read_bytes() == QUESTIONS
    assert read_file_list(tmp_path / "b/file_lists/notes.json") == list(NOTES)
    assert {"tiktoken/0123", "nltk_data/tokenizers/punkt_tab/english/abbrev_types.txt"} <= set(
        listed
    )
    assert not any("danish" in path for path in listed)
    (entry,) = manifest.hub
    assert (entry.revision, entry.source) == (REVISION, f"hub:org/Some-Calc@{REVISION}")
    assert entry.folder.endswith(f"/default/0.0.0/{REVISION}")
    says(said, "no revision was pinned")
    says(said, "own: its data", "your own")


def test_without_a_network_each_task_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    nowhere = sources().with_origins({"raw": "http://127.0.0.1:9", "hub": "http://127.0.0.1:9"})
    with pytest.raises(PrerequisiteError) as raised:
        pull(["questions", "notes", "calc"], tmp_path / "new" / "b", nowhere, print)
    lines = str(raised.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["questions", "notes", "calc"]
    assert all("cannot be reached" in line and "a network here?" in line for line in lines)
    assert not (tmp_path / "new").exists()


def test_what_one_task_lacks_does_not_keep_another_back(tmp_path: Path, origin: Origin) -> None:
    origin.altered["/notes/a 1.txt"] = (404, b"", {})
    with pytest.raises(
        PrerequisiteError, match=naming("notes: not pulled", "nothing was written", "HTTP 404")
    ):
        pull(["notes", "questions"], tmp_path / "b", origin.sources(), print)
    manifest = read_manifest(tmp_path / "b")
    assert manifest.tasks == ["questions"]
    assert not compare_files(tmp_path / "b", manifest)


PORTAL = b"\n<!DOCTYPE html>\n<html>Please log in</html>\n"


@pytest.mark.parametrize(
    ("name", "page", "headers"),
    [
        *((name, PORTAL, {}) for name in ("a.docx", "a.sqlite", "a.json", "a.csv", "a.conf")),
        ("a.json", PORTAL, {"Content-Type": "text/html; charset=utf-8"}),
        (
            "a.csv",
            b"<!-- hello --><p>Please log in",
            {"Content-Type": "text/html"},
        ),  # known by its type alone
    ],
)
def test_a_page_to_log_in_is_no_data(
    name: str, page: bytes, headers: dict[str, str], tmp_path: Path, origin: Origin
) -> None:
    origin.altered[f"/q/{name}"] = (200, page, headers)
    not_pulled("received a web page instead", "one", with_file(name, origin), tmp_path / "b")


def table_of(files: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    """The table of one task, exam."""
    origins = {"raw": "http://raw.invalid", "hub": "http://hub.invalid"}
    task = {"scenario": "exam", "files": files}
    return {
        "format": 1,
        "origins": origins,
        "tasks": {"exam": task},
        "tiktoken": {},
        "nltk": {},
        **more,
    }


def with_file(name: str, origin: Origin) -> Sources:
    """A table of one task with one file, of which no hash is known."""
    table = table_of([])
    table["tasks"] = {
        "one": {"scenario": "one", "files": [{"path": name, "url": f"{{raw}}/q/{name}"}]}
    }
    return Sources.model_validate(table).with_origins({"raw": origin.url})


ARCHIVED = table_of(
    [
        {"path": f"data/{name}", "url": "{raw}/exam.zip", "member": name}
        for name in ("dev.json", "train.json")
    ]
)


def test_a_file_of_unknown_hash_is_not_taken_where_its_length_is_not_known(
    tmp_path: Path, origin: Origin
) -> None:
    no_length = {"Content-Length": "", "Connection": "close"}
    for content, headers, said in (
        (b"[1", no_length, "does not say how long the file is"),
        (b"", {}, "the file is empty"),
    ):
        origin.altered["/q/a.json"] = (200, content, headers)
        not_pulled(said, "one", with_file("a.json", origin), tmp_path / "b")
    origin.altered["/q/a.json"] = (200, b"[1]", {})
    pull(["one"], tmp_path / "b", with_file("a.json", origin), print)
    assert (tmp_path / "b/scenarios/one/a.json").read_bytes() == b"[1]"


@pytest.mark.parametrize(
    ("task", "path", "answer", "message"),
    [
        ("questions", "/q/set.json", (200, b'{"1": "Was it?"}', {}), "questions: not pulled"),
        (
            "questions",
            "/q/set.json",
            (200, QUESTIONS, {"Content-Length": "400", "Connection": "close"}),
            "questions: not pulled",
        ),
        ("questions", "/q/set.json", (500, b"", {"Retry-After": "0"}), "questions: not pulled"),
        ("notes", "/notes/a 1.txt", (200, PORTAL, {}), "a web page instead"),
        ("notes", "/notes/a 1.txt", (200, b"PLAN: wal", {}), "9 bytes were received, 10"),
        ("notes", "/notes/a 1.txt", (200, b"PLAN: wall", {}), "differs from the listed file"),
        ("notes", "/list", (200, b'["../x.txt"]', {}), "is not a list of files"),
        (
            "notes",
            "/list",
            (
                200,
                b'[{"name": "../x.txt", "size": 1, "sha": "a"}, {"name": "y.txt", "size": 1, "sha": "a"}]',
                {},
            ),
            "is not a list of files",
        ),
        (
            "notes",
            "/list",
            (200, b'[{"name": "a.txt", "size": 1, "sha": "a"}]', {}),
            "lists 1 files; there should be 2",
        ),
    ],
)
def test_a_file_is_whole_and_as_known_or_not_there(
    task: str,
    path: str,
    answer: tuple[int, bytes, dict[str, str]],
    message: str,
    tmp_path: Path,
    origin: Origin,
) -> None:
    origin.altered[path] = answer
    not_pulled(message, task, origin.sources(), tmp_path / "b")


def test_a_busy_server_is_asked_again(tmp_path: Path, origin: Origin) -> None:
    origin.fail_first["/q/set.json"] = 2
    pull(["questions"], tmp_path / "b", origin.sources(), print)
    assert origin.asked["/q/set.json"] == 3


def test_a_new_revision_takes_the_place_of_the_old_one(tmp_path: Path, origin: Origin) -> None:
    pull(["calc"], tmp_path / "b", origin.sources(), print)
    for path in list(origin.files):
        if REVISION in path or path.startswith("/api/"):
            content = origin.files[path].replace(REVISION.encode(), b"cd" * 20)
            origin.files[path.replace(REVISION, "cd" * 20)] = content
    pull(["calc"], tmp_path / "b", origin.sources(), print)
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
    with pytest.raises(ConfigError, match=naming("no task pubmed")):
        pull(["pubmed"], tmp_path / "b", sources(), print)
    with pytest.raises(ConfigError, match="no origin 'rww'"):
        sources().with_origins({"rww": "http://x"})
    with pytest.raises(ConfigError, match="without a user name") as raised:
        sources().with_origins({"raw": "http://user:canary@x"})
    assert "canary" not in str(raised.value)


def test_files_of_one_archive(tmp_path: Path, origin: Origin) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("dev.json", "1")
        archive.writestr("train.json", "2")
        archive.writestr("../outside", "3")
    origin.files["/exam.zip"] = held.getvalue()
    table = Sources.model_validate(ARCHIVED).with_origins({"raw": origin.url})
    pull(["exam"], tmp_path / "b", table, print)
    assert origin.asked["/exam.zip"] == 1
    assert set(read_manifest(tmp_path / "b").file_by_path()) == {
        "scenarios/exam/data/dev.json",
        "scenarios/exam/data/train.json",
    }
    assert not compare_files(tmp_path / "b", read_manifest(tmp_path / "b"))


@pytest.mark.parametrize("content", [b"<html>are you a robot?</html>", b"PK\x05\x06" + bytes(18)])
def test_an_archive_that_is_none_or_holds_something_else(
    content: bytes, tmp_path: Path, origin: Origin
) -> None:
    origin.files["/exam.zip"] = content
    table = Sources.model_validate(ARCHIVED).with_origins({"raw": origin.url})
    not_pulled(r"received a web page|the archive holds no", "exam", table, tmp_path / "b")


def test_the_leaderboards_confs(tmp_path: Path, origin: Origin) -> None:
    conf = b"entries: []"
    origin.files["/confs/run_entries_a.conf"] = conf
    files = {"run_entries_a.conf": digest(conf)}
    table = Sources.model_validate(
        {**ARCHIVED, "presentation": {"url": "{raw}/confs/", "files": files}}
    )
    pull(["leaderboards"], tmp_path / "b", table.with_origins({"raw": origin.url}), print)
    assert (tmp_path / "b" / "presentation" / "run_entries_a.conf").read_bytes() == conf
    assert not compare_files(tmp_path / "b", read_manifest(tmp_path / "b"))


def scripted(revision: str | None) -> Sources:
    exam = {
        "scenario": "exam",
        "hub": [{"id": "org/exam_qa", "config": "en", "revision": revision}],
    }
    return Sources.model_validate(table_of([], tasks={"exam": exam}))


@pytest.mark.parametrize("pinned", [None, REVISION, "cd" * 20])
def test_a_data_set_with_a_script_is_taken_as_the_hub_converted_it(
    pinned: str | None, tmp_path: Path, origin: Origin
) -> None:
    """As `load_dataset` does where it may not run the script, which is what HELM's head_qa does."""
    api = "/api/datasets/org/exam_qa"
    name = "en/test/0000.parquet"
    converted = "ef" * 20

    def info(revision: str | None, *names: str) -> dict[str, Any]:
        return {
            "id": "org/exam_qa",
            "sha": revision,
            "siblings": [{"rfilename": name} for name in names],
        }

    table = {"type": "file", "path": name, "size": len(TABLE), "oid": "0" * 40}
    answers = {
        api: info(REVISION, "exam_qa.py", "README.md"),
        f"{api}/revision/{pinned}": info(pinned, "exam_qa.py", "README.md"),
        f"{api}/revision/refs/convert/parquet": info(converted, name),
        f"{api}/tree/{converted}": [table, {**table, "path": "es/test/0000.parquet"}],
    }
    origin.files |= {path: json.dumps(answer).encode() for path, answer in answers.items()}
    origin.files[f"/datasets/org/exam_qa/resolve/{converted}/{name}"] = TABLE
    said: list[str] = []
    pull(["exam"], tmp_path / "b", scripted(pinned).with_origins({"hub": origin.url}), said.append)
    (entry,) = read_manifest(tmp_path / "b").hub
    assert (entry.id, entry.config, entry.revision) == ("org/exam_qa", "en", REVISION)
    assert entry.folder.endswith(f"/en/0.0.0/{REVISION}")
    assert not any("es/" in path for path in origin.asked if "resolve" in path)
    assert any(f"not the pinned {pinned}" in line for line in said) == (
        pinned not in (None, REVISION)
    )


def test_where_the_hub_has_the_pinned_revision_no_more_the_newest_is_taken(
    tmp_path: Path, origin: Origin
) -> None:
    gone = "cd" * 20
    table = origin.sources()
    answer = (404, b'{"error": "Invalid rev id"}', {"X-Error-Code": "RevisionNotFound"})
    origin.altered[f"/api/datasets/org/Some-Calc/revision/{gone}"] = answer
    calc = table.tasks["calc"]
    hub = tuple(dataset.model_copy(update={"revision": gone}) for dataset in calc.hub)
    table.tasks["calc"] = calc.model_copy(update={"hub": hub})
    said: list[str] = []
    pull(["calc"], tmp_path / "b", table, said.append)
    assert [entry.revision for entry in read_manifest(tmp_path / "b").hub] == [REVISION]
    assert any(f"not the pinned {gone}" in line for line in said)


TEXT = b"id,answer\n1,yes\n"
SHA1_OF_HELLO = "ce013625030ba8dba906f756967f9e9ca394464a"
"""What `git hash-object` says of 'hello' and a newline."""


def put(folder: Path, content: bytes, name: str = "download.part") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_blob_is_known_by_size_and_hash_as_git_counts_them(tmp_path: Path) -> None:
    assert difference_from_blob(put(tmp_path, b"hello\n"), 6, SHA1_OF_HELLO) is None
    says(str(difference_from_blob(put(tmp_path, b"hell"), 6, SHA1_OF_HELLO)), "4 bytes")
    other = hashlib.sha1(b"blob 6\0hullo\n", usedforsecurity=False).hexdigest()
    says(
        str(difference_from_blob(put(tmp_path, b"hullo\n"), 6, SHA1_OF_HELLO)),
        "its content",
        f"hash is {other}",
        f"listed is {SHA1_OF_HELLO}",
    )


@pytest.mark.parametrize(
    ("content", "page"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", True),
        (b"\xef\xbb\xbf\n  <HTML lang=en>", True),
        (b"id,text\n1,<html>\n", False),
        (b" " * 1024 + b"<html>", False),
        (b"", False),
    ],
)
def test_a_web_page_is_known_by_its_beginning(content: bytes, page: bool, tmp_path: Path) -> None:
    assert is_web_page(put(tmp_path, content)) is page
