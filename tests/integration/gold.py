"""The gold answer of every prompt, from the output folder of a run that asked them."""

from __future__ import annotations

import json
from typing import Any

from integration.support import Outcome


def gold_answers(outcome: Outcome) -> dict[str, str]:
    """Prompt as the endpoint saw it -> the right answer: a letter where options were given, else the reference."""
    (file,) = (outcome.output_dir / "helm" / "runs").glob("*/*/scenario_state.json")
    found: dict[str, str] = {}
    for state in json.loads(file.read_text("utf-8"))["request_states"]:
        found[state["request"]["prompt"]] = _gold(state)
    return found


def _gold(state: dict[str, Any]) -> str:
    right: list[str] = [
        ref["output"]["text"] for ref in state["instance"].get("references", []) if "correct" in ref.get("tags", [])
    ]
    if (state["instance"].get("extra_data") or {}).get("is_impossible"):
        return ""  # EHRSQL: no query is the right answer
    mapping: dict[str, str] | None = state.get("output_mapping")
    if mapping:
        return next(letter for letter, text in mapping.items() if text in right)
    return right[0] if right else ""
