from __future__ import annotations

import pytest

from eval_factory.executors.slurm import QueuedTask, Wanted, Wave, active, arrays, hopeless, job_name

WAVES = [Wave(1, "ef-x-w1", ("a", "b", "c")), Wave(2, "ef-x-w2", ("b",))]


def task(name: str, index: int, state: str = "PENDING", reason: str = "Resources") -> QueuedTask:
    return QueuedTask(name, "7", index, state, reason)


def wanted(key: str, group: str = "g", resources: str = "r") -> Wanted:
    return Wanted(key, group, resources, 1)


def test_tasks_are_known_by_the_name_of_their_job_and_their_number() -> None:
    running = task("ef-x-w1", 2, "RUNNING")
    queue = [task("ef-x-w1", 0), running, task("ef-y-w1", 1), task("ef-x-w1", 3)]
    assert active(queue, WAVES) == {"a": queue[0], "c": running}


def test_of_two_tasks_of_one_key_the_one_that_runs_counts() -> None:
    first, second = task("ef-x-w1", 1, "RUNNING"), task("ef-x-w2", 0)
    assert active([first, second], WAVES) == active([second, first], WAVES) == {"b": first}


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("PENDING", "JobHeldUser", False),
        ("PENDING", "(PartitionTimeLimit)", True),
        ("PENDING", "PartitionConfig", True),
        ("PENDING", "launch failed requeued held", True),
        ("PENDING", "Resources", False),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1", False),
        ("RUNNING", "PartitionConfig", False),
    ],
)
def test_waiting_for_what_never_comes(state: str, reason: str, expected: bool) -> None:
    assert bool(hopeless({"a": task("ef-x-w1", 0, state, reason)})) is expected


def test_an_array_for_each_endpoint_and_resources_and_no_larger_than_slurm_takes() -> None:
    plan = [wanted("a"), wanted("b", "h"), wanted("c"), wanted("d", resources="s"), wanted("e")]
    found = [[one.key for one in array] for array in arrays(plan, 2)]
    assert found == [["a", "c"], ["e"], ["b"], ["d"]]
    assert [len(array) for array in arrays(plan, 1000)] == [3, 1, 1]


def test_a_jobs_name() -> None:
    assert job_name("0a1b", 12) == "ef-0a1b-w12"


def test_what_is_done_together_is_one_task_however_much_it_is() -> None:
    plan = [Wanted(key, "g", "r", 1, together=True) for key in "abc"]
    assert [[one.key for one in array] for array in arrays(plan, 2)] == [["a", "b", "c"]]
    wave = Wave(3, "ef-x-w3", ("a", "b", "c"), together=True)
    only = task("ef-x-w3", 0)
    assert active([only], [wave]) == {"a": only, "b": only, "c": only}
    running = task("ef-x-w1", 1, "RUNNING")
    assert active([running, only], [*WAVES, wave]) == {"a": only, "b": running, "c": only}
