"""A folder of results, or a suite, from a stranger: no command shows a reader's own files through it, and none hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from finished_folder import finished_folder
from integration.support import TIMEOUT_S, program_environment
from suite_by_hand import cell_ended, ended, started, suite_folder

CANARY = "KEY_OF_THE_READER: 4f9a1c"
OF_A_RUN = (
    "verify out", "report out", "report out other -o page.html", "report out --plots plots",
    "report out --for model_card", "compare out other", "gate policy.yml --candidate out", "export hf out",
    "export eee out --output files", "export mlflow out --tracking_uri http://127.0.0.1:1",
    "annotate export out --out sheet", "annotate import out sheet.csv", "annotate plan out", "reproduce out",
    "reproduce out --run --output_dir again", "view out --export site",
)  # fmt: skip
OF_A_SUITE = (
    "verify suite", "suite status suite", "suite check suite", "suite logs suite small/qa", "suite cancel suite",
)  # fmt: skip


def linked(path: Path) -> None:
    path.symlink_to(os.path.relpath("secret", path.parent))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**42)


FOREIGN = {"link": linked, "fifo": os.mkfifo, "device": device, "huge": huge}


def run(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eval_factory", *command.split()], env=program_environment(), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text(CANARY)
    Path("policy.yml").write_text("version: 1\nbenchmarks: {pubmed_qa: {min: 0.1}}\n")
    Path("sheet.csv").write_text("sheet,rater,item,number,rating\n")
    return tmp_path


def refused(command: str, *files: Path) -> None:
    done = run(command)
    said = done.stdout + done.stderr
    assert done.returncode == (1 if command.startswith("verify") else 3), (command, said)
    assert all(file.name in said for file in files), (command, said)
    assert CANARY not in said, command
    assert "Traceback" not in said, (command, said)


@pytest.mark.parametrize("command", OF_A_RUN)
def test_no_command_reads_a_foreign_file_of_a_result(command: str, home: Path) -> None:
    root = finished_folder(home / "out").root
    finished_folder(home / "other")
    files = {
        "link": root / "results.jsonl", "fifo": root / "instances.jsonl", "device": root / "evaluation_config.yaml",
        "huge": root / "run_config.yml",
    }  # fmt: skip
    for kind, file in files.items():
        file.unlink()
        FOREIGN[kind](file)
    refused(command, *files.values())


@pytest.mark.parametrize(
    "name", ["helm/runs/s/r/stats.json", "helm/more", "annotations/ratings.jsonl", "logs/events.jsonl", "cache.db"]
)
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_is_collected_again_is_of_the_folder(kind: str, name: str, home: Path) -> None:
    file = finished_folder(home / "out").root / name
    file.unlink(missing_ok=True)
    file.parent.mkdir(exist_ok=True)
    FOREIGN[kind](file)
    refused("verify out", file)
    refused("annotate import out sheet.csv", file)


def a_suite(root: Path) -> Path:
    """Of one cell, whose folder is a result."""
    suite_folder(root, started(["small/qa"]), cell_ended("small/qa"), ended())
    finished_folder(root / "small" / "qa")
    (root / "suite_config.yml").write_text("suite: {}")
    (root / "suite_results.yaml").write_text("cells: []")
    return root


@pytest.mark.parametrize("kind", ["link", "fifo"])
@pytest.mark.parametrize("name", [".suite/events.jsonl", "suite_config.yml", "small/qa/logs/helm-run.log"])
def test_no_command_reads_a_foreign_file_of_a_suite(kind: str, name: str, home: Path) -> None:
    file = a_suite(home / "suite") / name
    file.unlink(missing_ok=True)
    FOREIGN[kind](file)
    for command in OF_A_SUITE:
        refused(command, file)


def test_a_suites_runs_lie_in_it(home: Path) -> None:
    suite = a_suite(home / "suite")
    (suite / "small").rename(home / "small")
    (suite / "small").symlink_to(home / "small")
    for command in (*OF_A_SUITE, "gate policy.yml --candidate suite/small/.."):
        refused(command, suite / "small")
    (home / "more").mkdir()
    (home / "more" / "qa").symlink_to(home / "small" / "qa")
    refused("gate policy.yml --candidate more", home / "more" / "qa")


def test_files_that_a_user_names_are_regular(home: Path) -> None:
    os.mkfifo("pipe")
    Path("custom.yml").write_text(
        "config: {type: custom, output_dir: new, params: {extra: {benchmark: pipe}}}\n"
        "target: {api_endpoint: {url: 'demo://baseline', model_id: m, type: chat}}\n"
    )
    Path("data.yml").write_text(
        Path("custom.yml").read_text().replace("custom", "healthbench").replace("benchmark", "data_path")
    )
    for command in (
        "run_eval --run_config pipe", "run_suite --run_config pipe", "run_eval --run_config custom.yml",
        "run_eval --run_config data.yml --offline", "gate pipe --candidate nowhere",
    ):  # fmt: skip
        done = run(command)
        assert done.returncode in (2, 3), (command, done.stderr)
        assert "pipe" in done.stderr, (command, done.stderr)
        assert "Traceback" not in done.stderr
