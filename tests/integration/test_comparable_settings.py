"""A bare run of a benchmark of MedHELM's, all of its real data: it has the leaderboard's settings, and says what it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_factory.report.reader import load_result
from facts import says
from program_runs import Run
from scripted_endpoint import ScriptedEndpoint

TEST_SET = "scenarios/pubmed_qa/data/test_set.json"


@pytest.mark.medical_data
def test_a_bare_run_may_stand_beside_the_leaderboard(
    tmp_path: Path,
    endpoint: ScriptedEndpoint,
    run_program: Run,
    place_data: Callable[[Path, str], None],
) -> None:
    place_data(tmp_path / "out" / "helm", "pubmed_qa")
    outcome = run_program("pubmed_qa", endpoint.url, "--offline")
    assert outcome.returncode == 0, outcome.stderr
    document = outcome.document()
    assert document["validity"]["instances"]["scored"] == 1000
    assert document["comparability"] == {"medhelm_settings": True, "upstream": "crfm-helm 0.5.16"}
    says(outcome.stdout, "MedHELM's leaderboard (crfm-helm 0.5.16)")

    provenance = document["provenance"]
    packages = (outcome.output_dir / "packages.txt").read_bytes()
    assert provenance["lock_sha256"] == hashlib.sha256(packages).hexdigest()
    assert f"crfm-helm=={provenance['helm']}".encode() in packages.split(b"\n")
    assert provenance["dataset_revisions"] == {TEST_SET: "1f00b98d5cc626844bf8c4ca513b6e62c40071ec"}
    assert provenance["started_at"] < provenance["ended_at"]
    assert str(tmp_path) not in json.dumps(provenance)
    assert str(Path.home()) not in json.dumps(provenance["platform"])
    assert load_result(outcome.output_dir).result.comparability is not None
