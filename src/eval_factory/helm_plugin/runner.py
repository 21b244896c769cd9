"""Runs HELM's runs with events about their phases, and without prompts in the logs.

helm-run loads the runner by its class name. `EvalRunner` extends HELM's own runner.
`MeasuringRunner` builds the requests of a run and sends none of them. HELM's `--dry-run` would have
to download a tokenizer to build the requests.

An answer that HELM cannot score fails its instance, not the run (`unscorable_answers.py`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.benchmark.run_spec import RunSpec
from helm.benchmark.runner import Runner
from helm.common.object_spec import get_class_by_name
from helm.common.request import Request

from eval_factory.core import logs
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import MAX_LOG_LINE, one_line
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import media
from eval_factory.endpoint.retrying_client import DOUBT_REASON
from eval_factory.helm import names
from eval_factory.helm.trivial_answers import PADDED_ANSWER, PADDED_QUESTION_COUNT
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.asking_executor import (
    AskingExecutor,
    successful_result,
    with_enough_tokens,
    with_pictures_sent,
    within_chance_limit,
)
from eval_factory.helm_plugin.client import EndpointStopped
from eval_factory.helm_plugin.error_causes import cause_of_kind, innermost_cause
from eval_factory.helm_plugin.patches import patch_registry, scenarios
from eval_factory.helm_plugin.patches.patch_registry import Stage
from eval_factory.helm_plugin.rubric.criterion_judge import (
    requests_to_each_judge,
    requests_to_judges,
)
from eval_factory.helm_plugin.score_trivial_answers import score_trivial_answers
from eval_factory.helm_plugin.session import BatchesAwaited, Session, run_record, session_for
from eval_factory.helm_plugin.unscorable_answers import UnscorableTracker

_METHODS_WITH_LOG_PROBABILITIES = (
    "language_modeling",
    "multiple_choice_separate",
    "ranking_binary",
)
"""Parts of the names of HELM's methods that need the log probabilities of a prompt."""
# a character that a folder's name must not have: "/", ":", " "
_NOT_IN_A_FILE_NAME = re.compile(r"[^\w.,=+@-]")
# "Request: Request(model='m', prompt='...", "[RequestState(instance=..."
_PROMPT_IN_MESSAGE = re.compile(
    r"(?:Request: )?\[?\b(?:Request|RequestState|Instance|Input)\(.*", re.DOTALL
)
"""The end of a message of HELM, beginning with the `repr` of an object that holds a prompt."""
_MAX_MESSAGE = 300  # the maximum length of a message from which the prompt was cut, in characters
_SHOWN_FRAMES = 8  # the number of frames of a traceback that are printed
_SHOWN_RUNS = 5  # the number of runs that a refusal names
_MAX_NAME = 200
"""The maximum length of a run folder's name, in bytes. A longer name is cut to this length, and a
hyphen and 8 digits of a hash are appended. File systems allow 255 bytes, and HELM appends a suffix
to the name.
"""


class NoInstancesError(ValueError):
    """An error that is raised because a scenario found no instances in its data."""


