"""`eval-factory import_config`: what is written, what is told, and that it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from facts import says

OLD = """
config:
  type: medcalc_bench
  output_dir: results/old
  params: {limit_samples: 10, extra: {num_train_trials: 3, max_length: 2048}}
target:
  api_endpoint: {url: "https://host.example/v1", model_id: org/model, type: chat, api_key: OPENAI_API_KEY}
"""
LAUNCHER = """
execution: {output_dir: results/new}
target: {api_endpoint: {url: "https://host.example/v1/chat/completions", model_id: org/model, api_key_name: NGC_API_KEY}}
evaluation:
  nemo_evaluator_config: {config: {params: {temperature: 0.6, top_p: 0.95, max_new_tokens: 100}}}
  tasks: [{name: medec}, {name: head_qa, container: "a:b"}]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("old.yml").write_text(OLD)
    Path("launcher.yml").write_text(LAUNCHER)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def refused(*words: str) -> str:
    error = run("import_config", *words).exception
    assert isinstance(error, ConfigError)
    return str(error)


@pytest.mark.parametrize("command", ["import_config", "import-config"])
def test_an_old_run_config_is_translated_and_runs(command: str) -> None:
    done = run(command, "old.yml", "-o", "out.yml")
    assert (done.exit_code, done.stdout) == (0, "")
    (*defaults, written) = done.stderr.splitlines()
    names = [f"config.params.{name}" for name in ("temperature", "top_p", "max_new_tokens")]
    assert [line.partition(": is not given")[0] for line in defaults] == names
    says(written, "out.yml: written", "eval-factory run_eval --run_config out.yml --dry_run")
    assert yaml.safe_load(Path("out.yml").read_text()) == yaml.safe_load(OLD)
    assert f"# - {defaults[0]}\n" in Path("out.yml").read_text()
    preview = run("run_eval", "--run_config", "out.yml", "--dry_run")
    assert preview.exit_code == 0, preview.output
    assert "--run-entries medcalc_bench" in preview.stdout


def test_where_no_task_is_that_benchmark_the_next_command_names_one() -> None:
    arguments = "model=m,base_url=http://h.example/v1/chat/completions"
    Path("eval.yml").write_text(f"model: local-chat-completions\nmodel_args: {arguments}\n")
    done = run("import_config", "eval.yml", "-o", "out.yml")
    command = "run_eval --run_config out.yml --dry_run --eval_type"
    says(done.stderr, f"eval-factory {command} TASK")
    preview = run(*command.split(), "pubmed_qa")
    assert preview.exit_code == 0, preview.output
    assert "http://h.example/v1/chat/completions" in preview.stdout


def test_a_launchers_config_is_printed_where_no_file_is_named() -> None:
    done = run("import_config", "launcher.yml")
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout)["suite"]["evaluations"] == ["medec", "head_qa"]
    (finding,) = done.stderr.splitlines()
    says(finding, "evaluation.tasks[1].container: ", "no container")
    assert f"# - {finding}\n" in done.stdout


def test_nothing_is_overwritten_without_force_and_the_translated_file_never() -> None:
    Path("out.yml").write_text("mine")
    says(refused("old.yml", "-o", "out.yml"), "out.yml: ", "already exists", "--force")
    assert Path("out.yml").read_text() == "mine"
    assert run("import_config", "old.yml", "-o", "out.yml", "--force").exit_code == 0
    assert yaml.safe_load(Path("out.yml").read_text()) == yaml.safe_load(OLD)
    Path("link.yml").symlink_to("old.yml")
    for name in ("old.yml", "link.yml"):
        says(
            refused("old.yml", "-o", name, "--force"), f"{name}: ", "is translated", "another file"
        )
    assert Path("old.yml").read_text() == OLD


def test_what_is_not_translated_writes_nothing() -> None:
    Path("key.yml").write_text(OLD.replace("OPENAI_API_KEY", "nvapi-" + "a1B2c3D4e5" * 4))
    for name in ("key.yml", "missing.yml"):
        assert refused(name, "-o", "out.yml")
        assert not Path("out.yml").exists()
    Path("out.yml").write_text("mine")
    assert refused("missing.yml", "-o", "out.yml", "--force")
    assert Path("out.yml").read_text() == "mine"
