"""Pictures in one's own tables and conversations, by the real helm-run: what the endpoint sees, what is asked again."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from eval_factory.workflows.verify import verify
from integration.support import Run
from seeing_endpoint import SeeingEndpoint, picture

PATIENT = "Mrs_Example"
ROWS = [("red", "blue", "B"), ("blue", "red", "A"), ("red", "", "A"), ("", "", "A"), ("green", "red", "B")]
"""Colours of two pictures, and the option that is right: A where one is shown or none, or blue is the first."""
TABLE_PROMPT = "First {image}\nthen\n{image_2}\nNote: {note}\nA. no\nB. yes\n"


def benchmark(folder: Path, dataset: str, text: str, **more: Any) -> Path:
    for colour in ("red", "blue", "green"):
        (folder / f"{PATIENT}_{colour}.png").write_bytes(picture(colour, word=dataset))
    (folder / "prompt.txt").write_text(TABLE_PROMPT, "utf-8")
    (folder / dataset).write_text(text, "utf-8")
    shape = {"name": "mine", "description": "d", "dataset_file": dataset, "metrics": [{"name": "exact_match"}], **more}
    file = folder / f"{dataset}.yaml"
    file.write_text(yaml.safe_dump(shape), "utf-8")
    return file


def named(colour: str) -> str:
    return f"{PATIENT}_{colour}.png" if colour else ""


def sees(prompt: str) -> str:
    return "B" if prompt.lower().startswith(("first [red]\nthen\n[blue]", "first [green]")) else "A"


def test_a_table(tmp_path: Path, run_program: Run) -> None:
    """What asks again, and a folder without the data, too."""
    lines = [f"n{number},note {number},{named(a)},{named(b)},{right}" for number, (a, b, right) in enumerate(ROWS)]
    text = "\n".join(["id,note,image,image_2,correct_answer", *lines])
    file = benchmark(tmp_path, "data.csv", text, prompt_file="prompt.txt")
    extra = {"benchmark": str(file), "confidence": "stated", "perturb": ["case"], "blind_control": True}
    with SeeingEndpoint(sees) as endpoint:
        refused = run_program("custom", endpoint.url, params={"extra": extra}, model_type="completions")
        assert (refused.returncode, endpoint.requests) == (2, [])
        assert "custom.mine runs on chat, not on completions" in refused.stderr
        outcome = run_program("custom", endpoint.url, params={"extra": extra})
        assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["exact_match"] == 1.0
    kinds = {tuple(part["type"] for part in parts) for parts in endpoint.parts}
    both = ("text", "image_url", "text", "image_url", "text")
    assert kinds == {both, ("text", "image_url", "text")}, "a row without pictures is sent as text"
    follow_ups = [one["messages"] for one in endpoint.requests if len(one["messages"]) == 3]
    assert (len(follow_ups), sum(isinstance(turns[0]["content"], list) for turns in follow_ups)) == (5, 4)
    assert outcome.document()["validity"]["asked_again"]["blind"]["blank"]["difference"] < 0
    listed = [json.loads(line) for line in (outcome.output_dir / "instances.jsonl").read_text("utf-8").splitlines()]
    assert listed[0]["prompt"].startswith("First \n[image 1: image/png, ")
    for one in (tmp_path / "data.csv", *tmp_path.glob("*.png")):
        one.unlink()
    outcome.output_dir.rename(tmp_path / "elsewhere")
    assert verify(tmp_path / "elsewhere").findings == ()
    files = [one for one in (tmp_path / "elsewhere").rglob("*") if one.is_file()]
    assert not [one for one in files if PATIENT in one.name or PATIENT.encode() in one.read_bytes()]


def test_a_conversation_and_a_picture_that_is_changed(tmp_path: Path, run_program: Run) -> None:
    def turns(colour: str) -> list[dict[str, Any]]:
        shown = {"type": "image", "path": named(colour)}
        return [
            {"role": "user", "content": [{"type": "text", "text": "This was I:"}, {"type": "image", "path": named("blue")}]},
            {"role": "assistant", "content": "And now?"},
            {"role": "user", "content": [shown, {"type": "text", "text": "Am I red?"}]},
        ]  # fmt: skip

    rows = [{"messages": turns(colour), "correct_answer": colour} for colour in ("red", "green")]
    rows.append({"messages": [{"role": "user", "content": "Say text."}], "correct_answer": "text"})
    file = benchmark(tmp_path, "talks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with SeeingEndpoint(lambda prompt: prompt[1 : prompt.index("]")] if prompt[0] == "[" else "text") as endpoint:
        extra = {"benchmark": str(file)}
        first = run_program("custom", endpoint.url, params={"extra": extra})
        assert first.returncode == 0, first.stderr
        assert (first.scores()["exact_match"], len(endpoint.requests)) == (1.0, 3)
        assert [[part["type"] for part in parts] for parts in endpoint.parts] == [["image_url", "text"]] * 2
        pictures = first.document()["provenance"]["dataset_files"]["(pictures)"]
        lines = (first.output_dir / "instances.jsonl").read_text("utf-8").splitlines()
        (tmp_path / f"{PATIENT}_green.png").write_bytes(picture("red", word="another"))
        second = run_program("custom", endpoint.url, params={"extra": extra})
        assert second.returncode == 0, second.stderr
        assert (second.scores()["exact_match"], len(endpoint.requests)) == (2 / 3, 4), "only the changed one is asked"
    with closing(sqlite3.connect(first.output_dir / "cache.db")) as connection:
        sent = [json.loads(request)["messages"] for (request,) in connection.execute("SELECT request FROM responses")]
    assert {len(turns) for turns in sent} == {1, 3}
    of_turns = [[part["type"] for part in turns[0]["content"]] for turns in sent if len(turns) == 3]
    assert of_turns == [["text", "image_url"]] * 3
    prompt = json.loads(lines[0])["prompt"].splitlines()
    assert [line for line in prompt if "image" not in line] == [
        "user: This was I:",
        "",
        "",
        "assistant: And now?",
        "",
        "user: ",
        "Am I red?",
    ]
    assert pictures != second.document()["provenance"]["dataset_files"]["(pictures)"]
