from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import EndpointRefusedError, EndpointUnreachableError
from eval_factory.core.secrets import Redactor
from eval_factory.executors.served import ServedModel, ServerFailedError, ServerSpec
from eval_factory.workflows.suite import cell_loop, local_suite
from eval_factory.workflows.suite.cell_loop import Work
from eval_factory.workflows.suite.local_suite import run_by_server, server_spec
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.suite_journal import SuiteJournal, SuiteObserver
from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions
from facts import says
from slurm_cells import cells_of

ENV = {
    "OPENAI_API_KEY": "sk-012345678901234567890",
    "MINE": "m",
    "MY_TOKEN": "a-secret-value-0123456",
    "PATH": "/bin",
}


class Server:
    """In place of the real one."""

    def __init__(self, world: World, spec: ServerSpec) -> None:
        self.world = world
        self.spec = spec
        self.name = spec.name
        self.ready = True

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.world.happened.append(f"end {self.name}")

    def start(self) -> None:
        self.world.happened.append(f"start {self.name}")
        if self.name in self.world.broken:
            raise ServerFailedError(f"the server of {self.name} is not ready\n  its last lines:")

    @property
    def logs(self) -> tuple[Path, ...]:
        return (self.spec.log,)

    def is_ready(self) -> bool:
        return self.ready


class World:
    """A suite of an endpoint that is there and of two models that are served."""

    def __init__(self, folder: Path) -> None:
        seen = ["MINE", "MY_TOKEN", "ABSENT", "CUDA_VISIBLE_DEVICES={replica}"]
        serve = {"command": "vllm serve m --port {port}", "env": seen, "stop_grace_s": 3}
        targets = [
            {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
            {"name": "b", "api_endpoint": {"url": "https://b.example/v1", "model_id": "m"}},
            {
                "name": "c",
                "api_endpoint": {"model_id": "m", "api_key": "OPENAI_API_KEY"},
                "serve": {**serve, "env": []},
            },
        ]
        suite, cells = cells_of(
            folder, targets=targets, evaluations=["sample_medical_qa", "medbullets"]
        )
        suite.folder.state.mkdir(parents=True)
        journal = SuiteJournal(suite.folder, Redactor(), SuiteObserver())
        self.work = Work(suite, SuiteOptions(), ENV, journal, cells, Redactor())
        self.happened: list[str] = []
        self.broken: set[str] = set()
        self.status = RunStatus.COMPLETE

    def run(self, work: Work, cells: Sequence[PlannedCell], server: ServedModel | None) -> None:
        names = {planned.cell.target for planned in cells}
        assert server is None or {server.name} == names  # type: ignore[attr-defined]
        self.happened.append(
            f"run {' '.join(sorted(names))} {len(cells)}{'' if server else ' without'}"
        )
        for planned in cells:
            self.report(planned)

    def report(self, planned: PlannedCell) -> None:
        self.work.reports[planned.number] = CellReport.of(
            planned.cell, self.status, None, exit_code=0
        )

    def came_to(self) -> dict[str, tuple[str, int, str | None]]:
        return {
            one.name: (one.status, one.exit_code, one.reason) for one in self.work.reports.values()
        }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path / "s")
    monkeypatch.setattr(local_suite, "ServedModel", lambda spec, *_: Server(world, spec))
    return world


def test_endpoints_that_are_there_come_first_and_then_one_server_after_another(
    world: World,
) -> None:
    run_by_server(world.work, world.run)
    assert world.happened == [
        "run b 2 without",
        "start a",
        "run a 2",
        "end a",
        "start c",
        "run c 2",
        "end c",
    ]
    log = world.work.suite.folder.log.read_text()
    says(log, "warning: ", "server of a", "ABSENT (serve.env) is not")
    assert log.count("warning") == 1


def test_nothing_is_served_for_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for planned in world.work.cells:
        if planned.cell.target != "c":
            world.report(planned)
    run_by_server(world.work, world.run)
    assert world.happened == ["start c", "run c 2", "end c"]
    world.happened.clear()
    world.work.reports.clear()
    monkeypatch.setattr(local_suite, "is_complete_run", lambda _plan: True)
    run_by_server(world.work, world.run)
    assert world.happened == ["run b 2 without", "run a 2 without", "run c 2 without"]


def test_a_server_that_does_not_start_fails_its_cells_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.broken = {"a"}
    first = world.work.cells[0]
    monkeypatch.setattr(cell_loop, "has_usable_partial_result", lambda plan: plan is first.plan)
    run_by_server(world.work, world.run)
    assert world.happened == ["run b 2 without", "start a", "end a", "start c", "run c 2", "end c"]
    reason = "not started: the server of a is not ready"
    assert world.came_to()["a/sample_medical_qa"] == ("partial", 3, reason)
    assert world.came_to()["a/medbullets"] == ("failed", 3, reason)
    events = [json.loads(line) for line in world.work.suite.folder.events.read_text().splitlines()]
    told = [("cell_ended", "partial", 0), ("cell_ended", "failed", 0)]
    assert [(one["event"], one["status"], one["attempt"]) for one in events] == told
    assert "its last lines" in world.work.suite.folder.log.read_text()


