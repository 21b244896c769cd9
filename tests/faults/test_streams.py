"""Output that nobody reads, a full disk behind it, locales without UTF-8: the exit code stays that of the command."""

from __future__ import annotations

import io
import os
import shlex
from itertools import product
from pathlib import Path

import pytest

from eval_factory.cli.console import TolerantStream, discard_output, has_no_reader
from facts import says
from programs import EVAL_FACTORY, Finished, ran

PROGRAM = shlex.join(EVAL_FACTORY)
CONFIG = """\
config: {type: sample_medical_qa, output_dir: out, params: {limit_samples: 2}}
target: {api_endpoint: {url: "demo://baseline", model_id: m}}
"""
LOOKING = ("ls", "--help", "leaderboard ls", "data ls", "run_eval --run_config x.yml --dry_run")


@pytest.fixture(autouse=True)
def _config(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(CONFIG)


def shell(command: str, folder: Path, **env: str) -> Finished:
    return ran(["bash", "-c", command], folder, env)


@pytest.mark.parametrize(
    ("arguments", "to", "code"),
    [
        *(
            (arguments, to, code)
            for arguments, (to, code) in product(LOOKING, (("| true", 0), (">/dev/full", 3)))
        ),
        ("ls --all", "| head -1", 0),
        ("ls", ">&-", 0),
        ("ls", ">&- 2>&-", 0),
        ("run_eval --run_config x.yml --dry_run", ">&-", 0),
    ],
)
def test_looking(arguments: str, to: str, code: int, tmp_path: Path) -> None:
    ended = shell(f"{PROGRAM} {arguments} {to}; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert ended.returncode == code, ended.stderr
    assert "defect" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ("No space left" in ended.stderr) == (code == 3)


@pytest.mark.parametrize("to", [">/dev/full", "2>&1 | head -1", ">&- 2>&-"])
def test_a_run_ends_with_its_own_code(to: str, tmp_path: Path) -> None:
    ended = shell(f"{PROGRAM} run_eval --run_config x.yml {to}; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "not reportable" not in ended.stderr.lower()
    assert (tmp_path / "out" / "evaluation_config.yaml").is_file()


@pytest.mark.parametrize("to", [">&- 2>&-", "2>/dev/full"])
def test_a_mistake_ends_with_2_where_nobody_reads_of_it(to: str, tmp_path: Path) -> None:
    assert shell(f"{PROGRAM} run_eval --run_config no-such.yml {to}", tmp_path).returncode == 2
    assert shell(f"{PROGRAM} run_eval --no_such_option {to}", tmp_path).returncode == 2


POSIX = {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
ASCII = {"PYTHONIOENCODING": "ascii"}


@pytest.mark.parametrize(
    "env", [POSIX, {**POSIX, **ASCII}, {"LC_ALL": "C", **ASCII}], ids=["posix", "both", "ascii"]
)
def test_a_locale_without_utf_8(env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "ördner"
    folder.mkdir()
    (folder / "ü.yml").write_text(CONFIG)
    run = "run_eval --run_config ü.yml --output_dir größe_日本"
    whole = [run] if "PYTHONIOENCODING" in env and "PYTHONUTF8" in env else []
    for arguments in ("ls", f"{run} --dry_run", *whole):
        ended = shell(f"{PROGRAM} {arguments}", folder, **env)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
    assert (folder / "größe_日本" / "evaluation_config.yaml").is_file() is bool(whole)
    missing = shell(f"{PROGRAM} run_eval --run_config nö.yml", folder, **env)
    assert missing.returncode == 2
    says(missing.stderr, "no such file")


class _Failing(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_lasting_stream_loses_what_it_cannot_write() -> None:
    kept = io.StringIO()
    stream = TolerantStream(kept)
    assert stream.write("a") == 1
    stream.writelines(["b", "c"])
    assert kept.getvalue() == "abc"
    assert not stream.isatty()
    assert TolerantStream(_Failing()).write("ab") == 2
    kept.close()
    assert stream.write("d") == 1
    assert not stream.isatty()


def test_what_a_lasting_stream_could_not_write_does_not_come_back() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        os.close(reading)
        assert TolerantStream(stream).write("x") == 1
        stream.flush()


def test_who_reads_a_pipe() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        assert not has_no_reader(stream)
        os.close(reading)
        assert has_no_reader(stream)
        discard_output(stream)
        assert not has_no_reader(stream)
        stream.write("x")
    assert not has_no_reader(io.StringIO())
