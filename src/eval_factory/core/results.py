"""Defines the records of a result, which the collector makes and every report shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

# `as` with the same name marks a name that other modules import from here.
from eval_factory.core.asked_again_records import AskedAgain as AskedAgain
from eval_factory.core.asked_again_records import RightBy
from eval_factory.core.asked_again_records import Share as Share
from eval_factory.core.budget import Cost
from eval_factory.core.enums import MODEL_ROLE as MODEL_ROLE
from eval_factory.core.enums import RunStatus


@dataclass(frozen=True)
class ChoiceOrders:
    """The changes of the answers when the choices of a question were shown in another order."""

    orders: int  # the number of orders per question, including the original order
    questions: int  # the number of questions that were asked in more than one order
    # reason why choices were not reordered -> the number of questions
    kept: Mapping[str, int]
    # number of an order (the original is 1) -> the mean score over the `questions`
    by_order: Mapping[str, float | None]
    # among the questions with several answers: the share whose answers choose different texts
    changed: Share | None
    # among the questions with an answer in each order: the share with only right answers
    right_in_all: Share | None
    letters: Mapping[str, int]  # answer -> its count, over all questions and orders
    right_by: RightBy | None = None  # None in results of earlier versions
    same_words: Share | None = None
    """The share of questions whose choice changed when they were asked again in the same words and
    order: the changes by chance alone. None if no question was asked again in this way.
    """


@dataclass(frozen=True)
class CorrectedScore:
    """An estimate of the human raters' mean score of all answers (prediction-powered inference)."""

    metric: str
    value: float
    ci_low: float
    ci_high: float
    ci_method: str
    power: float  # the weight of the judges' scores: 0 not used, 1 fully used
    judge_value: float  # the score of the same answers by the judges, or by the metric


@dataclass(frozen=True)
class TooFewRated:
    """The reason why there is no corrected score: not enough answers were rated."""

    rated: int  # the number of rated answers
    needed: int  # the smallest sufficient number


@dataclass(frozen=True)
class Agreement:
    """The agreement of raters. A measure that is None is not defined for these ratings."""

    n: int  # the number of (answer, criterion) pairs that at least two raters rated
    alpha: float | None = None  # Krippendorff's alpha, ordinal
    # intraclass correlation ICC(2,1), over the pairs that all raters rated
    icc: float | None = None
    weighted_kappa: float | None = None  # quadratic weights; the mean over pairs of raters
    ac1: float | None = None  # Gwet's AC1


@dataclass(frozen=True)
class JudgeAgreement(Agreement):
    """The agreement of a judge with the raters' mean; with the raters' majority if the scale has
    only two ratings.
    """

    # the mean of (judge's score - raters' score); no interval if too few answers are rated
    bias: float | None = None
    bias_low: float | None = None
    bias_high: float | None = None


@dataclass(frozen=True)
class Clinicians:
    """The ratings by people, and the figures that are computed from these ratings."""

    rated: int  # the number of answers that at least one person rated in full
    answers: int  # the number of answers with a value in the main score
    raters: int
    ratings: int  # the number of ratings that were used
    corrected: CorrectedScore | None = None
    too_few: TooFewRated | None = None
    agreement: Agreement | None = None  # among the raters; None if there is only one rater
    judges: Mapping[str, JudgeAgreement] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deviation:
    """A setting that differs between a run and MedHELM's leaderboard."""

    setting: str
    leaderboard: str | int | float  # the leaderboard's value; `unknown` if it was not published
    here: str | int | float  # the run's value
    effect: str  # the possible effect on the score

    def in_words(self, *, there: str) -> str:
        """Return the difference as a text, such as `temperature 0.7 (there 0.0)`.

        Args:
            there: the word for the leaderboard.
        """
        if self.here == self.leaderboard:  # equal only if both values are `unknown`
            return f"{self.setting} unknown on both sides"
        return f"{self.setting} {self.here} ({there} {self.leaderboard})"


