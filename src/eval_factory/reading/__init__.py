"""What an answer to a multiple-choice question states, read as a careful person reads.

The package knows texts and options, nothing of HELM or of results. An answer is read in steps:
`cleaning` takes out thinking and markup, `json_fields` finds the field of a JSON object, `mentions`
the places that name an option, `clauses` the parts of sentences, `statements` the kinds of
statement; `reader` has the one rule that weighs them. The words are in `phrases.yml`.
"""

from eval_factory.reading.reader import VERSION, Kind, Reading, read_answer, stated_option
from eval_factory.reading.refusals import MAX_REFUSAL, is_refusal
from eval_factory.reading.values import stated_value

__all__ = [
    "MAX_REFUSAL",
    "VERSION",
    "Kind",
    "Reading",
    "is_refusal",
    "read_answer",
    "stated_option",
    "stated_value",
]
