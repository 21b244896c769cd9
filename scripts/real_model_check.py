#!/usr/bin/env python3
"""Asks a small real model, and checks that the results agree with the stored answers.

The model answers the sample benchmark with every option of docs/does-it-hold.md. It is also the
judge of a jury and of a rubric. The checks count the answers again, so they hold for any model.

    scripts/real_model.sh up && python scripts/real_model_check.py http://127.0.0.1:8950/v1 FOLDER

With `--no-run`, only the results in FOLDER are checked.
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
"""The settings with which no run stops because of unreadable answers or missing judgements: the
model is a poor doctor, and a worse judge.
"""
FINISHED = (0, 1)  # the exit codes of a run that has a result, whether it may be reported or not
REFUSED = 2  # the exit code of a run whose configuration is refused
FEW = 10  # the number of questions in the runs after the first, which asks all questions
JUDGED = 4  # the number of questions whose answers are judged
TOKENS_OF_JUDGE = 120  # the maximum tokens of a judge; this model often uses all of them
AS_IT_IS = ""  # the name of the asking that asks a question in its original form
_LETTER = re.compile(r"\W*([A-D])(?:[.):\s]|$)")  # "B", "B.", "(B) ", but not "Because"

SUFFIXES_OF_SEVERAL_ANSWERS = (REPEATS_MEAN_SUFFIX, ALL_ORDERS_SUFFIX)
"""The suffixes of metrics that are computed from several answers to a question."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class SampleRun:
    """A run of the sample benchmark, with some of the options of docs/does-it-hold.md."""

    extra: Record  # settings of `params.extra`
    asks_few: bool = True  # True: the run asks `FEW` questions; False: the run asks all


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
"""A dict from the name of a folder to the run whose output it contains."""
BLIND_CONTROL = {"blind_control": True}
"""An option that the sample benchmark refuses, because it has no pictures."""


@dataclass(frozen=True)
class Program:
    """Runs `run_eval` on the model at `url`; the output folders are made in `folder`."""

    url: str
    folder: Path

    def run(self, task: str, name: str, questions: int, extra: Record) -> int:
        """Run a task in the folder `name`, and return the exit code.

        Args:
            task: the name of the task.
            name: the name of the output folder.
            questions: the maximum number of questions.
            extra: settings of `params.extra`.
        """
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
        """Make all runs; end the program if a run has no result."""
        few = min(questions, FEW)
        if self.run(SAMPLE, "blind", few, BLIND_CONTROL) != REFUSED:
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
    """The answers of one output folder.

    Many methods have the arguments `question`, the id of a question, and `asking`, the name of the
    form in which the question was asked: `AS_IT_IS`, or a name such as `pushback_1`.
    """

    records: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """A dict from (question, asking) to the record of the answer, with references and metrics."""
    is_reasoned: bool = False  # True if the model was asked to reason before its answer

    @classmethod
    def read(cls, folder: Path, *, is_reasoned: bool = False) -> Answers:
        """Read the answers of an output folder; its two files have different fields of a record."""
        answers = cls(is_reasoned=is_reasoned)
        for name in ("instances.jsonl", "results.jsonl"):
            for line in (folder / name).read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                key = (record["id"], record.get("perturbation") or AS_IT_IS)
                answers.records.setdefault(key, {}).update(record)
        return answers

    @property
    def questions(self) -> list[str]:
        """The ids of all questions."""
        return [question for question, asking in self.records if asking == AS_IT_IS]

    def completion(self, question: str, asking: str) -> str:
        return str(self.records[question, asking]["completion"])

    def right_letter(self, question: str, asking: str) -> str:
        """Return the letter of the right option; an empty text if no option is right."""
        references = self.records[question, asking]["references"]
        for letter, reference in zip(LETTERS, references, strict=False):
            if "correct" in reference["tags"]:
                return letter
        return ""

    def stated_letter(self, question: str, asking: str) -> str | None:
        """Return the letter that an answer states; None if it states no option."""
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
        """Return True if a further answer to the question in the same words states an option."""
        for name, asking in self.records:
            is_another_draw = asking.startswith(("repeat_", "same_words_"))
            if name == question and is_another_draw and self.is_right(name, asking) is not None:
                return True
        return False

    def is_right(self, question: str, asking: str) -> bool | None:
        """Return True if the answer is right; None if it states no option, or is missing."""
        if (question, asking) not in self.records:
            return None
        stated = self.stated_letter(question, asking)
        if stated is None:
            return None
        return stated == self.right_letter(question, asking)


