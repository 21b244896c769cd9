"""Writes a suite's table into its folder: each file whole or not at all."""

from __future__ import annotations

from eval_factory.analysis.suite_document import csv_text, document, rows, usage_document
from eval_factory.analysis.suite_markdown import markdown
from eval_factory.analysis.suite_page import suite_page
from eval_factory.analysis.suite_records import SuiteResults
from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.report import documents


def write_suite_results(results: SuiteResults, folder: SuiteDir, into: SuiteDir | None = None) -> None:
    """Write suite_results.{yaml,csv,md,html} and suite_usage.yaml.

    Args:
        into: where they are written, if not into the suite's own folder.

    Raises:
        OSError: the folder cannot be written.
    """
    whole = document(results, folder.root)
    documents.check(whole, documents.SUITE_RESULTS_SCHEMA)
    into = into or folder
    write_atomic(into.results_csv, csv_text(rows(results, folder.root)))
    write_atomic(into.results_md, markdown(results, folder.root))
    write_atomic(into.results_html, suite_page(results, folder.root))
    write_atomic(into.usage_yaml, documents.to_yaml(usage_document(results)))
    write_atomic(into.results_yaml, documents.to_yaml(whole))
