from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import evaluation
from eval_factory.cli.console import HomePath
from eval_factory.core import safe_files
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.plain_yaml import YamlError, parse_own_text
from eval_factory.core.rundir import sha256_of
from eval_factory.core.safe_files import (
    LEADS_OUT,
    NOT_REGULAR,
    foreign_files,
    json_line,
    open_regular,
    write_atomic,
)
from eval_factory.endpoint.sign_in import cache_folder
from facts import naming, says


def no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sub" / "a.txt"
    write_atomic(file, "one", mode=0o600)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("one", 0o600)
    safe_files.refuse_full_disk(file.parent)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(
        PrerequisiteError, match=naming("cannot write", "No space left", "the same command")
    ):
        safe_files.refuse_full_disk(file.parent)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, "two")
    assert file.read_text() == "one"
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]


class Disk:
    """Records the inode of each synchronized file, and checks that no file is renamed yet."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.brought = list[int]()
        self.full_at: int | None = None
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        names = [path.name for path in self.folder.iterdir() if not path.name.endswith(".part")]
        assert names == ["old"], "no file has its name yet"
        if len(self.brought) == self.full_at:
            no_space(descriptor)
        self.brought.append(os.fstat(descriptor).st_ino)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    write_atomic(tmp_path / "old", "one")
    return Disk(tmp_path, monkeypatch)


def test_files_get_their_names_together(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[str] = []
    replace = Path.replace

    def rename(self: Path, target: Path) -> Path:
        renamed.append(target.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", rename)
    with safe_files.rename_together():
        with (
            safe_files.atomic_file(disk.folder / "b", mode=0o600) as b,
            safe_files.atomic_file(disk.folder / "a") as a,
        ):
            b.write("of b")
            a.write("of a")
        write_atomic(disk.folder / "old", "two")
        write_atomic(disk.folder / "last", "of last")
        assert (disk.folder / "old").read_text() == "one"
    files = {name: disk.folder / name for name in ("a", "b", "old", "last")}
    assert renamed == list(files)
    assert [file.read_text() for file in files.values()] == ["of a", "of b", "two", "of last"]
    assert sorted(disk.brought) == sorted(file.stat().st_ino for file in files.values())
    assert files["b"].stat().st_mode & 0o777 == 0o600
    assert {*disk.folder.iterdir()} == {*files.values()}


@pytest.mark.parametrize("full_at", [0, 1, None])
def test_where_anything_fails_the_old_files_stay(full_at: int | None, disk: Disk) -> None:
    disk.full_at = full_at

    def write() -> None:
        with safe_files.rename_together():
            write_atomic(disk.folder / "old", "two")
            write_atomic(disk.folder / "new", "three")
            if full_at is None:
                raise OSError("something else")

    with pytest.raises(OSError, match="No space" if full_at is not None else "something else"):
        write()
    assert [path.name for path in disk.folder.iterdir()] == ["old"]
    assert (disk.folder / "old").read_text() == "one"
    disk.full_at = None
    write_atomic(disk.folder / "old", "four")
    assert (disk.folder / "old").read_text() == "four", "and the next is on its own"


LINE_BREAKS = "a\n\r\x0b\x0c\x1c\x85\u2028\u2029b"


@pytest.mark.parametrize(
    "text",
    [
        LINE_BREAKS,
        "\x1b\x9b\x7f\u202e\u200b\ufeff\U000e0041",
        "\ud800 half",
        "only\x7f",
        "Ärztin 漢字 🙂 \xa0",
        "",
    ],
)
def test_a_line_is_one_to_every_reader_and_says_the_same(text: str) -> None:
    line = json_line({"text": text, text: 1})
    assert line.splitlines() == [line]
    assert json.loads(line) == {"text": text, text: 1}
    assert line.encode("utf-8")
    assert line.replace("\xa0", "").isprintable()


@pytest.mark.parametrize(
    "odd",
    [math.inf, -math.inf, math.nan, 10**5000, -(10**5000)],
    ids=["inf", "-inf", "nan", "long", "-long"],
)
def test_numbers_that_nobody_can_read_are_null(odd: Any) -> None:
    line = json_line({"a": {"b": [odd, 1.5, "x", 7, True, None]}, "c": odd})
    assert json.loads(line, parse_constant=pytest.fail) == {
        "a": {"b": [None, 1.5, "x", 7, True, None]},
        "c": None,
    }


def test_letters_and_large_numbers_stay_where_they_can_be_read() -> None:
    text = '{"a": "Ärztin 漢字 🙂", "b": [1, 2.5, null, true]}'
    assert json_line({"a": "Ärztin 漢字 🙂", "b": [1, 2.5, None, True]}) == text
    largest = 2**safe_files.MAX_INTEGER_BITS - 1
    assert json.loads(json_line([largest, math.nan])) == [largest, None]
    assert json_line([largest + 1, math.nan]) == "[null, null]"


CONTENT = b"of a reader"


def linked(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, safe_files.MAX_BYTES + 1)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "outside": (linked("../../secret"), LEADS_OUT),
    "absolute": (linked("/etc/passwd"), LEADS_OUT),
    "folder outside": (linked("../.."), LEADS_OUT),
    "device": (linked("/dev/zero"), LEADS_OUT),
    "fifo": (os.mkfifo, NOT_REGULAR),
    "link to a fifo": (linked("../fifo"), NOT_REGULAR),
    "socket": (listening, NOT_REGULAR),
    "huge": (huge, safe_files._TOO_LARGE),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secret").write_bytes(CONTENT)
    (tmp_path / "folder" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "folder" / "below")  # the path of a socket has a short limit
    return tmp_path / "folder"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_foreign_is_named_and_not_read(kind: str, folder: Path) -> None:
    make, why = KINDS[kind]
    os.mkfifo(folder / "fifo")
    name = folder / "below" / "x.jsonl"
    make(name)
    said = why.format(folder=folder)
    for path in (name, folder / "below"):
        assert list(foreign_files(folder, [path])) == [(name, said)]
    with pytest.raises(PrerequisiteError) as refused:
        safe_files.refuse_foreign(folder, [name])
    says(str(refused.value).splitlines()[0], "was not read")
    assert str(refused.value).startswith(f"{name}: {said}")
    if kind != "huge":
        with pytest.raises(
            OSError, match=f"{LEADS_OUT.split('{')[0]}|{NOT_REGULAR}|No such device"
        ):
            open_regular(name, inside=folder)


def test_own_files_are_read_wherever_links_in_the_folder_lead(folder: Path) -> None:
    (folder / "own").write_bytes(b"own")
    (folder / "link").symlink_to("own")
    (folder / "below" / "circle").symlink_to("..")
    (folder / "nowhere").symlink_to("/there/is/nothing")
    through = folder.parent / "name"
    through.symlink_to("folder")
    for root in (folder, through):  # the user may name the folder by a link
        assert (
            list(
                foreign_files(root, [root / "own", root / "link", root / "below", root / "nowhere"])
            )
            == []
        )
        safe_files.refuse_foreign(root, [root])
        with open_regular(root / "link", inside=root) as file:
            assert file.read() == b"own"
        assert sha256_of(root / "link", root) == sha256_of(folder / "own")


def test_a_link_to_a_folder_inside_is_followed(folder: Path) -> None:
    (folder / "hidden").mkdir()
    (folder / "hidden" / "x").symlink_to(folder.parent / "secret")
    (folder / "helm").symlink_to("hidden")
    assert [path.name for path, _ in foreign_files(folder, [folder / "helm"])] == ["x"]
    (folder / "parent").symlink_to("..")
    assert [path for path, _ in foreign_files(folder, [folder / "parent" / "secret"])] == [
        folder / "parent" / "secret"
    ]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("a.yaml", safe_files.MAX_BYTES_OF_YAML),
        ("a.yml", safe_files.MAX_BYTES_OF_YAML),
        ("a.db", safe_files.MAX_BYTES),
    ],
)
def test_how_large_a_file_may_be(name: str, most: int, folder: Path) -> None:
    for size, said in ((most, []), (most + 1, [(folder / name, safe_files._TOO_LARGE)])):
        (folder / name).touch()
        os.truncate(folder / name, size)
        assert list(foreign_files(folder, [folder / name])) == said


def test_what_a_user_names_may_lie_anywhere_and_is_a_regular_file(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with open_regular(folder / ".." / "secret") as file:
        assert file.read() == CONTENT
    for name in (folder / "fifo", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(OSError, match=NOT_REGULAR):
            open_regular(name)
    with pytest.raises(IsADirectoryError):
        open_regular(folder)
    with pytest.raises(FileNotFoundError):
        open_regular(folder / "gone", inside=folder)


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")


@pytest.mark.parametrize(
    ("text", "path"),
    [("~/x", "/home/me/x"), ("~", "/home/me"), ("a/~", "a/~"), ("./~x", "./~x"), ("", "")],
)
def test_expanded(text: str, path: str) -> None:
    assert safe_files.expand_home(text) == path


def test_nobodys_home_is_a_mistake() -> None:
    told = r"there is no user 'no-such-user'; write \./~no-such-user/x for a path that begins with '~no-such-user'"
    with pytest.raises(ValueError, match=told):
        safe_files.expand_home("~no-such-user/x")


@pytest.mark.parametrize("longest", ["x" * 255, "/".join(["x" * 194] * 21) + "x", "ü" * 127])
def test_paths_that_are_too_long(longest: str) -> None:
    assert safe_files.expand_home(longest) == longest
    with pytest.raises(ValueError, match=naming("too long", "a path")):
        safe_files.expand_home(f"{longest}yy")


def test_paths_of_a_run_config_and_of_the_command_line() -> None:
    found = evaluation({"config.output_dir": "~/o", "config.params.extra.data_dir": "~/d"})
    assert (found.run.config.output_dir, found.run.config.params.extra.data_dir) == (
        "/home/me/o",
        "/home/me/d",
    )
    own = {"data_path": "~/e", "subject": "lab_anemia"}
    flags = {
        "config.type": "ehrshot",
        **{f"config.params.extra.{name}": value for name, value in own.items()},
    }
    assert evaluation(flags).run.config.params.extra.data_path == "/home/me/e"
    with pytest.raises(ConfigError, match=naming("config.output_dir: ", "no user")):
        evaluation({"config.output_dir": "~no-such-user/o"})
    assert HomePath().convert("~/x", None, None) == Path("/home/me/x")


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/home/a"}, "/home/a/.cache/eval-factory"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/eval-factory"),
        ({"HOME": "/home/a", "XDG_CACHE_HOME": "c"}, "/home/a/.cache/eval-factory"),
        ({}, "/home/me/.cache/eval-factory"),
    ],
)
def test_where_a_users_programs_cache(env: dict[str, str], folder: str) -> None:
    assert cache_folder(env) == Path(folder)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_read_back_is_finite(number: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        safe_files.parse_json(f'{{"value": [{number}]}}')


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan", "1.0e+999"])
def test_a_number_of_our_yaml_is_finite(number: str) -> None:
    with pytest.raises(YamlError, match="finite"):
        parse_own_text(f"value: [{number}]\n")
    assert parse_own_text("value: [1.5, 2.0e-3]\n") == {"value": [1.5, 0.002]}
