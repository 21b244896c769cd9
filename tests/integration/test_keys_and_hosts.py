"""A key goes to the one host that it is named for, in every way in which a configuration can be written.

Two endpoints keep the Authorization of each request, probes among them; the environment is full of keys.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory import api
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.foreign_configs import translate_config
from eval_factory.config.resolved import Evaluation
from eval_factory.config.suite import build_suite
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.secrets import Redactor
from eval_factory.core.urls import SERVED_AT
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.preflight import probe
from eval_factory.plan.run_plan import key_destination_lines, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.leaderboard.board import LeaderboardRequest, make_board
from eval_factory.workflows.reproduce import without_unset
from eval_factory.workflows.suite.slurm_run import suite_of
from facts import naming
from integration.test_juries import medication_questions
from jury_endpoint import judgement
from program_runs import program, program_environment
from scripted_endpoint import ScriptedEndpoint

NONE = ""
VARIABLES = (
    "OPENAI_API_KEY",
    "GPT_JUDGE_API_KEY",
    "LLAMA_JUDGE_API_KEY",
    "CLAUDE_JUDGE_API_KEY",
    "OWN_KEY",
    "JUDGE_KEY",
    "API_KEY",
    "ANTHROPIC_API_KEY",
)
KEYS = {
    name: f"nvapi-canary-{number}-0123456789-{name.lower()}"
    for number, name in enumerate(VARIABLES)
}
MAIN, GPT, LLAMA, CLAUDE, OWN, JUDGE, *_ = VARIABLES
JURY = {GPT, LLAMA, CLAUDE}
ENV = {"HF_HUB_OFFLINE": "1", **KEYS}


class Recorder(ScriptedEndpoint):
    """Which variables' keys came here; `NONE` where a request had no Authorization."""

    def __init__(self) -> None:
        super().__init__(
            lambda prompt: judgement(prompt, 4) if "Output Format:" in prompt else "With water."
        )
        self.authorizations: set[str | None] = set()

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        self.authorizations.add(headers.get("Authorization"))
        return super().reply(path, headers, body)

    @property
    def keys(self) -> set[str]:
        known = {f"Bearer {key}": name for name, key in KEYS.items()} | {None: NONE}
        return {known[one] for one in self.authorizations}


@pytest.fixture
def a() -> Iterator[Recorder]:
    with Recorder() as server:
        yield server


@pytest.fixture
def b() -> Iterator[Recorder]:
    with Recorder() as server:
        yield server


