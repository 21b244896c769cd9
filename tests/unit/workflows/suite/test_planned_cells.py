from __future__ import annotations

from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.resolved import Evaluation
from eval_factory.config.suite import Cell
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.upstreams import Upstream
from eval_factory.workflows.suite import planned_cells
from eval_factory.workflows.suite.planned_cells import (
    CheckedCell,
    checked_cells,
    plan_cells,
    refuse_unready,
)
from facts import each_says, naming, says
from suites import ENDPOINT, suite, target


def cells(env: dict[str, str] | None = None, **changes: Any) -> tuple[CheckedCell, ...]:
    return checked_cells(suite(**changes), env or {})


def refused(found: tuple[CheckedCell, ...], kind: type[Exception]) -> str:
    with pytest.raises(kind) as raised:
        refuse_unready(found)
    return str(raised.value)


def test_right_cells_have_a_plan() -> None:
    found = cells()
    assert [one.cell.name for one in found] == [
        "small/pubmed_qa",
        "big/pubmed_qa",
        "small/medec",
        "big/medec",
    ]
    assert all(one.is_ready and one.plan is not None for one in found)
    assert [one.plan.task_name for one in found if one.plan] == [
        "pubmed_qa",
        "pubmed_qa",
        "medec",
        "medec",
    ]
    refuse_unready(found)


def test_all_that_is_wrong_is_said_once_with_its_cells() -> None:
    wrong = [target("small"), target("big", params={"extra": {"language": "x"}})]
    found = cells(evaluations=["pubmed_qa", "medec", "clear"], targets=wrong)
    assert [one.is_ready for one in found] == [True, False, True, False, False, False]
    assert found[1].plan is None
    clear = load_framework().task("clear")
    assert clear is not None
    allowed = ", ".join(clear.helm.parameters["condition"].allowed)
    with pytest.raises(ConfigError) as raised:
        planned_cells.refuse_wrong_configs(found)
    each_says(
        [problem.splitlines()[0] for problem in raised.value.problems],
        ["big/pubmed_qa", "config.params.extra.language", "no language", "head_qa, slake, careqa"],
        ["big/medec", "config.params.extra.language", "no language"],
        [
            "every cell of clear",
            "config.params.extra.data_path",
            "is missing",
            "eval-factory ls clear",
        ],
        ["every cell of clear", "config.params.extra.condition", "is missing", *allowed.split()],
        ["big/clear", "config.params.extra.language"],
    )
    assert refused(found, ConfigError) == str(raised.value)


def test_data_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    no_data = {"type": "shc_bmt_med", "params": {"extra": {"data_path": "/nowhere.csv"}}}

    def own_data_faults(evaluation: Evaluation) -> list[str]:
        name = evaluation.task.name
        looked.append(name)
        return ["data_path: there is no such file", "it needs:"] if name == "shc_bmt_med" else []

    monkeypatch.setattr(planned_cells, "own_data_faults", own_data_faults)
    found = cells(evaluations=["pubmed_qa", no_data])
    assert looked == ["pubmed_qa", "shc_bmt_med"], "once for all targets"
    planned_cells.refuse_wrong_configs(found)
    assert [one.is_ready for one in found] == [True, True, False, False]
    assert len(found[2].missing) == 1
    says(found[2].missing[0], "data_path", "no such file", "it needs:")
    each_says(
        refused(found, PrerequisiteError).splitlines(),
        ["every cell of shc_bmt_med", "data_path", "no such file"],
        ["it needs:"],
        ["nothing was asked"],
    )


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(task: str, run_spec: str, _upstream: Upstream, **_: bool) -> None:
        if run_spec == "medec":
            raise PrerequisiteError(f"{task} needs a package")

    monkeypatch.setattr(planned_cells, "require_packages", look)
    each_says(
        refused(cells(), PrerequisiteError).splitlines(),
        ["every cell of medec", "medec needs a package"],
        ["nothing was asked"],
    )


def test_each_key_that_is_missing_is_said_once() -> None:
    targets = [target("a"), {"name": "b", "api_endpoint": {**ENDPOINT, "api_key": "B_KEY"}}]
    judges = [{"name": "gpt", "model_id": "x", "api_key": "G_KEY"}]
    found = cells(evaluations=["medec", "aci_bench"], targets=targets, judges=judges)
    assert [len(one.missing) for one in found] == [0, 1, 1, 2]
    said = refused(found, PrerequisiteError)
    says(said, "every cell of b", "no API key", "B_KEY is not set")
    says(said, "api_key of the target")
    assert said.count("no API key") == 3
    says(said, "a/aci_bench: no API key", "judge gpt")
    assert all(one.is_ready for one in checked_cells(suite(targets=targets), {"B_KEY": "x" * 20}))


