"""`extra.stop_when` through the real helm-run: looks at a growing sample of a benchmark of 400 questions."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.demo.example import write_example
from facts import says
from program_runs import Outcome, Run, program
from rubric_endpoint import RubricEndpoint, said
from scripted_endpoint import ScriptedEndpoint

ROWS = 400
NOWHERE = "http://127.0.0.1:9/v1"
PRICE = {"model_id": "test/model", "input_per_million": 1000.0, "output_per_million": 1000.0}


def number_in(prompt: str) -> int:
    return int(re.findall(r"Question (\d+)\?", prompt)[-1])


def gold(number: int) -> str:
    return "AB"[number % 2]


def nine_of_ten(prompt: str) -> str:
    number = number_in(prompt)
    return gold(number + 1 if number % 10 == 3 else number)


def always_a(_prompt: str) -> str:
    return "A"


Ask = Callable[..., Outcome]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    write_example(folder, "choice")
    (folder / "prompt.txt").write_text("{question}", encoding="utf-8")
    write_rows(folder)
    return folder


def write_rows(folder: Path, more: str = "") -> None:
    rows = "".join(f"Question {number}?{more},{gold(number)}\n" for number in range(ROWS))
    (folder / "data.csv").write_text(f"question,correct_answer\n{rows}", encoding="utf-8")


@pytest.fixture
def ask(table: Path, run_program: Run) -> Ask:
    def run(url: str, *flags: str, limit: int | None = None, **extra: Any) -> Outcome:
        extra["benchmark"] = str(table / "benchmark.yaml")
        params = {"extra": extra} | ({} if limit is None else {"limit_samples": limit})
        return run_program(
            "custom", url, *flags, params=params, output_dir=table.parent / extra.pop("to", "out")
        )

    return run


def stopped_early(outcome: Outcome) -> dict[str, Any]:
    assert outcome.returncode == 0, outcome.stderr
    found: dict[str, Any] = outcome.document()["validity"]["stopped_early"]
    return found


def main_stats(outcome: Outcome) -> dict[str, Any]:
    document = outcome.document()
    (task,) = document["results"]["tasks"].values()
    stats: dict[str, Any] = task["metrics"]["score"]["scores"][document["main_metric"]]["stats"]
    return stats


def test_it_ends_at_the_look_whose_interval_is_narrow_enough(ask: Ask) -> None:
    with ScriptedEndpoint(nine_of_ten) as endpoint:
        outcome = ask(endpoint.url, stop_when={"half_width": 0.1, "seed": 3}, prices=[PRICE])
        asked = [request["messages"][-1]["content"] for request in endpoint.requests]
        probes = endpoint.probes
        found = stopped_early(outcome)
        assert [look["n"] for look in found["looks"]] == [50, 100]
        assert len(asked) == len(set(asked)) == found["asked"] == 100, "nothing is asked twice"
        assert probes == 1
        again = ask(endpoint.url, stop_when={"half_width": 0.1, "seed": 3}, prices=[PRICE])
        assert (len(endpoint.requests), endpoint.probes) == (100, 1)
    assert "its result stands" in again.stderr
    assert (found["of"], found["holds"], found["stopped"], found["saved_requests"]) == (
        ROWS,
        True,
        True,
        300,
    )
    cost = outcome.document()["usage"]["all_runs"]["cost"]["value"]
    assert found["saved_cost"] == pytest.approx(3 * cost)
    assert found["rule"] == {"half_width": 0.1, "alpha": 0.05, "seed": 3, "first": 50}
    stats = main_stats(outcome)
    last = found["looks"][-1]
    assert (stats["count"], stats["ci_method"]) == (100, "clopper-pearson-of-4-looks")
    assert (stats["ci_low"], stats["ci_high"]) == (last["ci_low"], last["ci_high"])
    first = found["looks"][0]
    assert (first["ci_high"] - first["ci_low"]) / 2 > 0.1 >= (last["ci_high"] - last["ci_low"]) / 2
    says(notes_of(outcome), "100 of 400 instances", "at random", "seed 3")
    assert not [one for one in notes_of(outcome) if "version of the data" in one]
    shown = " ".join((outcome.stderr + outcome.stdout).split())
    says(shown, "look 1: 50 of", "400 instances", "exact_match")
    says(shown, "half_width 0.1", "does not hold", "100 are asked next")
    says(shown, "100 of 400 instances", "2 looks", "half_width 0.1 holds", "about 300 requests")
    assert outcome.document()["provenance"]["seeds"]["sample"] == 3
    verified = program("verify", str(outcome.output_dir))
    assert verified.returncode == 0, verified.stdout + verified.stderr


def notes_of(outcome: Outcome) -> list[str]:
    notes: list[str] = outcome.document()["validity"]["notes"]
    return notes


def test_a_rule_that_never_holds_asks_all_and_says_so(ask: Ask) -> None:
    with ScriptedEndpoint(always_a) as endpoint:
        outcome = ask(endpoint.url, stop_when={"half_width": 0.01, "first": 110}, limit=200)
        assert len(endpoint.requests) == 200
    found = stopped_early(outcome)
    assert [look["n"] for look in found["looks"]] == [110, 200]
    assert (found["holds"], found["stopped"], found["saved_requests"], found["saved_cost"]) == (
        False,
        False,
        0,
        None,
    )
    says(notes_of(outcome), "never held", "all 200 instances")


@pytest.mark.usefixtures("as_processes")
def test_a_killed_run_goes_on_and_asks_nothing_twice(ask: Ask, tmp_path: Path) -> None:
    holder = tmp_path / "out" / ".lock.holder.json"
    ended = threading.Lock()

    def deadly(prompt: str) -> str:
        if len(endpoint.requests) >= 70 and ended.acquire(blocking=False):
            os.kill(json.loads(holder.read_text("utf-8"))["pid"], signal.SIGKILL)
        return nine_of_ten(prompt)

    with ScriptedEndpoint(deadly) as endpoint:
        killed = ask(endpoint.url, stop_when={"half_width": 0.03}, limit=100)
        assert killed.returncode == -signal.SIGKILL
        assert not (killed.output_dir / "evaluation_config.yaml").exists()
        outcome = ask(endpoint.url, stop_when={"half_width": 0.03}, limit=100)
        asked = [request["messages"][-1]["content"] for request in endpoint.requests]
    assert stopped_early(outcome)["asked"] == len(set(asked)) == 100
    assert len(asked) <= 100 + 4, "those that were on their way"


@pytest.mark.parametrize(
    ("answer", "holds", "asked"), [(nine_of_ten, True, 50), (always_a, False, 100)]
)
def test_it_ends_once_the_floor_is_beaten(ask: Ask, answer: Any, holds: bool, asked: int) -> None:
    with ScriptedEndpoint(answer) as endpoint:
        found = stopped_early(ask(endpoint.url, stop_when={"beats_floor": True}, limit=100))
    assert (found["holds"], found["asked"], found["rule"]["beats_floor"]) == (holds, asked, True)


def test_it_ends_once_the_difference_to_another_run_is_shown(
    ask: Ask, table: Path, tmp_path: Path
) -> None:
    with ScriptedEndpoint(always_a) as endpoint:
        other = ask(endpoint.url, to="other")
    assert other.returncode == 0, other.stderr
    assert "stopped_early" not in other.document()["validity"]
    with ScriptedEndpoint(nine_of_ten) as endpoint:
        outcome = ask(endpoint.url, stop_when={"differs_from": str(other.output_dir)})
        found = stopped_early(outcome)
        assert (found["asked"], len(endpoint.requests), found["stopped"]) == (50, 50, True)
        assert found["looks"][0]["ci_low"] > 0
        write_rows(table, " Really?")
        differing = ask(
            endpoint.url, stop_when={"differs_from": str(other.output_dir)}, to="second"
        )
        assert (differing.returncode, len(endpoint.requests)) == (2, 100)
        says(differing.stderr, "50 instances", "50 are in both", "different prompts")
        (other.output_dir / "evaluation_config.yaml").rename(tmp_path / "away")
        refused = ask(endpoint.url, stop_when={"differs_from": str(other.output_dir)}, to="third")
        assert (refused.returncode, len(endpoint.requests)) == (2, 100)
    assert "differs_from: no finished run" in refused.stderr
    verified = program("verify", str(outcome.output_dir))
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_judges_are_asked_about_the_answers_of_the_looks_alone(
    run_program: Run, tmp_path: Path
) -> None:
    """80 cases of a rubric with two criteria; one answer in ten meets none."""
    about = {"kind": "rubric", "name": "mine", "description": "d", "dataset_file": "cases.jsonl"}
    (tmp_path / "benchmark.yaml").write_text(json.dumps(about), encoding="utf-8")
    rubrics = [{"criterion": f"Names cause {at}.", "points": 5} for at in (1, 2)]
    with (tmp_path / "cases.jsonl").open("w", encoding="utf-8") as file:
        for number in range(80):
            turns = [{"role": "user", "content": f"Question {number}?"}]
            file.write(
                json.dumps({"id": f"case{number}", "messages": turns, "rubrics": rubrics}) + "\n"
            )
    extra = {
        "benchmark": str(tmp_path / "benchmark.yaml"),
        "judges": [{"name": "gpt", "model_id": "judge/one"}],
        "stop_when": {"half_width": 0.25, "first": 20},
    }
    with RubricEndpoint(
        lambda messages: messages[-1]["content"],
        lambda _model, conversation, _criterion: said(number_in(conversation) % 10 > 0),
    ) as endpoint:
        outcome = run_program("custom", endpoint.url, params={"extra": extra})
        found = stopped_early(outcome)
        assert len(endpoint.conversations) == found["asked"] < 80
        assert endpoint.judged == 2 * found["asked"]
    assert found["saved_requests"] == 3 * (80 - found["asked"])
    assert main_stats(outcome)["ci_method"].endswith("-of-3-looks")


def test_a_dry_run_shows_the_looks(ask: Ask) -> None:
    looked = ask(NOWHERE, "--dry_run", stop_when={"half_width": 0.05})
    assert looked.returncode == 0, looked.stderr
    says(looked.stdout, "stop_when half_width 0.05", "50, 100, 200, 400", "seed 0")
    assert "--max-eval-instances 50 " in looked.stdout
