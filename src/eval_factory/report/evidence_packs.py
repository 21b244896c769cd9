"""Evidence packs: what results, and a panel's ledger, answer of the items of a published document.

Texts are templates in `evidence_packs.yml`: a sentence says only what is known, an item without any is left to people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from eval_factory.core.plain_yaml import packaged
from eval_factory.core.rundir import RunDir
from eval_factory.core.tables import Table, markdown
from eval_factory.report.checksums import listed_checksums
from eval_factory.report.papers import Citations, Described, Writer, forms, rendered, template_of
from eval_factory.report.reader import StoredResult

PACKS = ("ruaih", "pccp", "ai-act")


@lru_cache(maxsize=1)
def texts() -> Mapping[str, Any]:
    read: Mapping[str, Any] = packaged("report/evidence_packs.yml")
    return read


def citations() -> Citations:
    return Citations("(ref. {})", {**forms()["sources"], **texts()["sources"]})


def described(stored: StoredResult, cite: Citations) -> Described:
    """A run that says the sentences of packs, too."""
    sentences, files = {**forms()["sentences"], **texts()["sentences"]}, listed_checksums(RunDir(stored.folder))
    return Described(stored.result, stored.config, stored.target, cite, sentences, files)


@dataclass(frozen=True)
class Item:
    number: str
    topic: str
    people: Sequence[str]  # what only they can answer
    known: Sequence[str]


@dataclass(frozen=True)
class Pack:
    title: str
    of: Sequence[str]  # what is described
    about: Sequence[str]  # the document
    warnings: Sequence[str]
    items: Sequence[Item]
    references: Sequence[str]


class PanelWriter(Protocol):
    """Says the sentences of a template, of what a panel's ledger holds."""

    def said(self, template: str) -> list[str]: ...


def pack_of(
    name: str, of: Sequence[str], cite: Citations, run: Writer | None, panel: PanelWriter | None = None
) -> Pack:
    """A pack of PACKS. `of`: what is described, in sentences; `cite`: that of `run`, which a new panel lacks."""
    form, warned = texts()["packs"][name], texts()["warnings"]
    about = rendered(form["about"], {"cite": cite})
    warnings = panel.said(warned["panel"]) if panel is not None else []
    warnings += [*run.said(warned["runs"]), *run.of_comparison("5e")] if run is not None else []
    items = []
    for number, item in form["items"].items():
        known = panel.said(item.get("panel", "")) if panel is not None else []
        if run is not None:
            known += [*run.said(item.get("known", "")), *run.of_each(item.get("measured", ""))]
            known += run.of_comparison(item.get("comparison", ""))
        items.append(Item(number, item["topic"], item["people"], list(dict.fromkeys(known))))
    return Pack(form["title"], of, about, warnings, items, cite.listed())


def pack_markdown(pack: Pack) -> str:
    rows = [[item.number, item.topic, "; ".join(item.people)] for item in pack.items if not item.known]
    left = "\n".join(markdown(Table(["item", "topic", "only people can answer"], rows)))
    return template_of(texts()["document"]).render(pack=pack, left=left)


def pack_page(pack: Pack) -> str:
    """One offline page; all texts are escaped."""
    from eval_factory.report.page.document import tables_page  # imported here: Markdown needs none of it

    return tables_page("evidence_pack.html.j2", pack=pack)
