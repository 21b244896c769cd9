"""Asks the questions of a run in rounds, because a further turn can only follow an answer.

A further asking asks a question again in another form (`further_askings.py`). Round 0 asks every
question whose text depends on no answer: the original questions, and most of their further askings.
Each later round adds a further turn to a conversation: a pushback, which calls the answer into
question, or a question about the confidence or about the letter of the chosen option.

Round 1 also asks the chance repeats: questions in the same words, whose changed answers show how
often an answer changes by chance.

In this module, a "state" is HELM's `RequestState`: a question with the request that asks it and,
later, the request's result.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from helm.benchmark.adaptation.request_state import RequestState
from helm.benchmark.adaptation.scenario_state import ScenarioState
from helm.common.request import GeneratedOutput, RequestResult

from eval_factory.core.safe_files import write_atomic
from eval_factory.endpoint.media import FILE_MARK
from eval_factory.helm import names
from eval_factory.helm_plugin.blind_control import BlindControl
from eval_factory.helm_plugin.further_askings import ORIGINAL_ASKING, asking_name
from eval_factory.tasks import asking_forms
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.rubric_case import ANSWER_KEY

NO_ANSWER = "(no answer)"
"""The text that replaces an empty answer in a conversation: many endpoints refuse an empty turn."""
REPLY_FILES = {
    asking_forms.CONFIDENCE_ASKING: names.CONFIDENCE_FILE,
    asking_forms.LETTER_ASKING: names.LETTERS_FILE,
}
"""The name of an asking -> the file for the replies to this asking. No metric of HELM reads these
replies.
"""
_TURN_TEXTS = {
    asking_forms.CONFIDENCE_ASKING: asking_forms.CONFIDENCE_QUESTION,
    asking_forms.LETTER_ASKING: asking_forms.LETTER_QUESTION,
}
"""The name of an asking -> the text of its further turn. Pushbacks have several texts
(`asking_forms.pushback_text`).
"""


class AskingKey(NamedTuple):
    """The key of a state, which is unique in a run."""

    instance: str  # the instance's id
    trial: int  # HELM's `train_trial_index`
    asking: str  # see `asking_name`


def _key(state: RequestState) -> AskingKey:
    return AskingKey(str(state.instance.id), state.train_trial_index, asking_name(state))


def _original_key(state: RequestState) -> AskingKey:
    """Return the key of the same question in its original form."""
    return _key(state)._replace(asking=ORIGINAL_ASKING)


class AskingExecutor:
    """A wrapper of HELM's executor that asks in rounds.

    HELM's executor alone executes a run without further askings. If the data contain all answers
    (`has_answers`), no model is asked. The key `ANSWER_KEY` of an instance does not prove that the
    data contain answers, because a column of a user's table may have the same name.
    """

    def __init__(
        self, helms_executor: Any, output_path: Path, *, has_answers: bool = False
    ) -> None:
        self._helms_executor = helms_executor
        self._has_answers = has_answers
        self.execution_spec = helms_executor.execution_spec  # HELM's runner reads this attribute.
        self._output_path = output_path

    def execute(self, scenario_state: ScenarioState) -> ScenarioState:
        """Return the scenario state with the answers that HELM scores.

        Replies about the confidence or the letter are written to files and are not returned. An
        asking that turned out not to be needed is not returned either.
        """
        states = scenario_state.request_states
        if self._has_answers:
            return replace(scenario_state, request_states=list(map(_with_answer_in_data, states)))
        # Most runs have no pictures, and need no copy of all states.
        if any(state.instance.input.multimedia_content for state in states):
            states = list(map(with_pictures_sent, states))
            scenario_state = replace(scenario_state, request_states=states)
        if asking_forms.ANSWER_WITH_CONFIDENCE in scenario_state.adapter_spec.instructions:
            return self._execute_with_confidence(scenario_state)
        if any(asking_forms.is_further_asking(asking_name(state)) for state in states):
            return self._execute_in_rounds(scenario_state)
        return self._helms_executor.execute(scenario_state)

    def _execute_with_confidence(self, scenario_state: ScenarioState) -> ScenarioState:
        """Ask questions whose answers also state the confidence (`confidence: stated_only`)."""
        executed = self._helms_executor.execute(scenario_state)
        file = self._output_path / names.CONFIDENCE_FILE
        write_replies(file, executed.request_states, _stated_confidence)
        without_confidence = list(map(_without_confidence, executed.request_states))
        return replace(executed, request_states=without_confidence)

    def _execute_in_rounds(self, scenario_state: ScenarioState) -> ScenarioState:
        answered = self._ask_in_rounds(scenario_state)
        answered_states = []  # in HELM's order
        for state in scenario_state.request_states:
            if _key(state) in answered:
                answered_states.append(answered[_key(state)])
        # A file is also written if its asking turned out not to be needed for any question.
        askings = {asking_name(state) for state in scenario_state.request_states}
        for asking in askings & REPLY_FILES.keys():
            replies = [state for state in answered_states if asking_name(state) == asking]
            write_replies(self._output_path / REPLY_FILES[asking], replies)
        scored = [state for state in answered_states if asking_name(state) not in REPLY_FILES]
        return replace(scenario_state, request_states=scored)

    def _ask_in_rounds(self, scenario_state: ScenarioState) -> dict[AskingKey, RequestState]:
        """Ask all questions, and return the states with their results.

        A state whose asking turned out not to be needed is missing in the returned dict.
        """
        by_round: dict[int, list[RequestState]] = defaultdict(list)
        for state in scenario_state.request_states:
            by_round[_round_of(state)].append(state)
        blind_control = BlindControl(scenario_state.request_states, self._output_path)
        answered: dict[AskingKey, RequestState] = {}
        for round_number in sorted(by_round):
            states = by_round[round_number]
            to_ask = []
            if round_number == 0:
                for state in states:
                    prepared = with_enough_tokens(_with_own_draw(state))
                    to_ask.append(blind_control.with_pictures_replaced(prepared))
            else:
                for state in states:
                    if is_further_turn_needed(state, answered):
                        to_ask.append(with_further_turn(state, answered))
                for state in chance_repeats(states, answered):
                    to_ask.append(with_enough_tokens(_with_own_draw(state)))
            for state in self._ask(scenario_state, to_ask):
                answered[_key(state)] = state
        return answered

    def _ask(
        self, scenario_state: ScenarioState, states: Sequence[RequestState]
    ) -> list[RequestState]:
        """Ask the questions that have no result yet, and return all states with their results.

        Only a further turn after a failed request already has a result: that of the failed request.
        """
        with_result = [state for state in states if state.result is not None]
        to_ask = [state for state in states if state.result is None]
        if not to_ask:
            return with_result
        executed = self._helms_executor.execute(replace(scenario_state, request_states=to_ask))
        return [*with_result, *executed.request_states]


def _with_answer_in_data(state: RequestState) -> RequestState:
    """Return the state with the answer in the data as the model's answer.

    An earlier check of the data made sure that every question has an answer.
    """
    return replace(state, result=successful_result(state.instance.extra_data[ANSWER_KEY]))


def successful_result(text: str) -> RequestResult:
    """Return a successful result of HELM with this text as the model's answer."""
    output = GeneratedOutput(text, logprob=0, tokens=[], finish_reason={"reason": "stop"})
    return RequestResult(
        success=True, embedding=[], completions=[output], cached=True, request_time=0
    )


