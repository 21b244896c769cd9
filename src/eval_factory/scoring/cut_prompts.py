"""Finds prompts that a server cut to its context window without an error message.

A server that cuts a prompt answers with HTTP status 200 (Ollama: ollama/ollama#17889). The number
of prompt tokens that the server counted shows the cut in two ways: the number is lower than any
tokenizer would return for a text of this length, or the number stays constant while prompts grow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import StatisticsError, linear_regression, median

from eval_factory.core import formats
from eval_factory.scoring.reportable import WINDOW_ADVICE
from eval_factory.scoring.scores import InstanceKey

MAX_CHARACTERS = 7.0
"""The largest mean number of characters in a token, for a text in an alphabet. English medical
texts have 4 to 5.7 characters a token with tiktoken's cl100k_base.
"""
MAX_IDEOGRAPHS = 3.0
"""The largest mean number of Chinese, Japanese or Korean characters in a token. Such texts have 1
to 2 characters a token with cl100k_base.
"""
MIN_WINDOW = 256
"""The smallest context window in use. Prompts for which the server counted fewer tokens are not
examined, because no window would have cut them.
"""
_RUNS = re.compile(r"\s{2,}|([^\w\s])\1{2,}|(?:[^\w\s]\s){3,}")
"""Runs of white space or of repeated signs, such as "-----" and ". . . .": one token may stand for
a hundred such characters.
"""
_IDEOGRAPHS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")

MIN_PLATEAU = 5  # the smallest number of prompts with nearly equal counts that make a plateau
MIN_SPREAD = 1.1  # a plateau's longest prompt is at least this many times as long as its shortest
_TOLERANCE_DIVISOR = 500  # counts are nearly equal if they differ by at most 1/500
MIN_EQUAL = 10
"""The smallest number of prompts with exactly equal counts that is not a coincidence. These prompts
must also be at least half of all prompts, and their lengths must differ by `MIN_DIFFERENCE`.
"""
MIN_DIFFERENCE = 16.0
"""The least difference between the longest and the shortest of these prompts. The length of a
prompt is its `min_tokens`.
"""
MAX_WORD_RATIO = 1.25
"""If a server counts words and not tokens, the median of its counts divided by `min_tokens` is at
most this number.
"""
MIN_GROWTH = 0.75
MAX_GROWTH = 1.3
"""The limits of the slope of log(count) on log(length) for a server that counts other units than
tokens. A context window makes the slope smaller.
"""
MIN_STEP = 16
"""A server counts in steps if all its counts are multiples of one number, and this number is at
least `MIN_STEP` tokens.
"""


def min_tokens(text: str) -> float:
    """Return the least number of tokens that any tokenizer would return for a text."""
    plain = _RUNS.sub(" ", text)
    ideographs = 0
    if not plain.isascii():
        ideographs = len(_IDEOGRAPHS.findall(plain))
    return ideographs / MAX_IDEOGRAPHS + (len(plain) - ideographs) / MAX_CHARACTERS


@dataclass(frozen=True)
class _Prompt:
    """The length of a prompt, and the server's count of its tokens."""

    key: InstanceKey
    tokens: int  # the server's count of the prompt's tokens
    min_tokens: float  # the result of the function `min_tokens` for the text
    characters: int
    cached: int = 0  # tokens from the server's cache, which the server's count may leave out


def _tokens_of(prompt: _Prompt) -> int:
    return prompt.tokens


def _min_tokens_of(prompt: _Prompt) -> float:
    return prompt.min_tokens


