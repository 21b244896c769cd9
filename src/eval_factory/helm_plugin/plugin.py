"""Loaded by helm-run through --plugins: registers the sample benchmark and mends HELM for what was asked.

Everything mended is mended in memory; HELM's files are never edited.
"""

from __future__ import annotations

import io
import logging
import os
import sys

import eval_factory.demo.benchmark  # noqa: F401 - registers sample_medical_qa
from eval_factory.helm import names
from eval_factory.helm_plugin import entry_failures, mtsamples_listing, network_guard, parent, settings_file
from eval_factory.helm_plugin.patches import fast_startup, hub_revisions, optional_deps, pinned_downloads, scenarios
from eval_factory.tasks.run_specs import load_index


class _Discarded(io.TextIOBase):
    """Where scenarios' bare prints go: some print whole rows of the data."""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return len(text)


def discard_bare_prints() -> None:
    """Loggers keep the stream that they were given; only `print` is silenced."""
    if not logging.getLogger("helm").isEnabledFor(logging.INFO):
        sys.stdout = _Discarded()


def mend_custom_benchmarks() -> None:
    if names.CONFIGURABLE_RUN_SPEC in names.asked_run_specs(sys.argv):
        from eval_factory.helm_plugin.patches import custom_tables

        custom_tables.read_cells_as_text()
        custom_tables.keep_other_columns()


def mend_jury_benchmarks() -> None:
    """Only where a jury benchmark is run: importing its metrics takes seconds."""
    if names.asked_run_specs(sys.argv) & names.JURY_RUN_SPECS:
        from eval_factory.helm_plugin import jury_annotator

        jury_annotator.ask_judges_at_once()
        optional_deps.answer_for_spacy_model()
        optional_deps.answer_for_summ_eval()
        optional_deps.answer_for_qafacteval()
        optional_deps.do_without_weights()


def mend_scenarios() -> None:
    """Only what is asked for: each imports its scenario."""
    asked = names.asked_run_specs(sys.argv)
    executing = {name for name, spec in load_index().run_specs.items() if spec.executes and name in (asked or {name})}
    if executing:
        from eval_factory.helm_plugin.patches import executed_answers

        executed_answers.confine(executing)
    if "ehr_sql" in asked:
        from eval_factory.helm_plugin.patches import sql_execution

        sql_execution.execute_where_it_can_do_no_harm()
    if "medcalc_bench" in asked:
        scenarios.take_medcalc_version()
    if "medalign" in asked:
        optional_deps.answer_for_transformers()
        scenarios.count_cut_medalign_records()
    if "ehrshot" in asked:
        scenarios.make_ehrshot_prompts_anew()
    if "medbullets_freetext" in asked:
        scenarios.supply_medbullets_freetext()
        scenarios.let_medbullets_freetext_explain()


parent.end_with_parent(os.environ)
settings_file.take_settings_of_the_file(sys.argv, os.environ)
network_guard.guard_from_environment()
hub_revisions.note_what_is_loaded()
pinned_downloads.download_as_told()
for _pull in fast_startup.LEVERS:
    fast_startup.lever(_pull)
optional_deps.answer_for_torch()
if entry_failures.are_of_a_conf_file(sys.argv):
    entry_failures.let_each_stand_alone()
mend_custom_benchmarks()
mend_jury_benchmarks()
mend_scenarios()
mtsamples_listing.list_files_without_github()
discard_bare_prints()
