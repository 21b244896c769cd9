"""A change of a bundle that is interrupted at any of its steps is finished, or has never been."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.data import bundle as bundles
from eval_factory.data.bundle import (
    COMMIT,
    LOCK,
    MANIFEST,
    compare_files,
    read_manifest,
)
from eval_factory.data.bundle_changes import (
    finish_interrupted_change,
    has_unfinished_change,
    open_staging,
)
from eval_factory.data.sources import relative_path
from facts import naming
from invented_bundle import QUESTIONS, sources


class Killed(BaseException):
    """What no code catches."""


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies when a bundle's files are touched for the `step`th time; nothing is cleaned up."""
    count = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            nonlocal count
            count += 1
            if count >= step:
                raise Killed
            return original(*arguments, **settings)

        return call

    for owner, name in ((Path, "replace"), (Path, "unlink"), (shutil, "rmtree")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


def content_of(root: Path) -> dict[str, str]:
    return {path: file.sha256 for path, file in read_manifest(root).file_by_path().items()}


def change(root: Path, revision: str) -> None:
    """As a pull does: files are new or other ones, and the data set's new revision takes the place of the old one."""
    folder = f"hf/datasets/org___some-calc/default/0.0.0/{revision}"
    with open_staging(root, sources()) as stage:
        for name in (
            "scenarios/questions/data/set.json",
            f"scenarios/{revision}.txt",
            f"{folder}/x.arrow",
        ):
            stage.add_file(name, "s").write_text(revision)
        one = {
            "id": "org/Some-Calc",
            "config": None,
            "revision": revision,
            "folder": folder,
            "source": "s",
        }
        stage.hub.append(bundles.HubEntry.model_validate(one))
        stage.commit()


def test_a_change_may_die_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(tmp_path / "before", "a" * 40)
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    change(tmp_path / "after", "b" * 40)
    before = content_of(tmp_path / "before")
    after = content_of(tmp_path / "after")
    ended = []
    for step in range(1, 100):
        root = tmp_path / f"b{step}"
        shutil.copytree(tmp_path / "before", root)
        try:
            with monkeypatch.context() as patched:
                killed_at(step, patched)
                change(root, "b" * 40)
        except Killed:
            pass
        else:
            break
        half = has_unfinished_change(root)
        finish_interrupted_change(root)
        assert content_of(root) in ((after,) if half else (before, after))
        ended.append(content_of(root) == after)
        assert not compare_files(root, read_manifest(root))
        assert {path.name for path in root.iterdir() if path.name.startswith(".")} <= {LOCK}
    assert ended == sorted(ended)  # first the old one, from some step on the new one
    assert {False, True} == set(ended)
    assert content_of(root) == after
    assert not list((tmp_path / "after").rglob("a" * 40))


def test_a_first_import_may_die_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(tmp_path / "whole", "a" * 40)
    for step in range(1, 100):
        root = tmp_path / f"b{step}"
        try:
            with monkeypatch.context() as patched:
                killed_at(step, patched)
                change(root, "a" * 40)
        except Killed:
            change(root, "a" * 40)  # the same command goes on
        else:
            break
        assert content_of(root) == content_of(tmp_path / "whole")
        assert not compare_files(root, read_manifest(root))
    assert step > 5


def test_control_c_does_not_leave_a_change_half_done(
    tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace
    interrupts = iter([KeyboardInterrupt])

    def interrupted_once(path: Path, target: Path) -> Path:
        if target.name == "set.json" and next(interrupts, None):
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        change(bundle, "a" * 40)
    assert (bundle / "scenarios/questions/data/set.json").read_text() == "a" * 40
    assert not compare_files(bundle, read_manifest(bundle))


def test_what_a_killed_command_left_is_no_part_of_the_bundle_and_is_swept(bundle: Path) -> None:
    left = bundle / ".staging-x" / "files"
    left.mkdir(parents=True)
    (left / "a").write_text("x")
    assert not compare_files(bundle, read_manifest(bundle))
    with FileLock(bundle / LOCK):
        finish_interrupted_change(bundle)
        assert left.exists()  # somebody is at work in it
    finish_interrupted_change(bundle)
    assert not left.parent.exists()
    (bundle / COMMIT).mkdir()
    shutil.copy(bundle / MANIFEST, bundle / COMMIT / MANIFEST)
    assert (bundle / LOCK).stat().st_mode & 0o777 == 0o600
    with FileLock(bundle / LOCK), pytest.raises(BusyError, match="another process is changing"):
        finish_interrupted_change(bundle)  # files are being moved: one waits
    finish_interrupted_change(bundle)
    assert not (bundle / COMMIT).exists()


@pytest.mark.parametrize("name", [".staging-x", COMMIT])
def test_somebody_elses_folders_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine" / name).mkdir(parents=True)
    (tmp_path / "mine" / name / "thesis.txt").write_text("x")
    (tmp_path / "mine" / "other.txt").write_text("x")
    finish_interrupted_change(tmp_path / "mine")
    with (
        pytest.raises(ConfigError, match=naming("neither empty", "a data bundle")),
        open_staging(tmp_path / "mine", sources()),
    ):
        pass
    assert (tmp_path / "mine" / name / "thesis.txt").read_text() == "x"


@pytest.mark.parametrize("kind", ["folder", "link", "file"])
def test_what_stands_in_a_files_place_is_said_before_anything_is_moved(
    kind: str, bundle: Path, tmp_path: Path
) -> None:
    place = bundle / "hf"
    if kind == "folder":
        (place / "datasets/org___some-calc/default/0.0.0" / ("a" * 40) / "x.arrow").mkdir(
            parents=True
        )
    elif kind == "link":
        place.symlink_to(tmp_path)
    else:
        place.write_text("x")
    with pytest.raises(PrerequisiteError, match="nothing was changed"):
        change(bundle, "a" * 40)
    assert (bundle / "scenarios/questions/data/set.json").read_bytes() == QUESTIONS
    assert not (bundle / COMMIT).exists()


def test_inside_a_bundle(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle)
    for path in (bundle, bundle / "results" / "x", tmp_path / "link" / "x"):
        with pytest.raises(ConfigError, match=naming("output folder", "inside the data bundle")):
            bundles.refuse_inside_bundle(bundle, path, described_as="an output folder")
    bundles.refuse_inside_bundle(bundle, tmp_path / "results", described_as="an output folder")
    bundles.refuse_inside_bundle(
        bundle, bundle.with_name("bundle-2"), described_as="an output folder"
    )


@pytest.mark.parametrize("name", ["../a.txt", "a/b.txt", "\x1b[31m.txt", 7])
def test_a_list_of_files_names_files(name: object, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps({"names": [name]}))
    with pytest.raises(PrerequisiteError, match=naming("a list of files")):
        bundles.read_file_list(tmp_path / "list.json")


SET = "scenarios/questions/data/set.json"


def test_a_bundle_is_as_its_manifest_says_or_what_is_not_is_named(bundle: Path) -> None:
    manifest = read_manifest(bundle)
    assert not compare_files(bundle, manifest)
    assert manifest.tasks == ["notes", "questions"]
    entry = manifest.file_by_path()[SET]
    assert (entry.size, entry.source) == (16, "import:given")
    assert manifest.text() == (bundle / MANIFEST).read_text("utf-8")
    (bundle / SET).write_bytes(b'{"1": "Is it!"}\n')  # of the same size
    (bundle / "scenarios/notes/a 1.txt").unlink()
    (bundle / "scenarios/notes/new.txt").write_text("x")
    assert compare_files(bundle, manifest).lines() == [
        "missing: scenarios/notes/a 1.txt",
        f"altered: {SET}",
        "extra: scenarios/notes/new.txt",
    ]
    assert compare_files(bundle, manifest, only=[SET]).lines() == [f"altered: {SET}"]


def test_a_link_is_no_file_of_a_bundle(bundle: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (bundle / "scenarios/questions").rename(elsewhere)
    (bundle / "scenarios/questions").symlink_to(elsewhere)
    lines = compare_files(bundle, read_manifest(bundle)).lines()
    assert lines == [f"altered: {SET}", "extra: scenarios/questions"]


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../b", "a//b", "./a", "", "a\\b", "C:/x", "a/\nb", "a/"]
)
def test_paths_that_lead_elsewhere_are_refused(path: str, bundle: Path) -> None:
    with pytest.raises(ValueError, match=r"path|drive"):
        relative_path(path)
    document = json.loads((bundle / MANIFEST).read_text("utf-8"))
    document["files"][0]["path"] = path
    with pytest.raises(PrerequisiteError, match="is not the manifest"):
        bundles.parse_manifest(json.dumps(document), "m")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"format": 1, "surprise": 1}'])
def test_what_is_no_manifest_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match=naming("not the manifest")):
        bundles.parse_manifest(text, "m")
    with pytest.raises(PrerequisiteError, match="eval-factory data pull"):
        read_manifest(tmp_path)
