from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.data.bundle import MANIFEST, compare_files, manifest_sha256, parse_manifest, read_manifest
from eval_factory.data.sources import relative_path

SET = "scenarios/questions/data/set.json"


def test_a_fresh_bundle_is_as_its_manifest_says(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    assert not compare_files(bundle, manifest)
    assert manifest.tasks == ["notes", "questions"]
    entry = manifest.paths()[SET]
    assert (entry.size, entry.source) == (16, "import:given")
    assert manifest.text() == (bundle / MANIFEST).read_text("utf-8")
    assert len(manifest_sha256(bundle)) == 64


def test_missing_altered_and_extra_files_are_named(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    (bundle / SET).write_bytes(b'{"1": "Is it!"}\n')  # of the same size
    (bundle / "scenarios/notes/a 1.txt").unlink()
    (bundle / "scenarios/notes/new.txt").write_text("x")
    assert compare_files(bundle, manifest).lines() == [
        "missing: scenarios/notes/a 1.txt", f"altered: {SET}", "extra: scenarios/notes/new.txt",
    ]  # fmt: skip
    assert compare_files(bundle, manifest, only=[SET]).lines() == [f"altered: {SET}"]


def test_a_link_is_no_file_of_a_bundle(bundle: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (bundle / "scenarios/questions").rename(elsewhere)
    (bundle / "scenarios/questions").symlink_to(elsewhere)
    lines = compare_files(bundle, read_manifest(bundle)).lines()
    assert lines == [f"altered: {SET}", "extra: scenarios/questions"]


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../b", "a//b", "./a", "", "a\\b", "C:/x", "a/\nb", "a/"])
def test_paths_that_lead_elsewhere_are_refused(path: str, bundle: Path) -> None:
    with pytest.raises(ValueError, match=r"path|drive"):
        relative_path(path)
    document = json.loads((bundle / MANIFEST).read_text("utf-8"))
    document["files"][0]["path"] = path
    with pytest.raises(PrerequisiteError, match="is no manifest"):
        parse_manifest(json.dumps(document), "m")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"format": 1, "surprise": 1}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(PrerequisiteError, match="is no manifest of a data bundle"):
        parse_manifest(text, "m")


def test_a_folder_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="eval-factory data pull"):
        read_manifest(tmp_path)
