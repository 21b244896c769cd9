from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.data.archive import pack, unpack
from eval_factory.data.bundle import MANIFEST, compare_files, read_manifest
from eval_factory.data.importing import import_folder
from facts import naming
from invented_bundle import digest, sources


def test_the_same_bundle_gives_the_same_bytes_and_an_altered_one_none(
    bundle: Path, tmp_path: Path
) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    for path in bundle.rglob("*"):
        os.utime(path, (1, 1))
    pack(bundle, tmp_path / "b.tgz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tgz").read_bytes()
    (bundle / "scenarios/notes/a 1.txt").write_text("PLAN: run")
    with pytest.raises(PrerequisiteError, match=r"altered: scenarios/notes/a 1\.txt"):
        pack(bundle, tmp_path / "c.tar.gz")
    assert not (tmp_path / "c.tar.gz").exists()


def plain(name: str, data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, data


def with_header(**pax: str) -> tuple[tarfile.TarInfo, bytes]:
    info, data = plain("scenarios/extra")
    info.pax_headers = {name.replace("__", "."): value for name, value in pax.items()}
    return info, data


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
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
    "device": (special("scenarios/x", tarfile.CHRTYPE), "not a plain file"),
    "pipe": (special("scenarios/x", tarfile.FIFOTYPE), "not a plain file"),
    "folder": (special("scenarios", tarfile.DIRTYPE), "not a plain file"),
    "not in the manifest": (plain("scenarios/extra"), "is not in the manifest"),
    "sparse map": (with_header(GNU__sparse__map="a,b"), "not a tar.gz|header that no packed"),
    "sparse size": (with_header(GNU__sparse__size="abc"), "not a tar.gz|header that no packed"),
    "sparse": (
        with_header(GNU__sparse__map="0,1", GNU__sparse__size="1"),
        "not a plain file|header that no packed",
    ),
    "time inf": (with_header(mtime="inf"), "header that no packed bundle has: 'mtime'"),
    "time nan": (with_header(mtime="nan"), "header that no packed bundle has"),
    "time 1e300": (with_header(mtime="1e300"), "header that no packed bundle has"),
    "unknown header": (with_header(comment="x"), "header that no packed bundle has"),
    "long name": (plain("scenarios/" + "n" * 300), "too long"),
    "deep name": (plain("d/" * 2000 + "f"), "too long"),
    "terminal": (plain("scenarios/\x1b[31m"), r"\\x1b"),
    "twice": (plain("scenarios/notes/a 1.txt", b"PLAN: walk"), "twice"),
    "twice but for case": (
        plain("scenarios/NOTES/a 1.txt", b"PLAN: walk"),
        "is not in the manifest",
    ),
    "another size": (
        plain("scenarios/notes/B - 2.txt", b"PLAN: a rest that is longer"),
        "manifest lists|twice",
    ),
}


def with_member(source: Path, target: Path, member: tuple[tarfile.TarInfo, bytes]) -> None:
    """The archive and one more member at its end."""
    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for info in old:
            new.addfile(info, old.extractfile(info))
        new.addfile(member[0], io.BytesIO(member[1]))


def packed_anew(target: Path, manifest: bytes, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(target, "w:gz") as made:
        for info, data in (plain(MANIFEST, manifest), *members):
            made.addfile(info, io.BytesIO(data))
    return target


def manifest_of(*paths: str, **changed: object) -> bytes:
    files = [
        {"path": path, "size": 1, "sha256": digest(b"x"), "source": "s", "date": "d"}
        for path in paths
    ]
    return json.dumps({"format": 1, "files": files, **changed}).encode()


def hub_entry(**changed: object) -> dict[str, object]:
    entry = {
        "id": "o/n",
        "config": None,
        "revision": None,
        "folder": "hf/datasets/o___n",
        "source": "s",
    }
    return {**entry, **changed}


BAD_MANIFESTS = {
    "a file is a folder": (manifest_of("a", "a/b"), "is a file, and a folder of 'a/b'"),
    "two names but for case": (manifest_of("a", "A"), "differ in case only"),
    "long name": (manifest_of("n" * 300), "too long"),
    "deep name": (manifest_of("d/" * 2000 + "f"), "too long"),
    "terminal in a name": (manifest_of("\x1b[31m"), r"\\x1b"),
    "terminal in a task": (manifest_of("a", tasks=["\x1b[31m"]), r"\\x1b"),
    "terminal in a field": (manifest_of("a", **{"\x1b[31m": 1}), r"\\x1b"),
    "terminal in a revision": (manifest_of("a", hub=[hub_entry(revision="\x9b31m")]), r"\\x9b"),
    "a data set in another place": (
        manifest_of("a", hub=[hub_entry(folder="scenarios")]),
        "not in hf/datasets/",
    ),
    "what a change leaves": (manifest_of(".staging-x/a"), "lists itself"),
}


@pytest.mark.parametrize("name", BAD_MANIFESTS)
def test_hostile_manifests_are_refused_and_nothing_of_them_reaches_a_terminal(
    name: str, tmp_path: Path
) -> None:
    manifest, message = BAD_MANIFESTS[name]
    source = packed_anew(tmp_path / "a.tar.gz", manifest, plain("a"))
    with pytest.raises(PrerequisiteError, match=message) as raised:
        unpack(source, tmp_path / "out", sources())
    assert all(letter.isprintable() or letter == "\n" for letter in str(raised.value))
    assert not (tmp_path / "out").exists()


RECORD = b"12 path=abc\n"


@pytest.mark.parametrize(
    ("size", "times", "message"),
    [(len(RECORD), 3000, r"not a tar\.gz"), (1 << 30, 1, "header is larger")],
)
def test_headers_that_follow_headers_or_ask_for_all_the_memory(
    size: int, times: int, message: str, tmp_path: Path
) -> None:
    header = tarfile.TarInfo("x")
    header.type = tarfile.XHDTYPE
    header.size = size
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        for _ in range(times):
            file.write(header.tobuf(tarfile.USTAR_FORMAT) + RECORD.ljust(512, b"\0"))
        file.write(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT) + bytes(4096))
    with pytest.raises(PrerequisiteError, match=message):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out", sources())
    assert not (tmp_path / "out").exists()


