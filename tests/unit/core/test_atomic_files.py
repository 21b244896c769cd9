from __future__ import annotations

import os
from pathlib import Path

import pytest

from eval_factory.core.safe_files import atomic_file, renamed_together, write_atomic


def no_space(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sub" / "a.txt"
    write_atomic(file, "one", mode=0o600)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("one", 0o600)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, "two")
    assert file.read_text() == "one"
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]


class Disk:
    """What was brought to it, by the inode, and which names were there when it was."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.brought = folder, list[int]()
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
    with renamed_together():
        with atomic_file(disk.folder / "b", mode=0o600) as b, atomic_file(disk.folder / "a") as a:
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
        with renamed_together():
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
