from __future__ import annotations

from typing import Any

import pytest

from eval_factory.workflows.suite.suite_preview import RequestCount, count_of, counts_in_words, known_sum
from unit.builders import plan

DATA = {"config.params.extra.data_path": "/x"}


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ({}, RequestCount(1000, 0)),
        ({"config.params.limit_samples": 7}, RequestCount(7, 0)),
        ({"config.params.limit_samples": 1000}, RequestCount(1000, 0)),
        ({"config.params.limit_samples": 1001}, RequestCount(1000, 0)),
        ({"config.type": "aci_bench"}, RequestCount(120, 360)),
        ({"config.type": "aci_bench", "config.params.extra.num_train_trials": 2}, RequestCount(240, 720)),
        ({"config.type": "head_qa", "config.params.extra.category": "nursery"}, RequestCount(2675, 0, at_most=True)),
        ({"config.type": "shc_bmt_med", **DATA}, RequestCount(None, 0)),
        ({"config.type": "shc_bmt_med", **DATA, "config.params.limit_samples": 9}, RequestCount(9, 0, at_most=True)),
        ({"config.type": "helm:harm_bench", "config.params.limit_samples": 5}, RequestCount(5, 5, at_most=True)),
    ],
    ids=str,
)
def test_an_instance_is_a_request_and_one_to_each_judge(flags: dict[str, Any], count: RequestCount) -> None:
    assert count_of(plan(flags)) == count


def test_judges_of_a_rubric_get_one_request_at_least() -> None:
    judges = [{"name": "gpt", "model_id": "j"}]
    flags = {"config.type": "healthbench", "config.params.limit_samples": 4, "config.params.extra.judges": judges}
    assert count_of(plan(flags)) == RequestCount(4, 4, by_criterion=True)


def test_the_sum_is_of_those_that_are_known() -> None:
    counts = [RequestCount(5, 10), RequestCount(None, 0), RequestCount(3, 0, at_most=True)]
    assert known_sum(counts) == RequestCount(8, 10, at_most=True)
    assert known_sum(counts[:1]) == RequestCount(5, 10)
    assert known_sum([*counts[:1], RequestCount(1, 1, by_criterion=True)]) == RequestCount(6, 11, by_criterion=True)
    assert known_sum([]).total == 0
    assert [count.total for count in counts] == [15, None, 3]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (RequestCount(1, 0), "1 request to the model"),
        (RequestCount(1200, 3600), "1,200 requests to the model, 3,600 to judges"),
        (RequestCount(3, 9, by_criterion=True), "3 requests to the model, 9 or more to judges"),
        (RequestCount(0, 0, at_most=True), "at most 0 requests to the model"),
        (RequestCount(None, 0), "an unknown number of requests"),
    ],
    ids=str,
)
def test_in_words(count: RequestCount, said: str) -> None:
    assert counts_in_words(count) == said