@dataclass(frozen=True)
class Comparability:
    """The comparison of a run's settings with those of MedHELM's leaderboard.

    If the settings are equal, the score can be compared with the leaderboard's scores.
    """

    # True if the settings are equal; None if the leaderboard has no result to compare with
    medhelm_settings: bool | None
    reason: str | None = None  # the reason for None
    deviations: tuple[Deviation, ...] = ()
    # remarks on settings that look different but are equal, or the reverse
    remarks: tuple[str, ...] = ()
    upstream: str = "crfm-helm 0.5.16"  # the HELM of the leaderboard's results

    @property
    def leaderboard(self) -> str:
        """The name of the leaderboard."""
        return f"MedHELM's leaderboard ({self.upstream})"


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation with its 95 % interval."""

    rho: float
    ci_low: float
    ci_high: float
    count: int


SHOWN_BELOW = 0.05
"""The highest p value that shows that judges agree more than by chance."""
SHOWN_ABOVE = 1.645
"""The lowest standard normal deviate that shows that judges agree more than by chance: the 95 %
quantile, for a one-sided test at 5 %.
"""


@dataclass(frozen=True)
class RubricVotes:
    """The number of criteria with each verdict: by the majority of the judges, or by one judge."""

    asked: int  # the number of all criteria
    met: int
    not_met: int
    unjudged: int  # criteria that no judge decided, or not this judge
    tied: int = 0  # criteria that equal numbers of judges call met and not met
    # by one judge: the mean score of the cases in which this judge decided every criterion; the
    # score of a case may be below 0
    score: float | None = None


@dataclass(frozen=True)
class PairAgreement:
    """The agreement of two judges about criteria."""

    criteria: int  # the number of criteria that both judges decided
    agreement: float  # the share of these criteria with the same decision
    kappa: float | None = None  # Cohen's kappa; None if it is not defined

    @property
    def variance_by_chance(self) -> float:
        """The variance of kappa for two judges who agree only by chance.

        The formula's source is in `RubricReport.is_shown_to_agree`.
        """
        # The agreement by chance is computed from kappa if possible. Otherwise it is that of two
        # judges who each call half of the criteria met.
        by_chance = 0.5
        # With a kappa or an agreement of 1, a divisor below would be 0.
        if self.kappa is not None and self.kappa < 1 and self.agreement < 1:
            # kappa = (agreement - by_chance) / (1 - by_chance), solved for `by_chance`
            by_chance = max(self.agreement - self.kappa, 0.0) / (1 - self.kappa)
        variance_of_one_criterion = by_chance / (1 - by_chance)
        return variance_of_one_criterion / max(self.criteria, 1)


@dataclass(frozen=True)
class CorrectedPart:
    """The share of met criteria in one category."""

    criteria: int  # the number of criteria in the category
    judge: float  # the share according to the judge
    value: float | None  # the corrected share; None if it cannot be estimated from the labels
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True)
class JudgeCorrection:
    """A rubric's score, corrected for the judge's error rates.

    The rates come from the judge's passport: a file with the measured agreement of the judge with
    physicians.
    """

    judge: str
    judge_score: float | None
    value: float
    ci_low: float
    ci_high: float
    ci_method: str
    # among the criteria that physicians call met: the share that the judge calls met, with the
    # categories weighted as in the run
    sensitivity: float
    # among the criteria that physicians call not met: the share that the judge calls not met
    specificity: float
    labels: int  # the number of physicians' decisions about criteria that the judge also decided
    matched_points: float  # the share of the run's points in categories that have labels
    passport_date: str
    passport_sha256: str
    categories: Mapping[str, CorrectedPart]
    # the standard error of Youden's index (sensitivity + specificity - 1); None if it is not known
    youden_stderr: float | None = None


@dataclass(frozen=True)
class RubricReport:
    """The judges' decisions about a rubric's criteria, over all answers."""

    criteria: RubricVotes  # by the majority of the judges
    judges: Mapping[str, RubricVotes]  # by each judge
    agreement: Mapping[str, PairAgreement]  # `JUDGE/JUDGE` -> the agreement of the two judges
    krippendorff_alpha: float | None = None
    # among the criteria that several judges decided: the share with equal decisions
    unanimous: float | None = None
    length_correlation: Mapping[str, RankCorrelation | None] = field(default_factory=dict)
    """Judge -> the rank correlation between the judge's scores and the lengths of the answers; None
    if it is not defined.
    """
    # set if the run has a judge's passport that can correct the score
    correction: JudgeCorrection | None = None
    constant: tuple[str, ...] = ()
    """The judges that decided 20 criteria or more, always in the same way."""

    @property
    def is_shown_to_agree(self) -> bool | None:
        """True if the judges agree more than by chance; None if this cannot be tested.

        The test statistic is the sum of the pairs' kappas, divided by its standard deviation under
        chance (J. Fleiss, J. Cohen, B. Everitt, Psychological Bulletin 72:323-327, 1969). Under
        chance, the kappas of different pairs are uncorrelated.
        """
        if self.krippendorff_alpha is not None and self.krippendorff_alpha <= 0:
            return False
        kappas = 0.0
        variance = 0.0
        for pair in self.agreement.values():
            if pair.kappa is not None:
                kappas += pair.kappa
                variance += pair.variance_by_chance
        if not variance:  # no pair has a kappa
            return None
        return kappas / math.sqrt(variance) >= SHOWN_ABOVE


SCHEMA_VERSION = 2
DEMO = "demo"
"""The reason in `not_reportable` for a run that asked the embedded endpoint instead of a model."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Stats:
    """Statistics of the instances' values. A figure that is not defined is None."""

    count: int  # the number of instances
    mean: float
    stddev: float | None
    stderr: float | None
    ci_low: float | None
    ci_high: float | None
    ci_method: str | None
    # the number of sources that instances share, if the task declares clusters (`helm.cluster`)
    clusters: int | None = None
    # the variance of the mean, divided by its variance for independent instances
    design_effect: float | None = None
    # count / design_effect, at most count: the equivalent number of independent instances
    effective_n: float | None = None
    trials: int | None = None  # the number of times each instance was asked, if more than once
    # the standard deviation of the trials' scores; this is not a sampling error
    trial_stddev: float | None = None
    # the p value of the test that a group does not differ from the other instances
    p_value: float | None = None
    p_holm: float | None = None  # the p value, corrected for all groups of the field (Holm)

    @classmethod
    def without_interval(
        cls, count: int, mean: float, *, stderr: float | None = None, clusters: int | None = None
    ) -> Stats:
        """Return the statistics of a mean that has no interval."""
        return cls(
            count,
            mean,
            stddev=None,
            stderr=stderr,
            ci_low=None,
            ci_high=None,
            ci_method=None,
            clusters=clusters,
        )


