"""What is refused because an endpoint gives text for text only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eval_factory.helm_plugin.runner import needed_capability


@pytest.mark.parametrize(
    ("method", "needed"),
    [
        ("generation", None), ("chat", None), ("multiple_choice_joint", None), ("ehr_instruction", None),
        ("multiple_choice_joint_chain_of_thought", None),
        ("generation_multimodal", "images or sounds in the prompt"),
        ("multiple_choice_joint_multimodal", "images or sounds in the prompt"),
        ("language_modeling", "the log probabilities of its prompts"),
        ("multiple_choice_separate_original", "the log probabilities of its prompts"),
        ("multiple_choice_separate_calibrated", "the log probabilities of its prompts"),
        ("ranking_binary", "the log probabilities of its answers"),
    ],
)  # fmt: skip
def test_by_method(method: str, needed: str | None) -> None:
    assert needed_capability(SimpleNamespace(method=method, image_generation_parameters=None)) == needed


def test_images_to_be_made() -> None:
    assert needed_capability(SimpleNamespace(method="generation", image_generation_parameters=object())) == "images"
