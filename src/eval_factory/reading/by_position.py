"""Finds statements by the position of an option in a text: first, last, or alone in a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from eval_factory.reading import cues
from eval_factory.reading.clauses import Document, Group, Line
from eval_factory.reading.mention import Form, Mention
from eval_factory.reading.normalised_words import has_words
from eval_factory.reading.phrases import UNSPACED, WORD_END, any_of, compiled
from eval_factory.reading.statement import Statement, Strength, statement_of

# What may stand before an answer that opens the text: "Question 2: Probably option B"
_NUMBER = r"(?:(?:q(?:uestion)? ?)?\d+[a-z]?\W+)?(?:ie +)?"  # "question 2: ", "q2. ", "2a) "
_LEAD_IN = rf"(?:{any_of('lead_in')}{WORD_END}\W{{1,3}})?"  # "probably "
_OPTION = rf"(?P<option>(?:the )?{any_of('option')}\W{{1,3}})?"  # "option "
_OPENS = compiled(rf"\W{{0,20}}{_NUMBER}{_LEAD_IN}{_OPTION}\W{{0,3}}")
_PREAMBLE = compiled(rf"\W{{0,5}}{any_of('preamble')}")  # "Sure, here is my answer."
_ANNOUNCES_LIST = compiled(r"(?<!\w)(?:options|choices)\W*$")  # "Step 2: evaluate the options\nA."
_STOPS = compiled(r"['\")\]]*\s*(?:$|[.:\n])")  # the end of a sentence or line, or a colon
_LOOKAHEAD = 200  # the number of characters after an option that the expressions below may need
_IS_NOT_A = compiled(r"\W*\w+ not (?!correct|right|the)")  # " is not a virus" calls nothing wrong
_GOES_ON = compiled(rf" ?[{UNSPACED}]|\.\.")  # a word without a blank before it, or an ellipsis
_NO_ANSWER = compiled(rf"\W{{0,3}}{any_of('no_answer')}{WORD_END}")  # "A: I am not a doctor"
_SHARE = compiled(r"\W{0,3}(?:\d+(?:\.\d+)? ?%|[01]?\.\d)")  # "A (20 %), B (70 %)", "A: 0.2"
# what is left of a text that has only options: "", "option and option", "both or"
_ONLY_OPTIONS = compiled(rf"(?:\W|(?:{any_of('joiner')}|options?|choices?|both|either){WORD_END})*")
_REASONS = compiled(r"\n(?:explanation|rationale|reason(?:ing)?|justification)\W")  # "\nReason: "
# "The other options", "Option A"
_OTHER_OPTIONS = compiled(rf"\W{{0,5}}{any_of('the_others')}{WORD_END}")


def only_options(document: Document) -> Statement | None:
    """Return the statement of a text that has only options: "B", "B. Duodenal ulcer", "B or C".

    Return None if the text has other words.
    """
    texts_between = []
    start = 0
    for mention in document.mentions:
        texts_between.append(document.text[start : mention.start])
        start = mention.end
    texts_between.append(document.text[start:])
    without_options = " ".join(texts_between)
    if "?" in without_options or not _ONLY_OPTIONS.fullmatch(without_options):
        return None
    return statement_of(Group(document.mentions))


def opening(document: Document) -> Iterator[Statement]:
    """Yield the option that comes first, before its reasons: "B. Duodenal ulcer fits best. ..."."""
    clause = document.clauses[0]
    group = clause.groups[0]
    start = _lines_that_answer(document)[0].start
    # None if other words than those of `_OPENS` stand before the option
    opens = _OPENS.fullmatch(document.text, start, group.start)
    if opens is None or clause.is_question() or begins_with_walk(document):
        return
    if _is_denied(document, group.end):
        return
    after = document.text[group.end : group.end + _LOOKAHEAD]
    if _GOES_ON.match(after) or _NO_ANSWER.match(after):
        return  # The label belongs to a longer word or sentence.
    has_shares = _SHARE.match(after) is not None and len(clause.groups) > 1
    if has_shares:  # the text states how likely each option is
        return
    if len(group.labels) == 1 and _line_has_only_labels(document, group.first_mention):
        return  # The line has several answers, and not one answer with its reasons.
    # "Option B, ..., could be considered" and "A, B and C are right" begin a discussion. In these
    # forms, only an option that ends its sentence or line ("Option B.") is an answer.
    may_be_discussion = (
        opens["option"] is not None
        or _is_text_first(document, group.first_mention)
        or len(group.labels) > 1
    )
    if may_be_discussion and not _STOPS.match(after):
        return
    if cues.is_complete_name(group.mentions[-1], after):
        yield statement_of(group)


def _line_has_only_labels(document: Document, mention: Mention) -> bool:
    """Return True if the mention's line has several labels, and no other word: "A. C"."""
    for line in document.lines:
        if not line.start <= mention.start < line.end:
            continue
        labels = set()
        without_options = document.text[line.start : line.end]
        # The mentions are cut out from the end, so that the positions before them stay right.
        for option in reversed(document.mentions):
            if line.start <= option.start < line.end:
                labels.add(option.label)
                before = without_options[: option.start - line.start]
                after = without_options[option.end - line.start :]
                without_options = before + after
        return len(labels) > 1 and not any(sign.isalnum() for sign in without_options)
    return False


