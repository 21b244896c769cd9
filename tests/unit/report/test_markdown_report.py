"""report.md: short, true to the result, and harmless whatever others wrote."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from described_runs import ODD, hostile, of_a_jury, plain
from eval_factory.core.results import ImportedFrom, Instances, TaskResult
from eval_factory.core.tables import prose
from eval_factory.report.summary import markdown_report, result_lines
from facts import rows_of, says
from unit.core.test_rendered_tables import MARKDOWN
from unit.report.test_result_sentences import FOUND


def with_validity(made: TaskResult, **changes: object) -> TaskResult:
    return replace(made, validity=replace(made.validity, **changes))  # type: ignore[arg-type]


def test_it_begins_with_the_score_and_whether_it_may_be_reported() -> None:
    told = markdown_report(plain())
    title, headline, verdict = told.partition("\n\n## Scores\n\n")[0].split("\n\n")
    assert title == "# `pubmed_qa`: `org/model`"
    says(headline, "**`exact_match`: 0.7368**", "0.5121 to 0.8819", "19 instances")
    says(verdict, "May be reported", "Status: complete")
    row = ["**`exact_match`**", "0.7368", "0.5121 to 0.8819", "0.7000 to 0.7500", "19"]
    assert row in rows_of(told)
    says(told.partition("## Validity")[2], "without a model: 0.5520", "always answering A")
    assert told.endswith("reproduced\n```\n")


def test_a_score_that_may_not_be_reported_says_why() -> None:
    told = markdown_report(of_a_jury())
    says(told, "**Not reportable.**", "Status: partial", "judge strict", "1 of 3 answers")
    assert "have a score" not in told
    says(told, "Krippendorff's alpha", "0.614")
    gaps = with_validity(of_a_jury(), instances=Instances(3, 2, 1, 0, 0, 0))
    says(markdown_report(gaps), "2 of 3 instances", "have a score")
    few = plain(reportable=False)
    says(
        markdown_report(few),
        "**Not reportable.**",
        "Status: complete",
        "19 of 20 instances",
        "have a score",
    )


def test_all_that_the_screen_says_beside_scores_and_notes_is_a_list() -> None:
    made = replace(plain(), clinicians=FOUND)
    lines = markdown_report(made).split("## Validity\n\n")[1].split("\n\n")[0].split("\n")
    assert lines == [f"- {prose(line.strip())}" for line in result_lines(made)]
    corrected = "corrected by clinicians = 3.5123 (95 % interval 3.2000 .. 3.8000); without correction 4.5000"
    assert lines[0].startswith(f"- {corrected}")
    says(lines[0], "40 of 200 answers", "2 raters")
    assert any(line.startswith("- failed: 1 x") for line in lines)
    says("\n".join(lines), "HTTP 500")


def test_the_main_score_stands_first_and_a_corrected_one_is_named() -> None:
    made = plain()
    score = made.scores["exact_match"]
    bare = replace(score, value=0.25, stats=replace(score.stats, ci_low=None))
    told = markdown_report(
        replace(made, scores={"b@5": bare, "exact_match": score, "exact_match.corrected": bare})
    )
    says(told, "known defect", "**0.2500**")
    rows = [
        line.split(" | ")[0] for line in told.splitlines() if line.startswith("| ") and "`" in line
    ]
    assert rows == ["| **`exact_match`**", "| `b@5`", "| `exact_match.corrected`"]
    assert ["`b@5`", "0.2500", "", "", "19"] in rows_of(told)
    says(markdown_report(replace(made, scores={})), "`exact_match` could not")


def test_five_notes_and_how_many_there_are_beside() -> None:
    told = markdown_report(plain())
    says(told, "- note 4", "2 more notes", "`validity.notes`", "`evaluation_config.yaml`")
    assert "note 5" not in told
    assert "more note" not in markdown_report(with_validity(plain(), notes=("one",)))
    assert "## Notes" not in markdown_report(with_validity(plain(), notes=()))


def test_groups_are_folded() -> None:
    made = plain()
    groups = {"kind<x>": {"a|b": dict(made.scores), "none": {}}}
    told = markdown_report(replace(made, groups=groups))
    says(told, "<details>", "1 group", "<code>kind&lt;x&gt;</code>")
    assert ["`kind<x>`", "value"] in [row[:2] for row in rows_of(told)]
    assert ["`a\u00a6b`", "0.7368", "0.5121 to 0.8819", "19"] in rows_of(told)


def test_what_was_run_and_how_to_do_it_again_and_nothing_that_was_asked_or_answered() -> None:
    told = markdown_report(plain())
    assert "What is q" not in told
    assert "answer to" not in told
    line = told.partition("## Provenance\n\n")[2].partition("\n\n")[0]
    says(
        line,
        "eval-factory `1`",
        "HELM `0.5.16`",
        "Python `3.11`",
        "run `identity`",
        "prompts `bbbbbbbbbbbbbbbb`",
        "ended `2026-01-02T03:05:06Z`",
    )
    says(told, "eval-factory reproduce . --run --output_dir ../reproduced")
    made = plain()
    bare = replace(made, provenance=replace(made.provenance, helm=None, ended_at=None))
    says(
        markdown_report(bare),
        "eval-factory `1`",
        "Python `3.11`",
        "run `identity`",
        "prompts `bbbbbbbbbbbbbbbb`",
    )
    assert "HELM `0.5.16`" not in markdown_report(bare)
    source = ImportedFrom("inspect_ai", "0.3.2", {}, ())
    imported = replace(made, provenance=replace(made.provenance, imported=source))
    says(markdown_report(imported), "eval-factory verify .")
    assert "eval-factory reproduce" not in markdown_report(imported)


def test_hostile_names_and_notes_make_nothing() -> None:
    told = markdown_report(hostile())
    assert told.replace("\n", "").isprintable()
    tokens = MARKDOWN.parse(told)
    children = list(chain.from_iterable(token.children or [] for token in tokens))
    assert {child.type for child in children} == {
        "text",
        "code_inline",
        "strong_open",
        "strong_close",
    }
    assert "@someone" not in "".join(
        child.content for child in children if child.type != "code_inline"
    )
    html = [token.content for token in tokens if token.type == "html_block"]
    assert [block.split(">")[0] for block in html] == ["<details", "</details"]
    assert "<script" not in "".join(html)
    assert html[0].count("<") == html[0].count(">") == 5
    headings = [token for token in tokens if token.type == "heading_open"]
    assert [token.tag for token in headings] == ["h1", "h2", "h2", "h2", "h2"]
    assert ODD not in told
