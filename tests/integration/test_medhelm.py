"""medhelm, the second upstream, through the real helm-run of its own environment."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.api import load_result
from facts import says
from program_runs import CANARY, Outcome, Run, more_data
from programs import eval_factory, holding, ran
from rubric_endpoint import RubricEndpoint, said
from scripted_endpoint import ScriptedEndpoint

PlaceData = Callable[[Path, str], None]
JUDGES = [{"name": "a", "model_id": "judge/a"}, {"name": "b", "model_id": "judge/b"}]
ASKED = re.compile(r"# Conversation\n(.*)\n\n# Rubric item\n(.*?)\n\n# Instructions", re.DOTALL)


@pytest.fixture(scope="session")
def medhelm(root: Path) -> dict[str, str]:
    """The variable that names its environment; tests are skipped, and counted, where it was not made."""
    named = os.environ.get("EVAL_FACTORY_MEDHELM") or str(root / ".venv-medhelm")
    if not (Path(named) / "bin" / "python").is_file():
        pytest.skip(
            "needs medhelm: EVAL_FACTORY_MEDHELM=.venv-medhelm .venv/bin/eval-factory upstream install medhelm"
        )
    return {"EVAL_FACTORY_MEDHELM": named}


@pytest.fixture
def run_both(
    run_program: Run, tmp_path: Path, endpoint: ScriptedEndpoint, medhelm: dict[str, str]
) -> Callable[..., dict[str, Outcome]]:
    """The same run by both upstreams, with the same answers."""

    def run(task: str, **params: Any) -> dict[str, Outcome]:
        found = {}
        for upstream in ("helm", "medhelm"):
            extra = {**params.get("extra", {}), "upstream": upstream}
            found[upstream] = run_program(
                task,
                endpoint.url,
                params={**params, "extra": extra},
                env=medhelm,
                output_dir=tmp_path / upstream,
            )
            assert found[upstream].returncode == 0, found[upstream].stderr
        return found

    return run


def test_the_sample_by_both(
    run_both: Any, medhelm: dict[str, str], tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    found = run_both("sample_medical_qa")
    first = found["helm"].document()
    second = found["medhelm"].document()
    assert found["helm"].scores() == found["medhelm"].scores()
    made = [(one["provenance"]["upstream"], one["provenance"]["helm"]) for one in (first, second)]
    assert made == [("helm", "0.5.16"), ("medhelm", "0.8.0")]
    assert second["comparability"]["upstream"] == "medhelm 0.8.0"
    assert first["provenance"]["run_identity"] != second["provenance"]["run_identity"]
    packages = (tmp_path / "medhelm" / "packages.txt").read_text("utf-8")
    assert "medhelm==0.8.0" in packages
    assert "crfm-helm" not in packages
    assert "torch" not in packages
    asked = len(endpoint.requests)
    again = eval_factory(
        "run_eval",
        "--run_config",
        str(tmp_path / "sample_medical_qa.yml"),
        env=medhelm,
        TEST_MODEL_KEY="x" * 20,
    )
    assert "its result stands" in again.stderr, again.stderr
    assert len(endpoint.requests) == asked
    assert eval_factory("verify", str(tmp_path / "medhelm"), env=medhelm).returncode == 0
    paper = eval_factory("report", str(tmp_path / "medhelm"), "--for", "tripod-llm")
    assert (
        "medhelm 0.8.0" in paper.stdout,
        "HELM 0.8.0" in paper.stdout.replace("medhelm", ""),
    ) == (True, False)
    compared = eval_factory("compare", str(tmp_path / "helm"), str(tmp_path / "medhelm"), "--json")
    assert compared.returncode == 1
    assert [one["name"] for one in json.loads(compared.stdout)["reasons"]] == ["upstream"]
    allowed = eval_factory(
        "compare", str(tmp_path / "helm"), str(tmp_path / "medhelm"), "--allow", "upstream"
    )
    assert allowed.returncode == 0, allowed.stderr
    (tmp_path / "policy.yml").write_text(
        "{version: 1, benchmarks: {sample_medical_qa: {max_drop: 0.9}}}"
    )
    gate = (
        "gate",
        str(tmp_path / "policy.yml"),
        "--baseline",
        str(tmp_path / "helm"),
        "--candidate",
        str(tmp_path / "medhelm"),
    )
    decided = eval_factory(*gate)
    assert (decided.returncode, "with two packages of HELM" in decided.stdout + decided.stderr) == (
        1,
        True,
    ), decided


def test_what_is_refused_before_anything_is_asked(
    run_program: Run, endpoint: ScriptedEndpoint, tmp_path: Path
) -> None:
    extra = {"upstream": "medhelm"}
    nowhere = {"EVAL_FACTORY_MEDHELM": str(tmp_path / "nowhere")}
    outcome = run_program("sample_medical_qa", endpoint.url, params={"extra": extra}, env=nowhere)
    assert outcome.returncode == 3
    says(outcome.stderr, "HELM (medhelm)", "not installed in", str(tmp_path / "nowhere"))
    assert "eval-factory upstream install medhelm" in outcome.stderr
    outcome = run_program("medbullets_freetext", endpoint.url, params={"extra": extra})
    assert outcome.returncode == 2
    says(outcome.stderr, "medhelm 0.8.0", "no run spec 'medbullets_freetext'")
    outcome = run_program("helm:health_bench", endpoint.url)
    assert outcome.returncode == 2
    says(outcome.stderr, "medhelm 0.8.0 has one", "config.params.extra.upstream: medhelm")
    outcome = run_program("helm:boolq", endpoint.url, params={"extra": extra})
    assert (outcome.returncode, "crfm-helm 0.5.16 has one" in outcome.stderr) == (2, True)
    assert endpoint.requests == []


def test_a_suite_holds_both(
    tmp_path: Path, endpoint: ScriptedEndpoint, medhelm: dict[str, str]
) -> None:
    evaluations = [
        "sample_medical_qa",
        {
            "type": "sample_medical_qa",
            "name": "by_medhelm",
            "params": {"extra": {"upstream": "medhelm"}},
        },
    ]
    target = {
        "name": "m",
        "api_endpoint": {
            "url": endpoint.url,
            "model_id": "test/model",
            "api_key": "TEST_MODEL_KEY",
        },
    }
    suite = {
        "suite": {
            "output_dir": str(tmp_path / "out"),
            "evaluations": evaluations,
            "targets": [target],
        }
    }
    (tmp_path / "suite.yml").write_text(yaml.safe_dump(suite))
    finished = eval_factory(
        "run_suite",
        "--run_config",
        str(tmp_path / "suite.yml"),
        env=medhelm,
        TEST_MODEL_KEY="x" * 20,
    )
    assert finished.returncode == 0, finished.stderr
    made = [
        load_result(tmp_path / "out" / "m" / name).result
        for name in ("sample_medical_qa", "by_medhelm")
    ]
    assert [one.provenance.upstream for one in made] == ["helm", "medhelm"]
    assert made[0].scores["exact_match"].value == made[1].scores["exact_match"].value


def test_a_seeded_sample_is_the_same_of_both(run_both: Any) -> None:
    found = run_both("sample_medical_qa", limit_samples=8, extra={"sample_seed": 7})
    lines = [
        (one.output_dir / "instances.jsonl").read_text("utf-8").splitlines()
        for one in found.values()
    ]
    asked = [[(one["id"], one["extra.category"]) for one in map(json.loads, of)] for of in lines]
    assert asked[0] == asked[1]
    assert len({category for _, category in asked[0]}) == 8, "of each of the eight one"


@pytest.mark.medical_data
def test_a_real_benchmark_equals_bare_medhelm(
    root: Path, tmp_path: Path, medical_data: Path, medhelm: dict[str, str]
) -> None:
    """`nox -s validity -- --upstream medhelm` does so with every benchmark whose data are there."""
    argv = [
        sys.executable,
        "scripts/validity_table.py",
        "pubmed_qa",
        "ehr_sql",
        "--upstream",
        "medhelm",
        "--limit",
        "20",
        "--kind",
        "gold",
        "--scenarios",
        str(medical_data / "scenarios"),
        "--page",
        str(tmp_path / "validity.md"),
        "--keep",
        str(tmp_path / "runs"),
    ]
    kept = {"HF_HUB_OFFLINE": "1", "TIKTOKEN_CACHE_DIR": str(medical_data / "tiktoken")}
    finished = ran(argv, root, {**medhelm, **kept})
    assert "parity" not in finished.stderr, finished.stderr
    rows = [
        line.split("|")[3:5]
        for line in (tmp_path / "validity.md").read_text("utf-8").splitlines()
        if "`pubmed_qa`" in line
    ]
    assert [cell.strip() for cell in rows[0]] == ["20", "16 of 16"]


FOLDER = "tests/helm/helm_plugin"
OF_HELM_ALONE = (
    "test_executed_answers",
    "test_extractive_measures_of_the_package",
    "test_published_scenarios",
    "test_unscorable_answers",
)
"""Modules of tests that import what medhelm does not have."""
NOT_THERE = (
    "test_each_has_a_test_of_its_own or test_a_target_has_to_be_there or test_medbullets_has_room_for_an_explanation or"
    " test_by_method_what_an_endpoint_cannot_give or"
    " test_metrics_that_cannot_be_computed_are_left_out_and_no_other or"
    " (test_each_task_says_what_its_entry_takes_out and med_mcqa) or"
    " (test_judges_see_the_pictures_and_are_asked_once and helms)"
)
"""What is about files, or about run specs and data of HELM's own version."""


