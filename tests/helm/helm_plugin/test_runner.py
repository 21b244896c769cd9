"""The run of a helm-run: what is told of it, and what is refused."""

from __future__ import annotations

import json
import stat
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helm.benchmark.adaptation import adapter_spec
from helm.benchmark.executor import ExecutionSpec
from helm.benchmark.model_deployment_registry import (
    DEPLOYMENT_NAME_TO_MODEL_DEPLOYMENT,
    ClientSpec,
    ModelDeployment,
)
from helm.common.authentication import Authentication
from helm.common.media_object import MediaObject, MultimediaObject
from helm.common.request import Request

from eval_factory.core import logs
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.logs import EventWriter
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.helm_plugin import runner
from eval_factory.helm_plugin.client import EndpointStopped
from eval_factory.helm_plugin.patches import patch_registry
from eval_factory.helm_plugin.patches.patch_registry import Stage
from eval_factory.helm_plugin.session import RunRecord
from facts import says
from seeing_endpoint import picture

KEY = "9bQzCANARY7Kd0PLx2MnWv8RtYs4Hj6GfEe1"


class Told:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ends: list[int] = []
        """How many events there were when a run was asked for a limit that it reached."""

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})

    def named(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]


def bare(kind: type[runner.EvalRunner], tmp_path: Path) -> tuple[Any, Told]:
    """HELM's constructor is not called."""
    told = Told()
    made: Any = object.__new__(kind)
    made.output_path = str(tmp_path)
    made.runs_path = str(tmp_path / "runs")
    made._session = SimpleNamespace(
        archive_doubted=lambda **_: 0,
        events=told,
        redactor=Redactor([KEY]),
        report=lambda *_, **__: None,
        report_limit=lambda: told.ends.append(len(told.events)),
        not_stored=(),
        has_answers=False,
    )
    made._guard = None
    return made, told


def runner_of(tmp_path: Path, outcomes: dict[str, Exception | None]) -> tuple[Any, Told]:
    """A runner whose runs end as `outcomes` says."""
    made, told = bare(runner.EvalRunner, tmp_path)

    def run_one(run_spec: Any) -> None:
        outcome = outcomes[run_spec.name]
        if outcome is not None:
            raise outcome
        made._after_asking(None)

    made.run_one = run_one
    return made, told


def fails_with(error: Exception, tmp_path: Path) -> Told:
    made, told = runner_of(tmp_path, {"a": error})
    with pytest.raises(SystemExit):
        made.run_all(specs("a"))
    return told


def specs(*names: str, method: str = "generation") -> list[Any]:
    adapter = SimpleNamespace(method=method, image_generation_parameters=None)
    scenario = SimpleNamespace(class_name="json.JSONEncoder")  # a class that is there
    parts: dict[str, Any] = {"scenario_spec": scenario, "metric_specs": [], "annotators": None}
    return [SimpleNamespace(name=name, adapter_spec=adapter, **parts) for name in names]


@pytest.mark.parametrize("part", ["metric_specs", "annotators"])
def test_what_a_part_lacks_is_found_before_anything_is_asked(part: str, tmp_path: Path) -> None:
    made, told = runner_of(tmp_path, {"a": AssertionError("it was run")})
    (spec,) = specs("a")
    setattr(spec, part, [SimpleNamespace(class_name="no_such_package.metrics.Metric")])
    with pytest.raises(SystemExit):
        made.run_all([spec])
    says(told.named(logs.RUN_FAILED)[0]["error"], "ModuleNotFoundError: ", "'no_such_package'")


def executed(before: Any, after: Any) -> Any:
    """Return what our executor makes of a state where HELM's makes `after` of it."""
    spec = ExecutionSpec(url=None, auth=Authentication(""), local_path="x", parallelism=64)
    inner = SimpleNamespace(execute=lambda _state: after, execution_spec=spec)
    reporting = runner._ReportingExecutor(
        inner, before=lambda _state: None, after=lambda _state: None, archive_doubted=lambda: False
    )
    return reporting.execute(before)


