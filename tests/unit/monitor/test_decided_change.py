"""What the ledger says of a decided change of the model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import yaml

from eval_factory.analysis.gate import BenchmarkOutcome, GateResult
from eval_factory.analysis.gate_checks import Check
from eval_factory.core.enums import Verdict
from eval_factory.core.rundir import RunDir
from eval_factory.monitor.change import _Change, _decision
from eval_factory.monitor.ledger import NEW_MODEL, WATCHED_MODEL
from eval_factory.monitor.panel import load_panel

ENDPOINT = {"url": "http://127.0.0.1:9/v1", "model_id": "m/one", "type": "chat", "api_key": None}


def test_both_models_have_their_names_and_their_runs(tmp_path: Path) -> None:
    section = {
        "output_dir": "out",
        "tasks": [{"type": "pubmed_qa", "size": 10, "max_drop": 0.02}],
        "target": {"name": "ward", "api_endpoint": ENDPOINT},
    }
    file = tmp_path / "panel.yml"
    file.write_text(yaml.safe_dump({"monitor": section}))
    panel = load_panel(file, {})
    target = {"name": "tuned", "api_endpoint": {**ENDPOINT, "model_id": "m/two"}}
    change = _Change(3, panel, panel.with_target(target))
    digests = []
    for name in (WATCHED_MODEL, NEW_MODEL):
        checksums = RunDir(change.folder / name / "pubmed_qa").checksums
        checksums.parent.mkdir(parents=True)
        checksums.write_text(name)
        digests.append(hashlib.sha256(name.encode()).hexdigest())
    passed = Verdict.PASS
    checks = (Check("max_drop", passed, "a drop of 0.01"), Check("min", passed, "0.8"))
    benchmark = BenchmarkOutcome("pubmed_qa", "critical", "exact_match", passed, checks, passed)
    result = GateResult(tmp_path / "gate.yml", "7" * 64, passed, (benchmark,), ())
    found = _decision(change, result)
    fixed = found["new"].pop("fixed")
    assert found == {
        "folder": "changes/0003",
        "old": {"name": "ward", "model": "m/one"},
        "new": {"name": "tuned", "model": "m/two"},
        "outcome": "pass",
        "policy_sha256": "7" * 64,
        "checks": ["pubmed_qa: a drop of 0.01", "pubmed_qa: 0.8"],
        "runs": [
            {"task": "pubmed_qa", "folder": f"changes/0003/{name}/pubmed_qa", "sha256": digest}
            for name, digest in zip((WATCHED_MODEL, NEW_MODEL), digests, strict=True)
        ],
    }
    new_panel = panel.with_target(target)
    identities = new_panel.identities(change.folder)
    assert (
        fixed
        == new_panel.fixed_settings(identities)
        != panel.fixed_settings(panel.identities(change.folder))
    )