def first_change(answers: Answers, question: str, turns: Sequence[str]) -> str:
    """Return the number of the first turn in which the model states another option.

    Return `never` if all answers state the same option, and `unread` if some state none.
    """
    first = answers.stated_letter(question, AS_IT_IS)
    later = [answers.stated_letter(question, turn) for turn in turns]
    for number, letter in enumerate(later, 1):
        if None not in (first, letter) and letter != first:
            return str(number)
    if first is None or None in later:
        return "unread"
    return "never"


def letters_that_stay(answers: Answers, turns: Sequence[str]) -> int:
    """Return the number of questions whose answers in all turns begin with the same letter.

    The letters are found by a simple pattern, independently of the rules that read answers.
    """
    unchanged = 0
    for question in answers.questions:
        letters = set()
        for asking in (AS_IT_IS, *turns):
            match = _LETTER.match(answers.completion(question, asking))
            letters.add(match[1] if match else None)
        if len(letters) == 1 and None not in letters:
            unchanged += 1
    return unchanged


def wrong_about_pushbacks(result: Record, answers: Answers) -> Iterator[str]:
    """Yield faults in the counts of answers that change when the model is contradicted.

    An answer with the same letter in all turns must not count as changed.
    """
    pushback = result["validity"]["asked_again"].get("pushback")
    if not pushback:
        return
    # The number of turns is read from the configuration, because the result lists no turn in which
    # no answer could be read.
    turn_count = result["config"]["params"]["extra"]["pushback"]
    turns = [f"pushback_{number}" for number in range(1, turn_count + 1)]
    expected = Counter(first_change(answers, question, turns) for question in answers.questions)
    if pushback["changed_at"] != expected:
        yield f"pushback counts {pushback['changed_at']}; by the answers {dict(expected)}"
    # The keys of `changed_at` are numbers of turns, `unread` and `never`.
    counted = sum(count for turn, count in pushback["changed_at"].items() if turn.isdecimal())
    unchanged = letters_that_stay(answers, turns)
    if counted > len(answers.questions) - unchanged:
        yield f"{counted} answers are counted as changed, and {unchanged} letters stood"


def changes_of(asked_again: Record) -> dict[str, Record]:
    """Return the record of the changes between the original answers and those of each asking.

    The keys are the names of the askings.
    """
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
    """The counts of changes between the original answers and those of another asking.

    A question counts only if both answers state an option.
    """

    questions: int = 0  # the number of questions that count
    was_right: int = 0  # the number of right original answers
    lost: int = 0  # the number of right answers that became wrong
    won: int = 0  # the number of wrong answers that became right
    by_chance: int = 0
    """The number of right original answers whose question was asked again in the same words, with a
    further answer that states an option.
    """

    @classmethod
    def by_answers(cls, answers: Answers, asking: str) -> Moves:
        """Count the changes in the stored answers."""
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
        """Return the counts that a result states: shares are turned into counts."""
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
    """Yield each asking whose counts of changes in the result are not those of the answers."""
    asked_again = result["validity"]["asked_again"]
    for asking, change in changes_of(asked_again).items():
        reported = Moves.reported(change)
        expected = Moves.by_answers(answers, asking)
        if reported != expected:
            yield f"{asking}: {reported}; by the answers {expected}"


