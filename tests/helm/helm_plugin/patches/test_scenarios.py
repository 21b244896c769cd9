"""Single scenarios and run specs of HELM, patched; which files of MTSamples are read without asking GitHub."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import helm.benchmark.run_specs.medhelm_run_specs  # noqa: F401 - registers its run specs
import pyarrow as pa
import pytest
from helm.benchmark import run_spec
from helm.benchmark.scenarios import medbullets_scenario
from helm.benchmark.scenarios.ehrshot_scenario import EHRSHOTScenario
from helm.benchmark.scenarios.medcalc_bench_scenario import MedCalcBenchScenario
from helm.benchmark.scenarios.mtsamples_procedures_scenario import MTSamplesProceduresScenario
from helm.benchmark.scenarios.mtsamples_replicate_scenario import MTSamplesReplicateScenario
from pyarrow import parquet

from eval_factory.core.helm_run_settings import (
    ALL_FILES_VARIABLE,
    SETTINGS_VARIABLE,
    HelmRunSettings,
)
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.patches import lighter, scenarios
from eval_factory.helm_plugin.patches.scenarios import EHRSHOT_PROMPTS, known_names
from eval_factory.helm_plugin.session import run_record
from patching import ApplyPatch

FREETEXT = "medbullets_freetext"


def limits() -> Any:
    return run_record.entries["limited_records"]


@pytest.mark.parametrize("version", [None, "v1.2"])
def test_medcalc_benchs_version(
    version: Any, apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MedCalcBenchScenario, "get_instances", lambda _self, path, version: (path, version)
    )
    apply_patch("accept_medcalc_version")
    made = MedCalcBenchScenario(version=version) if version else MedCalcBenchScenario()
    assert made.get_instances("folder") == ("folder", version)
    assert made.definition_path  # what HELM's constructor sets is there


@pytest.fixture
def freetext(apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(medbullets_scenario, "MedBulletsFreeTextScenario", None, raising=False)
    del medbullets_scenario.MedBulletsFreeTextScenario
    apply_patch("supply_medbullets_freetext_scenario")
    return medbullets_scenario.MedBulletsFreeTextScenario()


def test_medbullets_without_options(freetext: Any, tmp_path: Path) -> None:
    right = "It is so.\n\nIncorrect Answers:\nAnswer 1: not so."
    rows = [
        ("question", "opa", "opb", "answer", "answer_idx", "explanation"),
        ("q1", " first ", "second", "second", "B", right),
        ("q2", "", "", "third ", "A", ""),
        ("", "a", "b", "a", "A", "no question"),
        ("q4", "a", "b", "a", "", "no answer"),
    ]
    file = tmp_path / "rows.csv"
    with file.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    made = freetext.process_csv(str(file), "test")
    found = [
        (one.input.text, one.references[0].output.text, one.references[0].is_correct, one.split)
        for one in made
    ]
    assert found == [("q1", "second. It is so.", True, "test"), ("q2", "third.", True, "test")]


def test_a_class_of_helms_own_is_left_alone(
    apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = object()
    monkeypatch.setattr(medbullets_scenario, "MedBulletsFreeTextScenario", own, raising=False)
    assert apply_patch("supply_medbullets_freetext_scenario") is False
    assert medbullets_scenario.MedBulletsFreeTextScenario is own


def test_medbullets_has_room_for_an_explanation(
    apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
    monkeypatch.setitem(functions, FREETEXT, functions[FREETEXT])
    before = functions[FREETEXT]()
    apply_patch("lengthen_medbullets_freetext_answers")
    after = functions[FREETEXT]()
    assert (before.adapter_spec.max_tokens, before.adapter_spec.stop_sequences) == (5, ["\n"])
    assert after == replace(
        before, adapter_spec=replace(before.adapter_spec, max_tokens=1024, stop_sequences=[])
    )


def test_ehrshots_prompts_are_new(
    tmp_path: Path, apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of another task are HELM's to overwrite where somebody shares them through a link."""
    folder = tmp_path / "scenarios" / "ehrshot"
    shared = tmp_path / "shared"
    for made in (folder / "this", folder / "other", shared):
        made.mkdir(parents=True)
        (made / EHRSHOT_PROMPTS).write_text(made.name)
    (folder / "linked").symlink_to(shared)

    def get_instances(_self: Any, output_path: str) -> list[str]:
        assert not (folder / "this" / EHRSHOT_PROMPTS).exists()
        parquet.write_table(
            pa.table({"prompt": ["a", "b", "c"]}), Path(output_path) / "this" / EHRSHOT_PROMPTS
        )
        return ["a"]

    monkeypatch.setattr(EHRSHOTScenario, "get_instances", get_instances)
    apply_patch("rebuild_ehrshot_prompts")
    scenario = EHRSHOTScenario(subject="this", data_path="x", max_length=100)
    assert scenario.get_instances(str(folder)) == ["a"]
    assert not (folder / "other" / EHRSHOT_PROMPTS).exists()
    assert (shared / EHRSHOT_PROMPTS).read_text() == "shared"
    assert limits() == {"max_length": 100, "records": 3, "left_out": 2}


