"""`leaderboard ls` and `leaderboard run` as far as they start nothing."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import click.testing
import pytest
import requests

from eval_factory.cli.main import cli
from eval_factory.cli.suite_command import write_leaderboards
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.registry import Leaderboard, load_catalogue
from facts import says
from unit.cli.test_main import Terminal

TARGET = ("--model", "org/model", "--model_url", "https://host.example/v1")


def call(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, ["leaderboard", *arguments], standalone_mode=False)


ROWS = load_catalogue().leaderboards
RUNNABLE = [row.name for row in ROWS if not row.lacks and not row.needs_organization]


@pytest.mark.parametrize("name", [*RUNNABLE, "medhelm_private_stanford"])
def test_dry_run_of_every_row(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(requests, "get", lambda *_, **__: pytest.fail("a dry run contacts nobody"))
    row = registry.find_leaderboard(name)
    kind = ("--model_type", "images") if row.makes_images else ()
    result = call("run", name, *TARGET, *kind, "--dry_run")
    assert result.exception is None
    summarize, server = (shlex.split(line) for line in result.stdout.splitlines())
    assert [Path(argv[0]).name for argv in (summarize, server)] == ["helm-summarize", "helm-server"]
    folder = tmp_path / "results" / f"leaderboard_{name}"
    says(result.stderr, "would be downloaded", "https://")
    assert {argv[argv.index("--suite") + 1] for argv in (summarize, server)} == {name}
    assert {argv[argv.index("--output-path") + 1] for argv in (summarize, server)} == {
        str(folder / "helm")
    }
    schema = Path(summarize[summarize.index("--schema-path") + 1])
    assert (schema.name, schema.is_file()) == (row.schema_file, not row.schema_changes), (
        "one of ours is written with the tables"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nosuch", *TARGET), "no leaderboard is called 'nosuch'"),
        (("lite", *TARGET, "--parallelism", "0"), "config.params.parallelism: "),
        (
            ("lite", "--model", "m", "--model_url", "ftp://h"),
            "target.api_endpoint.url: needs a scheme",
        ),
        (("lite", *TARGET, "--min_coverage", "2"), "config.params.extra.min_coverage: "),
        (("lite", *TARGET, "--model_type", "x"), "target.api_endpoint.type: "),
        (("lite", *TARGET, "--model", "org/model"), "--model: org/model is given twice"),
        (("lite", "--model", "m"), "target.api_endpoint.url: is missing"),
        (("lite", *TARGET, "--overrides", "config.params.temperature=1"), "lite prescribes"),
        (("lite", *TARGET, "--conf", "/no/such.conf"), "/no/such.conf cannot be read"),
        (("medhelm_private", *TARGET), "add the organization"),
        (("heim", *TARGET), "runs on images, not on chat"),
    ],
)
def test_what_is_wrong_is_said_by_a_dry_run_too(arguments: tuple[str, ...], said: str) -> None:
    for dry in ((), ("--dry_run",)):
        error = call("run", *arguments, *dry).exception
        assert isinstance(error, ConfigError)
        assert said in str(error)


def conf_of(folder: Path, *descriptions: str) -> Path:
    file = folder / "x.conf"
    file.write_text(
        json.dumps({"entries": [{"description": text, "priority": 1} for text in descriptions]})
    )
    return file


def test_a_dry_run_looks_at_the_conf(tmp_path: Path) -> None:
    without_data = "ehrshot:subject=guo_readmission,data_path=/no/such,model=x/y"
    entries = ("mmlu:subject=a,model=text", "twitter_aae:demographic=aa,model=text", without_data)
    arguments = (
        "run",
        "lite",
        *TARGET,
        "--model",
        "other",
        "--conf",
        str(conf_of(tmp_path, *entries)),
        "--dry_run",
    )
    result = call(*arguments, "--output_dir", str(tmp_path / "out"))
    assert result.exception is None
    says(result.stderr, "3 entries", "3 distinct entries")
    says(result.stderr, "1 entries", "left out", "log probabilities (1)")
    says(result.stderr, "data_path /no/such", "does not exist", "1 entries")
    programs = [Path(line.split()[0]).name for line in result.stdout.splitlines()]
    assert programs == [*["helm-run"] * 4, "helm-summarize", "helm-server"], (
        "two entries of two models"
    )
    assert not (tmp_path / "out").exists()


def test_offline_downloads_no_conf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "get", lambda *_, **__: pytest.fail("asked for the conf"))
    error = call("run", "lite", *TARGET, "--offline").exception
    assert isinstance(error, PrerequisiteError)
    assert "--conf FILE" in str(error)


def test_a_key_where_its_name_belongs_is_not_shown() -> None:
    result = call("run", "lite", *TARGET, "--api_key_name", "sk-0123456789abcdef0123")
    assert isinstance(result.exception, ConfigError)
    assert "0123456789abcdef" not in str(result.exception) + result.output


def row(**changes: object) -> Leaderboard:
    usual = {
        "name": "mine",
        "description": "What it is",
        "conf": "run_entries_mine.conf",
        "schema": "schema_mine.yaml",
        "num_train_trials": 1,
        "max_eval_instances": 70,
        "priority": 2,
    }
    return Leaderboard.model_validate({**usual, **changes})


def shown(*, as_json: bool = False, as_tsv: bool = False, stream: io.StringIO | None = None) -> str:
    out = stream or io.StringIO()
    write_leaderboards(out, as_json=as_json, as_tsv=as_tsv)
    return out.getvalue()


def test_a_line_and_a_record_hold_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (row(), row(needs=["a key", "a disk"]))
    monkeypatch.setattr(registry, "schema_path", lambda _row: "somewhere")
    monkeypatch.setattr(registry, "load_catalogue", lambda: SimpleNamespace(leaderboards=rows))
    plain = "mine\tWhat it is\trun_entries_mine.conf\tschema_mine.yaml\t70"
    assert shown(as_tsv=True).splitlines()[1:] == [f"{plain}\t-", f"{plain}\ta key; a disk"]
    records = json.loads(shown(as_json=True))
    assert [one["needed"] for one in records] == [[], ["a key", "a disk"]]
    assert {
        (one["schema"], one["schema_installed"], one["max_eval_instances"]) for one in records
    } == {("schema_mine.yaml", True, 70)}


@pytest.mark.parametrize("stream", [None, Terminal()])
def test_json_has_every_row_wherever_it_is_read(stream: io.StringIO | None) -> None:
    found = json.loads(shown(as_json=True, stream=stream))
    assert [one["name"] for one in found] == [row.name for row in ROWS]


@pytest.mark.parametrize("stream", [None, Terminal()])
def test_people_read_a_line_for_each_fact_below_what_the_lines_are(
    stream: io.StringIO | None,
) -> None:
    lines = shown(stream=stream).splitlines()
    assert [line.strip().split(",")[0] for line in lines[:3]] == [
        "name",
        "what it is",
        "run entries",
    ]
    text = " ".join(" ".join(lines).split())
    assert all(f"{row.name} {row.description}" in text for row in ROWS)
    assert all(f"{row.max_eval_instances} instances" in text for row in ROWS)


def test_programs_read_a_line_a_leaderboard() -> None:
    found = [line.split("\t")[0] for line in shown(as_tsv=True).splitlines()[1:]]
    assert found == [row.name for row in ROWS]


def test_no_line_is_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = [f"need {number} of a long list of things that nobody has here" for number in range(5)]
    rows = (row(conf=f"run_entries_{'long_' * 8}.conf", needs=["; ".join(needs)]),)
    monkeypatch.setattr(registry, "load_catalogue", lambda: SimpleNamespace(leaderboards=rows))
    text = shown(stream=Terminal())
    assert max(map(len, text.splitlines())) <= 80
    assert needs[4].split()[-1] in text
