"""Regular expressions for the words around an option that state the option as the answer.

Further expressions find words that doubt, deny or restrict a statement.
"""

from __future__ import annotations

import re

from eval_factory.reading.clauses import Clause
from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.phrases import UNSPACED, WORD_BEGIN, WORD_END, any_of, compiled

_FILLER = rf"(?:\W|{any_of('filler')}{WORD_END})*"
"""The text between a cue and its option: "clearly the option (" in "the answer is clearly the
option (B".
"""
FILL = rf"(?P<fill>{_FILLER})"

_IS = rf"(?:{WORD_BEGIN}{any_of('is')}{WORD_END}|{any_of('is_sign')})"
_VERB = (
    r"(?:is|are|was|were|would be|remains|ist|es|est|é"
    r"|(?:seems|appears)(?: to be)?|looks(?: like)?)"
)
_ADVERB = r"(?:(?:clearly|therefore|thus|indeed|definitely|likely|probably|also|hence|in fact) )?"
_APPOSITION = r"(?:\W*['\"(][^'\"()]{1,120}['\")]|[^,.;()]{1,80},)?"
"""A description directly behind an option: " (a duodenal ulcer)" in "option B (a duodenal ulcer)
is", or " duodenal ulcer," in "option B duodenal ulcer, is".
"""

# Cues before an option. The group "cue" matches the first words of a cue, such as "the answer" in
# "the answer is". The group "fill" matches the filler words after the cue.
# "The correct answer to this question is "
SAID = compiled(rf"{WORD_BEGIN}(?P<cue>{any_of('answer')})(?:,? [\w'()-]+){{0,7}}? ?{_IS}{FILL}")
# "Cevap ", without a word for "is"
SAID_DIRECTLY = compiled(rf"{WORD_BEGIN}(?P<cue>{any_of('answer_directly')}){FILL}")
# "is" after a description, such as "the most likely diagnosis in this patient is", or a colon
_TO_BE = rf"(?:(?<= )(?:is|are|would be|should be|was|will be){WORD_END}|:)"
# "most likely diagnosis is ", but not "less likely"
PREFERRED = compiled(
    rf"(?<!less )(?<!least )(?<!\w)(?P<cue>{any_of('preferred')}) [^;:]{{0,160}}?{_TO_BE}{FILL}"
)
POINTS_TO = compiled(rf"(?<!\w)(?P<cue>{any_of('points_to')}){FILL}")  # "most consistent with "
CHOSEN = compiled(rf"{WORD_BEGIN}(?P<cue>{any_of('choose')}){FILL}")  # "I would choose option "
ANY_CUE = compiled(
    rf"{WORD_BEGIN}{any_of('answer', 'answer_directly', 'choose', 'points_to', 'preferred')}"
)
"""Finds the beginning of any of the cues above. Most clauses have no cue: a search for these words
saves the time of the other searches.
"""
# ". Therefore"; then, in `THEREFORE_ALONE`, filler words: ". Therefore, probably "
THEREFORE = compiled(rf"\W*(?:and )?{any_of('therefore')}{WORD_END}")
THEREFORE_ALONE = compiled(rf"{THEREFORE.pattern}{_FILLER}")
# "Therefore, the material used most is"
THEREFORE_IS = compiled(rf"{THEREFORE.pattern}.*?\w.*? (?:is|are|would be){_FILLER}")
# "So it is ", "But in this case, it must be "
IT_IS = compiled(
    rf"\W*(?:(?:and|but|here|in this case|{any_of('therefore')}),? ){{0,2}}"
    rf"(?:it|this|that)(?: is|'s| must be| has to be| should be| would be){_FILLER}"
)
# "not A but"
NOT_BUT = compiled(rf".*(?<!\w)(?:not|nicht|no|non|pas)(?!\w).*?,? ?(?:but|sondern|sino){_FILLER}")
# "this leaves"
MAKES = compiled(
    rf"(?:(?:makes|making|leaves|leaving)(?: it| us with| only)?|left with) {_FILLER}$"
)

# "The next step"
_STEPS = compiled(
    r"(?<!\w)(first|initial|second|third|next|last|final)(?: \w+){0,2}"
    r" (?:steps?|thing to do|thing you)(?!\w)"
)

# Cues behind an option
# After some cues, no words may restrict the statement to another case: "B is the answer in ...".
_NOT_IN_OTHER_CASE = (
    r"(?! (?:in|for|if|when|only|to)(?! (?:this|the (?:question|patient|case|above))))"
)
# " (a duodenal ulcer) is clearly the correct answer"
CALLED_ANSWER = compiled(
    rf"{_APPOSITION}\W*{_VERB} {_ADVERB}{any_of('is_answer')}{WORD_END}{_NOT_IN_OTHER_CASE}"
)
# " is correct"
CALLED_RIGHT = compiled(rf"{_APPOSITION}\W*{_VERB} {_ADVERB}{any_of('is_right')}{WORD_END}")
# " is the most likely", " best explains"
CALLED_PREFERRED = compiled(
    rf"\W*(?:{_VERB} )?{_ADVERB}{any_of('is_preferred')}{WORD_END}{_NOT_IN_OTHER_CASE}"
)
# "but this option "
_THIS_OPTION = (
    r"(?:(?:but|however),? )?(?:(?:this|that|it|which) (?:(?:option|choice|answer|one) )?)?"
)
# " is incorrect", ". This option would be unlikely", " (wrong"
_CALLED_WRONG = compiled(
    rf"(?:\W*{_THIS_OPTION}(?:{_VERB}|would|could|seems?|can) (?:\w+ ){{0,2}}?| ?[:(-]+ ?)"
    rf"{any_of('wrong')}{WORD_END}"
)
# " is the most", " are the only"
IS_UTMOST = compiled(r" (?:is|are|would be) (?:the )?(?:most|least|only|best)(?!\w)")
# "the answer" in "which makes B the answer"
AS_ANSWER = compiled(rf"{_APPOSITION}\W+(?:as )?(?:the )?{any_of('is_answer')}{WORD_END}")
# " the most likely" in "this makes B the most likely"
AS_PREFERRED = compiled(rf"{_APPOSITION}\W+(?:as )?(?:the )?{any_of('is_preferred')}{WORD_END}")