class EvalRunner(Runner):  # type: ignore[misc]
    """HELM's runner, which also reports phases, and shortens the names of run folders."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session = session_for(Path(self.output_path).absolute().parent)
        self._guard = network_guard.current_guard()
        if self._guard is not None:
            self._guard.report = lambda address: self._session.events.emit(
                logs.BLOCKED, place=address
            )
        self._blocked_before = 0  # the number of refused connections before the run began
        # The answered and annotated requests of the current run, for the scores of trivial answers.
        self._annotated: ScenarioState | None = None
        # HELM's executors send the requests. The wrappers add what eval-factory needs.
        asking = AskingExecutor(
            _BatchStoppingExecutor(self.executor, self._session),
            Path(self.output_path),
            has_answers=self._session.has_answers,
        )
        self.executor: Any = _ReportingExecutor(
            asking,
            before=self._before_asking,
            after=self._after_asking,
            archive_doubted=lambda: self._archive_doubted(of_model=True),
        )
        self._judging = _BatchStoppingExecutor(self.annotator_executor, self._session)
        self.annotator_executor: Any = _ReportingExecutor(
            self._judging,
            before=self._before_judging,
            after=self._after_judging,
            archive_doubted=lambda: self._archive_doubted(of_model=False),
        )

    def _get_run_path(self, run_spec: RunSpec) -> str:
        """Return the path of the run folder, with a name that every file system allows."""
        name = _NOT_IN_A_FILE_NAME.sub("_", run_spec.name)
        text = name.encode()
        if len(text) > _MAX_NAME:  # for example, an argument of the run spec is a path
            beginning = text[:_MAX_NAME].decode(errors="ignore")
            name = f"{beginning}-{hashlib.sha256(text).hexdigest()[:8]}"
        return str(Path(self.runs_path) / name)

    def run_one(self, run_spec: RunSpec) -> None:
        """Run a run spec. An answer that HELM cannot score fails its instance only."""
        with UnscorableTracker(self._report_unscorable) as self._unscorable_tracker:
            super().run_one(run_spec)
        state = self._annotated
        self._annotated = None  # frees the memory of the requests
        # Trivial answers are texts, so they have no scores if the task asks for pictures.
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
        """Run the run spec, and report a failure in the events and in the log.

        The report leaves out the prompt that HELM's message may hold.
        """
        settings = HelmRunSettings.from_environment(os.environ)
        for run_spec in self.checked_run_specs(run_specs):  # at most one run spec
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

        A doubted answer may belong to another question.

        Raises:
            PrerequisiteError: there are doubted answers, and this run has already used them.
        """
        count = self._session.archive_doubted(of_model=True)
        count += self._session.archive_doubted(of_model=False)
        if count:
            raise PrerequisiteError(
                f"{count} answers may belong to other questions: {DOUBT_REASON}\n"
                "  run the same command again: it asks these questions again"
            )

    def checked_run_specs(self, run_specs: list[RunSpec]) -> list[RunSpec]:
        """Return the run specs, or end the process if they cannot be run.

        A run folder holds a single run, so several run specs are refused. Endpoints do not return
        the log probabilities of a prompt, so methods that need them are refused too.
        """
        methods = {spec.adapter_spec.method for spec in run_specs}
        methods_and_parts = product(methods, _METHODS_WITH_LOG_PROBABILITIES)
        if any(part in method for method, part in methods_and_parts):
            message = (
                f"{run_specs[0].name} asks a model for the log probabilities of its prompts or "
                "answers, which eval-factory cannot ask for"
            )
        elif len(run_specs) > 1:
            message = f"the run entry means {len(run_specs)} runs, name one of them: " + "; ".join(
                spec.name for spec in run_specs[:_SHOWN_RUNS]
            )
        else:
            return run_specs
        print(message, file=sys.stderr, flush=True)
        self._session.events.emit(logs.REFUSED, message=message)
        sys.exit(1)

    def _report_failure(self, run_spec: RunSpec, error: Exception) -> None:
        """Report a failed run in the events; print the reason unless it was printed before."""
        endpoint_stopped = cause_of_kind(error, EndpointStopped)
        if endpoint_stopped is not None:  # The client has printed the reason.
            self._session.events.emit(
                logs.RUN_FAILED, run=run_spec.name, error=str(endpoint_stopped), stopped=True
            )
            return
        unmet_prerequisite = cause_of_kind(error, PrerequisiteError)
        if unmet_prerequisite is not None:
            reason = str(unmet_prerequisite)
            print(logs.stop_line(reason, os.environ), file=sys.stderr, flush=True)
            # FATAL, because the parent process would add an explanation to a RUN_FAILED.
            self._session.events.emit(logs.FATAL, role=MODEL_ROLE, message=reason)
            return
        redactor = self._session.redactor
        # HELM logs lines of the level INFO only with --debug. Only then may a prompt be shown.
        is_debug = logging.getLogger("helm").isEnabledFor(logging.INFO)
        if is_debug:
            message = one_line(redactor.redact_text(str(error)), MAX_LOG_LINE)
        else:
            message = safe_message(error, redactor)
        for frame in traceback.extract_tb(innermost_cause(error).__traceback__)[-_SHOWN_FRAMES:]:
            print(f"  {frame.filename}:{frame.lineno} in {frame.name}", file=sys.stderr)
        print(message, file=sys.stderr, flush=True)
        self._session.events.emit(logs.RUN_FAILED, run=run_spec.name, error=message, stopped=False)

    def _before_asking(self, state: ScenarioState) -> None:
        """Check that the run can ask the model, and report the beginning of the phase."""
        _wait_for_probes()
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

        Some scenarios ignore a file that they could not download. The run would then have fewer
        instances and a different score.
        """
        blocked = self._guard.blocked[self._blocked_before :] if self._guard else []
        if blocked:
            raise network_guard.BlockedConnectionError(
                f"offline: the benchmark's data would have to be downloaded from {blocked[0]}"
            )

    def _archive_doubted(self, *, of_model: bool) -> bool:
        """Archive the answers that may belong to another question; return True if there are any.

        This method first waits until no further answer can become doubted. `of_model` is True for
        the answers of the model, and False for the answers of the judges.
        """
        waiting_times = []  # in seconds
        for role, client in self._session.clients.items():
            is_model = role == MODEL_ROLE
            if is_model == of_model:
                waiting_times.append(client.settling_s)
        time.sleep(max(waiting_times, default=0.0))
        count = self._session.archive_doubted(of_model=of_model)
        if count:
            role = MODEL_ROLE if of_model else "judges"
            message = f"{count} answers are asked for again: {DOUBT_REASON}"
            self._session.events.emit(logs.WARNING, role=role, message=message)
        return count > 0

    def _after_asking(self, _state: ScenarioState) -> None:
        """Check that all answers are stored, and apply the patches of the stage SCORING.

        Raises:
            PrerequisiteError: this run only scores the stored answers again, after a change of the
                configuration, and some answers are not stored.
        """
        self._session.report(MODEL_ROLE, final=True)
        # Check for missing answers before any judge is asked, because judges cost money.
        count = len(self._session.not_stored)
        if count > 0:
            total = self._session.counters[MODEL_ROLE].total
            problem = f"{count} of {total} answers of the model are not stored"
            raise PrerequisiteError(
                f"{problem}: this change alters the requests to the model; run_eval sends them"
            )
        patch_registry.apply_patches(Stage.SCORING)
        run_record.note(patches=patch_registry.applied_patch_names())

    def _before_judging(self, state: ScenarioState) -> None:
        """Report the beginning of the phase, if the run has annotators."""
        self._unscorable_tracker.watch(state)
        if state.annotator_specs:
            self._session.events.emit(
                logs.PHASE, phase=logs.JUDGING, total=requests_to_judges(state)
            )

    def _after_judging(self, state: ScenarioState) -> None:
        """Probe the judges if the settings ask for it, and report the beginning of the scoring."""
        self._unscorable_tracker.watch(state)
        if state.annotator_specs and HelmRunSettings.from_environment(os.environ).probe_judges:
            self._probe_judges(state)
        self._annotated = state
        self._session.events.emit(logs.PHASE, phase=logs.SCORING)

    def _probe_judges(self, state: ScenarioState) -> None:
        """Let the judges rate an answer without content, and record the judges' verdicts.

        The answer (`PADDED_ANSWER`) is rated as the answer to each of a few questions. If this
        fails, a warning is emitted, and the run goes on.
        """
        originals = [
            request_state
            for request_state in state.request_states
            if request_state.instance.perturbation is None
        ]

        # Draw the questions by a hash of their ids, so that every run draws the same questions.
        def rank(request_state: RequestState) -> bytes:
            return hashlib.sha256(str(request_state.instance.id).encode()).digest()

        result = successful_result(PADDED_ANSWER)
        probes = []
        for drawn in sorted(originals, key=rank)[:PADDED_QUESTION_COUNT]:
            probes.append(replace(drawn, annotations=None, result=result))
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

    If the run only generates pictures, all metrics that look at pictures are left out. In every
    other run, the metrics that this machine cannot compute are left out (`settings.uncomputed`).
    """
    if not (settings.only_generate or settings.uncomputed):
        return run_spec
    metric_specs = []
    for metric_spec in run_spec.metric_specs:
        if settings.only_generate:
            is_left_out = looks_at_pictures(metric_spec)
        else:
            is_left_out = metric_spec.class_name in settings.uncomputed
        if not is_left_out:
            metric_specs.append(metric_spec)
    return replace(run_spec, metric_specs=metric_specs)


