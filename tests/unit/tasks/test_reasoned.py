"""Which tasks may be asked for with reasoning, and what their prompts say then."""

from __future__ import annotations

import pytest

from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.reasoned import reasoned_tasks, stated_at_end, tasks_that_reason_already


def test_each_entry_is_a_task_and_says_what_the_last_line_holds() -> None:
    known = {task.name for task in load_framework().evaluations}
    assert reasoned_tasks().keys() <= known
    assert set(tasks_that_reason_already()) <= known - reasoned_tasks().keys()
    assert {entry.answer_kind for entry in reasoned_tasks().values()} == {"letter", "value"}
    assert all("Answer: X" in entry.request for entry in reasoned_tasks().values())


def test_the_form_goes_out_of_the_instructions_and_the_rest_stays() -> None:
    entry = reasoned_tasks()["pubmed_qa"]
    own = f"Answer A for yes, B for no or C for maybe. {entry.removes[0]}\n"
    assert entry.instructions(own) == "Answer A for yes, B for no or C for maybe.\n"
    with pytest.raises(ValueError, match="answer_style"):
        entry.instructions("Answer A for yes.")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("It beats.\nAnswer: B", "B"),
        ("It beats.\n**Answer: B**", "B"),
        ("Answer: A\nNo, wait.\nanswer : C. kidney", "C. kidney"),
        ("The answer is B", "The answer is B"),
        ("Answer:", ""),
    ],
)
def test_the_last_line_holds_the_answer(answer: str, found: str) -> None:
    assert stated_at_end(answer) == found
