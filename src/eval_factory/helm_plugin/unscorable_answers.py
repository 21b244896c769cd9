"""Makes an answer that HELM cannot score fail its instance, not the run.

HELM gives up the complete run if a metric or an annotator raises an error for one answer (for
example `int()` of more than 4,300 digits). Every later run would fail too, because answers are
cached. The patches of this module catch such an error. The instance then gets an empty answer and
the reason, as if the request had failed.
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
from eval_factory.helm_plugin.error_causes import error_and_causes, raised_at
from eval_factory.helm_plugin.helm_results import failed_result
from eval_factory.helm_plugin.session import judging

_MIN_ANSWERS_PER_UNSCORABLE = 2
"""The number of answers in which one answer may be unscorable. The run fails if more answers are
unscorable, or if all are. If the run does not fail, the result counts the unscorable answers as
failed, and states the reason. The result's coverage then decides whether the result may be
reported.
"""

_ENVIRONMENT_ERRORS = (
    OSError,
    ImportError,
    MemoryError,
    sqlite3.Error,
    NonRetriableException,
    EvalFactoryError,
    NotImplementedError,
    NameError,
)
"""Classes of errors that an answer cannot cause: something is missing, full or stopped."""

_Key = tuple[str | None, int, Any]  # the instance's id, HELM's trial, the instance's perturbation


class UnscorableTracker:
    """A tracker of the answers of one run that HELM cannot score.

    Metrics and annotators may use a tracker from several threads.
    """

    def __init__(self, report: Callable[[RequestState, str], None]) -> None:
        """Make a tracker.

        Args:
            report: is called once for each unscorable answer, with the request and the reason.
        """
        self._report = report
        self._state: ScenarioState | None = None
        self._reasons: dict[_Key, str] = {}  # key of an unscorable answer -> reason
        self._lock = threading.Lock()

    def __enter__(self) -> UnscorableTracker:
        """Make this the tracker that the patched metrics and annotators use."""
        _active_trackers.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _active_trackers.remove(self)

    def watch(self, state: ScenarioState) -> None:
        """Track the requests and answers of `state`.

        An unscorable answer is replaced by an empty answer in the list of `state`, because HELM
        writes this list to its file after the metrics. Answers that are already known to be
        unscorable are replaced at once.
        """
        with self._lock:
            self._state = state
            for number, request_state in enumerate(state.request_states):
                reason = self._reasons.get(_key_of(request_state))
                if reason is not None:
                    state.request_states[number] = without_answer(request_state, reason)

    def annotated(self, annotators: list[Any], state: RequestState) -> RequestState:
        """Return the request with all annotations of its answer.

        An error of a judge does not make the answer unscorable.
        """
        annotations: dict[str, Any] = {}
        for annotator in annotators:
            try:
                annotations[annotator.name] = annotator.annotate(state)
            except Exception as error:
                if hasattr(annotator, "_auto_client"):  # The annotator asks judges.
                    # HELM raises the same error.
                    raise AnnotationExecutorError(f"{error} Request: {state.request}") from error
                state = self.without_unscorable_answer(state, type(annotator).__name__, error)
                # Metrics may read the annotation, so annotate the empty answer.
                annotations[annotator.name] = annotator.annotate(state)
        return replace(state, annotations=annotations)

    def without_unscorable_answer(
        self, state: RequestState, scorer: str, error: Exception
    ) -> RequestState:
        """Report an answer as unscorable, and return its request with an empty answer.

        Args:
            state: the request with its answer.
            scorer: the class name of the metric or annotator that raised the error.
            error: the error.

        Raises:
            Exception: the error itself, if the answer cannot have caused it, or if too many answers
                are unscorable.
        """
        if _cannot_come_from_an_answer(error):
            raise error
        reason = f"{names.UNSCORABLE_PREFIX}{type(error).__name__} in {scorer} ({raised_at(error)})"
        key = _key_of(state)
        with self._lock:
            is_new = key not in self._reasons
            if is_new:
                self._reasons[key] = reason
            if self._are_too_many():
                raise error
            if is_new:
                self._empty_answer_in_list(key, reason)
        if is_new:
            self._report(state, reason)
        return without_answer(state, reason)

    def _are_too_many(self) -> bool:
        """Return True if the run cannot tolerate its unscorable answers.

        The caller must have acquired the lock.
        """
        scorable = 0  # the number of answers that are scored already, or may still be scored
        states = self._state.request_states if self._state else []
        for state in states:
            has_answer = state.result and state.result.success
            if has_answer and _key_of(state) not in self._reasons:
                scorable += 1
        unscorable = len(self._reasons)
        tolerated = max(1, (unscorable + scorable) // _MIN_ANSWERS_PER_UNSCORABLE)
        return scorable == 0 or unscorable > tolerated

    def _empty_answer_in_list(self, key: _Key, reason: str) -> None:
        """Replace the answer with this key by an empty answer in the list of the watched state.

        The caller must have acquired the lock.
        """
        states = self._state.request_states if self._state else []
        for number, state in enumerate(states):
            if _key_of(state) == key:
                states[number] = without_answer(state, reason)


_active_trackers: list[UnscorableTracker] = []  # The patched functions use the last tracker.


def without_answer(state: RequestState, reason: str) -> RequestState:
    """Return the request with an empty answer, as HELM writes a failed request."""
    cached = bool(state.result and state.result.cached)
    empty = [GeneratedOutput(text="", logprob=0, tokens=[])]
    return replace(state, result=replace(failed_result(reason), cached=cached, completions=empty))


def _key_of(state: RequestState) -> _Key:
    return state.instance.id, state.train_trial_index, state.instance.perturbation


def _cannot_come_from_an_answer(error: Exception) -> bool:
    """Return True if the error, or one of its causes, is an error that no answer can cause."""
    for cause in error_and_causes(error):
        # NLTK raises a plain LookupError if its data are missing. `isinstance` is not used here,
        # because an answer may cause the subclasses KeyError and IndexError.
        if isinstance(cause, _ENVIRONMENT_ERRORS) or type(cause) is LookupError:
            return True
    return False


def isolate_unscorable_annotations(
    helms_process: Callable[..., RequestState],
) -> Callable[..., RequestState]:
    """Return a replacement of the function by which HELM annotates an answer.

    If an annotator asks no judge, its error then fails the instance only. The replacement also lets
    the clients of judges see the judged question (`session.judging`).
    """

    def process(self: Any, annotators: list[Any], state: RequestState) -> RequestState:
        with judging(state):
            if _active_trackers:
                return _active_trackers[-1].annotated(annotators, state)
            return helms_process(self, annotators, state)

    return process


def isolate_unscorable_answers(
    helms_process: Callable[..., list[Any]],
) -> Callable[..., list[Any]]:
    """Return a replacement of the function by which metrics score each answer on its own.

    A metric's error then fails the instance only.
    """

    def process(self: Any, states: list[RequestState]) -> list[Any]:
        try:
            return helms_process(self, states)
        except Exception as error:
            # HELM refuses several answers to one question. This error is not an answer's fault.
            if not _active_trackers or len(states) != 1:
                raise
            tracker = _active_trackers[-1]
            metric = type(self.metric).__name__
            state = tracker.without_unscorable_answer(states[0], metric, error)
        try:
            return helms_process(self, [state])
        except Exception:
            # The metric raises for an empty answer too, so it gives the instance no value.
            return []

    return process


def isolate_among_all_answers(helms_evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the function by which metrics score all answers at once.

    If the metric raises an error, the replacement scores the answers one by one to find the
    answers that cause the error. Only the instances of these answers then fail.
    """

    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        evaluate_instances = self.evaluate_instances

        def evaluate_scorable(states: list[RequestState], path: str) -> Any:
            try:
                return evaluate_instances(states, path)
            except Exception:
                if not _active_trackers:
                    raise
            # An answer caused the error: find all such answers, and replace them by empty answers.
            tracker = _active_trackers[-1]
            metric = type(self).__name__
            scorable = list(states)
            for number, state in enumerate(states):
                try:
                    evaluate_instances([state], path)
                except Exception as error:
                    scorable[number] = tracker.without_unscorable_answer(state, metric, error)
            return evaluate_instances(scorable, path)

        # HELM's `evaluate` calls this attribute instead of the method of the class.
        self.evaluate_instances = evaluate_scorable
        try:
            return helms_evaluate(self, *args, **kwargs)
        finally:
            del self.evaluate_instances

    return evaluate


def leave_out_infinite_perplexity(helms_derivation: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a replacement of HELM's derivation of perplexity that skips values that overflow.

    Perplexity is e to the power of a number that the endpoint states, so it may overflow. No score
    is made from perplexity.
    """

    def derive(stats: Any) -> Any:
        try:
            return helms_derivation(stats)
        except OverflowError:
            return []

    return derive
