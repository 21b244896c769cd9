"""Published sets with pictures through the real helm-run: from a bundle without a network, and from folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.data.importing import import_folder
from eval_factory.data.sources import load_sources
from eval_factory.helm_plugin.choice_scenario import INSTRUCTIONS
from integration.support import Outcome, Run
from published_rows import (
    medxpertqa_mm_row,
    path_vqa_rows,
    slake_rows,
    write_json,
    write_json_lines,
    write_parquet,
    write_zip,
)
from seeing_endpoint import SeeingEndpoint, content_of, picture

COLOURS = ("red", "blue", "green")
FORMS = (("PNG", "RGBA"), ("GIF", "P"), ("JPEG", "RGB"))


def drawn(count: int) -> list[tuple[str, bytes]]:
    """Colours and pictures, of several kinds and modes, each another one."""
    colours = [COLOURS[n // 2 % 3] for n in range(count)]
    forms = [FORMS[n % 3] for n in range(count)]
    return [
        (colour, picture(colour, word=str(n), kind=forms[n][0], mode=forms[n][1])) for n, colour in enumerate(colours)
    ]


def sees(prompt: str) -> str:
    colour = prompt.partition("[")[2].partition("]")[0]
    return f"{colour}." if "hich colour" in prompt else "yes" if colour == "red" else "no"


def by_answer_type(outcome: Outcome) -> dict[str, float]:
    (task,) = outcome.document()["results"]["groups"].values()
    found = task["groups"]["answer_type"]["groups"]
    return {name: one["metrics"]["score"]["scores"]["quasi_exact_match"]["value"] for name, one in found.items()}


def test_slake_from_a_bundle(run_program: Run, tmp_path: Path) -> None:
    """Closed and open questions apart; questions of one picture are not independent; Chinese ones are not asked."""
    images = drawn(12)
    folder = tmp_path / "folder" / "scenarios" / "slake"
    write_zip(folder / "imgs.zip", {f"imgs/xmlab{n}/source.jpg": data for n, (_, data) in enumerate(images)})
    write_json(folder / "test.json", [row for n, (colour, _) in enumerate(images) for row in slake_rows(n, colour)])
    said: list[str] = []
    import_folder(tmp_path / "folder", tmp_path / "bundle", load_sources(), said.append)
    assert "slake: 36 questions in test.json" in said
    with SeeingEndpoint(lambda prompt: "no" if "Is the" in prompt else sees(prompt)) as endpoint:
        outcome = run_program("slake", endpoint.url, "--offline", "--data_dir", str(tmp_path / "bundle"))
    assert outcome.returncode == 0, outcome.stderr
    sent = {content_of(part) for parts in endpoint.parts for part in parts if part["type"] == "image_url"}
    assert sent == {data for _, data in images}, "the published bytes"
    assert len(endpoint.parts) == 24
    assert outcome.document()["main_metric"] == "quasi_exact_match"
    assert by_answer_type(outcome) == {"CLOSED": pytest.approx(8 / 12), "OPEN": 1.0}
    notes = "".join(outcome.document()["validity"]["notes"])
    assert "24 instances share 12 sources (image)" in notes
    assert "always" in json.dumps(outcome.document()["validity"])


def test_path_vqa_from_a_folder(run_program: Run, tmp_path: Path) -> None:
    """In several files; the same questions with other pictures show that the pictures are needed."""
    images = drawn(12)
    for part in (0, 1):
        rows = [row for colour, image in images[part::2] for row in path_vqa_rows(colour, image)]
        write_parquet(tmp_path / f"own/data/test-0000{part}-of-00002.parquet", rows)
    params = {"extra": {"data_path": str(tmp_path / "own"), "blind_control": True}}
    with SeeingEndpoint(sees) as endpoint:
        outcome = run_program("path_vqa", endpoint.url, params=params)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["quasi_exact_match"] == 1.0
    assert by_answer_type(outcome) == {"closed": 1.0, "open": 1.0}
    lines = [json.loads(line) for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()]
    assert {"test-00000-of-00002-row-1", "test-00001-of-00002-row-12"} <= {line["id"] for line in lines}
    found = outcome.document()["validity"]["asked_again"]["blind"]
    assert found["blank"]["ci_high"] < 0
    assert "12 sources (image)" in "".join(outcome.document()["validity"]["notes"])
    assert len(outcome.document()["provenance"]["dataset_files"]) >= 2


def test_medxpertqa_with_pictures_is_asked_as_without(run_program: Run, tmp_path: Path) -> None:
    names = [[f"MM-{n}-{letter}.jpeg" for letter in "ab"[: 1 + n % 2]] for n in range(6)]
    members = {f"images/{name}": picture(COLOURS[n % 3], word=name) for n, shown in enumerate(names) for name in shown}
    write_zip(tmp_path / "own" / "images.zip", members)
    write_json_lines(tmp_path / "own/MM/test.jsonl", [medxpertqa_mm_row(n, shown) for n, shown in enumerate(names)])
    seen: list[str] = []

    def answer(prompt: str) -> str:
        if "case " not in prompt:
            return "A"  # of the preflight
        seen.append(prompt)
        number = int(prompt.partition("case ")[2][0])
        letter = prompt.partition(f". Choice {'ABCDE'[number % 5]}{number}\n")[0][-1]
        return letter if number == 5 else f"{letter} \nSo"  # what follows on a line break is not read

    extra = {"data_path": str(tmp_path / "own"), "shuffle_choices": 2}
    with SeeingEndpoint(answer) as endpoint:
        outcome = run_program("medxpertqa_mm", endpoint.url, params={"extra": extra})
    assert outcome.returncode == 0, outcome.stderr
    assert (outcome.scores()["exact_match"], len(seen)) == (1.0, 12)
    assert outcome.document()["validity"]["instances"]["unreadable"] == 0
    options = "".join(f"{letter}. Choice {letter}1\n" for letter in "ABCDE")
    asked = f"{INSTRUCTIONS}\n\nQuestion: [blue][blue]What is right in case 1?\n{options}Answer:"
    assert asked in seen
