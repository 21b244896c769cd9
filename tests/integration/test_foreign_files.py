"""A folder of results, or a suite, from a stranger: no command shows a reader's own files through it, and none hangs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from finished_folder import finished_folder
from program_runs import more_data, program_each
from suite_by_hand import cell_ended, ended, started, suite_folder

CANARY = "KEY_OF_THE_READER: 4f9a1c"
OF_A_RUN = (
    "verify out",
    "report out",
    "report out other -o page.html",
    "report out --plots plots",
    "report out --for model_card",
    "compare out other",
    "gate policy.yml --candidate out",
    "export hf out",
    "export eee out --output files",
    "export mlflow out --tracking_uri http://127.0.0.1:1",
    "annotate export out --out sheet",
    "annotate import out sheet.csv",
    "annotate plan out",
    "reproduce out",
    "reproduce out --run --output_dir again",
    "view out --export site",
)
OF_A_SUITE = (
    "verify {suite}",
    "suite status {suite}",
    "suite check {suite}",
    "suite logs {suite} small/qa",
    "suite cancel {suite}",
)


def linked(path: Path) -> None:
    path.symlink_to(os.path.relpath("secret", path.parent))


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**42)


FOREIGN = {"link": linked, "fifo": os.mkfifo, "device": device, "huge": huge}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text(CANARY)
    Path("policy.yml").write_text("version: 1\nbenchmarks: {pubmed_qa: {min: 0.1}}\n")
    Path("sheet.csv").write_text("sheet,rater,item,number,rating\n")
    return tmp_path


def refused(home: Path, commands: Mapping[str, Collection[Path]]) -> None:
    """Each is, and names these files."""
    for (command, files), done in zip(
        commands.items(), program_each(*map(str.split, commands), cwd=home), strict=True
    ):
        said = done.stdout + done.stderr
        assert done.returncode == (1 if command.startswith("verify") else 3), (command, said)
        assert all(file.name in said for file in files), (command, said)
        assert CANARY not in said, command
        assert "Traceback" not in said, (command, said)


def test_no_command_reads_a_foreign_file_of_a_result(home: Path) -> None:
    root = finished_folder(home / "out").root
    finished_folder(home / "other")
    files = {
        "link": root / "results.jsonl",
        "fifo": root / "instances.jsonl",
        "device": root / "evaluation_config.yaml",
        "huge": root / "run_config.yml",
    }
    for kind, file in files.items():
        file.unlink()
        FOREIGN[kind](file)
    refused(home, dict.fromkeys(OF_A_RUN, files.values()))


@pytest.mark.parametrize("kind", ["link", *more_data("fifo")])
def test_what_is_collected_again_is_of_the_folder(kind: str, home: Path) -> None:
    commands: dict[str, list[Path]] = {}
    names = (
        "helm/runs/s/r/stats.json",
        "helm/more",
        "annotations/ratings.jsonl",
        "logs/events.jsonl",
        "cache.db",
    )
    for number, name in enumerate(names):
        file = finished_folder(home / f"out{number}").root / name
        file.unlink(missing_ok=True)
        file.parent.mkdir(exist_ok=True)
        FOREIGN[kind](file)
        commands |= {
            f"verify out{number}": [file],
            f"annotate import out{number} sheet.csv": [file],
        }
    refused(home, commands)


def a_suite(root: Path) -> Path:
    """Of one cell, whose folder is a result."""
    suite_folder(root, started(["small/qa"]), cell_ended("small/qa"), ended())
    finished_folder(root / "small" / "qa")
    (root / "suite_config.yml").write_text("suite: {}")
    (root / "suite_results.yaml").write_text("cells: []")
    return root


@pytest.mark.parametrize("kind", ["fifo", *more_data("link")])
def test_no_command_reads_a_foreign_file_of_a_suite(kind: str, home: Path) -> None:
    commands: dict[str, list[Path]] = {}
    for number, name in enumerate(
        (".suite/events.jsonl", "suite_config.yml", "small/qa/logs/helm-run.log")
    ):
        file = a_suite(home / f"suite{number}") / name
        file.unlink(missing_ok=True)
        FOREIGN[kind](file)
        commands |= {command.format(suite=f"suite{number}"): [file] for command in OF_A_SUITE}
    refused(home, commands)


def test_a_suites_runs_lie_in_it(home: Path) -> None:
    suite = a_suite(home / "suite")
    (suite / "small").rename(home / "small")
    (suite / "small").symlink_to(home / "small")
    (home / "more").mkdir()
    (home / "more" / "qa").symlink_to(home / "small" / "qa")
    commands = [
        *(one.format(suite="suite") for one in OF_A_SUITE),
        "gate policy.yml --candidate suite/small/..",
    ]
    named = {command: [suite / "small"] for command in commands}
    refused(home, {**named, "gate policy.yml --candidate more": [home / "more" / "qa"]})


def test_files_that_a_user_names_are_regular(home: Path) -> None:
    os.mkfifo("pipe")
    Path("custom.yml").write_text(
        "config: {type: custom, output_dir: new, params: {extra: {benchmark: pipe}}}\n"
        "target: {api_endpoint: {url: 'demo://baseline', model_id: m, type: chat}}\n"
    )
    Path("data.yml").write_text(
        Path("custom.yml")
        .read_text()
        .replace("custom", "healthbench")
        .replace("benchmark", "data_path")
    )
    commands = [
        "run_eval --run_config pipe",
        "run_suite --run_config pipe",
        "run_eval --run_config custom.yml",
        "run_eval --run_config data.yml --offline",
        "gate pipe --candidate nowhere",
    ]
    for command, done in zip(
        commands, program_each(*map(str.split, commands), cwd=home), strict=True
    ):
        assert done.returncode in (2, 3), (command, done.stderr)
        assert "pipe" in done.stderr, (command, done.stderr)
        assert "Traceback" not in done.stderr
