from __future__ import annotations

import pytest

from eval_factory.helm.metric_facts import is_score


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exact_match", True),
        ("rouge_l", True),
        ("number_of_errors", True),
        ("num_output_tokens", False),
        ("finish_reason_stop", False),
        ("inference_runtime", False),
        ("training_co2_cost", False),
        ("batch_size", False),
        ("max_prob", False),
        ("logprob_per_byte", False),
        ("predicted_index", False),
        ("prompt_truncated", False),
        ("prompt_truncated_twice", True),
        ("perplexity", False),
        ("bits_per_byte", False),
    ],
)
def test_what_says_something_of_the_answers(name: str, expected: bool) -> None:
    assert is_score(name) is expected
