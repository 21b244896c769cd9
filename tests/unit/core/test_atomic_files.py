from __future__ import annotations

import os
from pathlib import Path

import pytest

from eval_factory.core.safe_files import atomic_file, renamed_together, write_atomic


def test_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sub" / "a.txt"
    write_atomic(file, "one", mode=0o600)
    assert file.read_text() == "one"
    assert file.stat().st_mode & 0o777 == 0o600

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, "two")
    assert file.read_text() == "one"
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]


class Disk:
    """What was brought to it, by the inode, and which names were there when it was."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.brought: list[int] = []
        self.full_at: int | None = None
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor: int) -> None:
        assert self.names() == ["old"], "no file has its name yet"
        if len(self.brought) == self.full_at:
            raise OSError(28, "No space left on device")
        self.brought.append(os.fstat(descriptor).st_ino)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if not path.name.endswith(".part"))


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
    assert renamed == ["a", "b", "old", "last"]
    assert [(disk.folder / name).read_text() for name in renamed] == ["of a", "of b", "two", "of last"]
    assert sorted(disk.brought) == sorted((disk.folder / name).stat().st_ino for name in renamed)
    assert (disk.folder / "b").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in disk.folder.iterdir()) == ["a", "b", "last", "old"]


def test_after_it_a_file_is_on_its_own_again(disk: Disk) -> None:
    with renamed_together():
        pass
    write_atomic(disk.folder / "old", "two")
    assert (disk.folder / "old").read_text() == "two"
    assert len(disk.brought) == 1


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
