"""Lists the fields of a result that depend on the versions of the statistics and of the reader.

`eval-factory verify` compares a stored result with a new computation. If the two differ in the
version of the statistics, `verify` reports both versions, and ignores differences in the fields
that depend on the version. The same is true for the version of the reader of answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

STATISTICS_VERSION = 3
"""The version of the statistical methods; each result states the version that computed it."""


@dataclass(frozen=True)
class ChangedMethod:
    """A statistical method that changed, and the result's fields that depend on the method."""

    version: int  # the first version of the statistics with the changed method
    name: str
    fields: tuple[str, ...]
    """Parts of field names: the method affects each field whose name contains one of them."""


CHANGED_METHODS = (
    ChangedMethod(
        version=2,
        name="scores corrected by a judge's passport (by the truth behind its labels)",
        fields=(".judge_corrected", "rubric.correction"),
    ),
    ChangedMethod(
        version=2,
        name="calibration (each stated confidence is a group; groups that share sources are "
        "dependent)",
        fields=(
            "confidence.calibration_error",
            "confidence.bins",
            "confidence.reliability",
            "confidence.resolution",
        ),
    ),
    ChangedMethod(
        version=2,
        name="tests of judges (for agreement by chance, and for constant marks)",
        fields=("jury.agreement_p", "rubric.constant"),
    ),
    ChangedMethod(
        version=2,
        name="p values of groups (by permutation)",
        fields=(".p_value", ".p_holm"),
    ),
    ChangedMethod(
        version=3,
        name="p values of groups with few equal values "
        "(the greater of a permutation test's and a t test's)",
        fields=(".p_value", ".p_holm"),
    ),
)
ALWAYS_CHANGED = ("provenance.statistics_version", "validity.notes")
"""The beginnings of the names of fields that may change with every change of a method."""


def changed_since(version: int) -> list[ChangedMethod]:
    """Return the methods that changed after this version of the statistics."""
    return [method for method in CHANGED_METHODS if method.version > version]


def has_changed_method(field: str, version: int) -> bool:
    """Return True if a method on which the field depends changed after this version.

    Args:
        field: the full name of a result's field, such as `confidence.bins`.
        version: a version of the statistics.
    """
    methods = changed_since(version)
    if not methods:
        return False
    if field.startswith(ALWAYS_CHANGED):
        return True
    changed_parts = chain.from_iterable(method.fields for method in methods)
    return any(part in field for part in changed_parts)


READER_FIELDS = (
    ".lenient",
    ".corrected",
    ".reasoned",
    ".with_asked",
    ".signs",
    ": signs",  # `verify` uses this name if only one of the two results has signs of an instance
    "asked_again",
    "confidence",
    "instances.identical",
    "instances.refused",
    "instances.thinking_",
    "instances.unparsed",
    "instances.unreadable",
    "provenance.reader_version",
    "validity.notes",
    "validity.not_reportable",
    "validity.urgent_notes",
)
"""Parts of field names: a field whose name contains one of them depends on the reader.

The reader is the package `reading`, which finds the option or value that an answer states.
"""


def depends_on_reader(field: str) -> bool:
    """Return True if the field depends on how the package `reading` reads answers."""
    return any(part in field for part in READER_FIELDS)
