"""Writes evidence packs: facts about runs or a panel that answer the items of a published document.

The file `evidence_packs.yml` has the items of each document, with Jinja templates of their answers.
The sentences and facts of `papers.yml` can be used in these templates too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.rundir import RunDir
from eval_factory.core.tables import Table, markdown_lines
from eval_factory.report.checksums import listed_checksums
from eval_factory.report.described_run import Citations, DescribedRun, Writer
from eval_factory.report.paper_templates import paper_texts, rendered_lines, template_of
from eval_factory.report.reader import StoredResult

PACKS = ("ruaih", "pccp", "ai-act")
"""The names of the evidence packs. A pack answers the items of a published document with facts from
results and from a panel's ledger. Items without facts are left for people to answer.
"""

MISSING_RESULTS_ITEM = "5e"
"""The item of TRIPOD-LLM on missing results; papers.yml has its sentences."""

TemplateRenderer = Callable[[str], list[str]]  # takes a template and returns its sentences


def _no_sentences(_template: str) -> list[str]:
    """Return no sentences. This is the `TemplateRenderer` of a pack that is not about a panel."""
    return []


@cache
def pack_texts() -> Mapping[str, Any]:
    """Return the templates and sources in evidence_packs.yml."""
    return dict(load_packaged("report/evidence_packs.yml"))


def citations_of_pack() -> Citations:
    """Return the citations of an evidence pack; no source is cited yet."""
    return Citations("(ref. {})", {**paper_texts()["sources"], **pack_texts()["sources"]})


def describe_run_for_pack(stored: StoredResult, cite: Citations) -> DescribedRun:
    """Return a run for an evidence pack. The appendix of the pack has the times and hashes."""
    sentences = {**paper_texts()["sentences"], **pack_texts()["sentences"]}
    files = listed_checksums(RunDir(stored.folder))
    return DescribedRun(
        stored.result,
        stored.config,
        stored.target,
        cite=cite,
        sentences=sentences,
        files=files,
        in_table=True,
    )


def describe_run_in_full(stored: StoredResult, cite: Citations) -> DescribedRun:
    """Return a run for a checklist, whose text has the run's times and hashes."""
    return replace(describe_run_for_pack(stored, cite), in_table=False)


@dataclass(frozen=True)
class Item:
    """An item of a published document, with the answers that an evidence pack has for the item."""

    number: str
    topic: str
    people: Sequence[str]  # the questions that only people can answer
    answers: Sequence[str]  # sentences with facts from results and the ledger; empty if none


@dataclass(frozen=True)
class Area:
    """A section of a related document, with the items of the pack that belong to the section."""

    name: str
    items: Sequence[Item]

    @property
    def extent(self) -> str:
        """The number of sentences of all items, as a text."""
        sentences = sum(len(item.answers) for item in self.items)
        if sentences == 0:
            return "nothing: it is left to people"
        return counted(sentences, "sentence")


@dataclass(frozen=True)
class Pack:
    """An evidence pack: facts about runs or a panel, in the order of a published document."""

    title: str
    subject: Sequence[str]  # sentences that name the runs or the panel
    about: Sequence[str]  # sentences about the document whose items are answered
    warnings: Sequence[str]
    items: Sequence[Item]
    references: Sequence[str]
    areas: Sequence[Area] = ()
    runs: Table | None = None
    """The appendix with the identity, times and hashes of each run; None if there are no runs."""


def pack_of(
    name: str,
    subject: Sequence[str],
    cite: Citations,
    writer: Writer | None,
    render_panel: TemplateRenderer = _no_sentences,
) -> Pack:
    """Return the evidence pack of this name.

    Args:
        name: The name of the pack, one of `PACKS`.
        subject: Sentences that name the runs or the panel.
        cite: The citations of the pack; the same object as `writer.cite`, if there is a writer.
        writer: Writes the sentences about the runs; None for a panel without runs.
        render_panel: Returns the sentences of a template about the panel's ledger.
    """
    form = pack_texts()["packs"][name]
    about = rendered_lines(form["about"], {"cite": cite})
    warnings = render_panel(pack_texts()["warnings"]["panel"])
    runs = None
    if writer is not None:
        warnings += writer.render_sentences(pack_texts()["warnings"]["runs"])
        warnings += writer.comparison_sentences(MISSING_RESULTS_ITEM)
        runs = writer.runs_table()
    items = []
    for number, item in form["items"].items():
        answers = list(dict.fromkeys(_answers(item, writer, render_panel)))
        items.append(Item(number, item["topic"], item["people"], answers))
    areas = []
    for area, numbers in form.get("areas", {}).items():
        areas.append(Area(area, [item for item in items if item.number in numbers]))
    return Pack(
        title=form["title"],
        subject=subject,
        about=about,
        warnings=warnings,
        items=items,
        references=cite.listed(),
        areas=areas,
        runs=runs,
    )


def _answers(
    item: Mapping[str, Any], writer: Writer | None, render_panel: TemplateRenderer
) -> Iterator[str]:
    """Yield the sentences that answer an item: about the panel's ledger, then about the runs.

    The item has up to three templates: `panel` about the ledger, `known` and `measured` about the
    runs. Its `comparison` is the number of an item of TRIPOD-LLM, whose sentences compare the
    models. evidence_packs.yml explains them.
    """
    yield from render_panel(item.get("panel", ""))
    if writer is not None:
        yield from writer.render_sentences(item.get("known", ""))
        yield from writer.render_by_run(item.get("measured", ""))
        yield from writer.comparison_sentences(item.get("comparison", ""))


def pack_markdown(pack: Pack) -> str:
    """Return an evidence pack as Markdown."""
    left_to_people = []  # the rows of the items without answers
    for item in pack.items:
        if not item.answers:
            left_to_people.append([item.number, item.topic, "; ".join(item.people)])
    left = "\n".join(
        markdown_lines(Table(["item", "topic", "only people can answer"], left_to_people))
    )
    area_rows = []
    for area in pack.areas:
        elements = "; ".join(f"{item.number}: {item.topic}" for item in area.items)
        area_rows.append([area.name, elements, area.extent])
    areas = "\n".join(markdown_lines(Table(["area", "elements", "what is known"], area_rows)))
    runs = ""
    if pack.runs is not None:
        runs = "\n".join(markdown_lines(pack.runs))
    return template_of(pack_texts()["document"]).render(
        pack=pack, left=left, areas=areas, runs=runs
    )
