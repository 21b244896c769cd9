"""The form of a rater as a file; tests/browser fills it in."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest
from markupsafe import Markup

from eval_factory.analysis.annotation_sheets import csv_sheet
from eval_factory.core.annotations import YES_NO, AnswerKey, Question, RatingChoice, ShownAnswer
from eval_factory.report.page.document import page_script, rater_form, rater_form_data, rating_keys
from hostile_texts import ODD, payloads
from unit.core.test_annotations import SAMPLE

FIVE = tuple(RatingChoice(float(one), str(one)) for one in range(1, 6))


def shown(text: str) -> ShownAnswer:
    return ShownAnswer(
        AnswerKey("secret-id", 7),
        (("user", text),),
        text,
        (text,),
        (Question("first"), Question(text)),
        "digest",
    )


def form(text: str, *, with_reference: bool = True) -> str:
    sample = replace(SAMPLE, answers=(replace(SAMPLE.answers[0], questions=shown(text).questions),))
    return rater_form(sample, "1", ["bcdfg"], {"bcdfg": shown(text)}, with_reference=with_reference)


def test_it_tells_what_is_rated_and_nothing_of_who_answered() -> None:
    data = rater_form_data(SAMPLE, "2", ["bcdfg"], {"bcdfg": shown("text")}, with_reference=False)
    assert data == {
        "sheet": "sheet",
        "rater": "2",
        "choices": [{"label": "yes", "key": "1"}, {"label": "no", "key": "2"}],
        "items": [
            {
                "code": "bcdfg",
                "turns": [["user", "text"]],
                "answer": "text",
                "references": [],
                "questions": ["first", "second"],
            }
        ],
    }
    page = form("text")
    assert not [secret for secret in ("secret-id", "digest", "stratum", "0.25") if secret in page]
    assert "Rate 1 answers" in page
    assert "rater 1" in page


def test_pictures_stand_beside_the_question() -> None:
    block = Markup("<script data-sha256>")
    record = {"type": "image/png", "sha256": "ab", "file": "helm/x.png"}
    seen = {"bcdfg": replace(shown("text"), media=(record,))}
    (item,) = rater_form_data(SAMPLE, "2", ["bcdfg"], seen, with_reference=True)["items"]
    assert item["media"] == [["image/png", "ab", "helm/x.png"]]
    assert block in rater_form(SAMPLE, "1", ["bcdfg"], seen, with_reference=True, media=[block])
    assert "text \u23ce [file helm/x.png],text," in csv_sheet(
        SAMPLE, "1", ["bcdfg"], seen, with_reference=True
    )


def test_the_policy_allows_its_own_script_and_style_alone() -> None:
    page = form("text")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    script = page.rpartition("<script>")[2].partition("</script>")[0]
    assert policy is not None
    for text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"sha256-{digest}" in policy[1].replace("&#39;", "'").replace("&#43;", "+")
    assert "default-src &#39;none&#39;" in policy[1]
    assert not re.findall(r'(?:src|href)="(?!#)', page.replace(script, ""))


@pytest.mark.parametrize("name", [*payloads("http://127.0.0.1:9"), *ODD])
def test_no_text_leaves_its_place(name: str) -> None:
    text = {**payloads("http://127.0.0.1:9"), **ODD}[name]
    # data cannot end the element that they stand in, nor open a comment there
    page = form(text)
    plain = form("plain")
    assert re.sub(r'(id="sheet">).*?<', r"\1<", page) == re.sub(r'(id="sheet">).*?<', r"\1<", plain)
    data = re.search(r'id="sheet">(.*?)</script>', page)
    assert data is not None
    assert json.loads(data[1])["items"][0]["answer"] == text


def test_the_keys_of_ratings() -> None:
    assert rating_keys(FIVE) == ["1", "2", "3", "4", "5"]
    assert rating_keys(YES_NO) == ["1", "2"]
    eleven = tuple(RatingChoice(float(one), str(one)) for one in range(11))
    assert rating_keys(eleven) == [*"123456789", "", ""]
    from_zero = tuple(RatingChoice(float(one), str(one)) for one in range(4))
    assert rating_keys(from_zero) == ["0", "1", "2", "3"]


def test_the_script_shares_what_shows_foreign_texts_with_the_report() -> None:
    script = page_script("rater_form.js")
    assert "function shown(text)" in script
    assert "localStorage" in script
    assert "innerHTML" not in script
    assert "fetch(" not in script
