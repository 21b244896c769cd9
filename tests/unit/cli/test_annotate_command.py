"""`eval-factory annotate`: what it prints."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from eval_factory.cli.main import cli
from rated_folder import folder_to_rate


def run(*words: object) -> str:
    found = CliRunner().invoke(cli, ["annotate", *map(str, words)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_export_import_and_plan(tmp_path: Path) -> None:
    folder, sheet = folder_to_rate(tmp_path / "out").root, tmp_path / "sheet"
    lines = run("export", folder, "--n", 40, "--raters", 1, "--out", sheet, "--no-reference").splitlines()
    assert lines[0].startswith("sheet ")
    assert lines[0].endswith(": 40 of 60 answers, 40 ratings a rater")
    assert lines[1:4] == ["  10 answers of: 0, even", "  10 answers of: 1, even", "  20 answers of: 1, odd"]
    assert f"annotate import {folder}" in lines[-1]
    kept = next((folder / "annotations").iterdir())
    assert f"not for them: {kept}" in lines[-2]
    rows = (sheet / "rater_1.csv").read_text("utf-8-sig").splitlines()
    assert ",yes / no," in rows[1]
    (sheet / "rater_1.csv").write_text(
        "\n".join([rows[0], *(row[:-1] + "yes," for row in rows[1:31]), *rows[31:]]), "utf-8"
    )
    text = run("import", folder, sheet / "rater_1.csv")
    assert text.startswith("30 ratings imported; 10 rows were left empty\n  corrected by clinicians = 1.0000")
    assert "\n  exact_match with the raters: " in text
    assert text.endswith(f"  results: {folder / 'evaluation_config.yaml'}\n")
    assert "0.00 (measured)" in run("plan", folder, "--half-width", 0.2)
