"""Runs HELM's runs with events about their phases, and without prompts in the logs.

helm-run loads the runner by its class name. `EvalRunner` extends HELM's own runner.
`MeasuringRunner` builds the requests of a run and sends none of them. HELM's `--dry-run` would have
to download a tokenizer to build the requests.

An answer that HELM cannot score fails its instance, not the run. HELM itself gives up the complete
run if a metric raises an error (for example `int()` of more than 4,300 digits). Every later run
would fail too, because answers are cached. `Unscorable` therefore gives such an instance an empty
completion and the reason, as if the request had failed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.annotation_executor import AnnotationExecutorError
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.runner import Runner
from helm.common.object_spec import get_class_by_name
from helm.common.request import GeneratedOutput, Request
from helm.proxy.retry import NonRetriableException

from eval_factory.core import logs
from eval_factory.core.errors import EvalFactoryError, PrerequisiteError
from eval_factory.core.foreign_text import MAX_LOG_LINE, one_line
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import media
from eval_factory.endpoint.retrying_client import DOUBTED
from eval_factory.helm import names
from eval_factory.helm.trivial_answers import PADDED_ANSWER, PADDED_QUESTIONS
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.asking_executor import (
    AskingExecutor,
    successful_result,
    with_enough_tokens,
    with_pictures_sent,
    within_chance_limit,
)
from eval_factory.helm_plugin.client import EndpointStopped, failure
from eval_factory.helm_plugin.patches import patch_registry, scenarios
from eval_factory.helm_plugin.patches.patch_registry import Stage
from eval_factory.helm_plugin.rubric.criterion_judge import requests_to_each, requests_to_judges
from eval_factory.helm_plugin.score_trivial_answers import score_trivial_answers
from eval_factory.helm_plugin.session import (
    BatchesAwaited,
    Session,
    judging,
    raised_at,
    run_record,
    session_for,
)

_METHODS_WITH_LOG_PROBABILITIES = (
    "language_modeling",
    "multiple_choice_separate",
    "ranking_binary",
)
"""Parts of the names of HELM's methods that need the log probabilities of a prompt."""
_NOT_IN_A_FILE_NAME = re.compile(r"[^\w.,=+@-]")
_PROMPT_IN_MESSAGE = re.compile(
    r"(?:Request: )?\[?\b(?:Request|RequestState|Instance|Input)\(.*", re.DOTALL
)
_MAX_NAME = 200
"""The maximum length of a run folder's name, in bytes. A longer name is cut to this length, and a
hyphen and 8 digits of a hash are appended. File systems allow 255 bytes, and HELM appends a suffix
to the name.
"""


class NoInstancesError(ValueError):
    """An error that is raised because a scenario found no instances in its data."""


