#!/usr/bin/env python3
"""Makes the pictures of README and docs: the page of a result, and the table of a suite.

The runs ask the built-in demo endpoint. With three output folders as arguments, the script makes
the picture of the page that compares them instead (docs/import.md). Needs Debian's chromium on
PATH.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
PROGRAM = str(Path(sys.executable).parent / "eval-factory")


def picture(page: Path, name: str, height: int) -> None:
    """Write the part of a page that a browser shows without scrolling, as PNG.

    `height` is the height of the browser's window, in pixels.
    """
    flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1"]
    size = [
        f"--window-size=1000,{height}",
        "--virtual-time-budget=5000",
        f"--screenshot={PICTURES / name}",
    ]
    subprocess.run(["chromium", *flags, *size, page.as_uri()], check=True, capture_output=True)


def compared(folders: list[str]) -> None:
    """Make the picture of the page that compares results of several programs."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "compared.html"
        subprocess.run([PROGRAM, "report", *folders, "-o", str(page)], check=True)
        picture(page, "three_programs.png", 845)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    if sys.argv[1:]:
        compared(sys.argv[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder) / "suite"
        subprocess.run(
            [PROGRAM, "run_suite", "--preset", "smoke", "--output_dir", str(suite), "--quiet"],
            check=False,
        )
        picture(suite / "suite_results.html", "suite.png", 560)
        picture(next(suite.glob("*/sample_medical_qa/report.html")), "report.png", 820)


if __name__ == "__main__":
    main()