@pytest.mark.parametrize("asked", ["patches/test_patch_registry.py", *more_data("")])
def test_the_patches_do_there_what_they_do_in_helm(
    asked: str, root: Path, medhelm: dict[str, str]
) -> None:
    """Each that is for medhelm finds its targets, in the files that it was checked with; and does its work."""
    ignored = [
        f"--ignore={path}"
        for path in chain.from_iterable(
            (root / FOLDER).rglob(f"{name}.py") for name in OF_HELM_ALONE
        )
    ]
    python = str(Path(medhelm["EVAL_FACTORY_MEDHELM"]) / "bin" / "python")
    argv = [
        python,
        "tests/support/in_medhelm.py",
        sysconfig.get_path("purelib"),
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        f"not ({NOT_THERE})",
        *ignored,
        f"{FOLDER}/{asked}",
    ]
    finished = ran(argv, root)
    assert finished.returncode == 0, finished.stdout[-3000:]
    assert int(re.findall(r"(\d+) passed", finished.stdout)[-1]) > 30


class OfMedhelm(RubricEndpoint):
    """Judges are asked with medhelm's prompts: about a criterion, or for a mark beside the physician's answer."""

    def _judged(self, model: str, prompt: str) -> str:
        asked = ASKED.search(prompt)
        return self.judge(model, asked[1], asked[2]) if asked else self.judge(model, prompt, "mark")


