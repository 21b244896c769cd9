"""Defects of HELM's scenarios, mended in memory; each has its entry in errata/errata.yml."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

WRONG_OPTIONS = "Incorrect Answers:"


def take_medcalc_version() -> None:
    """The run spec hands `version` to the scenario's constructor, which does not take it."""
    from helm.benchmark.scenarios.medcalc_bench_scenario import MedCalcBenchScenario

    get_instances = MedCalcBenchScenario.get_instances

    def take_version(self: Any, version: str | None = None) -> None:
        super(MedCalcBenchScenario, self).__init__()
        self.version = version

    MedCalcBenchScenario.__init__ = take_version
    MedCalcBenchScenario.get_instances = lambda self, output_path: get_instances(self, output_path, self.version)


def supply_medbullets_freetext() -> None:
    """The run spec names a class that HELM does not have."""
    from helm.benchmark.scenarios import medbullets_scenario
    from helm.benchmark.scenarios.scenario import CORRECT_TAG, Input, Instance, Output, Reference

    class MedBulletsFreeTextScenario(medbullets_scenario.MedBulletsScenario):  # type: ignore[misc]
        """Medbullets without options: the reference is the right option's text and its explanation."""

        name = "medbullets-freetext"

        def process_csv(self, csv_path: str, split: str) -> list[Instance]:
            with Path(csv_path).open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row.get("question") and row.get("answer_idx")]
            return [
                Instance(
                    input=Input(text=row["question"]),
                    references=[Reference(Output(text=_explained(row)), tags=[CORRECT_TAG])],
                    split=split,
                )
                for row in rows
            ]

    if not hasattr(medbullets_scenario, "MedBulletsFreeTextScenario"):
        medbullets_scenario.MedBulletsFreeTextScenario = MedBulletsFreeTextScenario


def let_medbullets_freetext_explain() -> None:
    """The run spec asks for at most 5 tokens and one line; explanations have up to 750 tokens, and all have lines."""
    import helm.benchmark.run_specs.medhelm_run_specs  # noqa: F401 - registers it
    from helm.benchmark import run_spec

    made = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["medbullets_freetext"]

    def with_room() -> Any:
        spec = made()
        return replace(spec, adapter_spec=replace(spec.adapter_spec, max_tokens=1024, stop_sequences=[]))

    run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["medbullets_freetext"] = with_room


def _explained(row: dict[str, str]) -> str:
    option = row.get(f"op{row['answer_idx'].lower()}") or row.get("answer") or ""
    explanation = (row.get("explanation") or "").partition(WRONG_OPTIONS)[0].strip()
    return f"{option.strip()}. {explanation}".strip()
