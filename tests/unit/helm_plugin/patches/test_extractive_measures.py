"""The figures of Newsroom's paper, and those of the package that HELM would take."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.helm_plugin.patches.extractive_measures import DataStatsMetric, extract_statistics, fragments

WITH_BOTH = """
import json, sys
from eval_factory.helm_plugin.patches import optional_deps
from eval_factory.helm_plugin.patches.extractive_measures import DataStatsMetric
optional_deps.replace_missing_spacy_model()
from summ_eval.data_stats_metric import DataStatsMetric as Theirs
ours, theirs = DataStatsMetric(), Theirs()
for summary, source in json.load(sys.stdin):
    given = theirs.evaluate_example(summary, source)
    found = ours.evaluate_example(summary, source)
    assert found == {name: given[name] for name in ("coverage", "density", "compression")}, (summary, source, found, given)
print("the same")
"""
needs_the_package = pytest.mark.skipif(
    importlib.util.find_spec("summ_eval") is None or importlib.util.find_spec("gin") is None, reason="needs summ-eval"
)
TOKENS = st.lists(st.sampled_from("abcAB."), max_size=14)


@pytest.mark.parametrize(
    ("summary", "source", "expected"),
    [
        ("the cat", "a cat sat on the cat", [2]),
        ("the cat sat", "the dog saw the cat", [2]),
        ("x x y", "x x x y", [2, 1]),  # the run of three begins inside one of two
        ("a b a b", "b a", [1, 2, 1]),
        ("a b c", "a b d c", [2, 1]),
        ("q", "a b", []),
        ("", "a", []),
        ("a", "", []),
    ],
)
def test_fragments(summary: str, source: str, expected: list[int]) -> None:
    assert list(fragments(summary.split(), source.split())) == expected


def test_the_statistics_of_a_summary() -> None:
    found = extract_statistics(["The", "cat", "sat", "down", "."], [*"abcde", "the", "CAT", "x", "sat", "."])
    assert found == {"coverage": 4 / 5, "density": (4 + 1 + 1) / 5, "compression": 10 / 5}


@pytest.mark.parametrize("source", ["", "a b"])
def test_a_summary_without_a_token_has_none(source: str) -> None:
    assert extract_statistics([], source.split()) == {"coverage": 0, "density": 0, "compression": 0}


def test_the_class_cuts_texts_itself() -> None:
    found = DataStatsMetric(str.split).evaluate_example("A b", "a b c d")
    assert found == {"coverage": 1, "density": 2, "compression": 2}


@given(TOKENS, TOKENS)
@settings(deadline=None)
def test_a_copy_is_covered_and_nothing_is_covered_twice(summary: list[str], source: list[str]) -> None:
    lengths = list(fragments(summary, source))
    assert sum(lengths) == sum(token in source for token in summary)
    assert all(0 < length <= len(source) for length in lengths)
    assert list(fragments(source, source)) == ([len(source)] if source else [])


@needs_the_package
def test_the_same_fragments_as_the_package() -> None:
    from summ_eval.data_stats_utils import Fragments

    chance = random.Random(1)  # noqa: S311 - no secret
    for _ in range(3000):
        summary, source = (chance.choices("abcAB.", k=chance.randrange(20)) for _ in range(2))
        theirs = Fragments(list(summary), list(source))
        expected = {"coverage": theirs.coverage(), "density": theirs.density(), "compression": theirs.compression()}
        assert extract_statistics(summary, source) == expected


def compared(pairs: list[tuple[str, str]]) -> None:
    import json

    finished = subprocess.run(
        [sys.executable, "-c", WITH_BOTH],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.stdout == "the same\n", finished.stderr


@needs_the_package
def test_the_same_values_as_the_package() -> None:
    chance = random.Random(2)  # noqa: S311 - no secret
    text = "The patient Dr. isn't 38.5°C p.o. b.i.d., O'Neil's (stable) \n\n\t— é ﬁ β U.S. e.g. İ ẞ 10mg/ml [**Name**] http://x.y"
    words = text.split(" ")
    texts = [" ".join(chance.choices(words, k=chance.randrange(60))) for _ in range(300)]
    texts += ["", " ", "\n", "a", "A", "a a a a"]
    texts += [
        "".join(chr(chance.choice([chance.randrange(32, 127), chance.randrange(160, 0x3000)])) for _ in range(40))
        for _ in range(200)
    ]
    compared([(chance.choice(texts), chance.choice(texts)) for _ in range(1000)])


@needs_the_package
@pytest.mark.medical_data
def test_the_same_values_on_real_notes(medical_data: Path) -> None:
    files = sorted(path for path in medical_data.rglob("*.txt") if path.stat().st_size > 2000)[:24]
    assert files
    notes = [path.read_text("utf-8", errors="replace")[:20000] for path in files]
    compared([(notes[n][n * 7 : n * 7 + 900], notes[(n // 2)]) for n in range(len(notes))])
