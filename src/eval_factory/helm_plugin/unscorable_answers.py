"""One answer that HELM cannot score costs its instance, not the run.

HELM gives up the run where a metric raises (`int()` of more than 4,300 digits), and every later run too, because
answers are cached. Here such an instance gets what HELM gives to one whose request failed: an empty completion, and the
reason.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation_executor import AnnotationExecutorError
from helm.common.request import GeneratedOutput
from helm.proxy.retry import NonRetriableException

from eval_factory.core.errors import EvalFactoryError
from eval_factory.helm import names
from eval_factory.helm_plugin.client import failure
from eval_factory.helm_plugin.session import judging, raised_at

_ONE_IN = 2
"""The run fails where more than one answer, and more than one answer in two, cannot be scored; or where none can. With
fewer the result is there: it counts them as failed, says why, and its coverage says whether it may be reported."""

_OF_THE_ENVIRONMENT = (
    OSError, ImportError, MemoryError, sqlite3.Error, NonRetriableException, EvalFactoryError, NotImplementedError,
    NameError,
)  # fmt: skip
"""What no answer sets off: something is missing, full or stopped."""

_Key = tuple[str | None, int, Any]


class Unscorable:
    """The answers of one run that HELM cannot score. Metrics and annotators run in several threads."""

    def __init__(self, report: Callable[[RequestState, str], None]) -> None:
        self._report = report
        self._state: ScenarioState | None = None
        self._reasons: dict[_Key, str] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Unscorable:
        """HELM's metrics give up to this one what they cannot score; runs follow each other."""
        _of_this_run.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _of_this_run.remove(self)

    def watch(self, state: ScenarioState) -> None:
        """The requests and answers of which HELM writes down what stands here when the metrics are done."""
        with self._lock:
            self._state = state
            for number, asked in enumerate(state.request_states):
                reason = self._reasons.get(_key_of(asked))
                if reason is not None:
                    state.request_states[number] = without_answer(asked, reason)

    def process(self, annotators: list[Any], state: RequestState) -> RequestState:
        """Replaces HELM's annotation of one answer. A judge's failure is none of the answer's."""
        annotations: dict[str, Any] = {}
        for annotator in annotators:
            try:
                annotations[annotator.name] = annotator.annotate(state)
            except Exception as error:
                if hasattr(annotator, "_auto_client"):
                    raise AnnotationExecutorError(f"{error} Request: {state.request}") from error
                state = self.give_up(state, type(annotator).__name__, error)
                annotations[annotator.name] = annotator.annotate(state)
        return replace(state, annotations=annotations)

    def give_up(self, state: RequestState, scorer: str, error: Exception) -> RequestState:
        """The request without its answer, where the error may be the answer's fault.

        Raises:
            Exception: the error itself, where it is not, or where too many raise.
        """
        cause: BaseException | None = error
        while cause is not None:  # the causes say what is missing, too
            # NLTK says so of data that are not there; KeyError and IndexError are other kinds of LookupError.
            if isinstance(cause, _OF_THE_ENVIRONMENT) or type(cause) is LookupError:
                raise error
            cause = cause.__cause__ or cause.__context__
        reason = f"{names.UNSCORABLE}{type(error).__name__} in {scorer} ({raised_at(error)})"
        key = _key_of(state)
        with self._lock:
            new = key not in self._reasons
            self._reasons.setdefault(key, reason)
            states = self._state.request_states if self._state else []
            scored = [asked for asked in states if asked.result and asked.result.success]  # so far, or they may yet be
            others = sum(_key_of(asked) not in self._reasons for asked in scored)
            unscorable = len(self._reasons)
            if not others or unscorable > max(1, (unscorable + others) // _ONE_IN):
                raise error
            for number, asked in enumerate(states):
                if new and _key_of(asked) == key:
                    states[number] = without_answer(asked, reason)
        if new:
            self._report(state, reason)
        return without_answer(state, reason)


def without_answer(state: RequestState, reason: str) -> RequestState:
    """As HELM has it of a request that failed."""
    cached = bool(state.result and state.result.cached)
    empty = [GeneratedOutput(text="", logprob=0, tokens=[])]
    return replace(state, result=replace(failure(reason), cached=cached, completions=empty))


def _key_of(state: RequestState) -> _Key:
    return state.instance.id, state.train_trial_index, state.instance.perturbation


_of_this_run: list[Unscorable] = []  # the last one is in use


def isolate_unscorable_annotations(helms_own: Callable[..., RequestState]) -> Callable[..., RequestState]:
    """Annotators, of which the judges are some."""

    def process(self: Any, annotators: list[Any], state: RequestState) -> RequestState:
        with judging(state):
            return _of_this_run[-1].process(annotators, state) if _of_this_run else helms_own(self, annotators, state)

    return process


def leave_out_infinite_perplexity(helms_own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Perplexity is e to the power of what the endpoint says; no score is made of it."""

    def derive(stats: Any) -> Any:
        try:
            return helms_own(stats)
        except OverflowError:
            return []

    return derive


def isolate_unscorable_answers(helms_own: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Metrics that look at one answer."""

    def process(self: Any, states: list[RequestState]) -> list[Any]:
        try:
            return helms_own(self, states)
        except Exception as error:
            if not _of_this_run or len(states) != 1:
                raise
            empty = _of_this_run[-1].give_up(states[0], type(self.metric).__name__, error)
        try:
            return helms_own(self, [empty])
        except Exception:  # it bears no empty answer either; the instance has no value of this metric
            return []

    return process


def isolate_among_all_answers(helms_own: Callable[..., Any]) -> Callable[..., Any]:
    """Metrics that look at all answers at once: which one it is that they do not bear is found one by one."""

    def evaluate(self: Any, *arguments: Any, **named: Any) -> Any:
        of_all = self.evaluate_instances

        def without_those_that_fail(states: list[RequestState], path: str) -> Any:
            try:
                return of_all(states, path)
            except Exception:
                if not _of_this_run:
                    raise
            tolerated = list(states)
            for number, state in enumerate(states):
                try:
                    of_all([state], path)
                except Exception as error:
                    tolerated[number] = _of_this_run[-1].give_up(state, type(self).__name__, error)
            return of_all(tolerated, path)

        self.evaluate_instances = without_those_that_fail
        try:
            return helms_own(self, *arguments, **named)
        finally:
            del self.evaluate_instances

    return evaluate
