"""medhelm's HealthBench: its prompts, its formula and its annotations, and the judges asked as ours are.

In its annotators a request that fails moves all later decisions to the criterion before. Here a judge that left one out
has not judged the answer. Which decision is about which criterion stands beside, for the corrected score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval_factory.endpoint.bridge import map_at_once
from eval_factory.helm import names
from eval_factory.helm.criteria import parse_decisions
from eval_factory.helm.judge_output import UnusableJudgeOutput, own_judgement, says_nothing
from eval_factory.helm_plugin.rubric.criterion_judge import NotJudged, judgement
from eval_factory.helm_plugin.session import run_record

_MET = "criteria_met"
"""A decision about a criterion; of the comparison with the physician's answer the mark, from 1 to 10."""
_MARKS = range(1, 11)
_NO_POINTS = "medhelm's formula gives no score where the points of a rubric add up to nothing"

Annotate = Callable[..., dict[str, Any]]
Decision = dict[str, Any]


def ask_about_each_criterion(_annotate: Annotate) -> Annotate:
    """HealthBench: each judge's score is of its own decisions."""

    def annotate(self: Any, state: Any) -> dict[str, Any]:
        return _annotation(self, state, professional=False)

    return annotate


def ask_about_each_criterion_and_the_physicians_answer(_annotate: Annotate) -> Annotate:
    """Professional: every judge is scored by the first one's decisions (medhelm never empties its list of them), and
    half of the score is its own mark of the answer beside the physician's."""

    def annotate(self: Any, state: Any) -> dict[str, Any]:
        return _annotation(self, state, professional=True)

    return annotate


def _annotation(self: Any, state: Any, *, professional: bool) -> dict[str, Any]:
    from helm.benchmark.annotation import health_bench_annotator as helms

    answer = state.result.completions[0].text if state.result else ""
    if says_nothing(answer):
        return {"prompt_text": None, "empty_output_equivalence_judgement": False}  # as medhelm has it
    rubrics = state.instance.extra_data["rubrics"]
    turns = [*(state.instance.input.messages or []), {"content": answer, "role": "assistant"}]
    conversation = "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
    template = self._prompt_template.replace("<<conversation>>", conversation)
    prompts = [template.replace("<<rubric_item>>", str(rubric)) for rubric in rubrics]
    run_record.note_prompt(self.name, self._prompt_template)
    judges, ask = self._annotator_models, self._auto_client.make_request
    physicians = state.instance.extra_data.get("physician_response") if professional else None
    compared = helms.EVAL_PROMPT.replace("<<user_message>>", conversation).replace("<<llm_response>>", answer)
    marks = [] if physicians is None else [compared.replace("<<physician_response>>", physicians)]

    def decide(question: tuple[str, str, bool]) -> Decision | NotJudged:
        name, prompt, is_mark = question
        judge = judges[name]

        def read(text: str) -> Decision:
            return _mark(text) if is_mark else parse_decisions(text, 1, answer)[0].as_dict()

        return judgement(judge.model_name, judge.model_deployment, prompt, ask, read)

    asked = [(name, prompt, prompt in marks) for name in judges for prompt in (*prompts, *marks)]
    found = iter(map_at_once(decide, asked, len(asked)))
    outcomes = {name: [next(found) for _ in (*prompts, *marks)] for name in judges}
    return _scored(outcomes, rubrics, helms.calculate_score, has_mark=bool(marks), professional=professional)


def _scored(
    outcomes: Mapping[str, Sequence[Decision | NotJudged]],
    rubrics: Sequence[Any],
    score_of: Callable[[list[Any], list[Decision]], float | None],
    *,
    has_mark: bool,
    professional: bool,
) -> dict[str, Any]:
    """As medhelm writes them down; beside that each judge's decisions in the rubric's order, and who did not judge."""
    annotation: dict[str, Any] = {}
    decided: dict[str, list[bool]] = {}
    missing: dict[str, str] = {}
    so_far: list[Decision] = []
    for name, said in outcomes.items():
        failed = [one for one in said if isinstance(one, NotJudged)]
        own = [one for one in said if not isinstance(one, NotJudged)]
        if failed:
            missing[name] = f"{len(failed)} of {len(said)} decisions are missing: {failed[0]}"
            continue
        so_far = [*so_far, *own] if professional else own
        score = score_of(list(rubrics), so_far)
        if score is None:
            missing[name] = _NO_POINTS
            continue
        if has_mark:
            score = (score + own[-1][_MET] / 10) / 2
        annotation[name] = {"accuracy": {"score": score, "criteria": so_far}}
        decided[name] = [one[_MET] for one in own[: len(rubrics)]]
    beside = {names.DECISIONS: decided} if decided else {}
    return {**annotation, **beside, **({names.NOT_JUDGED: missing} if missing else {})}


def _mark(text: str) -> Decision:
    """Raises UnusableJudgeOutput: it holds no whole number from 1 to 10."""

    def read(found: dict[str, Any]) -> Decision:
        mark = found[_MET]
        if type(mark) is not int or mark not in _MARKS:
            raise UnusableJudgeOutput(f'"{_MET}" is no whole number from 1 to 10')
        return found

    return own_judgement(
        text,
        holds=lambda found: _MET in found,
        wanted=f'"{_MET}"',
        stands=lambda _found: False,
        judged_is="answer",
        read=read,
        verdict=lambda found: found[_MET],
    )
