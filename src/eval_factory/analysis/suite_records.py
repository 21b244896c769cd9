"""The records of a suite's results: plain values, made of finished runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eval_factory.analysis.comparison import Pair, Ranked
from eval_factory.analysis.metric_groups import GroupScore
from eval_factory.analysis.win_rates import WinRate

CellStatus = Literal["complete", "partial", "failed", "waiting", "missing"]


@dataclass(frozen=True)
class FinishedCell:
    """One run of a suite, as the runner leaves it."""

    target: str
    evaluation: str
    status: CellStatus
    folder: Path
    """Its output folder."""
    reason: str | None = None
    """Why it failed or is partial."""
    attempts: int = 0
    """How often it was begun in the last invocation."""


@dataclass(frozen=True)
class Took:
    """What a run needed, which another run of the same would not need again to the digit."""

    attempts: int
    requests: int
    """All that were sent from the folder; those that were tried again among them."""
    retries: int
    cached: int
    wall_s: float
    """Seconds of the last part of the run."""
    latency_p50_s: float | None
    latency_p95_s: float | None
    inference_runtime_s: float | None
    """HELM's efficiency: mean seconds an answer of the main split, nothing perturbed."""


@dataclass(frozen=True)
class CellResult:
    """One evaluation of one target. What is not known, or was not computed, is None."""

    target: str
    evaluation: str
    status: CellStatus
    folder: Path
    reason: str | None = None
    model: str | None = None
    """As it was asked for."""
    task: str | None = None
    main_metric: str | None = None
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int | None = None
    """Instances that the value is of."""
    higher_is_better: bool | None = None
    scale: tuple[float, float] | None = None
    unit: str | None = None
    reportable: bool = False
    not_reportable: tuple[str, ...] = ()
    """Why it is not reportable, in short."""
    requested: int | None = None
    """Instances that were to be scored."""
    failed: int | None = None
    """Those of them that have no answer."""
    coverage: float | None = None
    cost: float | None = None
    """US dollars of all that was paid for in the folder; None where no price is known."""
    unpriced: int = 0
    """Answers that it does not hold the cost of."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    group_scores: tuple[GroupScore, ...] = ()
    collected_by: str | None = None
    """The version of eval-factory that wrote the result."""
    took: Took | None = None

    @property
    def name(self) -> str:
        return f"{self.target}/{self.evaluation}"

    @property
    def enters_win_rates(self) -> bool:
        """A value that may not be reported does not decide who wins."""
        return self.value is not None and self.reportable


@dataclass(frozen=True)
class LeftOut:
    """What does not enter the win rates although there is a value."""

    evaluation: str
    target: str | None
    """None: the whole benchmark."""
    reason: str


@dataclass(frozen=True)
class Benchmark:
    """The models of one evaluation, compared with each other by its main metric."""

    evaluation: str
    pairs: tuple[Pair, ...]
    ranks: tuple[Ranked, ...]
    """Of the models that could be compared with another."""


@dataclass(frozen=True)
class GroupWinRates:
    """The win rates in one of HELM's metric groups."""

    group: str
    models: tuple[WinRate, ...]


@dataclass(frozen=True)
class Missing:
    """A cell without a value."""

    cell: CellResult
    reason: str
    what_to_do: str


@dataclass(frozen=True)
class SuiteResults:
    """All results of a suite."""

    status: Literal["complete", "partial"]
    targets: tuple[str, ...]
    evaluations: tuple[str, ...]
    cells: tuple[CellResult, ...]
    """In the order of the suite."""
    win_rates: tuple[WinRate, ...]
    """Of the main metrics, as HELM's leaderboards have them."""
    left_out: tuple[LeftOut, ...]
    group_win_rates: tuple[GroupWinRates, ...]
    benchmarks: tuple[Benchmark, ...]
    missing: tuple[Missing, ...]

    def cell(self, target: str, evaluation: str) -> CellResult | None:
        """None where the suite leaves it out."""
        return next((one for one in self.cells if (one.target, one.evaluation) == (target, evaluation)), None)
