"""Probes endpoints with a small request: before the first cell starts, and while cells wait because
their endpoint does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import NamedTuple

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
_PROBES_AT_ONCE = 16  # the maximum number of probes that wait for an answer at the same time
_MAX_PROBE_INTERVAL_S = 30.0  # the maximum time between two probes of a pause, in seconds

ProbeAnswer = str | PrerequisiteError | None
"""The result of probing an endpoint.

None: the endpoint answered. A string: a warning; a server of the endpoint did not answer, but may
answer later. An EndpointUnreachableError: no server of the endpoint answers at present. Another
PrerequisiteError: requests to the endpoint cannot succeed.
"""


@dataclass
class EndpointProbe:
    """Probes the endpoints of cells, and stores the answers."""

    env: Mapping[str, str]
    redactor: Redactor
    say: Callable[[str], None]  # shows a warning to the user
    send: Callable[..., str | None] = probe  # sends a probe; see `preflight.probe`
    # the answer of each endpoint, by `_probe_key` of the endpoint
    answers: dict[str, ProbeAnswer] = field(default_factory=dict)

    def probe_all(self, cells: Iterable[PlannedCell]) -> None:
        """Probe every endpoint of these cells once, and store the answers.

        At most `_PROBES_AT_ONCE` endpoints are probed at the same time.
        """
        # each endpoint with the environment variables of its cell, by `_probe_key` of the endpoint
        probes: dict[str, tuple[EndpointSettings, Mapping[str, str]]] = {}
        for planned in cells:
            env = {**self.env, **credentials_report(planned.plan, self.env).added_keys}
            for endpoint in planned.plan.endpoints:
                probes.setdefault(_probe_key(endpoint), (endpoint, env))
        answers = map_at_once(
            lambda endpoint_and_env: self._answer(*endpoint_and_env),
            list(probes.values()),
            _PROBES_AT_ONCE,
        )
        self.answers.update(zip(probes, answers, strict=True))

    def probe_model(self, planned: PlannedCell) -> ProbeAnswer:
        """Probe the endpoint of the cell's model again, and return the answer.

        The answer is not stored in `answers`.
        """
        env = {**self.env, **credentials_report(planned.plan, self.env).added_keys}
        return self._answer(planned.plan.model, env)

    def roles_that_answered(self, planned: PlannedCell) -> frozenset[str]:
        """Return the roles of the cell (model, judges) whose endpoints have answered."""
        roles = set()
        for endpoint in planned.plan.endpoints:
            key = _probe_key(endpoint)
            if key in self.answers and self.answers[key] is None:
                roles.add(endpoint.role)
        return frozenset(roles)

    def problem_of(self, planned: PlannedCell) -> tuple[str, PrerequisiteError] | None:
        """Return the first role of the cell whose probe failed with an error, and this error.

        Returns None if no probe failed, or if the cell's endpoints were not probed.
        """
        for endpoint in planned.plan.endpoints:
            answer = self.answers.get(_probe_key(endpoint))
            if isinstance(answer, PrerequisiteError):
                return endpoint.role, answer
        return None

    def _answer(self, endpoint: EndpointSettings, env: Mapping[str, str]) -> ProbeAnswer:
        """Probe an endpoint, and return the answer. The demo endpoint always answers."""
        if endpoint.is_demo:
            return None
        try:
            # The last argument would show messages about a sign-in.
            warning = self.send(endpoint, env, self.redactor, lambda _text: None)
        except PrerequisiteError as error:
            return error
        if warning:
            self.say(f"warning: {warning}")
        return warning


def _probe_key(endpoint: EndpointSettings) -> str:
    """Return the settings that a probe depends on, as JSON text.

    Endpoints with equal keys need only one probe, even if their roles or cells differ.
    """
    settings = {}
    for name, value in sorted(asdict(endpoint).items()):
        if name not in _SETTINGS_WITHOUT_EFFECT_ON_PROBES:
            settings[name] = value
    return json_line(settings)


class News(Enum):
    """A change in the state of a paused endpoint."""

    NEVER_GONE = "the endpoint answered the first probe"
    GONE = "the endpoint did not answer the first probe"
    BACK = "the endpoint answers again"
    GIVEN_UP = "the endpoint has not answered for `max_outage_s` seconds"


class GroupNews(NamedTuple):
    """A change in the state of a paused limit group."""

    group: str  # the name of the limit group
    news: News
    reason: str  # the reason of the pause


@dataclass
class _Pause:
    """The pause of a limit group: its cells wait for an endpoint."""

    planned: PlannedCell  # a cell of the group; the endpoint of this cell's model is probed
    reason: str
    since: float  # the start of the pause, by `EndpointPauses.clock`
    failed_probes: int = 0
    next_probe_at: float = 0.0  # by `EndpointPauses.clock`
    running_probe: Future[ProbeAnswer] | None = None  # the probe that waits for an answer


@dataclass
class EndpointPauses:
    """The limit groups whose cells wait until their endpoint answers a probe.

    Only one thread may use an instance. The probes run in other threads.
    """

    probe: Callable[[PlannedCell], ProbeAnswer]  # probes the endpoint of the cell's model
    max_outage_s: float  # the maximum time that cells wait for an endpoint, in seconds
    clock: Callable[[], float] = time.monotonic
    # the pause of each paused group, by the name of the limit group
    paused_groups: dict[str, _Pause] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_PROBES_AT_ONCE))

    def close(self) -> None:
        """Cancel the probes that have not begun; do not wait for probes that run."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def pause(self, planned: PlannedCell, reason: str) -> None:
        """Pause the cell's group until the endpoint of the cell's model has answered a probe."""
        self.paused_groups.setdefault(planned.group, _Pause(planned, reason, self.clock()))

    def take_news(self) -> list[GroupNews]:
        """Start the probes that are due, and return the changes since the last call.

        Any news except `GONE` ends the pause: the caller may then start cells of the group again.
        """
        all_news = []
        for group, pause in list(self.paused_groups.items()):
            news = self._news_of(pause)
            if news is not None:
                all_news.append(GroupNews(group, news, pause.reason))
                if news is not News.GONE:
                    del self.paused_groups[group]
        return all_news

    def _news_of(self, pause: _Pause) -> News | None:
        """Return the change of a pause, if any, or start its next probe when the probe is due."""
        now = self.clock()
        has_failed_probes = pause.failed_probes > 0
        if pause.running_probe is None:
            if has_failed_probes and now - pause.since >= self.max_outage_s:
                return News.GIVEN_UP
            if now >= pause.next_probe_at:
                pause.running_probe = self._pool.submit(self.probe, pause.planned)
            return None
        if not pause.running_probe.done():
            return None
        answer = pause.running_probe.result()
        pause.running_probe = None
        # The endpoint has not answered. A text is a warning that a server did not answer.
        if isinstance(answer, (str, EndpointUnreachableError)):
            # the next probe follows after 1, 2, 4, 8, 16, and then always 30 seconds
            interval = min(_MAX_PROBE_INTERVAL_S, 2.0**pause.failed_probes)
            pause.next_probe_at = now + interval
            pause.failed_probes += 1
            return None if has_failed_probes else News.GONE
        # An error such as a refused key also ends the pause: the cell will report it.
        return News.BACK if has_failed_probes else News.NEVER_GONE
