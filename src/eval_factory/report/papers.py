"""Writes texts about runs for papers: methods texts, TRIPOD-LLM checklists and CHAI's model cards.

TRIPOD-LLM is a guideline for the reporting of medical studies with language models. CHAI is the
Coalition for Health AI. The file `papers.yml` has Jinja templates of the texts, which are filled
with facts from results (`described_run.py`). A sentence about a fact is left out if the result does
not have the fact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Score, TaskResult
from eval_factory.core.tables import Table, code, markdown_lines
from eval_factory.report.described_run import Citations, DescribedRun, Writer
from eval_factory.report.paper_templates import paper_texts, template_of
from eval_factory.report.reader import StoredResult

CHAI = "https://mc.chai.org/v0.2/schema.xsd"  # the XML namespace of CHAI's model card


def methods_text(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Return the methods text of one run, in paragraphs with a blank line between them.

    The references are the last paragraph.
    """
    return methods_text_of_runs(DescribedRun(result, config, target))


def methods_text_of_runs(writer: Writer) -> str:
    """Return the methods text of one run or of several.

    The sentences are rendered in the order of the text, so that the numbers of the sources ascend.
    """
    paragraphs = []
    for names in paper_texts()["methods"]:  # for each paragraph, the names of its sentences
        # Each line of the template is a call such as `{{ say('task') }}`.
        template = "\n".join(f"{{{{ say('{name}') }}}}" for name in names)
        paragraphs.append(writer.render_sentences(template))
    for item in ("7e", "5e"):  # items of TRIPOD-LLM about comparisons of models
        paragraphs.append(writer.comparison_sentences(item))
    # A paragraph has no sentences if the result has none of its facts.
    parts = [" ".join(sentences) for sentences in paragraphs if sentences]
    references = []
    for number, source in enumerate(writer.cite.listed(), start=1):
        references.append(f"[{number}] {source}")
    parts.append("\n".join(["References", *references]))
    if writer.in_table:
        parts.append("\n".join(["Runs", "", *markdown_lines(writer.runs_table())]))
    return "\n\n".join(parts) + "\n"


def describe_run_beside_table(stored: StoredResult, cite: Citations) -> DescribedRun:
    """Return a run for a methods text in which a table has the counts and hashes of all runs."""
    sentences = {**paper_texts()["sentences"], **paper_texts()["sentences_beside_table"]}
    return DescribedRun(
        stored.result,
        stored.config,
        stored.target,
        cite=cite,
        sentences=sentences,
        in_table=True,
    )


