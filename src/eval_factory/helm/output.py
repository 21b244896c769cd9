"""Reads and checks HELM's output files, and the files that eval-factory's plug-in adds to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from eval_factory.core.errors import HelmError
from eval_factory.core.strict_model import StrictModel
from eval_factory.endpoint import media
from eval_factory.helm import names
from eval_factory.tasks.rubric_case import ANSWER_KEY, SAMPLE_KEY

CORRECT_TAG = "correct"  # HELM's tag of a right reference
COMPUTED_ON_PERTURBED = "perturbed"  # HELM's word for a statistic of the perturbed instances
MULTIMODAL_PROMPT = "multimodal_prompt"  # the field of a request whose prompt has media
MEDIA_OBJECTS = "media_objects"  # the field of multimodal content with the list of its parts
MAX_CATEGORY = 80  # the maximum length, in characters, of a value that can form groups
MAX_GROUPS = 60  # the maximum number of groups of one field
SUB_SPLIT = "sub_split"  # the field of an instance that names a part of its split
BLOCK_SIZE = 256 * 1024  # the number of bytes of a file that are read at once
SMALL_FILE_SIZE = 8_000_000
"""The maximum size, in bytes, of a file whose entries stay in memory.

Such a file holds about 1,000 instances, which take three times the file's size in memory.
"""


class HelmRecord(StrictModel, extra="ignore", coerce_numbers_to_str=True):
    """A part of a record that HELM writes; unknown fields are ignored.

    Numbers in text fields become text, because a scenario may use numbers as ids.
    """


class Perturbation(HelmRecord):
    """A change that HELM makes to the text of instances."""

    name: str
    computed_on: str = COMPUTED_ON_PERTURBED
    robustness: bool = False
    fairness: bool = False

    @property
    def families(self) -> Iterator[str]:
        """The names of those worst-case scores of HELM that include this perturbation."""
        yield self.name
        if self.robustness:
            yield "robustness"
        if self.fairness:
            yield "fairness"


class MetricName(HelmRecord):
    """The name of a statistic, with the split and perturbation for which it was computed."""

    name: str
    split: str | None = None
    sub_split: str | None = None
    perturbation: Perturbation | None = None


class Stat(HelmRecord):
    """A statistic: the values of a metric over all instances, as their number, sum and mean."""

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
    """A statistic of one instance, as a mapping.

    A run may have millions of such statistics, and making a mapping takes half as long as making a
    `Stat`.
    """

    name: NameOfValue
    count: int
    mean: NotRequired[float | None]


class PerInstanceStats(HelmRecord):
    """Statistics of one instance in one trial."""

    instance_id: str
    train_trial_index: int  # the number of the trial: each trial has other examples in the prompts
    perturbation: Perturbation | None = None
    stats: list[ValueOfInstance]


class _Text(HelmRecord):
    text: str = ""


class Reference(HelmRecord):
    """A reference of an instance: a right answer, or an option."""

    output: _Text
    tags: list[str] = []


class _Input(_Text):
    multimedia_content: dict[str, Any] | None = None


class Instance(HelmRecord):
    """An instance: a question with its references."""

    id: str
    input: _Input
    references: list[Reference] = []
    split: str | None = None
    sub_split: str | None = None
    perturbation: Perturbation | None = None
    extra_data: dict[str, Any] | None = None


class Completion(HelmRecord):
    """One completion of the model's answer to a request."""

    text: str
    finish_reason: dict[str, Any] | None = None
    multimodal_content: dict[str, Any] | None = None


class Result(HelmRecord):
    """The model's answer to a request, or the error."""

    success: bool
    cached: bool = False
    completions: list[Completion] = []
    error: str | None = None


class RequestState(HelmRecord):
    """A request for an instance, with its result and the annotations of the result."""

    instance: Instance
    train_trial_index: int
    request: dict[str, Any]
    result: Result | None = None
    # the text of each option by its label; None if the question has no options
    output_mapping: dict[str, str] | None = None
    prompt_truncated: bool = False
    annotations: dict[str, Any] | None = None


class _MetricSpec(HelmRecord):
    class_name: str
    args: dict[str, Any] = {}


class AdapterSpec(HelmRecord):
    """HELM's settings for making requests from instances.

    A setting that HELM did not write has the default below.
    """

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
    """The run spec that HELM wrote into a run folder."""

    name: str
    scenario_spec: _ScenarioSpec = _ScenarioSpec()
    adapter_spec: AdapterSpec = AdapterSpec()
    metric_specs: list[_MetricSpec] = []


