"""Reads which option an answer to a multiple-choice question states, as a careful person would.

The package knows texts and options; it knows nothing about HELM or results. An answer is read in
steps. `cleaning` removes thinking and markup. `json_fields` finds the answer's field in a JSON
object. `mentions` finds the passages that name an option. `clauses` splits the text into parts of
sentences. `statements` finds the sentences that state an option. Finally, `reader` decides which
statement counts. The phrases of statements are in `phrases.yml`.
"""

# `as` with the same name marks a name that other packages import from here.
from eval_factory.reading.reader import READER_VERSION as READER_VERSION
from eval_factory.reading.reader import Kind as Kind
from eval_factory.reading.reader import Reading as Reading
from eval_factory.reading.reader import read_answer as read_answer
from eval_factory.reading.reader import stated_option as stated_option
from eval_factory.reading.refusals import MAX_REFUSAL as MAX_REFUSAL
from eval_factory.reading.refusals import is_refusal as is_refusal
from eval_factory.reading.values import stated_value as stated_value
