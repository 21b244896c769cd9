"""The page of a result: what it says, and that nothing in it runs or is asked for."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core import results
from eval_factory.core.results import (
    DEMO,
    MODEL_ROLE,
    AskedEndpoint,
    Comparability,
    FailureCause,
    Floor,
    JudgeCounts,
    RubricVotes,
    TaskResult,
    Usage,
)
from eval_factory.report.documents import instance_fields, result_fields
from eval_factory.report.page import document
from eval_factory.report.page.blocks import readable_page
from eval_factory.report.page.criteria import TotalLoss
from eval_factory.report.page.document import (
    PageComparison,
    ShownResult,
    content_security_policy,
    page_script,
    page_style,
    result_page,
    results_page,
)
from eval_factory.report.page.instance_data import InstancePacker
from eval_factory.report.reader import load_result
from eval_factory.report.verdicts import refusals_of
from eval_factory.scoring.reportable import other_model_reasons
from facts import says
from stored_results import criterion, instance, right_or_wrong, rubric_result, written
from stored_results import result as made_of
from unit.report.test_result_sentences import FOUND
from unit.report.test_summary import causes, changed, spent, with_corrected

SECRET = "Mrs Miller of ward 7"
VOID = {"meta", "input", "br"}


def shown(
    result: TaskResult, command: str = "helm-run", *, with_texts: bool = True, **how: Any
) -> ShownResult:
    packer = InstancePacker(
        result.scores.get(result.main_metric),
        tuple(result.groups),
        how.pop("run", 0),
        with_texts=with_texts,
    )
    for record in result.instances:
        packer.add(instance_fields(record), result_fields(record))
    return ShownResult(result, command, packer.finish(), **how)


def html(result: TaskResult, command: str = "helm-run", **how: Any) -> str:
    return results_page([shown(result, command, **how)])


class Elements(HTMLParser):
    """Every element with its attributes; raises where one is not closed as it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_nothing_comes_from_elsewhere_and_nothing_that_others_wrote_is_markup(
    result: TaskResult,
) -> None:
    hostile = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    failing = changed(
        result, notes=(hostile,), failures=(FailureCause(hostile, 1, hostile, hostile),)
    )
    text = html(
        replace(failing, task=hostile, provenance=replace(result.provenance, target=hostile)),
        hostile,
    )
    elements = Elements(text).found
    assert {tag for tag, _ in elements} <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "a",
        "header",
        "p",
        "span",
        "nav",
        "main",
        "section",
        "h1",
        "h2",
        "h3",
        "div",
        "ul",
        "ol",
        "li",
        "figure",
        "svg",
        "desc",
        "line",
        "rect",
        "circle",
        "polygon",
        "text",
        "b",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
        "dl",
        "dt",
        "dd",
        "code",
        "pre",
        "form",
        "label",
        "kbd",
        "input",
        "select",
        "fieldset",
        "legend",
        "button",
        "aside",
        "noscript",
        "footer",
        "script",
    }
    for tag, attributes in elements:
        assert not {"src", "style", "onerror", "onclick", "action", "srcset"} & attributes.keys(), (
            tag
        )
        assert (attributes.get("href") or "#").startswith("#")
    assert [attributes.get("type") for tag, attributes in elements if tag == "script"] == [
        "application/x-eval-factory",
        "application/x-eval-factory",
        None,
    ]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "http" not in text.replace("http-equiv", "")
    assert not re.search(r"@import|url\(", text)


def test_ids_are_unique_and_every_link_has_its_place(result: TaskResult) -> None:
    both = results_page(
        [shown(result, label="A"), shown(result, label="B", run=1)],
        comparison=PageComparison("A and B", (), [["x"]]),
    )
    for text in (html(changed(result, notes=("x",), failures=causes(1))), both):
        elements = Elements(text).found
        ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        for _, attributes in elements:
            for place in (attributes.get("aria-labelledby"), (attributes.get("href") or "")[1:]):
                assert not place or place in ids


def test_the_policy_allows_the_pages_own_script_and_style_alone(result: TaskResult) -> None:
    text = html(result)
    said = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    assert [one.replace("&#39;", "'") for one in said] == [
        content_security_policy(page_style(), page_script())
    ]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in content_security_policy(
            page_style(), page_script()
        )
    assert content_security_policy("", "").startswith("default-src 'none'; ")
    assert "connect" not in content_security_policy("", "")
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_what_is_redacted_is_not_the_script_and_not_the_data(result: TaskResult) -> None:
    text = results_page(
        [shown(result, "helm-run function H4sI")],
        lambda said: said.replace("H4sI", "-").replace("function", "="),
    )
    assert "helm-run = -" in text
    assert page_script() in text
    assert text.count('data-part="0">H4sI') == 1


