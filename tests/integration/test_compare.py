"""Two models whose right answers are known, run for real and compared by the program."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from eval_factory.cli.main import cli
from integration.support import program
from scripted_endpoint import ScriptedEndpoint

WRONG_A = range(12)
WRONG_B = range(9, 15)
FAILED_B = 39


@dataclass(frozen=True)
class Pair:
    a: Path
    b: Path

    def compare(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return program("compare", str(self.a), str(self.b), *arguments)


def answering(questions: list[dict[str, str]], wrong: range, failed: int | None) -> Callable[[str], str]:
    def answer(prompt: str) -> str:
        number = next((i for i, row in enumerate(questions) if row["question"] in prompt), None)
        if number is None:  # the probe
            return "pong"
        if number == failed:
            raise ConnectionError  # the connection ends without an answer
        right = questions[number]["correct_answer"]
        return "ABCD".replace(right, "")[0] if number in wrong else right

    return answer


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Runs of the sample benchmark: A has 28 of 40 right; B 33 of 39, and one request of B fails."""
    folder = tmp_path_factory.mktemp("compare")
    with (resources.files("eval_factory.demo") / "sample" / "data.csv").open(encoding="utf-8") as file:
        questions = list(csv.DictReader(file))
    for name, wrong, failed in (("a", WRONG_A, None), ("b", WRONG_B, FAILED_B)):
        with ScriptedEndpoint(answering(questions, wrong, failed)) as endpoint:
            params: dict[str, Any] = {"max_retries": 0, "extra": {"min_coverage": 0.9}}
            api = {"url": endpoint.url, "model_id": f"test/{name}", "type": "chat"}
            config = {"type": "sample_medical_qa", "output_dir": str(folder / name), "params": params}
            (folder / "run.yml").write_text(yaml.safe_dump({"config": config, "target": {"api_endpoint": api}}))
            finished = program("run_eval", "--run_config", str(folder / "run.yml"))
            assert finished.returncode == 0, finished.stderr
    return Pair(folder / "a", folder / "b")


def test_the_known_difference_is_found(pair: Pair) -> None:
    finished = pair.compare("--json", "--margin", "0.1", "--texts")
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    (one,) = document["comparisons"]
    assert (one["a"], one["b"], one["model_a"], one["model_b"]) == (str(pair.a), str(pair.b), "test/a", "test/b")
    assert (one["n"], one["failed"]) == (39, {"a_only": 0, "b_only": 1, "both": 0})
    assert one["value_a"] == pytest.approx(27 / 39)
    assert one["value_b"] == pytest.approx(33 / 39)
    assert one["difference"] == pytest.approx(6 / 39)
    assert one["ci_low"] < 6 / 39 < one["ci_high"]
    assert one["bounds"] == pytest.approx([5 / 40, 6 / 40])
    assert len(one["flips"]["a_only"]) == 3
    assert len(one["flips"]["b_only"]) == 9
    assert one["p_value"] == pytest.approx(0.1459961)  # of 12 discordant pairs, 9 to 3
    assert one["non_inferiority"] == "shown"
    assert list(document["texts"]) == [*one["flips"]["a_only"], *one["flips"]["b_only"]]
    for said in document["texts"].values():
        assert said["prompt"].startswith("Answer the medical question")
        assert said["A"] != said["B"]
        assert len(said["A"]) == len(said["B"]) == 1


def test_another_list_of_known_defects_is_refused_and_may_be_accepted(pair: Pair, tmp_path: Path) -> None:
    document = yaml.safe_load((pair.b / "evaluation_config.yaml").read_text("utf-8"))
    document["provenance"]["errata_version"] += 1
    for file in ("instances.jsonl", "results.jsonl", "run_config.yml"):
        (tmp_path / file).write_bytes((pair.b / file).read_bytes())
    (tmp_path / "evaluation_config.yaml").write_text(yaml.safe_dump(document), "utf-8")
    refused = program("compare", str(pair.a), str(tmp_path))
    assert refused.returncode == 1
    assert "- errata: A and B were scored with different lists of known defects" in refused.stdout
    assert refused.stderr == (
        "eval-factory: the results cannot be compared: errata; to compare all the same: --allow errata\n"
    )
    accepted = ["compare", str(pair.a), str(tmp_path), "--allow", "errata", "--markdown"]
    assert CliRunner().invoke(cli, accepted).exit_code == 0
