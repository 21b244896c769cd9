"""Pictures that rows name: each mistake with its row and column, never with a file's name; what is asked, in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import evaluation
from eval_factory.cli.task_listing import record_of_benchmark
from eval_factory.core.errors import ConfigError
from eval_factory.endpoint.media import FILE_MARK
from eval_factory.plan.run_plan import identity_of, make_plan
from eval_factory.tasks.custom_benchmark import Benchmark, load_benchmark
from eval_factory.tasks.custom_table import PictureCheck, filled_prompt
from eval_factory.tasks.perturbations import FAMILIES, perturbed
from eval_factory.workflows.dry_run import preview
from facts import each_says, naming, says
from seeing_endpoint import picture

PATIENT = "Mrs_Example"
HEAD = "image,question,image_2,correct_answer\n"


def loaded(
    folder: Path, data: str, prompt: str = "{question}\n", dataset: str = "data.csv", **more: Any
) -> Benchmark:
    (folder / "data").mkdir(exist_ok=True)
    for name, content in {"prompt.txt": prompt, dataset: data}.items():
        (folder / "data" / name).write_text(content, "utf-8")
    shape = {
        "name": "mine",
        "description": "d",
        "dataset_file": dataset,
        "metrics": [{"name": "exact_match"}],
        **more,
    }
    shape |= {"prompt_file": "prompt.txt"} if dataset.endswith("csv") else {}
    shape = {name: value for name, value in shape.items() if value is not None}
    (folder / "data" / "bench.yaml").write_text(yaml.safe_dump(shape), "utf-8")
    return load_benchmark(folder / "data" / "bench.yaml")


def problems(folder: Path, *arguments: Any, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        loaded(folder, *arguments, **more)
    assert PATIENT not in str(raised.value)
    return [problem.replace(f"{folder}/data/", "") for problem in raised.value.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind in ("PNG", "JPEG", "GIF", "WEBP"):
        (tmp_path / f"{PATIENT}.{kind}").write_bytes(picture("red", kind=kind))
    (tmp_path / f"{PATIENT}_text.png").write_text("no picture")
    (tmp_path / f"{PATIENT}_half.png").write_bytes(picture("red")[:200])
    return tmp_path


def test_each_picture_is_looked_at_before_anything_is_asked(folder: Path) -> None:
    rows = [
        (f"../{PATIENT}.PNG", ""),
        ("", f"../{PATIENT}.WEBP"),
        (f"../{PATIENT}.gone", f" ../{PATIENT}.JPEG "),
        (f"../{PATIENT}_text.png", f"../{PATIENT}_half.png"),
        (f"HTTPS://x.org/{PATIENT}.png", f"{folder}/{PATIENT}.GIF"),
    ]
    said = problems(folder, HEAD + "".join(f"{a},What?,{b},A\n" for a, b in rows))
    each_says(
        said,
        ["data.csv: row 3", "line 4", "column image", "is not there"],
        ["row 4 (line 5)", "column image", "PNG, JPEG, GIF"],
        ["row 4 (line 5)", "column image_2", "image/png", "OSError"],
        ["row 5 (line 6)", "column image", "a web address"],
    )
    limited = PictureCheck(folder, max_size=100).problems_of(
        [("image", f"{PATIENT}.PNG")], FILE_MARK
    )
    each_says(limited, ["image: ", "0 MiB"])
    (text,) = problems(folder, HEAD + f"../{PATIENT}.PNG,Wh{FILE_MARK}at?,,A\n")
    says(text, "data.csv: row 1", "(line 2)", "column image", "U+FFFC")


def test_what_is_asked(folder: Path) -> None:
    cells = {"image": "a", "image_x": "text", "question": "Why?", "image_2": "b", "image_3": " "}
    assert filled_prompt("{question} {{x}}", cells) == (
        f"{FILE_MARK * 2}Why? {{x}}",
        ["image", "image_2"],
    )
    assert filled_prompt("{image_2} {image_3}{image_x}{image_2}", cells)[1] == [
        "image",
        "image_2",
        "image_2",
    ]
    rows = f",Nothing?,,A\n../{PATIENT}.PNG,What?,../{PATIENT}.GIF,A\n"
    found = loaded(folder, HEAD + rows, "See {image_2}: {question}")
    assert (found.instances, found.rows_with_pictures) == (2, 1)
    lines = str(found.first_with_pictures).splitlines()
    assert [line[:20] for line in lines] == [
        "[image 1: image/png,",
        "See ",
        "[image 2: image/gif,",
        ": What?",
    ]
    said = problems(folder, f"image,correct_answer\n../{PATIENT}.PNG,A\n,B\n", "A or B?")
    each_says(said, ["data.csv: row 2", "(line 3)", "column image", "is empty"])
    asked = (
        f"See {FILE_MARK} and\n{FILE_MARK}\n"
        f"A woman with a glucose of 180 mg/dL shows {FILE_MARK} that she saw.\nA. flu"
    )
    changed = [perturbed(family, asked, "n1", "A\nB") for family in FAMILIES]
    assert {one.count(FILE_MARK) for one in changed if one is not None} == {3}


def test_other_pictures_are_another_benchmark(folder: Path) -> None:
    def identity() -> str:
        found = loaded(folder, HEAD + f"../{PATIENT}.PNG,What?,,A\n,Nothing?,../{PATIENT}.GIF,A\n")
        assert set(found.sha256) == {"bench.yaml", "data.csv", "prompt.txt", "(pictures)"}
        given = evaluation(
            {"config.type": "custom", "config.params.extra.benchmark": str(found.path)}
        )
        assert make_plan(given).model.shows_images, "the preflight shows a grey square"
        assert "#   [image 1: image/png, " in preview(given, [])
        assert record_of_benchmark(found.path, given.framework)["rows_with_pictures"] == 2
        return identity_of(given)

    first = identity()
    assert identity() == first
    (folder / f"{PATIENT}.GIF").write_bytes(picture("blue", kind="GIF"))
    assert identity() != first
    without = loaded(folder, HEAD + ",What?,,A\n")
    assert (without.rows_with_pictures, without.first_with_pictures, len(without.sha256)) == (
        0,
        None,
        3,
    )


def test_a_conversation(folder: Path) -> None:
    def line(*content: Any, role: str = "user", **more: Any) -> str:
        turns = [{"role": role, "content": list(content)}, {"role": "user", "content": "A or B?"}]
        return json.dumps({"messages": turns, "correct_answer": "A", **more}) + "\n"

    text = {"type": "text", "text": "See:"}
    shown = {"type": "image", "path": f"../{PATIENT}.PNG"}
    found = loaded(folder, line(text, text, shown, text) + line(text), dataset="talks.jsonl")
    lines = str(found.first_with_pictures).splitlines()
    assert lines[:2] + lines[3:] == ["user: See:", "See:", "See:", "", "user: A or B?"]
    wrong = [
        line(),
        line({"type": "image_url", "path": "x"}),
        line({"type": "image", "text": PATIENT}),
        line("x"),
        line(shown, role="assistant"),
        line(shown, {"type": "image", "path": f"{PATIENT}.gone"}),
    ]
    either = 'must be {"type": "text", "text": "..."} or {"type": "image", "path": "..."}'
    said = problems(folder, "".join(wrong), dataset="talks.jsonl")
    each_says(
        said,
        ["talks.jsonl: line 1", "messages.0.content.0: "],
        ["line 2", "messages.0.content.0: "],
        ["line 3", "messages.0.content.0.path: is missing"],
        ["line 4", "messages.0.content.0: "],
        ["line 5", "messages.0.content: ", "must be text"],
        ["line 6", "picture 2", "is not there"],
    )
    assert [either in problem for problem in said] == [True, True, False, True, False, False]
    of_rubric = problems(
        folder, line(shown, id="a"), dataset="talks.jsonl", kind="rubric", metrics=None
    )
    says("\n".join(of_rubric), "talks.jsonl: line 1", "messages.0.content: must be", "text")


def test_what_a_run_may_ask_of_pictures(folder: Path) -> None:
    bench = loaded(folder, HEAD + f"../{PATIENT}.PNG,What?,,A\n").path
    given = {"config.type": "custom", "config.params.extra.benchmark": str(bench)}
    assert evaluation(
        {
            **given,
            "config.params.extra.perturb": ["typos"],
            "config.params.extra.blind_control": True,
        }
    )
    with pytest.raises(ConfigError, match=naming("pictures", "show the patient")):
        evaluation({**given, "config.params.extra.perturb": ["gender"]})
    with pytest.raises(ConfigError, match=naming("chat", "not on completions")):
        evaluation({**given, "target.api_endpoint.type": "completions"})
