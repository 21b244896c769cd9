"""Judges that were asked about an answer that says nothing: what they gave it is a floor, measured, not assumed."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eval_factory.core import formats
from eval_factory.core.results import JudgeProbe
from eval_factory.helm import judge_probe, output
from eval_factory.helm.criterion_output import decisions_of
from eval_factory.helm.judge_probe import JudgedProbe
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.jury import Jury
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.rubric import RubricTally

FEWEST = 3
"""Questions, for a floor."""


@dataclass(frozen=True)
class ProbedJudges:
    probes: Sequence[JudgedProbe]
    run: output.HelmRun
    rubric: RubricTally | None
    judges: Mapping[str, str]
    """Of a jury: judge -> its name in HELM's annotations."""

    @classmethod
    def of(cls, plan: Plan, run: output.HelmRun, rubric: RubricTally | None, jury: Jury | None) -> ProbedJudges | None:
        """None where judges were not asked about one."""
        if not plan.evaluation.run.config.params.extra.probe_judges or not (rubric or jury):
            return None
        return cls(judge_probe.read(plan.rundir.helm), run, rubric, jury.names if jury else {})

    def complete(self, draft: Draft) -> None:
        marks = self._by_rubric() if self.rubric is not None else self._by_jury()
        of_all = [statistics.fmean(by_judge.values()) for by_judge in marks if by_judge]
        if len(of_all) < FEWEST:
            too_few = "the judges gave too few marks to a text that says nothing"
            draft.notes.add(Importance.DOUBTFUL, f"probe_judges: {too_few}")
            return
        judges = dict.fromkeys(judge for by_judge in marks for judge in by_judge)
        means = {judge: statistics.fmean(one[judge] for one in marks if judge in one) for judge in judges}
        draft.judge_probe = JudgeProbe(len(of_all), statistics.fmean(of_all), means)
        said = ", ".join(f"{judge} gives it {formats.score(mean)}" for judge, mean in means.items())
        draft.notes.add(Importance.BACKGROUND, f"{judge_probe.NAME}, to {len(of_all)} questions: {said}")

    def _by_jury(self) -> list[dict[str, float]]:
        """Of each question: judge -> the mean of its ratings."""
        found: list[dict[str, float]] = []
        if (jury := self.run.jury) is None:
            return found
        for one in self.probes:
            of_each = ((judge, output.ratings_of(one.annotations, jury, self.judges[judge])) for judge in self.judges)
            found.append({judge: statistics.fmean(rated.values()) for judge, rated in of_each if rated})
        return found

    def _by_rubric(self) -> list[dict[str, float]]:
        """Of each question: judge -> the share of the points that it gives."""
        found = []
        cases = {key[0]: case for key, case in self.rubric.cases.items()} if self.rubric is not None else {}
        judges = self.rubric.judges if self.rubric is not None else ()
        for one in self.probes:
            if (case := cases.get(one.instance)) is None:
                continue
            judged = replace(case, votes=tuple(decisions_of(one.annotations, judges, len(case.criteria))))
            by_judge = {judge: judged.score_by(judge) for judge in judges}
            found.append({judge: score for judge, score in by_judge.items() if score is not None})
        return found
