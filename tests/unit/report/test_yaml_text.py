"""Every value is written in full; short mappings and lists on one line where somebody said so."""

from __future__ import annotations

import yaml

from eval_factory.core.plain_yaml import OneLine, OneLineList, to_yaml


def test_what_stands_twice_is_written_twice() -> None:
    shared = ["b", "a"]
    assert to_yaml({"z": shared, "a": shared}) == "z:\n- b\n- a\na:\n- b\n- a\n"


def test_one_line_where_it_was_asked_for() -> None:
    document = {"stats": OneLine({"n": 1, "x": None}), "scale": OneLineList([0, 1]), "more": {"n": 1}}
    text = to_yaml(document)
    assert text == "stats: {n: 1, x: null}\nscale: [0, 1]\nmore:\n  n: 1\n"
    assert yaml.safe_load(text) == document


def test_letters_stay_letters_and_lines_are_120_wide() -> None:
    assert to_yaml({"name": "Ärztin"}) == "name: Ärztin\n"
    assert max(map(len, to_yaml({"text": "word " * 60}).splitlines())) in range(
        100, 126
    )  # a break comes after the word that reaches it
