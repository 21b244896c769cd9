"""The source table: every task, every variant, every data set; against HELM itself in tests/helm."""

from __future__ import annotations

import hashlib
from itertools import chain

import pytest

from eval_factory.data.sources import SourceFile, load_sources
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.leaderboard.registry import helm_version, load_catalogue


def test_every_task_is_in_the_table_and_no_other() -> None:
    table = load_sources()
    framework = load_framework()
    assert set(table.tasks) == set(framework.names())
    for task in framework.evaluations:
        entry = table.tasks[task.name]
        assert entry.scenario == task.helm.scenario
        is_public = task.about.access == "public" and task.name != "sample_medical_qa"
        assert bool(entry.files or entry.listing or entry.hub) == is_public, task.name
        assert entry.own_data == (task.about.access != "public")
        assert set(entry.tiktoken) <= set(table.tiktoken)


def test_the_vocabulary_is_tiktokens_and_the_confs_are_the_leaderboards() -> None:
    table = load_sources()
    for entry in table.tiktoken.values():
        assert hashlib.sha1(table.url(entry.url).encode()).hexdigest() == entry.path  # noqa: S324 - tiktoken's own
    found = table.presentation
    assert found is not None
    assert set(found.files) == {
        row.conf.format(organization="stanford") for row in load_catalogue().leaderboards
    }
    assert f"/v{helm_version()}/" in found.url


def test_subsets_and_variants() -> None:
    table = load_sources()
    medcalc = table.tasks["medcalc_bench"]
    assert [hub.id for hub in medcalc.with_values({"version": None}).hub] == ["ncbi/MedCalc-Bench"]
    newest = medcalc.with_values({"version": "v1.2", "subset": None})
    assert ([hub.id for hub in newest.hub], newest.variant) == (
        ["ncbi/MedCalc-Bench-v1.2"],
        "version=v1.2",
    )
    assert table.requested("medcalc_bench:version=v1.2") == newest
    assert table.requested("medcalc_bench:version=v9") is None
    assert table.requested("nothing") is None
    both = table.tasks["med_dialog"]
    assert [file.path for file in both.with_values({"subset": "icliniq"}).files] == [
        "icliniq/test.json"
    ]
    assert len(both.with_values({}).files) == 2
    for_all = SourceFile(path="for_all.json", url="https://h.example/for_all.json")
    more = both.model_copy(update={"files": (*both.files, for_all)})
    assert [file.path for file in more.with_values({"subset": "icliniq"}).files] == [
        "icliniq/test.json",
        "for_all.json",
    ]


@pytest.mark.parametrize(
    ("name", "values", "read"),
    [
        ("careqa", {}, "CareQA_en.json"),
        ("careqa", {"language": "en"}, "CareQA_en.json"),
        ("careqa", {"language": "es"}, "CareQA_es.json"),
        ("medconceptsqa", {}, "atc_hard/test-00000-of-00001.parquet"),
    ],
)
def test_a_run_reads_the_files_of_one_language_or_subset(
    name: str, values: dict[str, str], read: str
) -> None:
    task = load_sources().tasks[name]
    of_run = task.with_values(values)
    assert [file.path for file in of_run.files] == [read]
    assert {*of_run.files, *of_run.other_parts} == {*task.files}


def test_every_variant_is_a_value_that_the_task_takes() -> None:
    for task in load_framework().evaluations:
        for variant in load_sources().tasks[task.name].variants:
            assert all(
                value in task.helm.parameters[name].allowed for name, value in variant.when.items()
            ), task.name


def test_every_data_set_of_the_hub_is_pinned() -> None:
    """But version 1.1 of MedCalc-Bench, HealthQA-BR and VQA-RAD, of which nothing on the Hub is known."""
    tasks = load_sources().tasks.values()
    datasets = list(
        chain.from_iterable(
            (*task.hub, *(chain.from_iterable(variant.hub for variant in task.variants)))
            for task in tasks
        )
    )
    assert len(datasets) > len(tasks) / 10
    assert {hub.id for hub in datasets if hub.revision is None} == {
        "ncbi/MedCalc-Bench-v1.1",
        "Larxel/healthqa-br",
        "flaviagiammarino/vqa-rad",
    }
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