@dataclass(frozen=True)
class World:
    """The target is at `a`; judges may be at `b`."""

    a: str
    b: str
    folder: Path

    def config(self, endpoint: Mapping[str, Any] = {}, **extra: Any) -> dict[str, Any]:
        params = {"limit_samples": 2, "parallelism": 2, "extra": {"num_train_trials": 1, **extra}}
        return {
            "config": {
                "type": "medication_qa",
                "output_dir": str(self.folder / "out"),
                "params": params,
            },
            "target": {"api_endpoint": {"url": self.a, "model_id": "org/model", **endpoint}},
        }

    def file(self, document: Mapping[str, Any], name: str = "config.yml") -> Path:
        path = self.folder / name
        path.write_text(yaml.safe_dump(dict(document)))
        return path

    def run(self, endpoint: Mapping[str, Any] = {}, **extra: Any) -> list[EndpointSettings]:
        return self.of(RunRequest(run_config=self.file(self.config(endpoint, **extra))))

    def of(self, request: RunRequest) -> list[EndpointSettings]:
        return self.planned(
            build_evaluation(request, load_framework(), {**KEYS, "NAME_OF_IT": OWN})
        )

    def planned(self, evaluation: Evaluation) -> list[EndpointSettings]:
        plan = make_plan(evaluation)
        assert credentials_report(plan, KEYS).added_keys == {}
        # as helm-run reads it
        return [EndpointSettings.from_args(endpoint.to_args()) for endpoint in plan.endpoints]

    def told(
        self, *overrides: str, endpoint: Mapping[str, Any] = {}, flag: str | None = None
    ) -> list[EndpointSettings]:
        flags = {} if flag is None else {"target.api_endpoint.api_key": flag}
        return self.of(
            RunRequest(
                self.file(self.config(endpoint, **NO_JURY)), flags=flags, overrides=overrides
            )
        )

    def suite(self, document: Mapping[str, Any]) -> list[EndpointSettings]:
        found = build_suite(
            self.file({"suite": {"output_dir": str(self.folder / "s"), **document}}), env=KEYS
        )
        return list(
            chain.from_iterable(self.of(RunRequest(document=cell.document)) for cell in found.cells)
        )

    def target(self, **endpoint: Any) -> dict[str, Any]:
        return {"name": "own", "api_endpoint": {"url": self.a, "model_id": "m", **endpoint}}

    def judge(self, name: str, **judge: Any) -> dict[str, Any]:
        return {"name": name, "model_id": f"judge/{name}", **judge}

    def extended(self) -> list[EndpointSettings]:
        self.file(
            {"suite": {"evaluations": ["pubmed_qa"], "targets": [self.target(api_key=OWN)]}},
            "base.yml",
        )
        return self.suite(
            {"extends": "base.yml", "targets": [{"name": "own", "api_endpoint": {"api_key": None}}]}
        )

    def stored(self, endpoint: Mapping[str, Any], **extra: Any) -> list[EndpointSettings]:
        """The run config that `reproduce` makes of a result's run_config.yml."""
        first = build_evaluation(
            RunRequest(document=self.config(endpoint, **extra)), load_framework(), KEYS
        )
        again = without_unset(yaml.safe_load(to_yaml(first.as_dict())))
        return self.of(RunRequest(run_config=self.file(yaml.safe_load(to_yaml(again)))))

    def as_job(self, endpoint: Mapping[str, Any], **extra: Any) -> list[EndpointSettings]:
        """A run as a job of Slurm: what its task reads."""
        document = {
            **self.config(endpoint, **extra),
            "executor": "slurm",
            "slurm": {"partition": "p"},
        }
        evaluation = build_evaluation(RunRequest(document=document), load_framework(), KEYS)
        suite = suite_of(evaluation, make_plan(evaluation), KEYS)
        return list(
            chain.from_iterable(self.of(RunRequest(document=cell.document)) for cell in suite.cells)
        )

    def leaderboard(self, **endpoint: Any) -> list[EndpointSettings]:
        conf = self.folder / "own.conf"
        conf.write_text('entries: [{description: "medication_qa:model=text", priority: 1}]')
        config = {"target": {"api_endpoint": {"url": self.a, "model_id": "m", **endpoint}}}
        request = LeaderboardRequest("medhelm_public", {}, run_config=self.file(config), conf=conf)
        board = make_board(request, KEYS, io.StringIO())
        return list(
            chain.from_iterable(
                self.of(RunRequest(document=cell.cell.document)) for cell in board.cells
            )
        )

    def imported(self, **endpoint: Any) -> list[EndpointSettings]:
        told = {"url": f"{self.a}/chat/completions", "model_id": "m", "type": "chat", **endpoint}
        theirs = {"config": {"type": "pubmed_qa"}, "target": {"api_endpoint": told}}
        ours = translate_config(self.file(theirs), load_framework()).document
        return self.of(RunRequest(document=ours))


NO_JURY: dict[str, Any] = {
    "gpt_judge_api_key": None,
    "llama_judge_api_key": None,
    "claude_judge_api_key": None,
}
NULL = {"api_key": None}
NAMED = {"api_key": OWN}

