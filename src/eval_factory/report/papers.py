"""What is written of a run for papers: the methods text, the TRIPOD-LLM checklist, CHAI's model card.

Sentences and forms are Jinja templates in `papers.yml`; here is what they are filled with. Each sentence says only what
the result knows, and none where it knows nothing. Values that others wrote are one printable line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any
from xml.etree import ElementTree as ET

from jinja2 import Environment, Template

from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import MODEL_ROLE, Provenance, Score, TaskResult
from eval_factory.core.tables import Table, code, markdown, prose
from eval_factory.report.sentences import of_criteria
from eval_factory.tasks.framework import Task, load_framework
from eval_factory.tasks.run_specs import load_index

_OWN_FILES = ("data_path", "benchmark")
"""Values of `params.extra` that name files of the user."""
_PARTS = ("version", "subset", "language", "category", "subject", "condition")
"""Values of `params.extra` that choose a part of the data, or another edition of them."""
RELIABILITY = ("requested", "scored", "failed", "empty", "truncated", "unparsed", "refused", "unjudged")
"""Counts that tell how reliably the model answered."""
PROGRAMS = ("eval-factory", "crfm-helm", "Python")
CHAI = "https://mc.chai.org/v0.2/schema.xsd"
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]", "::1")


@lru_cache(maxsize=1)
def forms() -> Mapping[str, Any]:
    """papers.yml."""
    file = resources.files("eval_factory.report").joinpath("papers.yml")
    read: Mapping[str, Any] = parse_own(file.read_text(encoding="utf-8"))
    return read


class Citations:
    """The sources that a text cites, numbered in the order in which they are first cited."""

    def __init__(self, form: str = "[{}]") -> None:
        self._form = form
        self._cited: list[str] = []

    def __call__(self, *names: str) -> str:
        """The numbers of these sources in the form: `[1]`, `[1, 3]`. Raises KeyError where there is no such source."""
        for name in names:
            forms()["sources"][name]
            if name not in self._cited:
                self._cited.append(name)
        return self._form.format(", ".join(str(self._cited.index(name) + 1) for name in names))

    def listed(self) -> list[str]:
        """Each source that was cited, in the order of the numbers."""
        return [f"{forms()['sources'][name]}." for name in self._cited]


@dataclass(frozen=True)
class Described:
    """One run to write of, as it was stored."""

    result: TaskResult
    config: Mapping[str, Any]
    """`config` of the run, with its defaults where they are known."""
    target: Mapping[str, Any]
    cite: Citations = field(default_factory=Citations)

    def said(self, template: str) -> list[str]:
        """The sentences of a template: its lines, without empty ones."""
        values = {**_facts(self.result, self.config, self.target), "cite": self.cite, "say": self.say}
        return rendered(template, values)

    def say(self, name: str) -> str:
        """The sentences of that name, a line each."""
        return "\n".join(self.said(forms()["sentences"][name]))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    # no HTML is made here: what becomes Markdown or XML is escaped where it does
    environment = Environment(autoescape=False, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "line": lambda value: one_line(str(value)),
        "listed": lambda words: enumerated(list(words)),
        "counted": counted,
        "comma": formats.count,
        "was": lambda count: "was" if count == 1 else "were",
        "number": formats.score,
        "short": lambda value: f"{value:g}",
        "score": _score,
        "settings": settings,
        "criteria": of_criteria,
    }
    return environment


def rendered(template: str, values: Mapping[str, Any]) -> list[str]:
    """The lines of a template, without empty ones."""
    return [line.strip() for line in _template(template).render(values).splitlines() if line.strip()]


@lru_cache(maxsize=256)
def _template(text: str) -> Template:
    return _environment().from_string(text)


def _facts(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Any]:
    """What sentences are made of."""
    validity, record, stamp = result.validity, result.provenance, result.comparability
    params: Mapping[str, Any] = config.get("params") or {}
    extra = {"benchmark": None, "on_failure": None, **(params.get("extra") or {})}
    endpoint = target.get("api_endpoint") or {}
    return {
        **_task_facts(result, extra), **_model_facts(record, endpoint),
        **_score_facts(result), **_judge_facts(result), **_program_facts(record),
        "result": result, "validity": validity, "counts": validity.instances, "record": record,
        "params": params, "extra": extra, "adapter": endpoint.get("adapter_config") or {},
        "name": one_line(result.task), "label": one_line(result.main_metric), "model_name": one_line(record.target),
        "splits": [f"split {one_line(name)}: {count:,}" for name, count in validity.splits.items()],
        "deviations": None if stamp is None or stamp.medhelm_settings is None else [
            one_line(one.in_words("leaderboard:")) for one in stamp.deviations
        ],
    }  # fmt: skip


def _task_facts(result: TaskResult, extra: Mapping[str, Any]) -> dict[str, Any]:
    task: Task | None = load_framework().task(result.task)
    own_files = any(extra.get(name) is not None for name in _OWN_FILES)
    parts = [f"{name} {one_line(str(extra[name]))}" for name in _PARTS if extra.get(name) is not None]
    known: dict[str, Any]
    if task is None:
        known = {"is_zero_shot": False, "total": None}
    else:
        spec = load_index().run_specs.get(task.helm.run_spec)
        total = None if own_files or parts else task.about.instances
        known = {"is_zero_shot": task.helm.zero_shot or (spec is not None and spec.zero_shot), "total": total}
    return {"task": task, "has_own_files": own_files, "parts": parts, **known}


def _model_facts(record: Provenance, endpoint: Mapping[str, Any]) -> dict[str, Any]:
    model, kind = record.endpoints.get(MODEL_ROLE), endpoint.get("type")
    host = one_line(model.host) if model is not None else ""
    stated = model.stated_models if model is not None else {}
    return {
        "model": model,
        "endpoint_type": "" if kind is None else one_line(str(kind)),
        "host": "" if host.rpartition(":")[0] in _THIS_MACHINE or host in _THIS_MACHINE else host,
        "is_demo": record.target == "demo baseline" and (model is None or model.model != "demo baseline"),
        "stated_models": [f"{one_line(name)} ({counted(count, 'answer')})" for name, count in stated.items()],
    }


def _score_facts(result: TaskResult) -> dict[str, Any]:
    main, validity = result.scores.get(result.main_metric), result.validity
    said = {"were empty": "empty", "were cut off": "truncated", "were in no form that was asked for": "unparsed"}
    odd = {what: getattr(validity.instances, name) for what, name in said.items()}
    groups = [score for by in result.groups.values() for of in by.values() for score in of.values()]
    return {
        "main": main,
        "stats": main.stats if main is not None else None,
        "nature": _nature(main) if main is not None else [],
        "floor": validity.floors.get(result.main_metric),
        "corrected": [one_line(name) for name in result.scores if name.endswith(".corrected")],
        "interval": forms()["intervals"].get(main.stats.ci_method) if main is not None else None,
        "groups_tested": any(score.stats.p_value is not None for score in groups),
        "odd_answers": [f"{count:,} {what}" for what, count in odd.items() if count],
    }


def _judge_facts(result: TaskResult) -> dict[str, Any]:
    judges = {role: asked for role, asked in result.provenance.endpoints.items() if role != MODEL_ROLE}
    kappas = result.validity.jury.weighted_kappa if result.validity.jury else {}
    return {
        "judges": judges,
        "judges_named": "; ".join(_judges(result, judges)),
        "judge_prompts": sorted({one_line(one) for asked in judges.values() for one in asked.prompt_sha256 or ()}),
        "kappas": [
            f"{one_line(pair)} {formats.coefficient(kappa)}" for pair, kappa in kappas.items() if kappa is not None
        ],
    }


def _program_facts(record: Provenance) -> dict[str, Any]:
    versions = zip(PROGRAMS, (record.eval_factory, record.helm, record.python), strict=True)
    return {
        "helm": "HELM" if record.helm is None else f"HELM {one_line(record.helm)}",
        "programs": [f"{name} {one_line(version)}" for name, version in versions if version is not None],
        "packages": [f"{one_line(a)} {one_line(b)}" for a, b in record.packages.items() if a != "crfm-helm"],
        "machine": [one_line(record.platform[a]) for a in ("distribution", "machine") if record.platform.get(a)],
    }


def _nature(score: Score) -> list[str]:
    """Unit, scale and direction, as far as known."""
    parts = [] if score.unit is None else [one_line(score.unit)]
    parts += [] if score.scale is None else [f"from {score.scale[0]:g} to {score.scale[1]:g}"]
    known = score.higher_is_better is not None
    return parts + ([f"{'higher' if score.higher_is_better else 'lower'} is better"] if known else [])


def _judges(result: TaskResult, endpoints: Mapping[str, Any]) -> Iterator[str]:
    rubric = result.validity.rubric is not None
    for role, counts in result.validity.judges.items():
        asked = endpoints.get(role)
        how = [] if asked is None else [one_line(asked.model), *map(settings, asked.sampling[:1])]
        named = f"{one_line(role)} ({'; '.join(how)})" if how else one_line(role)
        asked_of = of_criteria(counts.asked) if rubric else counted(counts.asked, "answer")
        yield f"{named}, {counts.scored:,} of {asked_of}"


def enumerated(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def settings(sent: Mapping[str, Any]) -> str:
    """Of a request, beside model and question."""
    return (
        enumerated([f"{one_line(str(name))} = {one_line(str(value))}" for name, value in sent.items()]) or "no settings"
    )


def _score(score: Score) -> str:
    interval = formats.between(score.stats.ci_low, score.stats.ci_high, " to ")
    return f"{formats.score(score.value)} (95 % interval {interval})" if interval else formats.score(score.value)


_Said = Callable[[str], list[str]]
"""A template -> its sentences; of several runs, those that hold for some with the names of these."""


def methods_text(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Paragraphs in plain English, a blank line between them, and the references last."""
    cite = Citations()
    return methods_of(Described(result, config, target, cite).said, cite)