class EvalRunner(Runner):  # type: ignore[misc]
    """HELM's runner, which also reports phases and gives run folders names that any file system
    allows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session = session_for(Path(self.output_path).absolute().parent)
        self._guard = network_guard.guard()
        if self._guard is not None:
            self._guard.report = lambda address: self._session.events.emit(
                logs.BLOCKED, place=address
            )
        self._blocked_before = 0  # the number of refused connections before the run began
        # The answered and annotated requests of the current run, for the scores of answers that
        # need no model.
        self._annotated: ScenarioState | None = None
        executor = _BatchStoppingExecutor(self.executor, self._session)
        # asks the model, and then the questions that are asked again
        asking = AskingExecutor(
            executor, Path(self.output_path), has_answers=self._session.has_answers
        )
        self.executor: Any = _ReportingExecutor(
            asking,
            self._before_asking,
            lambda _state: self._after_asking(),
            lambda: self._asks_again(of_model=True),
        )
        self._judging = _BatchStoppingExecutor(self.annotator_executor, self._session)
        self.annotator_executor: Any = _ReportingExecutor(
            self._judging,
            self._before_judging,
            self._after_judging,
            lambda: self._asks_again(of_model=False),
        )

    def _get_run_path(self, run_spec: RunSpec) -> str:
        """Return the path of the run folder, which overrides HELM's path."""
        name = _NOT_IN_A_FILE_NAME.sub("_", run_spec.name)
        text = name.encode()
        if len(text) > _MAX_NAME:  # for example, an argument of the run spec is a path
            beginning = text[:_MAX_NAME].decode(errors="ignore")
            name = f"{beginning}-{hashlib.sha256(text).hexdigest()[:8]}"
        return str(Path(self.runs_path) / name)

    def run_one(self, run_spec: RunSpec) -> None:
        """Run a run spec. An answer that HELM cannot score fails its instance only."""
        with Unscorable(self._report_unscorable) as self._unscorable:
            super().run_one(run_spec)
        state = self._annotated
        self._annotated = None
        # Trivial answers are texts, and cannot be scored if the answers are pictures.
        if state is not None and run_spec.adapter_spec.image_generation_parameters is None:
            score_trivial_answers(run_spec, state, self.metric_service, Path(self.output_path))

    def _report_unscorable(self, state: RequestState, reason: str) -> None:
        """Report an unscorable answer in the events and in the journal."""
        self._session.events.emit(
            logs.WARNING, role=MODEL_ROLE, message=f"an instance failed: {reason}"
        )
        client = self._session.clients.get(MODEL_ROLE)
        if client is not None:
            client.note_unscorable(state.request, reason)

    def run_all(self, run_specs: list[RunSpec]) -> None:
        """Run the only run spec, and report a failure in the events and in the log.

        The report leaves out the prompt that HELM's message may hold.
        """
        settings = HelmRunSettings.from_environment(os.environ)
        for run_spec in self.checked_run_specs(run_specs):
            try:
                run_spec = without_uncomputed_metrics(run_spec, settings)
                self._session.events.emit(logs.PHASE, phase=logs.LOADING, run=run_spec.name)
                self._blocked_before = len(self._guard.blocked) if self._guard else 0
                import_run_parts(run_spec)
                self.run_one(run_spec)
                self._stop_if_answers_are_doubted()
                path = Path(self._get_run_path(run_spec)).relative_to(Path(self.output_path))
                self._session.events.emit(logs.RUN_DONE, run=run_spec.name, path=path.as_posix())
            except BatchesAwaited as awaited:
                self._session.events.emit(
                    logs.BATCHES_AWAITED, run=run_spec.name, message=str(awaited)
                )
            except Exception as error:  # HELM may raise any error, and each means a failed run.
                self._report_failure(run_spec, error)
                sys.exit(1)
            finally:
                self._session.report_limit()

    def _stop_if_answers_are_doubted(self) -> None:
        """Archive the doubted answers, so that the next run asks again.

        Raises:
            PrerequisiteError: there are doubted answers, and this run has already used them.
        """
        count = self._session.archive_doubted(of_model=True)
        count += self._session.archive_doubted(of_model=False)
        if count:
            raise PrerequisiteError(
                f"{count} answers may belong to other questions: {DOUBTED}\n"
                "  run the same command again: it asks these questions again"
            )

    def checked_run_specs(self, run_specs: list[RunSpec]) -> list[RunSpec]:
        """Return the run specs, or end the process if they cannot be run.

        A run folder holds a single run, so several run specs are refused. Endpoints do not return
        the log probabilities of a prompt, so methods that need them are refused too.
        """
        methods = {spec.adapter_spec.method for spec in run_specs}
        pairs = product(methods, _METHODS_WITH_LOG_PROBABILITIES)
        if any(part in method for method, part in pairs):
            message = (
                f"{run_specs[0].name} asks a model for the log probabilities of its prompts or "
                "answers, which eval-factory cannot ask for"
            )
        elif len(run_specs) > 1:
            message = f"the run entry means {len(run_specs)} runs, name one of them: " + "; ".join(
                spec.name for spec in run_specs[:5]
            )
        else:
            return run_specs
        print(message, file=sys.stderr, flush=True)
        self._session.events.emit(logs.REFUSED, message=message)
        sys.exit(1)

    def _report_failure(self, run_spec: RunSpec, error: Exception) -> None:
        """Report a failed run in the events; print the reason unless it was printed before."""
        stopped = _cause_of_kind(error, EndpointStopped)
        if stopped is not None:
            self._session.events.emit(
                logs.RUN_FAILED, run=run_spec.name, error=str(stopped), stopped=True
            )
            return
        missing = _cause_of_kind(error, PrerequisiteError)
        if missing is not None:
            print(logs.last_message(str(missing), os.environ), file=sys.stderr, flush=True)
            self._session.events.emit(logs.FATAL, role=MODEL_ROLE, message=str(missing))
            return
        redactor = self._session.redactor
        # HELM logs lines of the level INFO only with --debug. Only then may a prompt be shown.
        is_debug = logging.getLogger("helm").isEnabledFor(logging.INFO)
        if is_debug:
            message = one_line(redactor.text(str(error)), MAX_LOG_LINE)
        else:
            message = safe_message(error, redactor)
        for frame in traceback.extract_tb(_innermost(error).__traceback__)[-8:]:
            print(f"  {frame.filename}:{frame.lineno} in {frame.name}", file=sys.stderr)
        print(message, file=sys.stderr, flush=True)
        self._session.events.emit(logs.RUN_FAILED, run=run_spec.name, error=message, stopped=False)

    def _before_asking(self, state: ScenarioState) -> None:
        """Check that the run can ask the model, and report the beginning of the phase."""
        # The parent process probes the endpoints while HELM is imported, and writes the roles that
        # answered to standard input. If an endpoint cannot be asked, the parent writes nothing, and
        # this process ends.
        settings = HelmRunSettings.from_environment(os.environ)
        if settings.parent is not None and settings.probed is None:
            probed = frozenset(json.loads(sys.stdin.readline().strip() or sys.exit(1)))
            os.environ.update(replace(settings, probed=probed).environment())
        self._stop_if_data_were_refused()
        if not state.request_states:
            raise NoInstancesError(
                "HELM's scenario found no instances in its data: is the path of the data right?"
            )
        file = Path(self.output_path).absolute() / names.RUN_RECORD_FILE
        scenarios.refuse_old_media(
            file, media_files(state.request for state in state.request_states)
        )
        run_record.note(datasets=scenarios.loaded_datasets())
        run_record.write_to(file)
        total = 0  # if the answers are in the data, no request is sent
        if not self._session.has_answers:
            total = len(within_chance_limit(state.request_states))
        self._session.expect(MODEL_ROLE, total)
        self._session.events.emit(logs.PHASE, phase=logs.ASKING, total=total)

    def _stop_if_data_were_refused(self) -> None:
        """Raise BlockedConnectionError if the guard refused a connection since the run began.

        Some scenarios ignore a file that they could not download. They would go on with fewer
        instances and get another score.
        """
        blocked = self._guard.blocked[self._blocked_before :] if self._guard else []
        if blocked:
            raise network_guard.BlockedConnectionError(
                f"offline: the benchmark's data would have to be downloaded from {blocked[0]}"
            )

    def _asks_again(self, *, of_model: bool) -> bool:
        """Archive doubted answers, and return True if their questions have to be asked again.

        This method first waits until no further answer can become doubted. `of_model` is True for
        the answers of the model, and False for the answers of the judges.
        """
        clients = self._session.clients.items()
        waits = []
        for role, client in clients:
            if (role == MODEL_ROLE) is of_model:
                waits.append(client.settling_s)
        time.sleep(max(waits, default=0.0))
        count = self._session.archive_doubted(of_model=of_model)
        if count:
            role = MODEL_ROLE if of_model else "judges"
            message = f"{count} answers are asked for again: {DOUBTED}"
            self._session.events.emit(logs.WARNING, role=role, message=message)
        return count > 0

    def _after_asking(self) -> None:
        """Apply the patches of the scoring.

        Raises:
            PrerequisiteError: this run only scores the stored answers again, after a change of the
                configuration, and some answers are not stored.
        """
        self._session.report(MODEL_ROLE, final=True)
        # Check for missing answers before any judge is asked, because judges cost money.
        if missing := len(self._session.not_stored):
            problem = (
                f"{missing} of {self._session.counters[MODEL_ROLE].total} "
                "answers of the model are not stored"
            )
            raise PrerequisiteError(
                f"{problem}: this change alters the requests to the model; run_eval sends them"
            )
        patch_registry.apply_patches(Stage.SCORING)
        run_record.note(patches=patch_registry.applied())

    def _before_judging(self, state: ScenarioState) -> None:
        """Report the beginning of the phase, if the run has annotators."""
        self._unscorable.watch(state)
        if state.annotator_specs:
            self._session.events.emit(
                logs.PHASE, phase=logs.JUDGING, total=requests_to_judges(state)
            )

    def _after_judging(self, state: ScenarioState) -> None:
        """Probe the judges if the settings ask for it, and report the beginning of the scoring."""
        self._unscorable.watch(state)
        if state.annotator_specs and HelmRunSettings.from_environment(os.environ).probe_judges:
            self._probe_judges(state)
        self._annotated = state
        self._session.events.emit(logs.PHASE, phase=logs.SCORING)

    def _probe_judges(self, state: ScenarioState) -> None:
        """Let the judges rate an answer that has no content, and record their verdicts.

        They rate it as the answer to a few of the questions.
        If this fails, a warning is emitted, and the run goes on.
        """
        originals = [
            request_state
            for request_state in state.request_states
            if request_state.instance.perturbation is None
        ]

        def digest(request_state: RequestState) -> bytes:
            return hashlib.sha256(str(request_state.instance.id).encode()).digest()

        probes = []
        for drawn in sorted(originals, key=digest)[:PADDED_QUESTIONS]:
            probes.append(replace(drawn, annotations=None, result=successful_result(PADDED_ANSWER)))
        try:
            judged = self._judging.execute(replace(state, request_states=probes))
        except BatchesAwaited:
            raise
        except Exception as error:  # A limit may be reached, and an annotator may raise any error.
            reason = safe_message(error, self._session.redactor)
            message = f"the judges' score of an answer without content is not known: {reason}"
            self._session.events.emit(logs.WARNING, role=MODEL_ROLE, message=message)
            return
        annotations = {}
        for request_state in judged.request_states:
            annotations[str(request_state.instance.id)] = request_state.annotations or {}
        run_record.note(judge_probe=annotations)