@dataclass(frozen=True)
class Score:
    """The value of one metric on one split and perturbation."""

    value: float
    stats: Stats
    metric: str = ""  # HELM's name of the metric, which may contain an `@` (`exact_match@5`)
    split: str | None = None
    perturbation: str | None = None
    higher_is_better: bool | None = None  # None if unknown, or if neither direction is better
    # the lowest and the highest possible value; None if the scale has no limits or is not known
    scale: tuple[float, float] | None = None
    # the unit of the value: share, rating, overlap; None if it is not known
    unit: str | None = None

    def covers(self, record: InstanceRecord) -> bool:
        """Return True if an instance belongs to the split and perturbation of this score."""
        split = self.split or ""  # a record without a split has ""
        return record.split == split and record.perturbation == self.perturbation


# label of a score -> the score; the label is the metric, and its split and perturbation if they are
# not the main ones, such as `f1` and `f1@test`
Scores = Mapping[str, Score]


@dataclass(frozen=True)
class Instances:
    """The numbers of instances; each trial and perturbation of an instance is counted."""

    requested: int
    scored: int
    failed: int  # instances without an answer, because the request failed
    empty: int  # instances with an empty answer
    truncated: int  # answers that ended at the token limit
    filtered: int  # answers that the endpoint's content filter withheld
    unjudged: int = 0  # answers without a usable judgement
    # answers in a form that the benchmark does not ask for, from which HELM reads nothing
    unparsed: int = 0
    refused: int = 0  # answers in which the model declines to answer
    thinking_stripped: int = 0  # answers from which thinking was removed before scoring
    thinking_unfinished: int = 0  # answers that were cut off while the model was thinking
    prompt_truncated: int = 0  # instances whose prompt was cut
    # answers that are unparsed, unfinished thinking, or empty although an answer was asked for
    unreadable: int = 0
    # answers in free text that are word for word the same as the answer to another question
    identical: int = 0
    # The next three count first answers in a run with `extra.ask_unread`, which asks the model for
    # the letter of an answer that no rule reads. They are None in other runs.
    read_by_rule: int | None = None  # answers in which a rule found the chosen option
    read_by_asking: int | None = None  # answers whose option is known only from the asked letter
    unread: int | None = None  # answers whose option is not known; `unreadable` counts other signs

    @property
    def coverage(self) -> float:
        """The share of the requested instances that have a score."""
        if self.requested:
            return self.scored / self.requested
        return 0.0


