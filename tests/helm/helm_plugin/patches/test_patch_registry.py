"""The list of patches: complete, consistent with the list of errata, and of the HELM that is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from eval_factory.core.helm_run_settings import HelmRunSettings, Pins, SampleSettings
from eval_factory.helm.environments import installed_upstream
from eval_factory.helm_plugin.patches import patch_registry
from eval_factory.helm_plugin.patches.patch_registry import PATCHES, Patch
from eval_factory.tasks.conversations import CONVERSATION_RUN_SPEC
from eval_factory.tasks.errata import load_errata
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import MEDHELM, UPSTREAMS

HERE = installed_upstream()

NAMES = [patch.name for patch in PATCHES]
STARTS_QUICKLY = """
import sys
from eval_factory.helm_plugin.patches import patch_registry
print(*sorted(name for name in sys.modules if name.partition(".")[0] in ("helm", "datasets", "nltk", "pandas")))
"""

SUMMARIES = "helm.benchmark.metrics.summarization_metrics"
OTHERS = {"medhelm_configurable_benchmark", CONVERSATION_RUN_SPEC}
"""Run specs that the index does not list: of custom benchmarks."""


def test_names_are_different_and_those_of_the_functions() -> None:
    assert len(set(NAMES)) == len(NAMES) > 25
    for patch in PATCHES:
        assert patch.load().__name__ == patch.name
        assert patch.function.count(":") == 1


def test_the_page_of_errata_says_what_each_does() -> None:
    page = (Path(__file__).parents[4] / "docs" / "errata.md").read_text("utf-8")
    assert all(patch.about for patch in PATCHES)
    assert [
        patch.name
        for patch in PATCHES
        if f"| `{patch.name}`" not in page or patch.about not in page
    ] == []


def test_each_has_a_test_of_its_own() -> None:
    folder = Path(__file__).parents[1]
    tests = "".join(
        path.read_text("utf-8") for path in folder.rglob("test_*.py") if path != Path(__file__)
    )
    tests += (Path(__file__).parents[3] / "integration" / "test_medhelm.py").read_text("utf-8")
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", tests)] == []


@pytest.mark.parametrize("patch", PATCHES, ids=NAMES)
def test_its_targets_are_those_of_the_installed_helm(patch: Patch) -> None:
    if HERE.name in patch.upstreams:
        assert all(
            patch_registry.is_as_checked(target.partition(":")[0], HERE)
            for target in patch.helm_targets
        )
    for upstream in map(UPSTREAMS.__getitem__, patch.upstreams):
        for target in patch.helm_targets:
            assert target.partition(":")[0] in patch_registry.CHECKED_FILES[str(upstream)]


def test_every_supported_version_was_checked() -> None:
    assert set(patch_registry.CHECKED_FILES) == set(map(str, UPSTREAMS.values()))
    assert all(patch.replaces or patch.targets for patch in PATCHES if not patch.only_speed)


def test_every_erratum_that_is_patched_has_a_patch_for_its_run_specs() -> None:
    known = {erratum.id: erratum for erratum in load_errata().errata}
    for patch in PATCHES:
        if patch.erratum is not None:
            assert set(known[patch.erratum].run_specs) <= set(patch.run_specs or ()), patch.name
    patched = {erratum.id for erratum in known.values() if erratum.patched}
    assert patched <= {patch.erratum for patch in PATCHES}


def test_each_is_for_run_specs_that_there_are() -> None:
    known = {*load_index().run_specs, *load_index(MEDHELM).run_specs, *OTHERS}
    assert all(known >= patch.run_specs for patch in PATCHES if patch.run_specs is not None)


def test_what_executes_answers_is_confined_where_nobody_knows_what_is_asked() -> None:
    unknown = {patch.name for patch in PATCHES if patch.run_specs and patch.is_needed(set(), {})}
    assert unknown == {
        "confine_bird_sql",
        "confine_czech_bank_sql",
        "confine_python",
        "confine_cpp",
    }


def test_a_run_takes_those_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("datasets", SUMMARIES):
        monkeypatch.delitem(sys.modules, module, raising=False)

    def asked(*run_specs: str, **env: str) -> set[str]:
        return {patch.name for patch in PATCHES if patch.is_needed(set(run_specs), env)}

    always = asked("pubmed_qa")
    assert {
        "name_failed_downloads",
        "isolate_unscorable_answers",
        "replace_missing_torch",
    } <= always
    assert asked("medcalc_bench") - always == {"accept_medcalc_version"}
    assert asked("ehr_sql") - always == {"execute_ehr_sql_read_only"}
    unknown = asked()
    assert always - unknown == set()
    assert all(name.startswith("confine_") for name in unknown - always)
    assert asked("pubmed_qa", **HelmRunSettings(pins=Pins()).environment()) - always == {
        "read_pinned_revisions"
    }
    drawn = HelmRunSettings(sample=SampleSettings(0)).environment()
    assert asked("pubmed_qa", **drawn) - always == {"draw_with_a_seed"}
    juries = {"ask_judges_in_parallel", "replace_missing_summ_eval"}
    assert asked("aci_bench") - always == juries
    assert asked("mtsamples_procedures") - always - juries == {"list_files_without_github"}
    assert asked("mtsamples_replicate") - always - juries == {"list_files_without_github"}
    monkeypatch.setitem(sys.modules, "datasets", ModuleType("datasets"))
    assert asked("pubmed_qa") - always == {"record_hub_revisions", "save_pictures_at_once"}
    monkeypatch.setitem(sys.modules, SUMMARIES, ModuleType(SUMMARIES))
    of_summaries = {
        "replace_missing_spacy_model",
        "leave_out_qafacteval",
        "leave_out_missing_weights",
    }
    assert asked("aci_bench") - always - juries == {
        "record_hub_revisions",
        "save_pictures_at_once",
        *of_summaries,
    }


def test_reading_the_list_imports_nothing_of_helm() -> None:
    argv = [sys.executable, "-c", STARTS_QUICKLY]
    assert (
        subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()
        == []
    )
