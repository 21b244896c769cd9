"""Scores are of the data that the run config names, as they are now; what stands in a folder is of one configuration."""

from __future__ import annotations

import json
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest

from facts import says
from invented_benchmarks import MAKERS
from program_runs import Run
from scripted_endpoint import ScriptedEndpoint

PATIENTS = 6
HEADER = "prompt,context,label\n"


def ehrshot(folder: Path, name: str, label: bool, events: int = 2) -> dict[str, str]:
    """Patients of one label whose codes say whose they are; every other one has `events` events."""
    shutil.rmtree(folder, ignore_errors=True)
    extra = MAKERS["ehrshot"](folder, folder).extra
    rows = []
    for n in range(PATIENTS):
        for k in range(events if n % 2 else 2):
            time = datetime(2020, 1, 1) + timedelta(minutes=k)
            rows.append({"subject_id": n, "time": time, "code": f"{name} {n} {k}"})
    pd.DataFrame(rows).to_parquet(folder / "data" / "data.parquet")
    file = folder / "labels" / "guo_icu" / "labels.parquet"
    pd.read_parquet(file).assign(boolean_value=label).to_parquet(file)
    return extra


@pytest.fixture
def tokens(medical_data: Path) -> dict[str, str]:
    return {"TIKTOKEN_CACHE_DIR": str(medical_data / "tiktoken")}


@pytest.mark.medical_data
def test_ehrshot_asks_of_the_patients_that_are_named(
    run_program: Run, tmp_path: Path, tokens: dict[str, str]
) -> None:
    """Not of those whose prompts an earlier run left in the folder."""
    first = ehrshot(tmp_path / "first", "alpha", label=True)
    second = ehrshot(tmp_path / "second", "beta", label=False)
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        endpoint.status = 401
        outcome = run_program(
            "ehrshot", endpoint.url, "--no_preflight", params={"extra": first}, env=tokens
        )
        assert outcome.returncode == 3
        endpoint.status = None
        outcome = run_program("ehrshot", endpoint.url, params={"extra": second}, env=tokens)
        assert outcome.scores()["exact_match"] == 0.0, outcome.stderr
        outcome = run_program(
            "ehrshot", endpoint.url, "--fresh", params={"extra": first}, env=tokens
        )
        assert outcome.scores()["exact_match"] == 1.0
        ehrshot(tmp_path / "first", "gamma", label=False)
        params = {"extra": first, "temperature": 0.1}
        outcome = run_program("ehrshot", endpoint.url, params=params, env=tokens)
    assert outcome.scores()["exact_match"] == 0.0
    prompts = [
        json.loads(line)["prompt"]
        for line in (outcome.output_dir / "instances.jsonl").read_text().splitlines()
    ]
    assert len(prompts) == PATIENTS
    assert all("gamma" in prompt for prompt in prompts)
    files = outcome.document()["provenance"]["dataset_files"]
    assert {
        "data_path/data/data.parquet",
        "data_path/labels/guo_icu/labels.parquet",
    } <= files.keys()


@pytest.mark.more_data
@pytest.mark.medical_data
def test_what_max_length_leaves_out_or_cuts_is_said(
    run_program: Run, tmp_path: Path, tokens: dict[str, str]
) -> None:
    extra = {**ehrshot(tmp_path / "own", "alpha", label=True, events=500), "max_length": 500}
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        params = {"limit_samples": 2, "extra": extra}
        outcome = run_program("ehrshot", endpoint.url, params=params, env=tokens)
    assert outcome.returncode == 0, outcome.stderr
    (note,) = [note for note in outcome.document()["validity"]["notes"] if "max_length=500" in note]
    assert note.startswith("3 of 6 patients")
    extra = {**MAKERS["medalign"](tmp_path / "medalign", tmp_path).extra, "max_length": 300}
    (tmp_path / "medalign" / "medalign_ehr_xml" / "2.xml").write_text(
        "Seen on Monday, case 2. " * 100
    )
    with ScriptedEndpoint(lambda _prompt: "x") as endpoint:
        params = {"extra": {**extra, "min_coverage": 0.0}}
        outcome = run_program(
            "medalign", endpoint.url, params=params, env=tokens, output_dir=tmp_path / "second"
        )
    notes = outcome.document()["validity"]["notes"]
    says(notes, "1 of 6 records", "max_length=300")


@pytest.mark.parametrize("task", ["shc_bmt_med", "n2c2_ct_matching"])
def test_bad_data_are_found_before_anything_is_asked(
    task: str, run_program: Run, tmp_path: Path
) -> None:
    extra = MAKERS[task](tmp_path / "own", tmp_path).extra
    if task == "shc_bmt_med":
        Path(extra["data_path"]).write_text(HEADER + "So?,Note,yes\n")
    else:
        (tmp_path / "own" / "test" / "3.xml").write_text("not xml")
    with ScriptedEndpoint(lambda _prompt: "A") as endpoint:
        outcome = run_program(task, endpoint.url, params={"extra": extra})
        assert not endpoint.requests
        assert not endpoint.probes
    assert outcome.returncode == 3
    assert f"{task} needs:" in outcome.stderr
    assert not (tmp_path / "out").exists()
