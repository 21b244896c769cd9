"""How far a summary is copied from its source: coverage, density and compression (Grusky et al. 2018, Newsroom).

HELM takes them from the package summ-eval, which asks for a package that no longer builds; the values here are the
same to the last digit (`tests/helm/helm_plugin/patches/test_extractive_measures_of_the_package.py`). Section 3 and
figure 3 of https://aclanthology.org/N18-1065 define them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

Tokenize = Callable[[str], list[str]]


class DataStatsMetric:
    """Takes the place of summ-eval's class of this name, as far as HELM uses it."""

    def __init__(self, tokenize: Tokenize | None = None) -> None:
        self._tokenize = tokenize or english_tokens()

    def evaluate_example(self, summary: str, input_text: str) -> dict[str, float]:
        return extract_statistics(self._tokenize(summary), self._tokenize(input_text))


def english_tokens() -> Tokenize:
    """Words and punctuation, as spaCy's tokenizer for English cuts them."""
    import spacy

    tokenizer = spacy.load("en_core_web_sm").tokenizer
    return lambda text: [token.text for token in tokenizer(text)]


def extract_statistics(summary: Sequence[str], source: Sequence[str]) -> dict[str, float]:
    """The three statistics of a summary; 0 where it has no token.

    coverage: the share of its tokens that stand in a fragment of the source; density: the mean length of the fragment
    that a token stands in; compression: tokens of the source for each of the summary.
    """
    tokens = len(summary)
    if not tokens:
        return {"coverage": 0, "density": 0, "compression": 0}
    lengths = list(fragments([token.lower() for token in summary], [token.lower() for token in source]))
    return {
        "coverage": sum(lengths) / tokens,
        "density": sum(length**2 for length in lengths) / tokens,
        "compression": len(source) / tokens,
    }


def fragments(summary: Sequence[str], source: Sequence[str]) -> Iterator[int]:
    """Lengths of the fragments that the summary shares with its source, in the order of the summary.

    Greedy, as in the paper: at each token the longest common run is taken and stepped over. A search goes on behind a
    run that it has found, so that one which begins inside another is not seen.
    """
    places = defaultdict(list)
    for place, token in enumerate(source):
        places[token].append(place)
    start = 0
    while start < len(summary):
        longest = searched = 0
        for place in places.get(summary[start], ()):
            if place >= searched:
                length = _common(summary, start, source, place)
                longest = max(longest, length)
                searched = place + length
        if longest:
            yield longest
        start += longest or 1


def _common(left: Sequence[str], start: int, right: Sequence[str], place: int) -> int:
    """How many tokens are the same from these two places on."""
    most = min(len(left) - start, len(right) - place)
    return next((n for n in range(most) if left[start + n] != right[place + n]), most)
