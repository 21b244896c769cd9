"""What is written of a run for papers and auditors: methods text, TRIPOD-LLM, CHAI's model card,
evidence packs.

Sentences, forms and documents are Jinja templates in `papers.yml`; here is what they are filled
with. Each sentence says only what the result knows, and none where it knows nothing. Values that
others wrote are one printable line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Any, Protocol
from xml.sax.saxutils import escape

from jinja2 import Environment, Template

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import packaged
from eval_factory.core.results import MODEL_ROLE, Score, TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.tables import Table, code, markdown, prose
from eval_factory.report import sentences as words
from eval_factory.report.checksums import listed_checksums
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.framework import Task, load_framework

OWN_FILES = ("data_path", "benchmark")  # values of `params.extra` that name files of the user
PARTS_OF_DATA = ("version", "subset", "language", "category", "subject", "condition")
"""Values of `params.extra` that choose a part of the data, or another edition of them."""
CHAI = "https://mc.chai.org/v0.2/schema.xsd"


@cache
def forms() -> Mapping[str, Any]:
    return dict(packaged("report/papers.yml"))


@dataclass
class Citations:
    """The sources that a text cites, numbered in the order in which they are first cited."""

    form: str = "[{}]"
    sources: Mapping[str, str] = field(default_factory=lambda: forms()["sources"])
    _cited: list[str] = field(default_factory=list)

    def __call__(self, *names: str) -> str:
        """The numbers of these sources in the form: `[1]`, `[1, 3]`. Raises KeyError where there
        is no such source.
        """
        for name in names:
            self.sources[name]
            if name not in self._cited:
                self._cited.append(name)
        return self.form.format(", ".join(str(self._cited.index(name) + 1) for name in names))

    def listed(self) -> list[str]:
        """Each source that was cited, in the order of the numbers."""
        return [f"{self.sources[name]}." for name in self._cited]


class Writer(Protocol):
    """What writes the sentences of a document: of one run, or of several together.

    `said`: the sentences of a template, its lines without empty ones. `of_each`: the same, run by
    run: two runs with one value are two measurements. `of_comparison`: what the models beside each
    other add to an item of TRIPOD-LLM.
    """

    @property
    def cite(self) -> Citations: ...
    @property
    def in_table(self) -> bool: ...
    def said(self, template: str) -> list[str]: ...
    def of_each(self, template: str) -> list[str]: ...
    def of_comparison(self, item: str) -> list[str]: ...
    def runs_table(self) -> Table: ...


@dataclass(frozen=True)
class Described:
    """One run to write of, as it was stored."""

    result: TaskResult
    config: Mapping[str, Any]  # `config` of the run, with its defaults where they are known
    target: Mapping[str, Any]
    cite: Citations = field(default_factory=Citations)
    # name -> template
    sentences: Mapping[str, str] = field(default_factory=lambda: forms()["sentences"])
    # what SHA256SUMS lists, where it matters
    files: Mapping[str, str] = field(default_factory=dict)
    in_table: bool = False
    """The run's times and hashes stand in a table beside the text (`record_row`)."""

    @cached_property
    def _values(self) -> dict[str, Any]:
        """What templates are filled with, the `facts` of papers.yml among it."""
        known = _facts(self.result, self.config, self.target)
        facts = vars(template_of(forms()["facts"]).make_module(known))
        own = {"cite": self.cite, "say": self.say, "files": self.files, "in_table": self.in_table}
        return {**known, **facts, **own}

    def said(self, template: str) -> list[str]:
        return rendered(template, self._values)

    of_each = said

    def say(self, name: str) -> str:
        """The sentences of that name, a line each."""
        return "\n".join(self.said(self.sentences[name]))

    def of_comparison(self, _item: str) -> list[str]:
        return []

    def runs_table(self) -> Table:
        names = [one_line(self.result.provenance.target), one_line(self.result.task)]
        return Table(RECORD_COLUMNS, [[*names, *record_row(self.result)]])


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


NOT_RECORDED = "-"


