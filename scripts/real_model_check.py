#!/usr/bin/env python3
"""Runs the sample benchmark with every option of docs/does-it-hold.md on a small real model, and a
jury and a rubric with it as the judge; checks what must hold of any model.

    scripts/real_model.sh up && python scripts/real_model_check.py http://127.0.0.1:8950/v1 FOLDER

`--no-run` checks the results that are in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eval_factory.core.results import ALL_ORDERS_SUFFIX, REPEATS_MEAN_SUFFIX
from eval_factory.demo.example import write_example
from eval_factory.reading import stated_option
from eval_factory.tasks.asking_forms import ABSTAIN_ASKING, I_DO_NOT_KNOW, says_not_to_know
from eval_factory.tasks.choice_question import LETTERS
from eval_factory.tasks.perturbations import FAMILIES
from eval_factory.tasks.reasoned import stated_at_end

MODEL = "smollm2-135m-instruct"
SAMPLE = "sample_medical_qa"
ANY_QUALITY = {"max_unreadable": 1.0, "max_judge_failures": 1.0, "min_coverage": 0.0}
"""Such a model is a poor doctor, and a worse judge: that is no reason to stop."""
FINISHED = (0, 1)  # exit codes of a run that has a result: it may be reported, or may not
REFUSED = 2
FEW = 10  # questions of the runs that ask in one more way; the first run asks all in most ways
JUDGED = 4
TOKENS_OF_JUDGE = 120  # such a judge often goes on until its tokens are used up
AS_IT_IS = ""
_LETTER = re.compile(r"\W*([A-D])(?:[.):\s]|$)")

OF_SEVERAL_ANSWERS = (
    REPEATS_MEAN_SUFFIX,
    ALL_ORDERS_SUFFIX,
)  # ends of names of metrics over several askings

Record = Mapping[str, Any]


@dataclass(frozen=True)
class SampleRun:
    """One run of the sample benchmark, in some of the ways of docs/does-it-hold.md."""

    extra: Record
    asks_few: bool = True


SAMPLE_RUNS = {
    "choices": SampleRun(
        {
            "perturb": ["typos", "case"],
            "pushback": 2,
            "confidence": "stated",
            "allow_abstain": True,
            "shuffle_choices": 2,
            "options_only": True,
            "none_of_the_others": True,
            "ask_unread": True,
        },
        asks_few=False,
    ),
    "repeats": SampleRun(
        {
            "repeats": 3,
            "perturb": list(FAMILIES),
            "perturb_unchecked": True,
            "pushback": 1,
            "allow_abstain": True,
            "cost_of_wrong": 2,
        }
    ),
    "in_one": SampleRun({"confidence": "stated_only"}),
    "logprobs": SampleRun({"confidence": "logprobs", "chance_questions": 0, "pushback": 1}),
    "reasoned": SampleRun(
        {
            "answer_style": "reasoned",
            "num_output_tokens": 400,
            "repeats": 2,
            "perturb": ["typos"],
            "pushback": 1,
            "shuffle_choices": 2,
        }
    ),
}
"""Folder -> how its run asks."""
WITHOUT_PICTURES = {"blind_control": True}
"""The one way in which the sample benchmark cannot be asked: it has no pictures."""


@dataclass(frozen=True)
class Program:
    """The program's `run_eval` of the model at `url`; folders are made in `folder`."""

    url: str
    folder: Path

    def run(self, task: str, name: str, questions: int, extra: Record) -> int:
        """Return the exit code."""
        config = {
            "type": task,
            "output_dir": str(self.folder / name),
            "params": {
                "limit_samples": questions,
                "parallelism": 2,
                "temperature": 0.7,
                "request_timeout": 900,
                "extra": {**ANY_QUALITY, **extra},
            },
        }
        endpoint = {"url": self.url, "model_id": MODEL, "type": "chat", "api_key": None}
        document = {"config": config, "target": {"api_endpoint": endpoint}}
        file = self.folder / f"{name}.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        program = Path(sys.executable).with_name("eval-factory")
        finished = subprocess.run([program, "run_eval", "--run_config", file], check=False)
        return finished.returncode

    def run_all(self, questions: int) -> None:
        """Ends the program where a run has no result."""
        few = min(questions, FEW)
        if self.run(SAMPLE, "blind", few, WITHOUT_PICTURES) != REFUSED:
            sys.exit("blind_control: a benchmark without pictures was not refused")
        for name, sample in SAMPLE_RUNS.items():
            self._run_to_end(SAMPLE, name, few if sample.asks_few else questions, sample.extra)
        judge = {
            "name": "small",
            "model_id": MODEL,
            "url": self.url,
            "api_key": None,
            "max_tokens": TOKENS_OF_JUDGE,
        }
        for kind in ("jury", "rubric"):
            benchmark = self.folder / f"my_{kind}"
            if not benchmark.exists():
                write_example(benchmark, kind)
            extra = {"benchmark": str(benchmark / "benchmark.yaml"), "judges": [judge]}
            self._run_to_end("custom", kind, min(questions, JUDGED), extra)

    def _run_to_end(self, task: str, name: str, questions: int, extra: Record) -> None:
        exit_code = self.run(task, name, questions, extra)
        if exit_code not in FINISHED:
            sys.exit(f"{name}: the run ended with exit code {exit_code}")


