"""HealthBench's published files (Arora et al. 2025, arXiv 2505.08775; MIT)."""

from __future__ import annotations

WHOLE, HARD, CONSENSUS = "all", "hard", "consensus"

PUBLISHED = {
    WHOLE: "2025-05-07-06-14-12_oss_eval.jsonl",
    HARD: "hard_2025-05-08-21-00-10.jsonl",
    CONSENSUS: "consensus_2025-05-09-20-00-46.jsonl",
}
"""Subset -> its file; the names hold the time of the revision. `data/sources.yml` has the same for `data pull`."""


def published_url(subset: str) -> str:
    return f"https://openaipublic.blob.core.windows.net/simple-evals/healthbench/{PUBLISHED[subset]}"
