"""Published sets with pictures: their converters, where the pictures are, and what is wrong with one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from eval_factory.data.importing import looked_through
from eval_factory.data.pull import pull
from eval_factory.data.sources import load_sources
from eval_factory.endpoint import media
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.own_data import faults
from eval_factory.tasks.published_choices import ChoiceFile, read_choice_file
from invented_bundle import Origin
from published_rows import (
    medxpertqa_mm_row,
    path_vqa_rows,
    slake_rows,
    write_json,
    write_json_lines,
    write_parquet,
    write_zip,
)
from seeing_endpoint import picture, tone

RED, JPEG = picture("red"), picture("blue", kind="JPEG")


def file_name(data: bytes, suffix: str) -> str:
    return f"{hashlib.sha256(data).hexdigest()}.{suffix}"


def slake(folder: Path, rows: list[dict[str, Any]], members: dict[str, bytes] | None = None) -> ChoiceFile:
    write_zip(folder / "imgs.zip", {"imgs/xmlab1/source.jpg": RED} if members is None else members)
    return read_choice_file(write_json(folder / "test.json", rows), "slake", folder / "out")


def test_slake(tmp_path: Path) -> None:
    found = slake(tmp_path, slake_rows(1, "red"))
    first, second = found.of_tier("en")
    assert (first.id, first.question, first.choices, first.right) == ("10", "Is the disc red?", ("Yes",), 0)
    assert first.groups == {"answer_type": "CLOSED", "modality": "CT", "location": "Lung", "q_lang": "en"}
    assert (first.cluster, second.groups["answer_type"]) == (("img_id", "1"), "OPEN")
    assert [one.id for one in found.of_tier("zh")] == ["12"]
    assert first.pictures == (file_name(RED, "png"),), "named by what it is, not by .jpg"
    assert (tmp_path / "out" / first.pictures[0]).read_bytes() == RED
    assert len(list((tmp_path / "out").iterdir())) == 1


def test_medxpertqa_mm_has_several_pictures_a_question(tmp_path: Path) -> None:
    write_zip(tmp_path / "images.zip", {"images/b.jpeg": RED, "a.jpeg": JPEG, "images/": b""})
    rows = [medxpertqa_mm_row(1, ["b.jpeg", "a.jpeg"]), medxpertqa_mm_row(2, ["a.jpeg"])]
    found = read_choice_file(write_json_lines(tmp_path / "MM/test.jsonl", rows), "medxpertqa_mm")
    assert found.problems == []
    assert [one.pictures for one in found.questions] == [
        (file_name(RED, "png"), file_name(JPEG, "jpeg")), (file_name(JPEG, "jpeg"),),
    ]  # fmt: skip
    assert (found.questions[0].question, len(found.questions[0].choices)) == ("What is right in case 1?", 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["MM", "images.zip"], "looked through alone"


def test_path_vqa(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "data/test-0.parquet", path_vqa_rows("red", RED) + path_vqa_rows("blue", JPEG))
    found = read_choice_file(file, "path_vqa")
    assert [(one.id, one.choices[0], one.groups["answer_type"]) for one in found.questions] == [
        ("row-1", "yes", "closed"), ("row-2", "red", "open"), ("row-3", "no", "closed"), ("row-4", "blue", "open"),
    ]  # fmt: skip
    assert found.questions[2].pictures == (file_name(JPEG, "jpeg"),)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"img_name": "xmlab2/source.jpg"}, "img_name: names a picture that is not in the archive"),
        *(
            ({"img_name": name}, "img_name: leaves the folder of the pictures")
            for name in ("../out.png", "/out.png", "xmlab1/../../out.png", "..\\out.png")
        ),
        ({"img_name": "cut.png"}, "img_name: the picture is a broken picture (image/png): OSError"),
        ({"img_name": "tone.wav"}, "img_name: the picture is no picture (audio/wav)"),
        ({"img_name": "text.txt"}, "img_name: the picture is no PNG, JPEG, GIF or WebP picture, and no WAV"),
        ({"img_name": "damaged.png"}, "img_name: names a picture that the archive does not give: BadZipFile"),
        ({"img_name": ""}, "img_name: names a picture that is not in the archive"), ({"img_name": None}, "img_name: holds no picture"),
        ({"img_name": []}, "img_name: names no picture"), ({"answer": " "}, "answer: is empty"),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_its_row_and_nothing_is_written_for_it(
    changed: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    members = {"imgs/cut.png": RED[:99], "imgs/tone.wav": tone(440), "imgs/text.txt": b"x", "../out.png": RED}
    good, bad, _ = slake_rows(1, "red")
    write_zip(tmp_path / "imgs.zip", {"imgs/xmlab1/source.jpg": RED, **members, "imgs/damaged.png": JPEG})
    archive = (tmp_path / "imgs.zip").read_bytes()
    (tmp_path / "imgs.zip").write_bytes(archive.replace(JPEG, JPEG[:-1] + b"x"))
    file = write_json(tmp_path / "test.json", [good, {**bad, **changed}])
    (found,) = read_choice_file(file, "slake", tmp_path / "out").problems
    assert found.startswith(f"row 2, column {problem}")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [file_name(RED, "png")]
    assert not (tmp_path.parent / "out.png").exists()


def test_a_file_that_is_too_large_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_factory.tasks.published_pictures.MAX_FILE", len(RED) - 1)
    (problem, _, _) = slake(tmp_path, slake_rows(1, "red")).problems
    assert problem.startswith("row 1, column img_name: names a file of more than")
    assert len(RED) < media.MAX_FILE


def test_an_archive_that_is_not_there_or_none(tmp_path: Path) -> None:
    file = write_json(tmp_path / "test.json", slake_rows(1, "red"))
    (missing,) = read_choice_file(file, "slake").problems
    assert missing == "is not of the published form: there is no imgs.zip, which holds its pictures"
    (tmp_path / "imgs.zip").write_bytes(b"PK")
    (broken,) = read_choice_file(file, "slake").problems
    assert "imgs.zip, which holds its pictures, is no usable zip file" in broken


def test_pictures_in_rows(tmp_path: Path) -> None:
    rows = [row for data in (RED, RED[:99]) for row in path_vqa_rows("red", data)[:1]]
    file = write_parquet(tmp_path / "a.parquet", [*rows, {**rows[0], "image": {"bytes": None, "path": "x.jpg"}}])
    assert read_choice_file(file, "path_vqa").problems == [
        "row 2, column image: the picture is a broken picture (image/png): OSError", "row 3, column image: holds no picture",
    ]  # fmt: skip


@pytest.mark.parametrize("task", ["slake", "path_vqa", "medxpertqa_mm", "vqa_rad"])
def test_a_folder_in_the_published_layout(task: str, tmp_path: Path) -> None:
    known = load_framework().task(task)
    assert known is not None
    layout = known.helm.parameters["data_path"].layout
    assert faults(layout, tmp_path, {}), "an empty folder"
    write_zip(tmp_path / "imgs.zip", {"imgs/xmlab1/source.jpg": RED})
    write_zip(tmp_path / "images.zip", {"a.png": RED})
    write_json(tmp_path / "test.json", slake_rows(1, "red"))
    write_json_lines(tmp_path / "MM/test.jsonl", [medxpertqa_mm_row(1, ["a.png"])])
    write_parquet(tmp_path / "data/test-00000-of-00001-x.parquet", path_vqa_rows("red", RED))
    assert faults(layout, tmp_path, {}) == []
    write_json(tmp_path / "test.json", slake_rows(2, "red"))
    write_json_lines(tmp_path / "MM/test.jsonl", [medxpertqa_mm_row(1, ["b.png"])])
    write_parquet(tmp_path / "data/test-00000-of-00001-x.parquet", path_vqa_rows("red", RED[:99]))
    assert "row 1, column" in faults(layout, tmp_path, {})[0] or "line 1, column" in faults(layout, tmp_path, {})[0]


def test_slake_is_pulled_with_its_pictures_and_looked_through(tmp_path: Path) -> None:
    where, table = "/datasets/BoKelvin/SLAKE/resolve/main", tmp_path / "a"
    write_zip(table / "imgs.zip", {"imgs/xmlab1/source.jpg": RED})
    write_json(table / "test.json", slake_rows(1, "red"))
    with Origin() as origin:
        origin.files |= {f"{where}/{name}": (table / name).read_bytes() for name in ("imgs.zip", "test.json")}
        sources, said = load_sources().with_origins({"hub": origin.url, "raw": origin.url}), list[str]()
        pull(["slake"], tmp_path / "bundle", sources, said.append)
        assert "slake: pulled; 3 questions in test.json; 2 files" in said
    assert (tmp_path / "bundle/scenarios/slake/imgs.zip").is_file()
    assert looked_through(tmp_path / "bundle/scenarios/slake/test.json", "slake", "x") == "3 questions in test.json"
