"""What framework.yml says of HELM's token limits is what HELM's run specs grant."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
from helm.benchmark.run_specs import medhelm_run_specs

from eval_factory.tasks.framework import load_framework

SHORTER_THAN_GOLD = {
    "mtsamples_replicate": medhelm_run_specs.get_mtsamples_spec,
    "mtsamples_procedures": medhelm_run_specs.get_mtsamples_procedures_spec,
    "aci_bench": medhelm_run_specs.get_aci_bench_run_spec,
    "medi_qa": medhelm_run_specs.get_medi_qa_spec,
}


def limits_told() -> dict[str, int]:
    """Task -> the token limit that its notes name."""
    told = {}
    for task in load_framework().evaluations:
        for note in task.about.notes:
            found = re.search(r"longer than the (\d+) tokens that HELM grants an answer", note)
            if found:
                told[task.name] = int(found[1])
    return told


def test_limits_below_gold_answers_are_told_of_these_tasks() -> None:
    assert limits_told().keys() == SHORTER_THAN_GOLD.keys()


@pytest.mark.parametrize("task", SHORTER_THAN_GOLD)
def test_the_limit_is_helms(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(get_torch_device_name=lambda: "cpu")  # HELM's own asks torch, which is not installed
    monkeypatch.setitem(sys.modules, "helm.common.gpu_utils", device)
    assert limits_told()[task] == SHORTER_THAN_GOLD[task]().adapter_spec.max_tokens
