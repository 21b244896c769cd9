"""A part that is asked in a folder of its own; helm-run is the test's."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.evaluation import Request
from eval_factory.core.errors import HelmError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.shard_spec import ShardDone, ShardPart, ShardSpec
from eval_factory.helm import names
from eval_factory.workflows.helm_run import HelmRun
from eval_factory.workflows.options import Options
from eval_factory.workflows.sharding import ask_part as module
from eval_factory.workflows.sharding.ask_part import ask_part, part_record
from unit.builders import MINIMAL

PART = ShardPart(2, 5, "run-of-the-whole")
ENV = {"OPENAI_API_KEY": "sk-012345678901234567890"}


class HelmRuns:
    """What was run, and what it leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leaves: ShardDone | None = ShardDone("w", 0)
        self.code = 0
        self.argv: Sequence[str] = ()
        self.settings = HelmRunSettings()
        self.run_id: str | None = None
        self.spec: ShardSpec | None = None
        monkeypatch.setattr(module, "run_helm", self._run)
        monkeypatch.setattr(module, "look_for_prerequisites", lambda *_: None)
        monkeypatch.setattr(module, "probe_all", lambda *_: frozenset({"model"}))

    def _run(self, context: Any, _evaluation: Any, argv: Sequence[str], settings: Any, *, run_id: str) -> HelmRun:
        self.argv, self.settings, self.run_id = argv, settings, run_id
        self.spec = ShardSpec.read(context.rundir.root)
        assert not (context.rundir.root / "done.json").exists()
        if self.leaves is not None:
            self.leaves.write(context.rundir.root)
        return HelmRun(run_id, 1.0, self.code, ("it failed",), ())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> HelmRuns:
    return HelmRuns(monkeypatch)


def ask(folder: Path, options: Options | None = None) -> ShardDone:
    flags = {**MINIMAL, "config.output_dir": str(folder), "config.params.parallelism": 7}
    return ask_part(Request(flags=flags), options or Options(), PART, env=ENV, screen=io.StringIO())


def test_the_part_is_asked_with_all_of_its_own_limits(tmp_path: Path, runs: HelmRuns) -> None:
    folder = tmp_path / "out"
    assert ask(folder) == ShardDone("w", 0)
    argv = list(runs.argv)
    assert argv[argv.index("--num-threads") + 1] == "7"
    assert argv[argv.index("--runner-class-name") + 1] == names.SHARD_RUNNER_CLASS
    assert (runs.run_id, runs.settings.probed) == (PART.run_id, frozenset({"model"}))
    assert runs.spec is not None
    assert (runs.spec.index, runs.spec.of, runs.spec.run_id) == (2, 5, PART.run_id)
    assert "parallelism: 7" in (folder / "model_configs" / names.MODEL_DEPLOYMENTS).read_text()
    assert (folder / "cache.db").is_file()


def test_who_was_asked_before_is_not_asked_again_and_an_old_end_does_not_count(tmp_path: Path, runs: HelmRuns) -> None:
    ask(tmp_path / "out")
    runs.leaves = None
    with pytest.raises(HelmError, match="helm-run ended without its part"):
        ask(tmp_path / "out", Options(probed=frozenset()))
    assert runs.settings.probed == frozenset()


def test_a_helm_run_that_failed_has_asked_nothing(tmp_path: Path, runs: HelmRuns) -> None:
    runs.code = 1
    with pytest.raises(HelmError):
        ask(tmp_path / "out")


def test_the_record_of_a_part() -> None:
    whole = {"event": "end", "exit_code": 0, "status": "complete", "not_reportable": None, "error": None}
    assert part_record(ShardDone("w", 0)) == whole
    gaps = {"exit_code": 1, "status": "partial", "not_reportable": "3 requests of this part failed"}
    assert part_record(ShardDone("w", 3)) == whole | gaps
