"""Yes or no, where reasoning ends in a sentence that affirms or denies without the word itself.

"Therefore, the drug does not change survival" is no, "... is indeed safer" is yes. A sentence with
"may", "only" or their like decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from eval_factory.reading.phrases import any_of, compiled

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_CONCLUDES = compiled(rf"\W*(?:\d+[.)] )?{any_of('conclusion')}(?!\w)")
_HEDGE = compiled(rf"(?<!\w){any_of('hedge')}(?!\w)")
_DENIES = compiled(rf"(?<!\w){any_of('denial')} (?!only)")
_SAYS_IT = compiled(r"(?<!\w)(?:yes|no|maybe)(?!\w)")
_AFFIRMS = compiled(rf"(?<!\w){any_of('affirmation')}(?!\w)")


def affirmed_or_denied(text: str, options: Mapping[str, str]) -> str | None:
    """The label of the option "yes" or "no" that the last sentence means."""
    labels = {option.strip().casefold(): label for label, option in options.items()}
    if not {"yes", "no"} <= labels.keys():
        return None
    last = _SENTENCE_END.split(text)[-1]
    if not _CONCLUDES.match(last) or _HEDGE.search(last) or _SAYS_IT.search(last):
        return None
    denials = len(_DENIES.findall(last))
    affirms = _AFFIRMS.search(last) is not None
    if denials == 1 and not affirms:
        return labels["no"]
    if affirms and denials == 0:
        return labels["yes"]
    return None
