"""Runs from a data bundle that contact nothing but the endpoint."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from facts import says
from jury_endpoint import CANARIES, JUDGES, JuryEndpoint
from program_runs import CANARY, Outcome, Run, more_data
from programs import Finished, eval_factory, ran
from scripted_endpoint import ScriptedEndpoint

INSTANCES = 4
PlaceData = Callable[[Path, str], None]


@pytest.fixture(scope="session")
def real_bundle(medical_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real data, imported, packed, unpacked: as after a firewall. Nobody may write to it."""
    folder = tmp_path_factory.mktemp("data")
    for arguments in (
        ("import", str(medical_data), "--to", str(folder / "near")),
        ("pack", str(folder / "near"), str(folder / "all.tar.gz")),
        ("unpack", str(folder / "all.tar.gz"), str(folder / "far")),
    ):
        finished = eval_factory("data", *arguments)
        assert finished.returncode == 0, finished.stderr
    shutil.rmtree(folder / "near")
    return folder / "far"


@pytest.fixture
def offline(real_bundle: Path, run_program: Run) -> Run:
    """Runs a few instances from the bundle, to this exit code; nothing but the endpoint is wanted."""

    def run(
        task: str, url: str, *flags: str, code: int = 0, data_dir: Path = real_bundle, **more: Any
    ) -> Outcome:
        params = {"limit_samples": INSTANCES, **more.pop("params", {})}
        outcome = run_program(
            task, url, "--offline", "--data_dir", str(data_dir), *flags, params=params, **more
        )
        assert outcome.returncode == code, outcome.stderr
        if code == 0:
            assert_nothing_else_was_wanted(outcome)
        return outcome

    return run


@pytest.fixture
def jury() -> Iterator[JuryEndpoint]:
    with JuryEndpoint() as server:
        yield server


def events_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (outcome.output_dir / "logs/events.jsonl").read_text("utf-8").splitlines()
    ]


def assert_nothing_else_was_wanted(outcome: Outcome) -> None:
    assert [event for event in events_of(outcome) if event["event"] == "blocked"] == []


@pytest.mark.medical_data
@pytest.mark.parametrize("task", ["pubmed_qa", *more_data("head_qa", "ehr_sql", "race_based_med")])
def test_a_run_from_a_bundle_contacts_the_endpoint_only(
    task: str, real_bundle: Path, endpoint: ScriptedEndpoint, offline: Run, tmp_path: Path
) -> None:
    """A linked folder of its scenario is replaced, and what it leads to is kept."""
    shared = tmp_path / "shared"
    link = tmp_path / "out/helm/scenarios/pubmed_qa"
    (shared / "data").mkdir(parents=True)
    for name in ("data/test_set.json", "notes.txt"):
        (shared / name).write_text("theirs")
    link.parent.mkdir(parents=True)
    link.symlink_to(shared)
    # of ehr_sql: what is no query
    outcome = offline(task, endpoint.url, params={"extra": {"max_unreadable": 1.0}})
    assert len(endpoint.requests) == INSTANCES
    # the run wrote nothing into it
    assert eval_factory("data", "verify", str(real_bundle)).returncode == 0
    assert {path.name: path.read_text() for path in shared.rglob("*.*")} == {
        "test_set.json": "theirs",
        "notes.txt": "theirs",
    }
    if task == "pubmed_qa":
        assert not link.is_symlink()
        with ScriptedEndpoint(lambda _: "") as other:  # the printed command is offline, too
            stopped = paste(outcome, PYTHONPATH=str(meddling_package(tmp_path / "site", other.url)))
            assert stopped.returncode != 0
            says(stopped.stderr, "offline: the benchmark's data")
            assert other.paths == []


def paste(outcome: Outcome, **env: str) -> Finished:
    """The printed command in a shell of its own, without our variables."""
    return ran(
        shlex.split(outcome.document()["command"]),
        outcome.output_dir.parent,
        env,
        TEST_MODEL_KEY=CANARY,
    )


@pytest.mark.medical_data
@pytest.mark.more_data
@pytest.mark.parametrize("task", ["mtsamples_procedures", "aci_bench", "medi_qa"])
def test_jury_benchmarks_from_a_bundle(task: str, jury: JuryEndpoint, offline: Run) -> None:
    jury.odd_ways = ["good"]
    offline(task, jury.url, params={"extra": {"judges": JUDGES}}, env=CANARIES)