def test_requests_are_let_go_when_they_are_answered() -> None:
    before, after = (
        SimpleNamespace(request_states=[1, 2], request_state_map={1: [2]}, instances=[3])
        for _ in range(2)
    )
    assert executed(before, after) is after
    assert (before.request_states, before.request_state_map, before.instances) == ([], {}, [])
    assert (after.request_states, after.request_state_map, after.instances) == (
        [1, 2],
        {1: [2]},
        [3],
    )
    assert executed(after, after).request_states == [1, 2]  # nothing was to be judged


def test_a_run_is_told_from_its_begin_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[Stage] = []
    monkeypatch.setattr(patch_registry, "apply_patches", stages.append)
    monkeypatch.setattr(runner, "run_record", record := RunRecord())
    made, told = runner_of(tmp_path, {"a:x=1": None})
    made.run_all(specs("a:x=1"))
    assert [event["event"] for event in told.events] == [logs.PHASE, logs.RUN_DONE]
    assert told.events[-1] == {"event": logs.RUN_DONE, "run": "a:x=1", "path": "runs/a_x=1"}
    assert stages == [Stage.IMPORTED, Stage.SCORING]
    assert "patches" in record.entries


def test_an_endpoint_that_refuses_ends_it(tmp_path: Path) -> None:
    told = fails_with(EndpointStopped("401"), tmp_path)
    assert [event["run"] for event in told.named(logs.RUN_FAILED)] == ["a"]
    assert not told.named(logs.RUN_DONE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            specs("b", method="language_modeling"),
            "b asks a model for the log probabilities of its prompts or answers",
        ),
        (specs("a", "b"), "the run entry means 2 runs, name one of them: a; b"),
    ],
)
def test_what_is_not_one_run_of_text_is_refused(
    given: list[Any], said: str, tmp_path: Path
) -> None:
    made, told = runner_of(tmp_path, {})
    with pytest.raises(SystemExit):
        made.run_all(given)
    assert [event["event"] for event in told.events] == [logs.REFUSED]
    assert told.events[0]["message"].startswith(said)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (runner.EvalRunner, "is the path of the data right"),
        (runner.MeasuringRunner, "found no instances"),
    ],
)
def test_a_run_without_instances_fails_while_its_data_are_loaded(
    kind: Any, said: str, tmp_path: Path
) -> None:
    made, told = bare(kind, tmp_path)
    with pytest.raises(runner.NoInstancesError, match=said):
        made._before_asking(SimpleNamespace(request_states=[]))
    assert told.events == []  # it never came to asking


def request(prompt: str = "", **fields: Any) -> Request:
    return Request(model="m/m", model_deployment="m/m", prompt=prompt, max_tokens=5, **fields)


def asking(asked: Request) -> Any:
    """As much of HELM's request state as is looked at."""
    return SimpleNamespace(
        request=asked,
        instance=SimpleNamespace(input=SimpleNamespace(multimedia_content=None), perturbation=None),
    )


def test_what_a_model_has_to_read_is_measured_in_bytes() -> None:
    assert runner.prompt_bytes(request("Fieber über 39")) == len("Fieber über 39") + 1
    messages = [{"role": "system", "content": "ab"}, {"role": "user", "content": "cde"}]
    assert runner.prompt_bytes(request("", messages=messages)) == 5


def test_a_measured_run_ends_where_it_would_begin_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = bare(runner.MeasuringRunner, tmp_path)
    asked = [asking(one) for one in (request("abcd"), request("abcdef", num_completions=3))]
    state = SimpleNamespace(request_states=asked, annotator_specs=None)

    def run_one(self: Any, _run_spec: Any) -> None:
        self._before_asking(state)
        pytest.fail("it asks")

    monkeypatch.setattr(runner.EvalRunner, "run_one", run_one)
    made.run_one(None)
    counts = {
        "requests": 2,
        "prompt_bytes": 10,
        "media_tokens": None,
        "most_tokens": 20,
        "judge_requests": 0,
    }
    assert told.events == [{"event": "measured", **counts}]


