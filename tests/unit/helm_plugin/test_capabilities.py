"""What is refused because an endpoint gives text for text only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eval_factory.helm_plugin.capabilities import needed_capability


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


def test_every_method_of_helm_was_thought_of() -> None:
    from helm.benchmark.adaptation import adapter_spec

    methods = {
        value for name, value in vars(adapter_spec).items() if name.startswith("ADAPT_") and isinstance(value, str)
    }
    assert methods == {
        "generation", "chat", "multiple_choice_joint", "ehr_instruction", "multiple_choice_joint_chain_of_thought",
        "generation_multimodal", "multiple_choice_joint_multimodal", "language_modeling",
        "multiple_choice_separate_original", "multiple_choice_separate_calibrated", "ranking_binary",
    }  # fmt: skip
