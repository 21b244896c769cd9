"""Texts about a run for papers and auditors: methods text, TRIPOD-LLM, CHAI's model card, evidence
packs.

Sentences, forms and documents are Jinja templates in `papers.yml`; here is what they are filled
with. Each sentence says only what the result knows, and none where it knows nothing. Values that
others wrote are one printable line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Protocol
from xml.sax.saxutils import escape

from jinja2 import Environment, Template

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import packaged
from eval_factory.core.results import MODEL_ROLE, AskedEndpoint, Provenance, Score, TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.signs import SIGNS
from eval_factory.core.tables import Table, code, markdown, prose
from eval_factory.report import result_sentences as words
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
        """Return the numbers of these sources in the form: `[1]`, `[1, 3]`.

        Raises KeyError: there is no such source.
        """
        numbers = []
        for name in names:
            self.sources[name]
            if name not in self._cited:
                self._cited.append(name)
            numbers.append(str(self._cited.index(name) + 1))
        return self.form.format(", ".join(numbers))

    def listed(self) -> list[str]:
        """Each source that was cited, in the order of the numbers."""
        return [f"{self.sources[name]}." for name in self._cited]


class Writer(Protocol):
    """A writer of a document's sentences: about one run, or about several together.

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
    config: Mapping[str, Any]  # `config` of the run, with its defaults if they are known
    target: Mapping[str, Any]
    cite: Citations = field(default_factory=Citations)
    # name -> template
    sentences: Mapping[str, str] = field(default_factory=lambda: forms()["sentences"])
    # the lines of SHA256SUMS that matter
    files: Mapping[str, str] = field(default_factory=dict)
    in_table: bool = False
    """The run's times and hashes stand in a table beside the text (`record_row`)."""

    @cached_property
    def _values(self) -> dict[str, Any]:
        """The values that templates are filled with, the `facts` of papers.yml among them."""
        values = _facts(self.result, self.config, self.target)
        facts = vars(template_of(forms()["facts"]).make_module(values))
        helpers = {
            "cite": self.cite,
            "say": self.say,
            "files": self.files,
            "in_table": self.in_table,
        }
        return {**values, **facts, **helpers}

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
    return [one_line(cell or NOT_RECORDED) for cell in cells]


def rendered(template: str, values: Mapping[str, Any]) -> list[str]:
    """Return the lines of a template, without empty ones."""
    lines = []
    for line in template_of(template).render(values).splitlines():
        if line.strip():
            lines.append(line.strip())
    return lines


@lru_cache(maxsize=256)
def template_of(text: str) -> Template:
    return _ENVIRONMENT.from_string(text)