@dataclass
class Answers:
    """The answers of one folder, and which option each states."""

    records: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """The line of each answer, with references and metrics, by the question and the name of the
    asking, which is empty for the question as it is.
    """
    is_reasoned: bool = False

    @classmethod
    def read(cls, folder: Path, *, is_reasoned: bool = False) -> Answers:
        answers = cls(is_reasoned=is_reasoned)
        for name in ("instances.jsonl", "results.jsonl"):
            for line in (folder / name).read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                key = (record["id"], record.get("perturbation") or AS_IT_IS)
                answers.records.setdefault(key, {}).update(record)
        return answers

    @property
    def questions(self) -> list[str]:
        return [question for question, asking in self.records if asking == AS_IT_IS]

    def completion(self, question: str, asking: str) -> str:
        return str(self.records[question, asking]["completion"])

    def right_letter(self, question: str, asking: str) -> str:
        for letter, reference in zip(
            LETTERS, self.records[question, asking]["references"], strict=False
        ):
            if "correct" in reference["tags"]:
                return letter
        return ""

    def stated_letter(self, question: str, asking: str) -> str | None:
        """Return the letter that an answer states; None: no rule reads the answer."""
        options = {}
        references = self.records[question, asking]["references"]
        for letter, reference in zip(LETTERS, references, strict=False):
            options[letter] = str(reference["text"])
        completion = self.completion(question, asking)
        if self.is_reasoned:
            stated = stated_option(stated_at_end(completion), options)
            if stated is not None:
                return stated
        return stated_option(completion, options)

    def is_read_in_same_words(self, question: str) -> bool:
        for name, asking in self.records:
            is_another_draw = asking.startswith(("repeat_", "same_words_"))
            if name == question and is_another_draw and self.is_right(name, asking) is not None:
                return True
        return False

    def is_right(self, question: str, asking: str) -> bool | None:
        """Decide if an answer is right; None: no rule reads it, or it did not come."""
        if (question, asking) not in self.records:
            return None
        stated = self.stated_letter(question, asking)
        if stated is None:
            return None
        return stated == self.right_letter(question, asking)


def first_change(answers: Answers, question: str, turns: Sequence[str]) -> str:
    """The number of the first turn with another option, `unread` or `never`."""
    first = answers.stated_letter(question, AS_IT_IS)
    later = [answers.stated_letter(question, turn) for turn in turns]
    for number, letter in enumerate(later, 1):
        if None not in (first, letter) and letter != first:
            return str(number)
    if first is None or None in later:
        return "unread"
    return "never"


def letters_that_stay(answers: Answers, turns: Sequence[str]) -> int:
    """Return how many answers begin with the same letter each time, whatever a reader makes of
    them.
    """
    stood = 0
    for question in answers.questions:
        letters = set()
        for asking in (AS_IT_IS, *turns):
            match = _LETTER.match(answers.completion(question, asking))
            letters.add(match[1] if match else None)
        if len(letters) == 1 and None not in letters:
            stood += 1
    return stood


def wrong_about_doubts(result: Record, answers: Answers) -> Iterator[str]:
    """A letter that stays is no change, and each answer is counted once."""
    pushback = result["validity"]["asked_again"].get("pushback")
    if not pushback:
        return
    doubts = result["config"]["params"]["extra"][
        "pushback"
    ]  # a turn that no rule reads is not told
    turns = [f"pushback_{number}" for number in range(1, doubts + 1)]
    expected = Counter(first_change(answers, question, turns) for question in answers.questions)
    if pushback["changed_at"] != expected:
        yield f"pushback counts {pushback['changed_at']}; by the answers {dict(expected)}"
    counted = sum(count for turn, count in pushback["changed_at"].items() if turn.isdecimal())
    stood = letters_that_stay(answers, turns)
    if counted > len(answers.questions) - stood:
        yield f"{counted} answers are counted as changed, and {stood} letters stood"


