"""The commands of docs/helm.md put a finished run into HELM's web pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from program_runs import TIMEOUT_S, Run, program_environment
from scripted_endpoint import ScriptedEndpoint


@pytest.fixture
def commands(root: Path) -> str:
    """As they stand there, but for the last: HELM's server would listen on every interface, and never end."""
    text = (root / "docs" / "helm.md").read_text("utf-8")
    (block,) = re.findall(r"^```bash\n(out=.*?)^```", text, re.MULTILINE | re.DOTALL)
    (serve,) = re.findall(r"^helm-server .*$", block, re.MULTILINE)
    shown: str = block.replace(serve, f"{serve} --export-path site")
    return shown


def test_a_run_in_helms_pages(
    commands: str, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path
) -> None:
    outcome = run_program(
        "sample_medical_qa", endpoint.url, output_dir=tmp_path / "results" / "my_test"
    )
    assert outcome.returncode == 0, outcome.stderr
    before = sorted(path for path in outcome.output_dir.rglob("*") if path.is_file())
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    finished = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env=program_environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert sorted(path for path in outcome.output_dir.rglob("*") if path.is_file()) == before
    suite = tmp_path / "site" / "benchmark_output" / "runs" / "mine"
    (spec,) = json.loads((suite / "run_specs.json").read_text("utf-8"))
    assert ":" in spec["name"]
    shown = json.loads((suite / spec["name"] / "display_predictions.json").read_text("utf-8"))
    assert len(shown) == outcome.document()["validity"]["instances"]["scored"]
    (run,) = json.loads((suite / "runs.json").read_text("utf-8"))
    assert run["run_spec"]["name"] == spec["name"]
    assert {stat["name"]["name"] for stat in run["stats"]} >= {"exact_match"}
    assert 'window.SUITE = "mine"' in (tmp_path / "site" / "config.js").read_text("utf-8")
    assert (tmp_path / "site" / "index.html").is_file()
