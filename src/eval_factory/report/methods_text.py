"""The methods section of a paper, as far as a run can write it: plain paragraphs with numbered references."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eval_factory.core.results import TaskResult
from eval_factory.report import method_sentences as say
from eval_factory.report.bibliography import Citations
from eval_factory.report.run_facts import RunFacts


def methods_text(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Paragraphs in plain English, a blank line between them, and the references last.

    It says what the result knows and no more; every value that others wrote is printable, and on one line.

    Args:
        config: `config` of the run, with its defaults where they are known.
        target: `target` of the run.
    """
    facts, cite = RunFacts(result, config, target), Citations()
    paragraphs = [
        [*say.benchmark(facts, cite), *say.instances(facts)],
        [*say.model(facts), *say.dates(facts), *say.sampling(facts), *say.prompts(facts)],
        [*say.metric(facts, cite), *say.corrections(facts)],
        list(say.jury(facts, cite)),
        [*say.intervals(facts, cite), *say.missing(facts), *say.reportable(facts)],
        list(say.deviations(facts)),
        list(say.software(facts)),
    ]
    references = "\n".join(["References", *cite.listed()])
    return "\n\n".join([*filter(None, map(_paragraph, paragraphs)), references]) + "\n"


def _paragraph(sentences: Iterable[str]) -> str:
    return " ".join(sentences)
