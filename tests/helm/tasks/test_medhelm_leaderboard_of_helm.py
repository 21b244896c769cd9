"""The facts about MedHELM's leaderboard and token limits are those of the installed HELM's run specs."""

from __future__ import annotations

import inspect
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helm.benchmark.adaptation.adapter_spec import AdapterSpec
from helm.benchmark.run_spec import get_run_spec_function
from helm.benchmark.run_specs import medhelm_run_specs
from helm.benchmark.runner import downsample_eval_instances
from helm.benchmark.scenarios.scenario import TEST_SPLIT, Input, Instance
from helm.common.request import Request

from eval_factory.scoring.comparability import load_medhelm_leaderboard
from eval_factory.scoring.provenance import SEEDS
from eval_factory.tasks.framework import load_framework

BOARD = load_medhelm_leaderboard()
ARGUMENTS = {
    "subject": "lab_anemia",
    "condition": "chronic_pain",
    "subset": "icliniq",
    "data_path": "x",
}


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """HELM asks it for a device."""
    device = SimpleNamespace(get_torch_device_name=lambda: "cpu")
    monkeypatch.setitem(sys.modules, "helm.common.gpu_utils", device)


def adapter_of(run_spec: str) -> AdapterSpec:
    function: Any = get_run_spec_function(run_spec)
    assert function.__module__ == medhelm_run_specs.__name__
    takes = inspect.signature(function).parameters
    return function(
        **{name: value for name, value in ARGUMENTS.items() if name in takes}
    ).adapter_spec


@pytest.mark.parametrize("run_spec", BOARD.run_specs)
def test_a_plain_run_asks_as_the_leaderboard_did(run_spec: str) -> None:
    adapter = adapter_of(run_spec)
    entry = BOARD.run_specs[run_spec]
    assert (adapter.max_tokens, adapter.temperature) == (entry.max_tokens, BOARD.temperature)
    assert adapter.num_train_trials == BOARD.num_train_trials
    function: Any = get_run_spec_function(run_spec)
    length = inspect.signature(function).parameters.get("max_length")
    assert entry.max_length == (None if length is None else length.default)


def test_helm_asks_with_this_top_p() -> None:
    assert Request(model="a/b", model_deployment="a/b").top_p == BOARD.top_p


def test_helm_draws_a_sample_with_this_seed() -> None:
    instances = [
        Instance(Input(text=str(number)), [], split=TEST_SPLIT, id=str(number))
        for number in range(50)
    ]
    drawn = downsample_eval_instances(instances, 5, [TEST_SPLIT])
    chosen = np.random.RandomState(SEEDS["helm_sample"]).choice(np.arange(50), 5, replace=False)
    assert [instance.id for instance in drawn] == [str(number) for number in chosen]


def test_limits_below_gold_answers_are_told_and_are_helms() -> None:
    limit = r"longer than (\d+) tokens .*HELM's limit for an answer"
    notes = []
    for task in load_framework().evaluations:
        notes += [(task, note) for note in task.about.notes]
    found = [(task.name, task.helm.run_spec, re.search(limit, note)) for task, note in notes]
    told = {name: (run_spec, int(match[1])) for name, run_spec, match in found if match}
    assert told.keys() == {"mtsamples_replicate", "mtsamples_procedures", "aci_bench", "medi_qa"}
    assert {run_spec: adapter_of(run_spec).max_tokens for run_spec, _ in told.values()} == dict(
        told.values()
    )
