from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from eval_factory.data.archive import pack, unpack
from eval_factory.data.manifest import MANIFEST, compare, read_manifest
from eval_factory.errors import ConfigError, PrerequisiteError


def test_there_and_back(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    manifest = unpack(tmp_path / "a.tar.gz", tmp_path / "far" / "away")
    assert manifest == read_manifest(bundle)
    assert not compare(tmp_path / "far" / "away", manifest)


def test_the_same_bundle_gives_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    for path in bundle.rglob("*"):
        os.utime(path, (1, 1))
    pack(bundle, tmp_path / "b.tgz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tgz").read_bytes()


def test_an_altered_bundle_is_not_packed(bundle: Path, tmp_path: Path) -> None:
    (bundle / "scenarios/notes/a 1.txt").write_text("PLAN: run")
    with pytest.raises(PrerequisiteError, match=r"altered: scenarios/notes/a 1\.txt"):
        pack(bundle, tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


def plain(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, data


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


HOSTILE = {
    "absolute": (plain("/etc/evil"), "leads elsewhere"),
    "parent": (plain("scenarios/../../evil"), "leads elsewhere"),
    "parent only": (plain(".."), "leads elsewhere"),
    "backslash": (plain("..\\evil"), "leads elsewhere"),
    "drive": (plain("C:/evil"), "leads elsewhere"),
    "symbolic link out": (special("scenarios/x", tarfile.SYMTYPE, "../../.."), "holds a link"),
    "symbolic link inside": (special("scenarios/x", tarfile.SYMTYPE, "notes"), "holds a link"),
    "hard link": (special("scenarios/x", tarfile.LNKTYPE, MANIFEST), "holds a link"),
    "device": (special("scenarios/x", tarfile.CHRTYPE), "no plain file"),
    "pipe": (special("scenarios/x", tarfile.FIFOTYPE), "no plain file"),
    "folder": (special("scenarios", tarfile.DIRTYPE), "no plain file"),
    "not in the manifest": (plain("scenarios/extra"), "not what the manifest lists"),
    "twice": (plain("scenarios/notes/a 1.txt", b"PLAN: walk"), "twice"),
    "twice but for case": (plain("scenarios/NOTES/a 1.txt", b"PLAN: walk"), "twice|not what the manifest lists"),
    "another size": (plain("scenarios/notes/B - 2.txt", b"PLAN: a rest that is longer"), "manifest lists|twice"),
}


def with_member(source: Path, target: Path, member: tuple[tarfile.TarInfo, bytes]) -> None:
    """The archive and one more member at its end."""
    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for info in old:
            new.addfile(info, old.extractfile(info))
        new.addfile(member[0], io.BytesIO(member[1]))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_leave_nothing(name: str, bundle: Path, tmp_path: Path) -> None:
    member, message = HOSTILE[name]
    pack(bundle, tmp_path / "good.tar.gz")
    with_member(tmp_path / "good.tar.gz", tmp_path / "bad.tar.gz", member)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PrerequisiteError, match=message):
        unpack(tmp_path / "bad.tar.gz", tmp_path / "new" / "out")
    assert sorted(tmp_path.rglob("*")) == before


def test_no_more_than_the_limit_is_unpacked(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    with pytest.raises(PrerequisiteError, match="more than 100 bytes"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out", limit=100)
    assert not (tmp_path / "out").exists()


def test_a_header_that_asks_for_all_the_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(info.tobuf(tarfile.USTAR_FORMAT))
        file.write(b"\0" * 4096)
    with pytest.raises(PrerequisiteError, match="header is larger"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_a_damaged_archive_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    whole = (tmp_path / "a.tar.gz").read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive", b"", whole[:200] + bytes(50) + whole[250:]):
        (tmp_path / "b.tar.gz").write_bytes(content)
        with pytest.raises(PrerequisiteError):
            unpack(tmp_path / "b.tar.gz", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        assert not list(tmp_path.glob(".out*"))


def test_content_that_was_exchanged_is_found(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as old, tarfile.open(tmp_path / "b.tar.gz", "w:gz") as new:
        for info in old:
            held = old.extractfile(info)
            assert held is not None
            new.addfile(info, io.BytesIO(held.read().replace(b"PLAN: walk", b"PLAN: jump")))
    with pytest.raises(PrerequisiteError, match=r"altered: scenarios/notes/a 1\.txt"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_written_over(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    with pytest.raises(ConfigError, match="not empty"):
        unpack(tmp_path / "a.tar.gz", bundle)
    with pytest.raises(ConfigError, match=r"ends with \.tar\.gz"):
        pack(bundle, tmp_path / "a.zip")
    with pytest.raises(ConfigError, match="is no file"):
        unpack(tmp_path / "none.tar.gz", tmp_path / "out")
