"""Patches of single scenarios and run specs of HELM; the registry names the entry of tasks/errata.yml of each."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names

EHRSHOT_PROMPTS = "medhelm_prompts.parquet"
WRONG_OPTIONS = "Incorrect Answers:"


def accept_medcalc_version() -> None:
    """The run spec hands `version` to the scenario's constructor, which does not take it."""
    from helm.benchmark.scenarios.medcalc_bench_scenario import MedCalcBenchScenario

    get_instances = MedCalcBenchScenario.get_instances

    def take_version(self: Any, version: str | None = None) -> None:
        super(MedCalcBenchScenario, self).__init__()
        self.version = version

    MedCalcBenchScenario.__init__ = take_version
    MedCalcBenchScenario.get_instances = lambda self, output_path: get_instances(self, output_path, self.version)


def supply_medbullets_freetext_scenario() -> bool:
    """The run spec names a class that HELM does not have."""
    from helm.benchmark.scenarios import medbullets_scenario

    if hasattr(medbullets_scenario, "MedBulletsFreeTextScenario"):
        return False
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

    medbullets_scenario.MedBulletsFreeTextScenario = MedBulletsFreeTextScenario
    return True


def lengthen_medbullets_freetext_answers() -> None:
    """The run spec asks for at most 5 tokens and one line; explanations have up to 750 tokens, and all have lines."""
    import helm.benchmark.run_specs.medhelm_run_specs  # noqa: F401 - registers it
    from helm.benchmark import run_spec

    made = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["medbullets_freetext"]

    def with_room() -> Any:
        spec = made()
        return replace(spec, adapter_spec=replace(spec.adapter_spec, max_tokens=1024, stop_sequences=[]))

    run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["medbullets_freetext"] = with_room


def rebuild_ehrshot_prompts() -> None:
    """The scenario keeps the prompts that it made under a name that does not say of which data, and uses them again.

    Patients whose prompt is longer than `max_length` it leaves out without a word: how many, is written down.
    """
    from helm.benchmark.scenarios.ehrshot_scenario import EHRSHOTScenario

    get_instances = EHRSHOTScenario.get_instances

    def anew(self: Any, output_path: str) -> list[Any]:
        from pyarrow import parquet

        folder = Path(output_path)
        for prompts in folder.glob(f"*/{EHRSHOT_PROMPTS}"):
            elsewhere = any(path.is_symlink() for path in (folder.parent, folder, prompts.parent))
            if prompts.parent.name == self.subject or not elsewhere:  # where they are shared, HELM writes these again
                prompts.unlink()
        instances: list[Any] = get_instances(self, output_path)
        count = parquet.read_metadata(folder / self.subject / EHRSHOT_PROMPTS).num_rows
        _write_down_limits(output_path, "ehrshot", self.max_length, count, left_out=count - len(instances))
        return instances

    EHRSHOTScenario.get_instances = anew


def count_cut_medalign_records() -> None:
    """Of a record longer than `max_length` allows, the prompt has the end alone: how many are so, is written down."""
    from helm.benchmark.scenarios import medalign_scenario_helper as helper
    from helm.benchmark.scenarios.medalign_scenario import MedalignScenario

    get_instances, pack = MedalignScenario.get_instances, helper.pack_and_trim_prompts
    cut: list[bool] = []

    def noting(instructions: Any, ehrs: Any, *args: Any, **kwargs: Any) -> Any:
        prompts = pack(instructions, ehrs, *args, **kwargs)
        cut[:] = [ehrs[int(instructions[name]["patient_id"])] not in prompt for name, prompt in prompts.items()]
        return prompts

    def counting(self: Any, output_path: str) -> list[Any]:
        instances: list[Any] = get_instances(self, output_path)
        _write_down_limits(output_path, "medalign", self.max_length, len(cut), cut=sum(cut))
        return instances

    helper.pack_and_trim_prompts = noting
    MedalignScenario.get_instances = counting


def _write_down_limits(output_path: str, run_spec: str, max_length: int, records: int, **counts: int) -> None:
    """Args: output_path: the scenario's folder, `scenarios/<name>` under that of all of HELM's output."""
    file = Path(output_path).parents[1] / names.LIMITED_RECORDS_FILE
    known = {"run_spec": run_spec, "max_length": max_length, "records": records, **counts}
    write_atomic(file, json.dumps(known, indent=2) + "\n")


def _explained(row: dict[str, str]) -> str:
    option = row.get(f"op{row['answer_idx'].lower()}") or row.get("answer") or ""
    explanation = (row.get("explanation") or "").partition(WRONG_OPTIONS)[0].strip()
    return f"{option.strip()}. {explanation}".strip()