def tripod_llm(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Return the TRIPOD-LLM checklist of one run as Markdown.

    The items about which the run has facts come first; each also lists the facts that are not
    known. The items for the authors follow.
    """
    run_sentence = (
        f"Of the run {code(result.provenance.run_identity)}: "
        f"{code(result.task)}, {code(result.provenance.target)}."
    )
    run = DescribedRun(result, config, target, Citations("(ref. {})"))
    return tripod_llm_of_runs(run, run_sentence)


def tripod_llm_of_runs(writer: Writer, run_sentence: str) -> str:
    """Return the TRIPOD-LLM checklist of one run or of several.

    `run_sentence` is the sentence that names the runs.
    """
    guideline = writer.cite("tripod_llm")  # cited first, so its number is 1
    filled = []
    rows_for_authors = []
    for number, item in paper_texts()["tripod_llm"].items():
        if "known" not in item:  # No run has facts for this item.
            rows_for_authors.append([number, item["topic"]])
            continue
        if item.get("is_list"):
            known_sentences = writer.render_by_run(item["known"])
        else:
            known_sentences = writer.render_sentences(item["known"])
        sentences = [*known_sentences, *writer.comparison_sentences(number)]
        unknown = item["unknown"]
        # Only several models that are compared have sentences for item 17.
        if "unknown_of_compared" in item and writer.comparison_sentences("17"):
            unknown = item["unknown_of_compared"]
        filled.append(
            {
                "is_list": False,
                "other": None,  # the item's number in other copies of the checklist
                **item,
                "number": number,
                "sentences": sentences,
                "unknown": writer.render_sentences("\n".join(unknown)),
            }
        )
    values = {
        "of": run_sentence,
        "source": guideline,
        "items": filled,
        # the items that are left for the authors
        "left": "\n".join(markdown_lines(Table(["item", "topic"], rows_for_authors))),
        "references": writer.cite.listed(),
    }
    return template_of(paper_texts()["tripod_document"]).render(values)


def model_card(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Return the XML element KeyMetrics of an Applied Model Card of the Coalition for Health AI.

    The user puts the element into a complete card. The schema of the card is version 0.2
    (github.com/coalition-for-health-ai/mc-schema). The element has three kinds of metrics. Each
    kind has a goal, results, an interpretation, a type of test, data and a process. The texts of
    these parts may be Markdown. A result is a label with a value in JSON. The values `single` and
    `estimate_ci` have the form of the examples in the repository of the schema.
    """
    card = paper_texts()["model_card"]
    scores = {name: _card_value(score) for name, score in result.scores.items()}
    # in the order of the card's kinds: efficacy, fairness, safety
    results_by_kind = [scores, _group_values(result), _count_values(result)]
    kinds: list[dict[str, Any]] = []
    for (name, kind), results in zip(card["kinds"].items(), results_by_kind, strict=True):
        run = DescribedRun(result, config, target, Citations("(ref. {})"))
        # Data and process are the same for all kinds. Only the first kind has their texts.
        is_first = not kinds
        if is_first:
            data = []
            for part in card["data"]:
                data += run.render_sentences(paper_texts()["sentences"][part])
            process = run.render_sentences(card["process"])
            for number, source in enumerate(run.cite.listed(), start=1):
                process.append(f"Ref. {number}: {source}")
        else:
            data = [card["as_above"]]
            process = [card["as_above"]]
        kinds.append(
            {
                "name": name,
                "results": results or {card["unknown"]: {"kind": "single", "value": None}},
                "data": data,
                "process": process,
                "goal": run.render_sentences(kind["goal"]),
                "interpretation": run.render_sentences(kind["interpretation"]),
            }
        )
    return template_of(card["document"]).render(
        kinds=kinds, test_type=card["test_type"], namespace=CHAI
    )


def _group_values(result: TaskResult) -> dict[str, Any]:
    """Return the main score of each group, as values of the card.

    The label of a score is `METRIC, FIELD: VALUE`, such as `exact_match, language: German`.
    """
    main = result.main_metric
    values = {}
    for field_name, by_value in result.groups.items():
        for value, scores in by_value.items():
            if main in scores:
                values[f"{main}, {field_name}: {value}"] = _card_value(scores[main])
    return values


_CARD_COUNTS = (
    "requested",
    "scored",
    "failed",
    "empty",
    "truncated",
    "unparsed",
    "refused",
    "unjudged",
)


def _count_values(result: TaskResult) -> dict[str, Any]:
    """Return the numbers of instances by outcome, as values of the card."""
    values = {}
    for name in _CARD_COUNTS:
        count = getattr(result.validity.instances, name)
        values[f"Instances {name}"] = {"kind": "single", "value": count, "unit": "count"}
    return values


def _card_value(score: Score) -> dict[str, Any]:
    """Return the score, not rounded, as a value of the card, with its interval if it has one.

    A score that is not finite becomes null, because JSON has only finite numbers.
    """
    if not math.isfinite(score.value):
        return {"kind": "single", "value": None}
    low = score.stats.ci_low
    high = score.stats.ci_high
    if low is None or high is None:
        value = {"kind": "single", "value": score.value}
    else:
        value = {
            "kind": "estimate_ci",
            "estimate": score.value,
            "lower": low,
            "upper": high,
            "level": 95,
        }
    if score.unit is not None:
        value["unit"] = one_line(score.unit)
    return value