@dataclass(frozen=True)
class JudgeCounts:
    """The numbers of answers that one judge was asked about, rated, and failed to rate."""

    asked: int
    scored: int
    failed: int
    # True if the judge's id shows the family of the evaluated model; None if it is not known
    same_family: bool | None = None


@dataclass(frozen=True)
class JuryReport:
    """The jury's ratings in figures. A figure that is not defined for these ratings is None."""

    means: Mapping[str, float]  # judge -> the mean of its ratings
    krippendorff_alpha: float | None
    # `JUDGE/JUDGE` -> Cohen's kappa of the two judges, with quadratic weights
    weighted_kappa: Mapping[str, float | None]
    leave_one_out: Mapping[str, float | None]  # judge -> the jury's mean without this judge
    # word in a judge's answer -> the rating; empty if judges answer with numbers
    labels: Mapping[str, int] = field(default_factory=dict)
    # criterion of a custom benchmark -> its description
    criteria: Mapping[str, str] = field(default_factory=dict)
    length_correlation: Mapping[str, RankCorrelation | None] = field(default_factory=dict)
    """Judge -> the rank correlation between the judge's ratings and the lengths of the answers;
    empty in results of earlier versions.
    """
    # p value of the test that judges agree only by chance; None: one judge, or an earlier version
    agreement_p: float | None = None
    constant: tuple[str, ...] = ()
    """The judges that gave many ratings, and the same ratings to every answer."""

    @property
    def is_shown_to_agree(self) -> bool | None:
        """True if the judges agree more than by chance; None if this cannot be tested."""
        if self.agreement_p is not None:
            return self.agreement_p <= SHOWN_BELOW
        # Without a p value, only an alpha that is not positive allows a conclusion.
        if self.krippendorff_alpha is not None and self.krippendorff_alpha <= 0:
            return False
        return None


ALL_ORDERS_SUFFIX = ".all_orders"  # the end of the name of a score over all orders of the choices
# the end of the name of a score over all repeats of each question
REPEATS_MEAN_SUFFIX = ".repeats_mean"


@dataclass(frozen=True)
class Judgements:
    """The number of a jury's judgements (one for each judge and answer).

    Empty answers need no judgement. If the request to the model failed, all judgements are missing.
    """

    due: int  # the number of judgements that are needed
    given: int  # the number of judgements that exist

    @property
    def coverage(self) -> float:
        """The share of the needed judgements that exist."""
        if self.due:
            return self.given / self.due
        return 1.0


@dataclass(frozen=True)
class FailureCause:
    """A group of errors of one role that differ only in numbers and ids."""

    role: str  # `model`, or the judge whose ratings are missing
    count: int
    cause: str  # the error's text, with `...` for a part that differs (a number, an id)
    hint: str | None  # the remedy, if one is known