def without_uncomputed_metrics(run_spec: RunSpec, settings: HelmRunSettings) -> RunSpec:
    """Return the run spec without the picture metrics that this run does not compute.

    A metric is left out if the settings only ask for generating pictures, or if this machine cannot
    compute the metric.
    """
    if not (settings.only_generate or settings.uncomputed):
        return run_spec
    metric_specs = []
    for metric_spec in run_spec.metric_specs:
        is_left_out = metric_spec.class_name in settings.uncomputed
        # A run that only generates pictures leaves out all metrics that look at pictures (they need
        # torch), also those that this machine could compute.
        if settings.only_generate:
            is_left_out = not needs_no_torch(metric_spec)
        if not is_left_out:
            metric_specs.append(metric_spec)
    return replace(run_spec, metric_specs=metric_specs)


def needs_no_torch(metric_spec: Any) -> bool:
    """Return True if the metric works without torch, because it does not look at pictures."""
    _, separator, name = metric_spec.class_name.partition(".metrics.image_generation.")
    is_picture_metric = bool(separator)
    return not is_picture_metric or name == "efficiency_metrics.EfficiencyMetric"


def import_run_parts(run_spec: RunSpec) -> None:
    """Import and patch the scenario, the metrics and the annotators of a run spec.

    A missing package of a metric or an annotator is thereby found before the first request.
    """
    for part in (run_spec.scenario_spec, *run_spec.metric_specs, *(run_spec.annotators or ())):
        get_class_by_name(part.class_name)
    patch_registry.apply_patches(Stage.IMPORTED)