@dataclass(frozen=True)
class JuryNames:
    """The names of a run's jury metric, of its annotation, and of its judges."""

    metric: str
    annotation: str  # the jury's key in the annotations of an instance
    judges: Mapping[str, str]  # the deployment of each judge, by the judge's name in annotations


@dataclass(frozen=True)
class HelmRun:
    """A finished run folder of HELM.

    The files of requests and of per-instance statistics grow with the number of instances. They are
    read entry by entry each time they are needed. Only the requests of a small run stay in memory,
    because a result needs them several times.
    """

    folder: Path
    run_spec: StoredRunSpec
    stats: list[Stat]
    _stored_states: list[RequestState] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    """The requests of a small run, after they were read; empty for a large run."""

    @property
    def jury(self) -> JuryNames | None:
        """The names of the run's jury; None if the run has no jury metric."""
        for spec in self.run_spec.metric_specs:
            if spec.class_name.endswith(names.JURY_METRIC_CLASS_SUFFIX):
                models = spec.args["annotator_models"]
                judges = {name: model["model_deployment"] for name, model in models.items()}
                annotation = spec.args["scenario_name"]  # HELM's metric reads this annotation
                return JuryNames(spec.args["metric_name"], annotation, judges)
        return None

    @property
    def rubric(self) -> tuple[str, Mapping[str, str]] | None:
        """The name of eval-factory's rubric metric, and the judges' deployments by their names.

        None if the run has no rubric metric.
        """
        for spec in self.run_spec.metric_specs:
            if spec.class_name == names.RUBRIC_METRIC_CLASS:
                return spec.args["metric_name"], spec.args["judges"]
        return None

    def has_metric(self, class_name: str) -> bool:
        """Return True if the run has a metric of this class, in any module."""
        return any(
            spec.class_name.rpartition(".")[2] == class_name for spec in self.run_spec.metric_specs
        )

    def main_split(self, preferred: str | None = None) -> str | None:
        """Return the main split of the run; None if no statistic has a split.

        The main split is the first of these splits that the run has: the preferred split, `test`,
        `valid`, `train`, the first split in alphabetical order.
        """
        splits = {stat.name.split for stat in self.stats if stat.name.split}
        for split in (preferred, "test", "valid", "train", *sorted(splits)):
            if split in splits:
                return split
        return None

    @property
    def scenario_name(self) -> str | None:
        """The name of the folder of the scenario's data; None if HELM did not write the name."""
        return names.scenario_name(self.folder)

    def request_states(self) -> Iterator[RequestState]:
        """Yield every request with its answer, in HELM's order.

        Raises:
            HelmError: the file cannot be read.
        """
        path = self.folder / names.SCENARIO_STATE_FILE
        if not self._stored_states:
            helm_dir = self.folder.parents[2]  # the folder is helm_dir/runs/SUITE/RUN
            states = _entries(path, RequestState, member="request_states")
            shown_states = (_with_media(state, helm_dir) for state in states)
            is_small = path.is_file() and path.stat().st_size <= SMALL_FILE_SIZE
            if not is_small:
                return shown_states  # for a missing file, the first `next` raises the error
            self._stored_states.extend(shown_states)
        return iter(self._stored_states)

    def per_instance_stats(self) -> Iterator[PerInstanceStats]:
        """Yield the statistics of each instance, in HELM's order.

        An instance may have several entries, one for each of the run's metrics.

        Raises:
            HelmError: the file cannot be read.
        """
        return _entries(self.folder / names.PER_INSTANCE_STATS_FILE, PerInstanceStats)


_Read = TypeVar("_Read")  # the type that a JSON text is read as


def read_run(folder: Path) -> HelmRun:
    """Read a run folder.

    Raises:
        HelmError: a file is missing, or does not have the form of HELM 0.5.16.
    """
    return HelmRun(
        folder=folder,
        run_spec=read_json_file(folder / names.RUN_SPEC_FILE, StoredRunSpec),
        stats=read_json_file(folder / names.STATS_FILE, list[Stat]),
    )