def wrong_about_reading(result: Record, answers: Answers) -> Iterator[str]:
    """Yield answers that state a wrong option but have a score, and counts that do not add up."""
    counts = result["validity"]["instances"]
    for (question, asking), record in answers.records.items():
        is_right = answers.is_right(question, asking)
        for metric, value in record["metrics"].items():
            is_of_one_answer = not metric.endswith(SUFFIXES_OF_SEVERAL_ANSWERS)
            is_exact_match = metric.startswith("exact_match") and is_of_one_answer
            if is_exact_match and is_right is False and value:
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
    """Yield a fault if the counts of answers with and without a confidence do not add up."""
    confidence = result["validity"]["asked_again"].get("confidence")
    if not confidence:
        return
    counted = confidence["questions"] + confidence["unread"] + confidence["unread_answers"]
    if counted != len(answers.questions):
        yield f"confidence counts {counted} of {len(answers.questions)} answers"


def abstains(answers: Answers, question: str) -> bool | None:
    """Return True if the model answers that it does not know, in the asking that allows this.

    Return None if the answer states no option, and does not say this in other words either.
    """
    letter = answers.stated_letter(question, ABSTAIN_ASKING)
    if letter is not None:
        return chosen_text(answers, question, ABSTAIN_ASKING) == I_DO_NOT_KNOW
    references = answers.records[question, ABSTAIN_ASKING]["references"]
    if says_not_to_know(answers.completion(question, ABSTAIN_ASKING), LETTERS[: len(references)]):
        return True
    return None


def wrong_about_abstention(result: Record, answers: Answers) -> Iterator[str]:
    """Yield faults in the shares of questions in which the model abstains.

    A question counts if its original answer and its answer with permission to abstain can be read.
    """
    abstention = result["validity"]["asked_again"].get("abstention")
    if not abstention:
        return
    # from `was_right` of a question to whether the model abstains
    by_original: dict[bool, list[bool]] = {True: [], False: []}
    for question in answers.questions:
        was_right = answers.is_right(question, AS_IT_IS)
        does_abstain = abstains(answers, question)
        if was_right is not None and does_abstain is not None:
            by_original[was_right].append(does_abstain)
    for was_right, name in ((True, "abstained_when_right"), (False, "abstained_when_wrong")):
        share = abstention.get(name) or {"value": 0.0, "count": 0}
        reported = (share["count"], round(share["value"] * share["count"]))
        expected = (len(by_original[was_right]), sum(by_original[was_right]))
        if reported != expected:
            yield f"{name} is {reported}; by the answers {expected}"


def wrong_about_judges(result: Record) -> Iterator[str]:
    """Yield counts of a judge that do not add up, and a score without any verdict of a judge."""
    validity = result["validity"]
    for name, counts in validity["judges"].items():
        if counts["asked"] != counts["scored"] + counts["failed"]:
            yield f"judge {name}: {counts}"
    scores = next(iter(result["results"]["tasks"].values()))["metrics"]["score"]["scores"]
    has_verdict = any(counts["scored"] for counts in validity["judges"].values())
    if result["main_metric"] in scores and not has_verdict:
        yield f"{result['main_metric']} has a value, and no judge wrote a verdict"


def chosen_text(answers: Answers, question: str, asking: str) -> str | None:
    """Return the text of the option that an answer states; None if it states no option."""
    letter = answers.stated_letter(question, asking)
    if letter is None:
        return None
    references = answers.records[question, asking]["references"]
    return str(references[LETTERS.index(letter)]["text"])


def wrong_about_orders(result: Record, answers: Answers) -> Iterator[str]:
    """Yield a fault if the count of answers that change with the order of the choices is wrong.

    An answer changes if it states an option with another text.
    """
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
    wrong_about_pushbacks,
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
    """Yield the faults of all results in the folder."""
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
    options = parser.parse_args()
    if not options.no_run:
        Program(options.url, options.folder).run_all(options.questions)
    problems = list(problems_in(options.folder))
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"all holds; the pages to read: {options.folder}/*/report.html")


if __name__ == "__main__":
    main()
