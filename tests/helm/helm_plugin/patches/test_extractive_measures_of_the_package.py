"""Our extractive measures against those of the package that HELM would take."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory.helm_plugin.patches.lighter import extract_statistics

WITH_BOTH = """
import json, sys
from eval_factory.helm_plugin.patches import lighter
from eval_factory.helm_plugin.patches.lighter import DataStatsMetric
lighter.replace_missing_spacy_model()
from summ_eval.data_stats_metric import DataStatsMetric as Theirs
ours, theirs = DataStatsMetric(), Theirs()
for summary, source in json.load(sys.stdin):
    given = theirs.evaluate_example(summary, source)
    found = ours.evaluate_example(summary, source)
    assert found == {name: given[name] for name in ("coverage", "density", "compression")}, (summary, source, found, given)
print("the same")
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("summ_eval") is None or importlib.util.find_spec("gin") is None,
    reason="needs summ-eval and gin-config (requirements-dev.lock)",
)


def test_the_same_fragments_as_the_package() -> None:
    from summ_eval.data_stats_utils import Fragments

    chance = random.Random(1)  # noqa: S311 - no secret
    for _ in range(3000):
        summary, source = (chance.choices("abcAB.", k=chance.randrange(20)) for _ in range(2))
        theirs = Fragments(list(summary), list(source))
        expected = {
            "coverage": theirs.coverage(),
            "density": theirs.density(),
            "compression": theirs.compression(),
        }
        assert extract_statistics(summary, source) == expected


def compared(pairs: list[tuple[str, str]]) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", WITH_BOTH],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert finished.stdout == "the same\n", finished.stderr


def test_the_same_values_as_the_package() -> None:
    chance = random.Random(2)  # noqa: S311 - no secret
    text = "The patient Dr. isn't 38.5°C p.o. b.i.d., O'Neil's (stable) \n\n\t— é ﬁ β U.S. e.g. İ ẞ 10mg/ml [**Name**] http://x.y"
    words = text.split(" ")
    texts = [" ".join(chance.choices(words, k=chance.randrange(60))) for _ in range(300)]
    texts += ["", " ", "\n", "a", "A", "a a a a"]
    ranges = ((32, 127), (160, 0x3000))
    texts += [
        "".join(chr(chance.randrange(*chance.choice(ranges))) for _ in range(40))
        for _ in range(200)
    ]
    compared([(chance.choice(texts), chance.choice(texts)) for _ in range(1000)])


@pytest.mark.medical_data
def test_the_same_values_on_real_notes(medical_data: Path) -> None:
    files = sorted(path for path in medical_data.rglob("*.txt") if path.stat().st_size > 2000)[:24]
    assert files
    notes = [path.read_text("utf-8", errors="replace")[:20000] for path in files]
    compared([(notes[n][n * 7 : n * 7 + 900], notes[(n // 2)]) for n in range(len(notes))])