def read_json_file(path: Path, shape: type[_Read]) -> _Read:
    """Read a JSON file, and return its content as an object of the type `shape`.

    Raises:
        HelmError: the file cannot be read, or has another form.
    """
    try:
        return _parsed(TypeAdapter(shape), path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _with_media(state: RequestState, helm_dir: Path) -> RequestState:
    """Return the request state with its media at their current locations.

    Questions and answers with media get a text that has a line for each picture or sound.
    """
    changes: dict[str, Any] = {}
    prompt = state.request.get(MULTIMODAL_PROMPT)
    if prompt:
        changes["request"] = {**state.request, MULTIMODAL_PROMPT: _located(prompt, helm_dir)}
    changes["instance"] = _instance_with_media(state.instance, helm_dir)
    if state.result is not None:
        changes["result"] = _result_with_media(state.result, helm_dir)
    return state.model_copy(update=changes)


def _instance_with_media(instance: Instance, helm_dir: Path) -> Instance:
    """Return the instance with its media in the text, if the text is empty or marks their places.

    Any other text stays as it is.
    """
    content = instance.input.multimedia_content
    text = instance.input.text
    if not content or (text and media.FILE_MARK not in text):
        return instance
    objects = _located(content, helm_dir)[MEDIA_OBJECTS]
    shown = media.as_text(media.parts_with_files(text, objects))
    return instance.model_copy(update={"input": instance.input.model_copy(update={"text": shown})})


def _result_with_media(result: Result, helm_dir: Path) -> Result:
    """Return the result; if the model made pictures, with one completion that lists all of them.

    A completion with a picture has no text.
    """
    contents = []
    for completion in result.completions:
        if completion.multimodal_content:
            contents.append(completion.multimodal_content)
    if not contents:
        return result
    pictures = []
    for content in contents:
        located = _located(content, helm_dir, folder=names.MADE_PICTURES_FOLDER)
        pictures += located[MEDIA_OBJECTS]
    listing = Completion(text=media.as_text(pictures).strip())
    return result.model_copy(update={"completions": [listing]})


def _located(
    content: Mapping[str, Any], helm_dir: Path, folder: str = names.SCENARIOS_FOLDER
) -> dict[str, Any]:
    """Return multimodal content with the current locations of its files.

    HELM stores absolute paths, but the output folder may have been moved. A path that is not below
    `folder` is replaced by a path that does not exist, so that no other file is read.

    Args:
        content: HELM's multimodal content.
        helm_dir: HELM's output folder.
        folder: the folder of the media within HELM's output folder.
    """
    root = (helm_dir / folder).resolve()

    def current_location(location: str) -> str:
        path_in_folder = location.rpartition(f"/{folder}/")[2]
        file = (root / path_in_folder).resolve()
        if not file.is_relative_to(root):
            file = root / "elsewhere"  # does not exist
        return str(file)

    objects = []
    for medium in content[MEDIA_OBJECTS]:
        if medium.get("location"):
            medium = {**medium, "location": current_location(str(medium["location"]))}
        objects.append(medium)
    return {MEDIA_OBJECTS: objects}


def _entries(path: Path, shape: type[_Read], member: str | None = None) -> Iterator[_Read]:
    """Yield the entries of a list in a JSON file, without reading the complete file into memory.

    HELM indents by two spaces, and a string in JSON has no line breaks. The indentation therefore
    shows where each entry ends.

    Args:
        path: the JSON file.
        shape: the type of the entries.
        member: the key of the list, if the file holds an object; None: the file holds the list.

    Raises:
        HelmError: the file cannot be read, or does not have the form in which HELM writes it.
    """
    list_begins = b"["
    indentation = b"  "  # of the entries
    if member is not None:
        list_begins = f'  "{member}": ['.encode()
        indentation = b"    "
    entry_ends = re.compile(b"\n" + indentation + rb"}(,?)\n")  # "\n  },\n"
    adapter = TypeAdapter(shape)
    try:
        with path.open("rb") as file:
            # Skip the lines before the list.
            first_line = next((line for line in file if line.startswith(list_begins)), b"")
            if first_line.rstrip(b",\n") == list_begins + b"]":  # the list is empty
                return
            if first_line != list_begins + b"\n":
                raise ValueError("the file is not indented as HELM 0.5.16 indents its files")
            incomplete = b""  # the beginning of an entry whose end was not read yet
            # Read blocks, not lines, because an entry may have 300 lines. For a long entry, the
            # blocks grow, so that the time stays linear.
            while block := file.read(max(BLOCK_SIZE, len(incomplete))):
                # `split` returns the text of each entry without its last brace, then the comma
                # after the brace; at the end, the text that is not complete.
                *complete, incomplete = entry_ends.split(incomplete + block)
                for text, comma in zip(complete[::2], complete[1::2], strict=True):
                    yield _parsed(adapter, text + b"}")
                    if not comma:
                        return
        raise ValueError("the file ends in the middle of the list")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _parsed(adapter: TypeAdapter[_Read], text: bytes) -> _Read:
    """Return the object in a JSON text; raise a ValueError if the text has another form."""
    try:
        return adapter.validate_json(text)
    except ValueError:  # pydantic refuses an escaped half of a surrogate pair; Python does not
        return adapter.validate_python(json.loads(text))


def _unreadable(path: Path, error: Exception) -> HelmError:
    """Return the error for a file that cannot be read, with a message that quotes no data."""
    reason: object = error
    if isinstance(error, ValidationError):  # the text of a ValidationError quotes the data
        first = error.errors(include_input=False)[0]
        reason = (
            f"{error.error_count()} unexpected values, the first at {first['loc']}: {first['msg']}"
        )
    return HelmError(f"HELM's output {path} cannot be read: {reason}")


def score_label(name: MetricName, main_split: str | None) -> str:
    """Return the unique label of a score.

    The label is `metric` for the main split, `metric@split` for another split, and
    `metric@split+perturbation` for perturbed instances of any split. A metric's own name may hold
    an `@` too (`exact_match@5`, `NDCG@10`). In such a name, a number follows the `@`; the name of a
    split is never a number.
    """
    suffix = perturbation_label(name)
    if suffix is None:
        if name.split == main_split:
            return name.name
        return f"{name.name}@{name.split}"
    return f"{name.name}@{name.split}+{suffix}"


def perturbation_label(name: MetricName) -> str | None:
    """Return the label of a statistic's perturbation, or None if nothing was perturbed."""
    if name.perturbation is None:
        return None
    label = name.perturbation.name
    if name.perturbation.computed_on != COMPUTED_ON_PERTURBED:
        label += f".{name.perturbation.computed_on}"
    return label


def scenario_folder(helm_dir: Path, scenario: str) -> Path:
    """Return the folder of a scenario's data."""
    return helm_dir / names.SCENARIOS_FOLDER / scenario


def scenario_files(helm_dir: Path, scenario: str) -> list[Path]:
    """Return the data files of a scenario, sorted by path, without lock files."""
    data_files = []
    for path in scenario_folder(helm_dir, scenario).rglob("*"):
        if path.is_file() and path.suffix != ".lock":
            data_files.append(path)
    return sorted(data_files)


def reason_not_judged(
    annotations: Mapping[str, Any] | None, jury: JuryNames, judge: str
) -> str | None:
    """Return the recorded reason why a judge did not judge an answer; None if none is recorded.

    The arguments are those of `judgement_of`.
    """
    reasons = (annotations or {}).get(jury.annotation, {}).get(names.NOT_JUDGED_FIELD)
    reason = reasons.get(judge) if isinstance(reasons, Mapping) else None
    return reason if isinstance(reason, str) else None


def judgement_of(
    annotations: Mapping[str, Any] | None, jury: JuryNames, judge: str
) -> dict[str, Any]:
    """Return a judge's rating and explanation of an answer, by criterion, as the judge wrote them.

    An example is `{"accuracy": {"score": 4, "explanation": "..."}}`. If the judge gave no rating,
    return the recorded reason as `error`, or an empty mapping if no reason is recorded.

    Args:
        annotations: the annotations of the instance, as HELM stores them; None: it has no
            annotations.
        jury: the names of the run's jury.
        judge: the judge's name in `jury.judges`.
    """
    judgement = (annotations or {}).get(jury.annotation, {}).get(judge)
    if isinstance(judgement, Mapping) and judgement:
        return dict(judgement)
    reason = reason_not_judged(annotations, jury, judge)
    if reason is None:
        return {}
    return {"error": reason}


def ratings_of(
    annotations: Mapping[str, Any] | None, jury: JuryNames, judge: str
) -> dict[str, float]:
    """Return a judge's rating of an answer by criterion, as HELM reads it.

    A rating is a whole number; for the juries in `names.SHARE_JURIES`, a share. The result is empty
    if the judge gave no rating.

    Args:
        annotations: the annotations of the instance, as HELM stores them; None: it has no
            annotations.
        jury: the names of the run's jury.
        judge: the judge's name in `jury.judges`.
    """
    ratings = (annotations or {}).get(jury.annotation, {}).get(judge)
    if not isinstance(ratings, Mapping):
        return {}
    number_type = float if jury.annotation in names.SHARE_JURIES else int
    return {criterion: number_type(rating["score"]) for criterion, rating in ratings.items()}


def categories_of(instance: Any) -> dict[str, Any]:
    """Return the short texts, numbers and booleans in an instance's extra data, by field.

    The fields with an answer to judge and with the number of a sample are left out.

    Args:
        instance: an `Instance`, or HELM's object of an instance.
    """
    categories = {}
    for name, value in (instance.extra_data or {}).items():
        if name in (ANSWER_KEY, SAMPLE_KEY):
            continue
        is_short_text = isinstance(value, str) and len(value) <= MAX_CATEGORY
        if is_short_text or isinstance(value, (bool, int, float)):
            categories[name] = value
    return categories


def groups_of(instance: Any, source: str | None = None) -> dict[str, str]:
    """Return the texts by which an instance may be grouped with others, by field.

    Args:
        instance: an `Instance`, or HELM's object of an instance.
        source: the field that names the source of an instance; several instances may share a
            source, such as a clinical note. This field forms no groups, because intervals treat
            sources as clusters.
    """
    fields = {}
    for name, value in categories_of(instance).items():
        if isinstance(value, str):
            fields[name] = value
    if instance.sub_split:
        fields[SUB_SPLIT] = instance.sub_split
    if source is not None:
        fields.pop(source, None)
    return fields


def can_form_groups(values: int, instances: int) -> bool:
    """Return True if a field has at least two values, and few enough to form groups.

    On average, a group must have two instances or more.

    Args:
        values: the number of different values of the field.
        instances: the number of instances that have the field.
    """
    return 2 <= values <= min(MAX_GROUPS, instances // 2)


class LoadedDataset(HelmRecord):
    """A data set of the Hugging Face Hub that a run loaded."""

    id: str
    config: str
    revision: str
    folder: str  # the folder of the prepared tables

    def files(self) -> dict[str, Path]:
        """Return the prepared tables of the data set, by `hub:ID@REVISION/CONFIG/file`."""
        name = f"hub:{self.id}@{self.revision}/{self.config}"
        return {f"{name}/{path.name}": path for path in sorted(Path(self.folder).glob("*.arrow"))}


class LimitedRecords(HelmRecord):
    """The effect of a scenario's `max_length` on the patient records of the scenario."""

    max_length: int  # in tokens
    records: int  # the number of all records
    left_out: int = 0  # the number of records that were left out
    cut: int = 0  # the number of records that were shortened


class DrawnSample(HelmRecord):
    """The sample of the instances that was drawn for `extra.stop_when`."""

    asked: int  # the number of instances in the sample
    of: int  # the number of all instances


class RunRecord(HelmRecord):
    """The record that helm-run writes about itself."""

    datasets: list[LoadedDataset] = []  # data sets of the Hugging Face Hub
    # the names of the applied patches of HELM; None if helm-run ended before it applied patches
    patches: list[str] | None = None
    limited_records: LimitedRecords | None = None
    executed_by: list[str] = []  # the sandboxes in which the model's answers were executed
    ended: int = 0  # the number of answers whose execution ended the executing process
    # the SHA-256 of each template of the judges' prompts, by the annotation's name
    judge_prompts: dict[str, tuple[str, ...]] = {}
    drawn_sample: DrawnSample | None = None
    judge_probe: dict[str, dict[str, Any]] = {}
    """From an instance's id to the judges' annotations of `trivial_answers.PADDED_ANSWER`, a long
    answer without content.
    """


def read_run_record(helm_dir: Path) -> RunRecord:
    """Return helm-run's record of itself; an empty record if helm-run has written none yet.

    Raises:
        HelmError: the file cannot be read.
    """
    file = helm_dir / names.RUN_RECORD_FILE
    if file.is_file():
        return read_json_file(file, RunRecord)
    return RunRecord()


@dataclass(frozen=True)
class FurtherReply:
    """The model's reply to a further turn, which asks how sure it is or which letter it means."""

    text: str | None  # None if there is no reply
    error: str | None  # the reason why there is no reply


def read_further_replies(file: Path) -> dict[tuple[str, int], FurtherReply]:
    """Return a dict from (instance id, number of the trial) to the reply to the further turn.

    The dict is empty if the file does not exist or has another form.
    """
    try:
        lines = json.loads(file.read_text(encoding="utf-8"))
        replies = {}
        for line in lines:
            key = (str(line["instance"]), int(line["trial"]))
            replies[key] = FurtherReply(text=line["reply"], error=line["error"])
        return replies
    except (OSError, ValueError, TypeError, KeyError):
        return {}
