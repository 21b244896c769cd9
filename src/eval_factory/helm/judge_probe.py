"""What judges say of an answer that says nothing: the answer, and what helm-run keeps of it for the collector."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names

COUNT = 10
"""Questions to which it is judged."""
NAME = "padded generic answer"
ANSWER = (
    "Thank you very much for your question. It is good that you have asked, and I am glad to help. There are several"
    " things to consider here, and every person and every situation is different. It is important to look at all of the"
    " relevant factors carefully, to weigh the advantages and the disadvantages, and to take the individual"
    " circumstances into account. A qualified professional can assess these in detail and give advice that fits. In"
    " general, a careful, balanced and evidence-based approach is recommended, and open questions should be discussed"
    " in good time. Please keep in mind that this is general information. If anything is unclear, or if you have"
    " further questions, do not hesitate to ask. I hope that this is of help to you, and I wish you all the best."
)


@dataclass(frozen=True)
class JudgedProbe:
    instance: str
    annotations: Mapping[str, Any]
    """HELM's, as of any answer."""


def write(helm_dir: Path, instances: Sequence[str], annotations: Sequence[Mapping[str, Any] | None]) -> None:
    lines = [{"instance": one, "annotations": found or {}} for one, found in zip(instances, annotations, strict=True)]
    write_atomic(helm_dir / names.JUDGE_PROBE_FILE, json.dumps(lines, indent=2) + "\n")


def read(helm_dir: Path) -> list[JudgedProbe]:
    """Empty where there is no such file, or none of this version: it is worth no failed result."""
    try:
        lines = json.loads((helm_dir / names.JUDGE_PROBE_FILE).read_text(encoding="utf-8"))
        return [JudgedProbe(str(line["instance"]), dict(line["annotations"])) for line in lines]
    except (OSError, ValueError, TypeError, KeyError):
        return []
