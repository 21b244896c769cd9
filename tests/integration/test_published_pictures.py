"""Published sets with pictures through the real helm-run: from a bundle without a network, and from folders."""

from __future__ import annotations

import json
from itertools import chain, product
from pathlib import Path

import pytest

import published_rows as made
from eval_factory.data.pull import pull
from eval_factory.data.sources import load_sources
from facts import says
from invented_bundle import Origin
from program_runs import Outcome, Run
from seeing_endpoint import SeeingEndpoint, content_of, picture

COLOURS = [("red", "blue", "green")[n // 2 % 3] for n in range(12)]
FORMS = (("PNG", "RGBA"), ("GIF", "P"), ("JPEG", "RGB"))
DRAWN = [
    picture(one, word=str(n), kind=FORMS[n % 3][0], mode=FORMS[n % 3][1])
    for n, one in enumerate(COLOURS)
]


def sees(prompt: str) -> str:
    colour = prompt.partition("[")[2].partition("]")[0]
    if "hich colour" in prompt:
        return f"{colour}."
    return "yes" if colour == "red" else "no"


def by_answer_type(outcome: Outcome) -> dict[str, float]:
    (task,) = outcome.document()["results"]["groups"].values()
    found = task["groups"]["answer_type"]["groups"]
    return {
        name: one["metrics"]["score"]["scores"]["quasi_exact_match"]["value"]
        for name, one in found.items()
    }


def test_slake_from_a_bundle(run_program: Run, tmp_path: Path) -> None:
    """Pulled and run offline. Closed and open questions apart; Chinese ones are not asked."""
    rows = list(chain.from_iterable(made.slake_rows(n, colour) for n, colour in enumerate(COLOURS)))
    images = made.write_zip(
        tmp_path / "imgs.zip", {f"imgs/xmlab{n}/source.jpg": one for n, one in enumerate(DRAWN)}
    )
    bundle = tmp_path / "bundle"
    said = list[str]()
    with Origin() as origin:
        for file in (images, made.write_json(tmp_path / "test.json", rows)):
            origin.files[f"/datasets/BoKelvin/SLAKE/resolve/main/{file.name}"] = file.read_bytes()
        pull(
            ["slake"],
            bundle,
            load_sources().with_origins({"hub": origin.url, "raw": origin.url}),
            said.append,
        )
    says(said, "slake: pulled", "36 questions", "test.json", "2 files")
    with SeeingEndpoint(lambda prompt: "no" if "Is the" in prompt else sees(prompt)) as endpoint:
        outcome = run_program("slake", endpoint.url, "--offline", "--data_dir", str(bundle))
    assert outcome.returncode == 0, outcome.stderr
    sent = [
        content_of(part)
        for part in chain.from_iterable(endpoint.parts)
        if part["type"] == "image_url"
    ]
    assert (len(sent), set(sent)) == (24, set(DRAWN)), "the published bytes"
    assert by_answer_type(outcome) == {"CLOSED": pytest.approx(8 / 12), "OPEN": 1.0}
    validity = outcome.document()["validity"]
    says(validity["notes"], "24 instances", "12 sources (image)")
    assert validity["floors"]["quasi_exact_match"]["answers"]["always No"] == pytest.approx(8 / 24)


def test_path_vqa_from_a_folder(run_program: Run, tmp_path: Path) -> None:
    """In several files; the same questions with other pictures show that the pictures are needed."""
    for part in (0, 1):
        rows = list(
            chain.from_iterable(
                made.path_vqa_rows(COLOURS[n], DRAWN[n]) for n in range(part, 12, 2)
            )
        )
        made.write_parquet(tmp_path / f"own/data/test-0000{part}-of-00002.parquet", rows)
    params = {"extra": {"data_path": str(tmp_path / "own"), "blind_control": True}}
    with SeeingEndpoint(sees) as endpoint:
        outcome = run_program("path_vqa", endpoint.url, params=params)
    assert outcome.returncode == 0, outcome.stderr
    assert by_answer_type(outcome) == {"closed": 1.0, "open": 1.0}
    assert outcome.document()["validity"]["asked_again"]["blind"]["blank"]["ci_high"] < 0
    ids = {
        json.loads(line)["id"]
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    }
    assert ids == {
        f"test-0000{part}-of-00002-row-{row}" for part, row in product((0, 1), range(1, 13))
    }


def test_medxpertqa_with_pictures_from_a_folder(run_program: Run, tmp_path: Path) -> None:
    made.write_zip(
        tmp_path / "own/images.zip", {f"images/{n}.jpeg": data for n, data in enumerate(DRAWN)}
    )
    rows = [
        {**made.medxpertqa_row(n, choices=5), "images": [f"{n}.jpeg", f"{n + 1}.jpeg"]}
        for n in range(6)
    ]
    made.write_json_lines(tmp_path / "own/MM/test.jsonl", rows)

    def answer(prompt: str) -> str:
        case = prompt.partition("case ")[2][:1]
        right = f". Choice {'ABCDE'[int(case or 0) % 5]}{case}\n"
        return f"{prompt.partition(right)[0][-1]} \nSo"  # what follows on a line break is not read

    extra = {"data_path": str(tmp_path / "own"), "shuffle_choices": 2}
    with SeeingEndpoint(answer) as endpoint:
        outcome = run_program("medxpertqa_mm", endpoint.url, params={"extra": extra})
    assert outcome.returncode == 0, outcome.stderr
    assert (outcome.scores()["exact_match"], len(endpoint.parts)) == (1.0, 12)
    assert outcome.document()["validity"]["instances"]["unreadable"] == 0