def test_long_names_and_other_letters_come_through(tmp_path: Path) -> None:
    given = tmp_path / "given" / "scenarios" / "x"
    name = "n" * 200
    (given / name).mkdir(parents=True)
    for file in (f"{name}/{name}.txt", "é ü.txt"):
        (given / file).write_text("x")
    manifest = import_folder(tmp_path / "given", tmp_path / "b", sources(), lambda _line: None)
    pack(tmp_path / "b", tmp_path / "a.tar.gz")
    assert unpack(tmp_path / "a.tar.gz", tmp_path / "c", sources()) == read_manifest(tmp_path / "b")
    assert len(manifest.files) == 2
    told = packed_anew(
        tmp_path / "told.tar.gz", manifest_of("a", tasks=["questions", "notes"]), plain("a")
    )
    assert unpack(told, tmp_path / "d", sources()).tasks == [], (
        "the tasks are those that were found"
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_leave_nothing(name: str, bundle: Path, tmp_path: Path) -> None:
    member, message = HOSTILE[name]
    pack(bundle, tmp_path / "good.tar.gz")
    with_member(tmp_path / "good.tar.gz", tmp_path / "bad.tar.gz", member)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(PrerequisiteError, match=message):
        unpack(tmp_path / "bad.tar.gz", tmp_path / "new" / "out", sources())
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_archive_or_one_beyond_the_limit_leaves_nothing(
    bundle: Path, tmp_path: Path
) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    whole = (tmp_path / "a.tar.gz").read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"no archive",
        b"",
        whole[:200] + bytes(50) + whole[250:],
        whole,
    ):
        (tmp_path / "b.tar.gz").write_bytes(content)
        limit, said = (100, "more than 100 bytes") if content == whole else (10**9, ".")
        with pytest.raises(PrerequisiteError, match=said):
            unpack(tmp_path / "b.tar.gz", tmp_path / "out", sources(), max_bytes=limit)
        assert not (tmp_path / "out").exists()
        assert not list(tmp_path.glob(".out*"))


def test_content_that_was_exchanged_is_found(bundle: Path, tmp_path: Path) -> None:
    pack(bundle, tmp_path / "a.tar.gz")
    with (
        tarfile.open(tmp_path / "a.tar.gz") as old,
        tarfile.open(tmp_path / "b.tar.gz", "w:gz") as new,
    ):
        for info in old:
            held = old.extractfile(info)
            assert held is not None
            new.addfile(info, io.BytesIO(held.read().replace(b"PLAN: walk", b"PLAN: jump")))
    with pytest.raises(PrerequisiteError, match=r"altered: scenarios/notes/a 1\.txt"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "out", sources())
    assert not (tmp_path / "out").exists()


def test_an_archive_is_a_file_outside_the_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    for inside in (bundle / "x.tar.gz", tmp_path / "link" / "new" / "x.tar.gz"):
        with pytest.raises(ConfigError, match=naming("inside the data bundle")):
            pack(bundle, inside)
    (tmp_path / "folder.tar.gz").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        pack(bundle, tmp_path / "folder.tar.gz")
    assert not compare_files(bundle, read_manifest(bundle))


def test_what_a_killed_pack_left_is_written_over_and_an_empty_folder_filled_where_it_is(
    bundle: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    empty = tmp_path / "empty"
    link = tmp_path / "link"
    for folder in (out, empty):
        folder.mkdir()
    with (out / ".a.tar.gz.part").open("wb") as other:
        other.write(b"x" * 100_000)
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match=naming("another process")):
            pack(bundle, out / "a.tar.gz")
    pack(bundle, out / "a.tar.gz")
    assert [path.name for path in out.iterdir()] == ["a.tar.gz"]
    link.symlink_to(empty)
    inode = empty.stat().st_ino
    manifest = unpack(out / "a.tar.gz", link, sources())
    assert link.is_symlink()
    assert empty.stat().st_ino == inode  # a mount cannot be renamed away
    assert not compare_files(empty, manifest)