def test_all_that_is_written_is_printable(result: TaskResult) -> None:
    failures = (
        *causes(*range(9, 2, -1)),
        FailureCause("gpt", 1, "odd \x1b[2J\u202e<b>", "try max_length"),
    )
    text = html(
        changed(
            result,
            failures=failures,
            notes=tuple(f"number {n}" for n in range(8)),
            splits={"test": 4, "valid": 2},
        ),
        "helm-run \x9b\u2028",
    )
    assert all(f"cause {count}" in text for count in range(3, 10))
    assert all(f"<li>number {number}</li>" in text for number in range(8))
    assert text.count("<li>number 2</li>") == 2
    assert text.count("<li>number 3</li>") == 1
    assert "All 8 notes" in text
    assert "odd \\x1b[2J\\u202e&lt;b&gt;" in text
    for part in (
        "judge gpt",
        "try max_length",
        "Instances by split: test 4, valid 2.",
        "helm-run \\x9b\\u2028",
    ):
        assert part in text
    assert text.replace("\n", "").isprintable()


def test_what_speaks_against_a_score_stands_beside_it_or_that_there_is_none(
    result: TaskResult,
) -> None:
    good = html(result)
    says(good, "score may be reported")
    assert "not reportable" not in good
    validity = replace(result.validity, not_reportable=("judge <b> failed",))
    bad = html(replace(result, validity=validity, reportable=False))
    says(bad, "Do not report")
    assert "Judge &lt;b&gt; failed</a>" in bad
    assert "not reportable: see why" in bad
    assert "may be reported" not in bad
    says(html(replace(result, reportable=False)), "score of their own")
    text = html(replace(result, scores={}, reportable=False))
    assert '<p class="big">none</p>' in text
    says(text, "exact_match could not")
    assert "see why" not in text


def test_each_reason_is_a_line_with_its_advice_and_code(result: TaskResult) -> None:
    reasons = ("9 of 10 answers are empty\n  set `a.b` here", "judge x failed\n  ask again")
    validity = replace(result.validity, not_reportable=reasons)
    text = html(replace(result, validity=validity, reportable=False))
    assert '<li><a href="#instances">9 of 10 answers are empty</a>.<br>Set <code>a.b</code>' in text
    assert '<a href="#jury">Judge x failed</a>.<br>Ask again.' in text
    card = text[text.index('<ul class="refusals">') :].partition("</ul>")[0]
    assert card.count("<li>") == 2
    assert "\\n" not in card


@pytest.mark.parametrize("role", [MODEL_ROLE, "a"])
def test_a_reason_about_another_model_leads_to_the_stated_models(
    role: str, result: TaskResult
) -> None:
    endpoint = AskedEndpoint("org/m", "h.test", (), 10, {"other/x": 5, "org/m": 5}, 5, None)
    reasons = other_model_reasons({role: endpoint}, 0.1)
    validity = replace(result.validity, not_reportable=reasons)
    changed_result = replace(result, validity=validity, reportable=False)
    (refusal,) = refusals_of(changed_result)
    says(refusal.reason, "5 of 10", "another model", "other/x")
    assert refusal.section == "provenance"
    text = html(changed_result)
    assert '<li><a href="#provenance">' in text
    assert 'id="provenance"' in text


def test_a_demo_is_grey_and_no_measurement(result: TaskResult) -> None:
    validity = replace(result.validity, not_reportable=(DEMO,))
    text = html(replace(result, validity=validity, reportable=False))
    assert '<div class="card demo">' in text
    assert "Demo: not a measurement" in text
    assert '<div class="card good">' not in text
    assert '<div class="card bad">' not in text


def test_a_score_that_chance_may_explain_is_not_shown_as_good(result: TaskResult) -> None:
    text = html(
        changed(result, floors={"exact_match": Floor("always A", 0.45, 4, {"always A": 0.45})})
    )
    says(text, "May be reported, but")
    assert '<div class="card warn">' in text
    better = html(changed(result, floors={"exact_match": Floor("empty", 0.0, 4, {"empty": 0.0})}))
    says(better, "score may be reported")
    assert '<div class="card good">' in better


