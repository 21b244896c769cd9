"""Finds the family of a model, such as `llama`, by the model's id.

model_families.yml contains the regular expressions that identify each family.
"""

from __future__ import annotations

import re

from eval_factory.core.plain_yaml import load_packaged

_EXPRESSIONS = load_packaged("scoring/model_families.yml")


def _patterns(topic: str) -> dict[str, re.Pattern[str]]:
    """Return a pattern for each family, which finds the family's expressions at a word's start.

    Args:
        topic: a key of model_families.yml: `family` or `derived`. A derived model was made from
            another model, whose family is known.
    """
    patterns = {}
    for family, expressions in _EXPRESSIONS[topic].items():
        alternatives = "|".join(expressions)
        # No letter comes before the name: `llama` is found in "meta-llama-3", but not in "ollama".
        patterns[family] = re.compile(f"(?<![a-z])(?:{alternatives})", re.IGNORECASE)
    return patterns


_FAMILIES = _patterns("family")
_DERIVED = _patterns("derived")


def family_of(model_id: str) -> str | None:
    """Return the family that a model's id names; None if the id names no family.

    The model's own name is searched before the provider's name in front of the slash, because
    gateways also use `openai/` as the name of an API. If the own name states a family, as
    `meditron3-qwen2.5` states `qwen`, this family takes precedence over the family that
    model_families.yml lists for `meditron` under `derived`.
    """
    provider, _, name = model_id.rpartition("/")
    for text, families in ((name, _FAMILIES), (name, _DERIVED), (provider, _FAMILIES)):
        for family, pattern in families.items():
            if pattern.search(text):
                return family
    return None


def same_family(model: str, second_model: str) -> bool | None:
    """Return True if two models are of one family, and False if they are of two families.

    Return None if one of the ids names no family.
    """
    family = family_of(model)
    second_family = family_of(second_model)
    if family is None or second_family is None:
        return None
    return family == second_family
