"""What stands in a folder of plots."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.report.drawing import Drawing, Rect, png, svg, write_plot_files

ONE = Drawing("One", "A square.", 30, (Rect(1, 2, 9, 9, "data"),), 40)
TWO = Drawing("Two", "Nothing.", 30, (), 40)


def test_each_drawing_is_two_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    written = write_plot_files({"one": ONE, "two": TWO}, folder)
    assert [path.name for path in written] == ["one.svg", "one.png", "two.svg", "two.png"]
    assert sorted(folder.iterdir()) == sorted(written)
    assert (folder / "one.svg").read_text("utf-8") == svg(ONE, standalone=True)
    assert (folder / "two.png").read_bytes() == png(TWO)


def test_where_the_disk_is_full_the_old_file_stays_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plot_files({"one": ONE}, tmp_path)

    def full(path: Path, content: bytes) -> int:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_plot_files({"one": TWO}, tmp_path)
    assert (tmp_path / "one.png").read_bytes() == png(ONE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "one.svg"]
