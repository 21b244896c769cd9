"""A runner that asks one part of an evaluation, the judges among them, and scores nothing.

Every shard makes all instances, so that prompts, examples in them and the order are those of the whole; it leaves its
answers in its own store, and nothing that could be taken for HELM's output.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.run_spec import RunSpec

from eval_factory.core import events
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.shard_spec import ShardDone, ShardSpec
from eval_factory.helm import names
from eval_factory.helm_plugin.instance_parts import parts_of
from eval_factory.helm_plugin.runner import EvalRunner

LOADING_LOCK = ".loading.lock"
"""In the folder of HELM's output that the shards share the data of."""


class _PartAsked(Exception):
    """Nothing is left to ask; nothing is scored."""


class ShardRunner(EvalRunner):
    """Ends where it would begin to score."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        folder = Path(self.output_path).absolute()
        self._spec = ShardSpec.read(folder.parent)
        self._loading = FileLock((folder / names.SCENARIOS_FOLDER).resolve().parent / LOADING_LOCK, mode=PRIVATE)
        self.executor = _OfPart(self.executor, self._take_part)

    def run_one(self, run_spec: RunSpec) -> None:
        self._loading.acquire()  # scenarios download, and write files that they read: one process at a time
        try:
            with suppress(_PartAsked):
                super().run_one(run_spec)
        finally:
            self._loading.release(force=True)
            with suppress(OSError):
                Path(self._get_run_path(run_spec)).rmdir()
        self._tell_done()

    def _take_part(self, state: ScenarioState) -> ScenarioState:
        """The data are loaded. Where there are none at all, it is the executor that says so."""
        self._loading.release(force=True)
        parts = parts_of(state.request_states, self._spec.of)
        mine = [one for one, part in zip(state.request_states, parts, strict=True) if part == self._spec.index - 1]
        self._session.events.emit(events.SHARD, requests=len(mine), of=len(state.request_states))
        if state.request_states and not mine:
            raise _PartAsked
        return replace(state, request_states=mine)

    def _after_judging(self, state: ScenarioState) -> None:  # noqa: ARG002 - there is nothing to do with it
        raise _PartAsked

    def _tell_done(self) -> None:
        failed = sum(counters.failed for counters in self._session.counters.values())
        ShardDone(self._spec.work, failed).write(Path(self.output_path).absolute().parent)


class _OfPart:
    """HELM's executor for a part of the requests."""

    def __init__(self, inner: Any, part: Any) -> None:
        self._inner, self._part = inner, part

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        return self._inner.execute(self._part(scenario_state))
