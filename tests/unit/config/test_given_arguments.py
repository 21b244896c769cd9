"""What a program gives, as the configuration takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.evaluation import arguments_of, several
from eval_factory.core.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"),
    [("ab", ("ab",)), (Path("a/b"), (Path("a/b"),)), (["a", "b"], ("a", "b")), (iter("ab"), ("a", "b")), ((), ())],
)
def test_one_alone_is_a_list_of_one(given: Any, expected: tuple[Any, ...]) -> None:
    assert several(given) == expected


def test_a_file_and_a_mapping() -> None:
    of_file = arguments_of("a.yml", "out", {"config.type": "x"}, "a=1")
    assert of_file.run_config == Path("a.yml")
    assert of_file.document is None
    assert of_file.flags == {"config.type": "x", "config.output_dir": "out"}
    assert of_file.overrides == ("a=1",)
    document = {"config": {"type": "x"}}
    of_mapping = arguments_of(document, None, None, [])
    assert (of_mapping.run_config, of_mapping.document, dict(of_mapping.flags)) == (None, document, {})
    assert arguments_of(None, None, None, []).run_config is None


def test_a_flag_that_no_file_could_hold() -> None:
    with pytest.raises(ConfigError, match="of the type"):
        arguments_of(None, None, {"config.type": object()}, [])