WAYS: dict[str, tuple[Callable[[World], list[EndpointSettings]], set[str], set[str]]] = {
    "file: null": (lambda w: w.run(NULL, **NO_JURY), {NONE}, set()),
    "file: api_key_name null": (lambda w: w.run({"api_key_name": None}, **NO_JURY), {NONE}, set()),
    "file: absent": (lambda w: w.run(**NO_JURY), {MAIN, NONE}, set()),
    "file: a name": (lambda w: w.run(NAMED, **NO_JURY), {OWN, NONE}, set()),
    "file: a variable's default": (
        lambda w: w.run({"api_key": "${UNSET:-}"}, **NO_JURY),
        {NONE},
        set(),
    ),
    "file: a variable's name": (
        lambda w: w.run({"api_key": "${NAME_OF_IT}"}, **NO_JURY),
        {OWN, NONE},
        set(),
    ),
    "override: null": (
        lambda w: w.told("target.api_endpoint.api_key=null", endpoint=NAMED),
        {NONE},
        set(),
    ),
    "override: null over nothing": (
        lambda w: w.told("target.api_endpoint.api_key_name=null"),
        {NONE},
        set(),
    ),
    "override: a name over null": (
        lambda w: w.told(f"target.api_endpoint.api_key={OWN}", endpoint=NULL),
        {OWN, NONE},
        set(),
    ),
    "flag: a name over null": (lambda w: w.told(endpoint=NULL, flag=OWN), {OWN, NONE}, set()),
    "dict": (lambda w: w.of(RunRequest(document=w.config(NULL, **NO_JURY))), {NONE}, set()),
    "default jury": (lambda w: w.run(), {MAIN, *JURY}, set()),
    "default jury: one null": (
        lambda w: w.run(gpt_judge_api_key=None),
        {MAIN, LLAMA, CLAUDE, NONE},
        set(),
    ),
    "judges elsewhere": (lambda w: w.run(judges=[w.judge("x", url=w.b)]), {MAIN}, {NONE}),
    "judges elsewhere: null": (
        lambda w: w.run(judges=[w.judge("x", url=w.b, **NULL)]),
        {MAIN},
        {NONE},
    ),
    "judges elsewhere: a name": (
        lambda w: w.run(NULL, judges=[w.judge("x", url=w.b, api_key_name=JUDGE)]),
        {NONE},
        {JUDGE},
    ),
    "judges here": (lambda w: w.run(NAMED, judges=[w.judge("x")]), {OWN}, set()),
    "judges here: null": (
        lambda w: w.run(NAMED, judges=[w.judge("x", **NULL)]),
        {OWN, NONE},
        set(),
    ),
    "judges here: a variable's default": (
        lambda w: w.run(NAMED, judges=[w.judge("x", api_key="${UNSET:-}")]),
        {OWN, NONE},
        set(),
    ),
    "several servers: a name": (
        lambda w: w.run({**NAMED, "url": [w.a, w.b]}, **NO_JURY),
        {OWN, NONE},
        {OWN, NONE},
    ),
    "several servers: null": (
        lambda w: w.run({**NULL, "url": [w.a, w.b]}, **NO_JURY),
        {NONE},
        {NONE},
    ),
    "several servers: a judge at one of them": (
        lambda w: w.run({**NAMED, "url": [w.a, w.b]}, judges=[w.judge("x", url=w.b)]),
        {OWN},
        {OWN},
    ),
    "a judge's servers: one is not the target's": (
        lambda w: w.run(judges=[w.judge("x", url=[w.a, w.b])]),
        {MAIN, NONE},
        {NONE},
    ),
    "a judge's servers: a name": (
        lambda w: w.run(NULL, judges=[w.judge("x", url=[w.a, w.b], api_key=JUDGE)]),
        {NONE, JUDGE},
        {JUDGE},
    ),
    "stored: several servers": (
        lambda w: w.stored({"url": [w.a, w.b]}, judges=[w.judge("x"), w.judge("y", url=w.b)]),
        {MAIN},
        {MAIN},
    ),
    "job: several servers": (
        lambda w: w.as_job({**NAMED, "url": [w.a, w.b]}, **NO_JURY),
        {OWN, NONE},
        {OWN, NONE},
    ),
    "suite: several servers": (
        lambda w: w.suite(
            {"evaluations": ["pubmed_qa"], "targets": [w.target(url=[w.a, w.b], api_key=OWN)]}
        ),
        {OWN},
        {OWN},
    ),
    "leaderboard: several servers": (
        lambda w: w.leaderboard(url=[w.a, w.b], **NAMED),
        {OWN, *JURY},
        {OWN, *JURY},
    ),
    "stored: null": (lambda w: w.stored(NULL, **NO_JURY), {NONE}, set()),
    "stored: absent": (
        lambda w: w.stored({}, judges=[w.judge("x"), w.judge("y", url=w.b)]),
        {MAIN},
        {NONE},
    ),
    "stored: judges null": (
        lambda w: w.stored({}, judges=[w.judge("x", **NULL)]),
        {MAIN, NONE},
        set(),
    ),
    "job: null": (lambda w: w.as_job(NULL, **NO_JURY), {NONE}, set()),
    "job: judges null": (
        lambda w: w.as_job(NAMED, judges=[w.judge("x", **NULL)]),
        {OWN, NONE},
        set(),
    ),
    "suite: two providers": (
        lambda w: w.suite(
            {
                "evaluations": ["pubmed_qa"],
                "targets": [
                    w.target(**NULL),
                    {"name": "hosted", "api_endpoint": {"url": w.b, "model_id": "m"}},
                ],
            }
        ),
        {NONE},
        {MAIN},
    ),
    "suite: null over an extended name": (lambda w: w.extended(), {NONE}, set()),
    "suite: params and judges": (
        lambda w: w.suite(
            {
                "evaluations": ["medication_qa", "medi_qa"],
                "params": {"extra": {"gpt_judge_api_key": None}},
                "targets": [w.target(**NULL)],
                "judges": [w.judge("x", url=w.b, api_key=JUDGE), w.judge("y", url=w.b)],
            }
        ),
        {NONE},
        {JUDGE, NONE},
    ),
    "suite: a served model and its judge": (
        lambda w: w.suite(
            {
                "evaluations": ["medication_qa"],
                "judges": [w.judge("x"), w.judge("y", url=w.b, api_key=JUDGE)],
                "targets": [
                    {
                        "name": "own",
                        "api_endpoint": {"model_id": "m"},
                        "serve": {"command": "vllm serve m --port {port}"},
                    }
                ],
            }
        ),
        {NONE},
        {JUDGE},
    ),
    "leaderboard: null": (lambda w: w.leaderboard(**NULL), {NONE, *JURY}, set()),
    "leaderboard: a name": (lambda w: w.leaderboard(**NAMED), {OWN, *JURY}, set()),
    "imported: null": (lambda w: w.imported(**NULL), {NONE}, set()),
    "imported: api_key_name null": (lambda w: w.imported(api_key_name=None), {NONE}, set()),
}
"""How it is written -> the plans' endpoints, whose keys may reach `a`, and `b`."""


