"""Writes texts about runs for papers: methods texts, TRIPOD-LLM checklists and CHAI's model cards.

The file `papers.yml` has Jinja templates of the texts, which this module fills with facts from
results. A sentence about a fact is left out if the result does not have the fact. Values that other
people or programs wrote are reduced to one printable line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, Protocol
from xml.sax.saxutils import escape

from jinja2 import Environment, Template

from eval_factory.core import formats
from eval_factory.core.asked_again_records import AskedAgain
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.results import MODEL_ROLE, AskedEndpoint, Provenance, Score, TaskResult
from eval_factory.core.signs import SIGNS
from eval_factory.core.tables import Table, code, markdown_lines, prose
from eval_factory.report import result_sentences
from eval_factory.report.asked_again_sentences import asked_again_lines
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.errata import CORRECTED_SUFFIX
from eval_factory.tasks.framework import Task, load_framework

OWN_FILE_PARAMS = ("data_path", "benchmark")  # the keys of `params.extra` for the user's own files
DATA_PART_PARAMS = ("version", "subset", "language", "category", "subject", "condition")
"""The keys of `params.extra` that choose a part or an edition of a benchmark's data."""
CHAI = "https://mc.chai.org/v0.2/schema.xsd"  # the XML namespace of CHAI's model card

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


@cache
def paper_texts() -> Mapping[str, Any]:
    """Return the templates and sources in papers.yml."""
    return dict(load_packaged("report/papers.yml"))


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
        values = _facts(self.result, self.config, self.target)
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


def rendered_lines(template: str, values: Mapping[str, Any]) -> list[str]:
    """Return the lines of a filled template, stripped and without empty lines."""
    lines = []
    for line in template_of(template).render(values).splitlines():
        if line.strip():
            lines.append(line.strip())
    return lines


@lru_cache(maxsize=256)
def template_of(text: str) -> Template:
    """Return the compiled Jinja template of a text."""
    return _ENVIRONMENT.from_string(text)


def _facts(
    result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the variables of the templates, without the `facts` that papers.yml defines.

    The four functions that are called here return further variables; their docstrings explain them.
    """
    validity = result.validity
    params: Mapping[str, Any] = config.get("params") or {}
    # Templates test `extra.benchmark is none`. Without the key, the test would be false.
    extra = {
        "benchmark": None,
        "on_failure": None,
        "answer_style": None,
        **(params.get("extra") or {}),
    }
    endpoint = target.get("api_endpoint") or {}
    odd_answers = []  # such as `3 were cut off`
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
        # the name of an interval method -> its description and its sources
        "intervals": paper_texts()["intervals"],
        "splits": [f"split {one_line(name)}: {count:,}" for name, count in validity.splits.items()],
        "nature": list(_score_traits(result.scores.get(result.main_metric))),
        "deviations": _deviations(result),
        # the names of the scores without a known defect of HELM's metric
        "corrected": [one_line(name) for name in result.scores if name.endswith(CORRECTED_SUFFIX)],
        "groups_tested": _are_groups_tested(result),
        "odd_answers": odd_answers,
    }


def _deviations(result: TaskResult) -> list[str] | None:
    """Return a text for each setting that differs from the leaderboard's.

    Returns None if the leaderboard has no settings for this task.
    """
    comparability = result.comparability
    if comparability is None or comparability.medhelm_settings is None:
        return None
    deviations = []
    for deviation in comparability.deviations:
        deviations.append(one_line(deviation.in_words(there="leaderboard:")))
    return deviations


def _are_groups_tested(result: TaskResult) -> bool:
    """Return True if a score of a group has a p-value."""
    for by_value in result.groups.values():
        for scores in by_value.values():
            if any(score.stats.p_value is not None for score in scores.values()):
                return True
    return False


def _software_facts(record: Provenance) -> dict[str, Any]:
    """Return the programs and packages of a run with their versions, and its machine.

    Each of the three facts is a list of texts, such as `Python 3.12.3` or `x86_64`.
    """
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
    """Return the facts about the task and its data.

    `parts` are the settings that chose a part of the data, such as `subset abstracts`. `total` is
    the number of instances in the complete benchmark; it is None if the run used the user's own
    files or a part of the data. `task` and `total` are None if eval-factory does not have the task.
    """
    task: Task | None = load_framework().task(result.task)
    has_own_files = any(extra.get(name) is not None for name in OWN_FILE_PARAMS)
    parts = []
    for name in DATA_PART_PARAMS:
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
_DEMO_TARGET = "demo baseline"  # `target` of a run that asked the demo endpoint


def _model_facts(result: TaskResult, endpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the evaluated model and its endpoint.

    `model` is the record of the endpoint; None if it is not known. `host` is empty if the endpoint
    is on this machine. `stated_models` are texts such as `gpt-4o-2024-08-06 (40 answers)`.
    """
    record = result.provenance
    model = record.endpoints.get(MODEL_ROLE)
    is_demo = record.target == _DEMO_TARGET
    host = ""
    stated_models = []
    if model is not None:
        # A user may have named a real model like the demo target.
        is_demo = is_demo and model.model != _DEMO_TARGET
        host = one_line(model.host)
        for name, count in model.stated_models.items():
            stated_models.append(f"{one_line(name)} ({counted(count, 'answer')})")
    without_port = host.rpartition(":")[0]
    if host in _THIS_MACHINE or without_port in _THIS_MACHINE:
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
    }


