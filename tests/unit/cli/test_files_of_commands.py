"""Files that a command line names: a FIFO, a device or a file without end is neither waited for nor
read, whichever command has it. A command that is new has to be put into one of the two tables.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.errors import EvalFactoryError

FILE = "FILE"
MODEL = ("--model_url", "http://127.0.0.1:1/v1", "--model_id", "m", "--output_dir", "T")
COMMANDS = {
    "annotate import sheets": ["annotate", "import", "FOLDER", FILE],
    "calibrate labels": [
        "calibrate",
        FILE,
        "--judge",
        "gpt",
        "--judges-from",
        "ABSENT",
        "--to",
        "T",
    ],
    "calibrate judges_from": [
        "calibrate",
        "LABELS",
        "--judge",
        "gpt",
        "--judges-from",
        FILE,
        "--to",
        "T",
    ],
    "data unpack archive": ["data", "unpack", FILE, "T"],
    "gate policy": ["gate", FILE, "--candidate", "FOLDER"],
    "import sources": ["import", FILE, "-o", "T"],
    "import_config file": ["import_config", FILE],
    "leaderboard run run_config": ["leaderboard", "run", "seahelm", "--run_config", FILE],
    "leaderboard run conf": ["leaderboard", "run", "seahelm", "--conf", FILE, *MODEL],
    "ls benchmark": ["ls", FILE],
    "monitor change panel": ["monitor", "change", FILE, "ABSENT"],
    "monitor change new_target": ["monitor", "change", "PANEL", FILE],
    "monitor look panel": ["monitor", "look", FILE],
    "monitor note panel": ["monitor", "note", FILE, "a note", "--by", "me"],
    "monitor report panel": ["monitor", "report", FILE],
    "monitor status panel": ["monitor", "status", FILE],
    "monitor verify panel": ["monitor", "verify", FILE],
    "rescore run_config": ["rescore", "FOLDER", "--output_dir", "T", "--run_config", FILE],
    "run_eval run_config": ["run_eval", "--run_config", FILE, "--dry_run"],
    "run_eval diff": ["run_eval", "--run_config", "CONFIG", "--dry_run", "--diff", FILE],
    "run_suite run_config": ["run_suite", "--run_config", FILE, "--dry_run"],
}
"""Command and parameter that reads a file -> a command line with it."""
ELSEWHERE = frozenset({"doctor run_config", "data pack archive"})
"""The first reads as `run_eval` does, beside a sandbox that no unit test starts; the second is
written.
"""
FOLDERS = frozenset(
    {"folder", "folders", "out", "output", "output_dir", "to", "target", "candidate", "baseline"}
    | {
        "junit",
        "attest",
        "plots",
        "reuse",
        "wheels",
        "download",
        "from_",
        "imported",
        "source_folder",
    }
)
"""Parameters that name a folder of ours, or what is written."""
TEXTS = {
    "POLICY": "version: 1\nbenchmarks: {pubmed_qa: {min: 0.5}}\n",
    "LABELS": '{"prompt": "p", "completion": "c", "rubric": "r", "binary_labels": [true, false],'
    ' "anonymized_physician_ids": ["x", "y"]}\n',
    "CONFIG": "config: {type: pubmed_qa, output_dir: T}\n"
    "target: {api_endpoint: {url: 'http://127.0.0.1:1/v1', model_id: m, type: chat}}\n",
    "PANEL": "monitor: {output_dir: T, tasks: [{type: pubmed_qa, size: 9, max_drop: 0.1}], change: {policy: POLICY}, "
    "target: {api_endpoint: {url: 'http://127.0.0.1:1/v1', model_id: m, type: chat}}}\n",
}


def parameters(command: click.Command, name: str = "") -> Iterator[tuple[str, str]]:
    """(command, parameter) of each path below a command."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for part in command.list_commands(context):
            inner = command.get_command(context, part)
            assert inner is not None
            yield from parameters(inner, f"{name} {part}".strip())
        return
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            yield name, str(parameter.name)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(17 << 30)  # takes no block of the disk


class WaitedForFileError(BaseException):
    """A file that is no file was waited for; nothing that handles errors takes it for one."""


@pytest.fixture
def _no_waiting() -> Iterator[None]:
    def end(*_: object) -> None:
        raise WaitedForFileError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_each_path_of_a_command_is_in_a_table() -> None:
    unknown = []
    for command, parameter in parameters(cli):
        name = f"{command} {parameter}"
        if parameter not in FOLDERS and name not in COMMANDS and name not in ELSEWHERE:
            unknown.append(name)
    assert unknown == []


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize("made", [fifo, device, large])
@pytest.mark.parametrize("named", COMMANDS)
def test_a_file_that_is_none_ends_the_command(
    named: str, made: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / FILE)
    (tmp_path / "FOLDER").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(cli, COMMANDS[named])
    assert result.exit_code != 0
    said = result.output
    if isinstance(result.exception, EvalFactoryError | click.ClickException):
        said += str(result.exception)
    assert FILE in said or "FOLDER" in said, (said, result.exception)
    assert not (tmp_path / "T").exists()
