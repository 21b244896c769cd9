"""What becomes of the answers when choices stand in another order, in a sentence for the screen and the pages."""

from __future__ import annotations

from eval_factory.core.results import ALL_ORDERS, Share, TaskResult


def choice_order_line(result: TaskResult) -> str | None:
    """None where questions were asked in one order only."""
    record = result.validity.choice_orders
    if record is None:
        return None
    kept = sum(record.kept.values())
    left = f"; {_questions(kept)} left as they are" if kept else ""
    if record.changed is None:
        return f"order of the choices: no question was answered in two orders{left}"
    score = result.scores.get(result.main_metric + ALL_ORDERS)
    over = "" if score is None else f"; {result.main_metric} over all orders {score.value:.4f}"
    right = "" if record.right_in_all is None else f", {record.right_in_all.value:.0%} right in every order"
    return (
        f"order of the choices ({record.orders} orders, {_questions(record.changed.count)}): the answer changes with it"
        f" for {record.changed.value:.0%}{_interval(record.changed)}{right}{over}{left}"
    )


def _interval(share: Share) -> str:
    if share.ci_low is None or share.ci_high is None:
        return ""
    return f" (95 % interval {share.ci_low:.0%} .. {share.ci_high:.0%})"


def _questions(count: int) -> str:
    return f"{count:,} question" if count == 1 else f"{count:,} questions"
