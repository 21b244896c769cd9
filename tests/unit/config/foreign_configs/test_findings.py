"""How a finding is told."""

from __future__ import annotations

from eval_factory.config.foreign_configs.findings import Finding


def test_a_finding_is_one_line_with_its_path_its_reason_and_what_to_do() -> None:
    assert Finding("a.b", "has no counterpart", "leave it out").text == "a.b: has no counterpart; leave it out"


def test_a_name_of_the_files_cannot_start_a_line_or_move_the_cursor() -> None:
    text = Finding("a.\nrm\x1b[2J", "why", "what").text
    assert text == "a. rm\\x1b[2J: why; what"


def test_a_long_list_of_names_is_not_cut_where_a_message_would_be() -> None:
    assert len(Finding("x" * 1500, "why", "what").text) > 1500
    assert len(Finding("x" * 3000, "why", "what").text) == 2000
