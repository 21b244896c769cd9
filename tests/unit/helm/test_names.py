from __future__ import annotations

import pytest

from eval_factory.helm.names import asked_run_specs


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["helm-run", "--run-entries", "a:model=x/y", "b", "--suite", "s"], {"a", "b"}),
        (["helm-run", "-r", "a:x=1", "-m", "5"], {"a"}),
        (["helm-run", "--conf-paths", "x.conf"], set()),
    ],
)
def test_names_on_the_command_line(argv: list[str], expected: set[str]) -> None:
    assert asked_run_specs(argv) == expected
