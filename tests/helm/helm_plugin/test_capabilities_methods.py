"""Every method of HELM's was thought of."""

from __future__ import annotations


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
