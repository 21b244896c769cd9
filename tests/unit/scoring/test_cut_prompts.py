"""Counts of tokens that tell of a cut prompt, and counts that do not."""

from __future__ import annotations

import random

import pytest

from eval_factory.scoring.cut_prompts import CutPrompts, CutPromptsFound, min_tokens

WORDS = ("fever", "the", "patient", "of", "pulmonary", "embolism", "was", "5.2", "mg", "and")
CHARACTERS_A_TOKEN = 4.6


def note_of(words: int, seed: int = 0) -> str:
    chosen = random.Random(seed)  # noqa: S311
    return " ".join(chosen.choice(WORDS) for _ in range(words))


def tokens_in(text: str) -> int:
    return round(len(text) / CHARACTERS_A_TOKEN)


def found_in(texts: list[str], window: int | None, **how: bool) -> CutPromptsFound:
    prompts = CutPrompts()
    for number, text in enumerate(texts):
        tokens = tokens_in(text)
        if window is not None:
            tokens = min(tokens, window)
        prompts.add((f"id{number}", 0, None), text, tokens)
    return prompts.find_cut(**how)


LONG = [note_of(3000 + 100 * number, number) for number in range(8)]
MIXED = [note_of(100 + 200 * number, number) for number in range(20)]


def test_prompts_far_beyond_the_window_are_found() -> None:
    found = found_in(LONG, 2050)
    assert len(found.keys) == len(LONG)
    assert found.tokens == 2050
    assert "num_ctx" in found.make_note(8)
    assert f"{found.characters:,}" in found.make_note(8)


def test_a_single_prompt_far_beyond_the_window_is_found() -> None:
    assert len(found_in(LONG[:1], 2050, by_plateau=False).keys) == 1


def test_a_count_that_stands_still_while_prompts_grow() -> None:
    window = tokens_in(LONG[0]) - 20
    found = found_in(LONG, window)
    assert len(found.keys) == len(LONG)
    assert found_in(LONG, window, by_plateau=False).keys == frozenset()


def test_of_mixed_lengths_the_long_prompts_alone_are_found() -> None:
    window = tokens_in(MIXED[9])
    expected = {f"id{number}" for number, text in enumerate(MIXED) if tokens_in(text) >= window}
    assert {key[0] for key in found_in(MIXED, window).keys} == expected


@pytest.mark.parametrize("texts", [LONG, MIXED, [note_of(900)] * 10, [note_of(20)] * 10])
def test_no_prompt_that_was_read_whole_is_found(texts: list[str]) -> None:
    assert found_in(texts, None).keys == frozenset()


def test_texts_of_one_count_and_other_lengths_beside_longer_ones_are_no_plateau() -> None:
    prompts = CutPrompts()
    for number in range(8):
        prompts.add((f"id{number}", 0, None), "word " * (900 + 40 * number), 1100)
    prompts.add(("longer", 0, None), "word " * 1400, 1090)
    assert prompts.find_cut().keys == frozenset()


@pytest.mark.parametrize("tokens", [None, 0, 3, 255])
def test_a_count_that_is_none_says_nothing(tokens: int | None) -> None:
    prompts = CutPrompts()
    for number, text in enumerate(LONG):
        prompts.add((f"id{number}", 0, None), text, tokens)
    assert prompts.find_cut().keys == frozenset()


@pytest.mark.parametrize("blank", [" " * 900, "-" * 900, "\n" * 900, "_ " * 400, "====\n" * 200])
def test_rules_and_blanks_are_few_tokens(blank: str) -> None:
    assert min_tokens(f"a{blank}b") < 130


def test_ideographs_are_more_tokens_than_letters() -> None:
    assert min_tokens("患者" * 300) == 200
    assert min_tokens("ab" * 350) == 100


def test_tokens_from_a_cache_are_no_cut() -> None:
    """Gateways of Anthropic's API, and others, leave them out of the count."""
    prompts = CutPrompts()
    for number, text in enumerate(LONG):
        counted = 300 + 10 * number
        prompts.add((f"id{number}", 0, None), text, counted, tokens_in(text) - counted)
    assert prompts.find_cut().keys == frozenset()


@pytest.mark.parametrize(
    "texts", [LONG, MIXED, LONG + MIXED, [note_of(700 + 20 * n, n) for n in range(9)]]
)
def test_a_server_that_counts_words_cut_nothing(texts: list[str]) -> None:
    """Seven or eight characters a word, as in texts full of drugs' names."""
    prompts = CutPrompts()
    for number, text in enumerate(texts):
        words = text.replace("the", "levothyroxine").replace("of", "hydrochlorothiazide")
        prompts.add((f"id{number}", 0, None), words, len(words.split()))
    assert prompts.find_cut().keys == frozenset()


@pytest.mark.parametrize("step", [16, 64, 128])
def test_a_server_that_counts_in_steps_cut_nothing(step: int) -> None:
    prompts = CutPrompts()
    texts = [note_of(700 + number, number) for number in range(200)]
    for number, text in enumerate(texts):
        prompts.add((f"id{number}", 0, None), text, tokens_in(text) // step * step)
    assert prompts.find_cut().keys == frozenset()


def test_prompts_of_nearly_one_length_with_one_count_are_found() -> None:
    """Examples fill the window; the questions behind them differ by a few words."""
    examples = note_of(1_800)
    texts = [f"{examples} {note_of(10 + 2 * number, number)}" for number in range(20)]
    window = tokens_in(examples) - 50
    found = found_in(texts, window)
    assert len(found.keys) == len(texts)
    assert found_in(texts, None).keys == frozenset()
    assert found_in(texts[:9], window).keys == frozenset()  # too few to tell


def test_prompts_that_differ_by_a_number_have_one_count() -> None:
    texts = [f"{note_of(1_800)} Was there a fever on day {number}?" for number in range(40)]
    prompts = CutPrompts()
    for number, text in enumerate(texts):
        prompts.add((f"id{number}", 0, None), text, 2_050)
    assert prompts.find_cut().keys == frozenset()


@pytest.mark.parametrize("window", [2_048, 4_096])
def test_a_server_that_leaves_out_blocks_of_half_its_window(window: int) -> None:
    """llama.cpp with --context-shift: what is left grows from half of the window to all of it."""
    texts = [note_of(words, words) for words in range(200, 6_000, 150)]
    prompts = CutPrompts()
    cut = set()
    for number, text in enumerate(texts):
        tokens = tokens_in(text)
        if tokens >= window:
            cut.add(f"id{number}")
            tokens = window // 2 + tokens % (window // 2)
        prompts.add((f"id{number}", 0, None), text, tokens)
    found = {key[0] for key in prompts.find_cut().keys}
    assert found <= cut
    assert len(found) > len(cut) / 2


def test_prompts_without_a_text_say_nothing() -> None:
    """A picture alone has tokens too."""
    prompts = CutPrompts()
    prompts.add(("picture", 0, None), "", 765)
    for number, text in enumerate(LONG):
        prompts.add((f"id{number}", 0, None), text, 2_050)
    assert {key[0] for key in prompts.find_cut().keys} == {f"id{number}" for number in range(8)}
