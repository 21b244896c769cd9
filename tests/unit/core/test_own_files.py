"""What is read of a folder that somebody else may have made."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_factory.core import safe_files
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import sha256_of
from eval_factory.core.safe_files import _TOO_LARGE, LEADS_OUT, NOT_REGULAR, foreign_files, open_regular, refuse_foreign

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
    "outside": (linked("../../secret"), LEADS_OUT), "absolute": (linked("/etc/passwd"), LEADS_OUT),
    "folder outside": (linked("../.."), LEADS_OUT), "device": (linked("/dev/zero"), LEADS_OUT),
    "fifo": (os.mkfifo, NOT_REGULAR), "link to a fifo": (linked("../fifo"), NOT_REGULAR),
    "socket": (listening, NOT_REGULAR), "huge": (huge, _TOO_LARGE),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secret").write_bytes(CONTENT)
    (tmp_path / "folder" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "folder" / "below")  # a path of a socket is short
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
        refuse_foreign(folder, [name])
    assert str(refused.value).startswith(f"{name}: {said}, so it was not read\n")
    if kind != "huge":
        with pytest.raises(OSError, match=f"{LEADS_OUT.split('{')[0]}|{NOT_REGULAR}|No such device"):
            open_regular(name, inside=folder)


def test_own_files_are_read_wherever_links_in_the_folder_lead(folder: Path) -> None:
    (folder / "own").write_bytes(b"own")
    (folder / "link").symlink_to("own")
    (folder / "below" / "circle").symlink_to("..")
    (folder / "nowhere").symlink_to("/there/is/nothing")
    through = folder.parent / "name"
    through.symlink_to("folder")
    for root in (folder, through):  # the user may name the folder by a link
        assert list(foreign_files(root, [root / "own", root / "link", root / "below", root / "nowhere"])) == []
        refuse_foreign(root, [root])
        with open_regular(root / "link", inside=root) as file:
            assert file.read() == b"own"
        assert sha256_of(root / "link", root) == sha256_of(folder / "own")


def test_a_link_to_a_folder_inside_is_followed(folder: Path) -> None:
    (folder / "hidden").mkdir()
    (folder / "hidden" / "x").symlink_to(folder.parent / "secret")
    (folder / "helm").symlink_to("hidden")
    assert [path.name for path, _ in foreign_files(folder, [folder / "helm"])] == ["x"]
    (folder / "parent").symlink_to("..")
    assert [path for path, _ in foreign_files(folder, [folder / "parent" / "secret"])] == [folder / "parent" / "secret"]


@pytest.mark.parametrize(
    ("name", "most"),
    [("a.yaml", safe_files.MAX_BYTES_OF_YAML), ("a.yml", safe_files.MAX_BYTES_OF_YAML), ("a.db", safe_files.MAX_BYTES)],
)
def test_how_large_a_file_may_be(name: str, most: int, folder: Path) -> None:
    for size, said in ((most, []), (most + 1, [(folder / name, _TOO_LARGE)])):
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
