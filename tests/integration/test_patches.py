"""Patches of HELM in real runs: those that only make it quicker change nothing, and the result names what was applied."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_factory.core.helm_run_settings import SKIPPED_PATCHES_VARIABLE
from eval_factory.helm_plugin.patches.patch_registry import PATCHES
from facts import says
from program_runs import CANARY, Outcome, Run, more_data
from programs import ran
from scripted_endpoint import ScriptedEndpoint

INSTANCES = 30
PlaceData = Callable[[Path, str], None]
ONLY_SPEED = [patch.name for patch in PATCHES if patch.only_speed]
ALWAYS = {
    "name_failed_downloads",
    "isolate_unscorable_annotations",
    "isolate_unscorable_answers",
    "isolate_among_all_answers",
    "leave_out_infinite_perplexity",
}
OF_DOWNLOADS = {"read_pinned_revisions", "record_hub_revisions", "save_pictures_at_once"}
"""Where there is anything pinned, and where the scenario uses `datasets`."""
TORCH = "replace_missing_torch"
"""Where it is not installed."""


def again(outcome: Outcome, env: dict[str, str]) -> tuple[dict[str, bytes], str]:
    """Every file that helm-run writes when it is run once more with what is in the cache, and what it says."""
    runs = outcome.output_dir / "helm" / "runs"
    shutil.rmtree(runs)
    finished = ran(shlex.split(outcome.document()["command"]), env=env, TEST_MODEL_KEY=CANARY)
    assert finished.returncode == 0, finished.stderr
    written = {path.name: path.read_bytes() for path in runs.rglob("*.json")}
    assert len(written) >= 5
    return written, finished.stderr


def patches_of(outcome: Outcome) -> set[str]:
    """Beside those of packages that may be installed or not."""
    found: list[str] = outcome.document()["provenance"]["patches"]
    assert len(found) == len(set(found))
    return set(found) - {TORCH}


@pytest.mark.medical_data
@pytest.mark.parametrize(
    "task",
    ["pubmed_qa", *more_data("ehr_sql", "medec", "medcalc_bench", "head_qa", "race_based_med")],
)
def test_what_only_makes_helm_quicker_leaves_the_output_as_it_is(
    task: str,
    endpoint: ScriptedEndpoint,
    run_program: Run,
    place_data: PlaceData,
    tmp_path: Path,
    data_environment: dict[str, str],
) -> None:
    place_data(tmp_path / "out" / "helm", task)
    params = {
        "limit_samples": INSTANCES,
        "extra": {"max_unreadable": 1.0},
    }  # of ehr_sql: what is no query
    outcome = run_program(task, endpoint.url, params=params, env=data_environment)
    assert outcome.returncode == 0, outcome.stderr
    with_all, said = again(outcome, data_environment)
    assert "going on without" not in said
    assert with_all == again(outcome, {**data_environment, SKIPPED_PATCHES_VARIABLE: "all"})[0]
    of_the_task = {patch.name for patch in PATCHES if patch.run_specs and task in patch.run_specs}
    assert patches_of(outcome) - OF_DOWNLOADS == ALWAYS | set(ONLY_SPEED) | of_the_task


@pytest.mark.more_data
def test_each_of_them_alone(endpoint: ScriptedEndpoint, run_program: Run) -> None:
    outcome = run_program("sample_medical_qa", endpoint.url, params={"limit_samples": 10})
    assert outcome.returncode == 0, outcome.stderr
    assert patches_of(outcome) == ALWAYS | set(ONLY_SPEED)
    without_any, _ = again(outcome, {SKIPPED_PATCHES_VARIABLE: "all"})
    for name in ONLY_SPEED:
        others = ",".join(other for other in ONLY_SPEED if other != name)
        assert again(outcome, {SKIPPED_PATCHES_VARIABLE: others})[0] == without_any, name


def test_the_result_says_what_was_left_out(endpoint: ScriptedEndpoint, run_program: Run) -> None:
    outcome = run_program("sample_medical_qa", endpoint.url, env={SKIPPED_PATCHES_VARIABLE: "all"})
    assert outcome.returncode == 0, outcome.stderr
    assert patches_of(outcome) - OF_DOWNLOADS == ALWAYS


@pytest.fixture
def another_helm(tmp_path: Path) -> dict[str, str]:
    """The same HELM under another version."""
    folder = tmp_path / "site" / "crfm_helm-0.5.99.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: crfm-helm\nVersion: 0.5.99\n")
    return {"PYTHONPATH": str(folder.parent)}


def test_another_version_of_helm_is_refused(
    another_helm: dict[str, str], endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    outcome = run_program("sample_medical_qa", endpoint.url, env=another_helm)
    assert outcome.returncode == 3, outcome.stderr
    says(outcome.stderr, "sample_medical_qa", "HELM (crfm-helm) 0.5.16", "0.5.99 is installed")
    assert not outcome.output_dir.exists()
