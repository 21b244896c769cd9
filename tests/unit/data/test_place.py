from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import sha256_of
from eval_factory.data import run_data as placing
from eval_factory.data.bundle import Manifest
from eval_factory.data.importing import import_folder
from eval_factory.data.run_data import (
    BundleInUse,
    check_data,
    copy_bundle_files,
    takes_all_files,
    with_bundle,
)
from eval_factory.data.sources import Sources, load_sources
from eval_factory.plan.run_plan import Plan
from facts import naming, says
from invented_bundle import NOTES, QUESTIONS, folder_to_import, sources


@pytest.fixture(autouse=True)
def _invented_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invented tasks under names of real ones."""
    table = sources()
    tasks = {
        "pubmed_qa": table.tasks["questions"],
        "mtsamples_procedures": table.tasks["notes"],
        "medcalc_bench": table.tasks["calc"],
        "medalign": table.tasks["records"],
    }
    renamed: Sources = table.model_copy(update={"tasks": tasks})
    vocabularies = {"cl100k_base": renamed.tiktoken["words"], **renamed.tiktoken}
    renamed = renamed.model_copy(update={"tiktoken": vocabularies})
    monkeypatch.setattr(placing, "load_sources", lambda: renamed)


def plan_of(task: str, tmp_path: Path, bundle: Path | None, **extra: Any) -> Plan:
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    if bundle is not None:
        flags["config.params.extra.data_dir"] = str(bundle)
    return plan({"config.type": task, "config.output_dir": str(tmp_path / "out"), **flags})


def refused(said: str, this: Plan, env: dict[str, str] | None = None) -> None:
    with pytest.raises(PrerequisiteError, match=said):
        check_data(this, env or {})


def looked_for(this: Plan) -> BundleInUse:
    found = check_data(this, {})
    assert found is not None
    return found


def placed(this: Plan) -> BundleInUse:
    found = looked_for(this)
    copy_bundle_files(found, this)
    return found


def test_files_are_copied_and_what_a_run_altered_is_put_right(bundle: Path, tmp_path: Path) -> None:
    this = plan_of("pubmed_qa", tmp_path, bundle)
    found = placed(this)
    folder = tmp_path / "out/helm/scenarios/questions"
    copy = folder / "data/set.json"
    assert copy.read_bytes() == QUESTIONS
    assert not copy.is_symlink()
    assert copy.stat().st_ino != (bundle / "scenarios/questions/data/set.json").stat().st_ino
    copy.write_text("altered by a run")
    (folder / "made.csv").write_text("made of other data")
    copy_bundle_files(found, this)
    assert copy.read_bytes() == QUESTIONS
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["set.json"]


@pytest.mark.parametrize("linked", ["scenarios", "scenarios/questions", "scenarios/questions/data"])
def test_nothing_is_deleted_or_written_through_a_link(
    linked: str, bundle: Path, tmp_path: Path
) -> None:
    this = plan_of("pubmed_qa", tmp_path, bundle)
    shared = tmp_path / "shared"
    theirs = [
        shared / "mine.txt",
        shared / "set.json",
        shared / "data/set.json",
        shared / "questions/data/set.json",
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    link = tmp_path / "out/helm" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(shared)
    placed(this)
    assert [path.read_text() for path in theirs] == ["theirs"] * len(theirs)
    assert not link.is_symlink()
    assert (tmp_path / "out/helm/scenarios/questions/data/set.json").read_bytes() == QUESTIONS


def test_helms_whole_folder_is_not_unlinked(bundle: Path, tmp_path: Path) -> None:
    this = plan_of("pubmed_qa", tmp_path, bundle)
    (tmp_path / "disk/scenarios/questions").mkdir(parents=True)
    (tmp_path / "disk/scenarios/questions/mine.txt").write_text("theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/helm").symlink_to(tmp_path / "disk")
    found = looked_for(this)
    with pytest.raises(PrerequisiteError, match="helm: is a link"):
        copy_bundle_files(found, this)
    assert (tmp_path / "disk/scenarios/questions/mine.txt").read_text() == "theirs"


def test_the_variables_name_copies(bundle: Path, tmp_path: Path) -> None:
    """The bundle may go away while the model is asked. A limit on prompts needs its vocabulary."""
    this = plan_of("mtsamples_procedures", tmp_path, bundle, max_length=9)
    settings = with_bundle(HelmRunSettings(library_variables={"A": "b"}), placed(this), this)
    helm = tmp_path / "out/helm"
    # no NLTK_DATA, for the bundle has none, and nothing of the Hub: a user's own goes on being found
    libraries = {"A": "b", "TIKTOKEN_CACHE_DIR": str(helm / "tiktoken")}
    assert settings == HelmRunSettings(
        file_lists=str(helm / "file_lists"), library_variables=libraries
    )
    for copy in ("file_lists/notes.json", "tiktoken/0123", "scenarios/notes/a 1.txt"):
        assert (helm / copy).read_bytes() == (bundle / copy).read_bytes()


def test_a_bundle_that_changes_before_it_is_copied(bundle: Path, tmp_path: Path) -> None:
    this = plan_of("pubmed_qa", tmp_path, bundle)
    found = looked_for(this)
    (bundle / "scenarios/questions/data/set.json").write_bytes(b"[]")
    with pytest.raises(PrerequisiteError, match=naming("data/set.json", "was changed")):
        copy_bundle_files(found, this)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_what_is_missing_or_altered_is_named_with_the_command(bundle: Path, tmp_path: Path) -> None:
    calc, questions = (plan_of(task, tmp_path, bundle) for task in ("medcalc_bench", "pubmed_qa"))
    refused(r"missing: hf: org/Some-Calc\n.*data pull medcalc_bench --to", calc)
    (bundle / "scenarios/questions/data/set.json").write_text("x")
    refused(r"altered: scenarios/questions/data/set\.json\n.*\n.*data pull pubmed_qa", questions)
    # another task's files are its own
    check_data(plan_of("mtsamples_procedures", tmp_path, bundle), {})
    refused("is not a data bundle", plan_of("pubmed_qa", tmp_path, tmp_path / "none"))
    assert check_data(plan_of("pubmed_qa", tmp_path, None), {}) is None, (
        "without a bundle nothing is looked for"
    )


def test_the_record_names_revision_and_hash_of_what_was_read(tmp_path: Path) -> None:
    root = tmp_path / "bundle"
    import_folder(folder_to_import(tmp_path / "given"), root, sources(), lambda _line: None)
    this = plan_of("medcalc_bench", tmp_path, root)
    found = placed(this)
    hashed = sha256_of(root / "manifest.json")
    shutil.rmtree(root)
    record = found.record()
    assert record["manifest_sha256"] == hashed
    (dataset,) = record["hub"]
    assert (dataset["id"], dataset["revision"], dataset["source"]) == (
        "org/Some-Calc",
        None,
        "import:given",
    )
    listed = {
        Path(path).name: entry.sha256
        for path, entry in found.manifest.file_by_path().items()
        if path.startswith("hf/")
    }
    assert dataset["files"] == listed
    home = tmp_path / "out/helm/hf"
    assert (
        with_bundle(HelmRunSettings(), found, this).library_variables.items()
        >= {
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "HF_HOME": str(home),
            "HF_DATASETS_CACHE": str(home / "datasets"),
        }.items()
    )


@pytest.mark.parametrize(
    ("entry", "known"),
    [
        ("pubmed_qa", "pubmed_qa"),
        ("med_qa", "medhelm_med_qa"),
        ("medbullets_freetext", "medbullets_freetext"),
        ("medcalc_bench:version=v1.2", "medcalc_bench:version=v1.2"),
        ("head_qa:language=es", "head_qa:language=es"),
        ("head_qa:language=en", "head_qa"),
        ("med_dialog:subset=icliniq", "med_dialog_icliniq"),
        ("med_dialog:subset=healthcaremagic", "med_dialog_healthcaremagic"),
    ],
)
def test_a_run_entry_reads_what_the_task_reads(
    entry: str, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "load_sources", load_sources)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/manifest.json").write_text(Manifest().text())
    refused(
        f"data pull {known} --to {tmp_path}/b$", plan_of(f"helm:{entry}", tmp_path, tmp_path / "b")
    )
    task = load_sources().requested(known)
    assert task is not None
    found = placing.task_sources(plan_of(f"helm:{entry}", tmp_path, None), load_sources())
    assert (found.scenario, found.files, found.hub) == (task.scenario, task.files, task.hub)


@pytest.mark.parametrize(
    "entry", ["mmlu:subject=anatomy", "head_qa:language=fr", "medcalc_bench:version=v9"]
)
def test_a_run_entry_of_which_nothing_is_known(entry: str, bundle: Path, tmp_path: Path) -> None:
    this = plan_of(f"helm:{entry}", tmp_path, bundle)
    found = looked_for(this)
    # the user's own HF_HOME, and the network, are left alone
    assert with_bundle(HelmRunSettings(), found, this) == HelmRunSettings()
    told = placing.how_to_get_data(this, options="--to DIR")
    says(told, "eval-factory data pull", "has nothing")
    assert f"helm:{entry}" in told
    says(told, "HF_HOME")
    assert f"{tmp_path}/out/helm/scenarios/{entry.partition(':')[0]} and" in told


def test_what_cannot_be_pulled_is_not_advised_to_be_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "load_sources", load_sources)
    own = {"condition": "chronic_pain", "data_path": "/data"}
    for task, extra in (("clear", own), ("sample_medical_qa", {})):
        told = placing.how_to_get_data(plan_of(task, tmp_path, None, **extra), options="--to DIR")
        assert f" {task}: " in told.splitlines()[0]
        says(told.splitlines()[0], "eval-factory data pull", "has nothing")
        assert "--to DIR" not in told
    this = plan_of("ehrshot", tmp_path, None, subject="guo_icu", data_path="/data", max_length=100)
    # the vocabulary
    says(
        placing.how_to_get_data(this, options="--to DIR"), "eval-factory data pull ehrshot --to DIR"
    )


def test_whether_all_files_are_read_is_asked_where_a_list_is_answered(
    bundle: Path, tmp_path: Path
) -> None:
    everything = {"MEDICAL_DATA_ALL_FILES": "1"}
    listing = plan_of("mtsamples_procedures", tmp_path, bundle)
    assert (takes_all_files(listing, everything), takes_all_files(listing, {})) == (True, False)
    assert takes_all_files(
        plan_of("mtsamples_procedures", tmp_path, None, offline=True), everything
    )
    # GitHub is asked
    assert takes_all_files(plan_of("mtsamples_procedures", tmp_path, None), everything) is None
    assert takes_all_files(plan_of("pubmed_qa", tmp_path, bundle), everything) is None


def test_offline_without_a_bundle_looks_into_the_output_folder(tmp_path: Path) -> None:
    this = plan_of("pubmed_qa", tmp_path, None, offline=True)
    file = tmp_path / "out/helm/scenarios/questions/data/set.json"
    refused(r"set\.json\n.*data pull pubmed_qa --to DIR, then run with --data_dir DIR", this)
    file.parent.mkdir(parents=True)
    file.write_bytes(QUESTIONS)
    assert check_data(this, {}) is None


def test_offline_without_a_bundle_needs_the_files_of_the_language_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "load_sources", load_sources)
    folder = tmp_path / "out/helm/scenarios/careqa"
    folder.mkdir(parents=True)
    (folder / "CareQA_en.json").write_text("[]")
    assert check_data(plan_of("careqa", tmp_path, None, offline=True), {}) is None
    refused(
        r"missing: .*CareQA_es\.json",
        plan_of("careqa", tmp_path, None, offline=True, language="es"),
    )


def test_offline_without_a_bundle_counts_files_and_looks_into_caches(tmp_path: Path) -> None:
    notes = plan_of("mtsamples_procedures", tmp_path, None, offline=True)
    folder = tmp_path / "out/helm/scenarios/notes"
    folder.mkdir(parents=True)
    (folder / "a 1.txt").write_bytes(NOTES["a 1.txt"])
    refused("1 of 2 text files", notes)
    (folder / "B - 2.txt").write_bytes(NOTES["B - 2.txt"])
    check_data(notes, {})
    calc = plan_of("medcalc_bench", tmp_path, None, offline=True)
    refused(r"org/Some-Calc in .*/home/datasets", calc, {"HF_HOME": str(tmp_path / "home")})
    import_folder(
        folder_to_import(tmp_path / "given"), tmp_path / "b", sources(), lambda _line: None
    )
    check_data(calc, {"HF_HOME": str(tmp_path / "b/hf")})
    refused("TIKTOKEN_CACHE_DIR", plan_of("pubmed_qa", tmp_path, None, offline=True, max_length=9))
