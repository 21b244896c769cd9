from __future__ import annotations

import pytest

from eval_factory.scoring.metric_values import InstanceKey
from eval_factory.scoring.shared_keys import SharedKeys

A, B, C = (("a", 0, None), ("b", 0, None), ("a", 1, None))
OTHER: InstanceKey = ("z", 0, None)


@pytest.mark.parametrize("keys", [[A, B, C], [A, None, B, C]])
def test_a_column_is_a_mapping_of_floats(keys: list[InstanceKey | None]) -> None:
    values = [1, 0, 0.25] if None not in keys else [1, 9, 0, 0.25]
    column = SharedKeys(keys).column(values)
    assert dict(column) == {A: 1.0, B: 0.0, C: 0.25}
    assert list(column) == [A, B, C]
    assert [type(value) for value in column.values()] == [float, float, float]
    assert len(column) == 3
    assert column.get(OTHER) is None
    assert OTHER not in column
    with pytest.raises(KeyError):
        column[OTHER]


def test_a_question_without_a_value_is_left_out() -> None:
    column = SharedKeys([A, None, B, C]).column([1, None, None, 0])
    assert column == {A: 1.0, C: 0.0}
    assert [type(value) for value in column.values()] == [float, float]
    assert len(SharedKeys([None]).column([1])) == 0
    assert len(SharedKeys([A]).column([None])) == 0