def with_pictures_sent(state: RequestState) -> RequestState:
    """Return the state with the pictures of its instance in its request.

    HELM's adapters for text leave the pictures out. A state is returned unchanged if its instance
    has no pictures, if the request already has the pictures, or if its text has no mark
    `FILE_MARK`.
    """
    pictures = state.instance.input.multimedia_content
    request = state.request
    if pictures is None or request.multimodal_prompt is not None:
        return state
    texts = [request.prompt, *(message["content"] for message in request.messages or ())]
    if not any(FILE_MARK in text for text in texts):
        return state
    return replace(state, request=replace(request, multimodal_prompt=pictures))


def write_replies(
    file: Path, states: Iterable[RequestState], reply_in: Callable[[str], str | None] = str
) -> None:
    """Write the replies to these questions into a JSON file.

    An entry of the file has the instance, the trial, the reply and the error. The reply is null if
    the request failed or the answer holds no reply. The error states why the request failed: a
    later run may then still get a reply.

    Args:
        file: the path of the JSON file.
        states: the questions with their results.
        reply_in: returns the reply that an answer holds, or None. By default, the complete answer
            is the reply.
    """
    entries = []
    for state in states:
        reply = None
        error = None
        if state.result and state.result.success:
            reply = reply_in(state.result.completions[0].text)
        elif state.result:
            error = state.result.error
        entries.append(
            {
                "instance": state.instance.id,
                "trial": state.train_trial_index,
                "reply": reply,
                "error": error,
            }
        )
    write_atomic(file, json.dumps(entries) + "\n")


