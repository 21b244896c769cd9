"""The messages about one endpoint: warnings, waiting, and the reason why it is asked no more."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

from eval_factory.core import logs
from eval_factory.core.foreign_text import one_line, printable_lines
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint import openai_answers, openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.limits import RATE_LIMIT_STATUSES
from eval_factory.endpoint.native_answers import CONVERTED_FROM
from eval_factory.endpoint.replies import RequestFailed
from eval_factory.endpoint.retrying_client import Answered

BUSY_MESSAGE_INTERVAL = 10.0  # in seconds, between two messages about a rate limit or silence
MAX_SHOWN_MODEL_NAME = 120  # the number of characters of a model's name that a warning shows


class EndpointMessages:
    """Prints or emits the messages about one endpoint in one role: the evaluated model or a judge.

    An emitted message is an event in a file that the parent process of helm-run reads.
    """

    def __init__(self, settings: EndpointSettings, events: logs.EventWriter) -> None:
        self._settings = settings
        self._role = settings.role
        self._events = events
        self._lock = threading.Lock()
        self._warnings: set[str] = set()  # the warnings that were emitted
        self._last_busy_message = float("-inf")  # the monotonic time of the message, in seconds

    def adjustments(self, answered: Answered) -> list[str]:
        """Return the sentences about changed parameters and about an unusual form of the answer."""
        judge = self._role if self._settings.structured else None
        adjustments = []
        for name, change in answered.changes.items():
            adjustments.append(adjustment_of(name, change, judge))
        server_name = answered.completion.body.get(CONVERTED_FROM)
        if isinstance(server_name, str):
            adjustments.append(other_form_of(server_name))
        return adjustments

    def warn_of_path_as_model(self, stated_model: Any) -> None:
        """Warn if the answer states a file's path as its model, in place of the model's id."""
        if openai_answers.states_path(self._settings.model_id, stated_model):
            shown_name = one_line(str(stated_model), MAX_SHOWN_MODEL_NAME)
            self.warn_once(
                f"the server states {shown_name} as its model, not {self._settings.model_id}: "
                "set extra.max_model_mismatch: 1 if both names mean the same model"
            )

    def report_busy(self, error: RequestFailed) -> None:
        """Print a line about a rate limit or about silence, at most once in an interval."""
        # None: there was no answer with an HTTP status.
        if error.status is not None and error.status not in RATE_LIMIT_STATUSES:
            return
        with self._lock:
            now = time.monotonic()
            is_due = now - self._last_busy_message > BUSY_MESSAGE_INTERVAL
            if is_due:
                self._last_busy_message = now
        if is_due:
            print_to_stderr(f"{self._role}: {error}")

    def warn_once(self, message: str) -> None:
        """Emit a warning, unless an equal warning was emitted before."""
        with self._lock:
            is_new = message not in self._warnings
            self._warnings.add(message)
        if is_new:
            self._events.emit(logs.WARNING, role=self._role, message=message)

    def report_stop(self, message: str, *, fault: str | None) -> None:
        """Report that no further request can succeed.

        The message is fatal for the evaluated model. It is a warning for a judge.

        Args:
            message: the reason.
            fault: the kind of fault that the fatal event names, if it is known.
        """
        if self._role == MODEL_ROLE:
            print_to_stderr(logs.stop_line(message, os.environ))
            kind = {} if fault is None else {"kind": fault}
            self._events.emit(logs.FATAL, role=self._role, message=message, **kind)
        else:
            print_to_stderr(f"warning: {message}")
            self._events.emit(logs.WARNING, role=self._role, message=message)


def adjustment_of(name: str, change: openai_api.Change, judge: str | None = None) -> str:
    """Return the sentence by which the result reports a change of the requests.

    Args:
        name: the parameter that the endpoint refused.
        change: the change that was made.
        judge: the name of the judge, if the requests ask a judge for verdicts by a schema.
    """
    if judge is not None and name == openai_api.RESPONSE_FORMAT:
        return (
            f"the endpoint of judge {judge} refuses {name} with a schema (structured): only the "
            "prompt stated the form of the verdicts"
        )
    if change is None:
        return f"the endpoint refuses {name}: it was left out, the model's own default was used"
    if isinstance(change, openai_api.SetTo):
        return f"the endpoint refuses the run's {name}: {name} {change.value:g} was sent instead"
    return f"the endpoint takes {change} in place of {name}"


def other_form_of(server: str) -> str:
    """Return the sentence by which the result reports answers in a server's own form."""
    return (
        f"the answers have the form of {server}, not of the OpenAI-compatible API that was "
        "asked: the server may ignore the temperature and the limit of tokens"
    )


def print_to_stderr(line: str) -> None:
    """Print a line to standard error."""
    print(printable_lines(line), file=sys.stderr, flush=True)