def test_the_best_trivial_answer_is_named(result: TaskResult) -> None:
    def text(**floors: Floor) -> str:
        return html(
            replace(with_corrected(result, 7), validity=replace(result.validity, floors=floors))
        )

    floor = Floor("always <A>", 0.55, 4, {"always <A>": 0.55})
    says(text(exact_match=floor), "(always answering &lt;A&gt;)")
    assert "(always answering" not in text(other=floor)
    says(text(other=floor), "better than guessing")


def test_the_corrected_value_stands_beside_helms_for_each_group_too(result: TaskResult) -> None:
    text = html(with_corrected(result, 7))
    assert re.search(r"Corrected: <b>[^<]+</b> \([^)]+\)", text)
    says(text, "a known defect")
    assert text.count("p, against the rest (Holm)</th>") == 2
    assert ">HELM's value</th>" in text
    low = result.scores["exact_match"].stats.ci_low
    high = result.scores["exact_match"].stats.ci_high
    cells = '<td class="n">{:.4f}</td><td class="n">{}</td><td class="n">{:.4f} to {:.4f}</td><td class="n">{}</td>'
    helms = cells.format(0.5, 4, low, high, "")
    corrected = cells.format(0.75, 7, 0.125, 0.875, "")
    assert f'<th scope="row">odd</th>{helms}{corrected}</tr>' in text
    assert f'<th scope="row">even</th>{helms}</tr>' in text
    assert "orrected" not in html(result)


def test_intervals_have_their_method_and_what_sources_do_to_them(result: TaskResult) -> None:
    plain = result.scores["exact_match"]
    assert "<td>wilson</td>" in html(result)
    assert "design effect" not in html(result)
    stats = replace(plain.stats, clusters=3, design_effect=2.345, p_holm=0.01234)
    shared = {"exact_match": replace(plain, stats=stats)}
    text = html(
        replace(
            result,
            scores={**shared, "other": replace(plain, value=0.25)},
            groups={"ward": {"a": shared}},
        )
    )
    assert ">design effect</th>" in text
    assert '<td class="n">3</td><td class="n">2.35</td></tr>' in text
    assert '<td class="n">0.012</td></tr>' in text
    assert '<td class="n"></td><td class="n"></td></tr>' in text
    assert "exact_match by ward" in text


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        (Comparability(True), "<p>The settings are those of the leaderboard.</p>"),
        (Comparability(None, "no <such> result"), "<p>no &lt;such&gt; result.</p>"),
        (
            Comparability(
                False, None, (results.Deviation("top_p", 1.0, 0.5, "odd <effect>"),), ("a remark",)
            ),
            '<th scope="row">top_p</th><td>1.0</td><td>0.5</td><td class="wide">odd &lt;effect&gt;</td>',
        ),
    ],
)
def test_whether_the_settings_are_the_leaderboards(
    stamp: Comparability, told: str, result: TaskResult
) -> None:
    text = html(replace(result, comparability=stamp))
    assert told in text
    assert ("<li>a remark</li>" in text) is bool(stamp.remarks)
    assert ("not the leaderboard's" in text) is bool(stamp.deviations)
    assert "leaderboard" not in html(replace(result, comparability=None))


def test_a_jury_is_shown_judge_by_judge(result: TaskResult) -> None:
    report = results.JuryReport(
        {"gpt": 4.25, "llama": 3.0},
        0.5,
        {"gpt/llama": 0.25, "x/y": None},
        {"gpt": 3.0, "llama": None},
    )
    counts = {"gpt": JudgeCounts(4, 3, 1, same_family=True), "llama": JudgeCounts(4, 4, 0)}
    text = html(changed(result, jury=report, judges=counts))
    row = '<th scope="row">{}</th><td class="n">{} of 4</td>\n<td class="n">{}</td><td class="n">{}</td>\n<td>{}</td>'
    assert row.format("gpt", 3, "4.250", "3.000", "yes") in text
    assert row.format("llama", 4, "3.000", "", "not known") in text
    assert "ordinal)</dt><dd>0.500</dd>" in text
    assert "Weighted kappa, gpt/llama</dt><dd>0.250</dd>" in text
    assert "x/y" not in text
    follows = replace(
        report,
        length_correlation={"gpt": results.RankCorrelation(0.75, 0.5, 0.875, 40), "llama": None},
    )
    says(html(changed(result, jury=follows)), "gpt</dt><dd>0.75 (0.50 to 0.88)")
    assert "answer's length, llama" not in html(changed(result, jury=follows))
    assert "not defined" in html(
        changed(result, jury=replace(report, krippendorff_alpha=None), judges=counts)
    )
    assert "Krippendorff" not in html(changed(result, judges=counts))
    assert "Jury" not in html(result)


