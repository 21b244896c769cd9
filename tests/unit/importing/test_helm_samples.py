"""Answers of bare HELM: which references are options, and where each stands."""

from __future__ import annotations

from eval_factory.helm.output import RequestState
from eval_factory.importing.counting import SampleCounts
from eval_factory.importing.helm_folders import sample_of

REFERENCES = [
    {"output": {"text": text}, "tags": ["correct"] if text == "liver" else []}
    for text in ("liver", "heart", "lung")
]


def state(mapping: dict[str, str] | None, answer: str = " C") -> RequestState:
    return RequestState.model_validate(
        {
            "instance": {
                "id": "id1",
                "input": {"text": "Which organ?"},
                "references": REFERENCES,
                "split": "test",
            },
            "train_trial_index": 0,
            "request": {"prompt": "Which organ?"},
            "result": {"success": True, "completions": [{"text": answer}]},
            "output_mapping": mapping,
        }
    )


def test_options_stand_where_the_prompt_has_them() -> None:
    sample = sample_of(state({"A": "lung", "B": "heart", "C": "liver"}), {}, "folder")
    assert sample.options == ("lung", "heart", "liver")
    assert sample.right_options == (2,)
    counts = SampleCounts("exact_match")
    counts.add(sample)
    assert list(counts.reader_values.values()) == [1.0]


def test_references_that_no_prompt_letters_are_no_options() -> None:
    values = {"exact_match": {("id1", 0, None): 1.0}}
    sample = sample_of(state(None), values, "folder")
    assert sample.options == ()
    assert sample.right_answers == ("liver",)
    counts = SampleCounts("exact_match")
    counts.add(sample)
    assert counts.floor() is None, "the right one stands first in many scenarios"
    assert not counts.reader_values
