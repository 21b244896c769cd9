"""HELM's output files, and what our plug-in leaves beside them, checked at the border, as
records with our names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from eval_factory.core.errors import HelmError
from eval_factory.core.strict_model import StrictModel
from eval_factory.endpoint import media
from eval_factory.helm import names
from eval_factory.tasks.rubric_case import ANSWER, SAMPLE

CORRECT_TAG = "correct"
COMPUTED_ON_PERTURBED = "perturbed"
MULTIMODAL_PROMPT = "multimodal_prompt"
MEDIA_OBJECTS = "media_objects"
MAX_CATEGORY = 80  # characters of a value by which scores are shown apart
MAX_GROUPS = 60
SUB_SPLIT = "sub_split"
BLOCK_SIZE = 256 * 1024  # bytes of a large file that are read at once
SMALL_FILE_SIZE = 8_000_000
"""Bytes of a file whose entries stay in memory: some 1,000 instances, which take three times as
much of memory.
"""


class HelmRecord(StrictModel, extra="ignore", coerce_numbers_to_str=True):
    """A record of HELM's, of which only a part is read. A scenario may number its instances: ids
    become text.
    """


_Read = TypeVar("_Read")


class Perturbation(HelmRecord):
    name: str
    computed_on: str = COMPUTED_ON_PERTURBED
    robustness: bool = False
    fairness: bool = False

    @property
    def families(self) -> Iterator[str]:
        """The names of HELM's worst cases that it counts for."""
        yield self.name
        yield from ("robustness",) * self.robustness + ("fairness",) * self.fairness


class MetricName(HelmRecord):
    """The name of a statistic with the context it was computed in."""

    name: str
    split: str | None = None
    sub_split: str | None = None
    perturbation: Perturbation | None = None


class Stat(HelmRecord):
    name: MetricName
    count: int
    sum: float = 0.0
    mean: float | None = None


class NameOfValue(TypedDict):
    """The fields of `MetricName`, as a mapping."""

    name: str
    split: NotRequired[str | None]
    perturbation: NotRequired[Perturbation | None]


class ValueOfInstance(TypedDict):
    """A `Stat` of one instance. There may be millions, and a mapping is made in half the time of
    a record.
    """

    name: NameOfValue
    count: int
    mean: NotRequired[float | None]


class PerInstanceStats(HelmRecord):
    instance_id: str
    train_trial_index: int
    perturbation: Perturbation | None = None
    stats: list[ValueOfInstance]


class _Text(HelmRecord):
    text: str = ""


class Reference(HelmRecord):
    output: _Text
    tags: list[str] = []


class _Input(_Text):
    multimedia_content: dict[str, Any] | None = None


class Instance(HelmRecord):
    id: str
    input: _Input
    references: list[Reference] = []
    split: str | None = None
    sub_split: str | None = None
    perturbation: Perturbation | None = None
    extra_data: dict[str, Any] | None = None


class Completion(HelmRecord):
    text: str
    finish_reason: dict[str, Any] | None = None
    multimodal_content: dict[str, Any] | None = None


class Result(HelmRecord):
    success: bool
    cached: bool = False
    completions: list[Completion] = []
    error: str | None = None


class RequestState(HelmRecord):
    instance: Instance
    train_trial_index: int
    request: dict[str, Any]
    result: Result | None = None
    # label of an option -> its text, where the question has options
    output_mapping: dict[str, str] | None = None
    prompt_truncated: bool = False
    annotations: dict[str, Any] | None = None


class _MetricSpec(HelmRecord):
    class_name: str
    args: dict[str, Any] = {}


class AdapterSpec(HelmRecord):
    """HELM's settings of how instances become requests. What it did not write down is None."""

    model: str = ""
    method: str = ""
    output_mapping_pattern: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    max_train_instances: int | None = None
    num_train_trials: int = 1


class _ScenarioSpec(HelmRecord):
    args: dict[str, Any] = {}


class StoredRunSpec(HelmRecord):
    name: str
    scenario_spec: _ScenarioSpec = _ScenarioSpec()
    adapter_spec: AdapterSpec = AdapterSpec()
    metric_specs: list[_MetricSpec] = []


@dataclass(frozen=True)
class JuryNames:
    """The name of a run's jury metric, and of its judges' annotations."""

    metric: str
    annotation: str
    judges: Mapping[str, str]  # the judge's name there -> its deployment


