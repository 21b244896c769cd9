"""report.md: short, true to the result, and harmless whatever others wrote."""

from __future__ import annotations

from dataclasses import replace

from described_runs import ODD, hostile, of_a_jury, plain
from eval_factory.core.results import Instances, TaskResult
from eval_factory.core.tables import prose
from eval_factory.report.summary import markdown_report, result_lines
from unit.core.test_rendered_tables import MARKDOWN
from unit.report.test_sentences import FOUND


def with_validity(made: TaskResult, **changes: object) -> TaskResult:
    return replace(made, validity=replace(made.validity, **changes))  # type: ignore[arg-type]


def test_it_begins_with_the_score_and_whether_it_may_be_reported() -> None:
    told = markdown_report(plain())
    assert told.startswith(
        "# `pubmed_qa`: `org/model`\n\n"
        "**`exact_match`: 0.7368**, 95 % interval 0.5121 to 0.8819, 19 instances\n\n"
        "May be reported. Status: complete.\n\n## Scores\n\n"
    )
    assert "| **`exact_match`** | 0.7368 | 0.5121 to 0.8819 | 0.7000 to 0.7500 | 19 |\n" in told
    assert "## Validity\n\n- best trivial answer: always A 0.5520\n" in told
    assert told.endswith("reproduced\n```\n")


def test_a_score_that_may_not_be_reported_says_why() -> None:
    told = markdown_report(of_a_jury())
    assert (
        "**Not reportable.** Status: partial.\n\n- judge strict gave no usable judgement of 1 of 3 answers"
        in told
    )
    assert "have a score" not in told
    assert "; agreement (Krippendorff's alpha): 0.614\n" in told
    gaps = with_validity(of_a_jury(), instances=Instances(3, 2, 1, 0, 0, 0))
    assert "- 2 of 3 instances have a score of their own." in markdown_report(gaps)
    few = plain(reportable=False)
    assert (
        "**Not reportable.** Status: complete.\n\n- 19 of 20 instances have a score of their own."
        in markdown_report(few)
    )


def test_all_that_the_screen_says_beside_scores_and_notes_is_a_list() -> None:
    made = replace(plain(), clinicians=FOUND)
    lines = markdown_report(made).split("## Validity\n\n")[1].split("\n\n")[0].split("\n")
    assert lines == [f"- {prose(line.strip())}" for line in result_lines(made)]
    corrected = "corrected by clinicians = 3.5123 (95 % interval 3.2000 .. 3.8000); without correction 4.5000"
    assert lines[0] == f"- {corrected}; 40 of 200 answers rated by 2 raters"
    assert "- failed: 1 x HTTP 500" in lines


def test_the_main_score_stands_first_and_a_corrected_one_is_named() -> None:
    made = plain()
    score = made.scores["exact_match"]
    bare = replace(score, value=0.25, stats=replace(score.stats, ci_low=None))
    told = markdown_report(
        replace(made, scores={"b@5": bare, "exact_match": score, "exact_match.corrected": bare})
    )
    assert "Corrected for a known defect: **0.2500**" in told
    rows = [
        line.split(" | ")[0] for line in told.splitlines() if line.startswith("| ") and "`" in line
    ]
    assert rows == ["| **`exact_match`**", "| `b@5`", "| `exact_match.corrected`"]
    assert "| `b@5` | 0.2500 |  |  | 19 |" in told
    assert "**`exact_match` could not be computed.**" in markdown_report(replace(made, scores={}))


def test_five_notes_and_how_many_there_are_beside() -> None:
    told = markdown_report(plain())
    assert "- note 4\n- 2 more notes: `validity.notes` in `evaluation_config.yaml`\n" in told
    assert "note 5" not in told
    assert "more note" not in markdown_report(with_validity(plain(), notes=("one",)))
    assert "## Notes" not in markdown_report(with_validity(plain(), notes=()))


def test_groups_are_folded() -> None:
    made = plain()
    groups = {"kind<x>": {"a|b": dict(made.scores), "none": {}}}
    told = markdown_report(replace(made, groups=groups))
    assert (
        "<details>\n<summary>1 group by <code>kind&lt;x&gt;</code></summary>\n\n| `kind<x>` | value |"
        in told
    )
    assert "| `a\u00a6b` | 0.7368 | 0.5121 to 0.8819 | 19 |\n\n</details>\n" in told


def test_what_was_run_and_how_to_do_it_again_and_nothing_that_was_asked_or_answered() -> None:
    told = markdown_report(plain())
    assert "What is q" not in told
    assert "answer to" not in told
    line = "eval-factory `1`, HELM `0.5.16`, Python `3.11`, run `identity`, prompts `bbbbbbbbbbbbbbbb`, ended `2026-01-02T03:05:06Z`."
    assert f"## Provenance\n\n{line}\n\nIn the folder of this result:\n" in told
    assert "eval-factory reproduce . --run --output_dir ../reproduced" in told
    made = plain()
    bare = replace(made, provenance=replace(made.provenance, helm=None, ended_at=None))
    assert (
        "eval-factory `1`, Python `3.11`, run `identity`, prompts `bbbbbbbbbbbbbbbb`.\n"
        in markdown_report(bare)
    )


def test_hostile_names_and_notes_make_nothing() -> None:
    told = markdown_report(hostile())
    assert told.replace("\n", "").isprintable()
    tokens = MARKDOWN.parse(told)
    children = [child for token in tokens for child in token.children or []]
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
