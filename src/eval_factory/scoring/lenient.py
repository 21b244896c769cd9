"""The label that an answer to a multiple-choice question means, by a published rule of extraction.

The rule is that of MMLU-Pro (Y. Wang et al., NeurIPS 2024, arXiv 2406.01574, `evaluate_from_api.py`), after the markup
of Markdown and LaTeX was taken out, as OpenAI's simple-evals does it: "answer is (B)"; else "Answer: B", the last of
the first line that has it; else the last label that stands alone. Two things differ: the labels are the question's own
in place of A to J, and what begins a word is none ("The answer is Bupropion").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from eval_factory.scoring.metric_values import InstanceKey, MetricValues

LENIENT = ".lenient"
METRIC = "exact_match"
RULE = "the extraction rule of MMLU-Pro (arXiv 2406.01574)"

_MARKUP = re.compile(r"\*\*|[*_$`{}]|\\(?:boxed|textbf|text|mathrm|mathbf)|\\[({]")


def label_in(answer: str, labels: Sequence[str]) -> str | None:
    """The label that an answer means; None where it holds none.

    Args:
        labels: of the options, such as A, B, C, D.
    """
    if not labels:
        return None
    text = _MARKUP.sub("", answer)
    answer_is, answer_colon, alone = _patterns(tuple(labels))
    said = answer_is.search(text)
    if said is not None:
        return said[1]
    named = list(answer_colon.finditer(text))
    if named:
        line_end = text.find("\n", named[0].start())
        return [match[1] for match in named if line_end < 0 or match.start() < line_end][-1]
    standing_alone: list[str] = alone.findall(text)
    return standing_alone[-1] if standing_alone else None


@lru_cache(maxsize=64)
def _patterns(labels: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    label = "|".join(re.escape(one) for one in sorted(labels, key=len, reverse=True))
    return (
        re.compile(rf"answer is \(?({label})\b"),
        re.compile(rf"[aA]nswer:\s*({label})\b"),
        re.compile(rf"\b(?:{label})\b"),
    )


def lenient_metrics(metrics: Sequence[MetricValues], values: Mapping[InstanceKey, float]) -> list[MetricValues]:
    """`exact_match.lenient`, for each split in which HELM computed exact_match of what was not perturbed.

    Args:
        values: 1 or 0 by the rule. An instance without an answer has none; it keeps its place with 0, for the bounds.
    """
    return [
        MetricValues(
            METRIC + LENIENT + metric.label.removeprefix(METRIC), METRIC + LENIENT, None, merged=True,
            scale=metric.scale, values={key: values.get(key, 0.0) for key in metric.values}, split=metric.split,
        )
        for metric in metrics
        if metric.name == METRIC and metric.perturbation is None and metric.values
    ]  # fmt: skip
