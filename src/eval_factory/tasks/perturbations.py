"""Perturbs questions: a family of perturbations changes the wording and keeps the right answer.

`perturbed` returns None for a question whose right answer might change. perturbations.yml holds
most word lists: the words that are replaced, and the words that forbid a change.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.perturbation_words import PromptParts, word_lists
from eval_factory.tasks.perturbed_patients import with_other_sex
from eval_factory.tasks.perturbed_sentences import (
    with_distractor,
    with_name,
    with_patient_as_speaker,
    with_race,
    with_residence_and_job,
    with_worried_sentence,
)
from eval_factory.tasks.perturbed_units import in_other_units
from eval_factory.tasks.perturbed_words import (
    in_lower_case,
    in_other_dialect,
    with_brands,
    with_extra_blanks,
    with_generic_names,
    with_synonyms,
    with_typos,
)


@dataclass(frozen=True)
class Family:
    """A family of perturbations: one way to word a question differently.

    Attributes:
        about: a clause that describes the change.
        why_safe: a clause that gives the reason why the right answer stays the same.
        needs: the words or values that a question must contain for the family to apply.
        change: a function that returns the changed text. If the family does not apply, the function
            returns None or the unchanged text.
        unchecked: True if a clinician must read the changed questions, because the word lists do
            not cover every case.
    """

    about: str
    why_safe: str
    needs: str
    change: Callable[[PromptParts], str | None]
    unchecked: bool = False


# clauses that several families share
_SAME_INGREDIENT = "the ingredient is the same, and the question does not ask for names"
_NOTHING_DEPENDS_ON_CHANGE = (
    "only for one patient whose age is stated; "
    "nothing in the text or its choices may depend on it (word lists)"
)
_ONE_PATIENT = "one patient whose age is stated, and nothing that may depend on the change"
FAMILIES: Mapping[str, Family] = {
    "typos": Family(
        about="one word in twenty has a typing error",
        why_safe="only ordinary words, which can still be recognized",
        needs="an ordinary word of five letters or more",
        change=with_typos,
    ),
    "case": Family(
        about="all is in lower case",
        why_safe="units, symbols, abbreviations and negations stay as written",
        needs="a capital letter",
        change=in_lower_case,
    ),
    "spaces": Family(
        about="there are extra blanks between words",
        why_safe="no word, number or line is changed",
        needs="two words",
        change=with_extra_blanks,
    ),
    "synonyms": Family(
        about="plain words are replaced by others",
        why_safe="each pair means the same in every text",
        needs="a word of the list of pairs",
        change=with_synonyms,
    ),
    "dialect": Family(
        about="American spelling becomes British, or British becomes American",
        why_safe="the words stay the same",
        needs="a word that is spelled differently in American and British English",
        change=in_other_dialect,
        unchecked=True,
    ),
    "gender": Family(
        about="the patient's sex is swapped, with all words for it",
        why_safe=_NOTHING_DEPENDS_ON_CHANGE,
        needs=_ONE_PATIENT,
        change=with_other_sex,
        unchecked=True,
    ),
    "race": Family(
        about="a sentence names the patient's race",
        why_safe=_NOTHING_DEPENDS_ON_CHANGE,
        needs=_ONE_PATIENT,
        change=with_race,
        unchecked=True,
    ),
    "person_name": Family(
        about="the patient gets a name, or another one",
        why_safe=_NOTHING_DEPENDS_ON_CHANGE,
        needs=_ONE_PATIENT,
        change=with_name,
        unchecked=True,
    ),
    "brand_names": Family(
        about="generic names of drugs are replaced by brands",
        why_safe=_SAME_INGREDIENT,
        needs="a drug of the list by its generic name",
        change=with_brands,
        unchecked=True,
    ),
    "generic_names": Family(
        about="brands of drugs are replaced by generic names",
        why_safe=_SAME_INGREDIENT,
        needs="a drug of the list by its brand",
        change=with_generic_names,
        unchecked=True,
    ),
    "units": Family(
        about="laboratory values are in other units",
        why_safe="each value, converted back and rounded, is the same",
        needs="laboratory values of known analytes, each with its unit",
        change=in_other_units,
    ),
    "distractor": Family(
        about="a sentence about the surroundings is added",
        why_safe="it holds no finding, number or negation",
        needs="a text in English",
        change=with_distractor,
    ),
    "first_person": Family(
        about="the patient asks, in a sentence before the case",
        why_safe="the case stays word for word",
        needs="one adult patient who can speak, whose age is stated",
        change=with_patient_as_speaker,
    ),
    "worried": Family(
        about="a worried sentence comes first",
        why_safe="it states a feeling, and nothing about the case",
        needs="a text in English",
        change=with_worried_sentence,
    ),
    "demographics": Family(
        about="residence and occupation are added",
        why_safe=_NOTHING_DEPENDS_ON_CHANGE,
        needs=_ONE_PATIENT,
        change=with_residence_and_job,
        unchecked=True,
    ),
}
"""A dict from the name of a family, as a value of `extra.perturb`, to the family."""
# the names of the families whose changed questions a clinician need not read
CHECKED_FAMILIES = tuple(name for name, family in FAMILIES.items() if not family.unchecked)


def why_not_offered(family: str, task_name: str) -> str | None:
    """Return the reason why a family is not offered for a task.

    None is returned if the family is offered, or if perturbations.yml does not list the task.
    """
    # A class of tasks has the names of its tasks, and exclusions with families and a reason.
    for task_class in word_lists().classes.values():
        if task_name not in task_class["tasks"]:
            continue
        for exclusion in task_class["not_offered"]:
            if exclusion["families"] == "all" or family in exclusion["families"]:
                return str(exclusion["reason"])
    return None


def perturbed(family: str, text: str, instance_id: str, context: str = "") -> str | None:
    """Return the question as the family words it.

    None is returned in each of these cases:

    - The family does not apply, or the right answer might change.
    - The question is not in English, or contains several lists of options.

    Args:
        family: a name of `FAMILIES`.
        text: the question.
        instance_id: the id of the instance. This id and the family seed the random choices.
        context: text that is sent with the question and never changed, such as choices that are not
            part of `text`. Words in this text can forbid a change too.

    Raises:
        KeyError: `FAMILIES` does not have the family.
    """
    change = FAMILIES[family].change
    changeable_and_tail = _split_changeable(text)
    if changeable_and_tail is None or not _is_english(text):
        return None
    changeable, tail = changeable_and_tail
    seed = hashlib.sha256(f"perturbation {family} of {instance_id}".encode()).digest()
    rng = random.Random(seed)  # noqa: S311  no secret depends on these random numbers
    changed = change(PromptParts(changeable, tail, context, rng))
    if changed is None or changed == changeable:
        return None
    return changed + tail


# The letter of the first option: "A.", "A:", "A)" or "(A)" at the start of a line, and only "A)" or
# "(A)" within a line.
_FIRST_OPTION = re.compile(r"(?:^[ \t]*[(\[]?A[.:)\]]|(?<=[ \t])\(?A\))[ \t]+(?=\S)", re.MULTILINE)
# The end of a text: white space, and an optional last line that asks for the answer, such as
# "Please answer with a letter". This pattern matches every text.
_END = re.compile(
    r"\s*(?:\n[ \t]*(?:(?:please|your|final|the|best)\s+)*"
    r"(?:answer|respon[ds]e?|reply|choose|select|output|return)\b[^\n]*)?\s*\Z",
    re.IGNORECASE,
)


def _split_changeable(text: str) -> tuple[str, str] | None:
    """Return the part of the text that may be changed, and the unchanged part after it.

    None is returned for a text with several lists of options: such a text contains examples.
    """
    before_options = text
    if options_shown(text):
        first_options = list(_FIRST_OPTION.finditer(text))  # one for each list of options
        if len(first_options) > 1:
            return None
        before_options = text[: first_options[0].start()]
    end = _END.search(before_options)
    if end is None:  # never true: this test is for the type checker
        return None
    return text[: end.start()], text[end.start() :]


_FEW_WORDS = 8  # a text with fewer words is short


def _is_english(text: str) -> bool:
    """Return True if the text has listed English words, and at most as many listed foreign words.

    Also return True for a short ASCII text without any listed word.
    """
    words = re.findall(r"[^\W\d_]+", text.lower())
    english_words = set(word_lists().english)
    foreign_words = set(word_lists().foreign)
    english = sum(word in english_words for word in words)
    foreign = sum(word in foreign_words for word in words)
    if foreign > english:
        return False
    # A short English text may have none of the listed words.
    is_short = len(words) < _FEW_WORDS and text.isascii()
    return english > 0 or is_short