def _facts(
    result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what sentences are made of, beside the `facts` of papers.yml."""
    validity = result.validity
    params: Mapping[str, Any] = config.get("params") or {}
    extra = {
        "benchmark": None,
        "on_failure": None,
        "answer_style": None,
        **(params.get("extra") or {}),
    }
    endpoint = target.get("api_endpoint") or {}
    odd_answers = []
    for sign in SIGNS.values():
        if sign.in_methods and sign.count is not None:
            count = getattr(validity.instances, sign.count)
            if count:
                odd_answers.append(f"{count:,} {sign.in_methods}")
    return {
        **_task_facts(result, extra),
        **_model_facts(result, endpoint),
        **_judge_facts(result),
        **_software_facts(result.provenance),
        "result": result,
        "params": params,
        "extra": extra,
        "endpoint": endpoint,
        "intervals": forms()["intervals"],
        "splits": [f"split {one_line(name)}: {count:,}" for name, count in validity.splits.items()],
        "deviations": _deviations(result),
        "corrected": [one_line(name) for name in result.scores if name.endswith(".corrected")],
        "groups_tested": _are_groups_tested(result),
        "odd_answers": odd_answers,
    }


def _deviations(result: TaskResult) -> list[str] | None:
    """Return the settings that are not the leaderboard's; None if it has none for this task."""
    comparability = result.comparability
    if comparability is None or comparability.medhelm_settings is None:
        return None
    deviations = []
    for deviation in comparability.deviations:
        deviations.append(one_line(deviation.in_words("leaderboard:")))
    return deviations


def _are_groups_tested(result: TaskResult) -> bool:
    for by_value in result.groups.values():
        for scores in by_value.values():
            if any(score.stats.p_value is not None for score in scores.values()):
                return True
    return False


def _software_facts(record: Provenance) -> dict[str, Any]:
    """Return the programs, the packages and the machine of a run, with their versions."""
    versions = {
        "eval-factory": record.eval_factory,
        record.helm_package: record.helm,
        "Python": record.python,
    }
    programs = []
    for name, version in versions.items():
        if version is not None:
            programs.append(f"{name} {one_line(version)}")
    packages = []
    for name, version in record.packages.items():
        if name != record.helm_package:
            packages.append(f"{one_line(name)} {one_line(version)}")
    machine = []
    for name in ("distribution", "machine"):
        if record.platform.get(name):
            machine.append(one_line(record.platform[name]))
    return {"programs": programs, "packages": packages, "machine": machine}


def _task_facts(result: TaskResult, extra: Mapping[str, Any]) -> dict[str, Any]:
    task: Task | None = load_framework().task(result.task)
    has_own_files = any(extra.get(name) is not None for name in OWN_FILES)
    parts = []
    for name in PARTS_OF_DATA:
        if extra.get(name) is not None:
            parts.append(f"{name} {one_line(str(extra[name]))}")
    is_zero_shot = False
    total = None
    if task is not None:
        is_zero_shot = task.helm.is_zero_shot
        if not (has_own_files or parts):
            total = task.about.instances
    return {
        "task": task,
        "has_own_files": has_own_files,
        "parts": parts,
        "is_zero_shot": is_zero_shot,
        "total": total,
    }


_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]", "::1")


def _model_facts(result: TaskResult, endpoint: Mapping[str, Any]) -> dict[str, Any]:
    record = result.provenance
    model = record.endpoints.get(MODEL_ROLE)
    is_demo = record.target == "demo baseline"
    host = ""
    stated_models = []
    if model is not None:
        is_demo = is_demo and model.model != "demo baseline"
        host = one_line(model.host)
        for name, count in model.stated_models.items():
            stated_models.append(f"{one_line(name)} ({counted(count, 'answer')})")
    if host in _THIS_MACHINE or host.rpartition(":")[0] in _THIS_MACHINE:
        host = ""
    endpoint_type = ""
    if endpoint.get("type") is not None:
        endpoint_type = one_line(str(endpoint["type"]))
    return {
        "model": model,
        "endpoint_type": endpoint_type,
        "host": host,
        "is_demo": is_demo,
        "stated_models": stated_models,
        "nature": list(_nature_of(result.scores.get(result.main_metric))),
    }


def _nature_of(score: Score | None) -> Iterator[str]:
    """Yield unit, scale and direction of a score, as far as they are known."""
    if score is None:
        return
    if score.unit is not None:
        yield one_line(score.unit)
    if score.scale is not None:
        yield f"from {score.scale[0]:g} to {score.scale[1]:g}"
    if score.higher_is_better is True:
        yield "higher is better"
    elif score.higher_is_better is False:
        yield "lower is better"


def _judge_facts(result: TaskResult) -> dict[str, Any]:
    judges = {}
    prompts: set[str] = set()
    for role, endpoint in result.provenance.endpoints.items():
        if role != MODEL_ROLE:
            judges[role] = endpoint
            prompts.update(map(one_line, endpoint.prompt_sha256 or ()))
    kappas = []
    if result.validity.jury is not None:
        for pair, kappa in result.validity.jury.weighted_kappa.items():
            if kappa is not None:
                kappas.append(f"{one_line(pair)} {formats.coefficient(kappa)}")
    named = [_judge_named(result, role, judges.get(role)) for role in result.validity.judges]
    return {
        "judges": judges,
        "judges_named": "; ".join(named),
        "judge_prompts": sorted(prompts),
        "kappas": kappas,
    }


def _judge_named(result: TaskResult, role: str, endpoint: AskedEndpoint | None) -> str:
    """Return a judge with its model, its settings and how many of its judgements came."""
    name = one_line(role)
    if endpoint is not None:
        about = "; ".join([one_line(endpoint.model), *map(settings, endpoint.sampling[:1])])
        if about:
            name += f" ({about})"
    counts = result.validity.judges[role]
    if result.validity.rubric is None:
        return f"{name}, {counts.scored:,} of {counted(counts.asked, 'answer')}"
    return f"{name}, {counts.scored:,} of {words.criteria_count(counts.asked)}"


