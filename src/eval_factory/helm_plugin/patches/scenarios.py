"""Patches of single scenarios and run specs of HELM; the registry names the entry of tasks/errata.yml of each."""

from __future__ import annotations

import csv
import json
import os
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import ALL_FILES, HelmRunSettings
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.conversation_scenario import folder_of_names, with_pictures
from eval_factory.helm_plugin.patches.speed import in_place_of
from eval_factory.helm_plugin.session import run_record
from eval_factory.tasks.custom_table import CLUSTER, filled, picture_columns
from eval_factory.tasks.file_problems import rows_below, table_columns

EHRSHOT_PROMPTS = "medhelm_prompts.parquet"
_GetInstances = Callable[[Any, str], list[Any]]  # a scenario's method: the folder of its data -> its instances


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
            found = []
            for row in rows:
                option = row.get(f"op{row['answer_idx'].lower()}") or row.get("answer") or ""
                explanation = (row.get("explanation") or "").partition("Incorrect Answers:")[0].strip()
                right = Reference(Output(text=f"{option.strip()}. {explanation}".strip()), tags=[CORRECT_TAG])
                found.append(Instance(input=Input(text=row["question"]), references=[right], split=split))
            return found

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


def read_false_as_false() -> None:
    """Arguments of a run entry are texts, and the text `False` is true: `reason=False` asks for reasons."""
    import helm.benchmark.run_specs.medhelm_run_specs  # noqa: F401 - registers it
    from helm.benchmark import run_spec

    made = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["sct_bench"]

    def with_truth(**given: Any) -> Any:
        return made(**{name: str(value).lower() not in ("false", "0", "none", "") for name, value in given.items()})

    run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["sct_bench"] = with_truth


def rebuild_ehrshot_prompts(get_instances: _GetInstances) -> _GetInstances:
    """The scenario keeps the prompts that it made under a name that does not say of which data, and uses them again.

    Patients whose prompt is longer than `max_length` it leaves out without a word: how many, is written down.
    """

    def made_again(self: Any, output_path: str) -> list[Any]:
        from pyarrow import parquet

        folder = Path(output_path)
        for prompts in folder.glob(f"*/{EHRSHOT_PROMPTS}"):
            shared = any(path.is_symlink() for path in (folder.parent, folder, prompts.parent))
            if prompts.parent.name == self.subject or not shared:  # HELM writes shared ones again
                prompts.unlink()
        instances: list[Any] = get_instances(self, output_path)
        count = parquet.read_metadata(folder / self.subject / EHRSHOT_PROMPTS).num_rows
        limits = {"max_length": self.max_length, "records": count, "left_out": count - len(instances)}
        run_record.note(limited_records=limits)
        return instances

    return made_again


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
        run_record.note(limited_records={"max_length": self.max_length, "records": len(cut), "cut": sum(cut)})
        return instances

    helper.pack_and_trim_prompts = noting
    MedalignScenario.get_instances = counting


_ID = "id"  # a column of a user's table
ANSWERS = frozenset({"correct_answer", "incorrect_answers"})


def read_own_tables() -> None:
    """HELM's configurable benchmark over the cells that the check saw, row by row.

    pandas would make numbers of 007, 1.10 and TRUE, nothing of None and NA, and end a cell at a NUL. What stands
    neither in the prompt nor in the answers stays with the instance: the result has scores by such columns. A column
    `id` names it.
    """
    pandas = types.ModuleType("pandas")  # the package itself is 70 MB, with pyarrow
    vars(pandas)["Series"] = dict[str, Any]
    with in_place_of({"pandas": pandas}):
        from helm.benchmark.scenarios.medhelm_configurable_scenario import MedHELMConfigurableScenario
    MedHELMConfigurableScenario.get_instances = _instances_of_table


def _instances_of_table(self: Any, output_path: str) -> list[Any]:
    from helm.benchmark.scenarios.scenario import TEST_SPLIT, Input, Instance

    config, file = self.benchmark_config, Path(self.benchmark_config.dataset_file)
    columns = table_columns(file)
    if "correct_answer" not in columns and (not self._is_llm_as_judge() or len(config.metrics) > 1):
        raise ValueError(f"{file} has no column correct_answer, which every metric but jury_score needs")
    template = Path(config.prompt_file).read_text(encoding="utf-8")
    fields = self.get_columns_in_template(template)

    def rows() -> Iterator[dict[str, str]]:
        return (dict(zip(columns, cells, strict=True)) for cells in rows_below(file))

    ids = [row[_ID] for row in rows()] if _ID in columns else []
    # The check refuses other ids; a table may hold them that was run without it (by HELM's own name).
    named = _ID in columns and len(set(ids)) == len(ids) and all(name.strip() for name in ids)
    has_pictures = folder_of_names(output_path) is not None
    shown = {*fields, *(picture_columns(columns) if has_pictures else ())}
    left_out = (shown - {CLUSTER}) | ANSWERS | ({_ID} if named else set())
    instances = []
    for row in rows():
        answers: dict[str, Any] = {name: row[name] for name in ANSWERS & row.keys()}
        if "incorrect_answers" in answers:
            answers["incorrect_answers"] = json.loads(answers["incorrect_answers"])
        if has_pictures:
            text, pictures = filled(template, row)
            asked = with_pictures(Input(text=text), [row[name] for name in pictures], output_path)
        else:
            asked = Input(text=self.populate_template(template, {**row, **answers}, fields))
        others = {name: cell for name, cell in row.items() if name not in left_out}
        instances.append(
            Instance(
                input=asked,
                references=self.get_references(answers),
                split=TEST_SPLIT,
                id=row[_ID] if named else None,
                extra_data=others or None,
            )
        )
    return instances


LISTED_BY_GITHUB = 1000
"""The MTSamples scenarios ask api.github.com in every run which files there are, even when all of them are on disk. Its
answer stops here, in the order of a git tree, which is that of the names' bytes. MEDICAL_DATA_ALL_FILES=1 takes all."""


def known_names(scenario: str, folder: Path) -> list[str] | None:
    """The names as GitHub would give them: the bundle's list, or offline the files that are there; None: ask GitHub."""
    lists = HelmRunSettings.from_environment(os.environ).file_lists
    if lists is not None and (path := Path(lists) / f"{scenario}.json").is_file():
        found = [str(name) for name in json.loads(path.read_text(encoding="utf-8"))["names"]]
    elif network_guard.guard() is not None:
        found = sorted((path.name for path in folder.glob("*.txt")), key=os.fsencode)
    else:
        return None
    return found if os.environ.get(ALL_FILES) == "1" else found[:LISTED_BY_GITHUB]


def list_files_without_github() -> None:
    from helm.benchmark.scenarios.mtsamples_procedures_scenario import MTSamplesProceduresScenario
    from helm.benchmark.scenarios.mtsamples_replicate_scenario import MTSamplesReplicateScenario

    for scenario in (MTSamplesProceduresScenario, MTSamplesReplicateScenario):
        scenario.get_instances = _of_known_names(scenario.get_instances)


def _of_known_names(get_instances: _GetInstances) -> _GetInstances:
    def get_instances_of_known(self: Any, output_path: str) -> list[Any]:
        found = known_names(self.name, Path(output_path))
        if found is not None:
            self.fetch_file_list = lambda: found
        return get_instances(self, output_path)

    return get_instances_of_known
