"""What other programs are told of a run before it asks anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.workflows.evaluate import launch_record
from unit.builders import context, plan

KEY = "plain-looking-key-77"


def test_a_launch_says_what_will_be_run_and_where(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path / "out"), "config.params.limit_samples": 7})
    record = launch_record(context(here.rundir), here, ["helm-run", "--suite", "a b"])
    assert list(record)[:2] == ["event", "eval_factory"]
    assert record["event"] == "launch"
    assert (record["task"], record["model"], record["limit_samples"]) == ("pubmed_qa", here.model.model_id, 7)
    assert (record["url"], record["judges"]) == (here.model.url, {})
    assert record["output_dir"] == str(tmp_path / "out")
    assert record["run_identity"] == here.identity
    assert record["command"] == "helm-run --suite 'a b'"
    assert record["config"]["params"] == {"limit_samples": 7}
    assert record["target"]["api_endpoint"]["model_id"] == here.model.model_id
    json.dumps(record)


def test_a_key_is_not_told(tmp_path: Path) -> None:
    here = plan({"config.output_dir": str(tmp_path / "out")})
    redactor = Redactor()
    redactor.learn(KEY)
    record = launch_record(replace(context(here.rundir), redactor=redactor), here, ["helm-run", KEY])
    assert record["command"] == f"helm-run {REDACTED}"
    assert KEY not in json.dumps(record)
