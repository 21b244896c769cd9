"""The commands as a user types them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory import __version__
from eval_factory.tasks.framework import load_framework
from integration.support import program_environment


def run(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eval_factory", *arguments], env=program_environment(**env), cwd=cwd,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_version_and_help() -> None:
    assert run("--version").stdout == f"eval-factory, version {__version__}\n"
    for arguments in (("--help",), ("run_eval", "--help"), ("run-eval", "-h"), ("ls", "--help")):
        assert run(*arguments).returncode == 0


def test_ls_keeps_the_form_that_programs_parse() -> None:
    lines = run("ls").stdout.splitlines()
    assert lines[0] == "helm:"
    assert lines[1:] == [f"  * {name}" for name in load_framework().names()]


def test_ls_json_and_tag() -> None:
    records = json.loads(run("ls", "--json").stdout)
    assert [record["name"] for record in records] == load_framework().names()
    assert all(record["endpoint_types"] and record["access"] and record["source"] for record in records)
    assert run("ls", "--tag", "sql").stdout == "helm:\n  * ehr_sql\n"
    unknown = run("ls", "--tag", "nonsense")
    assert unknown.returncode == 2
    assert "tags: " in unknown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run_eval",), ("nonsense",), ("run_eval", "--nonsense"), ("run_eval", "--run_config", "no-such-file.yml"),
        ("run_eval", "--run_config", "."), ("run_eval", "--overrides", "x"), ("run_eval", "--eval_type", "pubmedqa"),
    ],
)  # fmt: skip
def test_mistakes_end_with_2_and_without_traceback(arguments: tuple[str, ...], tmp_path: Path) -> None:
    finished = run(*arguments, cwd=tmp_path)
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr
    assert finished.stderr.strip()
    assert list(tmp_path.iterdir()) == []


def test_a_key_given_as_a_flag_is_not_printed(tmp_path: Path) -> None:
    key = "sk-canary0123456789abcdefgh"
    finished = run(
        "run_eval", "--eval_type", "pubmed_qa", "--model_url", "http://h/v1", "--model_id", "m",
        "--output_dir", str(tmp_path / "o"), "--api_key_name", key,
    )  # fmt: skip
    assert finished.returncode == 2
    assert key not in finished.stdout + finished.stderr


def test_an_interpolated_key_is_not_printed(tmp_path: Path) -> None:
    key = "sk-canary0123456789abcdefgh"
    file = tmp_path / "x.yml"
    file.write_text(
        "config: {type: pubmed_qa, output_dir: o}\n"
        "target: {api_endpoint: {url: 'http://h/v1', model_id: m, api_key: '${OPENAI_API_KEY}'}}\n"
    )
    finished = run("run_eval", "--run_config", str(file), "--dry_run", OPENAI_API_KEY=key)
    assert finished.returncode == 2
    assert key not in finished.stdout + finished.stderr
    assert "NAME of an environment variable" in finished.stderr


def test_messages_name_the_current_folder_whole_and_no_password(tmp_path: Path) -> None:
    folder = tmp_path / "a-folder-with-a-long-name-1"
    folder.mkdir()
    password = "hunter2-hunter2-hunter2"
    there = run("run_eval", "--run_config", f"{folder}/no-such-{password}.yml", cwd=folder, PWD=str(folder),
                OLDPWD=str(tmp_path), MYSQL_PWD=password)  # fmt: skip
    assert there.returncode == 2
    assert f"{folder}/no-such-[API_KEY_REDACTED].yml: there is no such file" in there.stderr


def test_a_home_folder_is_meant_wherever_a_path_is_given(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    made = run("new_benchmark", "~/mine", cwd=here, HOME=str(home))
    assert made.returncode == 0, made.stderr
    config = home / "mine" / "run_config.yml"
    given = ("--output_dir=~/out", "--overrides", "config.params.extra.benchmark=~/mine/benchmark.yaml", "--dry_run")
    shown = run("run_eval", "--run_config=~/mine/run_config.yml", *given, cwd=here, HOME=str(home))
    assert shown.returncode == 0, shown.stderr
    assert f"output_dir: {home}/out" in shown.stdout
    assert f"benchmark: {home}/mine/benchmark.yaml" in shown.stdout
    assert config.is_file()
    board = run("leaderboard", "run", "lite", "--model", "m", "--model_url", "https://h/v1", "--dry_run",
                "--output_dir=~/board", cwd=here, HOME=str(home))  # fmt: skip
    assert f"--output-path {home}/board/helm" in board.stdout
    (home / "data").mkdir()
    assert f"{home}/data: is no data bundle" in run("data", "verify", "~/data", cwd=here, HOME=str(home)).stderr
    nobody = run("run_eval", "--run_config=~/mine/run_config.yml", "--output_dir=~no-such-user/x", HOME=str(home))
    assert nobody.returncode == 2
    assert "there is no user 'no-such-user'" in nobody.stderr
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("task", ["clear", "ehrshot", "mimic_rrs", "shc_sei_med"])
def test_a_dry_run_says_which_data_are_not_there(task: str, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(run("ls", task).stdout)
    finished = run("run_eval", "--run_config", "x.yml", "--dry_run", cwd=tmp_path)
    assert finished.returncode == 0
    assert "warning: a run would stop: config.params.extra.data_path: /path/to/data_path" in finished.stderr
    assert f"{task} needs:" in finished.stderr
    real = run("run_eval", "--run_config", "x.yml", cwd=tmp_path)
    assert real.returncode == 3
    assert "/path/to/data_path: there is no such" in real.stderr


def test_a_terminal_gets_a_table_and_nobody_else_pays_for_it() -> None:
    terminal, program = pty.openpty()
    finished = subprocess.Popen(
        [sys.executable, "-m", "eval_factory", "ls"], stdout=program, env=program_environment(COLUMNS="160")
    )
    os.close(program)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while block := os.read(terminal, 65536):
            shown += block
    os.close(terminal)
    assert finished.wait(timeout=60) == 0
    assert b"what it measures" in shown
    assert b"gpt, llama, claude" in shown
    code = "import sys\nfrom eval_factory.cli.main import cli\ncli.main(['ls'], standalone_mode=False)\nsys.exit('rich' in sys.modules)\n"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env=program_environment(), capture_output=True, check=False
        ).returncode
        == 0
    )


HEAVY = {"helm", "torch", "scipy", "numpy", "pandas", "datasets", "requests", "jsonschema", "asyncio", "filelock"}
RECORDS = {"rich", "jinja2", "sqlite3", "eval_factory.core.results", "eval_factory.tasks.custom_benchmark"}
"""What a run needs, and takes long to import."""
READERS = {"eval_factory.tasks.own_data"}
"""Of files of a user's own."""
JOBS = {"eval_factory.config.suite_model"}
"""What runs on Slurm need alone: pydantic parses its source for the descriptions."""
MODELS = {"pydantic"}
"""What checks files that somebody may have changed."""

