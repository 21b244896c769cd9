"""framework.yml, checked, and the copy that commands read in its place."""

from __future__ import annotations

import pytest

from eval_factory.tasks.framework import CHECKED, framework_path, load_framework
from eval_factory.tasks.framework_file import checked_copy, read

TEXT = framework_path().read_text("utf-8")


def test_the_checked_copy_is_of_this_file() -> None:
    """Not so: run scripts/make_framework_checked.py."""
    assert CHECKED.read_text("utf-8") == checked_copy(TEXT.encode())


def test_the_copy_says_what_the_file_says() -> None:
    """As texts, too: 1, 1.0 and true are equal."""
    assert read(TEXT) == load_framework()
    assert repr(read(TEXT)) == repr(load_framework())


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("  pkg_name: eval_factory\n", "", "pkg_name"),
        ("  pkg_name: eval_factory\n", "  pkg_name: eval_factory\n  surprise: 1\n", "surprise"),
        ("access: public", "access: everybody", "access"),
        ("cluster: {what: calculator,", "cluster: {what: calculator, key: a,", "belong together"),
    ],
    ids=["missing", "unknown", "value", "cluster"],
)
def test_what_is_wrong_is_an_error(right: str, wrong: str, problem: str) -> None:
    assert right in TEXT
    with pytest.raises(ValueError, match=problem):
        read(TEXT.replace(right, wrong, 1))