@dataclass(frozen=True)
class HelmRun:
    """One finished run folder. What grows with the instances is read entry by entry, each time it
    is asked for.

    The requests of a small run are read once: a result needs them twice or more.
    """

    folder: Path
    run_spec: StoredRunSpec
    stats: list[Stat]
    _small_run: list[RequestState] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def jury(self) -> JuryNames | None:
        for spec in self.run_spec.metric_specs:
            if spec.class_name.endswith(names.JURY_METRIC_CLASS_SUFFIX):
                models = spec.args["annotator_models"]
                judges = {name: model["model_deployment"] for name, model in models.items()}
                return JuryNames(spec.args["metric_name"], spec.args["scenario_name"], judges)
        return None

    @property
    def rubric(self) -> tuple[str, Mapping[str, str]] | None:
        """The name of our metric of a rubric, and the deployments of the judges that it uses, by
        name.
        """
        for spec in self.run_spec.metric_specs:
            if spec.class_name == names.RUBRIC_METRIC_CLASS:
                return spec.args["metric_name"], spec.args["judges"]
        return None

    def has_metric(self, class_name: str) -> bool:
        return any(
            spec.class_name.rpartition(".")[2] == class_name for spec in self.run_spec.metric_specs
        )

    def main_split(self, preferred: str | None = None) -> str | None:
        """The preferred split if the run has it; else `test`, else `valid`, else the first."""
        splits = {stat.name.split for stat in self.stats if stat.name.split}
        for split in (preferred, "test", "valid", "train", *sorted(splits)):
            if split in splits:
                return split
        return None

    @property
    def scenario_name(self) -> str | None:
        """The folder of the scenario's data, if HELM wrote it down."""
        return names.scenario_name(self.folder)

    def request_states(self) -> Iterator[RequestState]:
        """Every request with its answer, in HELM's order. Raises HelmError."""
        path = self.folder / names.SCENARIO_STATE_FILE
        if not self._small_run:
            helm_dir = self.folder.parents[2]
            entries = (
                _with_media(state, helm_dir)
                for state in _entries(path, RequestState, "request_states")
            )
            if not path.is_file() or path.stat().st_size > SMALL_FILE_SIZE:
                return entries
            self._small_run.extend(entries)
        return iter(self._small_run)

    def per_instance_stats(self) -> Iterator[PerInstanceStats]:
        """Statistics of one instance after the other; an instance has an entry per metric.
        Raises HelmError.
        """
        return _entries(self.folder / names.PER_INSTANCE_STATS_FILE, PerInstanceStats)


def read_run(folder: Path) -> HelmRun:
    """Read a run folder.

    Raises:
        HelmError: a file is missing or has another form than HELM 0.5.16's.
    """
    return HelmRun(
        folder=folder,
        run_spec=read_record(folder / names.RUN_SPEC_FILE, StoredRunSpec),
        stats=read_record(folder / names.STATS_FILE, list[Stat]),
    )