@pytest.mark.parametrize("way", WAYS)
def test_a_key_goes_to_the_host_that_it_is_named_for(
    way: str, a: Recorder, b: Recorder, tmp_path: Path
) -> None:
    planned, at_a, at_b = WAYS[way]
    endpoints = planned(World(a.url, b.url, tmp_path))
    for endpoint in endpoints:
        env = {**KEYS, SERVED_AT: a.url.removesuffix("/v1")}
        assert probe(endpoint, env, Redactor(), lambda _text: None) is None
    assert (a.keys, b.keys) == (at_a, at_b)
    named = {
        name
        for line, name in product(key_destination_lines(endpoints), VARIABLES)
        if name in line.split(": ")[1].split()
    }
    assert named >= (a.keys | b.keys) - {NONE}


def test_a_null_and_a_name_at_once_are_a_mistake(tmp_path: Path) -> None:
    for endpoint in (
        {"api_key": None, "api_key_name": OWN},
        {"api_key": OWN, "api_key_name": None},
    ):
        with pytest.raises(Exception, match=naming("api_key and api_key_name")):
            World("http://127.0.0.1:9/v1", "", tmp_path).run(endpoint)


def test_runs_of_a_model_without_a_key(a: Recorder, b: Recorder, tmp_path: Path) -> None:
    """`run_eval`, its printed command in a shell, `reproduce --run` without any key, and Python's `evaluate`."""
    world = World(a.url, b.url, tmp_path)
    judges = [
        world.judge("named", url=b.url, api_key=JUDGE),
        world.judge("none", url=b.url, api_key=None),
    ]
    document = world.config(NULL, judges=judges)
    medication_questions(tmp_path / "out" / "helm")
    file = str(world.file(document))
    finished = program("run_eval", "--run_config", file, cwd=tmp_path, **ENV)
    assert finished.returncode == 0, finished.stderr
    assert (a.keys, b.keys, len(a.requests)) == ({NONE}, {JUDGE, NONE}, 2)
    previewed = program("run_eval", "--run_config", file, "--dry_run", cwd=tmp_path, **ENV).stdout
    assert f"#   model at {a.url.removesuffix('/v1')}: no key" in previewed
    assert f"#   named at {b.url.removesuffix('/v1')}: {JUDGE}" in previewed
    assert f"#   none at {b.url.removesuffix('/v1')}: no key" in previewed
    for cache in (tmp_path / "out").glob("cache.db*"):
        cache.unlink()
    for done in (tmp_path / "out" / "helm" / "runs").rglob("stats.json"):
        done.unlink()
    pasted = shlex.split(previewed.splitlines()[-1])
    subprocess.run(
        pasted, env=program_environment(**ENV), check=True, capture_output=True, cwd=tmp_path
    )
    assert (a.keys, b.keys, len(a.requests)) == ({NONE}, {JUDGE, NONE}, 4)
    again = tmp_path / "again"
    medication_questions(again / "helm")
    without = [
        {name: value for name, value in judge.items() if name != "url"} for judge in judges[1:]
    ]
    evaluated = tmp_path / "dict"
    medication_questions(evaluated / "helm")
    document = world.config(NULL, judges=without)
    document["config"]["output_dir"] = str(evaluated)
    api.evaluate(document, env={**os.environ, **ENV})
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}  # no key at all
    api.run_again(
        evaluated, again, env={name: value for name, value in env.items() if name not in KEYS}
    )
    assert api.reproduce(evaluated, env={}).needs == ()
    assert (a.keys, b.keys, len(a.requests)) == ({NONE}, {JUDGE, NONE}, 12)


