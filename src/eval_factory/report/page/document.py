"""The page: one file, opened without a network, with every instance in it; and the raters' form,
another one. A Content-Security-Policy forbids any connection, and any script and style but the
page's own two, by their hashes; what others wrote is escaped by the template, or stands in blocks
from which the script inserts it as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from importlib import resources
from itertools import chain
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from eval_factory import __version__
from eval_factory.core import formats
from eval_factory.core.annotations import RatingChoice, Sample, ShownAnswer
from eval_factory.core.foreign_text import printable
from eval_factory.core.results import Spent, TaskResult
from eval_factory.core.signs import SIGNS
from eval_factory.report import documents, papers, result_sentences, verdicts
from eval_factory.report.drawing import page_css, svg
from eval_factory.report.page.instance_data import (
    InstanceBlocks,
    InstancePacker,
    PageMedia,
    media_columns,
)
from eval_factory.report.plots import plots_of
from eval_factory.report.reader import StoredResult, own_benchmark_description
from eval_factory.report.result_sentences import LostAnswers

_STYLE = "\0style\0"
_SCRIPT = "\0script\0"
_DATA = "\0data\0"


@dataclass(frozen=True)
class ShownResult:
    """One result as it is put on a page."""

    result: TaskResult
    command: str
    instances: InstanceBlocks
    methods: str = ""  # text for the methods section of a paper
    label: str = ""  # a, B ... if there are several results
    lost: LostAnswers | None = None  # None: the page shows no texts
    about: str = ""  # the benchmark's own description, of a benchmark of the user's

    @cached_property
    def plots(self) -> dict[str, Markup]:
        drawings = plots_of(self.result, self.instances.numbers)
        return {name: Markup(svg(drawing)) for name, drawing in drawings.items()}  # noqa: S704


@dataclass(frozen=True)
class Beside:
    """The part of a page about several results together."""

    title: str
    plots: Sequence[Markup]
    sentences: Sequence[Sequence[str]]  # of each pair
    reasons: Sequence[str] = ()  # why they cannot be compared


def page(
    shown: Sequence[ShownResult],
    redact: Callable[[str], str] = str,
    *,
    beside: Beside | None = None,
    with_texts: bool = True,
) -> str:
    """The page. `redact`: for what is written out; instances come redacted. `beside`: of two
    results or more.
    """
    blocks = "\n".join(chain.from_iterable(result_shown.instances.blocks for result_shown in shown))
    return whole_page(
        "page.html.j2",
        page_style(),
        page_script(),
        blocks,
        redact,
        shown=shown,
        beside=beside,
        with_texts=with_texts,
        words=result_sentences,
        verdicts=verdicts,
        spent_names=[field.name for field in fields(Spent) if field.name != "cost"],
        asdict=asdict,
        version=shown[0].result.provenance.eval_factory,
    )


def whole_page(
    template: str,
    style: str,
    script: str = "",
    data: str = "",
    redact: Callable[[str], str] = str,
    **values: Any,
) -> str:
    """A template, filled in. Style, script and data come last: no redaction alters what the
    policy has hashes of.
    """
    slots = {"style": (_STYLE, style), "script": (_SCRIPT, script), "data": (_DATA, data)}
    values |= {name: Markup(slot) for name, (slot, _) in slots.items()}  # noqa: S704
    values = {"version": __version__, **values, "policy": policy(style, script)}
    text = redact(page_environment().get_template(template).render(values))
    for slot, part in slots.values():
        text = text.replace(slot, part)
    return text


def policy(style: str, script: str) -> str:
    """Content-Security-Policy, level 2: https://www.w3.org/TR/CSP2/"""
    return (
        f"default-src 'none'; script-src '{_source_hash(script)}'; "
        f"style-src '{_source_hash(style)}'; img-src data:; "
        "media-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"


@cache
def page_style() -> str:
    """Return the style, with the rules of the plots, light and dark."""
    return f"\n{page_file('page.css')}\n{page_css()}\n"


def tables_page(template: str, own_style: str = "", **values: Any) -> str:
    """A page of tables without a script. What is in `values` and no Markup is escaped."""
    return whole_page(template, page_style() + page_file("suite.css") + own_style, **values)


def pack_page(pack: papers.Pack) -> str:
    """One offline page of an evidence pack."""
    return tables_page("evidence_pack.html.j2", pack=pack)


def page_script(name: str = "page.js") -> str:
    """Return a script behind the functions that show foreign texts, and the page's table of
    signs.
    """
    parts = [page_file("shown_texts.js")]
    if name == "page.js":
        parts.append(f"const SIGNS = {json.dumps(_sign_columns())};")
    parts.append(page_file(name))
    return "\n" + "\n".join(parts)


def _sign_columns() -> dict[str, list[Any]]:
    """Return, by the name of a sign, its label, that of values that are not right or wrong, and
    whether a row lists it.
    """
    columns = {}
    for name, sign in SIGNS.items():
        columns[name] = [sign.label, sign.label_of_values, sign.is_listed]
    return columns


@cache
def page_file(name: str) -> str:
    return (resources.files("eval_factory.report.page") / name).read_text(encoding="utf-8")


@cache
def page_environment() -> Environment:
    """Return the environment of the templates beside this module: everything is escaped, foreign
    text printable.
    """
    environment = Environment(
        loader=PackageLoader("eval_factory.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    filters: dict[str, Any] = {
        "decimal": lambda number, digits=4: formats.decimals(number, digits),
        "p_value": formats.p_value,
        "points": lambda number: f"{number:,.10g}",
        "grouped": formats.count,
        "code_marks": code_marks,
    }
    environment.filters |= filters
    return environment


def code_marks(text: str) -> Markup:
    """Return the text with what stands between backticks as code; an odd backtick stays as it
    is.
    """
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:
        return Markup(escape(printable(text)))  # noqa: S704 - escaped
    shown = Markup()
    for place, part in enumerate(parts):
        if place % 2 == 0:
            shown += part
        else:
            shown += Markup("<code>{}</code>").format(part)
    return shown


def compile_templates() -> None:
    """Compile the templates of a run's page and of its methods text, as the first page would."""
    for part in ("page", "run", "clinicians", "rubric", "asked_again", "instances"):
        page_environment().get_template(f"{part}.html.j2")
    for text in (papers.paper_texts()["facts"], *papers.paper_texts()["sentences"].values()):
        papers.template_of(text)


def result_page(stored: StoredResult, *, with_texts: bool = True) -> str:
    """Return the page of one result: byte for byte the one that the run wrote, if texts are
    wanted.
    """
    return page(shown_of([stored], with_texts=with_texts), with_texts=with_texts)


def shown_of(
    stored: Sequence[StoredResult],
    labels: Sequence[str] = ("",),
    *,
    with_texts: bool = True,
    pairs: Sequence[Mapping[str, str]] = (),
) -> list[ShownResult]:
    """Return each with its instances packed.

    Args:
        stored: the results of one page, the first in front.
        labels: how each result is called on the page.
        with_texts: whether prompts and answers are on the page.
        pairs: of each result, id of a question -> id of the same one in the first result; empty
            where ids say which questions are the same.

    Raises:
        PrerequisiteError: the files of instances cannot be read.
    """
    results_shown: list[ShownResult] = []
    media = PageMedia()
    pairs = pairs or [{}] * len(stored)
    for number, (result_stored, label) in enumerate(zip(stored, labels, strict=True)):
        result = result_stored.result
        packer = InstancePacker(
            result.scores.get(result.main_metric),
            tuple(result.groups),
            number,
            with_texts=with_texts,
            folder=result_stored.folder,
            media=media,
            pairs=pairs[number],
        )
        lost = LostAnswers(result.validity.asked_again)
        for record in result.instances:
            lost.add(record)
            packer.add(documents.instance_line(record), documents.result_line(record))
        methods = papers.methods_text(result, result_stored.config, result_stored.target)
        results_shown.append(
            ShownResult(
                result,
                result_stored.command,
                packer.finish(),
                methods,
                label,
                lost if with_texts else None,
                own_benchmark_description(result_stored.folder),
            )
        )
    return results_shown


def rater_form(
    sample: Sample,
    rater: str,
    order: Sequence[str],
    shown: Mapping[str, ShownAnswer],
    *,
    with_reference: bool,
    media: Sequence[Markup] = (),
) -> str:
    """Return the sheet of one rater as a page, filled in with the keyboard alone.

    Args:
        sample: The sample that is rated.
        rater: The name of the rater.
        order: The codes of the answers.
        shown: Code -> what the rater sees.
        with_reference: References are shown.
        media: `PageMedia.add` of the answers.
    """
    data = form_data(sample, rater, order, shown, with_reference=with_reference)
    style = page_file("page.css") + page_file("rater_form.css")
    return whole_page(
        "rater_form.html.j2",
        style,
        page_script("rater_form.js"),
        htmlsafe_json_dumps(data),
        sheet=sample.id,
        rater=rater,
        count=len(order),
        media=media,
        criteria=sample.kind == "criteria",
        keys=[(choice["key"], choice["label"]) for choice in data["choices"]],
    )


def form_data(
    sample: Sample,
    rater: str,
    order: Sequence[str],
    shown: Mapping[str, ShownAnswer],
    *,
    with_reference: bool,
) -> dict[str, Any]:
    """Return what the page's script gets: neither a score nor the id of an answer."""
    questions = {}
    for answer in sample.answers:
        questions[answer.code] = [question.name for question in answer.questions]
    choices = []
    for choice, key in zip(sample.choices, rating_keys(sample.choices), strict=True):
        choices.append({"label": choice.label, "key": key})
    items = []
    for code in order:
        references: list[str] = []
        if with_reference:
            references = list(shown[code].references)
        item = {
            "code": code,
            "turns": list(map(list, shown[code].turns)),
            "answer": shown[code].answer,
            "references": references,
            "questions": questions[code],
        }
        if shown[code].media:
            item["media"] = media_columns(shown[code].media)
        items.append(item)
    return {"sheet": sample.id, "rater": rater, "choices": choices, "items": items}


def rating_keys(choices: Sequence[RatingChoice]) -> list[str]:
    """Return the number key of each rating: the rating itself if all are single digits, else
    its place from 1; none beyond the ninth.
    """
    labels = [choice.label for choice in choices]
    if all(label.isascii() and label.isdigit() and len(label) == 1 for label in labels):
        return labels
    keys = list(map(str, range(1, min(len(labels), 9) + 1)))
    return keys + [""] * (len(labels) - len(keys))