def _is_denied(document: Document, end: int) -> bool:
    """Return True if the text after an option, from the position `end`, calls the option wrong.

    Example: "B. Duodenal ulcer. This option is wrong".
    """
    after = document.text[end : end + _LOOKAHEAD]
    return cues.is_called_wrong(after) and not _IS_NOT_A.match(after)


def _is_text_first(document: Document, mention: Mention) -> bool:
    """Return True if the option's text comes before its label.

    In "Duodenal ulcer (B) causes pain", the option is the subject of a sentence, not the answer.
    """
    return mention.form is Form.BOTH and not document.text.startswith(
        mention.label.lower(), mention.start
    )


def label_alone(document: Document) -> Iterator[Statement]:
    """Yield the label that is alone in its line: "...\\nB\\n...".

    Yield nothing if different labels are alone in lines, or if the text denies such a label.
    """
    alone = []
    for line in document.lines:
        if line.item is None or line.item.form is not Form.LABEL:
            continue
        if line.is_alone and not _only_begins(document, line):
            if _is_denied(document, line.item.end):
                return
            alone.append(line.item)
    if len({mention.label for mention in alone}) == 1:
        yield statement_of(Group((alone[-1],)))


def last_line(document: Document) -> Iterator[Statement]:
    """Yield the option that is alone in the last line, unless it ends a list of options.

    Example: "...\\n\\nB. Ulcer".
    """
    last = document.lines[-1]
    if last.item is None or not last.is_alone or len(document.lines) == 1:
        return
    ends_list = document.lines[-2].item is not None
    if not ends_list and not _only_begins(document, last):
        yield statement_of(Group((last.item,)))


def _only_begins(document: Document, line: Line) -> bool:
    """Return True if the line is the last line of a text that was cut off after an option.

    Such a line only begins a sentence or an item, so that it states no answer.
    """
    if line is not document.lines[-1] or len(document.lines) == 1:
        return False
    if document.text[line.start : line.end].endswith((":", ",", "(")):  # "...\nOption B,"
        return True
    line_above = document.lines[-2]
    heading = document.text[line_above.start : line_above.end]
    begins_list = heading.endswith(":") and not document.is_headed(line)
    if begins_list or _ANNOUNCES_LIST.search(heading):
        return True
    return _is_next_item(document, line)


def _is_next_item(document: Document, last_line: Line) -> bool:
    """Return True if the last line only begins the next item of a list: "... C) no.\\n\\nD)"."""
    last_item = last_line.item
    if last_item is None or len(last_item.label) > 1:
        return False
    for line in reversed(document.lines[:-1]):
        if line.item is None:
            continue
        is_next_label = ord(last_item.label) == ord(line.item.label[0]) + 1
        style = _item_style(document, last_line, last_item)
        style_above = _item_style(document, line, line.item)
        # The style of the last line may have fewer elements, because the line was cut off.
        is_same_style = style == style_above[: len(style)]
        return is_next_label and is_same_style
    return False


def _item_style(document: Document, line: Line, item: Mention) -> list[object]:
    """Return how the item at the beginning of a line is written.

    The elements are: True if the word "Option" is before the label, the signs before the label, and
    the sign after the label. The last element is left out if the text ends with "Option C", because
    the text may be cut off there.
    """
    end = item.start + len(item.label)
    style: list[object] = [line.is_named, document.text[line.start : item.start].strip()]
    if not line.is_named or end < len(document.text):
        style.append(document.text[end : end + 1].strip())
    return style


