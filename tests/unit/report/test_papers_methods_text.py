"""The methods section: paragraphs of what is known, with numbered references."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from described_runs import CONFIG, TARGET, hostile, of_a_jury, plain
from eval_factory.core.results import TaskResult
from eval_factory.report.papers import methods_text


def test_it_is_paragraphs_with_references_at_the_end() -> None:
    paragraphs = methods_text(plain(), CONFIG, TARGET).split("\n\n")
    beginnings = ("The benchmark was", "The evaluated model was", "The main metric was", "The 95 % interval",
                  "The settings differ", "The evaluation was run", "References\n[1] P. Liang")  # fmt: skip
    assert [paragraph[: len(start)] for paragraph, start in zip(paragraphs, beginnings, strict=True)] == list(
        beginnings
    )
    assert methods_text(plain(), CONFIG, TARGET).endswith(".\n")


def test_a_jury_has_a_paragraph_and_a_score_that_may_not_be_reported_is_called_so() -> None:
    told = methods_text(of_a_jury(), CONFIG, TARGET)
    assert "\n\nThe answers were rated on a scale from 1 to 5" in told
    assert "this score may not be reported" in told
    assert "this score may not be reported" not in methods_text(plain(), CONFIG, TARGET)


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_every_number_in_brackets_is_a_reference_and_each_is_cited(made: Callable[[], TaskResult]) -> None:
    text, _, references = methods_text(made(), CONFIG, TARGET).rpartition("References")
    cited = {int(one) for found in re.findall(r"\[(\d+(?:, \d+)*)\]", text) for one in found.split(", ")}
    assert cited == set(range(1, len(references.strip().splitlines()) + 1))


def test_it_is_printable_whatever_others_wrote() -> None:
    told = methods_text(hostile(), {"params": None}, {"api_endpoint": None})
    assert told.replace("\n", "").isprintable()
    assert all("\n" not in part for part in told.partition("\n\nReferences")[0].split("\n\n"))