class _BatchStoppingExecutor:
    """A wrapper of an executor of HELM that ends the run if requests wait for a batch.

    The run cannot go on, because later requests depend on the answers of the batch.
    """

    def __init__(self, inner: Any, session: Session) -> None:
        self._inner = inner
        self._session = session
        self.execution_spec = inner.execution_spec

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        """Execute the requests.

        Raises:
            BatchesAwaited: requests wait for a batch.
        """
        state = self._inner.execute(scenario_state)
        self._session.stop_for_batches()
        return state


class _ReportingExecutor:
    """A wrapper of an executor of HELM that calls functions before and after the execution."""

    def __init__(self, inner: Any, before: Any, after: Any, asks_again: Callable[[], bool]) -> None:
        """Wrap an executor.

        Args:
            inner: the executor to wrap.
            before: called with the unanswered requests.
            after: called with the answered requests.
            asks_again: returns True if answers turned out to be unusable and have to be asked
                again.
        """
        self._inner = inner
        self._asks_again = asks_again
        self._before = before
        self._after = after
        # HELM reads from this spec the number of threads for its metrics, which only compute. The
        # inner executor has its own spec for the number of parallel requests.
        threads = min(inner.execution_spec.parallelism, os.cpu_count() or 1)
        self.execution_spec = replace(inner.execution_spec, parallelism=threads)

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        self._before(scenario_state)
        state = self._inner.execute(scenario_state)
        if self._asks_again():
            # The cache answers all other requests. Repeated requests go over new connections.
            state = self._inner.execute(scenario_state)
        if state is not scenario_state:
            # Free memory: HELM's `run_one` keeps the unanswered requests, but no longer reads them.
            for records in (
                scenario_state.request_states,
                scenario_state.request_state_map,
                scenario_state.instances,
            ):
                records.clear()
        self._after(state)
        return state