def test_pictures_are_measured_as_they_will_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = bare(runner.MeasuringRunner, tmp_path)
    (tmp_path / "x.png").write_bytes(picture("red", side=1024))
    shown = MediaObject("image/png", location=str(tmp_path / "x.png"))
    asked = request(
        multimodal_prompt=MultimediaObject([MediaObject("text/plain", text="Red?"), shown, shown])
    )
    state = SimpleNamespace(request_states=[asking(asked)], annotator_specs=None)
    for side, tokens in ((None, 2 * 765), (512, 2 * 255)):
        spec = ClientSpec("x", {} if side is None else {"max_image_side": side})
        monkeypatch.setitem(
            DEPLOYMENT_NAME_TO_MODEL_DEPLOYMENT, "m/m", ModelDeployment("m/m", spec)
        )
        with pytest.raises(runner._Measured):
            made._before_asking(state)
        assert (told.events[-1]["media_tokens"], told.events[-1]["prompt_bytes"]) == (tokens, 4)


def test_how_many_are_asked_is_known_before(tmp_path: Path) -> None:
    made, told = runner_of(tmp_path, {})
    made._session.expect = lambda _role, count: told.emit("expected", count=count)
    one = SimpleNamespace(
        instance=SimpleNamespace(extra_data=None, perturbation=None), request=request()
    )
    made._before_asking(SimpleNamespace(request_states=[one]))
    assert [event["event"] for event in told.events] == ["expected", logs.PHASE]


@pytest.mark.parametrize("before", [0, 280, 290, 299])
def test_a_key_in_an_error_is_redacted_before_the_error_is_cut(
    before: int, tmp_path: Path, capsys: Any
) -> None:
    told = fails_with(ValueError("x" * before + KEY), tmp_path)
    assert "x9bQz" not in told.events[-1]["error"] + capsys.readouterr().err
    assert KEY not in told.events[-1]["error"]


def test_what_is_missing_is_said_as_the_preflight_says_it(tmp_path: Path) -> None:
    last = fails_with(PrerequisiteError("MY_KEY holds a character"), tmp_path).events[-1]
    assert (last["event"], last["message"]) == (logs.FATAL, "MY_KEY holds a character")


def test_events_hold_no_key(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "events.jsonl"
    writer = EventWriter(file, "run", Redactor([KEY]))
    writer.emit(logs.RUN_FAILED, error=f"Invalid header value b'Bearer {KEY}'")
    writer._file.close()
    (line,) = file.read_text("utf-8").splitlines()
    assert json.loads(line)["error"] == f"Invalid header value b'Bearer {REDACTED}'"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_helm_raises_is_told_on_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = ValueError("odd\x1b[2J\neval-factory stops: a false line\u2028" + "x" * 1000)
    (error,) = [event["error"] for event in fails_with(odd, tmp_path).named(logs.RUN_FAILED)]
    assert error == (
        "ValueError: " + ("odd\\x1b[2J eval-factory stops: a false line " + "x" * 1000)[:300]
    )
    assert error in capsys.readouterr().err.split("\n")


@pytest.mark.parametrize("outcome", [None, ValueError("no"), EndpointStopped("max_cost")])
def test_a_limit_is_told_at_the_end_of_a_run(
    outcome: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it ends."""
    monkeypatch.setattr(patch_registry, "apply_patches", lambda _stage: None)
    made, told = runner_of(tmp_path, {"a": outcome})
    with nullcontext() if outcome is None else pytest.raises(SystemExit):
        made.run_all(specs("a"))
    assert told.ends == [len(told.events)]


ASKED = {
    "generation",
    "chat",
    "multiple_choice_joint",
    "ehr_instruction",
    "generation_multimodal",
    "multiple_choice_joint_multimodal",
    "multiple_choice_joint_chain_of_thought",
}
REFUSED = {
    "ranking_binary",
    "language_modeling",
    "multiple_choice_separate_original",
    "multiple_choice_separate_calibrated",
}


def test_by_method_what_an_endpoint_cannot_give() -> None:
    """It answers a chat: every method of HELM's was thought of."""
    known = {name: value for name, value in vars(adapter_spec).items() if name.startswith("ADAPT_")}
    methods = [method for method in known.values() if isinstance(method, str)]
    of_log_probabilities = runner._METHODS_WITH_LOG_PROBABILITIES
    assert {
        method for method in methods if any(part in method for part in of_log_probabilities)
    } == REFUSED
    assert set(methods) == ASKED | REFUSED