def test_what_went_wrong_leads_to_the_instances(result: TaskResult) -> None:
    instances = replace(result.validity.instances, failed=1234)
    text = html(changed(result, instances=instances))
    says(text, 'data-filter="failed"><b>1,234</b>')
    says(text, 'data-filter="wrong">Only the 2')
    says(html(result), "No technical problem")


def test_usage_methods_and_provenance_stand_at_the_end(result: TaskResult) -> None:
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    usage = Usage(
        results.SpentByRole(spent(7, 40), both), results.SpentByRole(spent(9, 90), both), 3, 1.0
    )
    text = html(replace(result, usage=usage), methods="First <one>.\n\nReferences\n[1] X\n")
    assert "all runs, gpt" in text
    assert "<p>First &lt;one&gt;.</p>" in text
    assert "<p>References<br>[1] X</p>" in text
    assert result.provenance.prompts_sha256 in text
    assert "methods section" not in html(result)


def test_several_results_begin_with_what_is_said_of_them_together(result: TaskResult) -> None:
    both = [shown(result, label="A"), shown(result, label="B", run=1)]
    text = results_page(
        both, comparison=PageComparison("A and <B>", (), [["B is better.", "2 right in B alone."]])
    )
    assert '<h1 id="title">A and &lt;B&gt;</h1>' in text
    assert '<p class="verdict">B is better.</p>' in text
    says(text, "2 right in B")
    assert 'data-filter="flipped"' in text
    assert "cannot be compared" not in text
    places = [
        text.index(one)
        for one in ("B is better", 'id="instances"', 'id="A-scores"', 'id="B-scores"')
    ]
    assert places == sorted(places)
    says(
        results_page(both, comparison=PageComparison("x", (), (), ("not <the> same",))),
        "cannot be compared",
        "not &lt;the&gt; same",
    )


def test_what_people_say_has_a_part_of_its_own(result: TaskResult) -> None:
    rated = html(replace(result, clinicians=replace(FOUND, notes=("<b>a note</b>",))))
    part = rated[rated.index('id="clinicians"') :]
    part = part[: part.index("</section>")]
    says(part, "corrected by clinicians", "3.5123")
    says(part, "weight of 80 %")
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", part)[8:]
    assert cells[1:8] == ["38", "0.500", "0.625", "", "0.700", "", ""]
    assert cells[8:16] == [
        "kind with the raters",
        "40",
        "",
        "0.400",
        "0.300",
        "",
        "1.000",
        "0.800 to 1.200",
    ]
    assert "&lt;b&gt;a note" in part
    assert 'id="clinicians"' not in html(result)


def test_a_rubric_is_shown_by_judge_by_pair_and_by_what_was_lost(result: TaskResult) -> None:
    votes = {
        "<gpt>": RubricVotes(1200, 700, 500, 0, 0, 0.25),
        "llama": RubricVotes(1200, 600, 590, 10),
    }
    report = results.RubricReport(
        RubricVotes(1200, 650, 540, 1, 9),
        votes,
        {"<gpt>/llama": results.PairAgreement(1190, 0.91234, None)},
    )
    counts = {"<gpt>": JudgeCounts(1200, 1200, 0, same_family=False)}
    costliest = (
        TotalLoss("axis:<a>", True, 1200, 700, 12345.5),
        TotalLoss("a <criterion>", False, 3, 2, 0.1 + 0.2),
    )
    one = shown(changed(result, rubric=report, judges=counts))
    one = replace(one, instances=replace(one.instances, costliest=costliest))
    text = results_page([one])
    cell = '<td class="n">{}</td>'.format
    majority = "".join(map(cell, ("1,200", "650", "540", "9", "1", "")))
    assert f'<tr class="main"><th scope="row">the majority</th>{majority}<td></td></tr>' in text
    gpt = "".join(map(cell, ("1,200", "700", "500", "0", "0", "0.2500")))
    assert f'<th scope="row">&lt;gpt&gt;</th>{gpt}<td>no</td></tr>' in text
    assert f"&lt;gpt&gt;/llama</th>{''.join(map(cell, ('1,190', '91.2 %', '')))}" in text
    says(text, 'axis:&lt;a&gt;</th><td class="n">1,200</td><td', 'data-lost="0"')
    assert '<td class="n">12,345.5</td>' in text
    says(text, 'data-lost="1"', "The 2 instances", '2</a></td><td class="n">0.3</td>')
    assert '<a href="#rubric">Criteria</a>' in text
    assert '<h2 id="jury">' not in text
    says(text, "650 of 1,200 criteria", "540 not met", "9 tied", "1 unjudged")
    assert "rubric" not in html(result).replace(page_script(), "").replace(page_style(), "")


