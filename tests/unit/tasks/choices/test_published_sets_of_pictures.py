"""Published sets with pictures: their converters, where the pictures are, and what is wrong with one."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

import published_rows as made
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.own_data import problems_of_data
from eval_factory.tasks.published_choices import questions_of_tier, read_choice_file
from facts import says
from seeing_endpoint import picture, tone

RED = picture("red")
JPEG = picture("blue", kind="JPEG")
RED_FILE, JPEG_FILE = (
    f"{hashlib.sha256(one).hexdigest()}.{end}" for one, end in ((RED, "png"), (JPEG, "jpeg"))
)


def test_slake(tmp_path: Path) -> None:
    found = read_choice_file(
        made.write_sets_with_pictures(tmp_path, RED) / "test.json", "slake", tmp_path / "out"
    )
    first, second = questions_of_tier(found.rows, "en")
    assert (first.id, first.question, first.choices, first.right) == (
        "10",
        "Is the disc red?",
        ("Yes",),
        0,
    )
    assert first.groups == {
        "answer_type": "CLOSED",
        "modality": "CT",
        "location": "Lung",
        "q_lang": "en",
    }
    assert (first.cluster, second.groups["answer_type"]) == (("img_id", "1"), "OPEN")
    assert first.pictures == (RED_FILE,), "named by what it is, not .jpg"
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == {
        RED_FILE: RED
    }
    (tmp_path / "imgs.zip").write_bytes(b"PK")
    says(read_choice_file(tmp_path / "test.json", "slake").problems, "usable zip file")


def test_path_vqa(tmp_path: Path) -> None:
    rows = made.path_vqa_rows("red", RED) + made.path_vqa_rows("blue", JPEG)
    found = read_choice_file(made.write_parquet(tmp_path / "a.parquet", rows), "path_vqa")
    assert [
        (one.id, one.choices[0], one.groups["answer_type"], one.pictures) for one in found.rows[1:3]
    ] == [
        ("row-2", "red", "open", (RED_FILE,)),
        ("row-3", "no", "closed", (JPEG_FILE,)),
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *(
            (name, "leaves the folder of the pictures")
            for name in ("../x.png", "/x.png", "a/../../x.png", "..\\x.png")
        ),
        ("cut.png", "the picture is a broken picture (image/png): OSError"),
        ("tone.wav", "the picture is not a picture (audio/wav)"),
        ("text.txt", "the picture is neither a PNG, JPEG, GIF or WebP"),
        ("damaged.png", "names a picture that cannot be read from the archive: BadZipFile"),
        *(
            (name, "names a picture that is not in the archive")
            for name in ("xmlab2/source.jpg", "")
        ),
        (None, "holds no picture"),
        ([], "names no picture"),
    ],
)
def test_each_fault_is_told_with_its_row_and_nothing_is_written_for_it(
    name: Any, problem: str, tmp_path: Path
) -> None:
    members = {
        "imgs/cut.png": RED[:99],
        "imgs/tone.wav": tone(440),
        "text.txt": b"x",
        "../x.png": RED,
    }
    good, bad, _ = made.slake_rows(1, "red")
    members |= {"imgs/xmlab1/source.jpg": RED, "imgs/damaged.png": JPEG}
    archive = made.write_zip(tmp_path / "imgs.zip", members)
    archive.write_bytes(archive.read_bytes().replace(JPEG, JPEG[:-1] + b"x"))
    file = made.write_json(tmp_path / "test.json", [good, {**bad, "img_name": name}])
    (found,) = read_choice_file(file, "slake", tmp_path / "out").problems
    assert found.startswith(f"row 2, column img_name: {problem}")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [RED_FILE]


@pytest.mark.parametrize("task", ["slake", "path_vqa", "medxpertqa_mm", "vqa_rad"])
def test_a_folder_in_the_published_layout(task: str, tmp_path: Path) -> None:
    (known,) = (one for one in load_framework().evaluations if one.name == task)
    layout = known.helm.parameters["data_path"].layout
    assert problems_of_data(layout, made.write_sets_with_pictures(tmp_path, RED), {}) == []
    first, *_ = problems_of_data(layout, made.write_sets_with_pictures(tmp_path, RED[:99]), {})
    says(first, "a broken picture", "(image/png): OSError")