def last_sentence(document: Document) -> Iterator[Statement]:
    """Yield the label that is the complete last sentence: "Not A, for there is no fever. B".

    A label at the start of a line is left to `label_alone`.
    """
    # `clauses` has no clauses without an option, so further text may follow the last clause.
    clause = document.clauses[-1]
    group = clause.groups[-1]
    words = clause.text_before(group) + clause.text_after(group) + document.text[clause.end :]
    if group.first_mention.form is not Form.LABEL or has_words(words):
        return
    # The sign before the clause is "" at the start of the text.
    begins_line = document.text[clause.start - 1 : clause.start] in ("", "\n")
    if not begins_line and not clause.is_question():
        yield statement_of(group)


def named_before_the_others(document: Document) -> Iterator[Statement]:
    """Yield the only option that is named before the text discusses the other options.

    In "... with fewer attacks (option C).\\n\\nThe other options ...", this is C.
    """
    start_of_others = _start_of_others(document)
    if start_of_others is None:
        return
    marked_groups = []
    for clause in document.clauses:
        for group in clause.groups:
            if group.start >= start_of_others:
                continue
            if cues.is_doubted(cues.after_last_comma(clause.text_before(group))):
                return
            if group.first_mention.is_marked:
                marked_groups.append(group)
    named = set(chain.from_iterable(group.labels for group in marked_groups))
    # An option that begins a later line is one of the others, not the answer.
    if len(named) == 1 and not named & _items_from(document, start_of_others):
        yield statement_of(marked_groups[-1], Strength.PREFERRED)


def _start_of_others(document: Document) -> int | None:
    """Return the start of the first clause about the other options; None if there is none."""
    for bound in document.bounds:
        if _OTHER_OPTIONS.match(document.text, bound):
            return bound
    return None


def _items_from(document: Document, position: int) -> set[str]:
    """Return the labels at the beginnings of lines, from this position in the text on."""
    labels = set()
    for line in document.lines:
        if line.item is not None and line.start >= position:
            labels.add(line.item.label)
    return labels


def _lines_that_answer(document: Document) -> Sequence[Line]:
    """Return all lines, or all but a first line that only announces an answer.

    Example of such a first line: "Sure, here is my answer.".
    """
    first_line = document.lines[0]
    announcement = _PREAMBLE.match(document.text, first_line.start, first_line.end)
    names_option = document.mentions[0].start < first_line.end
    if announcement is not None and not names_option and len(document.lines) > 1:
        return document.lines[1:]
    return document.lines


def begins_with_walk(document: Document) -> bool:
    """Return True if the text discusses the options one by one from its start.

    Example: "A. ...: no\\nB. ...: yes".
    """
    if _is_walk_in_a_line(document):
        return True
    lines = _lines_that_answer(document)
    if len(lines) < 2:
        return False
    first_line = lines[0]
    second_line = lines[1]
    if (
        first_line.item is None
        or second_line.item is None
        or first_line.item.label == second_line.item.label
    ):
        return False
    if first_line.is_named != second_line.is_named:
        return False  # "Option B\nA. ..." are not two items of one list.
    if first_line.item.form is not Form.LABEL and first_line.item.label < second_line.item.label:
        return True  # "A. Appendicitis\nB. Colitis: yes" begins a list of the options.
    # "B\nA. Appendicitis: no" and "B. Colitis\nA. Appendicitis: no" begin with the answer. A list
    # of the options follows.
    begins_with_answer = first_line.is_alone and not second_line.is_alone
    return not begins_with_answer


def _is_walk_in_a_line(document: Document) -> bool:
    """Return True if clauses begin with labels in order, with the same sign after each label.

    Only the first three clauses that begin with a label count. Example: "A: ... B: ... C: ...".
    """
    # A single reason belongs to a first option that is the answer: "A. Ulcer\nReason: ...\nB. ...".
    if len(_REASONS.findall(document.text)) == 1:
        return False
    items = []
    for clause in document.clauses:
        group = clause.groups[0]
        begins_clause = not has_words(clause.text_before(group))
        if begins_clause and group.first_mention.form in (Form.LABEL, Form.BOTH):
            items.append(group.first_mention)
    first_items = items[:3]
    labels = [item.label for item in first_items]
    signs = {document.text[item.start + 1 : item.start + 2] for item in first_items}
    return len(set(labels)) == 3 and labels == sorted(labels) and len(signs) == 1