def test_a_model_that_is_gone_is_waited_for_where_it_has_answered_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge is not waited for, nor a model that refuses or that never answered."""
    gone = EndpointUnreachableError("nobody is there\n  start it")
    refused = EndpointRefusedError("the key")
    problems = [
        ("model", gone),
        ("gpt", gone),
        ("model", refused),
        ("model", gone),
        None,
        ("model", gone),
    ]
    groups = ["before", "before", "before", "new", "before", "before"]
    cells = [
        replace(planned, group=group)
        for planned, group in zip(world.work.cells, groups, strict=True)
    ]
    paused: list[tuple[int, str]] = []
    monkeypatch.setattr(local_suite, "groups_that_answered", lambda _cells: {"before"})
    monkeypatch.setattr(local_suite, "is_complete_run", lambda plan: plan is cells[5].plan)
    local_suite._pause_or_fail_unreachable(
        world.work,
        cells,
        cast(Any, SimpleNamespace(problem_of=lambda cell: problems[cells.index(cell)])),
        cast(Any, SimpleNamespace(pause=lambda cell, why: paused.append((cell.number, why)))),
    )
    assert paused == [(cells[0].number, "nobody is there")]
    failed = {cells[number].cell.name for number in (1, 2, 3)}
    assert world.came_to().keys() == failed
    reasons = ["not started: nobody is there", "not started: the key"]
    assert [world.came_to()[cells[number].cell.name] for number in (1, 2)] == [
        ("failed", 3, reason) for reason in reasons
    ]


def test_what_is_served(world: World) -> None:
    suite = world.work.suite
    cells = world.work.cells
    spec = server_spec(suite, "a", [one for one in cells if one.cell.target == "a"], ENV)
    assert spec.words == ("vllm", "serve", "m", "--port", "{port}")
    assert spec.health == "http://127.0.0.1:{port}/health"
    assert (spec.replicas, spec.launch, spec.settings) == (
        1,
        (),
        {"CUDA_VISIBLE_DEVICES": "{replica}"},
    )
    assert spec.log == suite.folder.root / ".suite" / "servers" / "a.log"
    assert spec.env == {
        "PATH": "/bin",
        "MINE": "m",
        "MY_TOKEN": ENV["MY_TOKEN"],
        "PYTHONUNBUFFERED": "1",
    }
    assert (spec.name, spec.start_time_limit_s, spec.hang_time_limit_s) == ("a", 1800.0, 120.0)
    assert (spec.stop_grace_s, spec.max_restarts) == (3.0, 2)
    assert set(spec.secrets) == {ENV["MY_TOKEN"]}  # nobody named a key for it
    with_path = server_spec(
        suite, "c", [one for one in cells if one.cell.target == "c"], {"OPENAI_API_KEY": __file__}
    )
    assert with_path.secrets == ()


def test_what_is_served_by_the_steps_of_a_job(world: World) -> None:
    """They find their job by Slurm's own variables."""
    suite = world.work.suite
    env = {"PATH": "/bin", "SLURM_JOB_ID": "7", "SLURM_JWT_TOKEN": "hidden", "OTHER": "o"}
    assert "SLURM_JOB_ID" not in server_spec(suite, "a", (), env).env
    spec = server_spec(suite, "a", (), env)
    assert (spec.replicas, spec.launch) == (1, ())
    spec = server_spec(
        replace(suite, serve={"a": {**suite.serve["a"], "replicas": 2, "launch": ["srun"]}}),
        "a",
        (),
        env,
    )
    assert (spec.replicas, spec.launch) == (2, ("srun",))
    assert spec.env == {"PATH": "/bin", "SLURM_JOB_ID": "7", "PYTHONUNBUFFERED": "1"}


def test_what_a_server_sees_of_the_environment(world: World) -> None:
    def seen(*names: str) -> Mapping[str, str]:
        suite = replace(
            world.work.suite, serve={"a": {**world.work.suite.serve["a"], "env": list(names)}}
        )
        return server_spec(suite, "a", (), env).env

    env = {
        "PATH": "/bin",
        "CUDA_HOME": "/cuda",
        "HF_TOKEN": "h",
        "OPENAI_API_KEY": "k",
        "GPT_JUDGE_API_KEY": "j",
        "NCCL_SECRET": "n",
        "MINE": "m",
        "OTHER": "o",
    }
    expected = {"PATH": "/bin", "CUDA_HOME": "/cuda", "MINE": "m", "PYTHONUNBUFFERED": "1"}
    assert seen("MINE", "ABSENT") == expected
    assert seen("HF_TOKEN")["HF_TOKEN"] == "h"