def looks_at_pictures(metric_spec: Any) -> bool:
    """Return True if the metric looks at generated pictures. Only such a metric needs torch."""
    _, separator, name = metric_spec.class_name.partition(".metrics.image_generation.")
    is_in_package = bool(separator)
    # The only metric of HELM's package for pictures that does not look at them.
    return is_in_package and name != "efficiency_metrics.EfficiencyMetric"


def import_run_parts(run_spec: RunSpec) -> None:
    """Import and patch the scenario, the metrics and the annotators of a run spec.

    A missing package of a metric or an annotator is thereby found before the first request.
    """
    for part in (run_spec.scenario_spec, *run_spec.metric_specs, *(run_spec.annotators or ())):
        get_class_by_name(part.class_name)  # imports the module of the class
    patch_registry.apply_patches(Stage.IMPORTED)


def _wait_for_probes() -> None:
    """Wait until the parent process has probed the endpoints, and add the outcome to the settings.

    The parent probes while HELM is imported. Then the parent writes a line to this process's
    standard input: the list of the roles whose endpoints answered. If an endpoint cannot be asked,
    the parent closes standard input without a line, and this process ends.
    """
    settings = HelmRunSettings.from_environment(os.environ)
    if settings.parent is None or settings.probed is not None:
        return  # There is no parent that probes, or the endpoints were probed before the start.
    line = sys.stdin.readline().strip()
    if not line:
        sys.exit(1)
    os.environ.update(replace(settings, probed=frozenset(json.loads(line))).environment())


