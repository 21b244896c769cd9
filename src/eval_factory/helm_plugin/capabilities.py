"""Which capability of a model, beside text for text, a run needs: no endpoint of ours has one of them."""

from __future__ import annotations

from typing import Any

_BY_METHOD = {
    "_multimodal": "images or sounds in the prompt",
    "language_modeling": "the log probabilities of its prompts",
    "multiple_choice_separate": "the log probabilities of its prompts",
    "ranking_binary": "the log probabilities of its answers",
}


def needed_capability(adapter_spec: Any) -> str | None:
    """What a run needs of a model beside text for text, by HELM's `AdapterSpec`; None where text is enough."""
    if adapter_spec.image_generation_parameters is not None:
        return "images"
    return next((needed for part, needed in _BY_METHOD.items() if part in adapter_spec.method), None)
