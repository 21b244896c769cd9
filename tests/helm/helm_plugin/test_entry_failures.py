"""One entry of many that HELM cannot make runs of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark import run
from helm.benchmark import runner as helms_runner

from eval_factory.core import events
from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.helm_plugin import entry_failures

KEY = "9bQzCANARY7Kd0PLx2MnWv8RtYs4Hj6GfEe1"


def test_it_is_told_and_the_others_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, Any]] = []
    roots: list[Path] = []

    def session_for(root: Path) -> Any:
        roots.append(root)
        emit = lambda event, **fields: told.append({"event": event, **fields})  # noqa: E731
        return SimpleNamespace(redactor=Redactor([KEY]), events=SimpleNamespace(emit=emit))

    def construct(spec: Any) -> list[str]:
        if spec.class_name == "bad":
            raise ValueError(f"no\nsuch {KEY}")
        return ["made"]

    monkeypatch.setattr(entry_failures, "_not_made", [])
    monkeypatch.setattr(entry_failures, "session_for", session_for)
    monkeypatch.setattr(helms_runner, "get_benchmark_output_path", lambda: str(tmp_path / "helm"))
    monkeypatch.setattr(run, "construct_run_specs", construct)
    entry_failures.isolate_failing_entries()
    assert run.construct_run_specs(SimpleNamespace(class_name="good", args={})) == ["made"]
    assert entry_failures.not_made() == 0
    assert run.construct_run_specs(SimpleNamespace(class_name="bad", args={"a": 1, "b": "x"})) == []
    assert entry_failures.not_made() == 1
    error = f"ValueError: no such {REDACTED}"
    assert told == [{"event": events.RUN_FAILED, "run": "bad:a=1,b=x", "error": error, "stopped": False}]
    assert roots == [tmp_path]
    assert capsys.readouterr().err == f"bad:a=1,b=x: {error}\n"
