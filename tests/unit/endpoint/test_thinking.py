"""Tests of what a model thought, and what it answered."""

from __future__ import annotations

import pytest

from eval_factory.endpoint.thinking import AnswerAndThinking, split_thinking

START = "<think>"
END = "</think>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", AnswerAndThinking("B", None)),
        (" B ", AnswerAndThinking(" B ", None)),
        ("<think>hm</think>\n\nB", AnswerAndThinking("B", "hm")),
        ("hm</think> B", AnswerAndThinking("B", "hm")),
        ("Well. <think>hm</think>B", AnswerAndThinking("Well. B", "hm")),
        ("<think>a</think>x</think>B", AnswerAndThinking("B", "a</think>x")),
        ("<think>hm", AnswerAndThinking("", "hm", unfinished=True)),
        ("Well. <think>hm", AnswerAndThinking("Well.", "hm", unfinished=True)),
    ],
)
@pytest.mark.parametrize("cut_off", [False, True])
def test_what_stands_between_the_markers_is_thinking(
    text: str, expected: AnswerAndThinking, *, cut_off: bool
) -> None:
    assert split_thinking(text, START, END, cut_off=cut_off) == expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<t", ""),
        ("\n<think", ""),
        ("Well. <thi", "Well."),
        ("Well. <thin \n", "Well."),
        ("<thi<thi", "<thi"),
    ],
)
def test_a_begun_marker_at_the_end_of_what_was_cut_off_is_thinking(text: str, answer: str) -> None:
    assert split_thinking(text, START, END, cut_off=True) == AnswerAndThinking(
        answer, "", unfinished=True
    )
    assert split_thinking(text, START, END) == AnswerAndThinking(text, None)


@pytest.mark.parametrize(
    "text", ["", "<", "B", "B \n", "pH <", "pH <t", "a table <th", "<b", "think>", "<think a", "<<"]
)
def test_other_ends_are_none(text: str) -> None:
    assert split_thinking(text, START, END, cut_off=True) == AnswerAndThinking(text, None)


@pytest.mark.parametrize(
    ("text", "answer"), [("B", "B"), ("Be", ""), ("1", "1"), ("x Beg", "x Beg"), ("x Begi", "x")]
)
def test_a_letter_may_be_an_answer_where_a_marker_is_a_word(text: str, answer: str) -> None:
    assert split_thinking(text, "Begin:", "End:", cut_off=True).answer == answer
    assert split_thinking("1", "1)", "2)", cut_off=True) == AnswerAndThinking("1", None)


ANALYSIS = "<|channel|>analysis<|message|>"
FINAL = "<|channel|>final<|message|>"
TURN = "<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("<thinking>hm</thinking>\n\nB", "B", "hm"),
        ("hm</thinking>B", "B", "hm"),
        ("[THINK]hm[/THINK]B", "B", "hm"),
        ("<seed:think>hm</seed:think>B", "B", "hm"),
        ("hm</seed:think>B", "B", "hm"),
        ("<think>a</think><thinking>b</thinking>B", "B", "a\n\nb"),
        (f"{ANALYSIS}hm{TURN}{FINAL}B<|return|>", "B", "hm"),
        (f"<|start|>assistant{ANALYSIS}hm<|end|>\n<|start|>assistant{FINAL}B", "B", "hm"),
        (f"{ANALYSIS}hm{TURN}<|channel|>commentary<|message|>so{TURN}{FINAL}B<|end|>", "B", "hmso"),
        (f"{FINAL}B", "B", ""),
        ("<unused94>thought\nhm<unused95>B", "B", "thought\nhm"),
        ("## Thinking\n\nhm\n\n## Final Response\n\nB", "B", "hm"),
        ("A report.\n## Final Response\nB", "A report.\n## Final Response\nB", None),
        ("[THINKING] B", "[THINKING] B", None),
        ("<|im_end|> B", "<|im_end|> B", None),
    ],
)
def test_the_markers_of_other_models_are_known(text: str, answer: str, thought: str | None) -> None:
    assert split_thinking(text, START, END) == AnswerAndThinking(answer, thought)
    assert split_thinking(text, "<r>", "</r>") == AnswerAndThinking(
        text, None
    )  # own markers are the only ones
    assert split_thinking("<r>hm</r><think>x</think>B", "<r>", "</r>") == AnswerAndThinking(
        "<think>x</think>B", "hm"
    )


@pytest.mark.parametrize(
    "start",
    [
        "<thinking>",
        "[THINK]",
        "<seed:think>",
        "<unused94>",
        ANALYSIS,
        f"<|start|>assistant{ANALYSIS}",
    ],
)
def test_thinking_without_an_end_is_cut_off_whatever_its_markers(start: str) -> None:
    assert split_thinking(f"{start}hm", START, END) == AnswerAndThinking("", "hm", unfinished=True)
    assert split_thinking(f"{start}hm", "<r>", "</r>") == AnswerAndThinking(f"{start}hm", None)
    assert split_thinking("## Thinking\nhm", START, END) == AnswerAndThinking(
        "", "hm", unfinished=True
    )
    begun = split_thinking(start[:-2], START, END, cut_off=True)
    assert (begun.unfinished, begun.answer) == (True, "")