def test_one_judge_is_no_majority_and_groups_of_a_rubric_are_open(result: TaskResult) -> None:
    votes = RubricVotes(3, 2, 1, 0)
    rubric = changed(result, rubric=results.RubricReport(votes, {"gpt": votes}, {}))
    assert "the majority" not in html(rubric)
    assert "Where points are lost" not in html(rubric)
    says(
        html(replace(rubric, groups={"axis": {"a": result.scores}})),
        "<details open><summary>The groups",
    )
    assert "<details><summary>The groups as tables" in html(
        replace(result, groups={"axis": {"a": result.scores}})
    )


def test_without_texts_none_is_in_the_page_nor_in_its_data(tmp_path: Path) -> None:
    record = instance(
        "q0",
        0.0,
        prompt=SECRET,
        completion=SECRET,
        reasoning=SECRET,
        references=({"text": SECRET, "tags": ["correct"]},),
        turns=({"role": "user", "content": SECRET},),
        categories={"name": SECRET},
        error=f"HTTP 400: {SECRET}",
        judges={"g": 1.0},
        judgements={"g": {"a": {"explanation": SECRET}}},
    )
    stored = load_result(written(tmp_path / "a", made_of([record])))
    whole = readable_page(result_page(stored))
    assert SECRET in whole
    says(whole, "This page has prompts")
    text = readable_page(result_page(stored, with_texts=False))
    assert SECRET not in text
    assert '"texts": false' in text
    says(text, "has no prompts")
    left = '{"metrics": {"exact_match": 0.0}, "finish_reason": "stop", "prompt_tokens": 1, "marks": {"g": 1.0}}'
    assert f"\n{left}\n" in text


def test_each_of_two_results_holds_what_it_asked(tmp_path: Path) -> None:
    others = [instance("q0", 1.0), instance("q1", 0.0, prompt="another")]
    folders = [right_or_wrong(tmp_path / "a", "10"), written(tmp_path / "b", made_of(others))]
    first, second = document.shown_results([load_result(folder) for folder in folders], ["A", "B"])
    assert (first.label, second.label) == ("A", "B")
    assert "What is q1?" in readable_page("".join(first.instances.blocks))
    of_second = readable_page("".join(second.instances.blocks))
    assert "What is q0?" in of_second
    assert '"prompt": "another"' in of_second
    assert 'data-run="1"' in second.instances.blocks[0]
    assert first.methods


def test_without_texts_criteria_are_numbers(tmp_path: Path) -> None:
    one = criterion(
        4,
        "not met",
        "axis:accuracy",
        f"ward:{SECRET}",
        text=f"Says {SECRET}",
        gpt=False,
        other=SECRET,
    )
    votes = RubricVotes(2, 0, 2, 0)
    records = [instance(key, 0.0, "rubric_score", criteria=(one,)) for key in "ab"]
    made = rubric_result(
        records, results.RubricReport(votes, {"gpt": votes}, {}), ("axis:accuracy",)
    )
    stored = load_result(written(tmp_path / "a", made))
    text = readable_page(result_page(stored, with_texts=False))
    judges = '[["gpt", 0, null], ["other", null, null]]'
    assert f'"criteria": [[1, null, 4, [], "not met", 4.0, {judges}]]' in text
    assert '"lost": [[' not in text
    assert not any(word in text for word in (SECRET, "words of gpt", "Says"))
    assert all(
        word in readable_page(result_page(stored)) for word in (f"ward:{SECRET}", "words of gpt")
    )
