"""What MedHELM's leaderboard ran: the table `medhelm_leaderboard.yml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from eval_factory.core.plain_yaml import packaged
from eval_factory.core.strict_model import StrictModel


class Collapsed(StrictModel):
    """Rows of the data of which HELM's scenario keeps one each."""

    rows: int
    instances: int


class LeaderboardEntry(StrictModel):
    """One run spec of the leaderboard."""

    max_tokens: int
    """What the run spec itself grants an answer."""
    max_length: int | None = None
    """Of a scenario that has such an argument: the leaderboard's value."""
    max_eval_instances: int | None = None
    """None: as of all."""
    arguments: dict[str, tuple[str, ...]] = {}
    """Argument that chooses another evaluation -> the values that the leaderboard has."""
    num_output_tokens: dict[str, int] = {}
    """Model -> tokens, where the leaderboard granted it another number than all its other evaluations did."""
    newest_data: bool = False
    """Whether HELM names no revision of the data: then it is not known which one the leaderboard read."""
    collapsed: Collapsed | None = None

    def argument_not_run(self, given: Mapping[str, object]) -> str | None:
        """`name=value` of the first argument with which the leaderboard has no result."""
        unknown = (f"{name}={value}" for name, value in given.items() if str(value) not in self.arguments.get(name, ()))
        return next(unknown, None)


class MedhelmLeaderboard(StrictModel):
    helm: str
    """The version of HELM whose run specs it tells of."""
    max_eval_instances: int
    num_train_trials: int
    temperature: float
    top_p: float
    num_output_tokens: dict[str, int]
    """Model -> the tokens that the leaderboard granted its answers, for it thinks before it answers."""
    judge_max_tokens: int
    run_specs: dict[str, LeaderboardEntry]

    def most_instances(self, entry: LeaderboardEntry) -> int:
        """The most that it asked of one evaluation; of more, HELM drew so many at random."""
        return entry.max_eval_instances or self.max_eval_instances

    def tokens_by_model(self, entry: LeaderboardEntry) -> dict[str, int]:
        """Of the models that were granted another number than the run spec's."""
        return {**self.num_output_tokens, **entry.num_output_tokens}


@lru_cache(maxsize=1)
def load_medhelm_leaderboard() -> MedhelmLeaderboard:
    return MedhelmLeaderboard.model_validate(packaged("tasks/medhelm_leaderboard.yml"))
