"""Lines that fit a screen, what ends on it where a command fails, and flags that stand for a value of the run config."""

from __future__ import annotations

import errno
import io
import os
import re
import tempfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from eval_factory.cli import main, task_listing
from eval_factory.cli.console import number_or_share, show_table, text_width, wrapped
from eval_factory.cli.main import cli
from eval_factory.cli.task_listing import SCHEMAS, schema_text
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from facts import says


def test_a_message_is_printable_and_each_line_of_it_ours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main._say(
        "wrong \x1b[2J\u202e\x85eval-factory: a false line\u2028another\n  check it\nsecond\n"
    )
    first = "eval-factory: wrong \\x1b[2J\\u202e\\x85eval-factory: a false line\\u2028another"
    assert capsys.readouterr().err.splitlines() == [first, "  check it", "eval-factory: second"]


def test_clean_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main._report_defect(ValueError("odd \x1b[2J")) == 70
    (file,) = tmp_path.glob("eval-factory-defect-*.log")
    assert "ValueError: odd \\x1b[2J\n" in file.read_text("utf-8")
    assert str(file) in capsys.readouterr().err


def test_a_long_message_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "cannot reach " + "the endpoint that was given " * 4 + "\n  check it"
    main._say(message)
    assert capsys.readouterr().err == f"eval-factory: {message.splitlines()[0]}\n  check it\n", (
        "one line in a log"
    )
    monkeypatch.setattr("eval_factory.cli.console.TolerantStream.isatty", lambda _: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((40, 24)))
    main._say(message)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "eval-factory: cannot reach the endpoint",
        "    that was given the endpoint that was",
    ]
    assert lines[-1] == "  check it"
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize(
    ("number", "path", "code", "said"),
    [
        (errno.ENAMETOOLONG, "x", 3, "eval-factory: x: "),
        (errno.EACCES, b"y", 3, "eval-factory: y: "),
        (errno.EACCES, None, 70, "a defect"),
        (errno.ENOSPC, "x", 3, "cannot write x: "),
        (
            errno.EROFS,
            "x",
            3,
            "make room on the disk, or make it writable, then run the same command again",
        ),
        (errno.ENOSPC, None, 3, "cannot write the output: "),
        (errno.EBUSY, "x", 70, "a defect"),
    ],
)
def test_codes(
    number: int,
    path: str | bytes | None,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = (
        OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))
    )
    assert main._exit_code_of(error) == code
    assert said in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == (code == 70)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_a_schema_as_it_stands_in_the_docs(name: str) -> None:
    result = CliRunner().invoke(cli, ["schema", name], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, schema_text(name))
    assert result.output.endswith("}\n")


def test_a_name_that_there_is_not_is_said_with_those_that_there_are() -> None:
    all_names = "run_config, evaluation_config, results, suite_results, gate_policy, suite, monitor"
    for name, told in (
        ("run_confg", "'run_confg', did you mean 'run_config'"),
        ("zzz", f"'zzz'; there are {all_names}$"),
    ):
        with pytest.raises(ConfigError, match=f"no schema {told}"):
            schema_text(name)


def test_every_command_is_in_the_help_and_one_that_is_nearly_one_is_named() -> None:
    told = CliRunner().invoke(cli, ["--help"]).output
    assert all(name in told for name in ("run_eval", "ls", "verify", "leaderboard"))
    wrong = CliRunner().invoke(cli, ["verifi"])
    assert wrong.exit_code == 2
    assert "did you mean 'verify'?" in wrong.output


