"""Probes endpoints with a cheap request: before the first cell starts, and while cells wait because
their endpoint does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import Enum

from eval_factory.core.errors import EndpointUnreachableError, PrerequisiteError
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.preflight import probe
from eval_factory.workflows.suite.planned_cells import PlannedCell

_SETTINGS_WITHOUT_EFFECT_ON_PROBES = frozenset(
    {"role", "alias", "helm_name", "max_length", "parallelism", "max_retries"}
)


ProbeAnswer = str | PrerequisiteError | None
"""The result of probing an endpoint.

None: the endpoint answered. A string: a warning; the endpoint did not answer, but may answer later.
A PrerequisiteError: requests to the endpoint cannot succeed.
"""


@dataclass
class EndpointProbe:
    """Probes the endpoints of cells, and stores the answers."""

    env: Mapping[str, str]
    redactor: Redactor
    say: Callable[[str], None]  # shows a warning to the user
    ask: Callable[..., str | None] = probe  # sends the probe; see `preflight.probe`
    # the answer of each endpoint, by `_name_of` the endpoint
    answers: dict[str, ProbeAnswer] = field(default_factory=dict)

    def all_of(self, cells: Iterable[PlannedCell]) -> None:
        """Probe every endpoint of these cells once, up to `_PROBES_AT_ONCE` at the same time."""
        questions: dict[str, tuple[EndpointSettings, Mapping[str, str]]] = {}
        for planned in cells:
            env = {**self.env, **credentials_report(planned.plan, self.env).found}
            for endpoint in planned.plan.endpoints:
                questions.setdefault(_name_of(endpoint), (endpoint, env))
        answers = map_at_once(
            lambda question: self._answer(*question), list(questions.values()), _PROBES_AT_ONCE
        )
        self.answers.update(zip(questions, answers, strict=True))

    def model_of(self, planned: PlannedCell) -> ProbeAnswer:
        """Probe the endpoint of the cell's model again, and return the answer."""
        env = {**self.env, **credentials_report(planned.plan, self.env).found}
        return self._answer(planned.plan.model, env)

    def roles_that_answered(self, planned: PlannedCell) -> frozenset[str]:
        """Return the roles of the cell (model, judges) whose endpoints have answered."""
        endpoints = planned.plan.endpoints
        return frozenset(
            endpoint.role
            for endpoint in endpoints
            if self.answers.get(_name_of(endpoint), "not asked") is None
        )

    def problem_of(self, planned: PlannedCell) -> tuple[str, PrerequisiteError] | None:
        """Return the first role whose endpoint cannot be asked, with its error.

        Returns None if no endpoint keeps the cell from starting.
        """
        for endpoint in planned.plan.endpoints:
            answer = self.answers.get(_name_of(endpoint))
            if isinstance(answer, PrerequisiteError):
                return endpoint.role, answer
        return None

    def _answer(self, endpoint: EndpointSettings, env: Mapping[str, str]) -> ProbeAnswer:
        """Probe an endpoint, and return the answer. The demo endpoint always answers."""
        if endpoint.is_demo:
            return None
        try:
            warning = self.ask(endpoint, env, self.redactor, lambda _text: None)
        except PrerequisiteError as error:
            return error
        if warning:
            self.say(f"warning: {warning}")
        return warning


def _name_of(endpoint: EndpointSettings) -> str:
    """Return the settings that a probe depends on, as JSON text.

    Endpoints with equal names need only one probe, even if their roles or cells differ.
    """
    return json_line(
        {
            name: value
            for name, value in sorted(asdict(endpoint).items())
            if name not in _SETTINGS_WITHOUT_EFFECT_ON_PROBES
        }
    )


_PROBES_AT_ONCE = 16


class News(Enum):
    """A change in the state of a paused endpoint."""

    NEVER_GONE = "the endpoint answered the first probe"
    GONE = "the endpoint did not answer the first probe"
    BACK = "the endpoint answers again"
    GIVEN_UP = "the endpoint has not answered for `max_outage_s` seconds"


@dataclass
class _Pause:
    """The pause of a group of cells."""

    planned: PlannedCell  # a cell of the group; the endpoint of its model is probed
    reason: str
    since: float  # the start of the pause, by `EndpointPauses.clock`
    failed_probes: int = 0
    next_probe_at: float = 0.0  # by `EndpointPauses.clock`
    probe: Future[ProbeAnswer] | None = None  # the probe that waits for an answer


@dataclass
class EndpointPauses:
    """Groups of cells that wait until their endpoint answers a probe.

    Only one thread may use an instance. The probes run in other threads.
    """

    ask: Callable[[PlannedCell], ProbeAnswer]  # probes the endpoint of the cell's model
    max_outage_s: float  # how long cells wait for an endpoint, in seconds
    clock: Callable[[], float] = time.monotonic
    pauses: dict[str, _Pause] = field(default_factory=dict)  # by the name of the group
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_PROBES_AT_ONCE))

    def close(self) -> None:
        """Cancel the probes that have not begun; do not wait for the others."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def pause(self, planned: PlannedCell, reason: str) -> None:
        """Pause the cell's group until the endpoint of the cell's model has answered a probe."""
        self.pauses.setdefault(planned.group, _Pause(planned, reason, self.clock()))

    def news(self) -> list[tuple[str, News, str]]:
        """Start the probes that are due, and return the changes since the last call.

        Each change is a tuple (group, news, reason of the pause). Any news except `GONE` ends the
        pause: the caller may then start cells of the group again.
        """
        news = []
        for group, pause in list(self.pauses.items()):
            now = self.clock()
            is_first = pause.failed_probes == 0
            new = None
            if pause.probe is not None and pause.probe.done():
                answer = pause.probe.result()
                pause.probe = None
                if isinstance(answer, (str, EndpointUnreachableError)):
                    pause.failed_probes += 1
                    pause.next_probe_at = now + min(30.0, 2.0 ** (pause.failed_probes - 1))
                    new = News.GONE if is_first else None
                else:
                    new = News.NEVER_GONE if is_first else News.BACK
            elif pause.probe is None and not is_first and now - pause.since >= self.max_outage_s:
                new = News.GIVEN_UP
            elif pause.probe is None and now >= pause.next_probe_at:
                pause.probe = self._pool.submit(self.ask, pause.planned)
            if new is not None:
                news.append((group, new, pause.reason))
            if new not in (None, News.GONE):
                del self.pauses[group]
        return news