@dataclass(frozen=True)
class Floor:
    """The best score without a model on the questions of the run.

    An answer without a model is an empty answer, always the same letter, the longest option, and so
    on.
    """

    best: str  # the name of the answer without a model that has the best score
    value: float
    instances: int
    answers: Mapping[str, float]
    """Name of an answer without a model -> its score. `random` has the expected score of a random
    letter.
    """
    lower_is_better: bool = False
    # True if the answers were not scored: `value` is then the lowest rating of the scale
    assumed: bool = False

    @property
    def marked_name(self) -> str:
        """The name in `best`, marked if the score is assumed."""
        if self.assumed:
            return f"{self.best} (assumed)"
        return self.best


@dataclass(frozen=True)
class JudgeProbe:
    """The judges' ratings of an answer without content, for a part of the questions."""

    instances: int
    value: float  # the mean over the questions of the judges' mean rating
    means: Mapping[str, float]  # judge -> its mean rating; for a rubric the share of the points


@dataclass(frozen=True)
class Look:
    """An interim analysis of the first `n` instances.

    The value is their main score, or the difference of this score from another run's score. The
    value is None if it cannot be computed. The intervals of all looks hold simultaneously.
    """

    n: int
    value: float | None
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True)
class StoppedEarly:
    """The result of the stopping rule of a run with `extra.stop_when`."""

    # first the rule itself (`half_width`: 0.02), then its level `alpha`, the `seed` of the sample,
    # and the number of instances at the `first` look
    rule: Mapping[str, Any]
    looks: tuple[Look, ...]
    asked: int  # the number of instances that were asked
    of: int  # the number of the benchmark's instances
    holds: bool  # True if the rule is met at the last look
    stopped: bool  # True if the run stopped before all instances were asked
    saved_requests: int
    saved_cost: float | None  # in US dollars; None if prices are not known

    @property
    def rule_text(self) -> str:
        """The rule as text, such as `half_width 0.02`."""
        name, value = next(iter(self.rule.items()))  # the first entry is the rule itself
        if value is True:
            return name
        return f"{name} {value}"


@dataclass(frozen=True)
class Validity:
    """The facts that decide whether the scores can be trusted."""

    instances: Instances
    judges: Mapping[str, JudgeCounts]
    # label of a score -> its lowest and its highest possible value, whatever the missing values are
    bounds: Mapping[str, tuple[float, float]]
    jury: JuryReport | None
    notes: tuple[str, ...]  # the most important note first
    failures: tuple[FailureCause, ...] = ()  # the model's first, then by judge; most frequent first
    main_split: str | None = None  # the split whose scores have names without the split
    splits: Mapping[str, int] = field(default_factory=dict)  # split -> number of asked instances
    judgements: Judgements | None = None  # the judgements of the main score, if it is a jury's
    # the reasons why the result is not reportable, except too few instances; the first line of a
    # text has the reason, and the further lines have the remedy
    not_reportable: tuple[str, ...] = ()
    # label of a score -> its floor, if it is known
    floors: Mapping[str, Floor] = field(default_factory=dict)
    rubric: RubricReport | None = None
    choice_orders: ChoiceOrders | None = None
    judge_probe: JudgeProbe | None = None  # with `extra.probe_judges`
    asked_again: AskedAgain | None = None
    stopped_early: StoppedEarly | None = None  # with `extra.stop_when`
    urgent_notes: int | None = None
    """The number of urgent notes, which are the first of `notes`: they report that the result, or a
    part of the result, is missing. None in results of earlier versions.
    """

    @property
    def coverage(self) -> float:
        """The share of the instances, or of the judgements, that have a value in the main score."""
        if self.judgements is None:
            return self.instances.coverage
        return self.judgements.coverage

    @property
    def short_reasons(self) -> tuple[str, ...]:
        """The reasons of `not_reportable` without the remedies."""
        return tuple(reason.partition("\n")[0] for reason in self.not_reportable)

    def in_judges_order(self, by_judge: Mapping[str, _T]) -> dict[str, _T]:
        """Return a mapping by judge in the order of `judges`; other judges come last.

        Without sorting, the order would depend on which judge answered first.
        """
        return {name: by_judge[name] for name in (*self.judges, *by_judge) if name in by_judge}