def test_a_key_that_cannot_be_read_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "credentials.conf").write_bytes(b"\xff")
    (problem,) = set(chain.from_iterable(one.problems for one in cells()))
    assert problem == "credentials.conf: cannot be read"


HELD = {"MY_KEY": "canary-0123456789-canary"}


def keyed(name: str, **endpoint: str) -> dict[str, Any]:
    return {"name": name, "api_endpoint": {**ENDPOINT, "api_key": "MY_KEY", **endpoint}}


@pytest.mark.parametrize(
    ("changes", "cells_of"),
    [
        ({"targets": [keyed("a", model_id="${MY_KEY}")]}, "every cell"),
        ({"targets": [{**keyed("a"), "limit_group": "${MY_KEY}"}]}, "every cell"),
        (
            {
                "targets": [keyed("a"), keyed("b", model_id="${MY_KEY}")],
                "exclude": [{"target": "b"}],
            },
            "every cell",
        ),
        ({"targets": [keyed("a"), keyed("b", model_id="${MY_KEY}")]}, "every cell of b"),
    ],
    ids=["a cell's run config", "the suite's own file", "what is left out", "one of two targets"],
)
def test_the_value_of_a_secret_is_never_written(changes: dict[str, Any], cells_of: str) -> None:
    said = refused(checked_cells(suite(env=HELD, **changes), HELD), ConfigError)
    assert said.startswith(f"{cells_of}: ")
    says(said, "is a secret")
    assert said.count("secret") == 1, "what a cell holds itself is not said of the others"
    assert "canary" not in said


def test_a_secret_in_an_address_is_written_as_its_name() -> None:
    right = suite(targets=[keyed("a", url="https://h/v1?key=${MY_KEY}")], env=HELD)
    refuse_unready(checked_cells(right, HELD))


EVERY = [Cell(one, other, {}, Path(one, other)) for other, one in product("xyz", "abcdef")]


@pytest.mark.parametrize(
    ("some", "said", "every"),
    [
        (EVERY, "every cell", EVERY),
        ([one for one in EVERY if one.target == "b"], "every cell of b", EVERY),
        ([one for one in EVERY if one.target in "bc"], "every cell of b, c", EVERY),
        ([one for one in EVERY if one.evaluation == "y"], "every cell of y", EVERY),
        ([one for one in EVERY if one.evaluation != "y"], "every cell of x, z", EVERY),
        (EVERY[:1], "a/x", EVERY),
        (EVERY[1:3], "b/x, c/x", EVERY),
        (EVERY[1:6], "b/x, c/x, d/x, e/x and 1 more", EVERY),
        (EVERY[1:5], "b/x, c/x, d/x, e/x", EVERY),
        (EVERY[::6][:2], "a/x, a/y", EVERY[::6]),
        (EVERY[:1], "a/x", EVERY[:1]),
        (EVERY[:2], "every cell", EVERY[:2]),
    ],
)
def test_cells_in_a_few_words(some: list[Cell], said: str, every: list[Cell]) -> None:
    assert planned_cells.named_cells(some, every) == said


def test_every_cell_has_its_plan_and_the_name_of_its_limits(tmp_path: Path) -> None:
    found = suite(targets=[target("a")], output_dir=str(tmp_path))
    planned = plan_cells(found, {})
    assert [
        (one.number, one.cell.name, one.plan.task_name, one.group, one.plan.rundir.root)
        for one in planned
    ] == [
        (number, f"a/{task}", task, found.limit_groups["a"], tmp_path / "a" / task)
        for number, task in enumerate(["pubmed_qa", "medec"])
    ]


def test_a_limit_of_cost_needs_prices() -> None:
    with pytest.raises(ConfigError, match=naming("max_cost", "model_id: org/a")) as raised:
        plan_cells(suite(targets=[target("a")], max_cost=5.0), {})
    assert len(raised.value.problems) == 1, "said once for all cells"
    prices = [{"model_id": "org/a", "input_per_million": 1.0, "output_per_million": 2.0}]
    known = suite(targets=[target("a")], max_cost=5.0, params={"extra": {"prices": prices}})
    assert len(plan_cells(known, {})) == len(plan_cells(suite(max_requests=5), {})) // 2 == 2