FLAGS = {
    "limit_samples": (7, "config.params.limit_samples"),
    "parallelism": (3, "config.params.parallelism"),
    "max_new_tokens": (99, "config.params.max_new_tokens"),
    "max_retries": (2, "config.params.max_retries"),
    "request_timeout": (7.5, "config.params.request_timeout"),
    "temperature": (0.25, "config.params.temperature"),
    "top_p": (0.5, "config.params.top_p"),
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "x.yml"
    of_run = {"type": "pubmed_qa", "output_dir": "o", "params": dict.fromkeys(FLAGS, 1)}
    target = {"api_endpoint": {"url": "https://h/v1", "model_id": "m"}}
    file.write_text(yaml.safe_dump({"config": of_run, "target": target}))
    return file


def dry_run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(
        cli, ["run_eval", "--run_config", str(config), "--dry_run", *arguments]
    )


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_beats_the_file_and_overrides_beat_the_flag(name: str, config: Path) -> None:
    value, path = FLAGS[name]
    for spelling in (name, name.replace("_", "-")):
        lines = dry_run(config, f"--{spelling}", str(value)).output.splitlines()
        assert ["#", path, "flag:", str(value)] in [line.split() for line in lines]
    both = dry_run(config, f"--{name}", str(value), "--overrides", f"{path}=1").output.splitlines()
    assert ["#", path, "--overrides:", str(type(value)(1))] in [line.split() for line in both]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run-eval", "--run-config"],
        ["new-benchmark", "--help"],
        ["data", "unpack", "--max-bytes"],
        ["leaderboard", "run", "--allow-code-execution", "--max-eval-instances"],
    ],
)
def test_hyphens_stand_for_underscores_in_every_command(arguments: list[str]) -> None:
    underscored = [word[:2] + word[2:].replace("-", "_") for word in arguments]
    one, other = (CliRunner().invoke(cli, words) for words in (arguments, underscored))
    assert (one.output, one.exit_code) == (other.output, other.exit_code)
    assert "No such" not in one.output
    assert ("requires an argument" in one.output) is (arguments[-1] != "--help")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("", [""]),
        ("x" * 20, ["x" * 20]),
        ("one two three four five", ["one two three four", "    five"]),
        ("  note: one two three", ["  note: one two", "      three"]),
        ("one two  three four five six seven", ["one two  three four", "    five six seven"]),
        ("one two three four\n  five", ["one two three four", "  five"]),
        ("see /a/path/that/is/longer/than/this", ["see", "    /a/path/that/is/longer/than/this"]),
        ("  results: /a/path/that/is/longer", ["  results: /a/path/that/is/longer"]),
        ("a score is 0.5  (0.1 .. 0.9)", ["a score is 0.5  (0.1", "    .. 0.9)"]),
    ],
)
def test_a_long_line_goes_on_below(text: str, lines: list[str]) -> None:
    assert wrapped(text, 20).split("\n") == lines


def test_nothing_is_lost_and_nothing_is_wider() -> None:
    text = "\n".join(
        f"{' ' * (number % 5)}note: " + "words of any length " * number for number in range(9)
    )
    for width in (20, 40, 80):
        shown = wrapped(text, width)
        assert shown.split() == text.split()
        assert max(map(len, shown.split("\n"))) <= width
    assert wrapped("x " * 60) == wrapped("x " * 60, 80)
    screen = io.StringIO()
    show_table(("a", "b"), [("x", "[bold]y[/bold] [cannot be run]")], file=screen)
    assert "[bold]y[/bold] [cannot be run]" in screen.getvalue(), "a description is not markup"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("real", "used"), [(200, 80), (80, 80), (40, 40), (3, 20)])
def test_a_terminal_is_as_wide_as_it_is_up_to_80(
    real: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((real, 24)))
    assert text_width(Terminal()) == used
    for stated, width in (("", 80), (str(real), used), ("wide", 80), ("0", 80)):
        monkeypatch.setenv("COLUMNS", stated)
        assert text_width(io.StringIO()) == width


ROWS = task_listing.task_rows(load_framework().evaluations)
COLUMNS = task_listing.TASK_COLUMNS


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = io.StringIO()
    show_table(COLUMNS, ROWS, file=screen)
    return [re.sub("\x1b\\[[0-9;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]


@pytest.mark.parametrize("width", [200, 100, 80, 60, 52])
def test_names_are_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(width, monkeypatch)
    first_words = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    names = [row[0] for row in ROWS]
    assert [word for word in first_words if word in names] == names
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [30, 52, 61, 80, 120, 200])
def test_no_letter_of_a_cell_that_is_shown_is_lost(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At some widths rich cuts what it does not know to be too wide."""
    monkeypatch.setenv("COLUMNS", str(width))
    names = ("task", "state", "size", "needs", "where")
    rows = [
        ("a_name_of_twenty_six_letter", "not there", "", "hub:organization/data-set", "host"),
        ("b", "there", "1 MB", "first_file.json, second_file.json and 2 more", "h" * 37),
    ]
    screen = io.StringIO()
    show_table(names, rows, file=screen)
    head, *lines = screen.getvalue().splitlines()
    starts = {name: head.index(name) for name in names if name in head}
    ends = dict(zip(starts, [*list(starts.values())[1:], None], strict=True))
    for number, name in enumerate(names):
        if name in starts and name != "size":  # numbers stand at the right
            below = "".join(
                line[starts[name] : ends[name]] for line in lines if "wider" not in line
            )
            assert "".join(below.split()) == "".join(row[number] for row in rows).replace(" ", "")


def test_what_is_left_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    says(shown(80, monkeypatch), "a wider terminal", "instances, data size")
    wide = shown(200, monkeypatch)
    assert wide[0].split() == " ".join(COLUMNS).split()
    assert not [line for line in wide if "a wider terminal" in line]


@pytest.mark.parametrize(
    ("text", "number"), [("20", 20), ("20.0", 20), ("1e3", 1000), ("0.1", 0.1)], ids=str
)
def test_a_number_of_instances_or_a_share_of_them(text: str, number: float) -> None:
    found = number_or_share(text)
    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize("text", ["1.5", "inf", "nan", "many"])
def test_neither_a_number_of_instances_nor_a_share(text: str) -> None:
    with pytest.raises(ValueError, match="neither a whole number nor a share"):
        number_or_share(text)
