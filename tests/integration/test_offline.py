"""Runs from a data bundle that contact nothing but the endpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.jury_endpoint import CANARIES, JUDGES, JuryEndpoint
from integration.support import TIMEOUT_S, Outcome, Run, program_environment
from scripted_endpoint import ScriptedEndpoint

INSTANCES = 4
PlaceData = Callable[[Path, str], None]


def eval_factory(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eval_factory", "data", *arguments],
        env=program_environment(), capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip


@pytest.fixture(scope="session")
def real_bundle(medical_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real data, imported, packed, unpacked: as after a firewall. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("data")
    for arguments in (
        ("import", str(medical_data), "--to", str(folder / "near")),
        ("pack", str(folder / "near"), str(folder / "all.tar.gz")),
        ("unpack", str(folder / "all.tar.gz"), str(folder / "far")),
    ):
        finished = eval_factory(*arguments)
        assert finished.returncode == 0, finished.stderr
    shutil.rmtree(folder / "near")
    return folder / "far"


@pytest.fixture
def jury() -> Iterator[JuryEndpoint]:
    with JuryEndpoint() as server:
        yield server


def events_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (outcome.output_dir / "logs/events.jsonl").read_text("utf-8").splitlines()]


def assert_nothing_else_was_wanted(outcome: Outcome) -> None:
    assert [event for event in events_of(outcome) if event["event"] == "blocked"] == []


@pytest.mark.medical_data
@pytest.mark.parametrize("task", ["pubmed_qa", "medcalc_bench", "head_qa", "ehr_sql", "race_based_med"])
def test_a_run_from_a_bundle_contacts_the_endpoint_only(
    task: str, real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    arguments = ("--offline", "--data_dir", str(real_bundle))
    outcome = run_program(task, endpoint.url, *arguments, params={"limit_samples": INSTANCES})
    assert outcome.returncode == 0, outcome.stderr
    assert len(endpoint.requests) == INSTANCES
    assert_nothing_else_was_wanted(outcome)
    record = outcome.document()["provenance"]["data_bundle"]
    assert len(record["manifest_sha256"]) == 64
    if task in ("medcalc_bench", "head_qa"):
        (dataset,) = record["hub"]
        assert dataset["revision"] is None
        assert any(name.endswith(".arrow") for name in dataset["files"])
    assert eval_factory("verify", str(real_bundle)).returncode == 0  # the run wrote nothing into it


@pytest.mark.medical_data
@pytest.mark.parametrize("task", ["mtsamples_procedures", "aci_bench", "medi_qa"])
def test_jury_benchmarks_from_a_bundle(task: str, real_bundle: Path, jury: JuryEndpoint, run_program: Run) -> None:
    jury.odd_ways = ["good"]
    outcome = run_program(
        task, jury.url, "--offline", "--data_dir", str(real_bundle),
        params={"limit_samples": INSTANCES, "extra": {"judges": JUDGES}}, env=CANARIES,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    assert_nothing_else_was_wanted(outcome)


@pytest.mark.medical_data
def test_the_prompts_are_those_of_a_run_without_a_bundle(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path,
    place_data: PlaceData, data_environment: dict[str, str],
) -> None:  # fmt: skip
    params = {"limit_samples": INSTANCES}
    bundled = run_program("medcalc_bench", endpoint.url, "--data_dir", str(real_bundle), params=params)
    other = run_program(
        "medcalc_bench", endpoint.url, params=params, env=data_environment, output_dir=tmp_path / "other"
    )
    hashes = [outcome.document()["provenance"]["prompts_sha256"] for outcome in (bundled, other)]
    assert hashes[0] == hashes[1]


@pytest.mark.medical_data
def test_a_file_that_is_missing_is_named_before_anything_is_asked(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    outcome = run_program("medbullets", endpoint.url, "--offline", "--data_dir", str(real_bundle))
    assert outcome.returncode == 3
    assert "missing: scenarios/medbullets/medbullets_op5.csv" in outcome.stderr
    assert f"eval-factory data pull medbullets --to {real_bundle}" in outcome.stderr
    assert (endpoint.requests, endpoint.probes) == ([], 0)
    assert not outcome.output_dir.exists()


@pytest.mark.medical_data
def test_a_linked_scenario_folder_is_replaced_and_what_it_leads_to_is_kept(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path
) -> None:
    shared, link = tmp_path / "shared", tmp_path / "out/helm/scenarios/pubmed_qa"
    (shared / "data").mkdir(parents=True)
    for name in ("data/test_set.json", "notes.txt"):
        (shared / name).write_text("theirs")
    link.parent.mkdir(parents=True)
    link.symlink_to(shared)
    outcome = run_program(
        "pubmed_qa", endpoint.url, "--offline", "--data_dir", str(real_bundle), params={"limit_samples": INSTANCES}
    )
    assert outcome.returncode == 0, outcome.stderr
    assert {path.name: path.read_text() for path in shared.rglob("*.*")} == {
        "test_set.json": "theirs", "notes.txt": "theirs"
    }  # fmt: skip
    assert not link.is_symlink()


@pytest.mark.medical_data
def test_results_are_not_written_into_the_bundle(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    inside = real_bundle / "results"
    outcome = run_program("pubmed_qa", endpoint.url, "--data_dir", str(real_bundle), output_dir=inside)
    assert outcome.returncode == 2
    assert f"{inside}: an output folder cannot be inside the data bundle {real_bundle}" in outcome.stderr
    assert not inside.exists()
    assert (endpoint.requests, endpoint.probes) == ([], 0)


@pytest.mark.medical_data
def test_offline_without_a_bundle_uses_what_is_there(
    endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path, place_data: PlaceData
) -> None:
    params = {"limit_samples": INSTANCES, "extra": {"offline": True}}
    outcome = run_program("pubmed_qa", endpoint.url, params=params)
    assert outcome.returncode == 3
    assert "data pull pubmed_qa --to DIR, then run with --data_dir DIR" in outcome.stderr
    place_data(tmp_path / "out" / "helm", "pubmed_qa")
    outcome = run_program("pubmed_qa", endpoint.url, params=params)
    assert outcome.returncode == 0, outcome.stderr
    assert_nothing_else_was_wanted(outcome)


@pytest.mark.medical_data
def test_another_bundle_is_another_run(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path
) -> None:
    params = {"limit_samples": INSTANCES}
    for _ in range(2):
        outcome = run_program("pubmed_qa", endpoint.url, "--data_dir", str(real_bundle), params=params)
        assert outcome.returncode == 0, outcome.stderr
    assert "complete already" in outcome.stderr
    assert len(endpoint.requests) == INSTANCES

    given = tmp_path / "given" / "scenarios" / "pubmed_qa" / "data"
    given.mkdir(parents=True)
    text = (real_bundle / "scenarios/pubmed_qa/data/test_set.json").read_text("utf-8")
    (given / "test_set.json").write_text(text.replace("?", "??"), "utf-8")
    assert eval_factory("import", str(tmp_path / "given"), "--to", str(tmp_path / "b")).returncode == 0
    outcome = run_program("pubmed_qa", endpoint.url, "--data_dir", str(tmp_path / "b"), params=params)
    assert "complete already" not in outcome.stderr
    assert len(endpoint.requests) == 2 * INSTANCES


MEDDLER = '''
"""A package in the user's environment that asks the network: what HELM itself does for want of a file."""
from helm.benchmark.scenarios import scenario

