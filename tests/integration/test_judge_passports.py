"""Judges asked about labelled answers, and scores corrected with what that showed: through the real helm-run."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from facts import says
from integration.test_juries import medication_questions
from jury_endpoint import CANARIES, JUDGES, JuryEndpoint
from program_runs import Outcome, Run, program
from rubric_endpoint import RubricEndpoint, said

SECRET = "the patient Erika Mustermann"
KINDS = ("cluster:tells", "cluster:asks")
LENIENT = "judge/lenient"
STRICT = "judge/strict"
RIGHT = {LENIENT: (0.98, 0.35), STRICT: (0.75, 0.95)}
"""Judge -> its chance to be right about a criterion that is met, and about one that is not."""
PRAISE = "deserves the highest mark"


def chance(*of: object) -> float:
    return int(hashlib.sha256(repr(of).encode()).hexdigest()[:8], 16) / 16**8


def is_met(criterion: str) -> bool:
    """So are six of ten that are labelled, and three of ten of the run's."""
    return chance("met", criterion) < (0.3 if criterion.startswith("run") else 0.6)


def judge(model: str, conversation: str, criterion: str) -> str:
    """Errs as often as it is known to; praise in the answer wins the lenient one over."""
    if model == LENIENT and PRAISE in conversation:
        return said(True)
    right = RIGHT[model][0] if is_met(criterion) else RIGHT[model][1]
    return said(is_met(criterion) is (chance(model, criterion) < right))


@pytest.fixture
def endpoint() -> Iterator[RubricEndpoint]:
    with RubricEndpoint(
        lambda messages: f"{messages[-1]['content']}: see a doctor. {'x' * 2000}", judge
    ) as server:
        yield server


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    """Two criteria each of 120 answers, by two physicians who are right about nine of ten."""
    rows = []
    for number in range(120):
        for kind, category in enumerate(KINDS):
            criterion = f"labelled {number} {kind}"
            decided = [
                is_met(criterion) is (chance(who, criterion) < 0.9) for who in ("anna", "ben")
            ]
            rows.append(
                {
                    "prompt": [{"role": "user", "content": f"{SECRET} asks {number}"}],
                    "completion": "y" * (9 * number),
                    "rubric": criterion,
                    "category": category,
                    "binary_labels": decided,
                    "anonymized_physician_ids": ["anna", "ben"],
                    "language": "en" if number % 3 else "de",
                }
            )
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def config(tmp_path: Path, endpoint: RubricEndpoint) -> Path:
    """Of a rubric of 80 cases; the points of some are lost."""
    rng = np.random.default_rng(7)
    folder = tmp_path / "rubric"
    folder.mkdir()
    about = {"kind": "rubric", "name": "mine", "description": "d", "dataset_file": "cases.jsonl"}
    (folder / "benchmark.yaml").write_text(json.dumps(about))
    cases = []
    for number in range(80):
        points = [int(rng.integers(1, 9)), int(rng.integers(1, 9)), -int(rng.integers(1, 4))]
        criteria = [
            {"criterion": f"run {number} {kind}", "points": worth, "tags": [KINDS[kind % 2]]}
            for kind, worth in enumerate(points)
        ]
        cases.append(
            {
                "id": f"c{number}",
                "messages": [{"role": "user", "content": f"q {number}"}],
                "rubrics": criteria,
            }
        )
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    judges = [{"name": "kind", "model_id": LENIENT, "temperature": 0.2}]
    extra = {"benchmark": str(folder / "benchmark.yaml"), "judges": judges}
    params = {"extra": extra, "parallelism": 16, "limit_samples": 80}
    document = {
        "config": {"type": "custom", "output_dir": str(tmp_path / "out"), "params": params},
        "target": {"api_endpoint": {"url": endpoint.url, "model_id": "test/model"}},
    }
    file = tmp_path / "c.yml"
    file.write_text(json.dumps(document))
    return file


