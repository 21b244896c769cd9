"""The rule of the erratum: value of an answer, None where the instance does not count."""

from __future__ import annotations

import re
from typing import Any


def number_alone(case: Any) -> float:
    found = re.search(r"\d+", case.completion)
    return float(found is not None and found[0] == case.gold)