def changes_of(asked_again: Record) -> dict[str, Record]:
    """Return what each asking did to the answers, by its name."""
    changes = {}
    for family, words in asked_again.get("in_other_words", {}).items():
        changes[f"perturb_{family}"] = words["change"]
    for number, change in enumerate(asked_again.get("pushback", {}).get("turns", []), 1):
        changes[f"pushback_{number}"] = change
    if "options_only" in asked_again:
        changes["options_only"] = asked_again["options_only"]["change"]
    if "none_of_the_others" in asked_again:
        changes["none_of_the_others"] = asked_again["none_of_the_others"]["change"]
    return changes


@dataclass
class Moves:
    """The number of questions with a readable answer before and after, and what became of them."""

    questions: int = 0
    was_right: int = 0
    lost: int = 0
    won: int = 0
    by_chance: int = 0  # answers that were right, and are readable when asked in the same words

    @classmethod
    def by_answers(cls, answers: Answers, asking: str) -> Moves:
        moves = cls()
        for question in answers.questions:
            before = answers.is_right(question, AS_IT_IS)
            after = answers.is_right(question, asking)
            if before is None or after is None:
                continue
            moves.questions += 1
            if before:
                moves.was_right += 1
            if before and answers.is_read_in_same_words(question):
                moves.by_chance += 1
            if before and not after:
                moves.lost += 1
            if after and not before:
                moves.won += 1
        return moves

    @classmethod
    def reported(cls, change: Record) -> Moves:
        moves = cls(change["questions"])
        right_to_wrong = change.get("right_to_wrong")
        if right_to_wrong:
            moves.was_right = right_to_wrong["count"]
            moves.lost = round(right_to_wrong["value"] * right_to_wrong["count"])
        wrong_to_right = change.get("wrong_to_right")
        if change.get("same_words"):
            moves.by_chance = change["same_words"]["count"]
        if wrong_to_right:
            moves.won = round(wrong_to_right["value"] * wrong_to_right["count"])
        return moves


def wrong_about_losses(result: Record, answers: Answers) -> Iterator[str]:
    """Yield losses and gains that the answers do not show, and losses without a chance figure."""
    asked_again = result["validity"]["asked_again"]
    for asking, change in changes_of(asked_again).items():
        reported = Moves.reported(change)
        expected = Moves.by_answers(answers, asking)
        if reported != expected:
            yield f"{asking}: {reported}; by the answers {expected}"


def wrong_about_reading(result: Record, answers: Answers) -> Iterator[str]:
    """Yield faults: an answer is right that the reader reads as wrong, or counts do not add up."""
    counts = result["validity"]["instances"]
    for (question, asking), record in answers.records.items():
        is_right = answers.is_right(question, asking)
        for metric, value in record["metrics"].items():
            is_of_one_answer = not metric.endswith(OF_SEVERAL_ANSWERS)
            if (
                metric.startswith("exact_match")
                and is_right is False
                and value
                and is_of_one_answer
            ):
                yield f"{question} {asking}: {metric} is {value}, and the answer states another"
    parts = [counts.get(part) for part in ("read_by_rule", "read_by_asking", "unread")]
    if None not in parts and sum(parts) != len(answers.questions):
        yield f"{parts} of {len(answers.questions)} answers are read by rule, by asking, not at all"
    rule = result["validity"]["asked_again"]["right_by"]
    if not rule["read_by_helm"] <= rule["answers"] or not rule["read"] <= rule["answers"]:
        yield f"the rule reads {rule}"
    if counts["scored"] + counts["failed"] + counts["filtered"] != counts["requested"]:
        yield f"instances do not add up: {counts}"


def wrong_about_confidence(result: Record, answers: Answers) -> Iterator[str]:
    """Each answer has a confidence, or is counted among those without."""
    confidence = result["validity"]["asked_again"].get("confidence")
    if not confidence:
        return
    counted = confidence["questions"] + confidence["unread"] + confidence["unread_answers"]
    if counted != len(answers.questions):
        yield f"confidence counts {counted} of {len(answers.questions)} answers"


