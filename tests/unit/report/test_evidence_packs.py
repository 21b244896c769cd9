"""Evidence packs: every item once, each fact of a result where it belongs, and nothing that the result does not hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from described_runs import CONFIG, ODD, TARGET, hostile, of_a_jury, of_a_rubric, plain
from eval_factory.core.budget import Cost
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import (
    Agreement,
    ChoiceOrders,
    Clinicians,
    FailureCause,
    Floor,
    JudgeCorrection,
    JudgeProbe,
    Score,
    Share,
    TaskResult,
)
from eval_factory.monitor.ledger import History
from eval_factory.monitor.report import PanelPackWriter
from eval_factory.report.described_run import DescribedRun
from eval_factory.report.evidence_packs import (
    PACKS,
    Pack,
    citations_of_pack,
    describe_run_for_pack,
    pack_markdown,
    pack_of,
    pack_texts,
)
from eval_factory.report.page.document import pack_page
from eval_factory.report.paper_templates import paper_texts
from eval_factory.report.reader import load_result
from facts import each_says, says
from finished_folder import finished_folder
from invented_ledger import alarm, baseline, change, ledger, limit, look, not_made, note
from unit.core.test_rendered_tables import MARKDOWN

ANNEX = [f"Annex IV, {point}({letter})" for point, letter in product((1, 2), "abcdefgh")]
NUMBERS = {
    "ruaih": [str(number) for number in range(1, 8)],
    "pccp": ["VI", *(f"VII ({number})" for number in range(1, 5)), "VII (traceability)", "VIII"],
    "ai-act": [
        *ANNEX,
        *(f"Annex IV, {point}" for point in range(3, 10)),
        *(f"Article {number}" for number in (9, 10, 11, 12, 13, 14, 15, 17, 26, 72, 73)),
    ],
}
FILES = {"report.html": "1" * 64, "attestation.intoto.json": "2" * 64}
CHANGE = {"change": "another model of the vendor"}


def pack(
    name: str,
    made: TaskResult | None = None,
    lines: Sequence[Mapping[str, Any]] | None = None,
    **other: Any,
) -> Pack:
    cite = citations_of_pack()
    run = None
    if made is not None:
        config = other.get("config", CONFIG)
        files = other.get("files", {})
        run = DescribedRun(
            made,
            config,
            TARGET,
            cite,
            {**paper_texts()["sentences"], **pack_texts()["sentences"]},
            files,
        )
    if lines is None:
        return pack_of(name, ["Of something."], cite, run)
    panel = PanelPackWriter(History(lines, head=other.get("head", "")), other.get("plan", {}))
    return pack_of(
        name, panel.render_sentences(pack_texts()["panel"]["of"]), cite, run, panel.render_sentences
    )


def told(made: Pack) -> str:
    """All that is claimed; no sentence has a hole where a value is missing."""
    said = "\n".join(
        [*made.subject, *made.warnings, *(chain.from_iterable(item.answers for item in made.items))]
    )
    assert re.findall(r".*(?:\(\)|None|  | [.,:;]|,\.|;\.).*", said.replace(" .. ", " to ")) == []
    return said


def all_told(
    made: TaskResult | None = None, lines: Sequence[Mapping[str, Any]] | None = None, **other: Any
) -> str:
    return "\n".join(told(pack(name, made, lines, **other)) for name in PACKS)


def with_validity(made: TaskResult, **changes: Any) -> TaskResult:
    return replace(made, validity=replace(made.validity, **changes))


def with_provenance(made: TaskResult, **changes: Any) -> TaskResult:
    return replace(made, provenance=replace(made.provenance, **changes))


def with_stats(made: TaskResult, **changes: Any) -> TaskResult:
    scores = {
        name: replace(one, stats=replace(one.stats, **changes)) for name, one in made.scores.items()
    }
    return replace(made, scores=scores)


def with_group(made: TaskResult, score: Score) -> TaskResult:
    return replace(made, groups={"ward": {"surgery": {made.main_metric: score}, "empty": {}}})


def full() -> TaskResult:
    """With everything that a result may hold."""
    made = with_stats(of_a_rubric(), trials=3)
    validity = made.validity
    metric = made.main_metric
    assert validity.rubric is not None
    fixed = JudgeCorrection(
        "kind",
        0.5,
        0.4321,
        0.3001,
        0.5642,
        "delta",
        0.91,
        0.83,
        4321,
        0.9,
        "2026-05-06",
        "5" * 64,
        {},
    )
    made = with_validity(
        made,
        rubric=replace(validity.rubric, correction=fixed),
        judge_probe=JudgeProbe(50, 0.1234, {"kind": 0.1}),
        floors={metric: Floor("the longest option", 1.5, 3, {"the longest option": 1.5})},
        failures=(FailureCause("model", 7, "HTTP 503", None),),
        instances=replace(validity.instances, refused=6),
        judges={
            name: replace(one, same_family=name == "kind") for name, one in validity.judges.items()
        },
        choice_orders=ChoiceOrders(4, 9, {}, {}, Share(0.257, 9, 0.1, 0.4), None, {}),
    )
    endpoints = {
        role: replace(one, first_answer="2026-03-04T00:00:00Z", last_answer="2026-03-05T00:00:00Z")
        for role, one in made.provenance.endpoints.items()
    }
    made = with_provenance(
        made,
        published="2019-09",
        answers_public=True,
        git_hash="c0ffee",
        lock_sha256="6" * 64,
        endpoints=endpoints,
        code_execution={"confined_by": ["bwrap"]},
    )
    score = replace(
        made.scores[metric],
        value=2.5,
        stats=replace(made.scores[metric].stats, p_value=0.01, p_holm=0.034),
    )
    total = replace(made.usage.all_runs.total, cost=Cost(12.34, "the price table", 1, 2))
    return replace(
        with_group(made, score),
        usage=replace(made.usage, all_runs=replace(made.usage.all_runs, total=total)),
        clinicians=Clinicians(2, 3, 2, 4, agreement=Agreement(2, 0.55)),
        scores={**made.scores, "second.metric": replace(score, value=0.7777)},
    )


OFFLINE = {**CONFIG, "params": {**CONFIG["params"], "extra": {"offline": True}}}


def nobody(made: TaskResult) -> TaskResult:
    """No judge was asked."""
    model = {"model": made.provenance.endpoints["model"]}
    return with_provenance(
        with_validity(made, judges={}, rubric=None, jury=None, judgements=None), endpoints=model
    )


def without(*path: str, value: Any = None) -> Callable[[TaskResult], TaskResult]:
    def taken(record: Any, names: Sequence[str]) -> Any:
        return (
            value
            if not names
            else replace(record, **{names[0]: taken(getattr(record, names[0]), names[1:])})
        )

    return lambda made: taken(made, path)


FACTS: dict[str, tuple[Callable[[TaskResult], TaskResult], list[str]]] = {
    "intervals": (
        lambda made: with_group(
            with_stats(made, ci_low=None, ci_high=None),
            replace(
                made.groups["ward"]["surgery"][made.main_metric],
                stats=replace(made.scores[made.main_metric].stats, ci_low=None),
            ),
        ),
        ["(95 % interval 2.1000 to 4.9000)", "The 95 % interval of the main score is"],
    ),
    "groups": (without("groups", value={}), ["ward", "surgery", "against all others", "p 0.034"]),
    "tests of groups": (
        lambda made: with_group(made, made.scores[made.main_metric]),
        ["against all others", "p 0.034"],
    ),
    "judges": (
        nobody,
        ["judge/one", "judge/two", "language models", "Krippendorff's alpha", "c" * 64, "kind"],
    ),
    "families": (
        lambda made: with_validity(
            made,
            judges={
                name: replace(one, same_family=None) for name, one in made.validity.judges.items()
            },
        ),
        ["Judge kind belongs to the evaluated model's family"],
    ),
    "a passport": (
        without("validity", "rubric", "correction"),
        [
            "0.4321 (95 % interval 0.3001 to 0.5642)",
            "2026-05-06",
            "5" * 64,
            "4,321",
            "91.0 %",
            "83.0 %",
        ],
    ),
    "a probe": (without("validity", "judge_probe"), ["50 questions", "0.1234"]),
    "people's ratings": (
        without("clinicians"),
        [
            "Ratings by people: 2 of 3 answers rated by 2 raters.",
            "agreement of the raters: alpha 0.55",
        ],
    ),
    "floors": (
        without("validity", "floors", value={}),
        ["without a model", "the longest option"],
    ),
    "failures": (
        without("validity", "failures", value=()),
        ["Requests to the model failed 7 times: HTTP 503."],
    ),
    "refusals": (without("validity", "instances", "refused", value=0), ["declined"]),
    "orders of choices": (
        without("validity", "choice_orders"),
        ["in 4 orders", "25.7 % (95 % interval 10.0 % to 40.0 %) of 9 questions"],
    ),
    "the interval of that": (
        lambda made: with_validity(
            made, choice_orders=ChoiceOrders(4, 9, {}, {}, Share(0.257, 9), None, {})
        ),
        ["interval 10.0 % to 40.0 %"],
    ),
    "prices": (
        without("usage", "all_runs", "total", "cost", "unpriced_requests", value=0),
        ["at least 12.34"],
    ),
    "trials": (lambda made: with_stats(made, trials=None), ["Each instance was asked 3 times"]),
    "costs": (
        without("usage", "all_runs", "total", "cost"),
        ["at least 12.34 USD (the price table)"],
    ),
    "dates": (
        lambda made: with_provenance(
            made,
            started_at=None,
            endpoints={
                role: replace(one, first_answer=None)
                for role, one in made.provenance.endpoints.items()
            },
        ),
        ["The answers came from 2026-03-04", "The run went from 2026-01-02"],
    ),
    "what answers state": (
        lambda made: with_provenance(
            made,
            endpoints={
                role: replace(one, stated_models={})
                for role, one in made.provenance.endpoints.items()
            },
        ),
        ["org/model-0806"],
    ),
    "hosts": (
        lambda made: with_provenance(made, endpoints={}),
        ["Prompts went to api.example.org", "The requests to judge kind went to h."],
    ),
    "settings": (
        lambda made: with_provenance(
            made,
            endpoints={
                role: replace(one, sampling=()) for role, one in made.provenance.endpoints.items()
            },
        ),
        ["temperature = 0.0"],
    ),
    "a commit": (without("provenance", "git_hash"), ["c0ffee"]),
    "installed packages": (without("provenance", "lock_sha256"), ["6" * 64]),
    "executed answers": (
        without("provenance", "code_execution"),
        ["were executed in a confined process"],
    ),
    "dates of the data": (
        without("provenance", "answers_public"),
        ["published by 2019-09", "its answers are public"],
    ),
    "hashes of data": (without("provenance", "dataset_files", value={}), ["a" * 64]),
    "revisions": (without("provenance", "dataset_revisions", value={}), ["1f00b98"]),
    "scores": (
        lambda made: replace(made, scores={}, groups={}),
        ["4.2500", "0.7777", "2.5000", "second.metric"],
    ),
    "what may not be reported": (
        without("reportable", value=True),
        ["Not reportable: ", "may not be reported", "gave no usable judgement of 1 of 3 answers"],
    ),
    "what is missing": (without("status", value=RunStatus.COMPLETE), ["The result is partial"]),
}
"""Fact -> how a result is without it, and what a pack says of it."""


@pytest.mark.parametrize("fact", FACTS)
def test_nothing_is_claimed_that_the_result_does_not_hold(fact: str) -> None:
    take, words = FACTS[fact]
    held = all_told(full())
    rest = all_told(take(full()))
    assert [one for one in words if one not in held] == []
    assert [one for one in words if one in rest] == []


def test_of_a_bare_result_only_what_was_done_is_said() -> None:
    made = with_provenance(
        plain(scores={}), endpoints={}, platform={}, packages={}, patches=None, started_at=None
    )
    bare = with_validity(
        made,
        floors={},
        failures=(),
        bounds={},
        instances=replace(made.validity.instances, failed=0),
    )
    said = all_told(bare, config={}).lower()
    for word in (
        "interval",
        "judge",
        "group",
        "sha256sums",
        "offline",
        "usd",
        "alarm",
        "gate",
        "ledger",
        "reported",
        "people",
    ):
        assert word not in said
    assert pack("ruaih", bare).warnings == []


def test_files_and_offline_are_said_where_they_are_known(tmp_path: Path) -> None:
    said = all_told(plain(), files=FILES, config=OFFLINE)
    says(said, "SHA256SUMS lists 2 files", "in-toto statement")
    says(said, "connections to the endpoints")
    assert "statement" not in all_told(plain(), files={"report.html": "1"})
    other = all_told(plain(), config={"params": {"extra": {"offline": False}}})
    assert "SHA256SUMS" not in other
    assert "offline" not in other
    folder = finished_folder(tmp_path / "out").root
    run = describe_run_for_pack(load_result(folder), citations_of_pack())
    listed = len((folder / "SHA256SUMS").read_text().splitlines())
    says(
        told(pack_of("ruaih", [], citations_of_pack(), run)),
        f"SHA256SUMS lists {listed} files",
        "in-toto",
    )


def test_a_demo_is_no_model() -> None:
    made = with_provenance(plain(), target="demo baseline")
    for name in PACKS:
        assert "No model was evaluated" in pack(name, made).warnings[0]
    assert "Prompts went to" not in all_told(made)


@pytest.mark.parametrize("name", PACKS)
def test_what_a_reader_has_to_know_first_stands_on_top(name: str) -> None:
    for text in (pack_markdown(pack(name, of_a_jury())), pack_page(pack(name, of_a_jury()))):
        top = re.split("What is known(?!</a>)", text)[0]
        says(top, "Not reportable: ", "may not be reported", "(judge strict gave")
        assert "The result is partial" in top
    bare = pack(name, replace(plain(), reportable=False)).warnings
    says(bare[0], "Not reportable: ", "may not be reported")
    assert "judge" not in bare[0]
    floor = pack(name, plain()).warnings
    assert len(floor) == 1
    says(floor[0], "Not shown", "without a model")
    says(floor[0], "chance may explain")
    assert (
        pack(
            name, with_validity(plain(), floors={"exact_match": Floor("a", 0.1, 20, {"a": 0.1})})
        ).warnings
        == []
    )


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("made", [plain, of_a_jury, full, hostile])
def test_every_item_is_there_once(made: Callable[[], TaskResult], name: str) -> None:
    assert list(pack_texts()["packs"][name]["items"]) == NUMBERS[name]
    text = pack_markdown(pack(name, made()))
    known, left = text.split("\n## Left to people\n")
    names = "|".join(map(re.escape, NUMBERS[name]))
    headings = re.findall(rf"^### ({names}): ", known, re.MULTILINE)
    rows = re.findall(rf"^\| ({names}) \| ", left, re.MULTILINE)
    assert Counter([*headings, *rows]) == Counter(NUMBERS[name])
    assert known.count("*Only people can answer: ") == len(headings)
    cited = {
        int(one)
        for one in chain.from_iterable(
            found.split(", ") for found in re.findall(r"\(ref\. (\d+(?:, \d+)*)\)", known)
        )
    }
    listed = [
        int(number)
        for number in re.findall(r"^(\d+)\. ", text.partition("## References")[2], re.MULTILINE)
    ]
    assert sorted(cited) == listed
    assert re.search(r"[^\n]\n\Z", text)
    assert all(len(set(item.answers)) == len(item.answers) for item in pack(name, made()).items)


SAID = {
    "model": "The evaluated model was org/model",
    "dates": "The answers came from",
    "sampling": "Requests were sent with",
    "prompts": "The prompts were those of HELM",
    "metric": "The main metric was",
    "benchmark": "The benchmark was medication_qa",
    "data": "Source of its data",
    "instances": "3 instances (split test: 3) were asked",
    "errata": "Known defects of benchmarks",
    "quality": "HELM 0.5.16 read the data",
    "failures": "Requests to the model failed 7 times",
    "missing": "requested instances have a score",
    "doubt": "this score may not be reported",
    "judges": "by 2 language models",
    "passport": "the judge's passport of 2026-05-06",
    "orders": "With choices in 4 orders",
    "trials": "Each instance was asked 3 times.",
    "flow": "Prompts went to",
    "sums": "SHA256SUMS lists",
    "software": "The evaluation was run with",
    "costs": "12.34 USD",
    "score": "medication_qa_accuracy = 4.2500",
    "other": "second.metric = 0.7777",
    "floor": "(the longest option)",
    "groups": "ward surgery",
    "interval": "The 95 % interval of the main score is",
    "baseline": "The baseline of epoch 1",
    "limits": "may be worse by at most",
    "looks": "look 2, on",
    "alarms": "Alarm: ",
    "ledger": "written to the panel's ledger",
    "plan": "Planned: another model",
    "changes": "Change 1 on",
    "notes": "Note of Dr. A",
}
"""A word for each kind of facts -> how it begins."""
SCORES = "score doubt other floor"
TEST_DATA = "benchmark data instances errata"
RECORDS = "sums software"
JUDGES = "judges passport"
WATCH = "baseline limits looks alarms ledger"
HELD = {
    "ruaih": {
        "1": "plan changes notes",
        "2": "data",
        "3": f"flow {RECORDS}",
        "4": f"{WATCH} model dates missing failures {JUDGES} {SCORES} interval",
        "5": "alarms",
        "6": f"limits {TEST_DATA} orders trials passport score doubt groups",
    },
    "pccp": {
        "VI": "plan changes model sampling prompts",
        "VII (1)": f"baseline {TEST_DATA} quality {JUDGES}",
        "VII (3)": f"plan limits changes metric dates missing failures {JUDGES} orders trials {RECORDS} {SCORES} groups interval",
        "VII (4)": "looks alarms ledger",
        "VIII": "changes alarms groups",
    },
    "ai-act": {
        "Annex IV, 1(a)": "model dates",
        "Annex IV, 2(c)": "costs",
        "Annex IV, 2(f)": "plan changes",
        "Annex IV, 2(g)": f"baseline looks {TEST_DATA} prompts sampling metric missing failures {JUDGES} {RECORDS} {SCORES} groups interval",
        "Annex IV, 3": "limits alarms missing failures score doubt groups",
        "Annex IV, 4": f"metric {JUDGES}",
        "Annex IV, 6": "changes baseline",
        "Annex IV, 9": WATCH,
        "Article 9": "limits plan",
        "Article 10": f"{TEST_DATA} quality",
        "Article 12": "ledger",
        "Article 13": "score doubt",
        "Article 15": "looks missing failures orders trials score doubt",
        "Article 26": "looks alarms",
        "Article 72": "limits looks alarms notes",
        "Article 73": "alarms",
    },
}
"""Item -> which facts stand there, where a result and a ledger hold them."""


@pytest.mark.parametrize("name", PACKS)
def test_each_fact_stands_under_the_items_that_ask_for_it(name: str) -> None:
    lines = ledger(baseline(), look(1), look(2, alarm(2)), note("told"), change())
    found = {
        item.number: "\n".join(item.answers)
        for item in pack(name, full(), lines, plan=CHANGE, files=FILES).items
    }
    kinds = {
        number: {kind for kind, words in SAID.items() if words in known}
        for number, known in found.items()
        if known
    }
    words = {number: set(held.split()) for number, held in HELD[name].items()}
    shared = {"floor", "software", "errata"}  # some of it is said in other words, too
    assert {number: kinds[number] - held - shared for number, held in words.items()} == {
        key: set() for key in words
    }
    assert {number: held - kinds[number] for number, held in words.items()} == {
        key: set() for key in words
    }
    assert kinds.keys() == words.keys()


AREAS = {
    "Governance": ["1"],
    "Data management": ["2", "3"],
    "Risk and bias": ["6"],
    "Monitoring, evaluation and validation": ["4", "5"],
    "Transparency, education and training": ["2", "7"],
}


def test_ruaih_is_told_by_the_certifications_areas_as_well() -> None:
    made = pack("ruaih", full())
    assert {area.name: [item.number for item in area.items] for area in made.areas} == AREAS
    for text in (pack_markdown(made), pack_page(made)):
        by_area = text.partition("By the areas of the certification")[2]
        positions = [by_area.index(name) for name in AREAS]
        assert positions == sorted(positions)
        says(by_area, "left to people")
    assert pack("pccp", full()).areas == []
    assert "certification" not in pack_markdown(pack("pccp", full()))


def of_panel(*kinds: Mapping[str, Any], **other: Any) -> str:
    return all_told(None, ledger(*kinds), **other)


ALARMED_BY_ANY_CHANGE = {"alarm_on": ["changed"], "harm_alpha": 0.025}
QUIET = "raised an alarm; this does not prove that nothing changed"


def test_a_panel_without_an_alarm_says_what_that_is_worth() -> None:
    said = of_panel(
        baseline(**ALARMED_BY_ANY_CHANGE),
        look(1),
        not_made(2, "the endpoint is gone"),
        {"kind": "begun", "look": 3},
        head="e" * 64,
        plan=CHANGE,
    )
    for sentence in (
        "The baseline of epoch 1 was made on 2027-01-02T06:00:00Z (UTC) (first baseline): each benchmark was run 5 times.",
        f"The run baseline/1/5/m/notes of the baseline has the checksums {'5' * 64}.",
        "notes: exact_match may be worse by at most 0.0200 than the baseline's 0.8300, over 100 instances.",
        "The chance of a false alarm of a drop is at most 2.5 % in 52 looks.",
        "The following also raise an alarm: changed.",
        (
            "notes: according to a simulation at the baseline, a drop of 5.0 % of the scale is "
            "found with a probability of 87.0 %, in the median after 6 looks."
        ),
        (
            "notes: according to a simulation at the baseline, a drop of 2.0 % of the scale is "
            "found with a probability of 30.0 %."
        ),
        "1 look was made in epoch 1, of 52 planned; the last, look 1, on 2027-01-03T06:00:00Z (UTC).",
        "notes at look 1: 0.7000, 3 values missing; e-value of a drop 0.8.",
        "The mean e-value of all limits is 0.8124; the panel raises an alarm at 40.",
        "Answers that are refused: 3.0 %, in the baseline 1.0 %.",
        "Look 2 was not made: the endpoint is gone.",
        "Look 3 was started and has no result.",
        f"No look of epoch 1 {QUIET}.",
        "Planned: another model of the vendor",
        f"The policy of changes was fixed with the baseline of epoch 1 (SHA-256 {'7' * 64}).",
        (
            "4 lines were written to the panel's ledger, from 2027-01-02T06:00:00Z to "
            "2027-01-05T06:00:00Z (UTC); each line names the SHA-256 of the line before."
        ),
        f"The SHA-256 of the ledger's last line is {'e' * 64}.",
    ):
        assert f"\n{sentence}\n" in f"\n{said}\n"
    assert "was started" not in of_panel(baseline(), {"kind": "begun", "look": 1}, look(1))
    assert "was started" not in of_panel(baseline(), {"kind": "begun", "look": 1}, not_made(1, "x"))
    assert "ALARM" not in said
    assert not any(pack(name, None, ledger(baseline(), look(1))).warnings for name in PACKS)


HARM = "a drop beyond its limit: notes (worse by 0.0600); raised by look 2 of epoch 1, since about look 2."
SURE = {"notes": {"e": 20.0, "since": 3}}
"""That something changed: 1 limit / alpha."""
ALARMS: dict[str, tuple[list[Mapping[str, Any]], str]] = {
    "harm": ([look(1), look(2, alarm(2))], HARM),
    "something changed": (
        [look(1, alarm(1, "changed"))],
        "something changed: notes; raised by look 1 of epoch 1, since about look 1.",
    ),
    "a figure": (
        [look(1, alarm(1, "refused", names=["refused"], since=None))],
        "ALARM: refused; raised by look 1 of epoch 1.",
    ),
    "a drop that is not known": (
        [look(2, alarm(2, drops={"notes": None}))],
        "a drop beyond its limit: notes; raised by look 2",
    ),
    "looks after it": ([look(2, alarm(2)), look(3), look(4)], HARM),
    "no look after it": ([look(2, alarm(2)), not_made(3, "x")], HARM),
    "a second line": (
        [look(4, changed=SURE)],
        "At look 4 something had changed in notes, for the better or the worse (e-value 20), since about look 3.",
    ),
    "a second line alone": (
        [look(4, changed={"notes": {"e": 20.0, "since": None}})],
        "for the better or the worse (e-value 20).",
    ),
    "a second line of an earlier look": (
        [look(4, changed=SURE), look(5)],
        "At look 4 something had changed in notes",
    ),
    "another model": (
        [look(1, watched={"stated": ["n", "o"]})],
        "At look 1 the answers named these models: n and o; in the baseline: m1-0301.",
    ),
    "no model": (
        [look(1, watched={"stated": []})],
        "At look 1 the answers named these models: none; in the baseline: m1-0301.",
    ),
}


@pytest.mark.parametrize("name", PACKS)
@pytest.mark.parametrize("kind", ALARMS)
def test_a_panel_with_an_alarm_never_reads_as_in_control(kind: str, name: str) -> None:
    kinds, sentence = ALARMS[kind]
    made = pack(name, plain(), ledger(baseline(), *kinds))
    assert sentence in made.warnings[0]
    assert made.warnings[0].startswith("ALARM: ") == any(one.get("alarm") for one in kinds)
    assert QUIET not in told(made)
    for text in (pack_markdown(made), pack_page(made)):
        assert sentence in re.split("What is known(?!</a>)", text)[0]
    sentence = sentence.replace("ALARM", "Alarm")
    number = {"ruaih": "4", "pccp": "VII (4)", "ai-act": "Annex IV, 9"}[name]
    assert sentence in "\n".join(next(item.answers for item in made.items if item.number == number))


def test_an_alarm_of_an_earlier_epoch_is_not_forgotten() -> None:
    lines = ledger(
        baseline(),
        look(1, changed=SURE),
        look(2, alarm(2)),
        baseline(why="a new model"),
        look(1),
        look(2),
    )
    for name in PACKS:
        (warning,) = pack(name, None, lines).warnings
        says(warning, "ALARM", "earlier epoch")
        assert HARM in warning
    said = told(pack("ruaih", None, lines))
    says(said, "No look of epoch")
    assert f"epoch 2 {QUIET}." in said
    says(said, "2 looks were made", "epoch 2")
    says(said, "baseline of epoch 2")
    both = ledger(baseline(), look(2, alarm(2)), baseline(), look(3, alarm(3, "changed")))
    earlier, now = pack("ruaih", None, both).warnings
    says(earlier.partition(":")[0], "ALARM", "earlier epoch")
    assert now.partition(":")[0] == "ALARM"


def test_what_was_noted_since_an_alarm_stands_below_it() -> None:
    before = note("spring cleaning", "B")
    since = note("the vendor was told")
    later = note("all is new", "C")
    lines = ledger(
        baseline(), look(1), before, look(2, alarm(2)), since, look(3, alarm(2)), baseline(), later
    )
    found = {item.number: item.answers for item in pack("ruaih", None, lines).items}
    raised, noted = found["5"]
    assert raised == f"Alarm: {HARM}"
    says(noted, "Dr. A", "2027-01-06T06:00:00Z (UTC)", "was told")
    notes = [
        f"Note of B on 2027-01-04T06:00:00Z (UTC): {before['text']}",
        "Note of C on 2027-01-09T06:00:00Z (UTC): all is new",
    ]
    assert [one for one in found["1"] if one in notes] == notes
    assert noted in told(pack("ai-act", None, lines))
    alone = pack("ruaih", None, ledger(baseline(), before, look(2, alarm(2))))
    assert alone.items[4].answers == [f"Alarm: {HARM}", "No note was made since the alarm."]
    worse = alarm(2, names=["notes", "medec"], drops={"notes": 0.06, "medec": 0.1})
    grown = pack("ruaih", None, ledger(baseline(), look(2, alarm(2)), look(3, worse)))
    says(grown.warnings[0], "notes (worse by 0.0600)", "medec (worse by 0.1000)", "look 2")


def test_of_a_panel_that_has_not_begun_nothing_is_said() -> None:
    for name in PACKS:
        (warning,) = pack(name, None, []).warnings
        says(warning, "no baseline")
        new = pack(name, None, ledger(baseline()))
        (warning,) = new.warnings
        says(warning, "No look", "2027-01-02T06:00:00Z (UTC)")
        assert QUIET not in told(new)
    each_says(
        told(pack("ruaih", None, [])).splitlines(),
        ["0 lines", "0 looks"],
        ["no baseline"],
        ["0 lines", "panel's ledger"],
    )
    again = pack("ruaih", None, ledger(baseline(), look(1), baseline()))
    says(again.warnings[0], "No look", "not known")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limits": []}, ["may be worse by at most", "The chance of a false alarm"]),
        ({"power": {}}, ["according to a simulation at the baseline"]),
        ({"harm_alpha": None}, ["The chance of a false alarm", "raises an alarm at"]),
        ({"looks": None}, ["52"]),
        ({"repeats": []}, ["checksums"]),
        ({"why": ""}, ["first baseline"]),
        ({"watched": {"stated": ["m1-0301"]}}, ["in the baseline"]),
        ({"alarm_on": []}, ["The following also raise"]),
        ({"policy_sha256": None}, ["The policy of changes"]),
    ],
)
def test_what_a_baseline_does_not_hold_is_not_said(
    changes: Mapping[str, Any], words: list[str]
) -> None:
    held = of_panel(baseline(**ALARMED_BY_ANY_CHANGE), look(1))
    rest = of_panel(baseline(**{**ALARMED_BY_ANY_CHANGE, **changes}), look(1))
    assert [one for one in words if one not in held] == []
    assert [one for one in words if one in rest] == []


def test_a_look_without_values_says_so() -> None:
    nothing = {"name": "x", "value": None, "missing": 0, "e": None, "since": None}
    said = of_panel(baseline(), look(1, limits=[nothing], e=None, watched={"stated": ["m"]}))
    says(said, "x at look 1", "no value")
    for word in ("e-value", "Answers that are", "missing"):
        assert word not in said
    assert "ledger, from" in of_panel(baseline())
    assert "each line names the SHA-256" not in of_panel(baseline())


@pytest.mark.parametrize("outcome", ["pass", "fail", "inconclusive"])
def test_changes_are_told_with_what_the_gate_said(outcome: str) -> None:
    lines = ledger(baseline(), change(outcome))
    found = {item.number: item.answers for item in pack("pccp", None, lines).items}
    for number in ("VI", "VII (3)", "VIII"):
        says(
            found[number],
            "Change 1 on 2027-01-03T06:00:00Z",
            "from m1 to m2",
            f"outcome: {outcome}",
        )
        says(" ".join(found[number]), "Change 1: notes", "0.02")
    assert found["VII (2)"] == []
    assert "Change" not in of_panel(baseline(), look(1))
    assert "Planned" not in of_panel(baseline(), look(1))


def test_the_runs_to_describe_are_the_last_looks_else_the_baselines_last() -> None:
    def runs(*lines: Mapping[str, Any]) -> list[str]:
        return PanelPackWriter(History(ledger(*lines)), {}).runs

    assert runs(baseline(), look(1), look(2)) == ["looks/0002/m/notes"]
    assert runs(baseline()) == ["baseline/1/5/m/notes"]
    assert runs(baseline(), look(1), baseline()) == ["baseline/1/5/m/notes"]
    assert runs() == []


def odd_ledger() -> list[Mapping[str, Any]]:
    limits = [limit(ODD, metric=ODD)]
    seen = {"name": ODD, "value": 0.1, "missing": 1, "e": 9.0, "since": 1}
    run = {"folder": ODD, "sha256": ODD}
    return ledger(
        baseline(
            limits=limits,
            why=ODD,
            target={"model": ODD},
            repeats=[{"runs": [run]}],
            alarm_on=[ODD],
            policy_sha256=ODD,
        ),
        look(
            1,
            alarm(1, ODD, names=[ODD]),
            limits=[seen],
            changed={ODD: {"e": 99.0, "since": 1}},
            watched={"stated": [ODD]},
        ),
        note(ODD, ODD),
        not_made(2, ODD),
        change(ODD, old={"model": ODD}, new={"model": ODD}, checks=[ODD]),
    )


@pytest.mark.parametrize("name", PACKS)
def test_hostile_names_make_nothing_of_a_pack(name: str) -> None:
    made = pack(name, hostile(), odd_ledger(), plan={"change": ODD}, head=ODD)
    text = pack_markdown(replace(made, subject=[ODD]))
    assert text.replace("\n", "").isprintable()
    tokens = MARKDOWN.parse(text)
    assert "html_block" not in {token.type for token in tokens}
    children = list(chain.from_iterable(token.children or [] for token in tokens))
    kinds = {"text", "code_inline", "em_open", "em_close", "strong_open", "strong_close"}
    assert {child.type for child in children} == kinds
    assert "@someone" not in "".join(
        child.content for child in children if child.type != "code_inline"
    )
    page = pack_page(replace(made, subject=[ODD]))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", PACKS)
def test_the_page_says_what_the_markdown_says_and_needs_no_network(name: str) -> None:
    made = pack(name, full(), ledger(baseline(), look(1, alarm(1)), note("done"), change()))
    page = pack_page(made)
    assert (
        re.findall(
            r"<(?:script|link|img|iframe|object|form)\b|\bsrc=|url\(|@import|href=\"(?!#)", page
        )
        == []
    )
    assert "default-src &#39;none&#39;" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in page
    plain_text = re.sub(
        r"\s+",
        " ",
        page.replace("&#39;", "'").replace("&#34;", '"').replace("&lt;", "<").replace("&gt;", ">"),
    )
    for item in made.items:
        assert f"{item.number}: {item.topic}" in plain_text
        assert all(re.sub(r"\s+", " ", sentence) in plain_text for sentence in item.answers)
        assert "; ".join(item.people) in plain_text
    assert all(source in plain_text for source in made.references)
