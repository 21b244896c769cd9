"""A run config that was written for EvalFactory or NeMo Evaluator, and the one that a run leaves."""

from __future__ import annotations

from pathlib import Path

from facts import says
from program_runs import program

CONFIG = """\
config:
  type: sample_medical_qa
  output_dir: out
  supported_endpoint_types: [chat]
  params: {limit_samples: 5, parallelism: 1, task: sample_medical_qa}
target:
  api_endpoint:
    url: demo://baseline
    model_id: m
    type: chat
    stream: false
    api_key_name: NO_SUCH_KEY
    adapter_config: {use_caching: true, caching_dir: cache, use_request_logging: true, use_reasoning: true}
"""
WARNING = "warning: keys without an effect here: config: supported_endpoint_types; target.api_endpoint: stream"


def test_another_programs_run_config_and_our_own(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(CONFIG)
    first = program("run_eval", "--run_config", "x.yml", "--limit-samples", "2", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stderr.count(WARNING) == 1
    assert (tmp_path / "out" / "logs" / "eval-factory.log").read_text("utf-8").count(WARNING) == 1
    says(first.stdout, "2 of 2 scored")
    again = program("run_eval", "--run_config", "out/run_config.yml", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    says(again.stderr, "complete already")