def healthbench(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    file = {
        "health_bench": "healthbench.jsonl",
        "health_bench_professional": "assets.zip/healthbench_professional_eval.jsonl",
    }[name]
    path = folder / "helm" / "scenarios" / name / file
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rubric(*points: int) -> list[dict[str, Any]]:
    return [
        {"criterion": f"c{number}", "points": one, "tags": []} for number, one in enumerate(points)
    ]


def judged_run(
    run_program: Run, endpoint: RubricEndpoint, medhelm: dict[str, str], judges: int, name: str
) -> Outcome:
    extra = {"upstream": "medhelm", "judges": JUDGES[:judges], "max_judge_failures": 1.0}
    outcome = run_program(f"helm:{name}", endpoint.url, params={"extra": extra}, env=medhelm)
    assert outcome.returncode in (0, 1), outcome.stderr
    assert holding(outcome.output_dir, CANARY) == []
    return outcome


@pytest.mark.medical_data
def test_the_harm_that_medhelms_healthbench_rewards(
    run_program: Run, tmp_path: Path, medical_data: Path, medhelm: dict[str, str]
) -> None:
    """50 real graded answers: 0.568 by its formula, 0.465 as published, of the same decisions."""
    data = medical_data / "healthbench"
    cases = [
        json.loads(line) for line in (data / "healthbench_50.jsonl").read_text("utf-8").splitlines()
    ]
    graded = {
        one["prompt_id"]: one
        for one in map(json.loads, (data / "answers_50.jsonl").read_text("utf-8").splitlines())
    }
    answers = {json.dumps(case["prompt"]): graded[case["prompt_id"]]["answer"] for case in cases}
    met = {}
    for case in cases:
        grades = graded[case["prompt_id"]]
        for criterion, is_met in zip(case["rubrics"], grades["criteria_met"], strict=True):
            met[grades["answer"], str(criterion)] = is_met

    def judge(_model: str, conversation: str, criterion: str) -> str:
        return said(
            next(
                is_met
                for (answer, one), is_met in met.items()
                if one == criterion and conversation.endswith(answer)
            )
        )

    healthbench(tmp_path / "out", "health_bench", cases)
    with OfMedhelm(lambda messages: answers[json.dumps(messages)], judge) as endpoint:
        outcome = judged_run(run_program, endpoint, medhelm, 1, "health_bench")
    scores = outcome.scores()
    published = sum(one["score"] for one in graded.values()) / len(graded)
    assert scores["health_bench_score"] == pytest.approx(0.5683, abs=5e-5)
    assert scores["health_bench_score.corrected"] == pytest.approx(published, abs=1e-9)
    assert published == pytest.approx(0.4647, abs=5e-5)
    assert "ask_about_each_criterion" in outcome.document()["provenance"]["patches"]
    assert outcome.document()["comparability"]["medhelm_settings"] is None
    assert "repeat an earlier instance" not in outcome.stdout


def test_a_lost_decision_costs_the_judge_that_lost_it(
    run_program: Run, tmp_path: Path, medhelm: dict[str, str]
) -> None:
    """Of the points 1 and 9 the second is met: medhelm would give 0.1 where the first request fails. A rubric of -10 alone
    ends its run."""
    rows = [
        {"prompt": [{"role": "user", "content": "q1"}], "rubrics": rubric(1, 9)},
        {"prompt": [{"role": "user", "content": "q2"}], "rubrics": rubric(10, -8)},
        {"prompt": [{"role": "user", "content": "q3"}], "rubrics": rubric(-10)},
        {"prompt": [{"role": "user", "content": "q4"}], "rubrics": rubric(5)},
    ]
    healthbench(tmp_path / "out", "health_bench", rows)

    def judge(model: str, conversation: str, criterion: str) -> str:
        if model == "judge/a" and "q1" in conversation and "c0" in criterion:
            return "I cannot say."
        return said("q1" not in conversation or "c1" in criterion)

    def answer(messages: list[dict[str, str]]) -> str:
        return "" if messages[-1]["content"] == "q4" else f"An answer to {messages[-1]['content']}."

    with OfMedhelm(answer, judge) as endpoint:
        outcome = judged_run(run_program, endpoint, medhelm, 2, "health_bench")
    states = json.loads(
        next(outcome.output_dir.glob("helm/runs/*/*/scenario_state.json")).read_text("utf-8")
    )
    q1, q2, q3, q4 = (one["annotations"]["health_bench"] for one in states["request_states"])
    assert q1["b"]["accuracy"]["score"] == 0.9
    assert q1["eval_factory_decisions"] == {"b": [False, True]}
    says(q1["eval_factory_not_judged"]["a"], "1 of 2 decisions", "unusable judgement")
    assert (q2["a"]["accuracy"]["score"], q2["eval_factory_decisions"]["a"]) == (1.0, [True, True])
    assert set(q3) == {"eval_factory_not_judged"}
    assert q4["prompt_text"] is None
    instances = {
        one["id"]: one
        for one in map(
            json.loads, (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
        )
    }
    corrected = {
        name: one["metrics"].get("health_bench_score.corrected") for name, one in instances.items()
    }
    assert (corrected["0"], corrected["1"], corrected["3"]) == (0.9, pytest.approx(0.2), 0.0)
    assert instances["2"]["unjudged"]


def test_professional_is_scored_by_the_first_judges_decisions(
    run_program: Run, tmp_path: Path, medhelm: dict[str, str]
) -> None:
    """Its own value stays what bare medhelm computes; the corrected one is each judge's, without any comparison."""
    asked = {
        "conversation": {"messages": [{"role": "user", "content": "q"}]},
        "rubric_items": rubric(6, 2),
    }
    # an empty answer of the physician's is compared with, too
    rows = [
        {"id": "1", **asked, "physician_response": "So."},
        {"id": "2", **asked, "physician_response": ""},
    ]
    healthbench(tmp_path / "out", "health_bench_professional", rows)

    def judge(model: str, _conversation: str, criterion: str) -> str:
        if criterion == "mark":
            return json.dumps(
                {"criteria_met": 4 if model == "judge/a" else 8, "explanation": "Compared."}
            )
        return said(model == "judge/a")

    with OfMedhelm(lambda _messages: "An answer.", judge) as endpoint:
        outcome = judged_run(run_program, endpoint, medhelm, 2, "health_bench_professional")
    assert outcome.scores()["health_bench_professional_score"] == pytest.approx(
        ((1.0 + 0.4) / 2 + (1.0 + 0.8) / 2) / 2
    )
    assert outcome.scores()["health_bench_professional_score.corrected"] == pytest.approx(
        (1.0 + 0.0) / 2
    )
    patches = outcome.document()["provenance"]["patches"]
    assert "ask_about_each_criterion_and_the_physicians_answer" in patches


def test_a_judge_that_would_end_medhelms_run(
    run_program: Run, tmp_path: Path, medhelm: dict[str, str]
) -> None:
    """A null as score, a bare number as rating, no score: each costs that judgement, where bare medhelm loses the run."""
    folder = tmp_path / "own"
    assert eval_factory("new_benchmark", str(folder), "--jury").returncode == 0
    said_to = {"0": {"score": None, "explanation": "x"}, "1": 3, "2": {"explanation": "x"}}

    def judge(prompt: str) -> str:
        names = re.findall(r'"(\w+)": ?{', prompt) or ["accuracy"]
        rating = said_to[str(sum(map(ord, prompt)) % 3)]
        return json.dumps(dict.fromkeys(names, rating))

    with ScriptedEndpoint(
        lambda prompt: judge(prompt) if "score" in prompt else "Rest, and drink water."
    ) as endpoint:
        extra = {
            "benchmark": str(folder / "benchmark.yaml"),
            "upstream": "medhelm",
            "judges": JUDGES[:1],
            "max_judge_failures": 1.0,
            "min_coverage": 0.0,
        }
        outcome = run_program(
            "custom", endpoint.url, params={"extra": extra, "limit_samples": 6}, env=medhelm
        )
    assert outcome.returncode == 1, outcome.stderr
    counted = outcome.document()["validity"]
    assert counted["judges"]["a"]["failed"] == counted["judges"]["a"]["asked"] == 6
    assert counted["instances"]["unjudged"] == 6


def test_ratings_of_script_concordance_in_every_usual_form(
    run_program: Run, tmp_path: Path, medhelm: dict[str, str]
) -> None:
    forms = [
        "Rating: +1",
        "Rating: 1",
        "**Rating:** +1",
        "rating: 1",
        "Rating: \u22121",
        "Rating: 10",
        "",
    ]
    file = tmp_path / "out" / "helm" / "scenarios" / "sct_bench" / "sct_cleaned_full.csv"
    file.parent.mkdir(parents=True)
    rows = [f"{number},Case {number},Is it so?,This too.,0,1,0,4,2" for number in range(len(forms))]
    file.write_text(
        "question_id,sct_stem,question,additional_info,-2,-1,0,1,2\n" + "\n".join(rows) + "\n"
    )
    with ScriptedEndpoint(
        lambda prompt: forms[int(re.findall(r"Case (\d)", prompt)[-1])]
    ) as endpoint:
        outcome = run_program(
            "helm:sct_bench:reason=False",
            endpoint.url,
            params={"extra": {"upstream": "medhelm", "max_unreadable": 1.0}},
            env=medhelm,
        )
        assert outcome.returncode == 0, outcome.stderr
        assert not any(
            "brief explanation" in one["messages"][-1]["content"] for one in endpoint.requests
        )
    assert "read_false_as_false" in outcome.document()["provenance"]["patches"]
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    by_id = {one["id"]: one["metrics"] for one in lines}
    its_own = [by_id[str(number)]["sct_score"] for number in range(len(forms))]
    corrected = [by_id[str(number)]["sct_score.corrected"] for number in range(len(forms))]
    assert its_own == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert corrected == [1.0, 1.0, 1.0, 1.0, 0.25, 0.0, 0.0]