def safe_message(error: Exception, redactor: Redactor) -> str:
    """Return the class and the message of the innermost cause of an error, without secrets.

    The message is cut before a prompt, because HELM appends the request to some messages. The
    message of a `DownloadError` is not cut, because it never holds a prompt.
    """
    cause = _innermost(error)
    if isinstance(cause, scenarios.DownloadError):
        return f"{type(cause).__name__}: {one_line(redactor.text(str(cause)), MAX_LOG_LINE)}"
    text = redactor.text(_PROMPT_IN_MESSAGE.sub("", str(cause)).strip())
    return f"{type(cause).__name__}: {one_line(text, 300)}"


def _innermost(error: BaseException) -> BaseException:
    """Return the last error in the chain of explicit causes (`raise ... from`)."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error itself, then the errors that caused it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _cause_of_kind(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """Return the first error of the class `kind` among an error and its causes; else None."""
    for cause in _causes(error):
        if isinstance(cause, kind):
            return cause
    return None


class _Measured(Exception):
    """An error that ends a run after its requests were measured and before any request is sent."""


class MeasuringRunner(EvalRunner):
    """A runner that counts the requests and tokens of a run, and ends the run before it asks."""

    def run_one(self, run_spec: RunSpec) -> None:
        with suppress(_Measured):
            super().run_one(run_spec)

    def _before_asking(self, state: ScenarioState) -> None:
        self._stop_if_data_were_refused()
        if not state.request_states:
            raise NoInstancesError("HELM's scenario found no instances in its data")
        # the requests as the client would send them
        states = map(with_enough_tokens, within_chance_limit(state.request_states))
        requests = [with_pictures_sent(request_state).request for request_state in states]
        files = media_files(requests)
        media_tokens = None
        if files:
            deployment = get_model_deployment(requests[0].model_deployment)
            max_image_side = deployment.client_spec.args.get("max_image_side")
            media_tokens = sum(media.tokens_of(file, max_image_side) for file in files)
        self._session.events.emit(
            logs.MEASURED,
            requests=len(requests),
            prompt_bytes=sum(map(prompt_bytes, requests)),
            media_tokens=media_tokens,
            most_tokens=sum(request.max_tokens * request.num_completions for request in requests),
            judge_requests=requests_to_each(state),
        )
        raise _Measured


def media_files(requests: Iterable[Request]) -> list[Path]:
    """Return the absolute paths of all pictures and sounds in the requests."""
    files = []
    for request in requests:
        if request.multimodal_prompt:
            for medium in request.multimodal_prompt.media_objects:
                if medium.location:
                    files.append(Path(medium.location).absolute())
    return files


def prompt_bytes(request: Any) -> int:
    """Return the size of the text that a request sends to the model, in bytes of UTF-8."""
    texts = [str(turn.get("content", "")) for turn in request.messages or []]
    if not texts:
        prompt = request.prompt
        if not prompt and request.multimodal_prompt:
            prompt = request.multimodal_prompt.text
        texts = [prompt or ""]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


_MAX_ONE_UNSCORABLE_IN = 2
"""The run tolerates at most one unscorable answer in this number of answers, or a single one in
fewer answers. The run fails if more answers, or all answers, cannot be scored. Otherwise
the result counts the unscorable answers as failed, and states the reason. The result's coverage
then decides whether the result may be reported.
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


