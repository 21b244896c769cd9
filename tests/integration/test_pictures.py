"""A benchmark of HELM's with pictures, by the real helm-run: what the endpoint sees, what is kept, what is asked again."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from processes import tree_of

from facts import says
from program_runs import Outcome, Run, program
from seeing_endpoint import SeeingEndpoint, content_of, middle_of, picture

ENTRY = "helm:mme:subject=color"
REVISION = "0123456789abcdef0123456789abcdef01234567"


def prepare(
    home: Path, name: str, splits: dict[str, list[dict[str, Any]]], media: str = "image"
) -> dict[str, str]:
    """The Hub's data set as its library keeps it: `media` (image, audio) holds a file's bytes, other columns are texts.

    The variables of a run that reads it.
    """
    import datasets

    owner, short = name.split("/")
    kind = {"image": datasets.Image, "audio": datasets.Audio}[media]
    made = home / "made" / short
    made.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        kinds = {column: datasets.Value("string") for column in rows[0]} | {media: kind()}
        files = [{**row, media: {"bytes": row[media], "path": None}} for row in rows]
        datasets.Dataset.from_list(files, features=datasets.Features(kinds)).to_parquet(
            made / f"{split}.parquet"
        )
    builder = datasets.load_dataset_builder(str(made), cache_dir=str(home / "prepared"))
    builder.download_and_prepare()
    target = (
        home / "datasets" / f"{owner}___{builder.dataset_name}" / "default" / "0.0.0" / REVISION
    )
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(builder.cache_dir, target)
    shutil.rmtree(home / "prepared")
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(home)}


def prepare_mme(home: Path, pictures: Sequence[tuple[bytes, str]]) -> dict[str, str]:
    """Of these pictures and answers."""
    rows = [
        {
            "image": data,
            "question_id": f"color/{number}.png",
            "category": "color",
            "answer": answer,
            "question": "Is the disc red? Please answer yes or no.",
        }
        for number, (data, answer) in enumerate(pictures)
    ]
    return prepare(home, "lmms-lab/MME", {"test": rows})


def sees(prompt: str) -> str:
    """The letter of what is right of the picture that was shown."""
    right = "Yes" if "[red]" in prompt else "No"
    return next((line[0] for line in prompt.splitlines() if line[1:] == f". {right}"), "?")


RED = (picture("red"), "Yes")
BLUE = (picture("blue"), "No")
DATA = [RED, BLUE, (picture("red", word="x"), "Yes"), (picture("green"), "No")]


def lines_of(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (outcome.output_dir / name).read_text().splitlines()]


def shown_in(page: Path) -> list[str]:
    """The colours of the pictures that it holds."""
    held = re.findall(r'data-type="image/jpeg">([^<]+)<', page.read_text())
    return [middle_of(base64.b64decode(text)) for text in held]


def kept_in(folder: Path) -> str:
    """All that is stored of requests and answers."""
    with closing(sqlite3.connect(folder / "cache.db")) as connection:
        rows = connection.execute(
            "SELECT key, request, response FROM responses ORDER BY key"
        ).fetchall()
    return json.dumps(rows) + "".join(
        file.read_text() for file in (folder / "responses").glob("*.jsonl")
    )


def test_the_model_sees_the_pictures_and_nobody_is_asked_twice(
    tmp_path: Path, run_program: Run
) -> None:
    """Not after a limit, nor where HELM's files are lost; and a folder is read where it was moved to."""
    env = prepare_mme(tmp_path / "hf", DATA)
    with SeeingEndpoint(sees) as endpoint:
        limited = run_program(
            ENTRY, endpoint.url, env=env, params={"parallelism": 1, "extra": {"max_requests": 2}}
        )
        assert (limited.returncode, len(endpoint.parts)) == (1, 2), limited.stderr
        for _ in range(2):
            outcome = run_program(ENTRY, endpoint.url, env=env)
            assert outcome.returncode == 0, outcome.stderr
            shutil.rmtree(outcome.output_dir / "helm" / "runs")
            (outcome.output_dir / "SHA256SUMS").unlink()
        outcome = run_program(ENTRY, endpoint.url, env=env)
    assert outcome.scores()["exact_match"] == 1.0
    assert len(endpoint.parts) == len(DATA)
    assert [part["type"] for part in endpoint.parts[0]] == ["text", "text", "image_url", "text"]
    files = {
        file.read_bytes() for file in (outcome.output_dir / "helm/scenarios/mme").rglob("*.png")
    }
    assert {content_of(parts[2]) for parts in endpoint.parts} == files, "the files' own bytes"
    kept = kept_in(outcome.output_dir)
    assert ("base64" in kept, kept.count("sha256:")) == (False, 2 * len(DATA))
    assert all(one["prompt_tokens"] for one in lines_of(outcome, "results.jsonl")), (
        "each answer is found again"
    )
    lines = lines_of(outcome, "instances.jsonl")
    assert re.search(
        r"\n\[image 1: image/png, .* sha256 [0-9a-f]{16}\]\nIs the disc red\?", lines[0]["prompt"]
    )
    elsewhere = outcome.output_dir.rename(tmp_path / "elsewhere")
    colours = [middle_of(data) for data, _ in DATA]
    named = [elsewhere / one["media"][0]["file"] for one in lines]
    assert [file.read_bytes() for file in named] == [data for data, _ in DATA]
    for command in (["verify", elsewhere], ["annotate", "export", elsewhere, "--out", tmp_path]):
        done = program(*map(str, command), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    assert shown_in(elsewhere / "report.html") == colours
    assert sorted(shown_in(tmp_path / "rater_1.html")) == sorted(colours)
    named[0].write_bytes(BLUE[0])
    altered = program("verify", str(elsewhere), cwd=tmp_path)
    assert (altered.returncode, "instances.jsonl: line 1: media" in altered.stdout) == (1, True), (
        altered.stdout
    )


def test_other_pictures_under_the_same_paths_get_other_answers(
    tmp_path: Path, run_program: Run
) -> None:
    with SeeingEndpoint(sees) as endpoint:
        first = run_program(ENTRY, endpoint.url, env=prepare_mme(tmp_path / "hf", [RED, BLUE]))
        assert first.scores()["exact_match"] == 1.0
        shutil.rmtree(first.output_dir / "helm")
        (first.output_dir / "SHA256SUMS").unlink()
        other = prepare_mme(tmp_path / "hf", [(BLUE[0], "No"), (picture("red", word="new"), "Yes")])
        second = run_program(ENTRY, endpoint.url, env=other)
    assert second.returncode == 0, second.stderr
    assert second.scores()["exact_match"] == 1.0
    assert len(endpoint.parts) == 3, "the blue one was known, wherever it lay"


def test_a_broken_picture_costs_its_instance_and_a_large_one_is_made_smaller(
    tmp_path: Path, run_program: Run
) -> None:
    env = prepare_mme(tmp_path / "hf", [*DATA, (picture("red", side=400), "Yes")])
    images = tmp_path / "out" / "helm" / "scenarios" / "mme" / "images"
    images.mkdir(parents=True)
    # HELM keeps a picture that is there
    (images / "color-1.png").write_bytes(BLUE[0][: len(BLUE[0]) // 2])
    with SeeingEndpoint(sees) as endpoint:
        extra = {"min_coverage": 0.5, "max_image_side": 64}
        outcome = run_program(ENTRY, endpoint.url, env=env, params={"extra": extra})
    assert outcome.returncode == 0, outcome.stderr
    assert (len(endpoint.parts), outcome.scores()["exact_match"]) == (len(DATA), 1.0)
    errors = {one["error"]: one["prompt_tokens"] for one in lines_of(outcome, "results.jsonl")}
    assert errors == {None: 23, "color-1.png is a broken picture (image/png): OSError": None}
    says(outcome.document()["provenance"]["pictures"], "64 pixels", "LANCZOS of Pillow")


def test_a_killed_run_goes_on_and_old_pictures_meet_no_new_questions(
    tmp_path: Path, run_program: Run
) -> None:
    count = 60
    at_once = 4
    ended = threading.Lock()
    holder = tmp_path / "out" / ".lock.holder.json"
    home = tmp_path / "hf"
    env = prepare_mme(home, [(picture("red", word=str(number)), "Yes") for number in range(count)])

    def deadly(prompt: str) -> str:
        if len(endpoint.parts) >= count // 2 and ended.acquire(blocking=False):
            for pid in tree_of(json.loads(holder.read_text("utf-8"))["pid"]):
                os.kill(pid, signal.SIGKILL)
        return sees(prompt)

    with SeeingEndpoint(deadly) as endpoint:
        killed = run_program(ENTRY, endpoint.url, env=env, params={"parallelism": at_once})
        assert killed.returncode == -signal.SIGKILL
        resumed = run_program(ENTRY, endpoint.url, env=env, params={"parallelism": at_once})
        assert resumed.returncode == 0, resumed.stderr
        assert "save_pictures_at_once" in resumed.document()["provenance"]["patches"]
        pictures = [
            content_of(part)
            for part in chain.from_iterable(endpoint.parts)
            if part["type"] == "image_url"
        ]
        assert len(set(pictures)) == count
        assert len(pictures) <= count + at_once, "those that were on their way"
        (revision,) = home.glob("datasets/*/default/0.0.0/*")
        revision.rename(revision.with_name(REVISION[::-1]))
        refused = run_program(ENTRY, endpoint.url, "--fresh", env=env)
    assert (refused.returncode, len(endpoint.parts)) == (3, len(pictures))
    says(refused.stderr, "helm/scenarios/mme", "another revision", "delete this folder")


def test_a_model_that_takes_no_pictures_is_found_out_before(
    tmp_path: Path, run_program: Run
) -> None:
    with SeeingEndpoint(sees, is_blind=True) as endpoint:
        outcome = run_program(ENTRY, endpoint.url, env=prepare_mme(tmp_path / "hf", DATA))
    assert (outcome.returncode, endpoint.parts) == (3, [])
    says(outcome.stderr, "takes text only")
    says(outcome.stderr, "takes images")
    assert "iVBOR" not in outcome.stderr


HAS_CIDER = find_spec("pycocoevalcap") is not None


@pytest.mark.skipif(HAS_CIDER, reason="needs an environment without pycocoevalcap")
def test_a_package_for_the_metrics_is_named_before_anything_is_asked(run_program: Run) -> None:
    with SeeingEndpoint(sees) as endpoint:
        outcome = run_program("vqa_rad", endpoint.url)
    assert outcome.returncode != 0
    assert "pycocoevalcap~=1.2" in outcome.stderr
    assert (endpoint.parts, endpoint.probes) == ([], 0)


@pytest.mark.medical_data
@pytest.mark.skipif(
    not HAS_CIDER, reason="needs pycocoevalcap: pip install --no-deps pycocoevalcap"
)
def test_vqa_rad(medical_data: Path, tmp_path: Path, run_program: Run) -> None:
    """Gold answers are in small letters; questions about one picture are not independent, nor do they repeat each other."""
    rows = []
    for n, colour in enumerate(("red", "blue", "green")):
        image = picture(colour, word=f"{n}")
        is_red = "yes" if colour == "red" else "no"
        rows.append({"image": image, "question": "Which colour is it?", "answer": colour})
        rows.append({"image": image, "question": "Is it red?", "answer": is_red})

    def answer(prompt: str) -> str:
        colour = prompt.partition("[")[2].partition("]")[0].capitalize()
        if "Which" in prompt:
            return colour
        return "Yes" if colour == "Red" else "No"

    env = prepare(tmp_path / "hf", "flaviagiammarino/vqa-rad", {"train": rows[:1], "test": rows})
    with SeeingEndpoint(answer) as endpoint:
        outcome = run_program(
            "vqa_rad", endpoint.url, env={**env, "NLTK_DATA": str(medical_data / "nltk_data")}
        )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.document()["main_metric"] == "quasi_exact_match"
    assert (outcome.scores()["quasi_exact_match"], outcome.scores()["exact_match"]) == (1.0, 0.0)
    notes = outcome.document()["validity"]["notes"]
    says("".join(notes), "6 instances", "3 sources (image)")
    assert not [note for note in notes if "repeat" in note]


def test_a_score_that_needs_no_pictures_is_told_from_one_that_does(
    tmp_path: Path, run_program: Run
) -> None:
    discs = [
        (picture("red", word=str(n)), "Yes") if n % 2 else (picture("blue", word=str(n)), "No")
        for n in range(24)
    ]
    env = prepare_mme(tmp_path / "hf", discs)
    params = {"extra": {"blind_control": True}}
    with SeeingEndpoint(sees) as endpoint:
        looks = run_program(ENTRY, endpoint.url, env=env, params=params)
        assert looks.returncode == 0, looks.stderr
        # all discs have the same words and size, so one grey picture stands for all of theirs
        asked = len(discs) + 1 + len(discs)
        in_same_words = len(discs)
        assert len(endpoint.parts) == asked + in_same_words
        again = run_program(ENTRY, endpoint.url, "--max_wall_s", "100", env=env, params=params)
        assert (again.returncode, len(endpoint.parts)) == (0, asked + in_same_words), (
            "nobody is asked twice"
        )
    found = looks.document()["validity"]["asked_again"]["blind"]
    assert looks.scores()["exact_match"] == 1.0
    # a grey disc is not red: half of the answers is right all the same
    assert (found["blank"]["difference"], found["blank"]["questions"]) == (-0.5, len(discs))
    assert found["blank"]["ci_high"] < 0
    chance = found["blank"]["same_words"]
    assert (chance["value"], chance["count"]) == (0.0, len(discs))
    assert found["other"]["difference"] < 0
    assert "may not have been" not in looks.stdout
    with SeeingEndpoint(lambda prompt: "A" if "Yes" in prompt else "?") as endpoint:
        guesses = run_program(ENTRY, endpoint.url, "--fresh", env=env, params=params)
    found = guesses.document()["validity"]["asked_again"]["blind"]
    assert (found["blank"]["difference"], found["other"]["difference"]) == (0.0, 0.0)
    notes = " ".join(guesses.document()["validity"]["notes"])
    says(notes, "grey picture", "not shown", "worse")


def test_what_shows_no_pictures_has_no_blind_control(run_program: Run) -> None:
    refused = run_program(
        "pubmed_qa", "http://127.0.0.1:9/v1", params={"extra": {"blind_control": True}}
    )
    assert refused.returncode == 2
    says(refused.stderr, "extra.blind_control: ", "pubmed_qa", "no pictures")
