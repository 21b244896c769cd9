"""What the events of a measuring helm-run say; a real one is in tests/integration."""

from __future__ import annotations

from pathlib import Path

from eval_factory.workflows.estimate import PromptSizes, prompt_sizes, sizes_in
from unit.builders import plan

MEASURED = {"event": "measured", "requests": 3, "prompt_bytes": 400, "most_tokens": 15}


def test_a_run_that_was_measured() -> None:
    assert sizes_in([{"event": "phase", "phase": "loading data"}, MEASURED]) == PromptSizes(3, 400, 15)
    assert sizes_in([{**MEASURED, "judge_requests": 7}]) == PromptSizes(3, 400, 15, judge_requests=7)


def test_data_that_are_not_here() -> None:
    failed = {"event": "run_failed", "error": "DownloadError: https://host/file could not be downloaded"}
    assert sizes_in([failed]) == PromptSizes(None, reason="its data are not here, or not all of them: DownloadError")
    assert sizes_in([]).reason.endswith("HELM made no requests")


def test_a_bundle_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    """Found before anything is started."""
    there = {"config.params.extra.data_dir": str(tmp_path / "no bundle"), "config.output_dir": str(tmp_path / "out")}
    found = prompt_sizes(plan(there), {})
    assert found.requests is None
    assert "no bundle" in found.reason
    assert "\n" not in found.reason
    assert not (tmp_path / "out").exists()