def _stated_confidence(text: str) -> str | None:
    _answer, confidence = asking_forms.split_confidence(text)
    return confidence


def _without_confidence(state: RequestState) -> RequestState:
    """Return the state with an answer from which the stated confidence is removed."""
    if state.result is None or not state.result.success:
        return state
    completions = []
    for completion in state.result.completions:
        answer, _confidence = asking_forms.split_confidence(completion.text)
        completions.append(replace(completion, text=answer))
    return replace(state, result=replace(state.result, completions=completions))


def _round_of(state: RequestState) -> int:
    """Return the number of the round in which a question is asked."""
    if asking_name(state) in REPLY_FILES or _measures_chance(state):
        return 1  # after the original question
    return asking_forms.pushback_turn_of(asking_name(state))  # 0 if the asking is not a pushback


def _measures_chance(state: RequestState) -> bool:
    """Return True if the question is asked again in the same words, to measure chance."""
    return asking_name(state).startswith(asking_forms.SAME_WORDS_PREFIX)


def within_chance_limit(states: Sequence[RequestState]) -> list[RequestState]:
    """Return the states without those that exceed the limit on chance repeats.

    This is for counts and estimates before any answer is known. `chance_repeats` later chooses the
    questions that are repeated. Here the repeats come last in the returned list.
    """
    repeats = []
    others = []
    for state in states:
        if _measures_chance(state):
            repeats.append(state)
        else:
            others.append(state)
    return others + repeats[: _chance_limit(repeats)]


def _chance_limit(repeats: Sequence[RequestState]) -> int:
    """Return the maximum number of chance repeats, which each repeat's name states."""
    if not repeats:
        return 0
    return asking_forms.same_words_limit(asking_name(repeats[0]))


def chance_repeats(
    states: Iterable[RequestState], answered: Mapping[AskingKey, RequestState]
) -> list[RequestState]:
    """Return the states that repeat a question to measure chance: at most `_chance_limit` states.

    Questions with an answer that is known to be right come first. Then come questions with an
    answer that only HELM's later scoring can judge. Questions with a wrong answer are left out,
    because the repeats measure how many right answers turn wrong by chance.
    """
    known_right = []
    undecided = []
    for state in states:
        if not _measures_chance(state):
            continue
        is_original_right = is_right(answered[_original_key(state)])
        if is_original_right:
            known_right.append(state)
        elif is_original_right is None:
            undecided.append(state)
    known_right.sort(key=_random_rank)
    undecided.sort(key=_random_rank)
    candidates = known_right + undecided
    return candidates[: _chance_limit(candidates)]


def _random_rank(state: RequestState) -> bytes:
    """Return a hash that puts questions in a random order, which is equal in every run."""
    key = _key(state)
    return sha256(f"chance of {key.instance} {key.trial}".encode()).digest()  # any fixed text


def is_right(state: RequestState) -> bool | None:
    """Return True if the answer is right, False if wrong, and None if the text cannot decide.

    False is also returned for a failed request.
    """
    if state.result is None or not state.result.success:
        return False
    answer = label_in_answer(state)
    if answer is None:
        answer = state.result.completions[0].text.strip()
    right_texts = set()
    for reference in state.instance.references:
        if reference.is_correct:
            right_texts.add(reference.output.text.strip())
    text_by_label = state.output_mapping
    if text_by_label:
        if answer in text_by_label:
            return text_by_label[answer].strip() in right_texts
        return None
    # If every right reference is a letter, another letter is wrong. A longer answer may be right
    # although its text differs.
    if len(answer) == 1 and all(len(text) == 1 for text in right_texts):
        return answer in right_texts
    if answer in right_texts:
        return True
    return None


