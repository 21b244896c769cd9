"""Evidence packs: what results, and a panel's ledger, answer of the items of a published document.

Texts are templates in `evidence_packs.yml`: a sentence says only what is known, an item without any is left to people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from eval_factory.core.plain_yaml import packaged
from eval_factory.core.rundir import RunDir
from eval_factory.core.tables import Table, markdown
from eval_factory.report.checksums import listed_checksums
from eval_factory.report.papers import Citations, Described, Writer, forms, rendered, template_of
from eval_factory.report.reader import StoredResult

PACKS = ("ruaih", "pccp", "ai-act")
Line = Mapping[str, Any]  # one of a panel's ledger


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


@dataclass(frozen=True)
class Panel:
    """What a panel's ledger says of it."""

    lines: Sequence[Line]
    head: str | None = None  # SHA-256 of the last line
    plan: Mapping[str, Any] | None = None  # `change`: what is planned, in words; `policy` and `locked_at` of its gate

    def said(self, template: str) -> list[str]:
        return rendered(template, self._values)

    def say(self, name: str) -> str:
        return "\n".join(self.said(texts()["panel"][name]))

    def of_kind(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line.get("kind") == kind]

    def of_epoch(self, kind: str) -> list[Line]:
        """Of the last baseline's."""
        return [line for line in self.of_kind(kind) if line.get("epoch") == self.baseline.get("epoch")]

    @cached_property
    def baseline(self) -> Line:
        """The last one; empty before the first."""
        return next(reversed(self.of_kind("baseline")), {})

    @property
    def last(self) -> Line:
        """The look, or else the baseline, whose runs are described."""
        return next(reversed(self.of_epoch("look")), self.baseline)

    @cached_property
    def _values(self) -> dict[str, Any]:
        looks, alarms, epoch = self.of_epoch("look"), list(self._alarms()), self.baseline.get("epoch")
        ended = [line["look"] for line in (*looks, *self.of_epoch("not_made"))]
        changed = dict(self._changed(looks))
        named, before = ((line.get("watched") or {}).get("stated") for line in (self.last, self.baseline))
        stated = (named, before) if looks and named != before else None
        is_alarmed = any(one["epoch"] == epoch for one in alarms) or changed or stated
        return {
            **(self.plan or {}), "lines": self.lines, "head": self.head, "last": self.last, "baseline": self.baseline,
            "epoch": epoch, "looks": looks, "all_looks": self.of_kind("look"),
            "not_made": self.of_epoch("not_made"), "notes": self.of_kind("note"), "changes": self.of_kind("change"),
            "unfinished": [line["look"] for line in self.of_epoch("begun") if line["look"] not in ended],
            "alarms": alarms, "changed": changed, "stated": stated, "is_quiet": looks and not is_alarmed,
            "is_chained": all(line.get("previous") for line in self.lines[1:]), "say": self.say,
            "say_alarm": lambda alarm: " ".join(rendered(texts()["panel"]["alarm"], {"one": alarm})),
        }  # fmt: skip

    def _changed(self, looks: Sequence[Line]) -> Iterator[tuple[str, Line]]:
        """Of each limit, the last look with evidence of any change: a second line, and no alarm if not set to be."""
        for look in looks:
            needed = len(look["changed"]) / self.baseline["alpha"]
            yield from (
                (name, {**one, "look": look["look"]}) for name, one in look["changed"].items() if one["e"] >= needed
            )

    def _alarms(self) -> Iterator[dict[str, Any]]:
        """Each that was raised in an epoch, as its last look says it, with the notes of the epoch since."""
        said: dict[tuple[Any, Any], list[Line]] = {}
        for look in self.of_kind("look"):
            if look.get("alarm"):
                said.setdefault((look.get("epoch"), look["alarm"].get("what")), []).append(look)
        for (epoch, _), looks in said.items():
            notes = [
                note for note in self.of_kind("note") if note["epoch"] == epoch and note["number"] > looks[0]["number"]
            ]
            yield {**looks[-1]["alarm"], "epoch": epoch, "notes": notes}


def runs_of_panel(lines: Sequence[Line]) -> list[str]:
    """Folders below the panel's of the runs to describe: the last look's, else those of the baseline's last repeat."""
    last = Panel(lines).last
    return [run["folder"] for run in [last, *last.get("repeats", ())][-1].get("runs", ())]


def pack_of(name: str, of: Sequence[str], cite: Citations, run: Writer | None, panel: Panel | None = None) -> Pack:
    """A pack of PACKS.

    Args:
        of: what is described, in sentences.
        cite: that of `run`.
        run: None where a panel has no runs yet.
    """
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
