"""Changes how HELM's scenarios download and read data, and corrects single scenarios and run specs.

The general patches pin the revisions of downloads, record which data sets of the Hugging Face Hub
were read, and make messages about failed downloads useful. `patches.yaml` names the entry of
tasks/errata.yml that belongs to each patch of a single scenario.
"""

from __future__ import annotations

import csv
import json
import os
import threading
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import ALL_FILES_VARIABLE, HelmRunSettings, Pins
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.conversation_scenario import picture_root, with_pictures
from eval_factory.helm_plugin.patches.lighter import patched_modules
from eval_factory.helm_plugin.session import run_record
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.custom_table import CLUSTER_FIELD, filled_prompt, picture_columns
from eval_factory.tasks.file_problems import rows_below, table_columns
from eval_factory.tasks.gold_forms import right_letters

UNREADABLE_REVISION_SIGNS = ("Revision", "trust_remote_code")
"""Words in the messages of the package `datasets` about a revision that can no longer be read. The
Hub has no such commit (authors replace histories), or the commit has a loading script, and the Hub
stores its own conversion for the newest commit only. In both cases the newest commit is read, and
the result reports this.
"""


class DataInTheWayError(Exception):
    """An error that is raised because local files would be read in place of the wanted data."""


_loaded: dict[tuple[str, str], dict[str, str]] = {}
"""A dict from a data set's id and its configuration to the data set's entry in the run record."""
_pinned: dict[str, str] = {}  # data set's id -> the revision to read if HELM names no revision
_lock = threading.Lock()
# The time of this module's import, in seconds since 1970. This run loaded no data before.
_IMPORT_TIME = time.time()