def enumerated(names: Sequence[str]) -> str:
    """Return names in words: `a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def settings(sent: Mapping[str, Any]) -> str:
    """Return the settings of a request, beside model and question."""
    named = [f"{one_line(str(name))} = {one_line(str(value))}" for name, value in sent.items()]
    return enumerated(named) or "no settings"


def _score(score: Score) -> str:
    value = formats.score(score.value)
    interval = formats.between(score.stats.ci_low, score.stats.ci_high, " to ")
    if not interval:
        return value
    return f"{value} (95 % interval {interval})"


def _was_or_were(count: int) -> str:
    if count == 1:
        return "was"
    return "were"


# no HTML is made here: what becomes Markdown or XML is escaped where it does
_ENVIRONMENT = Environment(
    autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
_ENVIRONMENT.filters |= {
    "line": lambda value: one_line(str(value)),
    "listed": lambda names: enumerated(list(names)),
    "counted": counted,
    "comma": formats.count,
    "was": _was_or_were,
    "number": formats.score,
    "decimal": formats.decimals,
    "coefficient": formats.coefficient,
    "percent": lambda share: formats.percent(formats.rounded(share)),
    "seconds": formats.seconds,
    "short": lambda value: f"{value:g}",
    "score": _score,
    "settings": settings,
    "criteria": words.criteria_count,
    "money": formats.money,
    "p_value": formats.p_value,
    "rough": formats.short,
    "beside_chance": words.floor_sentence,
    "chance_may_explain": words.chance_may_explain,
    "agreement": words.agreement_text,
    "clinician_lines": words.clinician_lines,
    "asked_again_lines": lambda record: [*map(words.capitalized, words.asked_again_lines(record))],
    "prose": lambda sentences: " ".join(map(prose, sentences)),
    "xml": escape,
    "json": lambda value: json.dumps(value, allow_nan=False),
}


def methods_text(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Paragraphs in plain English, a blank line between them, and the references last."""
    return methods_of(Described(result, config, target))


def methods_of(run: Writer) -> str:
    """Return the methods text; the comparison comes last, so that sources are numbered as they
    are read.
    """
    paragraphs = []
    for names in forms()["methods"]:
        template = "\n".join(f"{{{{ say('{name}') }}}}" for name in names)
        paragraphs.append(run.said(template))
    for item in ("7e", "5e"):
        paragraphs.append(run.of_comparison(item))
    parts = [" ".join(sentences) for sentences in paragraphs if sentences]
    references = [f"[{number}] {source}" for number, source in enumerate(run.cite.listed(), 1)]
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
    """Return TRIPOD-LLM's items; `of`: a sentence about what was run."""
    source = run.cite("tripod_llm")
    filled = []
    left = []
    for number, item in forms()["tripod_llm"].items():
        if "known" not in item:
            left.append([number, item["topic"]])
            continue
        say = run.said
        if item.get("is_list"):
            say = run.of_each
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
    """Return XML that takes the place of KeyMetrics in an Applied Model Card of the Coalition for
    Health AI (CHAI).

    Its schema, version 0.2 (github.com/coalition-for-health-ai/mc-schema): three kinds of metrics,
    each with goal, results, interpretation, kind of test, data and process; every text may be
    Markdown. A result is a label and a value as JSON: its kinds `single` and `estimate_ci` are
    those of the examples beside the schema.
    """
    card = forms()["model_card"]
    scores = {name: _value(score) for name, score in result.scores.items()}
    results_by_kind = [scores, _group_values(result), _count_values(result)]
    kinds: list[dict[str, Any]] = []
    for (name, kind), results in zip(card["kinds"].items(), results_by_kind, strict=True):
        run = Described(result, config, target, Citations("(ref. {})"))
        data = [card["as_above"]]
        process = [card["as_above"]]
        if not kinds:
            data = []
            for part in card["data"]:
                data += run.said(forms()["sentences"][part])
            process = run.said(card["process"])
            for number, source in enumerate(run.cite.listed(), 1):
                process.append(f"Ref. {number}: {source}")
        kinds.append(
            {
                "name": name,
                "results": results or {card["unknown"]: {"kind": "single", "value": None}},
                "data": data,
                "process": process,
                "goal": run.said(kind["goal"]),
                "interpretation": run.said(kind["interpretation"]),
            }
        )
    return template_of(card["document"]).render(
        kinds=kinds, test_type=card["test_type"], namespace=CHAI
    )


