"""Defines the base class of a result's parts, and the order in which their hooks are called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eval_factory.helm import output
    from eval_factory.scoring.draft import Draft
    from eval_factory.scoring.scores import InstanceKey

PHASES = (
    "count",
    "complete",
    "score",
    "publish",
    "compare",
    "note",
    "report",
    "weigh",
    "group",
    "note_groups",
    "conclude",
)
"""The names of the hooks that are called after all requests were seen, in this order."""


class Part:
    """A part of a result, such as its floors or its jury.

    All hooks of this class do nothing; a subclass overrides the hooks that it needs. First, every
    part sees each request in turn. Then each phase calls its hook on every part, in the order of
    the list of parts, before the next phase begins.
    """

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """See a request whose answer counts for the plain score, or for a check of that score."""

    def see_other_form(self, key: InstanceKey, state: output.RequestState) -> None:
        """See a question that was asked in another form, such as after a doubt."""

    def count(self, draft: Draft) -> None:
        """Count failures and the judges' decisions; scores and notes depend on these counts."""

    def complete(self, draft: Draft) -> None:
        """Add metrics, and change the values of existing metrics."""

    def score(self, draft: Draft) -> None:
        """Compute the scores of all metrics; no value changes after this phase."""

    def publish(self, draft: Draft) -> None:
        """Replace HELM's means by the published scores, and choose the main metric."""

    def compare(self, draft: Draft) -> None:
        """Compare the main metric's values with those of questions that were asked again."""

    def note(self, draft: Draft) -> None:
        """Add notes on failures; these come before the notes on odd answers."""

    def report(self, draft: Draft) -> None:
        """Report what answers, judges and models show about the scores."""

    def weigh(self, draft: Draft) -> None:
        """Compare the finished scores with floors, rules and labels."""

    def group(self, draft: Draft) -> None:
        """Compute scores by group from the main metric's values."""

    def note_groups(self, draft: Draft) -> None:
        """Add notes on hidden groups, after all groups were added."""

    def conclude(self, draft: Draft) -> None:
        """Add the notes that come last among notes of equal importance."""


def go_through_phases(parts: Iterable[Part], draft: Draft) -> None:
    """Call the hook of each phase on every part."""
    listed = tuple(parts)
    for phase in PHASES:
        for part in listed:
            getattr(part, phase)(draft)
