"""What every step of a run needs beside its plan: one frozen record, and the one way to make it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from eval_factory.config.evaluation import Evaluation
from eval_factory.core.rundir import Lock, RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.plan.run_plan import Plan

if TYPE_CHECKING:
    import logging

HUB_TOKEN = "HF_TOKEN"  # noqa: S105 - the name of a variable


@dataclass(frozen=True)
class RunContext:
    """An output folder that this process holds, and where what happens is told."""

    rundir: RunDir
    lock: Lock
    env: Mapping[str, str]
    """The user's environment and the keys that were found elsewhere."""
    redactor: Redactor
    log: logging.Logger
    screen: TextIO

    def say(self, text: str) -> None:
        """To the log and the screen."""
        self.log.info(text)
        self.show(text)

    def warn(self, text: str) -> None:
        self.log.warning(text)
        self.show(f"warning: {text}")

    def show(self, text: str) -> None:
        """To the screen alone."""
        self.screen.write(f"{text}\n")


def redactor_of(evaluation: Evaluation, env: Mapping[str, str]) -> Redactor:
    """Of all that may be secret in a run: the endpoints' keys, and the token of the Hub, which HELM may print."""
    return Redactor.from_environment(env, [*evaluation.key_names(), HUB_TOKEN])


def warnings_of(evaluation: Evaluation) -> list[str]:
    """The warnings about the configuration, as lines for the screen and the log."""
    return [f"warning: {text}" for text in evaluation.warnings]


def show_warnings(evaluation: Evaluation, screen: TextIO) -> None:
    screen.writelines(f"{line}\n" for line in warnings_of(evaluation))


@contextmanager
def hold(
    plan: Plan,
    env: Mapping[str, str],
    screen: TextIO,
    *,
    fresh: bool = False,
    debug: bool = False,
) -> Iterator[RunContext]:
    """Find the keys, make the output folder ours and hold it, open the log.

    Raises:
        ConfigError: the folder is another's.
        PrerequisiteError: a key is missing, or the folder cannot be written.
        BusyError: another run holds the folder.
    """
    from eval_factory.core.logs import open_log
    from eval_factory.plan.credentials import credentials_report
    from eval_factory.workflows.output_folder import claim  # a dry run holds no folder

    keys = credentials_report(plan, env)
    env = {**env, **keys.found}
    redactor = redactor_of(plan.evaluation, env)
    for key in keys.found.values():
        redactor.learn(key)
    claim(plan.rundir, fresh=fresh)
    with (
        plan.rundir.locked(lambda text: print(text, file=screen)) as lock,
        open_log(plan.rundir, redactor, debug=debug, beginning=[*warnings_of(plan.evaluation), *keys.lines]) as log,
    ):
        for warning in keys.warnings:
            screen.write(f"warning: {warning}\n")
        yield RunContext(plan.rundir, lock, env, redactor, log, screen)
