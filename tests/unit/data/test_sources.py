"""The source table against the installed HELM: every public task, every file that HELM asks for, every data set."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest

from eval_factory.data.sources import SourceFile, load_sources
from eval_factory.tasks.framework import load_framework

SCENARIO_OF = {
    "medec": "medec.MedecScenario",
    "medbullets": "medbullets.MedBulletsScenario",
    "medbullets_freetext": "medbullets.MedBulletsScenario",
    "medhelm_med_qa": "med_qa.MedQAScenario",
    "medhelm_med_mcqa": "med_mcqa.MedMCQAScenario",
    "pubmed_qa": "pubmed_qa.PubMedQAScenario",
    "ehr_sql": "ehr_sql.EhrSqlScenario",
    "race_based_med": "race_based_med.RaceBasedMedScenario",
    "aci_bench": "aci_bench.ACIBenchScenario",
    "medication_qa": "medication_qa.MedicationQAScenario",
    "med_dialog_healthcaremagic": "med_dialog.MedDialogScenario",
    "med_dialog_icliniq": "med_dialog.MedDialogScenario",
}
HUB_SCENARIO_OF = {
    "medcalc_bench": "medcalc_bench.MedCalcBenchScenario",
    "head_qa": "headqa.HeadQAScenario",
    "medhallu": "medhallu.MedHalluScenario",
    "medi_qa": "medi_qa.MediQAScenario",
}
LISTING_SCENARIO_OF = {
    "mtsamples_replicate": "mtsamples_replicate.MTSamplesReplicateScenario",
    "mtsamples_procedures": "mtsamples_procedures.MTSamplesProceduresScenario",
}


class Stop(Exception):
    pass


def scenario_class(name: str) -> tuple[Any, Any]:
    module_name, _, class_name = name.partition(".")
    module = importlib.import_module(f"helm.benchmark.scenarios.{module_name}_scenario")
    return module, getattr(module, class_name)


def upstream(file: SourceFile) -> str:
    return load_sources().url(file.upstream or file.url)


def test_every_task_is_in_the_table_and_no_other() -> None:
    table, framework = load_sources(), load_framework()
    assert set(table.tasks) == set(framework.names())
    for task in framework.evaluations:
        entry = table.tasks[task.name]
        assert entry.scenario == task.helm.scenario
        is_public = task.about.access == "public" and task.name != "sample_medical_qa"
        assert bool(entry.files or entry.listing or entry.hub) == is_public, task.name
        assert entry.own_data == (task.about.access != "public")
        assert set(entry.tiktoken) <= set(table.tiktoken)


def test_every_public_task_is_compared_with_helm() -> None:
    compared = {*SCENARIO_OF, *HUB_SCENARIO_OF, *LISTING_SCENARIO_OF, "med_dialog"}
    public = {name for name, entry in load_sources().tasks.items() if not entry.own_data}
    assert compared == public - {"sample_medical_qa"}


@pytest.mark.parametrize("task", SCENARIO_OF)
def test_the_files_are_those_that_helm_downloads(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, kind = scenario_class(SCENARIO_OF[task])
    asked: dict[str, str] = {}

    def note(source_url: str, target_path: str, **_: Any) -> None:
        asked[str(Path(target_path).relative_to(tmp_path))] = source_url

    monkeypatch.setattr(module, "ensure_file_downloaded", note)
    entry = load_sources().tasks[task]
    scenario = kind(subset=task.rpartition("_")[2]) if task.startswith("med_dialog") else kind()
    for step in ("process_json", "extract_schema"):  # what reads the files of those that download several
        if hasattr(kind, step):
            monkeypatch.setattr(kind, step, lambda *_: [])
    monkeypatch.setattr(module, "create_csv_from_word", lambda *_: None, raising=False)
    with contextlib.suppress(FileNotFoundError):  # of the file that was not downloaded
        scenario.get_instances(str(tmp_path))
    # An archive becomes a folder, `data`; the table names the files in it that HELM then reads.
    wanted = {file.path.removesuffix(f"/{file.member}") if file.member else file.path: file for file in entry.files}
    assert asked == {path: upstream(file) for path, file in wanted.items()}


@pytest.mark.parametrize("task", HUB_SCENARIO_OF)
def test_the_data_sets_are_those_that_helm_loads(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, kind = scenario_class(HUB_SCENARIO_OF[task])
    asked: list[tuple[str, str | None, str | None, bool]] = []

    def note(path: str, name: str | None = None, **kwargs: Any) -> None:
        asked.append((path, name, kwargs.get("revision"), kwargs.get("trust_remote_code", False)))
        raise Stop

    monkeypatch.setattr(module, "load_dataset", note)
    with pytest.raises(Stop):
        kind().get_instances(str(tmp_path))
    (hub,) = load_sources().tasks[task].hub
    ((name, config, revision, script),) = asked
    assert (name, config, script) == (hub.id, hub.config, hub.script)
    assert revision in (None, hub.revision)  # HELM names none of most; the table then does


@pytest.mark.parametrize("task", LISTING_SCENARIO_OF)
def test_the_lists_are_those_that_helm_asks_for(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, kind = scenario_class(LISTING_SCENARIO_OF[task])
    asked: list[str] = []

    def note(url: str, **_: Any) -> None:
        asked.append(url)
        raise Stop

    monkeypatch.setattr(module.requests, "get", note)
    table = load_sources()
    listing = table.tasks[task].listing
    assert listing is not None
    with pytest.raises(Stop):
        kind().fetch_file_list()
    with pytest.raises(Stop):
        kind().download_file("x.txt", str(tmp_path))
    assert asked == [table.url(listing.upstream or listing.url), table.url(listing.files) + "x.txt"]


def test_the_vocabulary_is_tiktokens() -> None:
    import hashlib

    table = load_sources()
    for entry in table.tiktoken.values():
        assert hashlib.sha1(table.url(entry.url).encode()).hexdigest() == entry.path  # noqa: S324 - tiktoken's own


def test_subsets() -> None:
    both = load_sources().tasks["med_dialog"]
    assert [file.path for file in both.of_subset("icliniq").files] == ["icliniq/test.json"]
    assert len(both.of_subset(None).files) == 2


def test_the_confs_are_those_of_the_leaderboards() -> None:
    from eval_factory.workflows.leaderboard.registry import helm_version, load_catalogue

    found = load_sources().presentation
    assert found is not None
    named = {row.conf.format(organization="stanford") for row in load_catalogue().leaderboards}
    assert set(found.files) == named
    assert f"/v{helm_version()}/" in found.url


def test_variants() -> None:
    table = load_sources()
    medcalc = table.tasks["medcalc_bench"]
    assert [hub.id for hub in medcalc.with_values({"version": None}).hub] == ["ncbi/MedCalc-Bench"]
    newest = medcalc.with_values({"version": "v1.2", "subset": None})
    assert ([hub.id for hub in newest.hub], newest.variant) == (["ncbi/MedCalc-Bench-v1.2"], "version=v1.2")
    assert table.asked("medcalc_bench:version=v1.2") == newest
    assert table.asked("medcalc_bench:version=v9") is None
    assert table.asked("nothing") is None


def test_every_variant_is_a_value_that_the_task_takes() -> None:
    framework = load_framework()
    for name, entry in load_sources().tasks.items():
        for variant in entry.variants:
            for parameter, value in variant.when.items():
                task = framework.task(name)
                assert task is not None
                assert value in task.helm.parameters[parameter].allowed


def test_every_data_set_of_the_hub_is_pinned() -> None:
    """But version 1.1 of MedCalc-Bench, of which nothing on the Hub is known."""
    tasks = load_sources().tasks.values()
    datasets = [
        hub for task in tasks for hub in (*task.hub, *(hub for variant in task.variants for hub in variant.hub))
    ]
    assert len(datasets) > len(tasks) / 10
    assert {hub.id for hub in datasets if hub.revision is None} == {"ncbi/MedCalc-Bench-v1.1"}
    assert all(len(hub.revision) == 40 for hub in datasets if hub.revision)


def test_the_revisions_that_ls_shows_are_those_that_are_read() -> None:
    sources = load_sources()
    for task in load_framework().evaluations:
        if task.about.revision is None:
            continue
        entry = sources.tasks[task.name]
        read = [file.url for file in entry.files] + [hub.revision or "" for hub in entry.hub]
        read += [entry.listing.url] if entry.listing else []
        assert any(task.about.revision in text for text in read), task.name