def _group_values(result: TaskResult) -> dict[str, Any]:
    """Return the main score of each group, by `metric, field: value`."""
    main = result.main_metric
    values = {}
    for field_name, by_value in result.groups.items():
        for value, scores in by_value.items():
            if main in scores:
                values[f"{main}, {field_name}: {value}"] = _value(scores[main])
    return values


_COUNTS_OF_CARD = (
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
    values = {}
    for name in _COUNTS_OF_CARD:
        count = getattr(result.validity.instances, name)
        values[f"Instances {name}"] = {"kind": "single", "value": count, "unit": "count"}
    return values


def _value(score: Score) -> dict[str, Any]:
    """Return a score to the last digit, with its interval if there is one; JSON has no number for
    one that is not finite.
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


PACKS = ("ruaih", "pccp", "ai-act")
"""Evidence packs: what results, and a panel's ledger, answer of the items of a published document.
Texts are templates in `evidence_packs.yml`; an item of which nothing is known is left to people.
"""
SentenceWriter = Callable[[str], list[str]]  # a template -> its sentences


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
    people: Sequence[str]  # the questions that only they can answer
    answers: Sequence[str]  # sentences about it, as far as results and ledger say any


@dataclass(frozen=True)
class Area:
    """A part of another document about the same, and the items that belong to it."""

    name: str
    items: Sequence[Item]

    @property
    def extent(self) -> str:
        """A few words about how much the items say."""
        sentences = sum(len(item.answers) for item in self.items)
        if sentences == 0:
            return "nothing: it is left to people"
        return counted(sentences, "sentence")


@dataclass(frozen=True)
class Pack:
    title: str
    of: Sequence[str]  # the parts that are described
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
    of_panel: SentenceWriter = lambda _template: [],
) -> Pack:
    """Return a pack of PACKS.

    Args:
        name: The name of the pack.
        of: Sentences about what is described.
        cite: That of `run`, which a new panel lacks.
        run: The runs that are described.
        of_panel: What a panel's ledger says.
    """
    form = texts()["packs"][name]
    about = rendered(form["about"], {"cite": cite})
    warnings = of_panel(texts()["warnings"]["panel"])
    if run is not None:
        warnings += [*run.said(texts()["warnings"]["runs"]), *run.of_comparison("5e")]
    items = []
    for number, item in form["items"].items():
        answers = of_panel(item.get("panel", ""))
        if run is not None:
            answers += [*run.said(item.get("known", "")), *run.of_each(item.get("measured", ""))]
            answers += run.of_comparison(item.get("comparison", ""))
        items.append(Item(number, item["topic"], item["people"], list(dict.fromkeys(answers))))
    areas = []
    for area, numbers in form.get("areas", {}).items():
        areas.append(Area(area, [item for item in items if item.number in numbers]))
    runs = None
    if run is not None:
        runs = run.runs_table()
    return Pack(form["title"], of, about, warnings, items, cite.listed(), areas, runs)


def pack_markdown(pack: Pack) -> str:
    rows = []
    for item in pack.items:
        if not item.answers:
            rows.append([item.number, item.topic, "; ".join(item.people)])
    left = "\n".join(markdown(Table(["item", "topic", "only people can answer"], rows)))
    by_area = []
    for area in pack.areas:
        elements = "; ".join(f"{item.number}: {item.topic}" for item in area.items)
        by_area.append([area.name, elements, area.extent])
    areas = "\n".join(markdown(Table(["area", "elements", "what is known"], by_area)))
    runs = ""
    if pack.runs is not None:
        runs = "\n".join(markdown(pack.runs))
    return template_of(texts()["document"]).render(pack=pack, left=left, areas=areas, runs=runs)
