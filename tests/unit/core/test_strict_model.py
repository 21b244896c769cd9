from __future__ import annotations

import pytest
from pydantic import ValidationError

from eval_factory.core.strict_model import StrictModel


class _Record(StrictModel):
    name: str


class _ForeignRecord(StrictModel, extra="ignore"):
    name: str


def test_a_key_that_is_not_known_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        _Record.model_validate({"name": "x", "nam": "y"})


def test_a_record_stays_as_it_was_read() -> None:
    record = _Record(name="x")
    with pytest.raises(ValidationError, match="frozen"):
        record.name = "y"


def test_a_record_of_another_programs_file_is_frozen_too() -> None:
    record = _ForeignRecord.model_validate({"name": "x", "more": 1})
    assert record.model_dump() == {"name": "x"}
    with pytest.raises(ValidationError, match="frozen"):
        record.name = "y"
