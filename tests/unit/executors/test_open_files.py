from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.executors.process import raise_fd_limit
from facts import each_says

NO_LIMIT = resource.RLIM_INFINITY
Limit = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets the limits that the system says; gives the list of those that it is told."""

    def allow(soft: int, hard: int, most: int | None = None) -> list[tuple[int, int]]:
        told: list[tuple[int, int]] = []

        def setrlimit(_kind: int, wanted: tuple[int, int]) -> None:
            if (hard != NO_LIMIT and wanted[0] > hard) or (most is not None and wanted[0] > most):
                raise ValueError("not allowed to raise maximum limit")
            told.append(wanted)

        monkeypatch.setattr(
            resource,
            "getrlimit",
            lambda kind: (soft, hard) if kind == resource.RLIMIT_NOFILE else (0, 0),
        )
        monkeypatch.setattr(resource, "setrlimit", setrlimit)
        return told

    return allow


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 4096, False),
        (364, 364, False),
        (NO_LIMIT, NO_LIMIT, False),
        (363, 364, True),
        (363, 4096, True),
        (363, NO_LIMIT, True),
    ],
)
def test_the_limit_is_raised_to_what_is_needed_and_no_further(
    soft: int, hard: int, raised: bool, limit: Limit
) -> None:
    told = limit(soft, hard)
    raise_fd_limit(100)
    assert told == ([(364, hard)] if raised else [])


@pytest.mark.parametrize(
    ("soft", "hard", "most"), [(256, 512, None), (512, 512, None), (512, NO_LIMIT, 600)]
)
def test_where_there_is_no_room_it_says_what_is_needed(
    soft: int, hard: int, most: int | None, limit: Limit
) -> None:
    limit(soft, hard, most)
    with pytest.raises(PrerequisiteError) as told:
        raise_fd_limit(300)
    each_says(
        str(told.value).splitlines(),
        ["300 requests", "964 open files", f"only {soft} are"],
        ["ulimit -n 964", "config.params.parallelism"],
    )