def label_in_answer(state: RequestState) -> str | None:
    """Return the label of the option that the answer states; None if the answer states no option.

    The request must have succeeded. The collector of scores reads answers in the same way.
    """
    # Imported late, because most runs have no further askings.
    from eval_factory.reading import stated_option

    answer: str = state.result.completions[0].text.strip()
    # the options by HELM, or those that the text of the question lists
    text_by_label = state.output_mapping or options_shown(state.instance.input.text)
    if not text_by_label:
        # Without listed options, each reference is a label, such as "yes", without a text.
        labels = [reference.output.text.strip() for reference in state.instance.references]
        text_by_label = dict.fromkeys(labels, "")
    if answer in text_by_label:
        return answer
    return stated_option(answer, text_by_label)


def _with_own_draw(state: RequestState) -> RequestState:
    """Return the state with a cache key of its own, if the question is asked for another draw.

    `random` is a part of the cache key, and is never sent. Without this change, the answer to the
    original question would be read from the cache.
    """
    name = asking_name(state)
    if not name.startswith((asking_forms.REPEAT_PREFIX, asking_forms.SAME_WORDS_PREFIX)):
        return state
    # The request may already have a value of `random`, which stays a part of the new value.
    own_random = f"{state.request.random} {name}" if state.request.random else name
    return replace(state, request=replace(state.request, random=own_random))


def is_further_turn_needed(state: RequestState, answered: Mapping[AskingKey, RequestState]) -> bool:
    """Return True if the further turn is asked.

    The letter of the chosen option is asked for only if the original request succeeded and its
    answer states no option.
    """
    if _measures_chance(state):
        return False  # This is no further turn, and `chance_repeats` decides.
    if asking_name(state) != asking_forms.LETTER_ASKING:
        return True
    original = answered[_original_key(state)]
    if original.result is None or not original.result.success:
        return False
    return label_in_answer(original) is None


def with_further_turn(
    state: RequestState, answered: Mapping[AskingKey, RequestState]
) -> RequestState:
    """Return the state with a request of the earlier turns, the earlier answer and a further turn.

    If the earlier request failed, the returned state has the failed result, and is not asked.
    """
    earlier = answered[_key_of_earlier_turn(state)]
    if earlier.result is None or not earlier.result.success:
        return replace(state, result=earlier.result)
    answer = earlier.result.completions[0].text
    new_text = _text_of_turn(state)
    request = earlier.request
    earlier_messages = request.messages or [{"role": "user", "content": request.prompt}]
    messages = [
        *earlier_messages,
        {"role": "assistant", "content": answer.strip() or NO_ANSWER},
        {"role": "user", "content": new_text},
    ]
    # Endpoints of the completions type read the prompt, all others read the messages.
    prompt = f"{request.prompt}{answer}\n\n{new_text}\n"
    # A stop sequence of the original question, such as a line break, could cut the reply.
    request = replace(request, messages=messages, prompt=prompt, stop_sequences=[])
    return with_enough_tokens(replace(state, request=request))


def _key_of_earlier_turn(state: RequestState) -> AskingKey:
    """Return the key of the asking whose answer the further turn follows."""
    turn = asking_forms.pushback_turn_of(asking_name(state))  # 0 if the further turn is no pushback
    if turn > 1:
        return _key(state)._replace(asking=f"{asking_forms.PUSHBACK_PREFIX}{turn - 1}")
    return _original_key(state)


def _text_of_turn(state: RequestState) -> str:
    turn = asking_forms.pushback_turn_of(asking_name(state))
    if turn:
        return asking_forms.pushback_text(str(state.instance.id), turn)
    return _TURN_TEXTS[asking_name(state)]


def with_enough_tokens(state: RequestState) -> RequestState:
    """Return the state with `max_tokens` raised to the number of tokens that its asking needs."""
    needed = asking_forms.MIN_ANSWER_TOKENS
    needs_more = asking_forms.has_more_tokens(asking_name(state))
    if not needs_more or state.request.max_tokens >= needed:
        return state
    return replace(state, request=replace(state.request, max_tokens=needed))