@pytest.mark.medical_data
def test_a_file_that_is_missing_is_named_before_anything_is_asked(
    real_bundle: Path, endpoint: ScriptedEndpoint, offline: Run
) -> None:
    outcome = offline("medbullets", endpoint.url, code=3)
    assert "missing: scenarios/medbullets/medbullets_op5.csv" in outcome.stderr
    says(outcome.stderr, f"eval-factory data pull medbullets --to {real_bundle}")
    assert (endpoint.requests, endpoint.probes) == ([], 0)
    assert not outcome.output_dir.exists()


@pytest.mark.medical_data
def test_offline_without_a_bundle_uses_what_is_there(
    endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path, place_data: PlaceData
) -> None:
    params = {"limit_samples": INSTANCES, "extra": {"offline": True}}
    outcome = run_program("pubmed_qa", endpoint.url, params=params)
    assert outcome.returncode == 3
    says(outcome.stderr, "data pull pubmed_qa", "--to DIR", "--data_dir DIR")
    assert endpoint.requests == []
    place_data(tmp_path / "out" / "helm", "pubmed_qa")
    outcome = run_program("pubmed_qa", endpoint.url, params=params)
    assert outcome.returncode == 0, outcome.stderr
    assert_nothing_else_was_wanted(outcome)


@pytest.mark.medical_data
@pytest.mark.parametrize("entry", ["pubmed_qa", *more_data("medcalc_bench")])
def test_a_run_entry_uses_a_bundle_as_the_task_does(
    entry: str, endpoint: ScriptedEndpoint, offline: Run, tmp_path: Path
) -> None:
    outcome = offline(f"helm:{entry}", endpoint.url)
    task = offline(entry, endpoint.url, output_dir=tmp_path / "task")
    found = [one.document()["provenance"] for one in (outcome, task)]
    for name in ("data_bundle", "prompts_sha256"):
        assert found[0][name] == found[1][name]


def change(bundle: Path, given: Path) -> None:
    """Change the bundle as `data import` into it does."""
    (given / "scenarios/pubmed_qa/data").mkdir(parents=True)
    (given / "scenarios/pubmed_qa/data/test_set.json").write_text("{}")
    assert eval_factory("data", "import", str(given), "--to", str(bundle)).returncode == 0


