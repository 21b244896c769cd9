"""Run entries with HELM's own perturbations: their files are pulled, placed, and missed by name."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from builders import plan
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.data.bundle import compare_files, read_manifest
from eval_factory.data.pull import pull
from eval_factory.data.run_data import check_data, copy_bundle_files
from eval_factory.data.sources import Sources, load_sources
from eval_factory.plan.run_plan import Plan
from facts import says
from invented_bundle import Origin, punkt_zip

DIALECT = "perturbations/dialect/SAE_to_AAVE_mapping.json"
NAMES = "perturbations/person_name/data/person_names.txt"
SYNONYMS = "perturbations/synonym/wordnet_synonyms.json"
WORDNET = "perturbations/synonym/corpora/wordnet.zip"
QUESTIONS = "scenarios/pubmed_qa/data/test_set.json"
DIALOGUES = "scenarios/med_dialog/icliniq/test.json"
FAIRNESS = "helm:med_dialog:subset=icliniq,data_augmentation=fairness"
SYNONYM = "helm:boolq:data_augmentation=synonym"
CONTENTS = {".json": b"{}", ".txt": b"brad,first_name,gender,male\n", ".zip": punkt_zip()}


@pytest.fixture
def mirror(origin: Origin) -> Sources:
    """The real table, from a server that has invented files in their place."""
    table = load_sources().model_copy(update={"nltk": {}})
    of_perturbations = chain.from_iterable(one.files for one in table.perturbations.values())
    for file in (*table.tasks["med_dialog_icliniq"].files, *of_perturbations):
        origin.files[urlsplit(table.url(file.url)).path] = CONTENTS[Path(file.path).suffix]
    return table.with_origins(dict.fromkeys(table.origins, origin.url))


def plan_of(entry: str, tmp_path: Path, **extra: Any) -> Plan:
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    return plan({"config.type": entry, "config.output_dir": str(tmp_path / "out"), **flags})


def refused(said: str, this: Plan) -> None:
    with pytest.raises(PrerequisiteError, match=said):
        check_data(this, {})


def test_an_entrys_own_files_and_those_of_its_perturbations(
    mirror: Sources, tmp_path: Path
) -> None:
    pull([FAIRNESS], tmp_path / "b", mirror, print)
    manifest = read_manifest(tmp_path / "b")
    assert not compare_files(tmp_path / "b", manifest)
    assert (manifest.tasks, set(manifest.file_by_path())) == (
        ["med_dialog_icliniq"],
        {DIALOGUES, DIALECT, NAMES},
    )
    this = plan_of(FAIRNESS, tmp_path, data_dir=str(tmp_path / "b"), offline=True)
    if (found := check_data(this, {})) is not None:
        copy_bundle_files(found, this)
    names = tmp_path / "out/helm" / NAMES
    left = plan_of(FAIRNESS, tmp_path, offline=True)
    assert names.read_bytes() == CONTENTS[".txt"]
    assert check_data(left, {}) is None  # what the earlier run left is enough
    names.unlink()
    refused(f"missing: {names}\n.*data pull {FAIRNESS} --to DIR, then run with", left)
    assert check_data(plan_of(FAIRNESS, tmp_path), {}) is None  # online HELM downloads it


def test_of_an_entry_that_the_table_does_not_know_only_they_are_pulled(
    mirror: Sources, tmp_path: Path
) -> None:
    said: list[str] = []
    pull([SYNONYM], tmp_path / "b", mirror, said.append)
    assert set(read_manifest(tmp_path / "b").file_by_path()) == {SYNONYMS, WORDNET}
    says(said[0], "does not know which", "package en_core_web_sm")
    other = SYNONYM.replace("synonym", "dialect_easy")
    told = (
        f"missing: {DIALECT}\n.*data pull {other} --to {tmp_path}/b\n.*has nothing else for {other}"
    )
    refused(told, plan_of(other, tmp_path, data_dir=str(tmp_path / "b")))
    # without perturbations: our task
    pull(["helm:med_dialog:subset=icliniq"], tmp_path / "b", mirror, said.append)
    assert DIALOGUES in read_manifest(tmp_path / "b").file_by_path()


def test_what_cannot_be_pulled_is_refused_before_anything_is_asked(
    mirror: Sources, origin: Origin, tmp_path: Path
) -> None:
    for entry, said in (
        (
            "pubmed_qa:data_augmentation=spanish",
            "cannot be pulled: it asks Google Translate, with credentials",
        ),
        (
            "boolq:data_augmentation=cleva",
            "cannot be pulled: HELM takes its files from an address without a name",
        ),
        ("boolq:data_augmentation=robustness", "does not know which data"),
        ("nothing", "has no run spec 'nothing'"),
    ):
        with pytest.raises(ConfigError, match=said):
            pull(["pubmed_qa", f"helm:{entry}"], tmp_path / "b", mirror, print)
    assert not origin.asked


def test_a_run_needs_what_no_bundle_holds(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated = "helm:pubmed_qa:data_augmentation=swahili"
    here = {"data_dir": str(bundle)}
    refused(
        "cannot be run offline: it asks Google Translate",
        plan_of(translated, tmp_path, offline=True),
    )
    refused(
        f"missing: {QUESTIONS}\n.*data pull pubmed_qa --to", plan_of(translated, tmp_path, **here)
    )  # it may ask
    refused("needs the package en_core_web_sm", plan_of(SYNONYM, tmp_path, **here))
    (tmp_path / "site/en_core_web_sm").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    refused(f"missing: {SYNONYMS}\n.*missing: {WORDNET}", plan_of(SYNONYM, tmp_path, **here))
