"""Renders the HTML pages: results with every instance, tables of a suite, and forms of raters.

A page is one file that works without a network. Its Content-Security-Policy forbids connections,
and allows only the page's own script and style, by their hashes.

Texts of other people and programs cannot become HTML. The templates escape these texts; the page's
script inserts texts from the page's data as plain text.
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
from eval_factory.report import (
    asked_again_sentences,
    documents,
    evidence_packs,
    papers,
    result_sentences,
    verdicts,
)
from eval_factory.report.asked_again_sentences import LostAnswers
from eval_factory.report.drawing import page_css, svg
from eval_factory.report.page.instance_data import InstanceBlocks, InstancePacker
from eval_factory.report.page.page_media import PageMedia, media_columns
from eval_factory.report.paper_templates import paper_texts, template_of
from eval_factory.report.reader import StoredResult, own_benchmark_description
from eval_factory.report.result_plots import plots_of

# Placeholders in a rendered template, which `render_page` replaces after the redaction.
_STYLE = "\0style\0"
_SCRIPT = "\0script\0"
_DATA = "\0data\0"


@dataclass(frozen=True)
class ShownResult:
    """A result with all data that a page shows of it."""

    result: TaskResult
    command: str  # the command line that produced the result
    instances: InstanceBlocks
    methods: str = ""  # a text for the methods section of a paper
    label: str = ""  # `A`, `B` ... if the page has several results
    # right answers lost when a question was reworded; None if the page must not have texts
    lost: LostAnswers | None = None
    about: str = ""  # the description of the user's own benchmark; empty for other benchmarks

    @cached_property
    def plots(self) -> dict[str, Markup]:
        """The plots of the result as SVG, by name."""
        drawings = plots_of(self.result, self.instances.plot_numbers)
        # `svg` escapes all texts.
        return {name: Markup(svg(drawing)) for name, drawing in drawings.items()}  # noqa: S704


@dataclass(frozen=True)
class PageComparison:
    """The part of a page that compares several results."""

    title: str
    plots: Sequence[Markup]
    sentences: Sequence[Sequence[str]]  # for each pair of results, the sentences about the pair
    reasons: Sequence[str] = ()  # the reasons why the results cannot be compared


def results_page(
    shown: Sequence[ShownResult],
    redact: Callable[[str], str] = str,
    *,
    comparison: PageComparison | None = None,
    with_texts: bool = True,
) -> str:
    """Return the page of one result or of several.

    Args:
        shown: the results.
        redact: removes secrets from the rendered text; the instances are redacted already. The
            default, `str`, changes nothing.
        comparison: the comparison, if there are several results.
        with_texts: False if the page must not have prompts and answers.
    """
    blocks = "\n".join(chain.from_iterable(shown_result.instances.blocks for shown_result in shown))
    return render_page(
        "page.html.j2",
        page_style(),
        script=page_script(),
        data=blocks,
        redact=redact,
        shown=shown,
        comparison=comparison,
        with_texts=with_texts,
        # The templates call the functions of these three modules.
        words=result_sentences,
        asked_again_words=asked_again_sentences,
        verdicts=verdicts,
        # the columns of the table of usage; a sentence above the table has the cost
        spent_names=[field.name for field in fields(Spent) if field.name != "cost"],
        asdict=asdict,
        version=shown[0].result.provenance.eval_factory,
    )


def render_page(
    template: str,
    style: str,
    script: str = "",
    data: str = "",
    redact: Callable[[str], str] = str,
    **values: Any,
) -> str:
    """Return a rendered template with its style, script and data.

    Style, script and data are inserted after the redaction. The redaction can therefore not alter
    the texts whose hashes are in the Content-Security-Policy.
    """
    # dict from the name in the template to the placeholder and the content that replaces it
    slots = {"style": (_STYLE, style), "script": (_SCRIPT, script), "data": (_DATA, data)}
    # The placeholders are constants of this module, so that they need no escaping.
    values |= {name: Markup(placeholder) for name, (placeholder, _) in slots.items()}  # noqa: S704
    # `values` may have the version that made a result; the default is the running version.
    values = {"version": __version__, **values, "policy": content_security_policy(style, script)}
    text = redact(page_environment().get_template(template).render(values))
    for placeholder, content in slots.values():
        text = text.replace(placeholder, content)
    return text


def content_security_policy(style: str, script: str) -> str:
    """Return the page's Content-Security-Policy (level 2, https://www.w3.org/TR/CSP2/)."""
    return (
        f"default-src 'none'; script-src '{_source_hash(script)}'; "
        f"style-src '{_source_hash(style)}'; img-src data:; media-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """Return the SHA-256 of a script or style in the form of a Content-Security-Policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"


@cache
def page_style() -> str:
    """Return the style sheet of a page, with the rules for plots."""
    return f"\n{page_file('page.css')}\n{page_css()}\n"


def tables_page(template: str, further_style: str = "", **values: Any) -> str:
    """Return a page of tables, which has no script.

    `further_style` is added to the style sheet. Texts in `values` are escaped unless they are
    `Markup`.
    """
    return render_page(template, page_style() + page_file("suite.css") + further_style, **values)


def pack_page(pack: evidence_packs.Pack) -> str:
    """Return the page of an evidence pack."""
    return tables_page("evidence_pack.html.j2", pack=pack)


def page_script(name: str = "page.js") -> str:
    """Return the script of a page: the functions of shown_texts.js, then the named script.

    `page.js` also needs the table of signs, which is inserted before the text of `page.js`.
    """
    parts = [page_file("shown_texts.js")]
    if name == "page.js":
        parts.append(f"const SIGNS = {json.dumps(_sign_columns())};")
    parts.append(page_file(name))
    return "\n" + "\n".join(parts)


def _sign_columns() -> dict[str, list[Any]]:
    """Return a dict from the name of each sign to its columns.

    The columns are the label, the label for values that are not right or wrong, and True if the
    table of instances lists the sign.
    """
    columns = {}
    for name, sign in SIGNS.items():
        columns[name] = [sign.label, sign.label_of_values, sign.is_listed]
    return columns


@cache
def page_file(name: str) -> str:
    """Return the text of a file next to this module."""
    return (resources.files("eval_factory.report.page") / name).read_text(encoding="utf-8")


@cache
def page_environment() -> Environment:
    """Return the Jinja environment of the templates next to this module.

    All texts are escaped, and characters that cannot be printed are replaced.
    """
    environment = Environment(
        loader=PackageLoader("eval_factory.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable_value,
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


def _printable_value(value: Any) -> Any:
    """Return a value of a template. Replace unprintable characters, except in `Markup`."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def code_marks(text: str) -> Markup:
    """Return the escaped text with `<code>` elements in place of backticks.

    A text with an odd number of backticks keeps them.
    """
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:  # The number of backticks is odd.
        return Markup(escape(printable(text)))  # noqa: S704 - escaped
    shown = Markup()
    for index, part in enumerate(parts):
        if index % 2 == 0:
            shown += part  # `Markup` escapes what is added to it.
        else:  # The part is between two backticks.
            shown += Markup("<code>{}</code>").format(part)
    return shown


def compile_templates() -> None:
    """Compile the templates of a run's page and of its methods text.

    The first page is then rendered faster.
    """
    for part in ("page", "run", "clinicians", "rubric", "asked_again", "instances"):
        page_environment().get_template(f"{part}.html.j2")
    for text in (
        paper_texts()["facts"],
        *paper_texts()["sentences"].values(),
    ):
        template_of(text)


def result_page(stored: StoredResult, *, with_texts: bool = True) -> str:
    """Return the page of one result.

    With texts, the page equals the page that the run wrote, byte for byte, if the versions of
    eval-factory and zlib are the same.
    """
    return results_page(shown_results([stored], with_texts=with_texts), with_texts=with_texts)


def shown_results(
    stored: Sequence[StoredResult],
    labels: Sequence[str] = ("",),
    *,
    with_texts: bool = True,
    pairs: Sequence[Mapping[str, str]] = (),
) -> list[ShownResult]:
    """Return each result with its packed instances, for one page.

    Args:
        stored: the results, in the order of the page.
        labels: the label of each result on the page.
        with_texts: False if the page must not have prompts and answers.
        pairs: for each result, a dict from the id of a question to the id of this question in the
            first result. Empty if equal questions have equal ids.

    Raises:
        PrerequisiteError: the files of instances cannot be read.
    """
    shown: list[ShownResult] = []
    media = PageMedia()  # shared by all results, so that the page contains each picture once
    if not pairs:
        pairs = [{}] * len(stored)
    for number, (stored_result, label) in enumerate(zip(stored, labels, strict=True)):
        result = stored_result.result
        packer = InstancePacker(
            main=result.scores.get(result.main_metric),
            fields=tuple(result.groups),
            run=number,
            with_texts=with_texts,
            folder=stored_result.folder,
            media=media,
            pairs=pairs[number],
        )
        lost_answers = LostAnswers(result.validity.asked_again)
        for record in result.instances:
            lost_answers.add(record)
            packer.add(documents.instance_fields(record), documents.result_fields(record))
        shown.append(
            ShownResult(
                result,
                stored_result.command,
                packer.finish(),
                methods=papers.methods_text(result, stored_result.config, stored_result.target),
                label=label,
                lost=lost_answers if with_texts else None,
                about=own_benchmark_description(stored_result.folder),
            )
        )
    return shown


def rater_form(
    sample: Sample,
    rater: str,
    order: Sequence[str],
    shown: Mapping[str, ShownAnswer],
    *,
    with_reference: bool,
    media: Sequence[Markup] = (),
) -> str:
    """Return the rating sheet of one rater as a page, which can be filled in with the keyboard.

    Args:
        sample: The sample that is rated.
        rater: The name of the rater.
        order: The codes of the answers, in the order of the sheet.
        shown: A dict from the code of an answer to the answer as the rater sees it.
        with_reference: True if the rater sees the references.
        media: The pictures and sounds, as `PageMedia.add` returns them.
    """
    data = rater_form_data(sample, rater, order, shown, with_reference=with_reference)
    style = page_file("page.css") + page_file("rater_form.css")
    return render_page(
        "rater_form.html.j2",
        style,
        script=page_script("rater_form.js"),
        data=htmlsafe_json_dumps(data),
        sheet=sample.id,
        rater=rater,
        count=len(order),
        media=media,
        criteria=sample.kind == "criteria",
        keys=[(choice["key"], choice["label"]) for choice in data["choices"]],
    )


def rater_form_data(
    sample: Sample,
    rater: str,
    order: Sequence[str],
    shown: Mapping[str, ShownAnswer],
    *,
    with_reference: bool,
) -> dict[str, Any]:
    """Return the data of the sheet for the page's script.

    The data has no scores and no ids of answers. The arguments are those of `rater_form`.
    """
    questions = {}  # dict from the code of an answer to the names of the questions about it
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
    """Return the key that chooses each rating.

    The key is the rating itself if all ratings are single digits. Otherwise the key is the rating's
    position from 1 to 9; later ratings have an empty string.
    """
    labels = [choice.label for choice in choices]
    if all(label.isascii() and label.isdigit() and len(label) == 1 for label in labels):
        return labels
    keys = []
    for position in range(1, len(labels) + 1):
        if position <= 9:
            keys.append(str(position))
        else:
            keys.append("")
    return keys
