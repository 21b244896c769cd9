"""Writes the sentences of a document about one run, with citations and the table of runs.

A document is a text about runs, such as a methods text or an evidence pack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, TaskResult
from eval_factory.core.tables import Table
from eval_factory.report.paper_facts import facts_of_run
from eval_factory.report.paper_templates import paper_texts, rendered_lines, template_of

RECORD_COLUMNS = [
    "model",
    "benchmark",
    "requests",
    "scored",
    "failed",
    "best score without a model",
    "run",
    "first answer (UTC)",
    "last answer (UTC)",
    "revision or SHA-256 of the data",
    "SHA-256 of the prompts",
    "SHA-256 of the judges' prompts",
]
"""The head of the table of runs. `record_row` returns the cells after `model` and `benchmark`."""
NOT_RECORDED = "-"  # the cell of a value that the result does not have


@dataclass
class Citations:
    """The sources that a text cites. A source's number is the order of its first citation."""

    form: str = "[{}]"  # the format of a citation
    sources: Mapping[str, str] = field(default_factory=lambda: paper_texts()["sources"])
    _cited: list[str] = field(default_factory=list)

    def __call__(self, *names: str) -> str:
        """Return the citation of these sources, such as `[1]` or `[1, 3]`.

        Raises KeyError if a name is not the name of a source.
        """
        numbers = []
        for name in names:
            self.sources[name]  # raises KeyError if there is no such source
            if name not in self._cited:
                self._cited.append(name)
            numbers.append(str(self._cited.index(name) + 1))
        return self.form.format(", ".join(numbers))

    def listed(self) -> list[str]:
        """Return the text of each cited source, in the order of the numbers."""
        return [f"{self.sources[name]}." for name in self._cited]


class Writer(Protocol):
    """An object that writes a document's sentences about one run, or about several runs at once.

    A document is a text about runs, such as a methods text or an evidence pack.
    """

    @property
    def cite(self) -> Citations:
        """The citations of the document."""

    @property
    def in_table(self) -> bool:
        """True if the times and hashes of the runs are in a table, not in the text."""

    def render_sentences(self, template: str) -> list[str]:
        """Return the sentences of a template. A sentence that is true of all runs occurs once."""

    def render_by_run(self, template: str) -> list[str]:
        """Return the sentences of a template for each run separately, even if they are equal.

        Equal values of two runs are two measurements.
        """

    def comparison_sentences(self, item: str) -> list[str]:
        """Return the sentences that a comparison of models adds to an item of TRIPOD-LLM."""

    def runs_table(self) -> Table:
        """Return a table with the counts, times and hashes of each run."""


@dataclass(frozen=True)
class DescribedRun:
    """One run that a document describes; a `Writer` of sentences about the run."""

    result: TaskResult
    config: Mapping[str, Any]  # `config` of the run, with its defaults if they are known
    target: Mapping[str, Any]  # `target` of the run, with its defaults if they are known
    cite: Citations = field(default_factory=Citations)
    # name -> template
    sentences: Mapping[str, str] = field(default_factory=lambda: paper_texts()["sentences"])
    # path -> SHA-256, from SHA256SUMS; empty if the document does not mention the files
    files: Mapping[str, str] = field(default_factory=dict)
    in_table: bool = False
    """True if the run's times and hashes are in the table of runs, not in the text."""

    @cached_property
    def _values(self) -> dict[str, Any]:
        """The variables of the templates, with the `facts` that papers.yml defines."""
        values = facts_of_run(self.result, self.config, self.target)
        # The template `facts` prints nothing. The variables that it sets with `{% set %}` become
        # attributes of the object that `make_module` returns.
        facts = vars(template_of(paper_texts()["facts"]).make_module(values))
        helpers = {
            "cite": self.cite,
            "say": self.say,
            "files": self.files,
            "in_table": self.in_table,
        }
        return {**values, **facts, **helpers}

    def render_sentences(self, template: str) -> list[str]:
        """Return the sentences of a template."""
        return rendered_lines(template, self._values)

    render_by_run = render_sentences  # For one run, both return the same sentences.

    def say(self, name: str) -> str:
        """Return the sentences of the named template, one on each line."""
        return "\n".join(self.render_sentences(self.sentences[name]))

    def comparison_sentences(self, _item: str) -> list[str]:
        """Return an empty list: one run has no comparison."""
        return []

    def runs_table(self) -> Table:
        """Return a table with the counts, times and hashes of the run."""
        names = [one_line(self.result.provenance.target), one_line(self.result.task)]
        return Table(RECORD_COLUMNS, [[*names, *record_row(self.result)]])


def record_row(result: TaskResult) -> list[str]:
    """Return a run's counts, identity, times and hashes, as the cells after model and benchmark."""
    record = result.provenance
    counts = result.validity.instances
    score_without_model = None
    floor = result.validity.floors.get(result.main_metric)
    if floor is not None:
        score_without_model = formats.score(floor.value)
    model = record.endpoints.get(MODEL_ROLE)
    first_answer = None
    last_answer = None
    if model is not None:
        first_answer = model.first_answer
        last_answer = model.last_answer
    data_versions = [*record.dataset_revisions.values(), *record.dataset_files.values()]
    judge_prompt_hashes: list[str] = []
    for role, judge in record.endpoints.items():
        if role != MODEL_ROLE:
            judge_prompt_hashes.extend(judge.prompt_sha256 or ())
    cells = [
        f"{counts.requested:,}",
        f"{counts.scored:,}",
        f"{counts.failed:,}",
        score_without_model,
        record.run_identity,
        # If the times of the answers are not known, the cells have the times of the run.
        first_answer or record.started_at,
        last_answer or record.ended_at,
        ", ".join(dict.fromkeys(data_versions)),
        record.prompts_sha256,
        ", ".join(dict.fromkeys(judge_prompt_hashes)),
    ]
    return [one_line(cell or NOT_RECORDED) for cell in cells]