@dataclass(frozen=True)
class Spent:
    """The requests that were sent, with their tokens, latencies and cost.

    The endpoint counts the tokens; a number of tokens is None if the endpoint never counted them.
    """

    requests: int
    cached: int  # the number of answers from the cache, which cost nothing
    retries: int
    prompt_tokens: int | None
    completion_tokens: int | None
    # median and 95th percentile in seconds, without cached answers; None without such answers
    latency_p50_s: float | None
    latency_p95_s: float | None
    cost: Cost | None = None  # None if the cost is not known


@dataclass(frozen=True)
class SpentByRole:
    """The requests of all roles together, and of each role."""

    total: Spent
    roles: Mapping[str, Spent]  # `model` and each judge that was asked


@dataclass(frozen=True)
class Usage:
    """The requests, tokens, cost and time of a run."""

    # the requests of the helm-run that made the result; after a resume, only those since then
    this_run: SpentByRole
    # all requests from this output folder since its first run, or since --fresh
    all_runs: SpentByRole
    runs: int
    wall_s: float  # in seconds
    # the reason why a cost is not known; None if it is known, or if the answers had no cost
    cost_unknown: str | None = None


UTC_FORMAT = "%Y-%m-%dT%H:%M:%SZ"  # the form of times in a result (ISO 8601)


@dataclass(frozen=True)
class AskedServer:
    """One of several servers of a model."""

    url: str  # without query and fragment
    answers: int
    stated_models: Mapping[str, int]  # as in `AskedEndpoint`


@dataclass(frozen=True)
class AskedEndpoint:
    """An endpoint of the evaluated model or of a judge: its settings, and facts about its answers
    in this result.
    """

    model: str  # the model id in requests
    host: str  # the host of the URL, with the port if the URL has one
    # the different sampling settings of answered requests; the most frequent first
    sampling: tuple[Mapping[str, Any], ...]
    answers: int  # the number of stored answers in the result; equal requests share one answer
    # model id in answers -> number of answers; the most frequent first
    stated_models: Mapping[str, int]
    other_model: int  # the number of answers that state another model than requested
    # hashes of the templates of a judge's prompt; None if they are not known
    prompt_sha256: tuple[str, ...] | None
    first_answer: str | None = None
    """The time of the earliest answer, in UTC (ISO 8601). In a resumed run, this time is before
    `started_at`.
    """
    last_answer: str | None = None  # the time of the latest answer
    # the servers that answered, by their URLs; None if there is only one server
    servers: tuple[AskedServer, ...] | None = None

    @property
    def days_of_asking(self) -> int:
        """The number of full days between the first and the last answer; 0 if it is not known."""
        if self.first_answer is None or self.last_answer is None:
            return 0
        try:
            first = datetime.strptime(self.first_answer, UTC_FORMAT)
            last = datetime.strptime(self.last_answer, UTC_FORMAT)
        except ValueError:  # a stored result was altered
            return 0
        return (last - first).days

    @property
    def main_model(self) -> str:
        """The model that most answers state; the requested model if no answer states a model."""
        return next(iter(self.stated_models), self.model)


PASSPORT_FILE = "judge_passport.yaml"
"""The name of a judge's passport in `dataset_files`. Only the corrected score depends on it."""
# the start of names in `dataset_files` of data that eval-factory's package contains
PACKAGE_PREFIX = "package:"


NO_VERSION = "none"
"""The version in `ImportedFrom` for a table, whose program is not known."""
UNKNOWN_VERSION = "unknown"
"""The version in `ImportedFrom` of a program that does not state its version in its results."""


def program_with_version(program: str, version: str) -> str:
    """Return the words for a program with its version, or for a table."""
    if version == NO_VERSION:
        return f"a {program}"
    if version == UNKNOWN_VERSION:
        return program
    return f"{program} {version}"