_INTRODUCTION = r"(?:[^,.;:]{0,100},)?"  # "of these,"
# "i now believe", "it is clear"
_OPINION = (
    r"(?:that|only|but|and|however|i (?:now )?(?:believe|think)|we can (?:conclude|say|see)"
    r"|it (?:is clear|can be concluded))"
)
SUBJECT = compiled(
    rf"{_INTRODUCTION}(?:\W|(?:{_OPINION}|{any_of('therefore', 'filler')}){WORD_END})*"
)
"""Words before an option that is the subject of a sentence: "Of these, option".

`is_supposed` recognises clauses that begin with "if" or "although".
"""

_DOUBT = compiled(rf"(?<!\w){any_of('doubt')}{WORD_END}|n't{WORD_END}")  # "unlikely", "isn't"
# "that does not" in "the drug that does not cause a cough is B"
_OF_REQUESTED_OPTION = re.compile(r"(?:that|which|who) (?:is|are|does|do|has) not")
# "Although", ". But if"
_CONCESSION = compiled(rf"\W*(?:(?:and|but|or) )?{any_of('concession', 'supposition')}{WORD_END}")
_CONDITION = compiled(rf"(?<!\w){any_of('condition')}{WORD_END}")  # "unless"

# " in a child", " for pregnant"
_OF_OTHER_PATIENTS = compiled(
    r" (?:in|for) (?:an?|another|other|children|adults|infants|women|men|patients|pregnant)(?!\w)"
)
_DENIED_BEHIND = compiled(rf"[^.\n]{{0,4}}{any_of('denied_behind')}")  # Hindi: " नहीं"
# "and option (" at the end of "the first text, and option ("
_JOINS = compiled(rf"(?<!\w){any_of('joiner')} \W{{0,2}}(?:{any_of('option')} )?\W{{0,2}}$")
_REASON = compiled(rf"['\")\]]*,? {any_of('reason')}{WORD_END}")  # ", because"
# " because", " and", " is correct"
_AFTER_LABEL = compiled(
    rf"['\")\]]*,? (?:{any_of('reason', 'after_label')}|{_VERB} {any_of('is_right')}){WORD_END}"
)
# the signs after an option's name that end the name
_LABEL_ENDS = re.compile(rf"[)\]](?=\s)|['\")\]]*\s*(?:$|[.!;:,(\n。、{UNSPACED}-])")
# the same for an option's text; after a colon, a comma or a dash, a longer text may go on
_TEXT_ENDS = re.compile(r"['\")\]]*\s*(?:$|[.!;(\n。]|, not )")
# the same for a text that is a frequent word, such as "no"
_FREQUENT_WORD_ENDS = re.compile(r"['\")\]]*\s*(?:$|[.!;:,(\n。-])")


def after_last_comma(before: str) -> str:
    """Return the words after the last comma: only these words refer to the following option."""
    return before.rpartition(",")[2]


def joins_options(between: str) -> bool:
    """Return True if the words between two options join them: "C) the first text, and D"."""
    return _JOINS.search(between) is not None


def is_step_of_plan(match: re.Match[str]) -> bool:
    """Return True if the cue of a match names a step of a plan, and the text names another step.

    Example: "First ... The next step is B".
    """
    if not _STEPS.search(match["cue"]):
        return False
    names_of_steps = set(_STEPS.findall(match.string))
    return len(names_of_steps) > 1


def is_doubted(before: str) -> bool:
    """Return True if the words before an option doubt or deny it: "it is unlikely that".

    Words that describe the requested option do not count: "the one that is not".
    """
    return _DOUBT.search(_OF_REQUESTED_OPTION.sub("", before)) is not None


def is_denied_behind(after: str) -> bool:
    """Return True if the words after an option begin with a negation, as in Japanese."""
    return _DENIED_BEHIND.match(after) is not None


def is_said_of_other_patients(after: str) -> bool:
    """Return True if the words after an option name other patients.

    In "The answer would be B in a child", B is not the answer to the question.
    """
    return _OF_OTHER_PATIENTS.match(after) is not None


def is_supposed(clause: Clause) -> bool:
    """Return True if a clause is a supposition: "Although B is right", "B would be right if"."""
    words = clause.without_texts(clause.start, clause.end)
    return _CONCESSION.match(words) is not None or _CONDITION.search(words) is not None


def is_called_wrong(after: str) -> bool:
    """Return True if the words after an option call the option wrong.

    Examples: "is incorrect", ". This option is wrong". The words "is not a virus" and "this
    statement is false" do not count: a question may ask for a false statement.
    """
    return _CALLED_WRONG.match(after) is not None


def is_complete_name(mention: Mention, after: str) -> bool:
    """Return True if a mention is the complete name of an option.

    In "B cells" and "fever of unknown origin", the options "B" and "fever" are not the complete
    name. `after` is the text after the mention.
    """
    if mention.form in (Form.BOTH, Form.CONFLICT):
        return True
    if mention.form is Form.LABEL:
        return _LABEL_ENDS.match(after) is not None or _AFTER_LABEL.match(after) is not None
    text_ends = _FREQUENT_WORD_ENDS if mention.is_frequent_word else _TEXT_ENDS
    return text_ends.match(after) is not None or _REASON.match(after) is not None