def calibrate(labels: Path, config: Path, to: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """In another folder than that of the files."""
    return program(
        "calibrate",
        str(labels),
        "--judges-from",
        str(config),
        "--to",
        str(to),
        *more,
        cwd=Path("/"),
    )


def changed(config: Path, **extra: Any) -> Path:
    document = json.loads(config.read_text())
    document["config"]["params"]["extra"] |= extra
    config.write_text(json.dumps(document))
    return config


def true_score(config: Path) -> float:
    """As the two physicians would decide in the mean, who call one of ten what it is not."""
    cases = (
        Path(json.loads(config.read_text())["config"]["params"]["extra"]["benchmark"])
    ).parent / "cases.jsonl"
    scores = []
    for case in map(json.loads, cases.read_text().splitlines()):
        points = [
            one["points"] * (0.9 if is_met(one["criterion"]) else 0.1) for one in case["rubrics"]
        ]
        scores.append(
            sum(points) / sum(one["points"] for one in case["rubrics"] if one["points"] > 0)
        )
    return float(np.mean(scores))


def test_a_lenient_judge_is_found_and_its_score_corrected(
    labels: Path, config: Path, endpoint: RubricEndpoint, tmp_path: Path
) -> None:
    to = tmp_path / "passport"
    made = calibrate(labels, config, to, "--probes", "60")
    assert made.returncode == 0, made.stderr
    says(made.stdout, "judge is lenient")
    says(made.stdout, "can be moved", "praise of itself added")
    says(made.stdout, "otherwise in 0.0 %")
    assert endpoint.judged == 240 + 60 * 2 * 4, (
        "all items; of 60 answers twice as they are, padded, praised"
    )
    assert endpoint.conversations == [], "the model was not asked"
    passport = yaml.safe_load((to / "judge_passport.yaml").read_text())
    assert passport["asked"]["model"] == LENIENT
    assert passport["asked"]["stated_models"] == {LENIENT: 720}
    assert passport["asked"]["sampling"][0]["temperature"] == 0.2
    assert passport["label_set"]["items"] == 240
    assert set(passport["languages"]) == {"de", "en"}
    assert passport["steadiness"]["polite words added"]["flips"]["value"] == 0.0
    for file in to.glob("judge_passport.*"):
        assert SECRET not in file.read_text("utf-8")

    again = calibrate(labels, config, to, "--probes", "60")
    assert (again.returncode, endpoint.judged) == (0, 720), again.stderr

    changed(config, judge_passport=str(to))
    run = program("run_eval", "--run_config", str(config), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    document = Outcome(run.returncode, run.stdout, run.stderr, tmp_path / "out").document()
    scores = {
        name: one["value"]
        for name, one in document["results"]["tasks"]["custom.mine"]["metrics"]["score"][
            "scores"
        ].items()
    }
    correction = document["validity"]["rubric"]["correction"]
    truth = true_score(config)
    assert scores["rubric_score"] - truth > 0.2
    assert correction["ci_low"] < truth < correction["ci_high"] < scores["rubric_score"]
    assert correction["value"] == scores["rubric_score.judge_corrected"]
    assert set(correction["categories"]) == set(KINDS)
    says("\n".join(document["validity"]["notes"]), "differs from the labels")
    says(run.stdout, "without the judge's mistakes")
    verified = program("verify", str(tmp_path / "out"), cwd=tmp_path)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_passport_of_another_judge_is_refused(
    labels: Path, config: Path, endpoint: RubricEndpoint, tmp_path: Path
) -> None:
    to = tmp_path / "passport"
    made = calibrate(labels, config, to, "--probes", "0")
    assert made.returncode == 0, made.stderr
    asked = endpoint.judged
    warmer = [{"name": "kind", "model_id": LENIENT, "temperature": 0.7}]
    for extra, code, message in (
        (
            {"judge_passport": str(to), "judges": warmer},
            2,
            "is the passport of another judge (judge/lenient); this run asks kind",
        ),
        ({"judge_passport": str(tmp_path / "none")}, 3, "No such file or directory"),
    ):
        given = json.loads(config.read_text())
        given["config"]["params"]["extra"] |= extra
        file = tmp_path / "other.yml"
        file.write_text(json.dumps(given))
        refused = program("run_eval", "--run_config", str(file), cwd=tmp_path)
        assert (refused.returncode, endpoint.judged) == (code, asked), refused.stderr
        assert message in refused.stderr
        assert (
            message
            in program("run_eval", "--run_config", str(file), "--dry_run", cwd=tmp_path).stderr
        )
    other = calibrate(labels, config, to, "--judge", "knd")
    assert other.returncode == 2
    assert "did you mean 'kind'?" in other.stderr


def test_a_judge_that_says_nothing_gets_no_passport(
    labels: Path, config: Path, tmp_path: Path
) -> None:
    with RubricEndpoint(
        lambda _messages: "", lambda _model, _conversation, _criterion: "I would rather not."
    ) as mute:
        given = json.loads(config.read_text())
        given["target"]["api_endpoint"]["url"] = mute.url
        config.write_text(json.dumps(given))
        refused = calibrate(labels, config, tmp_path / "p", "--probes", "0")
    assert refused.returncode == 1
    says(refused.stderr, "judges are not calibrated")
    assert not (tmp_path / "p" / "judge_passport.yaml").exists()


def test_what_a_judge_leaves_open_is_in_its_passport(
    labels: Path, config: Path, tmp_path: Path
) -> None:
    def babbles(model: str, conversation: str, criterion: str) -> str:
        return (
            "Well." if criterion.startswith("labelled 7") else judge(model, conversation, criterion)
        )

    with RubricEndpoint(lambda _messages: "", babbles) as endpoint:
        given = json.loads(config.read_text())
        given["target"]["api_endpoint"]["url"] = endpoint.url
        given["config"]["params"]["extra"]["max_judge_failures"] = 0.15
        config.write_text(json.dumps(given))
        made = calibrate(labels, config, tmp_path / "p", "--probes", "0")
    assert made.returncode == 0, made.stderr
    passport = yaml.safe_load((tmp_path / "p" / "judge_passport.yaml").read_text())
    assert (passport["unjudged"], passport["label_set"]["items"]) == (22, 218)
    says(made.stdout, "did not decide", "22 items")


def test_several_judges_and_which_jury_agrees_best(
    labels: Path, config: Path, tmp_path: Path
) -> None:
    three = [
        {"name": f"j{number}", "model_id": model}
        for number, model in enumerate((LENIENT, STRICT, STRICT))
    ]
    prices = [
        {"model_id": model, "input_per_million": 1000.0, "output_per_million": 0.0}
        for model in RIGHT
    ]
    changed(config, judges=three, prices=prices)
    to = tmp_path / "p"
    made = calibrate(labels, config, to, "--probes", "0")
    assert made.returncode == 0, made.stderr
    names = {path.relative_to(to).as_posix() for path in to.rglob("judge_passport.yaml")}
    assert names == {f"judges/j{number}/judge_passport.yaml" for number in range(3)}
    juries = yaml.safe_load((to / "juries.yaml").read_text())["juries"]
    assert [len(one["judges"]) for one in juries] == [1, 3]
    assert juries[1]["cost_per_1000"] == pytest.approx(3.0), (
        "a token of a thousandth of a dollar for each"
    )
    assert "Which jury agrees best" in (to / "juries.html").read_text("utf-8")
    assert "cross-validated" in made.stdout


def test_what_judges_give_a_text_that_says_nothing_is_a_floor(config: Path, tmp_path: Path) -> None:
    changed(config, probe_judges=True)
    run = program("run_eval", "--run_config", str(config), cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    validity = Outcome(run.returncode, run.stdout, run.stderr, tmp_path / "out").document()[
        "validity"
    ]
    assert validity["judge_probe"]["instances"] == 10
    floor = validity["floors"]["rubric_score"]
    assert (floor["best"], floor["value"]) == (
        "padded generic answer",
        validity["judge_probe"]["value"],
    )
    assert validity["judge_probe"]["means"]["kind"] == validity["judge_probe"]["value"]
    assert (
        validity["rubric"]["length_correlation"]["kind"] is None
        or "rho" in validity["rubric"]["length_correlation"]["kind"]
    )


def test_the_floor_of_a_jury_is_measured(run_program: Run, tmp_path: Path) -> None:
    medication_questions(tmp_path / "out" / "helm", 13)
    with JuryEndpoint() as jury:
        jury.odd_ways = ["good"]
        params = {
            "limit_samples": 12,
            "parallelism": 4,
            "extra": {"judges": JUDGES, "probe_judges": True},
        }
        outcome = run_program(
            "medication_qa", jury.url, params=params, env={**CANARIES, "HF_HUB_OFFLINE": "1"}
        )
    assert outcome.returncode == 0, outcome.stderr
    validity = outcome.document()["validity"]
    floor = validity["floors"]["medication_qa_accuracy"]
    assert floor["answers"]["padded generic answer"] == validity["judge_probe"]["value"]
    assert (floor["instances"], floor.get("assumed")) == (10, None)
    assert set(validity["judge_probe"]["means"]) == {one["name"] for one in JUDGES}


def rated(folder: Path, sheets: Path, says: Callable[[str, str], str]) -> None:
    """People rate answers of a run, and what they say is imported. `says`: (rater, criterion) -> rating."""
    made = program(
        "annotate", "export", str(folder), "--n", "40", "--raters", "2", "--out", str(sheets)
    )
    assert made.returncode == 0, made.stderr
    for rater in ("1", "2"):
        file = sheets / f"rater_{rater}.csv"
        rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"), newline="")))
        for row in rows:
            row["rating"] = says(rater, row["item"] + row["asked"])
        with file.open("w", encoding="utf-8-sig", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        read = program("annotate", "import", str(folder), str(file))
        assert read.returncode == 0, read.stderr


def test_a_rubrics_judge_is_held_against_who_rated_its_own_run(
    config: Path, endpoint: RubricEndpoint, tmp_path: Path
) -> None:
    run = program("run_eval", "--run_config", str(config))
    assert run.returncode == 0, run.stderr
    says(program("calibrate", str(tmp_path / "out")).stderr, "nobody has rated")

    def says_of(rater: str, criterion: str) -> str:
        name = criterion[criterion.index("run ") :]
        return "yes" if is_met(name) is (chance(rater, name) < 0.95) else "no"

    rated(tmp_path / "out", tmp_path / "sheets", says_of)
    asked = endpoint.judged
    made = program("calibrate", str(tmp_path / "out"), "--to", str(tmp_path / "p"))
    assert made.returncode == 0, made.stderr
    says(made.stdout, "judge kind: 120 items", "240 labels", "2 physicians", "40 conversations")
    assert "The judge is lenient" in made.stdout
    changed(config, judge_passport=str(tmp_path / "p"))
    again = program("run_eval", "--run_config", str(config))
    assert (again.returncode, endpoint.judged) == (0, asked), again.stderr
    correction = Outcome(0, "", "", tmp_path / "out").document()["validity"]["rubric"]["correction"]
    assert correction["ci_low"] < true_score(config) + 0.1
    assert correction["labels"] == 240


def test_a_jurys_marks_on_a_scale_are_held_against_who_rated_them(
    run_program: Run, tmp_path: Path
) -> None:
    medication_questions(tmp_path / "out" / "helm", 41)
    with JuryEndpoint() as jury:
        jury.odd_ways = ["good"]
        params = {"limit_samples": 40, "parallelism": 8, "extra": {"judges": JUDGES}}
        outcome = run_program(
            "medication_qa", jury.url, params=params, env={**CANARIES, "HF_HUB_OFFLINE": "1"}
        )
    assert outcome.returncode == 0, outcome.stderr

    def rating(rater: str, item: str) -> str:
        lowest = 2 if rater == "2" else 1
        return str(lowest + int(4 * chance(item)))

    rated(tmp_path / "out", tmp_path / "sheets", rating)
    made = program(
        "calibrate",
        str(tmp_path / "out"),
        "--judge",
        JUDGES[0]["name"],
        "--to",
        str(tmp_path / "p"),
    )
    assert made.returncode == 0, made.stderr
    passport = yaml.safe_load((tmp_path / "p" / "judge_passport.yaml").read_text())
    assert passport["marks"] == [1, 2, 3, 4, 5]
    assert (passport["asked"], passport["figures"]["judge"]["f1_macro"]["value"]) == (None, None)
    assert passport["figures"]["physicians"]["kappa"]["value"] > 0.5
    assert "of 100" in made.stdout or "not shown to be lenient" in made.stdout