class Unscorable:
    """A tracker of the answers of one run that HELM cannot score.

    Metrics and annotators may use a tracker from several threads.
    """

    def __init__(self, report: Callable[[RequestState, str], None]) -> None:
        """Make a tracker. `report` is called with each unscorable request, and with the reason."""
        self._report = report
        self._state: ScenarioState | None = None
        self._reasons: dict[_Key, str] = {}  # unscorable answer -> reason
        self._lock = threading.Lock()

    def __enter__(self) -> Unscorable:
        """Make this the tracker that the patched metrics and annotators use."""
        _active_trackers.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _active_trackers.remove(self)

    def watch(self, state: ScenarioState) -> None:
        """Track the requests and answers of `state`.

        HELM writes the list of `state` to its file after the metrics, with the emptied answers.
        Answers that are already known to be unscorable are emptied at once.
        """
        with self._lock:
            self._state = state
            for number, request_state in enumerate(state.request_states):
                reason = self._reasons.get(_key_of(request_state))
                if reason is not None:
                    state.request_states[number] = without_answer(request_state, reason)

    def process(self, annotators: list[Any], state: RequestState) -> RequestState:
        """Return the request with all annotations of its answer, in place of HELM's function.

        An error of a judge does not make the answer unscorable.
        """
        annotations: dict[str, Any] = {}
        for annotator in annotators:
            try:
                annotations[annotator.name] = annotator.annotate(state)
            except Exception as error:
                if hasattr(annotator, "_auto_client"):  # The annotator asks judges.
                    raise AnnotationExecutorError(f"{error} Request: {state.request}") from error
                state = self.give_up(state, type(annotator).__name__, error)
                # Metrics may read the annotation, so annotate the empty answer.
                annotations[annotator.name] = annotator.annotate(state)
        return replace(state, annotations=annotations)

    def give_up(self, state: RequestState, scorer: str, error: Exception) -> RequestState:
        """Return the request without its answer, if the answer may have caused the error.

        Args:
            state: the request with its answer.
            scorer: the class name of the metric or annotator that raised the error.
            error: the error.

        Raises:
            Exception: the error itself, if the answer cannot have caused it, or if too many answers
                are unscorable.
        """
        # NLTK raises a plain LookupError if its data are missing. The subclasses KeyError and
        # IndexError may be caused by an answer.
        if any(
            isinstance(cause, _ENVIRONMENT_ERRORS) or type(cause) is LookupError
            for cause in _causes(error)
        ):
            raise error
        reason = f"{names.UNSCORABLE}{type(error).__name__} in {scorer} ({raised_at(error)})"
        key = _key_of(state)
        with self._lock:
            is_new = key not in self._reasons
            self._reasons.setdefault(key, reason)
            states = self._state.request_states if self._state else []
            # Count the answers that are scored already, or may still be scored.
            scorable = 0
            for other_state in states:
                has_answer = other_state.result and other_state.result.success
                if has_answer and _key_of(other_state) not in self._reasons:
                    scorable += 1
            unscorable = len(self._reasons)
            tolerated = max(1, (unscorable + scorable) // _MAX_ONE_UNSCORABLE_IN)
            if not scorable or unscorable > tolerated:
                raise error
            for number, request_state in enumerate(states):
                if is_new and _key_of(request_state) == key:
                    states[number] = without_answer(request_state, reason)
        if is_new:
            self._report(state, reason)
        return without_answer(state, reason)


def without_answer(state: RequestState, reason: str) -> RequestState:
    """Return the request with an empty answer, as HELM writes a failed request."""
    cached = bool(state.result and state.result.cached)
    empty = [GeneratedOutput(text="", logprob=0, tokens=[])]
    return replace(state, result=replace(failure(reason), cached=cached, completions=empty))


def _key_of(state: RequestState) -> _Key:
    return state.instance.id, state.train_trial_index, state.instance.perturbation


_active_trackers: list[Unscorable] = []  # The patched functions use the last tracker.


def isolate_unscorable_annotations(
    helms_own: Callable[..., RequestState],
) -> Callable[..., RequestState]:
    """Return a replacement of the function by which HELM annotates an answer.

    An annotator's error then fails the instance only. Judges are annotators too.
    """

    def process(self: Any, annotators: list[Any], state: RequestState) -> RequestState:
        with judging(state):
            if _active_trackers:
                return _active_trackers[-1].process(annotators, state)
            return helms_own(self, annotators, state)

    return process


def leave_out_infinite_perplexity(helms_own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a replacement of HELM's derivation of perplexity that skips values that overflow.

    Perplexity is e to the power of a number that the endpoint states, so it may overflow. No score
    is made from perplexity.
    """

    def derive(stats: Any) -> Any:
        try:
            return helms_own(stats)
        except OverflowError:
            return []

    return derive


def isolate_unscorable_answers(helms_own: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return a replacement of the function by which metrics score each answer on its own.

    A metric's error then fails the instance only.
    """

    def process(self: Any, states: list[RequestState]) -> list[Any]:
        try:
            return helms_own(self, states)
        except Exception as error:
            if not _active_trackers or len(states) != 1:
                raise
            empty = _active_trackers[-1].give_up(states[0], type(self.metric).__name__, error)
        try:
            return helms_own(self, [empty])
        except Exception:
            # The metric raises for an empty answer too, so the instance gets no value of it.
            return []

    return process


def isolate_among_all_answers(helms_own: Callable[..., Any]) -> Callable[..., Any]:
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
            scorable = list(states)
            for number, state in enumerate(states):
                try:
                    evaluate_instances([state], path)
                except Exception as error:
                    tracker = _active_trackers[-1]
                    scorable[number] = tracker.give_up(state, type(self).__name__, error)
            return evaluate_instances(scorable, path)

        self.evaluate_instances = evaluate_scorable
        try:
            return helms_own(self, *args, **kwargs)
        finally:
            del self.evaluate_instances

    return evaluate
