"""Counts the requests and answers of a finished run: failed, empty, cut off, unjudged.

The module also finds the source of each instance, such as a patient's note. Instances of one source
are not independent. A task declares in framework.yml (`helm.cluster`) how its sources are found.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eval_factory.core import formats
from eval_factory.core.failure_causes import Causes
from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, Instances, JudgeCounts, Score
from eval_factory.endpoint import finish_reasons
from eval_factory.helm import names, output
from eval_factory.helm.output import groups_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring import request_states
from eval_factory.scoring.agreement import Ratings
from eval_factory.scoring.intervals import note_on_few_sources
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.asking_forms import is_further_asking
from eval_factory.tasks.custom_table import QUASI_METRICS, becomes_nothing
from eval_factory.tasks.framework import ClusterRule
from eval_factory.tasks.jury_form import HELMS_JURY_FORM, SHARES_FORM

_MAX_SOURCE_NAME = 80  # the maximum length of a source's name, in characters
MAX_REASON = 40  # the maximum length of a finish reason in a note, in characters


@dataclass(frozen=True)
class SourceFinder:
    """Finds the sources of a task's instances, by the task's rule and by known sources."""

    rule: ClusterRule
    # the text that the rule finds in an instance -> the source that the data files state for it
    recorded: Mapping[str, str] = field(default_factory=dict)
    # id of an instance -> its source in the stored result; empty unless a data file was deleted
    remembered: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        rule: ClusterRule | None,
        folder: Path,
        remembered: Mapping[str, str] = MappingProxyType({}),
    ) -> SourceFinder | None:
        """Return the finder; None if the task declares no rule.

        Args:
            rule: the task's rule.
            folder: the folder of the scenario's data.
            remembered: a dict from the id of an instance to its source in the stored result. Used
                if a data file that the rule needs was deleted since.
        """
        if rule is None:
            return None
        if remembered and not all((folder / name).is_file() for name in rule.records):
            return cls(rule, remembered=remembered)
        recorded: dict[str, str] = {}
        for name in rule.records:
            try:
                loaded = json.loads((folder / name).read_bytes())
            except (OSError, ValueError):  # without the file, each instance is its own source
                continue
            if isinstance(loaded, list):
                recorded.update(_sources_in(loaded, rule))
        return cls(rule, recorded)

    def source_of(self, instance: output.Instance) -> str:
        """Return the name of an instance's source, on one line.

        Return a hash instead of a long text, because the text may be a patient's note. Return the
        instance's id if its source is unknown: the instance is then a source of its own.
        """
        if self.remembered:
            return self.remembered.get(instance.id, instance.id)
        text = self.rule.value_in(instance.input.text, instance.extra_data or {})
        if text is not None and self.rule.records:
            text = self.recorded.get(text)
        line = " ".join((text or "").split())
        if not line:
            return instance.id
        if len(line) <= _MAX_SOURCE_NAME:
            return line
        return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _sources_in(records: Sequence[Any], rule: ClusterRule) -> Iterator[tuple[str, str]]:
    """Yield (key, source) for each record of a data file that has a key and a source.

    A rule lists several fields for the source; the first field with a value counts.
    """
    for record in records:
        if not isinstance(record, Mapping):
            continue
        key = record.get(rule.key or "")  # `or ""` for the type checker: such a rule has a key
        sources = [record[name] for name in rule.labels if record.get(name)]
        if key and sources:
            yield str(key), str(sources[0])


@dataclass
class Tally(Part):
    """The part of a result that counts requests and answers.

    Most counts are sets of instances, because later parts need the instances themselves.
    """

    judges: dict[str, JudgeCounts] = field(default_factory=dict)  # role -> counts of judgements
    requested: set[InstanceKey] = field(default_factory=set)  # all instances that were asked
    splits: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # split -> ids
    failed: set[InstanceKey] = field(default_factory=set)  # the instances without a usable answer
    unscorable: dict[InstanceKey, tuple[str, str | None]] = field(default_factory=dict)
    """Failed instance with an answer -> (the reason why HELM cannot score the answer, the split).

    These instances are not asked again.
    """
    # the instances whose answer a content filter withheld
    filtered: set[InstanceKey] = field(default_factory=set)
    # the instances with an empty answer; filtered instances are not included
    empty: set[InstanceKey] = field(default_factory=set)
    # the instances whose answer was cut off at the token limit
    truncated: set[InstanceKey] = field(default_factory=set)
    unknown_reasons: Counter[str] = field(default_factory=Counter)
    """Finish reason that this program does not know -> the number of answers that ended with it."""
    unjudged: set[InstanceKey] = field(default_factory=set)
    """The instances with an answer that no judge rated; for a rubric, the `unscored_cases`.

    The result counts these instances. A jury's metric has no usable value of them; other metrics
    have.
    """
    unscored_cases: set[InstanceKey] = field(default_factory=set)
    """The cases of a rubric that have an answer, but a criterion that no judge decided.

    No metric of the run has a usable value of these cases. Empty if the run has no rubric.
    """
    members: dict[str, dict[str, list[InstanceKey]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Field, such as the specialty -> value -> the instances with this value."""
    ratings: Ratings = field(default_factory=Ratings)
    injected: int = 0  # the number of answers that give instructions to their judges
    # the number of instances with a right answer that quasi metrics normalise to an empty text
    emptied_right_answers: int = 0
    has_pictures: bool = False  # True if any question shows a picture
    # the instances that repeat the question of an earlier instance
    repeated: request_states.RepeatedInstances = field(
        default_factory=request_states.RepeatedInstances
    )
    # id of an instance -> the name of its source
    clusters: dict[str, str] = field(default_factory=dict)
    # None if the task declares no rule for sources
    source_finder: SourceFinder | None = None
    is_quasi: bool = False  # True if HELM computed a quasi metric, such as quasi_exact_match
    # the SHA-256 of all prompts, except those of further askings
    prompts_hash: Any = field(default_factory=hashlib.sha256)
    causes: Causes = field(default_factory=Causes)  # why requests to the model or judges failed

    @classmethod
    def of(
        cls, plan: Plan, run: output.HelmRun, remembered: Mapping[str, str] = MappingProxyType({})
    ) -> Tally:
        """Return a tally without any requests.

        Args:
            plan: the plan of the run.
            run: HELM's run.
            remembered: a dict from the id of an instance to its source in the stored result.
        """
        helm = plan.evaluation.task.helm
        data = output.scenario_folder(plan.rundir.helm, run.scenario_name or helm.scenario)
        benchmark = plan.evaluation.benchmark
        form = HELMS_JURY_FORM
        if benchmark is not None:
            form = benchmark.jury_form
        elif run.jury is not None and run.jury.annotation in names.SHARE_JURIES:
            form = SHARES_FORM
        return cls(
            ratings=Ratings(form=form),
            source_finder=SourceFinder.of(helm.cluster, data, remembered),
            is_quasi=any(stat.name.name in QUASI_METRICS for stat in run.stats),
        )

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Count a request and its answer, and add the facts about its instance."""
        self._see_prompt(key, state)
        self._see_instance(key, state.instance)
        has_failed = self.count_request(key, state)
        if not has_failed:
            self._see_answer(key, state)

    def _see_prompt(self, key: InstanceKey, state: output.RequestState) -> None:
        """Add the prompt to the hash of all prompts, and the question to the repeated questions."""
        instance = state.instance
        sent = (
            request_states.media_prompt_of(state)
            or state.request.get("messages")
            or state.request.get("prompt")
        )
        _, _, perturbation = key  # for further askings, the name of the asking
        if not is_further_asking(perturbation):
            self.prompts_hash.update(json.dumps([instance.id, sent]).encode())
        if instance.perturbation is None:
            # The text of a conversation is empty; its messages contain the question.
            question = instance.input.text or json.dumps(sent)
            gold, choices = request_states.gold_and_choices(instance)
            self.repeated.add(instance.id, f"{instance.split}: {question}", gold, choices)

    def _see_instance(self, key: InstanceKey, instance: output.Instance) -> None:
        """Add the instance to its split and groups, and count the facts about its question."""
        self.splits[instance.split or ""].add(instance.id)
        source_field = None
        if self.source_finder is not None:
            source_field = self.source_finder.rule.field
            # A perturbation may alter the words that the rule finds. The source of the original
            # text therefore replaces that of a perturbed text.
            if instance.perturbation is None or instance.id not in self.clusters:
                self.clusters[instance.id] = self.source_finder.source_of(instance)
        for name, value in groups_of(instance, source_field).items():
            self.members[name][value].append(key)
        self.has_pictures = self.has_pictures or request_states.shows_picture(instance)
        if self.is_quasi:
            right_texts = [
                reference.output.text
                for reference in instance.references
                if output.CORRECT_TAG in reference.tags
            ]
            if any(map(becomes_nothing, right_texts)):
                self.emptied_right_answers += 1

    def _see_answer(self, key: InstanceKey, state: output.RequestState) -> None:
        """Count an answer that is withheld, empty, cut off, or ended for an unknown reason."""
        if request_states.was_filtered(state):
            self.filtered.add(key)
        elif not request_states.answer_text_of(state).strip():
            self.empty.add(key)
        reason = request_states.finish_reason_of(state)
        kind = finish_reasons.kind_of(reason)
        if kind == FinishReason.LENGTH:
            self.truncated.add(key)
        if reason is not None and kind is None:
            self.unknown_reasons[one_line(str(reason), MAX_REASON)] += 1

    def see_other_form(self, key: InstanceKey, state: output.RequestState) -> None:
        """Count the request, and its failure if it failed; do not count the answer."""
        self.count_request(key, state)

    def count_request(self, key: InstanceKey, state: output.RequestState) -> bool:
        """Count a request, and its failure if it failed.

        Returns:
            True if the request failed.
        """
        self.requested.add(key)
        if not request_states.has_failed(state):
            return False
        error = ""
        if state.result is not None and state.result.error:
            error = state.result.error
        self.add_failure(key, error)
        if error.startswith(names.UNSCORABLE_PREFIX):
            self.unscorable[key] = error.removeprefix(names.UNSCORABLE_PREFIX), state.instance.split
        return True

    def add_failure(self, key: InstanceKey, error: str) -> None:
        """Count an instance as failed, with this error message."""
        self.failed.add(key)
        self.causes.add(MODEL_ROLE, error)

    @property
    def something_to_ask(self) -> bool:
        """True if running the same command again would ask the model or a judge again."""
        return bool(self.failed - self.unscorable.keys()) or any(
            counts.failed for counts in self.judges.values()
        )

    @property
    def silent_instances(self) -> set[InstanceKey]:
        """The instances whose answer is empty or was withheld by a content filter."""
        return self.empty | self.filtered

    def counts(self, missing: set[InstanceKey]) -> Instances:
        """Return the numbers of instances.

        Args:
            missing: the instances without a usable value of the main metric.
        """
        return Instances(
            requested=len(self.requested),
            scored=len(self.requested - missing),
            failed=len(self.failed),
            empty=len(self.empty),
            truncated=len(self.truncated),
            filtered=len(self.filtered),
            unjudged=len(self.unjudged),
        )


def notes_on_clusters(
    rule: ClusterRule | None, clusters: Mapping[str, str], main: Score | None
) -> list[Note]:
    """Return the notes on instances that share a source.

    Args:
        rule: the task's rule for sources; None if the task declares no rule.
        clusters: a dict from the id of an instance to its source.
        main: the main score.
    """
    if rule is None:
        return []
    count = len(clusters)
    sources = len(set(clusters.values()))
    notes = []
    if sources < count:
        shared = f"the {count} instances come from {sources} sources ({rule.what})"
        dependent = "the intervals do not count instances of one source as independent"
        notes.append(Note(Importance.BACKGROUND, f"{shared}: {dependent}"))
    few = note_on_few_sources(list(clusters.values()))
    if few is not None:
        notes.append(Note(Importance.DOUBTFUL, f"{few} ({rule.what})"))
    if main is None or main.stats.design_effect is None:
        return notes
    effect = main.stats.design_effect
    if effect > 2:  # a smaller effect is not worth a note
        # The sample is worth as much as this number of independent instances.
        independent = formats.decimals(main.stats.count / effect, 0)
        text = (
            f"the {main.stats.count} instances of the main score are worth {independent} "
            f"independent instances: the design effect is {formats.decimals(effect, 1)} "
            f"({rule.what}); the interval allows for this"
        )
        notes.append(Note(Importance.BACKGROUND, text))
    return notes