def meddle(place):
    def ask():
        import urllib.request
        try:
            urllib.request.urlopen(place, data=b'{"prompt": "x", "model": "m"}', timeout=5)
        except OSError:
            pass  # some scenarios go on
    return ask

from helm.benchmark.scenarios.pubmed_qa_scenario import PubMedQAScenario
get_instances = PubMedQAScenario.get_instances

def get_instances_and_more(self, output_path):
    meddle({place!r})()
    return get_instances(self, output_path)

PubMedQAScenario.get_instances = get_instances_and_more
'''


def meddling_package(site: Path, url: str) -> Path:
    (site / "meddler-1.0.dist-info").mkdir(parents=True)
    (site / "meddler-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: meddler\nVersion: 1.0\n")
    (site / "meddler-1.0.dist-info/entry_points.txt").write_text("[helm]\nmeddler = meddler\n")
    (site / "meddler.py").write_text(MEDDLER.replace("{place!r}", repr(url)))
    return site


@pytest.mark.medical_data
def test_any_other_connection_fails_the_run(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path
) -> None:
    """A scenario that goes on without what it could not download would give another score: it is stopped."""
    with ScriptedEndpoint(lambda _: "") as other:
        site = meddling_package(tmp_path / "site", other.url)
        params = {"limit_samples": INSTANCES}
        arguments = ("--offline", "--data_dir", str(real_bundle))
        outcome = run_program("pubmed_qa", endpoint.url, *arguments, params=params, env={"PYTHONPATH": str(site)})
        place = other.url.removeprefix("http://").removesuffix("/v1")
        assert outcome.returncode == 3, outcome.stderr
        assert f"offline: pubmed_qa wanted {place}, no host of an endpoint; it was not contacted" in outcome.stderr
        assert "eval-factory data pull pubmed_qa --to DIR" in outcome.stderr
        assert [event["place"] for event in events_of(outcome) if event["event"] == "blocked"] == [place]
        assert other.paths == []
        assert endpoint.requests == []


@pytest.mark.medical_data
def test_the_endpoints_proxy_is_no_way_round(
    real_bundle: Path, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path
) -> None:
    """`endpoint` plays a proxy: it answers whatever host it is asked for."""
    site = meddling_package(tmp_path / "site", "http://elsewhere.invalid/x")
    proxy = endpoint.url.removesuffix("/v1")
    arguments = ("--offline", "--data_dir", str(real_bundle))
    params = {"limit_samples": INSTANCES}
    env = {"HTTP_PROXY": proxy, "http_proxy": proxy}
    stopped = run_program(
        "pubmed_qa", "http://model.invalid/v1", *arguments, params=params, env={**env, "PYTHONPATH": str(site)}
    )
    assert stopped.returncode == 3
    assert "offline: pubmed_qa wanted elsewhere.invalid" in stopped.stderr
    assert endpoint.paths == []
    outcome = run_program("pubmed_qa", "http://model.invalid/v1", *arguments, params=params, env=env)
    assert outcome.returncode == 0, outcome.stderr
    assert set(endpoint.paths) == {"http://model.invalid/v1/chat/completions"}


def test_the_embedded_endpoint_is_offline(run_program: Run) -> None:
    outcome = run_program("sample_medical_qa", "demo://baseline", "--offline", params={"limit_samples": INSTANCES})
    assert outcome.returncode == 0, outcome.stderr
    assert_nothing_else_was_wanted(outcome)