def test_a_suite_with_a_provider_beside_an_own_server(
    a: Recorder, b: Recorder, tmp_path: Path
) -> None:
    world = World(a.url, b.url, tmp_path)
    targets = [
        world.target(**NULL),
        {"name": "hosted", "api_endpoint": {"url": b.url, "model_id": "m"}},
    ]
    section = {
        "output_dir": str(tmp_path / "s"),
        "targets": targets,
        "evaluations": ["medication_qa"],
        "params": {"limit_samples": 2, "extra": {"num_train_trials": 1, **NO_JURY}},
    }
    for name in ("own", "hosted"):
        medication_questions(tmp_path / "s" / name / "medication_qa" / "helm")
    finished = program(
        "run_suite", "--run_config", str(world.file({"suite": section})), cwd=tmp_path, **ENV
    )
    assert finished.returncode == 0, finished.stderr + finished.stdout
    assert (a.keys, b.keys) == ({NONE}, {MAIN, NONE})  # the jury's keys are null
    assert len(a.requests) == len(b.requests) == 8
    locks = [path for path in (tmp_path / "s").rglob("*lock*") if path.name.endswith("lock")]
    assert {path.stat().st_mode & 0o777 for path in locks} == {0o600}
    assert {".lock", "lock"} <= {path.name for path in locks}
