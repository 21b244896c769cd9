"""Pages of output folders."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.results import RubricReport, RubricVotes
from eval_factory.report.page.document import result_page, shown_of
from eval_factory.report.page.instance_data import readable_page
from eval_factory.report.reader import load_result
from stored_results import criterion, instance, result, right_or_wrong, rubric_result, written

SECRET = "Mrs Miller of ward 7"


def test_it_is_the_page_that_the_run_wrote(tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101x")
    assert result_page(load_result(folder)) == (folder / "report.html").read_text("utf-8")


def test_without_texts_none_is_in_the_page_nor_in_its_data(tmp_path: Path) -> None:
    record = instance(
        "q0", 1.0, prompt=SECRET, completion=SECRET, reasoning=SECRET, references=({"text": SECRET, "tags": []},),
        turns=({"role": "user", "content": SECRET},), judgements={"g": {"a": {"explanation": SECRET}}},
    )  # fmt: skip
    stored = load_result(written(tmp_path / "a", result([record])))
    assert SECRET in readable_page(result_page(stored))
    assert SECRET not in readable_page(result_page(stored, with_texts=False))
    assert '"q0"' in readable_page(result_page(stored, with_texts=False))


def test_what_another_result_asked_is_there_once(tmp_path: Path) -> None:
    stored = [load_result(right_or_wrong(tmp_path / name, "10")) for name in "ab"]
    first, second = shown_of(stored, ["A", "B"])
    assert (first.label, second.label) == ("A", "B")
    assert "What is q1?" in readable_page("".join(first.instances.blocks))
    assert "same_prompt" in readable_page("".join(second.instances.blocks))
    assert 'data-run="1"' in second.instances.blocks[0]
    assert first.methods


def test_without_texts_criteria_are_numbers_and_tags_of_groups(tmp_path: Path) -> None:
    one = criterion(4, "not met", "axis:accuracy", f"ward:{SECRET}", text=f"Says {SECRET}", gpt=False)
    votes = RubricVotes(2, 0, 2, 0)
    made = rubric_result(
        [instance(key, 0.0, "rubric_score", criteria=(one,)) for key in "ab"],
        RubricReport(votes, {"gpt": votes}, {}), ("axis:accuracy",),
    )  # fmt: skip
    stored = load_result(written(tmp_path / "a", made))
    text = readable_page(result_page(stored, with_texts=False))
    assert '"criteria": [[1, null, 4, ["axis:accuracy"], "not met", 4.0, [["gpt", 0, null]]]]' in text
    assert not any(word in text for word in (SECRET, "words of gpt", "Says"))
    assert all(word in readable_page(result_page(stored)) for word in (f"ward:{SECRET}", "words of gpt"))