@pytest.mark.medical_data
@pytest.mark.parametrize("task", ["pubmed_qa", *more_data("medcalc_bench")])
@pytest.mark.parametrize("how", ["changed", "moved"])
def test_what_becomes_of_the_bundle_while_the_model_is_asked_is_no_matter(
    how: str, task: str, real_bundle: Path, endpoint: ScriptedEndpoint, offline: Run, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(real_bundle, bundle)
    before = hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()
    usual = endpoint.answer
    begun = threading.Event()

    def answer(prompt: str) -> str:
        if not begun.is_set():
            begun.set()
            change(bundle, tmp_path / "given") if how == "changed" else bundle.rename(
                tmp_path / "elsewhere"
            )
        return usual(prompt)

    endpoint.answer = answer
    params = {"parallelism": 1, "extra": {"max_unreadable": 1.0}}
    outcome = offline(task, endpoint.url, "--no_preflight", data_dir=bundle, params=params)
    assert begun.is_set()
    record = outcome.document()["provenance"]["data_bundle"]
    assert record["manifest_sha256"] == before
    assert bool(record["hub"]) is (task == "medcalc_bench")
    if how == "moved":
        (tmp_path / "elsewhere").rename(bundle)
        again = offline(task, endpoint.url, "--no_preflight", data_dir=bundle, params=params)
        assert "complete already" in again.stderr
        assert again.document()["provenance"]["data_bundle"] == record
    assert len(endpoint.requests) == INSTANCES


@pytest.mark.medical_data
@pytest.mark.parametrize("debug", [(), *more_data(("--debug",))])
def test_a_run_from_a_bundle_is_that_without_one_and_the_printed_command_does_it_again(
    debug: tuple[str, ...],
    endpoint: ScriptedEndpoint,
    offline: Run,
    run_program: Run,
    tmp_path: Path,
    data_environment: dict[str, str],
) -> None:
    params = {"limit_samples": INSTANCES}
    outcome = offline("medcalc_bench", endpoint.url, *debug)
    provenance = outcome.document()["provenance"]
    assert len(provenance["data_bundle"]["manifest_sha256"]) == 64
    (dataset,) = provenance["data_bundle"]["hub"]
    assert dataset["revision"] is None
    assert any(name.endswith(".arrow") for name in dataset["files"])
    without = run_program(
        "medcalc_bench",
        endpoint.url,
        params=params,
        env=data_environment,
        output_dir=tmp_path / "without",
    )
    assert without.document()["provenance"]["prompts_sha256"] == provenance["prompts_sha256"]
    assert len(endpoint.requests) == 2 * INSTANCES
    runs = outcome.output_dir / "helm/runs"
    written = {path.name: path.read_bytes() for path in runs.rglob("*.json")}
    shutil.rmtree(runs)
    # a shell with a Hub of its own
    finished = paste(outcome, HF_HOME=str(tmp_path / "other"), HF_HUB_OFFLINE="0")
    assert finished.returncode == 0, finished.stderr
    again = {path.name: path.read_bytes() for path in runs.rglob("*.json")}
    for name in ("per_instance_stats.json", "stats.json", "run_spec.json"):
        assert again[name] == written[name]
    assert len(endpoint.requests) == 2 * INSTANCES
    assert not (tmp_path / "other").exists()

    plain = run_program("sample_medical_qa", endpoint.url, params=params)  # in the same folder
    assert plain.returncode == 0, plain.stderr
    settings = json.loads((outcome.output_dir / "model_configs/settings.json").read_text("utf-8"))
    assert (settings["pins"], settings["library_variables"]) == (None, {})


ANOTHER_SPELLING = """
'''A name server that knows what Kubernetes' and Munich's do.'''
import socket, sys
look_up = socket.getaddrinfo
def getaddrinfo(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    if name in ("llm.svc.test.", "xn--mnchen-3ya.test"):
        sys.audit("socket.getaddrinfo", host, *args)
        host = "127.0.0.1"
    return look_up(host, *args, **kwargs)
socket.getaddrinfo = getaddrinfo
"""


@pytest.mark.parametrize("host", ["llm.svc.test.", *more_data("münchen.test")])
def test_offline_the_endpoint_is_known_however_it_is_written(
    host: str, endpoint: ScriptedEndpoint, run_program: Run, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(ANOTHER_SPELLING)
    url = endpoint.url.replace("127.0.0.1", host)
    env = {"PYTHONPATH": str(tmp_path / "site")}
    outcome = run_program(
        "sample_medical_qa", url, "--offline", params={"limit_samples": INSTANCES}, env=env
    )
    assert outcome.returncode == 0, outcome.stderr
    assert len(endpoint.requests) == INSTANCES
    assert_nothing_else_was_wanted(outcome)


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
    (site / "meddler-1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: meddler\nVersion: 1.0\n"
    )
    (site / "meddler-1.0.dist-info/entry_points.txt").write_text("[helm]\nmeddler = meddler\n")
    (site / "meddler.py").write_text(MEDDLER.replace("{place!r}", repr(url)))
    return site


@pytest.mark.medical_data
def test_any_other_connection_fails_the_run(
    endpoint: ScriptedEndpoint, offline: Run, tmp_path: Path
) -> None:
    """A scenario that goes on without what it could not download would give another score: it is stopped."""
    with ScriptedEndpoint(lambda _: "") as other:
        site = meddling_package(tmp_path / "site", other.url)
        outcome = offline("pubmed_qa", endpoint.url, code=3, env={"PYTHONPATH": str(site)})
        place = other.url.removeprefix("http://").removesuffix("/v1")
        says(outcome.stderr, f"reach {place}", "not contacted")
        says(outcome.stderr, "eval-factory data pull pubmed_qa --to DIR")
        assert [event["place"] for event in events_of(outcome) if event["event"] == "blocked"] == [
            place
        ]
        assert (other.paths, endpoint.requests) == ([], [])


@pytest.mark.medical_data
def test_the_endpoints_proxy_is_no_way_round(
    endpoint: ScriptedEndpoint, offline: Run, tmp_path: Path
) -> None:
    """`endpoint` plays a proxy: it answers for every host."""
    site = meddling_package(tmp_path / "site", "http://elsewhere.invalid/x")
    url = "http://model.invalid/v1"
    proxy = endpoint.url.removesuffix("/v1")
    env = {"HTTP_PROXY": proxy, "http_proxy": proxy}
    stopped = offline("pubmed_qa", url, code=3, env={**env, "PYTHONPATH": str(site)})
    assert "tried to reach elsewhere.invalid" in stopped.stderr
    assert endpoint.paths == []
    offline("pubmed_qa", url, env=env, output_dir=tmp_path / "again")
    assert set(endpoint.paths) == {f"{url}/chat/completions"}


def test_the_embedded_endpoint_is_offline(run_program: Run) -> None:
    outcome = run_program(
        "sample_medical_qa", "demo://baseline", "--offline", params={"limit_samples": INSTANCES}
    )
    assert outcome.returncode == 0, outcome.stderr
    assert_nothing_else_was_wanted(outcome)
