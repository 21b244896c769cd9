"""The one way to run helm-run: what it may see, what it is told, and what its end means."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.config.evaluation import Evaluation
from eval_factory.core import logs as event_names
from eval_factory.core.errors import InterruptedRunError
from eval_factory.core.helm_run_settings import PROXY_VARIABLES, HelmRunSettings
from eval_factory.executors.process import Executor, ProcessSpec, child_environment, ignore
from eval_factory.plan.run_plan import oauth_of
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.failures import blocked_places


@dataclass(frozen=True)
class HelmRun:
    """A helm-run that has ended, well or not."""

    run_id: str
    wall_s: float
    returncode: int
    tail: tuple[str, ...]
    """Its last lines, redacted."""
    events: tuple[Mapping[str, Any], ...]

    @property
    def last_words(self) -> str | None:
        """Why it said it ended, for where a full disk kept the event from being written."""
        return event_names.heard_last(self.returncode, self.tail, self.run_id)

    def finished_runs(self, helm: Path) -> tuple[Path, ...]:
        """Folders of the runs that came to their end. `helm`: HELM's output path."""
        return tuple(helm / event["path"] for event in self.events if event["event"] == event_names.RUN_DONE)


def environment_of(context: RunContext, evaluation: Evaluation, told: HelmRunSettings) -> dict[str, str]:
    """All that a helm-run gets to see."""
    hidden = PROXY_VARIABLES if told.offline else frozenset()
    seen = {name: value for name, value in context.env.items() if name not in hidden}
    names = [*evaluation.key_names(), *evaluation.setting_names()]
    return child_environment(seen, names, told.environment())


def run_helm(
    context: RunContext,
    evaluation: Evaluation,
    argv: Sequence[str],
    settings: HelmRunSettings,
    *,
    on_event: Callable[[Mapping[str, Any]], None] = ignore,
    executor: Executor | None = None,
) -> HelmRun:
    """Run helm-run to its end.

    Raises:
        PrerequisiteError: the program is not there.
        InterruptedRunError
    """
    from eval_factory.executors import progress  # imported here, with what it shows: a finished run starts nothing

    run_id = uuid.uuid4().hex
    env = environment_of(context, evaluation, replace(settings, run_id=run_id, parent=os.getpid()))
    spec = ProcessSpec(argv, env, context.rundir, context.lock, run_id, context.redactor)
    try:
        ended = (executor or progress.LocalExecutor()).run(spec, context.screen, on_event)
    except KeyboardInterrupt:
        context.log.info("interrupted")
        raise InterruptedRunError(
            f"interrupted; what was answered is kept in {context.rundir.cache_db}\n"
            "  run the same command again to go on"
        ) from None
    for service in evaluation.oauth_services():  # helm-run may have had new ones
        from eval_factory.endpoint import sign_in

        context.redactor.learn(sign_in.kept_token(oauth_of(evaluation, service), context.env) or "")
    context.log.info("helm-run ended with %d after %.1f s", ended.finished.returncode, ended.wall_s)
    for place in blocked_places(ended.events):
        context.log.warning("offline: something wanted %s; it was not contacted", place)
    return HelmRun(run_id, ended.wall_s, ended.finished.returncode, ended.finished.tail, ended.events)
