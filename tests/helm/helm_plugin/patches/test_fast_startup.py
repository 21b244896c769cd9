"""What makes helm-run ready sooner, patch by patch."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nltk
import pytest
import yaml
from helm.benchmark import annotation_executor, run_spec
from helm.benchmark.adaptation.adapters.in_context_learning_adapter import InContextLearningAdapter
from helm.benchmark.metrics import nltk_helper
from helm.benchmark.window_services.default_window_service import DefaultWindowService
from helm.benchmark.window_services.no_tokenizer_window_service import NoTokenizerWindowService
from helm.common import general, local_context

from eval_factory.core import this_process
from eval_factory.helm_plugin.patches import speed
from eval_factory.helm_plugin.patches.patch_registry import PATCHES
from eval_factory.tasks.run_specs import load_index
from patching import ApplyPatch


def test_yaml_is_read_by_the_c_parser(apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "SafeLoader", yaml.SafeLoader)
    apply_patch("read_yaml_with_the_c_parser")
    assert vars(yaml)["SafeLoader"] is yaml.CSafeLoader
    assert yaml.safe_load("a: [1, x]") == {"a": [1, "x"]}


@pytest.fixture
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_thresholds")
def test_garbage(apply_patch: ApplyPatch) -> None:
    apply_patch("look_for_garbage_less_often")
    assert gc.get_threshold() == (this_process.THRESHOLD, 20, 20)


def test_metrics_are_imported_without_what_few_runs_use() -> None:
    """In a process of its own; what a run does use is there when it is used."""
    code = (
        "import sys\n"
        "from eval_factory.helm_plugin.patches import speed as patches\n"
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
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("argv", "expected"), [(["-r", "medec:model=m"], True), (["-r", "math:subject=algebra"], False), ([], False)]
)
def test_the_scenario_of_math_is_imported_whole_where_it_may_be_asked(argv: list[str], *, expected: bool) -> None:
    patch = next(one for one in PATCHES if one.name == "import_metrics_without_what_few_runs_use")
    assert patch.is_asked_for(set(), ["helm-run", *argv], {}) is expected


def test_nltk_data_are_downloaded_when_they_are_missing(
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
    assert nltk.tokenize.word_tokenize("two words") == ["two", "words"]
    assert nltk.tokenize.word_tokenize("two words") == ["two", "words"]
    assert calls == ["downloaded"]


@pytest.mark.parametrize(
    ("asked", "imported", "all_are_looked_for"),
    [
        (["medec"], [load_index().run_specs["medec"].module], False),
        (["known"], [], False),
        (["medec", "of_another_plugin"], [load_index().run_specs["medec"].module], True),
        ([], [], True),
    ],
)
def test_run_specs(
    asked: list[str], imported: list[str], all_are_looked_for: bool, apply_patch: ApplyPatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found: list[str] = []
    looked: list[bool] = []
    known: dict[str, object] = {"known": object()}

    def import_module(name: str) -> None:
        found.append(name.removeprefix("helm.benchmark.run_specs."))
        known["medec"] = object()

    monkeypatch.setattr(sys, "argv", ["helm-run", "-r", *asked])
    monkeypatch.setattr(run_spec, "_REGISTERED_RUN_SPEC_FUNCTIONS", known)
    monkeypatch.setattr(run_spec, "discover_run_spec_functions", lambda: looked.append(True))
    monkeypatch.setattr(speed, "importlib", SimpleNamespace(import_module=import_module))
    apply_patch("import_only_the_run_specs_that_are_asked")
    run_spec.discover_run_spec_functions()
    assert (found, bool(looked)) == (imported, all_are_looked_for)


@pytest.mark.parametrize(("kind", "threads"), [(NoTokenizerWindowService, 1), (DefaultWindowService, 8)])
def test_requests_are_made_in_one_thread_where_no_tokenizer_is_asked(
    kind: type, threads: int, apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adapt(_self: object, train: str, trial: int, evaluated: str, parallelism: int) -> tuple[object, ...]:
        return train, trial, evaluated, parallelism

    monkeypatch.setattr(InContextLearningAdapter, "_adapt_trial_index", adapt)
    apply_patch("requests_made_in_one_thread")
    adapter: Any = SimpleNamespace(window_service=object.__new__(kind))
    made = InContextLearningAdapter._adapt_trial_index(adapter, "train", 2, "evaluated", 8)
    assert made == ("train", 2, "evaluated", threads)


def test_credentials_are_parsed_where_there_are_any(
    apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (local_context, annotation_executor):
        monkeypatch.setattr(module, "get_credentials", module.get_credentials)
    parsed: list[str] = []

    def parse(text: str) -> dict[str, str]:
        parsed.append(text)
        return {"a": text}

    monkeypatch.setattr(general, "parse_hocon", parse)
    monkeypatch.delenv("HELM_CREDENTIALS", raising=False)
    apply_patch("credentials_parsed_where_there_are_any")
    for module in (local_context, annotation_executor):
        parsed.clear()
        assert module.get_credentials(str(tmp_path)) == {}
        assert parsed == []
        with monkeypatch.context() as own:
            own.setenv("HELM_CREDENTIALS", "k: v")
            assert module.get_credentials(str(tmp_path)) == {"a": "k: v"}
    (tmp_path / "credentials.conf").write_text("file: there")
    assert local_context.get_credentials(str(tmp_path)) == {"a": "file: there"}


def test_a_file_that_is_there_needs_no_lock(
    apply_patch: ApplyPatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(general, "ensure_file_downloaded", general.ensure_file_downloaded)
    apply_patch("files_that_are_there_need_no_lock")
    source = tmp_path / "source"
    source.write_text("new")
    target = tmp_path / "target"
    target.write_text("old")
    monkeypatch.setattr(general, "FileLock", lambda path: pytest.fail(f"{path} is locked"))
    general.ensure_file_downloaded(source.as_uri(), str(target))
    assert target.read_text() == "old"
    locked: list[str] = []

    def lock(path: str) -> contextlib.AbstractContextManager[None]:
        locked.append(path)
        return contextlib.nullcontext()

    monkeypatch.setattr(general, "FileLock", lock)
    target.unlink()
    general.ensure_file_downloaded(source_url=source.as_uri(), target_path=str(target), unpack=False)
    assert target.read_text() == "new"
    assert locked == [f"{target}.lock"]
