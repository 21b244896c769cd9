"""Pictures in one's own tables and conversations, by the real helm-run: what the endpoint sees, what is asked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from eval_factory.workflows.verify import verify
from program_runs import Run
from seeing_endpoint import SeeingEndpoint, picture

PATIENT = "Mrs_Example"
ROWS = [
    ("red", "blue", "B"),
    ("blue", "red", "A"),
    ("red", "", "A"),
    ("", "", "A"),
    ("green", "red", "B"),
]
"""Colours of two pictures, and the option that is right: A where one is shown or none, or blue is the first."""


def benchmark(folder: Path, dataset: str, text: str, **more: Any) -> dict[str, Any]:
    for colour in ("red", "blue", "green"):
        (folder / named(colour)).write_bytes(picture(colour, word=dataset))
    shape = {
        "name": "mine",
        "description": "d",
        "dataset_file": dataset,
        "metrics": [{"name": "exact_match"}],
        **more,
    }
    prompt = "First {image}\nthen\n{image_2}\nNote: {note}\nA. no\nB. yes\n"
    for name, content in {
        "prompt.txt": prompt,
        dataset: text,
        "b.yaml": yaml.safe_dump(shape),
    }.items():
        (folder / name).write_text(content, "utf-8")
    return {"extra": {"benchmark": str(folder / "b.yaml"), "allow_abstain": True}}


def named(colour: str) -> str:
    return f"{PATIENT}_{colour}.png" if colour else ""


def sees(prompt: str) -> str:
    return "B" if prompt.lower().startswith(("first [red]\nthen\n[blue]", "first [green]")) else "A"


def test_a_table(tmp_path: Path, run_program: Run) -> None:
    """What asks again, and a folder without the data, too."""
    rows = "".join(
        f"\nn{n},note {n},{named(a)},{named(b)},{right}" for n, (a, b, right) in enumerate(ROWS)
    )
    params = benchmark(
        tmp_path,
        "data.csv",
        f"id,note,image,image_2,correct_answer{rows}",
        prompt_file="prompt.txt",
    )
    params["extra"] |= {"confidence": "stated", "perturb": ["case"], "blind_control": True}
    with SeeingEndpoint(sees) as endpoint:
        outcome = run_program("custom", endpoint.url, params=params)
        assert outcome.returncode == 0, outcome.stderr
    assert outcome.scores()["exact_match"] == 1.0
    kinds = {" ".join(part["type"][:5] for part in parts) for parts in endpoint.parts}
    assert kinds == {"text image text image text", "text image text"}, (
        "a row without pictures is sent as text"
    )
    follow_ups = [one["messages"] for one in endpoint.requests if len(one["messages"]) == 3]
    assert (
        len(follow_ups),
        sum(isinstance(turns[0]["content"], list) for turns in follow_ups),
    ) == (5, 4)
    assert outcome.document()["validity"]["asked_again"]["blind"]["blank"]["difference"] < 0
    assert '"First \\n[image 1: image/png, ' in (outcome.output_dir / "instances.jsonl").read_text(
        "utf-8"
    )
    for one in (tmp_path / "data.csv", *tmp_path.glob("*.png")):
        one.unlink()
    outcome.output_dir.rename(tmp_path / "elsewhere")
    assert verify(tmp_path / "elsewhere").findings == ()
    for one in (tmp_path / "elsewhere").rglob("*"):
        assert PATIENT not in one.name + (
            one.read_bytes().decode("latin-1") if one.is_file() else ""
        )


def test_a_conversation_and_a_picture_that_is_changed(tmp_path: Path, run_program: Run) -> None:
    def turns(colour: str) -> list[dict[str, Any]]:
        before, now = ({"type": "image", "path": named(one)} for one in ("blue", colour))
        return [
            {"role": "user", "content": [{"type": "text", "text": "This was I:"}, before]},
            {"role": "assistant", "content": "And now?"},
            {"role": "user", "content": [now, {"type": "text", "text": "Am I red?"}]},
        ]

    asked = {
        "red": turns("red"),
        "green": turns("green"),
        "text": [{"role": "user", "content": "Say text."}],
    }
    rows = [{"messages": messages, "correct_answer": answer} for answer, messages in asked.items()]
    params = benchmark(tmp_path, "talks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    with SeeingEndpoint(
        lambda prompt: prompt[1 : prompt.index("]")] if prompt[0] == "[" else "text"
    ) as endpoint:
        first = run_program("custom", endpoint.url, params=params)
        assert first.returncode == 0, first.stderr
        assert (first.scores()["exact_match"], len(endpoint.requests)) == (1.0, 6)
        assert [[part["type"] for part in parts] for parts in endpoint.parts] == [
            ["image_url", "text"]
        ] * 4
        pictures = first.document()["provenance"]["dataset_files"]["(pictures)"]
        (tmp_path / f"{PATIENT}_green.png").write_bytes(picture("red", word="another"))
        second = run_program("custom", endpoint.url, params=params)
        assert second.returncode == 0, second.stderr
        assert (second.scores()["exact_match"], len(endpoint.requests)) == (2 / 3, 8), (
            "only the changed one is asked"
        )
    sent = "".join(
        file.read_text("utf-8") for file in (first.output_dir / "responses").glob("*.jsonl")
    )
    assert sent.count("sha256:") == 12, "of three conversations the earlier picture, too"
    with (first.output_dir / "instances.jsonl").open(encoding="utf-8") as lines:
        prompt = [line[:9] for line in json.loads(next(lines))["prompt"].splitlines() if line]
    assert prompt == ["user: Thi", "[image 1:", "assistant", "user: ", "[image 2:", "Am I red?"]
    assert pictures != second.document()["provenance"]["dataset_files"]["(pictures)"]
