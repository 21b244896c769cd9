"""What a notebook shows of a result: the numbers and what speaks against them; markup of others stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from eval_factory.report.result_views import (
    _MAX_NOTES,
    MAX_ROWS,
    html_block,
    html_list,
    not_reportable,
    paragraph,
    result_html,
)
from hostile_texts import ODD, payloads
from stored_results import PROVENANCE, instance, result

HOSTILE = {**payloads("http://127.0.0.1:9"), "formula": r"$\href{javascript:x}{y}$"}
OURS = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}


class Page(HTMLParser):
    """Its tags with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", [*HOSTILE.values()], ids=[*HOSTILE])
def test_what_others_wrote_stays_text(text: str) -> None:
    made = result([instance("q0", 1.0)])
    hostile = replace(
        made, task=text, main_metric=text, scores={text: made.scores["exact_match"]},
        provenance=replace(PROVENANCE, target=text),
        validity=replace(made.validity, notes=(text,), not_reportable=(text,)), reportable=False,
    )  # fmt: skip
    html = result_html(hostile, Path(f"/x/{text}"))
    page = Page(html)
    assert page.tags == OURS
    assert page.attributes == {"class", "scope"}
    assert page.text.count(" ".join(text.split())) >= 5
    assert html.startswith('<div class="tex2jax_ignore mathjax_ignore">\n')


def test_no_letter_of_others_is_unseen_or_moves_what_follows() -> None:
    for letter in ODD.values():
        assert letter not in html_block(f"a{letter}b", [paragraph(f"c{letter}d")]).replace("\n", "")


def test_the_main_score_is_first_and_has_its_interval() -> None:
    made = result([instance("q0", 1.0)], ("exact_match", "f1"))
    first = made.scores["exact_match"]
    with_interval = replace(first, value=0.12345, stats=replace(first.stats, ci_low=0.1, ci_high=0.2, count=7))
    html = result_html(replace(made, scores={"f1": first, "exact_match": with_interval}), Path("results/x"))
    assert html.splitlines() == [
        '<div class="tex2jax_ignore mathjax_ignore">', "<p><b>pubmed_qa, org/model</b></p>", *html.splitlines()[2:8],
        "<p>1 of 1 instances scored, 0 failed; status: complete</p>", "<p>results: results/x</p>", "</div>",
    ]  # fmt: skip
    assert re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", html) == [
        "metric", "value", "95 % interval", "n", "exact_match", "0.1235", "0.1000 .. 0.2000", "7", "f1", "0.5000", "-", "4"
    ]  # fmt: skip


def test_what_speaks_against_a_score_stands_out() -> None:
    made = result([instance("q0", 1.0), instance("q1", None)])
    assert not_reportable(made) == []
    refused = replace(made, reportable=False)
    assert not_reportable(refused) == ["NOT REPORTABLE: coverage 0.5000"]
    for_reasons = replace(refused, validity=replace(made.validity, not_reportable=("first\n  what to do", "second")))
    assert not_reportable(for_reasons) == ["NOT REPORTABLE: first", "NOT REPORTABLE: second"]
    assert "<p><b>NOT REPORTABLE: first</b></p>\n<p><b>NOT REPORTABLE: second</b></p>" in result_html(
        for_reasons, Path("x")
    )


def test_long_lists_are_cut_and_say_so() -> None:
    score = result([instance("q0", 1.0)]).scores["exact_match"]
    many = replace(result([instance("q0", 1.0)]), scores={str(number): score for number in range(MAX_ROWS + 2)})
    assert '<tr><td colspan="4">2 more: to_frame()</td></tr>' in result_html(many, Path("x"))
    notes = [str(number) for number in range(_MAX_NOTES + 3)]
    assert html_list(notes)[-2:] == ["<li>3 more</li>", "</ul>"]
    assert len(html_list(notes[:_MAX_NOTES])) == _MAX_NOTES + 2
    assert html_list([]) == []