OTHERS = {f"eval_factory.cli.{name}" for name in ("folder_commands", "result_commands", "suite_command")}
"""Of other commands."""

SUITE = ["run_suite", "--preset", "smoke", "--output_dir", "none", "--dry_run"]
CONFIG = ["run_eval", "--run_config", "{config}", "--dry_run"]
BOARD = ["leaderboard", "run", "lite", "--model", "m", "--model_url", "https://h/v1", "--dry_run"]


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], HEAVY | RECORDS | MODELS),
        (["ls"], HEAVY | RECORDS | MODELS | OTHERS | {"eval_factory.tasks.errata"}),
        (["ls", "--tag", "jury"], HEAVY | RECORDS | MODELS | {"eval_factory.tasks.errata"}),
        (["ls", "--json"], HEAVY | RECORDS | {"eval_factory.config.model"}),
        (["ls", "medec"], HEAVY | RECORDS | {"eval_factory.config.model"}),
        (["ls", "aci_bench"], HEAVY | RECORDS | {"eval_factory.config.model"}),
        (["ls", "--all"], HEAVY | RECORDS),
        (["ls", "helm:mmlu"], HEAVY | RECORDS),
        (CONFIG, HEAVY | (RECORDS - {"jinja2"}) | JOBS | READERS | OTHERS),
        (SUITE, HEAVY | {"eval_factory.core.results"}),
        (["leaderboard", "ls"], HEAVY),
        (BOARD, HEAVY - {"asyncio"}),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_looking_imports_nothing_that_takes_long(arguments: list[str], heavy: set[str], root: Path) -> None:
    code = (
        "import sys\n"
        "from eval_factory.cli.main import cli\n"
        "try: cli.main(sys.argv[2:], standalone_mode=False)\n"
        "except SystemExit as error: assert not error.code\n"
        "heavy = set(sys.argv[1].split(',')) & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    config = str(root / "test_cases" / "test_case_nim_llama_3_1_8b_pubmed_qa.yml")
    given = [config if argument == "{config}" else argument for argument in arguments]
    finished = subprocess.run(
        [sys.executable, "-c", code, ",".join(sorted(heavy)), *given],
        env=program_environment(PYDANTIC_DISABLE_PLUGINS="true"), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr


def test_every_command_that_we_show_dry_runs(root: Path) -> None:
    text = (root / "commands.sh").read_text("utf-8").replace("\\\n", " ")
    commands = [line for line in text.splitlines() if line.startswith("eval-factory ")]
    assert len(commands) >= 8
    for command in commands:
        _, *arguments = shlex.split(command)
        if "run_eval" in arguments and "--dry_run" not in arguments:
            arguments.append("--dry_run")
        finished = run(*arguments, cwd=root)
        assert finished.returncode == 0, (command, finished.stderr)


def test_generating_model_files_alone(root: Path, tmp_path: Path) -> None:
    script = root / "scripts" / "generate_dynamic_model_configs.py"
    finished = subprocess.run(
        [
            sys.executable, str(script), "--model-name", "openai/gpt-4", "--base-url", "https://h/v1",
            "--openai-model-name", "gpt-4", "--output-dir", str(tmp_path / "configs"),
        ],
        env=program_environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "model=endpoint/openai-gpt-4" in finished.stdout
    text = (tmp_path / "configs" / "model_deployments.yaml").read_text("utf-8")
    assert "model_id: gpt-4" in text
    assert (tmp_path / "configs" / "model_metadata.yaml").is_file()


def test_a_python_without_eval_factory_is_told_which_one_to_take(root: Path) -> None:
    """-S -E: with neither the environment's packages nor PYTHONPATH."""
    script = root / "scripts" / "generate_dynamic_model_configs.py"
    finished = subprocess.run(
        [sys.executable, "-S", "-E", str(script), "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 3
    assert finished.stderr.splitlines() == [
        f"{script.name}: click is not installed for {sys.executable}",
        "  run it with the Python of the environment that has eval-factory, such as .venv/bin/python",
    ]
