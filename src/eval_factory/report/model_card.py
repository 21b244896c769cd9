"""`report --for model-card`: the element KeyMetrics of the Applied Model Card of the Coalition for Health AI (CHAI).

Its schema, version 0.2 (github.com/coalition-for-health-ai/mc-schema): three kinds of metrics, each with goal, results,
interpretation, kind of test, data and process; every text may be Markdown. A result is a label and a value as JSON: its
kinds `single` and `estimate_ci` are those of the examples beside the schema. A null is a value that nobody knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Score, TaskResult
from eval_factory.report import method_sentences as say
from eval_factory.report.bibliography import Citations
from eval_factory.report.markdown_text import prose
from eval_factory.report.run_facts import RunFacts

NAMESPACE = "https://mc.chai.org/v0.2/schema.xsd"
UNKNOWN = "Not known to eval-factory"
TEST_TYPE = "A benchmark, run and scored by a program; no clinical study."
AS_ABOVE = "As of UsefulnessUsabilityEfficacy."
RELIABILITY = ("requested", "scored", "failed", "empty", "truncated", "unparsed", "refused", "unjudged")
"""Counts that tell how reliably the model answered."""


def model_card(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """XML that takes the place of KeyMetrics in a card."""
    facts = RunFacts(result, config, target)
    root = ET.Element("KeyMetrics", {"xmlns": NAMESPACE})
    _kind(root, "UsefulnessUsabilityEfficacy", facts, _usefulness(facts), _scores(facts))
    _kind(root, "FairnessEquity", facts, _fairness(facts), _groups(facts))
    _kind(root, "SafetyReliability", facts, _safety(facts), _counts(facts))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", short_empty_elements=False) + "\n"


_Texts = tuple[str, list[str]]
"""Goal, and sentences of the interpretation."""
_Results = Iterable[tuple[str, dict[str, Any]]]


def _kind(root: ET.Element, name: str, facts: RunFacts, texts: _Texts, results: _Results) -> None:
    """One of the three, its elements in the order of the schema; data and process are the same of all."""
    is_first = len(root) == 0
    element = ET.SubElement(root, name)
    _text(element, "MetricGoal", [texts[0]])
    listed = ET.SubElement(element, "Results")
    for label, value in list(results) or [(UNKNOWN, {"kind": "single", "value": None})]:
        found = ET.SubElement(listed, "MetricResult")
        ET.SubElement(found, "Label").text = prose(label)
        ET.SubElement(found, "ValueJson").text = json.dumps(value, allow_nan=False)
    _text(element, "Interpretation", texts[1])
    _text(element, "TestType", [TEST_TYPE])
    data, process = _data_and_process(facts) if is_first else ([AS_ABOVE], [AS_ABOVE])
    _text(element, "TestingDataDescription", data)
    _text(element, "ValidationProcessAndJustification", process)


def _data_and_process(facts: RunFacts) -> tuple[list[str], list[str]]:
    cite = Citations("(ref. {})")
    data = [*say.benchmark(facts, cite), *say.instances(facts)]
    process = [
        *say.model(facts), *say.dates(facts), *say.sampling(facts), *say.metric(facts, cite), *say.jury(facts, cite),
        *say.intervals(facts, cite), *say.software(facts), f"{UNKNOWN}: why this benchmark suits the intended use.",
    ]  # fmt: skip
    sources = [f"Ref. {number}: {source}" for number, source in enumerate(cite.listed(), 1)]
    return data, [*process, *sources]


def _text(parent: ET.Element, name: str, sentences: Iterable[str]) -> None:
    ET.SubElement(parent, name).text = " ".join(map(prose, sentences))


def _usefulness(facts: RunFacts) -> _Texts:
    name = one_line(facts.result.main_metric)
    bounds = [*say.reportable(facts), *say.missing(facts), *say.deviations(facts)]
    return (
        f"To measure {name} of {facts.model_name} on {facts.name}. {UNKNOWN}: the value that has to be reached.",
        [*bounds, f"{UNKNOWN}: what this score means for the intended use."],
    )


def _fairness(facts: RunFacts) -> _Texts:
    fields = [one_line(field) for field in facts.result.groups]
    if not fields:
        return (f"{UNKNOWN}: the data name no groups.", [f"{UNKNOWN}: nothing was measured of fairness."])
    return (
        f"To compare the groups of instances by {', '.join(fields)}.",
        [f"{UNKNOWN}: whether these fields are attributes of patients, and which differences matter."],
    )


def _safety(facts: RunFacts) -> _Texts:
    return (
        "To count how reliably the model gave answers that can be scored.",
        [*say.missing(facts), f"{UNKNOWN}: whether answers are safe; the benchmark's score alone does not tell."],
    )


def _scores(facts: RunFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, _value(score)) for name, score in facts.result.scores.items())


def _groups(facts: RunFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    main = facts.result.main_metric
    for field, by_value in facts.result.groups.items():
        yield from (
            (f"{main}, {field}: {value}", _value(scores[main])) for value, scores in by_value.items() if main in scores
        )


def _counts(facts: RunFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    counts = facts.result.validity.instances
    for name in RELIABILITY:
        yield f"Instances {name}", {"kind": "single", "value": getattr(counts, name), "unit": "count"}


def _value(score: Score) -> dict[str, Any]:
    """To the last digit, with its interval where there is one; JSON has no number for one that is not finite."""
    if not math.isfinite(score.value):
        return {"kind": "single", "value": None}
    unit = {} if score.unit is None else {"unit": one_line(score.unit)}
    low, high = score.stats.ci_low, score.stats.ci_high
    if low is None or high is None:
        return {"kind": "single", "value": score.value, **unit}
    return {"kind": "estimate_ci", "estimate": score.value, "lower": low, "upper": high, "level": 95, **unit}
