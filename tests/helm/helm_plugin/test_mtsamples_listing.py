"""Which files of MTSamples a run reads, without asking GitHub where that is known."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.scenarios.mtsamples_procedures_scenario import MTSamplesProceduresScenario
from helm.benchmark.scenarios.mtsamples_replicate_scenario import MTSamplesReplicateScenario

from eval_factory.core.helm_run_settings import _FILE_LISTS, ALL_FILES
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.patches import scenarios
from eval_factory.helm_plugin.patches.scenarios import known_names


@pytest.fixture(autouse=True)
def _online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_FILE_LISTS, raising=False)
    monkeypatch.delenv(ALL_FILES, raising=False)
    monkeypatch.setattr(network_guard, "guard", lambda: None)


def test_files_that_are_there_count_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "B.txt", "ä.txt", "a.txt", "a.txt.lock"):
        (tmp_path / name).touch()
    assert known_names("mtsamples_procedures", tmp_path) is None
    monkeypatch.setattr(network_guard, "guard", lambda: SimpleNamespace())
    assert known_names("mtsamples_procedures", tmp_path) == ["B.txt", "a.txt", "b.txt", "ä.txt"]


def test_a_bundles_list_is_read_up_to_githubs_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [f"{number:04}.txt" for number in range(1001)]
    (tmp_path / "mtsamples_replicate.json").write_text(json.dumps({"names": listed}))
    monkeypatch.setenv(_FILE_LISTS, str(tmp_path))
    assert known_names("mtsamples_replicate", tmp_path) == listed[:1000]
    assert known_names("mtsamples_procedures", tmp_path) is None
    monkeypatch.setenv(ALL_FILES, "1")
    assert known_names("mtsamples_replicate", tmp_path) == listed


@pytest.mark.parametrize(("kind", "apply", "scenario"), [
    (MTSamplesProceduresScenario, scenarios.list_procedures_without_github, "mtsamples_procedures"),
    (MTSamplesReplicateScenario, scenarios.list_replicates_without_github, "mtsamples_replicate"),
])  # fmt: skip
def test_known_names(kind: Any, apply: Any, scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def known(name: str, folder: Path) -> list[str] | None:
        asked.append(f"{name} in {folder.name}")
        return None if folder.name == "unknown" else ["a.txt"]

    monkeypatch.setattr(kind, "get_instances", lambda self, _path: self.fetch_file_list())
    monkeypatch.setattr(kind, "fetch_file_list", lambda _self: ["GitHub's"])
    monkeypatch.setattr(scenarios, "known_names", known)
    apply()
    assert kind().get_instances(str(tmp_path / "here")) == ["a.txt"]
    assert kind().get_instances(str(tmp_path / "unknown")) == ["GitHub's"]
    assert asked == [f"{scenario} in here", f"{scenario} in unknown"]