class _BatchStoppingExecutor:
    """A wrapper of an executor of HELM that ends the run if requests wait for a batch.

    The run cannot go on, because the next steps need the answers of the batch.
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

    def __init__(
        self,
        inner: Any,
        *,
        before: Callable[[ScenarioState], None],
        after: Callable[[ScenarioState], None],
        archive_doubted: Callable[[], bool],
    ) -> None:
        """Wrap an executor.

        Args:
            inner: the executor to wrap.
            before: called with the unanswered requests.
            after: called with the answered requests.
            archive_doubted: archives the answers that have to be asked for again, and returns True
                if there are any.
        """
        self._inner = inner
        self._before = before
        self._after = after
        self._archive_doubted = archive_doubted
        # HELM reads from this spec the number of threads for its metrics, which only compute. The
        # inner executor has its own spec for the number of parallel requests.
        threads = min(inner.execution_spec.parallelism, os.cpu_count() or 1)
        self.execution_spec = replace(inner.execution_spec, parallelism=threads)

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        self._before(scenario_state)
        state = self._inner.execute(scenario_state)
        if self._archive_doubted():
            # The cache answers all requests whose answer was not archived.
            state = self._inner.execute(scenario_state)
        if state is not scenario_state:
            # Free memory: HELM's `run_one` still refers to the unanswered requests, which nothing
            # reads any more.
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
    cause = innermost_cause(error)
    if isinstance(cause, scenarios.DownloadError):
        return f"{type(cause).__name__}: {one_line(redactor.redact_text(str(cause)), MAX_LOG_LINE)}"
    text = redactor.redact_text(_PROMPT_IN_MESSAGE.sub("", str(cause)).strip())
    return f"{type(cause).__name__}: {one_line(text, _MAX_MESSAGE)}"


class _Measured(Exception):
    """An error that ends a run after its requests were measured and before any request is sent."""


class MeasuringRunner(EvalRunner):
    """A runner that measures the requests of a run, and ends the run before the first request."""

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
            judge_requests=requests_to_each_judge(state),
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


def prompt_bytes(request: Request) -> int:
    """Return the size of the text that a request sends to the model, in bytes of UTF-8."""
    if request.messages:
        texts = [str(turn.get("content", "")) for turn in request.messages]
    elif request.multimodal_prompt and not request.prompt:
        texts = [request.multimodal_prompt.text]
    else:
        texts = [request.prompt]
    # UTF-8 has no bytes for a lone surrogate, which a broken data set may hold.
    return sum(len(text.encode("utf-8", errors="replace")) for text in texts)