@dataclass
class CutPrompts:
    """A search for cut prompts among all prompts of a run.

    First, `add` stores the figures of each prompt. Then, `find_cut` returns the cut prompts.
    """

    _prompts: list[_Prompt] = field(default_factory=list)

    def add(self, key: InstanceKey, text: str, tokens: int | None, cached: int = 0) -> None:
        """Add a prompt; ignore it if the server counted no tokens or fewer than `MIN_WINDOW`.

        Args:
            key: the instance.
            text: the prompt.
            tokens: the server's count of prompt tokens, if it reported one.
            cached: the number of prompt tokens from the server's cache.
        """
        fewest = min_tokens(text)
        if tokens is not None and tokens >= MIN_WINDOW and fewest > 0:
            self._prompts.append(_Prompt(key, tokens, fewest, len(text), cached))

    def find_cut(self, *, by_plateau: bool = True) -> CutPromptsFound:
        """Return the prompts that were cut.

        Args:
            by_plateau: True if a constant count is a sign of a cut. Pass False if HELM itself cut
                the prompts to a number of tokens: their counts are then constant anyway.
        """
        cut = {}
        for prompt in self._prompts:
            if prompt.tokens + prompt.cached < prompt.min_tokens:
                cut[prompt.key] = prompt
        if cut and _counts_other_units(self._prompts):
            cut = {}  # The counts are not numbers of tokens, so low counts show no cut.
        if by_plateau:
            for prompt in self._plateau():
                cut[prompt.key] = prompt
        tokens = 0
        characters = 0
        for prompt in cut.values():
            tokens = max(tokens, prompt.tokens)
            characters = max(characters, prompt.characters)
        return CutPromptsFound(frozenset(cut), tokens, characters)

    def _plateau(self) -> Sequence[_Prompt]:
        """Return the prompts with about the largest count, if the count stays constant while
        prompts grow; else nothing.
        """
        if self._counts_in_steps():
            return ()  # Such a server gives equal counts to different prompts without any cut.
        if not self._prompts:
            return ()
        largest = max(map(_tokens_of, self._prompts))
        plateau = []
        below = []
        for prompt in self._prompts:
            if prompt.tokens >= largest - largest // _TOLERANCE_DIVISOR:
                plateau.append(prompt)
            else:
                below.append(prompt)
        if self._has_many_equal(largest):
            return plateau
        lengths = list(map(_min_tokens_of, plateau))
        if len(plateau) < MIN_PLATEAU or max(lengths) < MIN_SPREAD * min(lengths):
            return ()
        if below and max(map(_min_tokens_of, below)) > median(lengths):
            # A longer prompt has fewer tokens: the texts differ in characters per token, and the
            # largest count is not the size of a window.
            return ()
        return plateau

    def _counts_in_steps(self) -> bool:
        """Return True if all counts are multiples of one number of at least `MIN_STEP`."""
        counts = set(map(_tokens_of, self._prompts))
        return len(counts) > 1 and math.gcd(*counts) >= MIN_STEP

    def _has_many_equal(self, largest: int) -> bool:
        """Return True if many prompts have exactly the largest count, but differ in length.

        Many means at least `MIN_EQUAL` prompts, and at least half of all prompts. Their lengths
        differ if the longest and the shortest are at least `MIN_DIFFERENCE` apart.
        """
        lengths = [prompt.min_tokens for prompt in self._prompts if prompt.tokens == largest]
        are_many = len(lengths) >= max(MIN_EQUAL, len(self._prompts) / 2)
        return are_many and max(lengths) - min(lengths) >= MIN_DIFFERENCE


def _counts_other_units(prompts: Sequence[_Prompt]) -> bool:
    """Return True if the server counts other units than tokens, such as words.

    The counts of such a server are low for most prompts, and grow in proportion to the lengths of
    the prompts.
    """
    ratios = []
    lengths = []
    counts = []
    for prompt in prompts:
        ratios.append(prompt.tokens / prompt.min_tokens)
        lengths.append(math.log(prompt.min_tokens))
        counts.append(math.log(prompt.tokens))
    if min(counts) == max(counts) or median(ratios) > MAX_WORD_RATIO:
        return False
    try:
        growth = linear_regression(lengths, counts).slope
    except StatisticsError:  # All prompts have the same length, so only the ratios decide.
        return True
    return MIN_GROWTH <= growth <= MAX_GROWTH


@dataclass(frozen=True)
class CutPromptsFound:
    """The prompts of a run that the server cut."""

    keys: frozenset[InstanceKey]
    tokens: int  # the server's largest count for a cut prompt
    characters: int  # the length of the longest cut prompt

    def make_note(self, requested: int) -> str:
        """Return the note on the cut prompts. `requested`: the number of all prompts."""
        return (
            f"the server cut {len(self.keys)} of {requested} prompts: it counted at most "
            f"{formats.count(self.tokens)} tokens for prompts of up to "
            f"{formats.count(self.characters)} characters. The model saw only a part of these "
            f"prompts; {WINDOW_ADVICE}"
        )


NONE_CUT = CutPromptsFound(frozenset(), tokens=0, characters=0)