def record_row(result: TaskResult) -> list[str]:
    """A run's counts, identity, times and hashes: the columns after the names."""
    record = result.provenance
    counts = result.validity.instances
    best = None
    floor = result.validity.floors.get(result.main_metric)
    if floor is not None:
        best = formats.score(floor.value)
    model = record.endpoints.get(MODEL_ROLE)
    first = None
    last = None
    if model is not None:
        first = model.first_answer
        last = model.last_answer
    data = [*record.dataset_revisions.values(), *record.dataset_files.values()]
    prompts: list[str] = []
    for role, judge in record.endpoints.items():
        if role != MODEL_ROLE:
            prompts.extend(judge.prompt_sha256 or ())
    cells = [
        f"{counts.requested:,}",
        f"{counts.scored:,}",
        f"{counts.failed:,}",
        best,
        record.run_identity,
        first or record.started_at,
        last or record.ended_at,
        ", ".join(dict.fromkeys(data)),
        record.prompts_sha256,
        ", ".join(dict.fromkeys(prompts)),
    ]
    return [one_line(cell) if cell else NOT_RECORDED for cell in cells]


def rendered(template: str, values: Mapping[str, Any]) -> list[str]:
    """The lines of a template, without empty ones."""
    return [
        line.strip() for line in template_of(template).render(values).splitlines() if line.strip()
    ]


@lru_cache(maxsize=256)
def template_of(text: str) -> Template:
    return _ENVIRONMENT.from_string(text)