def methods_of(said: _Said, cite: Citations, more: Iterable[str] = ()) -> str:
    """`more`: further paragraphs; looked at last, so that sources are numbered as they are read."""
    paragraphs = [said("\n".join(f"{{{{ say('{name}') }}}}" for name in names)) for names in forms()["methods"]]
    told = [*filter(None, map(" ".join, paragraphs)), *filter(None, more)]
    references = [f"[{place}] {source}" for place, source in enumerate(cite.listed(), 1)]
    return "\n\n".join([*told, "\n".join(["References", *references])]) + "\n"


def tripod_llm(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Markdown: each item that the run can fill, with what is not known of it; then the items left for the authors."""
    cite, record = Citations("(ref. {})"), result.provenance
    of = f"Of the run {code(record.run_identity)}: {code(result.task)}, {code(record.target)}."
    said = Described(result, config, target, cite).said
    return tripod_of(said, said, cite, of)


def tripod_of(said: _Said, each: _Said, cite: Citations, of: str, more: _Said = lambda _: []) -> str:
    """`each`: as `said`, run by run. `of`: what was run. `more`: item -> further sentences, of a comparison."""
    source, lines, left = cite("tripod_llm"), [], []
    for place, item in forms()["tripod_llm"].items():
        if "known" not in item:
            left.append([place, item["topic"]])
            continue
        other = f" ({item['other']})" if "other" in item else ""
        known = [prose(one) for one in (*(each if item.get("is_list") else said)(item["known"]), *more(place))]
        lines += [f"### {place}{other} {item['topic']}", ""]
        if item.get("is_list"):
            lines += [*(f"- {one}" for one in known), ""]
        elif known:
            lines += [" ".join(known), ""]
        lines += [f"*Not known to eval-factory: {'; '.join(item['unknown'])}.*", ""]
    return "\n".join([
        "# TRIPOD-LLM checklist",
        "",
        of,
        f"Items are numbered as in Table 2 of the guideline {source}; a number in brackets is that of copies that have",
        "items 6f and 6g. The sentences of the items are in the guideline; their topics here are in other words.",
        "",
        "## Filled from the run",
        "",
        *lines,
        "## Left for the authors",
        "",
        *markdown(Table(["item", "topic"], left)),
        "",
        "## References",
        "",
        *(f"{number_of}. {prose(one)}" for number_of, one in enumerate(cite.listed(), 1)),
        "",
    ])  # fmt: skip


def model_card(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """XML that takes the place of KeyMetrics in an Applied Model Card of the Coalition for Health AI (CHAI).

    Its schema, version 0.2 (github.com/coalition-for-health-ai/mc-schema): three kinds of metrics, each with goal,
    results, interpretation, kind of test, data and process; every text may be Markdown. A result is a label and a value
    as JSON: its kinds `single` and `estimate_ci` are those of the examples beside the schema.
    """
    card, root = forms()["model_card"], ET.Element("KeyMetrics", {"xmlns": CHAI})
    results = dict(zip(card["kinds"], (_scores(result), _groups(result), _counts(result)), strict=True))
    for name, kind in card["kinds"].items():
        run = Described(result, config, target, Citations("(ref. {})"))
        if not len(root):
            data = [one for part in card["data"] for one in run.said(forms()["sentences"][part])]
            process = run.said(card["process"])
            process += [f"Ref. {place}: {source}" for place, source in enumerate(run.cite.listed(), 1)]
        else:
            data = process = [card["as_above"]]
        element = ET.SubElement(root, name)
        _text(element, "MetricGoal", run.said(kind["goal"]))
        found = ET.SubElement(element, "Results")
        for label, value in list(results[name]) or [(card["unknown"], {"kind": "single", "value": None})]:
            one = ET.SubElement(found, "MetricResult")
            ET.SubElement(one, "Label").text = prose(label)
            ET.SubElement(one, "ValueJson").text = json.dumps(value, allow_nan=False)
        _text(element, "Interpretation", run.said(kind["interpretation"]))
        _text(element, "TestType", [card["test_type"]])
        _text(element, "TestingDataDescription", data)
        _text(element, "ValidationProcessAndJustification", process)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", short_empty_elements=False) + "\n"


def _text(parent: ET.Element, name: str, sentences: Iterable[str]) -> None:
    ET.SubElement(parent, name).text = " ".join(map(prose, sentences))


_Values = Iterator[tuple[str, dict[str, Any]]]


def _scores(result: TaskResult) -> _Values:
    return ((name, _value(score)) for name, score in result.scores.items())


def _groups(result: TaskResult) -> _Values:
    main = result.main_metric
    for by, groups in result.groups.items():
        yield from ((f"{main}, {by}: {value}", _value(of[main])) for value, of in groups.items() if main in of)


def _counts(result: TaskResult) -> _Values:
    for name in RELIABILITY:
        value = getattr(result.validity.instances, name)
        yield f"Instances {name}", {"kind": "single", "value": value, "unit": "count"}


def _value(score: Score) -> dict[str, Any]:
    """To the last digit, with its interval where there is one; JSON has no number for one that is not finite."""
    if not math.isfinite(score.value):
        return {"kind": "single", "value": None}
    unit = {} if score.unit is None else {"unit": one_line(score.unit)}
    low, high = score.stats.ci_low, score.stats.ci_high
    if low is None or high is None:
        return {"kind": "single", "value": score.value, **unit}
    return {"kind": "estimate_ci", "estimate": score.value, "lower": low, "upper": high, "level": 95, **unit}