def record_hub_revisions(build: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `load_dataset_builder` that records the revision of each data set.

    The replacement also reads a data set at its pinned revision.
    """
    import datasets.exceptions

    def build_and_record(path: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_folder_of_same_name(str(path))
        if kwargs.get("cache_dir") is not None and datasets.config.HF_HUB_OFFLINE:
            # Offline, the prepared data are in HF_HOME, not in the scenario's own cache.
            kwargs["cache_dir"] = None
        # A revision that HELM names is not replaced.
        pinned = _pinned.get(str(path)) if kwargs.get("revision") is None else None
        revision = {"revision": pinned} if pinned else {}
        try:
            builder = build(path, *args, **(kwargs | revision))
        except (datasets.exceptions.DatasetNotFoundError, ValueError) as error:
            # Offline, `datasets` chooses no configuration if a data set has several, as AIR-Bench.
            # `load_dataset` passes None as the `name` of the configuration if its caller chose
            # none.
            has_no_name = "name" in kwargs and kwargs["name"] is None
            must_choose = has_no_name and "There are multiple" in str(error)
            is_pin_unreadable = pinned is not None and any(
                sign in str(error) for sign in UNREADABLE_REVISION_SIGNS
            )
            if not (must_choose or is_pin_unreadable):
                raise
            name = {"name": "default"} if must_choose else {}
            # This call passes no pinned revision, so it reads the newest revision.
            builder = build(path, *args, **(kwargs | name))
        folder = str(builder.cache_dir)  # `datasets` names the folder after the revision
        entry = {
            "id": str(path),
            "config": str(builder.config.name),
            "revision": Path(folder).name,
            "folder": folder,
        }
        with _lock:
            _loaded[(entry["id"], entry["config"])] = entry
        return builder

    return build_and_record


def _refuse_folder_of_same_name(path: str) -> None:
    """Raise DataInTheWayError if the current folder holds a folder with a data set's id.

    `load_dataset("org/name")` would read that folder, and execute a script in that folder.
    """
    local_path = Path(path)
    if not local_path.is_absolute() and "/" in path and local_path.exists():
        raise DataInTheWayError(
            f"the current folder holds {path}, which would be read instead of the Hub's "
            f"data set of that name: rename {path}, or start from another folder"
        )


def loaded_datasets() -> list[dict[str, str]]:
    """Return the entries of all data sets that were read so far, sorted by id."""
    with _lock:
        return [_loaded[key] for key in sorted(_loaded)]


def refuse_old_media(file: Path, media_files: Iterable[Path]) -> None:
    """Raise DataInTheWayError if a picture or a sound belongs to another revision of the data.

    HELM does not replace an existing picture or sound, so an old file would be sent with the
    questions of the new revision.

    Args:
        file: the run record of the previous run in this folder.
        media_files: the pictures and sounds of this run's requests.
    """
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    old_revisions = {
        (entry["id"], entry["config"]): entry["revision"] for entry in record.get("datasets", ())
    }
    # A data set that the previous run did not read counts as unchanged.
    if all(
        old_revisions.get(key, entry["revision"]) == entry["revision"]
        for key, entry in _loaded.items()
    ):
        return
    for medium in media_files:
        # The time of the last change (st_mtime) is useless here: an archive can set it.
        if medium.is_relative_to(file.parent) and medium.stat().st_ctime < _IMPORT_TIME:
            # The three parts: HELM's output folder, the folder `scenarios`, the scenario's folder.
            folder = Path(*medium.relative_to(file.parents[1]).parts[:3])
            raise DataInTheWayError(
                f"{folder} holds pictures or sounds of another revision of the data: "
                "delete this folder"
            )


def save_pictures_at_once(save: Callable[..., None]) -> Callable[..., None]:
    """Return a replacement of Pillow's `Image.save` that never leaves a half-written file.

    If a run was killed while it wrote a picture, HELM would otherwise send half a picture in all
    later runs.
    """
    from PIL import Image

    def save_at_once(picture: Any, file: Any, format: str | None = None, **params: Any) -> None:  # noqa: A002
        picture_format = format or Image.registered_extensions().get(Path(str(file)).suffix.lower())
        if not isinstance(file, (str, Path)) or picture_format is None:
            # An open file, or a format that Pillow refuses.
            save(picture, file, picture_format, **params)
            return
        # Pillow cannot find the format by the suffix `.part`, so pass the format.
        save(picture, f"{file}.part", picture_format, **params)
        Path(f"{file}.part").replace(file)

    return save_at_once


class DownloadError(Exception):
    """An error that is raised because a file of a scenario could not be downloaded.

    The message names the file, and never holds a prompt.
    """


def read_pinned_revisions(download: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of HELM's download function that downloads pinned revisions.

    This function also pins the revisions of data sets of the Hub. Call this function before a
    scenario is imported, because the scenario's module imports HELM's download function by name.
    """
    pins = HelmRunSettings.from_environment(os.environ).pins or Pins()
    _pinned.update(pins.hub)

    def download_pinned(source_url: str, *args: Any, **kwargs: Any) -> Any:
        return download(pins.files.get(source_url, source_url), *args, **kwargs)

    return download_pinned


def name_failed_downloads(download: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of HELM's download function with a useful message about a failure.

    The message names the URL of the file and the path at which the file is expected. Call this
    function before a scenario is imported, as `read_pinned_revisions`.
    """

    def download_or_explain(
        source_url: str, target_path: str, unpack: bool = False, **kwargs: Any
    ) -> Any:
        try:
            return download(source_url, target_path, unpack, **kwargs)
        except Exception as error:
            # HELM reports a failure of wget or gdown as a plain Exception with these words.
            is_of_program = "Failed with exit code" in str(error)
            if not (is_of_program or isinstance(error, OSError)):
                raise  # not a failed download
            step = "unpack it yourself as" if unpack else "put it yourself at"
            reason = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
            raise DownloadError(
                f"{source_url} could not be downloaded ({reason}); "
                f"to run without the network, {step} {target_path}"
            ) from None

    return download_or_explain


EHRSHOT_PROMPTS = "medhelm_prompts.parquet"  # the file in which EHRSHOT's scenario stores prompts
_GetInstances = Callable[[Any, str], list[Any]]
"""The method of a scenario that returns the instances; its argument is the folder of the data."""


def accept_medcalc_version() -> None:
    """Make the scenario of MedCalc-Bench accept the argument `version`.

    HELM's run spec passes `version` to the scenario's constructor, which does not accept it.
    """
    from helm.benchmark.scenarios.medcalc_bench_scenario import MedCalcBenchScenario

    get_instances = MedCalcBenchScenario.get_instances

    def init_with_version(self: Any, version: str | None = None) -> None:
        super(MedCalcBenchScenario, self).__init__()
        self.version = version

    MedCalcBenchScenario.__init__ = init_with_version
    MedCalcBenchScenario.get_instances = lambda self, output_path: get_instances(
        self, output_path, self.version
    )


def supply_medbullets_freetext_scenario() -> bool:
    """Add the scenario class that the run spec medbullets_freetext names, if HELM lacks the class.

    Returns False if HELM has the class.
    """
    from helm.benchmark.scenarios import medbullets_scenario

    if hasattr(medbullets_scenario, "MedBulletsFreeTextScenario"):
        return False
    from helm.benchmark.scenarios.scenario import CORRECT_TAG, Input, Instance, Output, Reference

    class MedBulletsFreeTextScenario(medbullets_scenario.MedBulletsScenario):  # type: ignore[misc]
        """The questions of Medbullets without options.

        The reference is the text of the right option, followed by its explanation.
        """

        name = "medbullets-freetext"

        def process_csv(self, csv_path: str, split: str) -> list[Instance]:
            with Path(csv_path).open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            instances = []
            for row in rows:
                if not row.get("question") or not row.get("answer_idx"):
                    continue
                # DictReader returns None for the missing cells of a short row.
                option = row.get(f"op{row['answer_idx'].lower()}") or row.get("answer") or ""
                explanation = row.get("explanation") or ""
                about_right_option = explanation.partition("Incorrect Answers:")[0].strip()
                right = Reference(
                    Output(text=f"{option.strip()}. {about_right_option}".strip()),
                    tags=[CORRECT_TAG],
                )
                instances.append(
                    Instance(input=Input(text=row["question"]), references=[right], split=split)
                )
            return instances

    medbullets_scenario.MedBulletsFreeTextScenario = MedBulletsFreeTextScenario
    return True


def lengthen_medbullets_freetext_answers() -> None:
    """Raise the token limit of medbullets_freetext to 1024, and remove the stop sequences.

    HELM's run spec asks for at most 5 tokens in one line. Explanations have up to 750 tokens, and
    all of them have several lines.
    """
    import helm.benchmark.run_specs.medhelm_run_specs  # noqa: F401 - registers the run spec
    from helm.benchmark import run_spec

    helms_function = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["medbullets_freetext"]

    def with_longer_answers() -> Any:
        spec = helms_function()
        return replace(
            spec, adapter_spec=replace(spec.adapter_spec, max_tokens=1024, stop_sequences=[])
        )

    run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["medbullets_freetext"] = with_longer_answers


def read_false_as_false() -> None:
    """Turn the arguments of the run spec sct_bench into booleans.

    The arguments of a run entry are texts, and Python treats every text but the empty text as true.
    Without this patch, `reason=False` would ask for reasons.
    """
    import helm.benchmark.run_specs.medhelm_run_specs  # noqa: F401 - registers the run spec
    from helm.benchmark import run_spec

    helms_function = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["sct_bench"]

    def with_booleans(**texts: Any) -> Any:
        options = {}
        for name, text in texts.items():
            options[name] = str(text).lower() not in ("false", "0", "none", "")
        return helms_function(**options)

    run_spec._REGISTERED_RUN_SPEC_FUNCTIONS["sct_bench"] = with_booleans


def rebuild_ehrshot_prompts(get_instances: _GetInstances) -> _GetInstances:
    """Return a replacement of the method by which EHRSHOT's scenario makes its instances.

    HELM's scenario stores its prompts in a file and uses them again, even if the data have changed.
    The replacement deletes the stored prompts first. HELM's scenario also silently skips patients
    whose prompt is longer than `max_length`; the replacement records the number of these patients.
    """

    def get_instances_from_data(self: Any, output_path: str) -> list[Any]:
        from pyarrow import parquet

        folder = Path(output_path)
        for prompts in folder.glob(f"*/{EHRSHOT_PROMPTS}"):
            # A symbolic link means that several runs share the data. Then delete only the prompts
            # of this run's subject, which HELM writes again.
            is_shared = any(path.is_symlink() for path in (folder.parent, folder, prompts.parent))
            if prompts.parent.name == self.subject or not is_shared:
                prompts.unlink()
        instances: list[Any] = get_instances(self, output_path)
        count = parquet.read_metadata(folder / self.subject / EHRSHOT_PROMPTS).num_rows
        limits = {
            "max_length": self.max_length,
            "records": count,
            "left_out": count - len(instances),
        }
        run_record.note(limited_records=limits)
        return instances

    return get_instances_from_data


def count_cut_medalign_records() -> None:
    """Make MedAlign's scenario record how many patient records are cut.

    A patient record longer than `max_length` is cut, and the prompt holds only the record's end.
    """
    from helm.benchmark.scenarios import medalign_scenario_helper as helper
    from helm.benchmark.scenarios.medalign_scenario import MedalignScenario

    get_instances = MedalignScenario.get_instances
    pack_prompts = helper.pack_and_trim_prompts
    is_cut: list[bool] = []  # for each prompt: True if the prompt lacks a part of the record

    def pack_and_check(instructions: Any, ehrs: Any, *args: Any, **kwargs: Any) -> Any:
        prompts = pack_prompts(instructions, ehrs, *args, **kwargs)
        is_cut[:] = [
            ehrs[int(instructions[name]["patient_id"])] not in prompt
            for name, prompt in prompts.items()
        ]
        return prompts

    def get_instances_and_count(self: Any, output_path: str) -> list[Any]:
        instances: list[Any] = get_instances(self, output_path)
        counts = {"max_length": self.max_length, "records": len(is_cut), "cut": sum(is_cut)}
        run_record.note(limited_records=counts)
        return instances

    helper.pack_and_trim_prompts = pack_and_check
    MedalignScenario.get_instances = get_instances_and_count


_ID = "id"  # a column of a user's table
ANSWERS = frozenset({"correct_answer", "incorrect_answers"})  # columns of a user's table


def read_own_tables() -> None:
    """Make HELM's configurable benchmark read the table's cells unchanged, row by row.

    pandas would turn 007, 1.10 and TRUE into numbers, drop None and NA, and end a cell at a NUL
    character. The result has scores by the groups of further columns, so the cells of these columns
    are stored with the instance. A column `id` holds the ids of the instances.
    """
    # A replacement of pandas. With pyarrow, the real package would take 70 MB.
    pandas = types.ModuleType("pandas")
    vars(pandas)["Series"] = dict[str, Any]  # HELM's module only uses this name, as a type.
    with patched_modules({"pandas": pandas}):
        from helm.benchmark.scenarios.medhelm_configurable_scenario import (
            MedHELMConfigurableScenario,
        )
    MedHELMConfigurableScenario.get_instances = _instances_of_table


def _instances_of_table(self: Any, output_path: str) -> list[Any]:
    """Return an instance for each row of a user's table, in place of HELM's method."""
    from helm.benchmark.scenarios.scenario import TEST_SPLIT, Input, Instance

    config = self.benchmark_config
    file = Path(config.dataset_file)
    columns = table_columns(file)
    if "correct_answer" not in columns and (not self._is_llm_as_judge() or len(config.metrics) > 1):
        raise ValueError(
            f"{file} has no column correct_answer, which every metric but jury_score needs"
        )
    template = Path(config.prompt_file).read_text(encoding="utf-8")
    fields = self.get_columns_in_template(template)

    def rows() -> Iterator[dict[str, str]]:
        """Yield the cells of each row by column. Each call reads the file again."""
        for cells in rows_below(file):  # the rows below the header
            yield dict(zip(columns, cells, strict=True))

    letters = _letters_of_table(rows(), template, fields, config.metrics)
    has_ids = _ID in columns and _are_usable_ids([row[_ID] for row in rows()])
    has_pictures = picture_root(output_path) is not None
    prompt_columns = set(fields)
    if has_pictures:
        prompt_columns.update(picture_columns(columns))
    # The cells of these columns are not stored with the instance. `CLUSTER_FIELD` names the source
    # that rows share, such as a patient; it is always stored, because intervals need it.
    not_stored = (prompt_columns - {CLUSTER_FIELD}) | ANSWERS
    if has_ids:
        not_stored.add(_ID)
    instances = []
    for number, row in enumerate(rows()):
        answers = _answers_in(row, letter=letters[number] if letters else None)
        if has_pictures:
            text, pictures = filled_prompt(template, row)
            question_input = with_pictures(
                Input(text=text), [row[name] for name in pictures], output_path
            )
        else:
            question_input = Input(
                text=self.populate_template(template, {**row, **answers}, fields)
            )
        further_cells = {name: cell for name, cell in row.items() if name not in not_stored}
        instances.append(
            Instance(
                question_input,
                self.get_references(answers),
                TEST_SPLIT,
                id=row[_ID] if has_ids else None,  # HELM numbers instances without an id.
                extra_data=further_cells or None,
            )
        )
    return instances


def _answers_in(row: Mapping[str, str], letter: str | None) -> dict[str, Any]:
    """Return the values of the answer columns, as HELM's method `get_references` reads them.

    `letter` is the right option's letter, if it replaces the text of the right answer.
    """
    answers: dict[str, Any] = {name: row[name] for name in ANSWERS & row.keys()}
    if letter is not None:
        answers["correct_answer"] = letter
    if "incorrect_answers" in answers:
        answers["incorrect_answers"] = json.loads(answers["incorrect_answers"])
    return answers


def _are_usable_ids(ids: Sequence[str]) -> bool:
    """Return True if no id is empty or repeated.

    The check of a custom benchmark's table refuses empty and repeated ids. But a user can also run
    HELM's `medhelm_configurable_benchmark` with a table that was not checked.
    """
    return len(set(ids)) == len(ids) and all(instance_id.strip() for instance_id in ids)


def _letters_of_table(
    rows: Iterable[Mapping[str, str]], template: str, fields: Sequence[str], metrics: Sequence[Any]
) -> list[str]:
    """Return the letter of each row's right option, if the table states right options by text.

    Returns an empty list if the answers are not to be mapped to letters.
    """
    if not any(metric.name == "exact_match" for metric in metrics):
        return []
    answers_and_options = []
    for row in rows:
        # The table may lack a column.
        prompt = template.format_map({name: row.get(name, "") for name in fields})
        answers_and_options.append((row.get("correct_answer", ""), options_shown(prompt)))
    return right_letters(answers_and_options)


LISTED_BY_GITHUB = 1000
"""The maximum number of files in a list of api.github.com. The MTSamples scenarios ask for this
list in every run, even if all files are on disk. The list is ordered by the bytes of the names, as
a git tree. MEDICAL_DATA_ALL_FILES=1 removes the limit.
"""


def known_names(scenario: str, folder: Path) -> list[str] | None:
    """Return the names of a scenario's files as GitHub would list them; None to ask GitHub.

    The names come from the list in a bundle of data. Without a list, an offline run uses the names
    of the files in the folder. At most `LISTED_BY_GITHUB` names are returned, unless
    MEDICAL_DATA_ALL_FILES is 1.

    Args:
        scenario: the name of the scenario.
        folder: the folder of the scenario's files.
    """
    names = _names_in_bundle(scenario)
    if names is None:
        is_offline = network_guard.current_guard() is not None
        if not is_offline:
            return None
        names = sorted((path.name for path in folder.glob("*.txt")), key=os.fsencode)
    return names if os.environ.get(ALL_FILES_VARIABLE) == "1" else names[:LISTED_BY_GITHUB]


def _names_in_bundle(scenario: str) -> list[str] | None:
    """Return the names in the bundle's list of a scenario's files; None if there is no list."""
    lists = HelmRunSettings.from_environment(os.environ).file_lists
    if lists is None:
        return None
    file = Path(lists) / f"{scenario}.json"
    if not file.is_file():
        return None
    document = json.loads(file.read_text(encoding="utf-8"))
    return [str(name) for name in document["names"]]


def list_files_without_github() -> None:
    """Make the MTSamples scenarios list their files without GitHub, if the names are known."""
    from helm.benchmark.scenarios.mtsamples_procedures_scenario import MTSamplesProceduresScenario
    from helm.benchmark.scenarios.mtsamples_replicate_scenario import MTSamplesReplicateScenario

    for scenario in (MTSamplesProceduresScenario, MTSamplesReplicateScenario):
        scenario.get_instances = _with_known_names(scenario.get_instances)


def _with_known_names(get_instances: _GetInstances) -> _GetInstances:
    """Return a replacement of `get_instances` that asks GitHub only if the names are unknown."""

    def get_instances_of_known_files(self: Any, output_path: str) -> list[Any]:
        file_names = known_names(self.name, Path(output_path))
        if file_names is not None:
            self.fetch_file_list = lambda: file_names
        return get_instances(self, output_path)

    return get_instances_of_known_files
