from __future__ import annotations

from eval_factory.scoring.notes import MAX_NOTE, Importance, Note, Notes


def test_the_weightiest_first_and_each_once() -> None:
    notes = Notes()
    notes.add(Importance.BACKGROUND, "known", "twice")
    notes.add(Importance.DOUBTFUL, "first doubt", "second doubt")
    notes.extend([Note(Importance.NO_RESULT, "nothing"), Note(Importance.INCOMPLETE, "gaps")])
    notes.add(Importance.INCOMPLETE, "twice")
    notes.add(Importance.BACKGROUND, "gaps")
    assert notes.texts() == ("nothing", "twice", "gaps", "first doubt", "second doubt", "known")


def test_a_note_is_a_printable_line_with_an_end() -> None:
    notes = Notes()
    notes.add(Importance.DOUBTFUL, "of \x1b[2J\nand  on", "x" * 3000)
    assert notes.texts() == ("of \\x1b[2J and on", "x" * MAX_NOTE)
