"""What is refused because an endpoint gives text for text only: every method of HELM's was thought of."""

from __future__ import annotations

from types import SimpleNamespace

from helm.benchmark.adaptation import adapter_spec

from eval_factory.helm_plugin.runner import needed_capability

PROMPTS, SEEN = "the log probabilities of its prompts", "images or sounds in the prompt"
NEEDED = {
    **dict.fromkeys(("generation", "chat", "multiple_choice_joint", "ehr_instruction")),
    "multiple_choice_joint_chain_of_thought": None,
    "generation_multimodal": SEEN, "multiple_choice_joint_multimodal": SEEN,
    "language_modeling": PROMPTS, "multiple_choice_separate_original": PROMPTS,
    "multiple_choice_separate_calibrated": PROMPTS,
    "ranking_binary": "the log probabilities of its answers",
}  # fmt: skip


def test_by_method() -> None:
    known = {name: value for name, value in vars(adapter_spec).items() if name.startswith("ADAPT_")}
    plain = {"image_generation_parameters": None}
    methods = [method for method in known.values() if isinstance(method, str)]
    assert {method: needed_capability(SimpleNamespace(method=method, **plain)) for method in methods} == NEEDED
    assert needed_capability(SimpleNamespace(method="generation", image_generation_parameters=object())) == "images"
