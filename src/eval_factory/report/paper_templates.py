"""The templates of the texts for papers, and the filters with which they show values.

The file `papers.yml` has the Jinja templates. Values that other people or programs wrote are
reduced to one printable line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any
from xml.sax.saxutils import escape

from jinja2 import Environment, Template

from eval_factory.core import formats
from eval_factory.core.asked_again_records import AskedAgain
from eval_factory.core.foreign_text import one_line
from eval_factory.core.formats import counted
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.results import Score
from eval_factory.core.tables import prose
from eval_factory.report import result_sentences
from eval_factory.report.asked_again_sentences import asked_again_lines


@cache
def paper_texts() -> Mapping[str, Any]:
    """Return the templates and sources in papers.yml."""
    return dict(load_packaged("report/papers.yml"))


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
