"""Defines the base class of a result's parts, and the order in which the hooks are called.

A part computes some fields of a result, such as the scores by group. The parts share the draft of
a result (scoring/draft.py).
"""

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
"""The hooks that are called after all requests were seen, in the order of the calls."""


class Part:
    """A part of a result, such as its scores by group.

    All hooks of this class do nothing; a subclass overrides the hooks that it needs. First, every
    part sees each request in turn. Then the phases follow in the order of `PHASES`. In each phase,
    the hook of that name is called on every part, in the order of the list of parts.
    """

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Process a request whose answer counts for the plain score, or for a check of the score.

        For example, a check asks the same question in the same words once more.

        Args:
            key: the instance of the request.
            state: HELM's record of the request, with the answer.
        """

    def see_other_form(self, key: InstanceKey, state: output.RequestState) -> None:
        """Process a request whose answer may have another form than the benchmark wants.

        An example is a doubt: a further turn that asks the model whether it is sure of its answer.
        """

    def count(self, draft: Draft) -> None:
        """Count failures and the judges' decisions, for later phases."""

    def complete(self, draft: Draft) -> None:
        """Add metrics, and change the values of existing metrics."""

    def score(self, draft: Draft) -> None:
        """Compute the scores of all metrics from the instances' values.

        After this phase, the values do not change. The scores may still change (`publish`).
        """

    def publish(self, draft: Draft) -> None:
        """Replace means by scores of other formulas, and choose the main metric.

        For example, the mean over the cases of a rubric is clipped to 0 .. 1.
        """

    def compare(self, draft: Draft) -> None:
        """Compare the main metric's values with those of questions that were asked again."""

    def note(self, draft: Draft) -> None:
        """Add notes on failures; these come before the notes on odd answers."""

    def report(self, draft: Draft) -> None:
        """Report what answers, judges and models show about the scores."""

    def weigh(self, draft: Draft) -> None:
        """Report what a reader needs to weigh the finished scores.

        This is the floor (the best score without a model), the judges' agreement, the rule by which
        the run may have stopped early, and the highest score that the wrong labels of the benchmark
        allow.
        """

    def group(self, draft: Draft) -> None:
        """Compute scores by group from the main metric's values."""

    def note_groups(self, draft: Draft) -> None:
        """Add notes on the groups that are too small to be shown, after all groups were added."""

    def conclude(self, draft: Draft) -> None:
        """Add the notes that come last among notes of equal importance."""


def go_through_phases(parts: Iterable[Part], draft: Draft) -> None:
    """Call the hook of the first phase on every part, then that of the next phase, and so on."""
    all_parts = tuple(parts)
    for phase in PHASES:
        for part in all_parts:
            getattr(part, phase)(draft)