def read_record(path: Path, shape: type[_Read]) -> _Read:
    """A complete file as a record, or several. Raises HelmError."""
    try:
        return _parsed(TypeAdapter(shape), path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _with_media(state: RequestState, helm_dir: Path) -> RequestState:
    """Pictures and sounds where they are now, and an instance's text with a line for each."""
    prompt = state.request.get(MULTIMODAL_PROMPT)
    instance_input = state.instance.input
    if prompt:
        request = {**state.request, MULTIMODAL_PROMPT: _located(prompt, helm_dir)}
        state = state.model_copy(update={"request": request})
    if instance_input.multimedia_content and (
        not instance_input.text or media.PLACE in instance_input.text
    ):
        objects = _located(instance_input.multimedia_content, helm_dir)[MEDIA_OBJECTS]
        text = media.as_text(media.placed(instance_input.text, objects))
        instance = state.instance.model_copy(
            update={"input": instance_input.model_copy(update={"text": text})}
        )
        state = state.model_copy(update={"instance": instance})
    made = [
        completion.multimodal_content
        for completion in (state.result.completions if state.result else ())
    ]
    if state.result and any(made):  # all completions in one text: a picture has none of its own
        located = []
        for content in made:
            if content:
                located.append(
                    _located(content, helm_dir, names.MADE_PICTURES_FOLDER)[MEDIA_OBJECTS]
                )
        shown = Completion(text=media.as_text(chain.from_iterable(located)).strip())
        state = state.model_copy(
            update={"result": state.result.model_copy(update={"completions": [shown]})}
        )
    return state


def _located(
    content: Mapping[str, Any], helm_dir: Path, folder: str = names.SCENARIOS_FOLDER
) -> dict[str, Any]:
    """HELM's scenarios keep media in their folder, which may have been moved; no file elsewhere
    is read.
    """
    root = (helm_dir / folder).resolve()

    def here(location: str) -> str:
        file = (root / location.rpartition(f"/{folder}/")[2]).resolve()
        return str(file if file.is_relative_to(root) else root / "elsewhere")

    objects = []
    for medium in content[MEDIA_OBJECTS]:
        objects.append(
            {**medium, "location": here(str(medium["location"]))}
            if medium.get("location")
            else medium
        )
    return {MEDIA_OBJECTS: objects}


def _entries(path: Path, shape: type[_Read], member: str | None = None) -> Iterator[_Read]:
    """The entries of the list that a file holds, or of the list that is a member of the record it
    holds.

    HELM indents by two blanks and a text in JSON has no line breaks, so where an entry begins and
    ends can be seen.
    """
    depth = b"  " if member is None else b"    "
    beginning = b"[" if member is None else f'  "{member}": ['.encode()
    adapter = TypeAdapter(shape)
    try:
        with path.open("rb") as file:
            first = next((line for line in file if line.startswith(beginning)), b"")
            if first.rstrip(b",\n") == beginning + b"]":
                return
            if first != beginning + b"\n":
                raise ValueError("it is not indented as HELM 0.5.16 does it")
            opening = depth + b"{\n"
            closing = re.compile(b"\n" + depth + rb"}(,?)\n")
            rest = b""
            # block by block: an entry may have 300 lines
            while block := file.read(max(BLOCK_SIZE, len(rest))):
                *ended, rest = closing.split(rest + block)
                for text, comma in zip(ended[::2], ended[1::2], strict=True):
                    yield _parsed(adapter, b"{" + text.partition(opening)[2] + b"}")
                    if not comma:
                        return
        raise ValueError("it ends in the middle")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _parsed(adapter: TypeAdapter[_Read], text: bytes) -> _Read:
    try:
        return adapter.validate_json(text)
    except ValueError:  # half a character escaped in an answer is JSON to Python only
        return adapter.validate_python(json.loads(text))


def _unreadable(path: Path, error: Exception) -> HelmError:
    reason: object = error
    if isinstance(error, ValidationError):  # its own text would quote the data
        first = error.errors(include_input=False)[0]
        reason = (
            f"{error.error_count()} unexpected values, the first at {first['loc']}: {first['msg']}"
        )
    return HelmError(f"HELM's output {path} cannot be read: {reason}")


def score_label(name: MetricName, main_split: str | None) -> str:
    """Return `metric`, `metric@split` or `metric@split+perturbation`: one label per context, so
    none overwrites another.

    A metric's own name may hold an `@` too (`exact_match@5`, `NDCG@10`): what stands after it is a
    number then, and no split is called by one.
    """
    suffix = perturbation_label(name)
    if suffix is None:
        if name.split == main_split:
            return name.name
        return f"{name.name}@{name.split}"
    return f"{name.name}@{name.split}+{suffix}"


def perturbation_label(name: MetricName) -> str | None:
    """Return how a statistic's perturbation is called, or None if nothing was perturbed."""
    if name.perturbation is None:
        return None
    computed_on = name.perturbation.computed_on
    return name.perturbation.name + (
        "" if computed_on == COMPUTED_ON_PERTURBED else f".{computed_on}"
    )


def scenario_folder(helm_dir: Path, scenario: str) -> Path:
    """The folder of a scenario's data."""
    return helm_dir / names.SCENARIOS_FOLDER / scenario


def scenario_files(helm_dir: Path, scenario: str) -> list[Path]:
    """The data files that a scenario read."""
    files = scenario_folder(helm_dir, scenario).rglob("*")
    data_files = []
    for path in files:
        if path.is_file() and path.suffix != ".lock":
            data_files.append(path)
    return sorted(data_files)


def reason_of(annotations: Mapping[str, Any] | None, jury: JuryNames, judge: str) -> str | None:
    """Why a judge gave no judgement of one answer, where that was written down."""
    reasons = (annotations or {}).get(jury.annotation, {}).get(names.NOT_JUDGED)
    reason = reasons.get(judge) if isinstance(reasons, Mapping) else None
    return reason if isinstance(reason, str) else None


def judgement_of(
    annotations: Mapping[str, Any] | None, jury: JuryNames, judge: str
) -> dict[str, Any]:
    """Return a judge's mark and words about one answer by criterion, as it gave them; `error` if it
    gave none.

    Args:
        annotations: the instance's, as HELM stores them; None: it has none.
        jury: the name of the run's annotation, and of its judges.
        judge: the role.
    """
    judgement = (annotations or {}).get(jury.annotation, {}).get(judge)
    if isinstance(judgement, Mapping) and judgement:
        return dict(judgement)
    reason = reason_of(annotations, jury, judge)
    if reason is None:
        return {}
    return {"error": reason}


def ratings_of(
    annotations: Mapping[str, Any] | None, jury: JuryNames, judge: str
) -> dict[str, float]:
    """Return a judge's rating of one answer by criterion, as HELM reads it: a whole number, or a
    share; empty if there is none.

    Args:
        annotations: the instance's, as HELM stores them; None: it has none.
        jury: the name of the run's annotation, and of its judges.
        judge: the role.
    """
    ratings = (annotations or {}).get(jury.annotation, {}).get(judge)
    if not isinstance(ratings, Mapping):
        return {}
    read = float if jury.annotation in names.SHARE_JURIES else int
    return {criterion: read(rating["score"]) for criterion, rating in ratings.items()}


def categories_of(instance: Any) -> dict[str, Any]:
    """Short texts and numbers that a scenario keeps beside an instance."""
    categories = {}
    for name, value in (instance.extra_data or {}).items():
        is_short = isinstance(value, str) and len(value) <= MAX_CATEGORY
        if name not in (ANSWER, SAMPLE) and (is_short or isinstance(value, (bool, int, float))):
            categories[name] = value
    return categories


def groups_of(instance: Any, source: str | None = None) -> dict[str, str]:
    """Return the instance's values, by field, that may sort instances into groups.

    Args:
        instance: as HELM stores it.
        source: the field that names the source which instances share; it makes no groups.
    """
    fields = {}
    for name, value in categories_of(instance).items():
        if isinstance(value, str):
            fields[name] = value
    if instance.sub_split:
        fields[SUB_SPLIT] = instance.sub_split
    fields.pop(source or "", None)
    return fields


def can_form_groups(values: int, instances: int) -> bool:
    """Find out if a field with so many values sorts so many instances into groups.

    Args:
        values: how many different ones the field has.
        instances: how many have the field.
    """
    return 2 <= values <= min(MAX_GROUPS, instances // 2)


class LoadedDataset(HelmRecord):
    id: str
    config: str
    revision: str
    folder: str

    def files(self) -> dict[str, Path]:
        """Return the prepared tables that were read, by `hub:ID@REVISION/CONFIG/file`."""
        name = f"hub:{self.id}@{self.revision}/{self.config}"
        return {f"{name}/{path.name}": path for path in sorted(Path(self.folder).glob("*.arrow"))}


class LimitedRecords(HelmRecord):
    """The effect of a scenario's `max_length` on the records that it read."""

    max_length: int
    records: int
    left_out: int = 0
    cut: int = 0


class DrawnSample(HelmRecord):
    """Instances that `extra.stop_when` drew, and those that there are."""

    asked: int
    of: int


class RunRecord(HelmRecord):
    """The record that helm-run writes about itself."""

    datasets: list[LoadedDataset] = []  # data sets of the Hugging Face Hub
    # names of the patches of HELM that were applied; None: it did not come so far
    patches: list[str] | None = None
    limited_records: LimitedRecords | None = None
    executed_by: list[str] = []  # the ways in which the model's answers were confined
    ended: int = 0  # answers that ended the process that executed them
    # the SHA-256 of each template of the judges' prompts, by annotation
    judge_prompts: dict[str, tuple[str, ...]] = {}
    drawn_sample: DrawnSample | None = None
    judge_probe: dict[str, dict[str, Any]] = {}
    """HELM's annotations of an answer that says nothing, by instance."""


def read_run_record(helm_dir: Path) -> RunRecord:
    """Return the record, empty if no helm-run has written one yet. Raises HelmError."""
    file = helm_dir / names.RUN_RECORD_FILE
    if file.is_file():
        return read_record(file, RunRecord)
    return RunRecord()