@dataclass(frozen=True)
class ImportedFrom:
    """The source of an imported result, which another program made."""

    program: str
    version: str
    files: Mapping[str, str]  # name of a file in the source -> SHA-256
    unknown: tuple[str, ...]  # the facts that the source does not state
    # the scores that eval-factory computed in addition to the source's own scores
    added: tuple[str, ...] = ()
    # the folder of the imported result whose answers `rescore` scored; None for a plain import
    rescored_folder: str | None = None

    @property
    def source(self) -> str:
        """The words for the source: a program with its version, or a table."""
        return program_with_version(self.program, self.version)


@dataclass(frozen=True)
class Provenance:
    """The exact versions, settings and data of a run."""

    eval_factory: str
    helm: str | None
    python: str
    packages: Mapping[str, str]  # package -> version
    dataset_files: Mapping[str, str]  # name of a file with data -> SHA-256
    prompts_sha256: str  # the hash of all prompts
    run_identity: str
    errata_version: int
    git_hash: str | None  # the commit of eval-factory's own repository, if it runs from one
    target: str  # the id of the evaluated model
    # the data bundle: the hash of its manifest, and the revision and hash of each data set of the
    # Hub
    data_bundle: Mapping[str, Any] | None = None
    # `confined_by`: the sandboxes that executed the code in answers, if answers were executed
    code_execution: Mapping[str, Any] | None = None
    patches: tuple[str, ...] | None = None  # the applied patches of HELM; None: not recorded
    # `model` and each judge -> the facts about its endpoint
    endpoints: Mapping[str, AskedEndpoint] = field(default_factory=dict)
    dataset_revisions: Mapping[str, str] = field(default_factory=dict)
    """File, folder or data set of the Hub -> the commit at which it was read, if the commit is
    known.
    """
    platform: Mapping[str, str] = field(default_factory=dict)
    """Facts about the machine: `system`, `distribution`, `libc`, `machine`, `implementation`."""
    # the hash of framework.yml, which holds the tasks and all default values
    framework_sha256: str | None = None
    # the hash of packages.txt in the output folder: every installed package with its version
    lock_sha256: str | None = None
    # name of a random draw -> its seed
    seeds: Mapping[str, int] = field(default_factory=dict)
    # start and end of the helm-run that made the result, in UTC (ISO 8601)
    started_at: str | None = None
    ended_at: str | None = None
    # the month (`YYYY-MM`) by which the benchmark was public; None if it is not known
    published: str | None = None
    answers_public: bool | None = None  # None if not known, as for the user's own data
    # the month in which the model's training data end, as stated by the user
    training_cutoff: str | None = None
    # the way in which pictures were reduced before they were sent; None: they were not reduced
    pictures: str | None = None
    # the smallest token limit of answers to questions that were asked in other words or after a
    # further turn; None: the benchmark's own limit
    asked_again_tokens: int | None = None
    # if the model was not asked: the identity of the run that asked for the answers
    rescored_from: str | None = None
    run_files: Mapping[str, str] = field(default_factory=dict)
    """HELM's files and the cache, from which the result was computed: path in the output folder ->
    SHA-256.
    """
    # the version of the statistical methods (scoring/methods.py); 1 in results without this field
    statistics_version: int = 1
    # the version of the reader of answers (reading/reader.py); 1 in results without this field
    reader_version: int = 1
    # the HELM whose version is in `helm`: `helm` (crfm-helm) or `medhelm`
    upstream: str = "helm"
    # None: eval-factory itself asked for the answers
    imported: ImportedFrom | None = None

    @property
    def helm_package(self) -> str:
        """The name of the upstream's package."""
        if self.upstream == "helm":
            return "crfm-helm"
        return self.upstream

    @property
    def helm_name(self) -> str:
        """The name of the upstream in texts."""
        if self.upstream == "helm":
            return "HELM"
        return self.upstream


