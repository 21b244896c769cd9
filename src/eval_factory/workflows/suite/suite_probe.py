"""One cheap question to each endpoint of a suite, whatever the number of its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from eval_factory.core.errors import EndpointUnreachableError, PrerequisiteError
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.preflight import probe
from eval_factory.workflows.suite.planned_cells import PlannedCell

AT_ONCE = 16
_OF_NO_ENDPOINT = frozenset({"role", "alias", "helm_name", "max_length", "parallelism", "max_retries"})


@dataclass(frozen=True)
class Answer:
    """What came of asking one endpoint."""

    answered: bool
    warning: str | None = None
    """It did not answer, but may later."""
    error: PrerequisiteError | None = None
    """It cannot be asked."""

    @property
    def gone(self) -> bool:
        """Whether nobody is there, or nobody answers."""
        return isinstance(self.error, EndpointUnreachableError) or self.warning is not None


Ask = Callable[[EndpointSettings, Mapping[str, str], Redactor, Callable[[str], None]], "str | None"]


@dataclass
class EndpointProbe:
    """Asks endpoints, and knows whom it asked."""

    env: Mapping[str, str]
    redactor: Redactor
    say: Callable[[str], None]
    ask: Ask = probe
    answers: dict[str, Answer] = field(default_factory=dict)

    def all_of(self, cells: Iterable[PlannedCell]) -> None:
        """Ask every endpoint of these cells once, several at the same time."""
        todo: dict[str, tuple[EndpointSettings, Mapping[str, str]]] = {}
        for planned in cells:
            env = {**self.env, **credentials_report(planned.plan, self.env).found}
            for endpoint in planned.plan.endpoints:
                todo.setdefault(_name_of(endpoint), (endpoint, env))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = pool.map(lambda one: self._answer(*one), todo.values())
            self.answers.update(zip(todo, found, strict=True))

    def model_of(self, planned: PlannedCell) -> Answer:
        """Ask the endpoint of a cell's model now."""
        env = {**self.env, **credentials_report(planned.plan, self.env).found}
        return self._answer(planned.plan.model, env)

    def roles_that_answered(self, planned: PlannedCell) -> frozenset[str]:
        return frozenset(
            endpoint.role
            for endpoint in planned.plan.endpoints
            if (answer := self.answers.get(_name_of(endpoint))) is not None and answer.answered
        )

    def problem_of(self, planned: PlannedCell) -> tuple[str, PrerequisiteError] | None:
        """Why the cell cannot be begun: the role whose endpoint cannot be asked, and what is wrong there."""
        for endpoint in planned.plan.endpoints:
            answer = self.answers.get(_name_of(endpoint))
            if answer is not None and answer.error is not None:
                return endpoint.role, answer.error
        return None

    def _answer(self, endpoint: EndpointSettings, env: Mapping[str, str]) -> Answer:
        if endpoint.url.startswith("demo:"):
            return Answer(answered=True)
        try:
            warning = self.ask(endpoint, env, self.redactor, lambda _text: None)
        except PrerequisiteError as error:
            return Answer(answered=False, error=error)
        if warning:
            self.say(f"warning: {warning}")
        return Answer(answered=warning is None, warning=warning)


def _name_of(endpoint: EndpointSettings) -> str:
    """The same for what is asked in the same way, in whatever role of whatever cell."""
    return json_line({name: value for name, value in sorted(asdict(endpoint).items()) if name not in _OF_NO_ENDPOINT})