def _facts(
    result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """What sentences are made of, beside the `facts` of papers.yml."""
    validity = result.validity
    stamp = result.comparability
    record = result.provenance
    params: Mapping[str, Any] = config.get("params") or {}
    extra = {
        "benchmark": None,
        "on_failure": None,
        "answer_style": None,
        **(params.get("extra") or {}),
    }
    endpoint = target.get("api_endpoint") or {}
    odd = {
        "were empty": "empty",
        "were cut off": "truncated",
        "were in no form that was asked for": "unparsed",
    }
    odd_counts = {what: getattr(validity.instances, name) for what, name in odd.items()}
    by_value = chain.from_iterable(groups.values() for groups in result.groups.values())
    groups = list(chain.from_iterable(scores.values() for scores in by_value))
    versions = {
        "eval-factory": record.eval_factory,
        record.helm_package: record.helm,
        "Python": record.python,
    }
    return {
        **_task_facts(result, extra),
        **_model_facts(result, endpoint),
        **_judge_facts(result),
        "result": result,
        "params": params,
        "extra": extra,
        "endpoint": endpoint,
        "intervals": forms()["intervals"],
        "splits": [f"split {one_line(name)}: {count:,}" for name, count in validity.splits.items()],
        "deviations": None
        if stamp is None or stamp.medhelm_settings is None
        else [one_line(one.in_words("leaderboard:")) for one in stamp.deviations],
        "corrected": [one_line(name) for name in result.scores if name.endswith(".corrected")],
        "groups_tested": any(score.stats.p_value is not None for score in groups),
        "odd_answers": [f"{count:,} {what}" for what, count in odd_counts.items() if count],
        "programs": [
            f"{name} {one_line(version)}"
            for name, version in versions.items()
            if version is not None
        ],
        "packages": [
            f"{one_line(a)} {one_line(b)}"
            for a, b in record.packages.items()
            if a != record.helm_package
        ],
        "machine": [
            one_line(record.platform[a])
            for a in ("distribution", "machine")
            if record.platform.get(a)
        ],
    }


def _task_facts(result: TaskResult, extra: Mapping[str, Any]) -> dict[str, Any]:
    task: Task | None = load_framework().task(result.task)
    own_files = any(extra.get(name) is not None for name in OWN_FILES)
    parts = [
        f"{name} {one_line(str(extra[name]))}"
        for name in PARTS_OF_DATA
        if extra.get(name) is not None
    ]
    is_zero_shot = False
    total = None
    if task is not None:
        spec = task.helm.indexed
        is_zero_shot = task.helm.zero_shot or (spec is not None and spec.zero_shot)
        total = None if own_files or parts else task.about.instances
    return {
        "task": task,
        "has_own_files": own_files,
        "parts": parts,
        "is_zero_shot": is_zero_shot,
        "total": total,
    }


def _model_facts(result: TaskResult, endpoint: Mapping[str, Any]) -> dict[str, Any]:
    record = result.provenance
    main = result.scores.get(result.main_metric)
    model = record.endpoints.get(MODEL_ROLE)
    kind = endpoint.get("type")
    host = one_line(model.host) if model is not None else ""
    this_machine = ("localhost", "127.0.0.1", "[::1]", "::1")
    stated = model.stated_models if model is not None else {}
    nature = []  # unit, scale and direction, as far as known
    if main is not None:
        nature += [] if main.unit is None else [one_line(main.unit)]
        nature += [] if main.scale is None else [f"from {main.scale[0]:g} to {main.scale[1]:g}"]
        nature += {True: ["higher is better"], False: ["lower is better"], None: []}[
            main.higher_is_better
        ]
    return {
        "model": model,
        "endpoint_type": "" if kind is None else one_line(str(kind)),
        "host": "" if host.rpartition(":")[0] in this_machine or host in this_machine else host,
        "is_demo": record.target == "demo baseline"
        and (model is None or model.model != "demo baseline"),
        "stated_models": [
            f"{one_line(name)} ({counted(count, 'answer')})" for name, count in stated.items()
        ],
        "nature": nature,
    }


def _judge_facts(result: TaskResult) -> dict[str, Any]:
    judges = {
        role: asked for role, asked in result.provenance.endpoints.items() if role != MODEL_ROLE
    }
    kappas = result.validity.jury.weighted_kappa if result.validity.jury else {}
    named = []
    for role, counts in result.validity.judges.items():
        asked = judges.get(role)
        how = (
            ""
            if asked is None
            else "; ".join([one_line(asked.model), *map(settings, asked.sampling[:1])])
        )
        of = (
            counted(counts.asked, "answer")
            if result.validity.rubric is None
            else words.of_criteria(counts.asked)
        )
        named.append(f"{one_line(role)}{f' ({how})' if how else ''}, {counts.scored:,} of {of}")
    prompts = chain.from_iterable(asked.prompt_sha256 or () for asked in judges.values())
    return {
        "judges": judges,
        "judges_named": "; ".join(named),
        "judge_prompts": sorted(set(map(one_line, prompts))),
        "kappas": [
            f"{one_line(pair)} {formats.coefficient(kappa)}"
            for pair, kappa in kappas.items()
            if kappa is not None
        ],
    }


def enumerated(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def settings(sent: Mapping[str, Any]) -> str:
    """Of a request, beside model and question."""
    named = [f"{one_line(str(name))} = {one_line(str(value))}" for name, value in sent.items()]
    return enumerated(named) or "no settings"


def _score(score: Score) -> str:
    interval = formats.between(score.stats.ci_low, score.stats.ci_high, " to ")
    return (
        f"{formats.score(score.value)} (95 % interval {interval})"
        if interval
        else formats.score(score.value)
    )


# no HTML is made here: what becomes Markdown or XML is escaped where it does
_ENVIRONMENT = Environment(
    autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
_ENVIRONMENT.filters |= {
    "line": lambda value: one_line(str(value)),
    "listed": lambda found: enumerated(list(found)),
    "counted": counted,
    "comma": formats.count,
    "was": lambda count: "was" if count == 1 else "were",
    "number": formats.score,
    "decimal": formats.decimals,
    "coefficient": formats.coefficient,
    "percent": lambda share: formats.percent(formats.rounded(share)),
    "seconds": formats.seconds,
    "short": lambda value: f"{value:g}",
    "score": _score,
    "settings": settings,
    "criteria": words.of_criteria,
    "money": formats.money,
    "p_value": formats.p_value,
    "rough": formats.short,
    "beside_chance": words.beside_chance,
    "chance_may_explain": words.chance_may_explain,
    "agreement": words.agreement_text,
    "clinician_lines": words.clinician_lines,
    "asked_again_lines": lambda found: [*map(words.capitalized, words.asked_again_lines(found))],
    "prose": lambda sentences: " ".join(map(prose, sentences)),
    "xml": escape,
    "json": lambda value: json.dumps(value, allow_nan=False),
}


def methods_text(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Paragraphs in plain English, a blank line between them, and the references last."""
    return methods_of(Described(result, config, target))


def methods_of(run: Writer) -> str:
    """The comparison comes last, so that sources are numbered as they are read."""
    paragraphs = [
        run.said("\n".join(f"{{{{ say('{name}') }}}}" for name in names))
        for names in forms()["methods"]
    ]
    paragraphs += [run.of_comparison(item) for item in ("7e", "5e")]
    references = [f"[{number}] {source}" for number, source in enumerate(run.cite.listed(), 1)]
    parts = [" ".join(sentences) for sentences in paragraphs if sentences]
    parts.append("\n".join(["References", *references]))
    if run.in_table:
        parts.append("\n".join(["Runs", "", *markdown(run.runs_table())]))
    return "\n\n".join(parts) + "\n"


def tripod_llm(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Markdown: each item that the run can fill, with what is not known of it; then the items
    left for the authors.
    """
    of = (
        f"Of the run {code(result.provenance.run_identity)}: "
        f"{code(result.task)}, {code(result.provenance.target)}."
    )
    return tripod_of(Described(result, config, target, Citations("(ref. {})")), of)


def tripod_of(run: Writer, of: str) -> str:
    """`of`: what was run."""
    source = run.cite("tripod_llm")
    filled = []
    left = []
    for number, item in forms()["tripod_llm"].items():
        if "known" not in item:
            left.append([number, item["topic"]])
            continue
        say = run.of_each if item.get("is_list") else run.said
        sentences = [*say(item["known"]), *run.of_comparison(number)]
        unknown = item["unknown"]
        if "unknown_of_compared" in item and run.of_comparison("17"):
            unknown = item["unknown_of_compared"]
        shown = {
            "number": number,
            "sentences": sentences,
            "unknown": run.said("\n".join(unknown)),
        }
        filled.append({"is_list": False, "other": None, **item, **shown})
    table = "\n".join(markdown(Table(["item", "topic"], left)))
    values = {
        "of": of,
        "source": source,
        "items": filled,
        "left": table,
        "references": run.cite.listed(),
    }
    return template_of(forms()["tripod_document"]).render(values)


def model_card(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """XML that takes the place of KeyMetrics in an Applied Model Card of the Coalition for Health
    AI (CHAI).

    Its schema, version 0.2 (github.com/coalition-for-health-ai/mc-schema): three kinds of metrics,
    each with goal, results, interpretation, kind of test, data and process; every text may be
    Markdown. A result is a label and a value as JSON: its kinds `single` and `estimate_ci` are
    those of the examples beside the schema.
    """
    card = forms()["model_card"]
    kinds: list[dict[str, Any]] = []
    scores = {name: _value(score) for name, score in result.scores.items()}
    main = result.main_metric
    counts = result.validity.instances
    groups = {}
    for group_field, by_value in result.groups.items():
        for value, of_group in by_value.items():
            if main in of_group:
                groups[f"{main}, {group_field}: {value}"] = _value(of_group[main])
    names = (
        "requested",
        "scored",
        "failed",
        "empty",
        "truncated",
        "unparsed",
        "refused",
        "unjudged",
    )
    reliability = {
        f"Instances {name}": {"kind": "single", "value": getattr(counts, name), "unit": "count"}
        for name in names
    }
    for (name, kind), found in zip(
        card["kinds"].items(), (scores, groups, reliability), strict=True
    ):
        run = Described(result, config, target, Citations("(ref. {})"))
        data = process = [card["as_above"]]
        if not kinds:
            forms_of_data = [forms()["sentences"][part] for part in card["data"]]
            data = list(chain.from_iterable(map(run.said, forms_of_data)))
            process = run.said(card["process"])
            process += [
                f"Ref. {number}: {source}" for number, source in enumerate(run.cite.listed(), 1)
            ]
        texts = {"goal": run.said(kind["goal"]), "interpretation": run.said(kind["interpretation"])}
        results = found or {card["unknown"]: {"kind": "single", "value": None}}
        kinds.append({"name": name, "results": results, "data": data, "process": process, **texts})
    return template_of(card["document"]).render(
        kinds=kinds, test_type=card["test_type"], namespace=CHAI
    )


def _value(score: Score) -> dict[str, Any]:
    """To the last digit, with its interval where there is one; JSON has no number for one that
    is not finite.
    """
    if not math.isfinite(score.value):
        return {"kind": "single", "value": None}
    unit = {} if score.unit is None else {"unit": one_line(score.unit)}
    low = score.stats.ci_low
    high = score.stats.ci_high
    if low is None or high is None:
        return {"kind": "single", "value": score.value, **unit}
    return {
        "kind": "estimate_ci",
        "estimate": score.value,
        "lower": low,
        "upper": high,
        "level": 95,
        **unit,
    }


PACKS = ("ruaih", "pccp", "ai-act")
"""Evidence packs: what results, and a panel's ledger, answer of the items of a published document.
Texts are templates in `evidence_packs.yml`; an item of which nothing is known is left to people.
"""
Said = Callable[[str], list[str]]  # a template -> its sentences


@cache
def texts() -> Mapping[str, Any]:
    return dict(packaged("report/evidence_packs.yml"))


def citations() -> Citations:
    return Citations("(ref. {})", {**forms()["sources"], **texts()["sources"]})


def described_beside_table(stored: StoredResult, cite: Citations) -> Described:
    """A run of several in one methods text, whose counts, times and hashes are in a table."""
    sentences = {**forms()["sentences"], **forms()["sentences_beside_table"]}
    return Described(stored.result, stored.config, stored.target, cite, sentences, in_table=True)


def described_in_full(stored: StoredResult, cite: Citations) -> Described:
    """A run with its times and hashes in the text."""
    return replace(described(stored, cite), in_table=False)


def described(stored: StoredResult, cite: Citations) -> Described:
    """A run of a pack, whose times and hashes are in the appendix."""
    sentences = {**forms()["sentences"], **texts()["sentences"]}
    files = listed_checksums(RunDir(stored.folder))
    return Described(
        stored.result, stored.config, stored.target, cite, sentences, files, in_table=True
    )


@dataclass(frozen=True)
class Item:
    number: str
    topic: str
    people: Sequence[str]  # what only they can answer
    known: Sequence[str]


@dataclass(frozen=True)
class Area:
    """A part of another document about the same, and the items that belong to it."""

    name: str
    items: Sequence[Item]

    @property
    def known(self) -> str:
        """How much the items say."""
        sentences = list(chain.from_iterable(item.known for item in self.items))
        if not sentences:
            return "nothing: it is left to people"
        return counted(len(sentences), "sentence")


@dataclass(frozen=True)
class Pack:
    title: str
    of: Sequence[str]  # what is described
    about: Sequence[str]  # the document
    warnings: Sequence[str]
    items: Sequence[Item]
    references: Sequence[str]
    areas: Sequence[Area] = ()
    runs: Table | None = None
    """The appendix: identity, times and hashes of each run; None: of a panel without runs."""


def pack_of(
    name: str,
    of: Sequence[str],
    cite: Citations,
    run: Writer | None,
    of_panel: Said = lambda _template: [],
) -> Pack:
    """A pack of PACKS. `of`: what is described, in sentences; `cite`: that of `run`, which a new
    panel lacks; `of_panel`: what a panel's ledger says.
    """
    form = texts()["packs"][name]
    warned = texts()["warnings"]
    about = rendered(form["about"], {"cite": cite})
    warnings = of_panel(warned["panel"])
    warnings += [*run.said(warned["runs"]), *run.of_comparison("5e")] if run is not None else []
    items = []
    for number, item in form["items"].items():
        known = of_panel(item.get("panel", ""))
        if run is not None:
            known += [*run.said(item.get("known", "")), *run.of_each(item.get("measured", ""))]
            known += run.of_comparison(item.get("comparison", ""))
        items.append(Item(number, item["topic"], item["people"], list(dict.fromkeys(known))))
    areas = []
    for area, numbers in form.get("areas", {}).items():
        areas.append(Area(area, [item for item in items if item.number in numbers]))
    runs = run.runs_table() if run is not None else None
    return Pack(form["title"], of, about, warnings, items, cite.listed(), areas, runs)


def pack_markdown(pack: Pack) -> str:
    rows = [
        [item.number, item.topic, "; ".join(item.people)] for item in pack.items if not item.known
    ]
    left = "\n".join(markdown(Table(["item", "topic", "only people can answer"], rows)))
    by_area = []
    for area in pack.areas:
        elements = "; ".join(f"{item.number}: {item.topic}" for item in area.items)
        by_area.append([area.name, elements, area.known])
    areas = "\n".join(markdown(Table(["area", "elements", "what is known"], by_area)))
    runs = "\n".join(markdown(pack.runs)) if pack.runs is not None else ""
    return template_of(texts()["document"]).render(pack=pack, left=left, areas=areas, runs=runs)