def _score_traits(score: Score | None) -> Iterator[str]:
    """Yield the unit, scale and direction of a score, as far as they are known."""
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
    """Return the facts about the judges, their prompts and their agreement.

    `judges` maps a judge's role to the record of its endpoint. `judges_named` is one text about all
    judges. `judge_prompts` are the hashes of their prompts, and `kappas` are texts such as
    `gpt/llama 0.612`.
    """
    judges = {}
    prompt_hashes: set[str] = set()
    for role, endpoint in result.provenance.endpoints.items():
        if role != MODEL_ROLE:
            judges[role] = endpoint
            prompt_hashes.update(map(one_line, endpoint.prompt_sha256 or ()))
    kappas = []
    if result.validity.jury is not None:
        for pair, kappa in result.validity.jury.weighted_kappa.items():
            if kappa is not None:
                kappas.append(f"{one_line(pair)} {formats.coefficient(kappa)}")
    judge_texts = [_judge_text(result, role, judges.get(role)) for role in result.validity.judges]
    return {
        "judges": judges,
        "judges_named": "; ".join(judge_texts),
        "judge_prompts": sorted(prompt_hashes),
        "kappas": kappas,
    }


def _judge_text(result: TaskResult, role: str, endpoint: AskedEndpoint | None) -> str:
    """Return a judge's name with its model, its settings and the number of its judgements.

    If requests had different settings, the text has the most frequent settings only.
    """
    name = one_line(role)
    if endpoint is not None:
        about = one_line(endpoint.model)
        if endpoint.sampling:
            about = f"{about}; {settings_text(endpoint.sampling[0])}"
        if about:
            name += f" ({about})"
    counts = result.validity.judges[role]
    asked = counted(counts.asked, "answer")
    if result.validity.rubric is not None:
        asked = result_sentences.criteria_count(counts.asked)
    return f"{name}, {counts.scored:,} of {asked}"


def joined_with_and(names: Sequence[str]) -> str:
    """Return names as an English enumeration: `a`, `a and b`, `a, b and c`."""
    if len(names) < 2:  # none or one
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def settings_text(sent: Mapping[str, Any]) -> str:
    """Return the sampling settings that were sent with a request, as text."""
    texts = [f"{one_line(str(name))} = {one_line(str(value))}" for name, value in sent.items()]
    return joined_with_and(texts) or "no settings"


def _score_text(score: Score) -> str:
    """Return a score with its interval, if it has one."""
    value = formats.score(score.value)
    interval = formats.between(score.stats.ci_low, score.stats.ci_high, " to ")
    if not interval:
        return value
    return f"{value} (95 % interval {interval})"


def _was_or_were(count: int) -> str:
    """Return the verb that agrees with a number: `was` or `were`."""
    if count == 1:
        return "was"
    return "were"


def _asked_again_sentences(record: AskedAgain | None) -> list[str]:
    """Return a sentence for each finding from questions that were asked again."""
    return [*map(result_sentences.capitalized, asked_again_lines(record))]


# The templates make no HTML. Markdown and XML are escaped by the filters `prose` and `xml`.
_ENVIRONMENT = Environment(
    autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
)
_ENVIRONMENT.filters |= {
    "line": lambda value: one_line(str(value)),
    "listed": lambda names: joined_with_and(list(names)),
    "counted": counted,
    "comma": formats.count,
    "was": _was_or_were,
    "number": formats.score,
    "decimal": formats.decimals,
    "coefficient": formats.coefficient,
    "percent": lambda share: formats.percent(formats.rounded(share)),
    "seconds": formats.seconds,
    "plain_number": lambda value: f"{value:g}",
    "score": _score_text,
    "settings": settings_text,
    "criteria": result_sentences.criteria_count,
    "money": formats.money,
    "p_value": formats.p_value,
    "rough": formats.short,
    "beside_chance": result_sentences.floor_sentence,
    "chance_may_explain": result_sentences.chance_may_explain,
    "agreement": result_sentences.agreement_text,
    "clinician_lines": result_sentences.clinician_lines,
    "asked_again_lines": _asked_again_sentences,
    "prose": lambda sentences: " ".join(map(prose, sentences)),
    "xml": escape,
    "json": lambda value: json.dumps(value, allow_nan=False),
}


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
