"""Tests of what makes helm-run ready sooner, patch by patch."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nltk
import pytest
import yaml
from helm.benchmark import run_spec
from helm.benchmark.metrics import nltk_helper
from helm.benchmark.window_services.window_service_factory import WindowServiceFactory
from helm.common import general

from eval_factory.core import this_process
from eval_factory.helm_plugin.patches import lighter
from eval_factory.tasks.run_specs import load_index
from patching import ApplyPatch


def test_yaml_is_read_by_the_c_parser(
    apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml, "SafeLoader", yaml.SafeLoader)
    apply_patch("read_yaml_with_the_c_parser")
    assert vars(yaml)["SafeLoader"] is yaml.CSafeLoader
    assert yaml.safe_load("a: [1, x]") == {"a": [1, "x"]}


def test_garbage(apply_patch: ApplyPatch) -> None:
    before = gc.get_threshold()
    try:
        apply_patch("look_for_garbage_less_often")
        assert gc.get_threshold() == (this_process.GC_THRESHOLD, 20, 20)
    finally:
        gc.set_threshold(*before)


def test_metrics_are_imported_without_what_few_runs_use() -> None:
    """In a process of its own; what a run does use is there when it is used."""
    code = (
        "import sys\n"
        "sys.argv += ['--run-entries', 'medec:model=m']\n"
        "from eval_factory.helm_plugin.patches import lighter as patches\n"
        "patches.download_nltk_data_only_when_needed()\n"
        "patches.import_metrics_without_what_few_runs_use()\n"
        "large = {'sklearn', 'pandas', 'pyarrow', 'datasets', 'calibration'}\n"
        "assert not large & sys.modules.keys(), large & sys.modules.keys()\n"
        "from helm.benchmark.metrics import basic_metrics, evaluate_reference_metrics as metrics\n"
        "assert metrics.f1_score('x b', 'x c') == 0.5 and metrics.is_equiv('1', '1')\n"
        "assert basic_metrics.cal.get_ece([0.9, 0.9], [1, 1], num_bins=1) > 0.09\n"
        "import datasets, scipy.stats, sklearn\n"
        "assert callable(datasets.load_dataset) and 'sklearn' in sys.modules and sklearn.__version__\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr


def test_the_scenario_of_math_is_imported_complete_where_it_may_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for asked in (["--run-entries", "math:model=m", "medec:model=m"], []):
        monkeypatch.setattr(sys, "argv", ["helm-run", *asked])
        assert lighter.import_metrics_without_what_few_runs_use() is False


def test_nltk_data_are_downloaded_when_missing(
    apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def word_tokenize(text: str) -> list[str]:
        if "downloaded" not in calls:
            raise LookupError("punkt")
        return text.split()

    monkeypatch.setattr(nltk.tokenize, "word_tokenize", word_tokenize)
    monkeypatch.setattr(nltk_helper, "install_nltk_resources", lambda: calls.append("downloaded"))
    apply_patch("download_nltk_data_only_when_needed")
    nltk_helper.install_nltk_resources()
    assert calls == []
    for _ in range(2):
        assert nltk.tokenize.word_tokenize("two words") == ["two", "words"]
    assert calls == ["downloaded"]


@pytest.mark.parametrize(
    ("asked", "imported", "looked_for"),
    [
        (["medec"], [load_index().run_specs["medec"].module], False),
        (["known"], [], False),
        (["medec", "of_another_plugin"], [load_index().run_specs["medec"].module], True),
        ([], [], True),
    ],
)
def test_run_specs(
    asked: Any, imported: list[str], looked_for: bool, apply_patch: ApplyPatch, monkeypatch: Any
) -> None:
    found: list[str] = []
    looked: list[bool] = []
    known: dict[str, object] = {"known": object()}

    def import_module(name: str) -> None:
        found.append(name.removeprefix("helm.benchmark.run_specs."))
        known["medec"] = object()

    monkeypatch.setattr(sys, "argv", ["helm-run", "-r", *asked])
    monkeypatch.setattr(run_spec, "_REGISTERED_RUN_SPEC_FUNCTIONS", known)
    monkeypatch.setattr(run_spec, "discover_run_spec_functions", lambda: looked.append(True))
    monkeypatch.setattr(lighter, "importlib", SimpleNamespace(import_module=import_module))
    apply_patch("import_only_the_run_specs_that_are_asked")
    run_spec.discover_run_spec_functions()
    assert (found, bool(looked)) == (imported, looked_for)


def test_one_window_service(apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(name: str, service: object) -> tuple[str, object]:
        built.append(name)
        return name, service

    monkeypatch.setattr(WindowServiceFactory, "get_window_service", staticmethod(build))
    apply_patch("one_window_service")
    for name in ("a", "b", "a", "b"):
        assert WindowServiceFactory.get_window_service(name, "tokenizer") == (name, "tokenizer")
    assert built == ["a", "b"]


def test_a_file_that_is_there_gets_no_lock(apply_patch: ApplyPatch, tmp_path: Path) -> None:
    apply_patch("files_that_are_there_need_no_lock")
    source = tmp_path / "source"
    target = tmp_path / "target"
    source.write_text("new")
    target.write_text("old")
    general.ensure_file_downloaded(source.as_uri(), str(target))
    assert target.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"source", "target"}
    target.unlink()
    general.ensure_file_downloaded(
        source_url=source.as_uri(), target_path=str(target), unpack=False
    )
    assert target.read_text() == "new"
