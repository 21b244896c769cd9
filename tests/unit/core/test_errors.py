"""One class for each exit code."""

from __future__ import annotations

from eval_factory.core import errors
from eval_factory.core.errors import ConfigError, EvalFactoryError

CODES = {
    "NotReportableError": 1,
    "ConfigError": 2,
    "PrerequisiteError": 3,
    "EndpointRefusedError": 3,
    "EndpointUnreachableError": 3,
    "HelmError": 4,
    "BusyError": 5,
    "EvalFactoryError": 70,
    "InterruptedRunError": 130,
}


def test_each_exit_code_has_one_class_and_all_have_one_base() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert all(issubclass(kind, EvalFactoryError) for kind in kinds)
    assert {kind.__name__: kind.exit_code for kind in kinds if issubclass(kind, EvalFactoryError)} == CODES
    assert errors.DEFECT_EXIT_CODE == 70


def test_a_config_error_keeps_its_problems_apart() -> None:
    problems = ["a: is missing", "b: must be text"]
    error = ConfigError(problems)
    problems.append("added later")
    assert error.problems == ["a: is missing", "b: must be text"]
    assert str(error) == "a: is missing\nb: must be text"
