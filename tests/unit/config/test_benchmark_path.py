from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.config.evaluation import find_benchmark


def found(given: str, beside: Path | None) -> tuple[Path | None, list[str]]:
    problems: list[str] = []
    return find_benchmark(given, beside, "key", problems), problems


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """(the current one, the file's)"""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here", tmp_path / "there"


def test_from_the_current_folder_or_beside_the_file(folders: tuple[Path, Path]) -> None:
    here, there = folders
    (there / "b.yml").touch()
    assert found("b.yml", there) == (there / "b.yml", [])
    assert found("b.yml", None) == (None, [f"key: there is no file {here / 'b.yml'}"])
    (here / "c.yml").touch()
    assert found("c.yml", there) == (here / "c.yml", [])


def test_nowhere(folders: tuple[Path, Path]) -> None:
    here, there = folders
    assert found("b.yml", there) == (None, [f"key: there is no file {here / 'b.yml'} or {there / 'b.yml'}"])


def test_two_files_may_be_meant(folders: tuple[Path, Path]) -> None:
    here, there = folders
    (here / "b.yml").touch()
    (there / "b.yml").symlink_to(here / "b.yml")
    assert found("b.yml", there)[0] == here / "b.yml"
    (there / "b.yml").unlink()
    (there / "b.yml").touch()
    path, (problem,) = found("b.yml", there)
    assert path is None
    assert f"may be {here / 'b.yml'} (from the current folder) or {there / 'b.yml'} (beside" in problem