def abstains(answers: Answers, question: str) -> bool | None:
    """Return True if the model says, as it may here, that it does not know; None: no rule reads
    its answer.
    """
    letter = answers.stated_letter(question, ABSTAIN_ASKING)
    if letter is not None:
        return chosen_text(answers, question, ABSTAIN_ASKING) == I_DO_NOT_KNOW
    references = answers.records[question, ABSTAIN_ASKING]["references"]
    if says_not_to_know(answers.completion(question, ABSTAIN_ASKING), LETTERS[: len(references)]):
        return True
    return None


def wrong_about_abstention(result: Record, answers: Answers) -> Iterator[str]:
    """Yield faults in the shares of abstention, by the questions with two readable answers."""
    abstention = result["validity"]["asked_again"].get("abstention")
    if not abstention:
        return
    found: dict[bool, list[bool]] = {True: [], False: []}
    for question in answers.questions:
        was_right = answers.is_right(question, AS_IT_IS)
        knows_not = abstains(answers, question)
        if was_right is not None and knows_not is not None:
            found[was_right].append(knows_not)
    for was_right, name in ((True, "abstained_when_right"), (False, "abstained_when_wrong")):
        share = abstention.get(name) or {"value": 0.0, "count": 0}
        reported = (share["count"], round(share["value"] * share["count"]))
        expected = (len(found[was_right]), sum(found[was_right]))
        if reported != expected:
            yield f"{name} is {reported}; by the answers {expected}"


def wrong_about_judges(result: Record) -> Iterator[str]:
    """A judge that writes no verdict gives no score."""
    validity = result["validity"]
    for name, counts in validity["judges"].items():
        if counts["asked"] != counts["scored"] + counts["failed"]:
            yield f"judge {name}: {counts}"
    scores = next(iter(result["results"]["tasks"].values()))["metrics"]["score"]["scores"]
    has_verdict = any(counts["scored"] for counts in validity["judges"].values())
    if result["main_metric"] in scores and not has_verdict:
        yield f"{result['main_metric']} has a value, and no judge wrote a verdict"


def chosen_text(answers: Answers, question: str, asking: str) -> str | None:
    """The text of the option that an answer states; None: no rule reads it."""
    letter = answers.stated_letter(question, asking)
    if letter is None:
        return None
    references = answers.records[question, asking]["references"]
    return str(references[LETTERS.index(letter)]["text"])


def wrong_about_orders(result: Record, answers: Answers) -> Iterator[str]:
    """An answer changes with the order of the choices where another text is chosen."""
    orders = result["validity"].get("choice_orders")
    if not orders or not orders["changed"]:
        return
    compared = 0
    changed = 0
    for question in answers.questions:
        if (question, "choice_order_2") not in answers.records:
            continue
        texts = [chosen_text(answers, question, name) for name in (AS_IT_IS, "choice_order_2")]
        if None in texts:
            continue
        compared += 1
        if texts[0] != texts[1]:
            changed += 1
    reported = orders["changed"]
    if (reported["count"], round(reported["value"] * reported["count"])) != (compared, changed):
        yield f"the order changes {reported}; by the answers {changed} of {compared}"


CHECKS_OF_ANSWERS = (
    wrong_about_doubts,
    wrong_about_losses,
    wrong_about_orders,
    wrong_about_reading,
    wrong_about_confidence,
    wrong_about_abstention,
)


def result_in(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(
        (folder / "evaluation_config.yaml").read_text("utf-8")
    )
    return document


def problems_in(folder: Path) -> Iterator[str]:
    """Yield what does not hold of the results in the folder."""
    for name, sample in SAMPLE_RUNS.items():
        result = result_in(folder / name)
        is_reasoned = sample.extra.get("answer_style") == "reasoned"
        answers = Answers.read(folder / name, is_reasoned=is_reasoned)
        for check in CHECKS_OF_ANSWERS:
            for problem in check(result, answers):
                yield f"{name}: {problem}"
    for name in ("jury", "rubric"):
        for problem in wrong_about_judges(result_in(folder / name)):
            yield f"{name}: {problem}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--no-run", action="store_true")
    given = parser.parse_args()
    if not given.no_run:
        Program(given.url, given.folder).run_all(given.questions)
    problems = list(problems_in(given.folder))
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"all holds; the pages to read: {given.folder}/*/report.html")


if __name__ == "__main__":
    main()