@dataclass(frozen=True)
class InstanceRecord:
    """One instance, in one trial and perturbation, with all facts about its answer."""

    id: str
    split: str
    sub_split: str | None
    trial: int
    perturbation: str | None
    prompt: str
    references: tuple[Mapping[str, Any], ...]  # `text` and `tags` of each reference
    # field of HELM's extra data -> its value: a short text, a number, or true or false
    categories: Mapping[str, Any]
    completion: str | None
    metrics: Mapping[str, float]  # name of a metric, without the split -> value
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_s: float | None
    cached: bool
    error: str | None
    # judge -> the mean of its ratings; with a rubric: the score by its decisions
    judges: Mapping[str, float]
    unjudged: bool  # True if the instance has an answer, but no usable judgement
    injection: tuple[str, ...]  # the ways in which the answer tries to influence its judges
    # the names of the answer's signs (core/signs.py): unparsed, refused, thinking_stripped ...
    signs: tuple[str, ...] = ()
    # the source that several instances share, if the task declares clusters
    cluster: str | None = None
    # messages with `role` and `content`; empty if the prompt is a single text
    turns: tuple[Mapping[str, Any], ...] = ()
    media: tuple[Mapping[str, Any], ...] = ()
    """Each picture and sound that was sent: `type`, `sha256`, `bytes`, and `file` in the output
    folder (None if the file is not in the output folder).
    """
    reasoning: str | None = None  # the model's thoughts, if the endpoint returns them; not scored
    # the question without the rest of the prompt, in an imported result whose source states it
    question: str | None = None
    judgements: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Judge -> criterion -> the judge's rating and explanation; `error` if the judge gave none."""
    # the criteria of a rubric: points, tags, verdict, each judge's answer
    criteria: tuple[Mapping[str, Any], ...] = ()

    def group_value(self, field: str) -> str | None:
        """Return the instance's value of a field by which results are grouped, as a text.

        Return None if the instance does not have the field.
        """
        value = self.sub_split if field == "sub_split" else self.categories.get(field)
        if value is not None:
            return str(value)
        return None

    @property
    def lowest_score(self) -> float | None:
        """The score of a rubric's case if exactly the criteria with negative points are met.

        None without a rubric. The highest possible score is 1.
        """
        points = [float(criterion["points"]) for criterion in self.criteria]
        maximum = sum(number for number in points if number > 0)
        if not maximum:
            return None
        return sum(number for number in points if number < 0) / maximum


@dataclass(frozen=True)
class TaskResult:
    """The result of one evaluation."""

    task: str
    main_metric: str
    scores: Scores
    # field of the instances (such as category) -> its value -> scores
    groups: Mapping[str, Mapping[str, Scores]]
    validity: Validity
    usage: Usage
    provenance: Provenance
    # read from files again at each iteration
    instances: Iterable[InstanceRecord] = field(repr=False)
    reportable: bool
    status: RunStatus
    something_to_ask: bool  # True if the same command would send further requests
    comparability: Comparability | None = None  # None in results of earlier versions
    clinicians: Clinicians | None = None  # None if no answer was rated by people

    @property
    def is_demo(self) -> bool:
        """True if the run asked the embedded endpoint instead of a model."""
        return DEMO in self.validity.not_reportable


@dataclass(frozen=True)
class ResponseStatistics:
    """Statistics of all requests to the evaluated model since the folder's first run.

    Answers from the cache are not counted, because no request was sent.
    """

    responses: int  # the number of responses with any HTTP status
    successful: int
    # the next four: (mean, maximum)
    prompt_tokens: tuple[float | None, float | None]
    completion_tokens: tuple[float | None, float | None]
    total_tokens: tuple[float | None, float | None]
    latency_s: tuple[float | None, float | None]
    status_codes: Mapping[int, int]  # HTTP status -> number of responses
    finish_reasons: Mapping[str, int]  # finish reason -> number of stored answers
    runs: tuple[tuple[float, float], ...]
    """(first request, last response) of each helm-run that sent requests, in seconds since the
    epoch; in the order of time.
    """
