"""Drawings -> files for papers and slides: an SVG and a PNG each."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from eval_factory.core.safe_files import write_atomic
from eval_factory.report.plots.drawing import Drawing
from eval_factory.report.plots.png_plot import png
from eval_factory.report.plots.svg_plot import svg


def write_plot_files(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png` of each drawing; the folder is made. Other files in it stay.

    Returns:
        The files, in the order of the drawings.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in drawings.items():
        vector, pixels = folder / f"{name}.svg", folder / f"{name}.png"
        write_atomic(vector, svg(drawing, standalone=True))
        _write_bytes(pixels, png(drawing))
        written += [vector, pixels]
    return written


def _write_bytes(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
