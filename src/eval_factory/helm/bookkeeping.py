"""Which of HELM's statistics say something of the answers, and which of the run only."""

from __future__ import annotations

BOOKKEEPING_PREFIXES = ("num_", "finish_reason_", "training_", "inference_", "batch_size", "max_prob", "logprob")
BOOKKEEPING = frozenset({"predicted_index", "prompt_truncated", "perplexity", "bits_per_byte"})
"""Statistics of the run, not of the answers: none of them is a score."""


def is_score(name: str) -> bool:
    """Whether a HELM statistic says something about the answers' quality."""
    return name not in BOOKKEEPING and not name.startswith(BOOKKEEPING_PREFIXES)