def test_medaligns_cut_records(
    tmp_path: Path, apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    lighter.replace_missing_transformers()
    from helm.benchmark.scenarios import medalign_scenario_helper as helper
    from helm.benchmark.scenarios.medalign_scenario import MedalignScenario

    records = {1: "a short record", 2: "a long record", 3: "another"}
    asked = {"q1": {"patient_id": 1}, "q2": {"patient_id": "2"}, "q3": {"patient_id": 3}}
    prompts = {"q1": "a short record q1", "q2": "record q2", "q3": "another q3"}
    monkeypatch.setattr(helper, "pack_and_trim_prompts", lambda _asked, _records, *_, **__: prompts)
    monkeypatch.setattr(
        MedalignScenario,
        "get_instances",
        lambda _self, _path: helper.pack_and_trim_prompts(asked, records, "t", n=1),
    )
    apply_patch("count_cut_medalign_records")
    made = MedalignScenario(max_length=100, data_path="x")
    assert made.get_instances(str(tmp_path / "scenarios" / "medalign")) == prompts
    assert limits() == {"max_length": 100, "records": 3, "cut": 1}


@pytest.fixture
def _github(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTINGS_VARIABLE, raising=False)
    monkeypatch.delenv(ALL_FILES_VARIABLE, raising=False)
    monkeypatch.setattr(network_guard, "current_guard", lambda: None)


@pytest.mark.usefixtures("_github")
def test_files_that_are_there_count_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.txt", "B.txt", "ä.txt", "a.txt", "a.txt.lock"):
        (tmp_path / name).touch()
    assert known_names("mtsamples_procedures", tmp_path) is None
    monkeypatch.setattr(network_guard, "current_guard", lambda: SimpleNamespace())
    assert known_names("mtsamples_procedures", tmp_path) == ["B.txt", "a.txt", "b.txt", "ä.txt"]


@pytest.mark.usefixtures("_github")
def test_a_bundles_list_is_read_up_to_githubs_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [f"{number:04}.txt" for number in range(1001)]
    (tmp_path / "mtsamples_replicate.json").write_text(json.dumps({"names": listed}))
    monkeypatch.setenv(
        SETTINGS_VARIABLE,
        HelmRunSettings(file_lists=str(tmp_path)).environment()[SETTINGS_VARIABLE],
    )
    assert known_names("mtsamples_replicate", tmp_path) == listed[:1000]
    assert known_names("mtsamples_procedures", tmp_path) is None
    monkeypatch.setenv(ALL_FILES_VARIABLE, "1")
    assert known_names("mtsamples_replicate", tmp_path) == listed


@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        (MTSamplesProceduresScenario, "mtsamples_procedures"),
        (MTSamplesReplicateScenario, "mtsamples_replicate"),
    ],
)
def test_known_names(
    kind: Any,
    scenario: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    apply_patch: ApplyPatch,
) -> None:
    asked: list[str] = []

    def known(name: str, folder: Path) -> list[str] | None:
        asked.append(f"{name} in {folder.name}")
        return None if folder.name == "unknown" else ["a.txt"]

    monkeypatch.setattr(kind, "get_instances", lambda self, _path: self.fetch_file_list())
    monkeypatch.setattr(kind, "fetch_file_list", lambda _self: ["GitHub's"])
    monkeypatch.setattr(scenarios, "known_names", known)
    apply_patch("list_files_without_github")
    assert kind().get_instances(str(tmp_path / "here")) == ["a.txt"]
    assert kind().get_instances(str(tmp_path / "unknown")) == ["GitHub's"]
    assert asked == [f"{scenario} in here", f"{scenario} in unknown"]
