"""What the first screen says, in sentences that a reader understands who has never seen a benchmark. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from eval_factory.core.results import Floor, Instances, Score, TaskResult
from eval_factory.report.jury_lines import ratings_line
from eval_factory.tasks.errata import CORRECTED
from eval_factory.tasks.framework import load_framework

READ_FIRST = 3
"""Notes that stand on the first screen; all stand further down."""
FEW_FILES = 5
"""Hashes of data files that need no unfolding. A benchmark may read a thousand files: too many for paper, too."""
_SHARE = "share"
_IS_ABOVE = "This model is better than that, and so is its whole interval."


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong with some of the instances."""

    count: int
    said: str
    flag: str
    """By which the table shows them (`instance_data.FLAGS`)."""


def about(task: str) -> str:
    """What a task is, where eval-factory brings it along; empty of custom benchmarks."""
    return next((one.description for one in load_framework().evaluations if one.name == task), "")


class Scaled(Protocol):
    """What knows how its values are counted."""

    @property
    def unit(self) -> str | None: ...
    @property
    def scale(self) -> tuple[float, float] | None: ...


def amount(value: float, score: Scaled) -> str:
    """A score as somebody says it: 41.2 %, 3.42 of 5, 0.412."""
    if score.unit == _SHARE and score.scale == (0.0, 1.0):
        return f"{value * 100:.1f} %"
    if score.unit == "rating" and score.scale is not None:
        return f"{value:.2f} of {score.scale[1]:g}"
    return f"{value:.4g}"


def interval(score: Score) -> str:
    low, high = score.stats.ci_low, score.stats.ci_high
    if low is None or high is None:
        return ""
    return f"{amount(low, score)} to {amount(high, score)}"


def counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def measured(result: TaskResult, who: str = "The model") -> str:
    """On what it was measured, and how often."""
    asked = sum(result.validity.splits.values()) or result.validity.instances.requested
    requested = result.validity.instances.requested
    repeated = f", {requested:,} requests with every trial and variation counted" if requested != asked else ""
    splits = result.validity.splits
    where = f" of the {next(iter(splits))} set" if len(splits) == 1 else ""
    judged = ""
    if result.validity.judges:
        how = "rated" if result.validity.rubric is None else "judged criterion by criterion"
        judged = f" Its answers were {how} by {counted(len(result.validity.judges), 'judge')} (other language models)."
        judged += f" {line}." if (line := ratings_line(result)) is not None else ""
    return f"{who} was given {counted(asked, 'question')}{where}{repeated}.{judged}"


def meaning(result: TaskResult) -> str:
    """What the main score counts."""
    score = result.scores.get(result.main_metric)
    if score is None:
        return f"{result.main_metric} could not be computed: the notes say why."
    counts = {
        _SHARE: "a share: 0 is the worst, 1 the best",
        "rating": "the mean rating of the judges",
        "share of points": "the share of a rubric's points that answers win: 0 is the worst, 1 the best",
        "overlap": "how much of the wording is that of a reference answer",
        "F1": "F1, which weighs what was found against what was missed",
        "similarity": "how similar the answers are to reference answers",
        "errors per word": "errors per word of a reference answer",
    }
    unit = counts.get(score.unit or "")
    way = {True: "higher is better", False: "lower is better", None: ""}[score.higher_is_better]
    told = "; ".join(part for part in (f"it is {unit}" if unit else "", way) if part)
    over = f"over {counted(score.stats.count, 'instance')}"
    return f"{result.main_metric}, {over}" + (f" ({told})." if told else ".")


def how_sure(result: TaskResult) -> str:
    score = result.scores.get(result.main_metric)
    if score is None:
        return ""
    if not interval(score):
        return "There are too few instances for an interval: how far chance moved this score is not known."
    between = interval(score).replace(" to ", " and ")
    return f"With 95 % confidence the score on all such questions is between {between}."


def missing_scores(result: TaskResult) -> str:
    """Why a score may not be reported, beside the reasons that the result states; empty where that is none."""
    instances = result.validity.instances
    gaps = instances.scored < instances.requested
    if result.reportable or not (gaps or not result.validity.not_reportable):
        return ""
    again = " The same command asks for what is missing." if result.something_to_ask else ""
    return f"{instances.scored:,} of {instances.requested:,} instances have a score of their own.{again}"


def troubles(instances: Instances) -> Iterator[Trouble]:
    """What went wrong, the worst first."""
    told = (
        (instances.failed, "got no answer: the request failed", "failed"),
        (instances.filtered, "withheld by the endpoint's content filter", "filtered"),
        (instances.empty, "answered with nothing at all", "empty"),
        (instances.thinking_unfinished, "cut off while the model was still thinking", "thinking_unfinished"),
        (instances.unparsed, "answered in no form that the benchmark can read", "unparsed"),
        (instances.unjudged, "answered, but the judgements that a score needs are missing", "unjudged"),
        (instances.prompt_truncated, "asked with a prompt that was cut", "prompt_truncated"),
        (instances.refused, "declined by the model", "refused"),
        (instances.truncated, "ended at the token limit", "cut_off"),
    )
    return (Trouble(count, said, flag) for count, said, flag in told if count)


def beside_chance(result: TaskResult, label: str) -> str:
    """A score beside the best answer that needs no model; empty where that is not known."""
    floor, score = result.validity.floors.get(label), result.scores.get(label)
    if floor is None or score is None:
        return ""
    least = f"The best answer that needs no model ({floor.named}) scores {amount(floor.value, score)}."
    unknown = " No judge was asked about such an answer: what a text that fits every question gets is not known."
    return f"{least} {_above(score, floor)}{unknown if floor.assumed else ''}"


def _above(score: Score, floor: Floor) -> str:
    sign = -1 if floor.lower_is_better else 1
    end = score.stats.ci_high if floor.lower_is_better else score.stats.ci_low
    if sign * score.value <= sign * floor.value:
        return "This model is no better than that."
    if end is None or sign * end <= sign * floor.value:
        return "This model scores better, but its interval reaches down to it: chance may explain the gap."
    return _IS_ABOVE


def chance_may_explain(result: TaskResult) -> bool:
    """Whether the main score is not shown to be better than what needs no model, as far as that is known."""
    floor, score = result.validity.floors.get(result.main_metric), result.scores.get(result.main_metric)
    return floor is not None and score is not None and _above(score, floor) != _IS_ABOVE


def corrected(result: TaskResult) -> Score | None:
    return result.scores.get(f"{result.main_metric}{CORRECTED}")


def leaderboard(result: TaskResult) -> str:
    record = result.comparability
    if record is None:
        return ""
    if record.reason:
        return f"{record.reason}."
    if record.medhelm_settings:
        return "The settings are those of MedHELM's leaderboard."
    differ = "setting differs" if len(record.deviations) == 1 else "settings differ"
    return f"{len(record.deviations)} {differ} from MedHELM's leaderboard: do not put this score beside its scores."
