"""Tests of what exactly was run, and with what: versions, data, prompts, target, machine, files, times."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders import plan
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.data.sources import load_sources
from eval_factory.demo.example import packaged_data_hashes
from eval_factory.helm.environments import environment_of
from eval_factory.helm.names import RUN_RECORD_FILE
from eval_factory.scoring import provenance
from eval_factory.tasks.framework import framework_path
from eval_factory.tasks.upstreams import HELM
from stored_results import PROVENANCE
from unit.scoring.test_collect import FOUR, result_of, state


def test_the_kind_of_machine_and_not_which_one_it_is() -> None:
    found = provenance.platform_of_this()
    kind = {
        "system": platform.system(),
        "machine": platform.machine(),
        "implementation": platform.python_implementation(),
    }
    assert found.items() >= kind.items()
    assert found.keys() <= {*kind, "distribution", "libc"}


def test_every_package_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [("Zebra_Pack", "2"), ("a.b--C", "1.0"), ("a.b--C", "1.0")]
    heads: list[dict[str, str]] = [
        *({"Name": name, "Version": version} for name, version in known),
        {"Version": "3"},
    ]
    installed = [SimpleNamespace(metadata=head) for head in heads]
    monkeypatch.setattr(metadata, "distributions", lambda **_where: installed)
    provenance.installed_packages.cache_clear()
    try:
        assert provenance.installed_packages(environment_of(HELM)) == "a-b-c==1.0\nzebra-pack==2\n"
        assert (
            provenance.lock_sha256(environment_of(HELM))
            == hashlib.sha256(b"a-b-c==1.0\nzebra-pack==2\n").hexdigest()
        )
    finally:
        provenance.installed_packages.cache_clear()


def test_when_a_run_began_and_ended(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    told = [("mine", 1_000_000_030.9), ("other", 5.0), ("mine", 1_000_000_000.2), ("other", 2e9)]
    lines = [
        json.dumps({"time": time, "run_id": run, "event": "phase", "of": "mine"})
        for run, time in told
    ]
    events.write_text(
        "\n".join([*lines, '{"run_id": "mine"}', '["mine"]', '{"run_id": "mine", "time": 1'])
    )
    assert provenance.began_and_ended(events, "mine") == (
        "2001-09-09T01:46:40Z",
        "2001-09-09T01:47:10Z",
    )
    for file, run in ((events, "nobody"), (tmp_path / "none", "mine")):
        assert provenance.began_and_ended(file, run) == (None, None)


def test_helms_files_and_the_cache_are_named_and_nothing_else(tmp_path: Path) -> None:
    result = result_of(
        tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR}
    )
    rundir = RunDir(tmp_path / "out")
    run = tmp_path / "out" / "helm" / "runs" / "s" / "r"
    kept = rundir.helm / "run_record.json", rundir.helm / "trivial_scores.json"
    for path in (
        run / "scenario.json",
        run / "display_requests.json",
        *kept,
        rundir.helm / "other.json",
    ):
        path.write_text("{}", "utf-8")
    found = provenance.hashes_of_run_files(rundir, [run])
    of_the_run = ("run_spec", "scenario", "scenario_state", "stats", "per_instance_stats")
    files = [*(run / f"{name}.json" for name in of_the_run), *kept, rundir.cache_db]
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert found == dict(
        zip((str(file.relative_to(rundir.root)) for file in files), hashes, strict=True)
    )
    assert provenance.with_run_files(result, rundir, [run]).provenance.run_files == found
    assert result.provenance.run_files == {}


def test_the_patches_that_were_applied(tmp_path: Path) -> None:
    def patches(task: str) -> tuple[str, ...] | None:
        made = plan({"config.type": task, "config.output_dir": str(tmp_path)})
        return provenance.provenance_of(made, "scenario", "0" * 64, None, None).patches

    assert patches("medec") is None
    (tmp_path / "helm").mkdir()
    (tmp_path / "helm" / RUN_RECORD_FILE).write_text('{"patches": ["always", "of_medec"]}')
    assert patches("medec") == ("always", "of_medec")


def test_with_what_it_was_made_and_when(tmp_path: Path) -> None:
    made = plan({"config.type": "pubmed_qa", "config.output_dir": str(tmp_path)})
    data = made.rundir.helm / "scenarios" / "pubmed_qa" / "data"
    data.mkdir(parents=True)
    (data / "test_set.json").write_text("edited")
    made.rundir.events.parent.mkdir()
    made.rundir.events.write_text(json.dumps({"time": 1e9, "run_id": "mine"}))
    record = provenance.provenance_of(made, "pubmed_qa", "0" * 64, None, None, run_id="mine")
    assert (record.started_at, record.ended_at) == ("2001-09-09T01:46:40Z", "2001-09-09T01:46:40Z")
    hashes = sha256_of(framework_path()), provenance.lock_sha256(environment_of(HELM))
    assert (record.platform, record.framework_sha256, record.lock_sha256) == (
        provenance.platform_of_this(),
        *hashes,
    )
    assert record.seeds == {"helm_sample": 0, "helm_examples": 0}
    seeded = plan({"config.params.limit_samples": 5, "config.params.extra.sample_seed": 7})
    stopped = plan(
        {"config.params.extra.stop_when.beats_floor": True, "config.params.extra.stop_when.seed": 7}
    )
    assert (
        provenance.seeds_of(stopped)
        == provenance.seeds_of(seeded)
        == {"sample": 7, "helm_examples": 0}
    )
    assert record.dataset_files.keys() == {"scenarios/pubmed_qa/data/test_set.json"}
    assert record.dataset_revisions == {}  # what was edited is of no commit
    sample = plan(
        {"config.type": "sample_medical_qa", "config.output_dir": str(tmp_path / "sample")}
    )
    of_the_package = provenance.provenance_of(
        sample, "sample_medical_qa", "0" * 64, None, None
    ).dataset_files
    assert of_the_package == packaged_data_hashes("sample_medical_qa") != {}
    assert (
        provenance.provenance_of(made, "pubmed_qa", "0" * 64, None, None, run_id="other").started_at
        is None
    )


def test_data_that_are_not_here_keep_their_hashes() -> None:
    stored = {
        "scenarios/a": "1",
        "scenarios/b": "2",
        "hub:x/y": "3",
        "hub:x/z": "4",
        "package:a": "5",
    }
    seen = {"scenarios/a": "9", "scenarios/new": "6"}
    made = {
        **seen,
        "package:a": "6",
        "package:b": "7",
        "hub:x/y": "8",
        "hub:x/z": "4",
        "hub:new": "7",
    }
    found = provenance.RememberedFacts(replace(PROVENANCE, dataset_files=stored))
    for now, expected, unconfirmed in ((made, {**stored, **seen}, 3), (stored, stored, 0)):
        completed = found.complete_record(plan(), replace(PROVENANCE, dataset_files=now))
        assert (completed.dataset_files, found.unconfirmed) == (expected, unconfirmed)


def test_hashes_revisions_and_times_are_the_stored_ones(tmp_path: Path) -> None:
    here = plan({"config.type": "pubmed_qa", "config.output_dir": str(tmp_path)})
    here.rundir.helm.mkdir()
    name = "scenarios/pubmed_qa/data/test_set.json"
    (digest,) = [str(file.sha256) for file in load_sources().tasks["pubmed_qa"].files]
    then = replace(PROVENANCE, dataset_files={name: digest}, started_at="s", ended_at="e")
    found = provenance.RememberedFacts(then)
    now = replace(PROVENANCE, dataset_files={})
    made = found.complete_record(here, now)
    assert (made.dataset_files, set(made.dataset_revisions)) == ({name: digest}, {name})
    assert (made.started_at, made.ended_at, found.unconfirmed) == ("s", "e", 1)
    told = provenance.RememberedFacts(then).complete_record(
        here, replace(now, started_at="t", ended_at=None, dataset_files={name: "x"})
    )
    assert (told.started_at, told.ended_at, told.dataset_files, told.dataset_revisions) == (
        "t",
        None,
        {name: "x"},
        {},
    )
