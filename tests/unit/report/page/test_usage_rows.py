"""Usage as rows."""

from __future__ import annotations

from eval_factory.core.results import Spent, SpentByRole, Usage
from eval_factory.report.sentences import usage_rows

ONE = Spent(7, 0, 1, 40, 5, 0.1, 0.2)


def test_roles_are_rows_where_there_is_more_than_one() -> None:
    alone, both = SpentByRole(ONE, {"model": ONE}), SpentByRole(ONE, {"model": ONE, "gpt": ONE})
    assert [label for label, _ in usage_rows(Usage(alone, both, 1, 1.0))] == [
        "this run", "all runs", "all runs, model", "all runs, gpt",
    ]  # fmt: skip
    assert dict(usage_rows(Usage(both, alone, 1, 1.0)))["this run, gpt"]["requests"] == 7
