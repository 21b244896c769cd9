"""Answers that nothing was read from: empty, cut off while the model was thinking, in no form that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eval_factory.core.results import Instances, Score
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.helm.main_metric import chosen_main_metric
from eval_factory.helm.trivial_answers import LONGEST_LABEL
from eval_factory.plan.run_plan import EndpointPlan, Plan
from eval_factory.scoring.answer_forms import Form, form_of, nothing_is_right
from eval_factory.scoring.lenient import LENIENT, METRIC, label_in, lenient_metrics
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.refusals import is_refusal
from eval_factory.scoring.request_states import was_filtered

MAX_IDENTICAL, ENOUGH_TO_TELL = 0.1, 20
"""Share of the answers that may be equal without a note, and answers from which a share is told."""

REFUSAL_REASON = "refusal"
"""What some gateways give as the reason why an answer ended."""


@dataclass(frozen=True)
class Raw:
    """What an answer was before the thinking was taken out of it."""

    stripped: bool = False
    """Whether something was taken out: what is scored is not what the endpoint gave."""
    unfinished: bool = False
    """Whether it ends in the middle of the thinking."""
    declined: bool = False
    """Whether the endpoint itself says that the model refused."""


def raw_of(response: Any, model: EndpointPlan) -> tuple[Raw, str | None]:
    """Of an answer as the endpoint gave it, with what the model thought before it answered: between the markers, or in
    a field of its own; None: not given."""
    try:
        choice = openai_api.read_answer(response, model.endpoint_type)[0]
    except openai_api.UnusableAnswer:  # kept by an older version
        return Raw(), None
    cut_off = choice.finish_reason == openai_api.CUT_OFF
    split = model.adapter.without_reasoning(choice.text, cut_off=cut_off)
    message = response["choices"][0].get("message")
    raw = Raw(
        stripped=split.answer != choice.text,
        unfinished=split.unfinished or (cut_off and not split.answer.strip() and bool(choice.reasoning)),
        declined=choice.finish_reason == REFUSAL_REASON or (isinstance(message, dict) and bool(message.get("refusal"))),
    )
    thoughts = [part.strip() for part in (choice.reasoning, split.thought) if part]
    return raw, "\n\n".join(part for part in thoughts if part) or None


@dataclass
class EqualAnswers:
    """Answers that are the same to different questions, but for case and white space. Only hashes are stored."""

    times: Counter[int] = field(default_factory=Counter)
    """Hash of an answer -> how often it was given."""
    question: dict[int, int] = field(default_factory=dict)
    """The same -> hash of the first question that it was given to."""
    shared: set[int] = field(default_factory=set)
    """Of answers to different questions: the same question may be asked several times, and stand in the data twice."""

    def add(self, question: str, answer: str) -> None:
        text = hash(" ".join(answer.casefold().split()))
        self.times[text] += 1
        if self.question.setdefault(text, hash(question)) != hash(question):
            self.shared.add(text)

    @property
    def count(self) -> int:
        return sum(self.times[text] for text in self.shared)


@dataclass
class Readability:
    """What was read from the answers of a run, counted request by request."""

    form: Form | None
    look_up: Callable[[output.RequestState], Raw | None]
    """The answer to a request as it was kept; None where it is not there any more."""
    unparsed: set[InstanceKey] = field(default_factory=set)
    refused: set[InstanceKey] = field(default_factory=set)
    stripped: set[InstanceKey] = field(default_factory=set)
    unfinished: set[InstanceKey] = field(default_factory=set)
    nothing: set[InstanceKey] = field(default_factory=set)
    """Empty where something had to be said, and not because of unfinished thinking."""
    prompt_truncated: set[InstanceKey] = field(default_factory=set)
    lenient: dict[InstanceKey, float] = field(default_factory=dict)
    same: EqualAnswers = field(default_factory=EqualAnswers)
    named: set[InstanceKey] = field(default_factory=set)
    """In whose answers the lenient readings find one option."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        run: output.HelmRun,
        metrics: Sequence[MetricValues],
        look_up: Callable[[output.RequestState], Raw | None],
    ) -> Readability:
        entry = plan.evaluation.task.helm
        main, _ = chosen_main_metric(entry, [metric.label for metric in metrics])
        return cls(form_of(entry, run, main), look_up)

    def add(self, key: InstanceKey, state: output.RequestState, answer: str | None) -> None:
        """One request. `answer` is None where it failed."""
        if state.prompt_truncated:
            self.prompt_truncated.add(key)
        if answer is None or was_filtered(state):
            return
        raw = self.look_up(state) or Raw()
        if raw.stripped:
            self.stripped.add(key)
        # Equal answers are normal where they are labels: options, a form, or short texts.
        if self.form is None and not state.output_mapping and key[2] is None and len(answer.strip()) > LONGEST_LABEL:
            self.same.add(state.instance.input.text, answer)
        found = self.form is not None and bool(answer.strip()) and self.form.reads(state, answer)
        refused = not found and (raw.declined or is_refusal(answer))
        self._rate(key, state, "" if refused else answer)
        if refused:
            self.refused.add(key)
        elif not found:
            self._unread(key, state, answer, raw)

    def _rate(self, key: InstanceKey, state: output.RequestState, answer: str) -> None:
        """By the lenient rule; what HELM finds too is not looked for."""
        labels = self.form.labels(state) if self.form is not None else {}
        if self.form is not None and labels:
            alone = answer.strip()
            label = alone if alone in labels else label_in(answer, self.form.options(state))
            self.lenient[key] = float(self.form.is_right(state, label))
            if label is not None:
                self.named.add(key)

    def _unread(self, key: InstanceKey, state: output.RequestState, answer: str, raw: Raw) -> None:
        """Where nothing of a form was found: open text has none."""
        if raw.unfinished:
            self.unfinished.add(key)
        elif answer.strip():
            if self.form is not None:
                self.unparsed.add(key)
        elif _had_to_say_something(state):
            self.nothing.add(key)

    def counted(self, instances: Instances) -> Instances:
        """With what was counted here."""
        return replace(
            instances,
            unparsed=len(self.unparsed),
            refused=len(self.refused),
            thinking_stripped=len(self.stripped),
            thinking_unfinished=len(self.unfinished),
            prompt_truncated=len(self.prompt_truncated),
            unreadable=len(self.unparsed | self.unfinished | self.nothing),
            identical=self.same.count,
        )

    def metrics(self, metrics: Sequence[MetricValues]) -> list[MetricValues]:
        """The lenient ones, where questions have options."""
        return lenient_metrics(metrics, self.lenient) if self.lenient else []

    def signs_of(self, key: InstanceKey) -> tuple[str, ...]:
        """What is to be said of one instance's answer, by the names of the counts."""
        return tuple(name for name, keys in self._named() if key in keys)

    def _named(self) -> Iterator[tuple[str, set[InstanceKey]]]:
        yield "unparsed", self.unparsed
        yield "refused", self.refused
        yield "thinking_stripped", self.stripped
        yield "thinking_unfinished", self.unfinished
        yield "prompt_truncated", self.prompt_truncated

    def notes(self, plan: Plan, instances: Instances, scores: Mapping[str, Score]) -> Iterator[Note]:
        """What a reader has to know of it."""
        answered = instances.requested - instances.failed
        if self.unparsed and self.form is not None:
            told = (
                f"{len(self.unparsed)} of {answered} answers are not in the form that the benchmark asks for"
                f" ({self.form.about}): HELM's metrics read nothing from them"
            )
            if self.lenient:
                read = len(self.unparsed & self.named)
                told += f"; {read} of them state one option in other words or signs, which {METRIC}{LENIENT} reads"
            yield Note(Importance.INCOMPLETE, told)
        if self.unfinished:
            cut = f"{len(self.unfinished)} of {answered} answers were cut off while the model was thinking"
            yield Note(Importance.INCOMPLETE, cut)
        if self.prompt_truncated:
            length = plan.evaluation.run.config.params.extra.max_length
            cut = f"{len(self.prompt_truncated)} of {instances.requested} prompts were cut"
            told = f"{cut} to max_length ({length} tokens): the model saw a part of them only"
            yield Note(Importance.INCOMPLETE, told)
        yield from _notes_on_leniency(scores)
        if answered >= ENOUGH_TO_TELL and instances.identical / answered > MAX_IDENTICAL:
            yield Note(
                Importance.DOUBTFUL,
                f"{instances.identical} of {answered} answers are word for word the answer to another question too: a"
                " text that fits any question may get good marks",
            )
        if self.refused:
            declined = (
                f"{len(self.refused)} of {answered} answers decline to answer; they count as HELM's metrics score them"
            )
            yield Note(Importance.DOUBTFUL, declined)
        if self.stripped:
            adapter = plan.model.adapter
            markers = f"{adapter.start_reasoning_token} to {adapter.end_reasoning_token}, or another model's markers"
            yield Note(
                Importance.DOUBTFUL,
                f"thinking ({markers}) was taken out of {len(self.stripped)} of {answered} answers before they were"
                " scored: bare HELM scores all of it",
            )


def _notes_on_leniency(scores: Mapping[str, Score]) -> Iterator[Note]:
    for label, score in scores.items():
        helm = scores.get(label.replace(LENIENT, "", 1)) if score.metric == METRIC + LENIENT else None
        if helm is not None and helm.value != score.value:
            yield Note(
                Importance.INCOMPLETE,
                f"{label} is {score.value:.4f}, HELM's own value {helm.value:.4f}: a gap of"
                f" {score.value - helm.value:+.4f} for answers that state the option in other words or signs"
                ' ("B.", "(B)", "The answer is B")',
            )


def _had_to_say_something(state: output.RequestState) -> bool:
    """Not where no token was granted (the prompt alone is measured), and not where nothing is a right answer."""
    return state.request.get("max_tokens") != 0 and not nothing_is_right(state)
