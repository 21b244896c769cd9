"""A small leaderboard with the real helm-run and helm-summarize: several entries, each a cell of a suite."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from eval_factory.plan.run_plan import slug_of
from facts import says
from integration.test_pictures import DATA, prepare, prepare_mme, sees
from jury_endpoint import judgement
from program_runs import CANARY, TIMEOUT_S, Outcome, program, program_environment
from scripted_endpoint import ScriptedEndpoint
from seeing_endpoint import SeeingEndpoint, tone

# As confs are: groups of models, an entry for each model of a study, a later priority, comments.
CONF = """
entries: [
  # three questions of one kind
  {description: "custom_mcqa:path=QUESTIONS,model=text", priority: 1}
  {description: "custom_mcqa:path=QUESTIONS,model=openai/gpt-4o,model_deployment=hospital/gpt-4o,num_output_tokens=3", groups: ["short"], priority: 2}
  {description: "custom_mcqa:path=QUESTIONS,model=meta/llama,model_deployment=hospital/llama,num_output_tokens=3", groups: ["short"], priority: 1}
  {description: "custom_mcqa:path=QUESTIONS,model=full_functionality_text", priority: 2}
  {description: "nothing_known:model=text", priority: 3}
]
"""
ONE = 'entries: [{description: "custom_mcqa:path=QUESTIONS,model=text", priority: 1}]'
TWO = """
entries: [
  {description: "custom_mcqa:path=QUESTIONS,model=text", priority: 1}
  {description: "custom_mcqa:path=QUESTIONS,model=text,num_output_tokens=2", priority: 1}
]
"""
RUNS = {"custom_mcqa", "custom_mcqa:num_output_tokens=3,groups=short"}
INSTANCES = 40
Lead = Callable[..., Outcome]


@pytest.fixture
def lead(tmp_path: Path) -> Lead:
    """Runs `eval-factory leaderboard run` with a conf written for it."""

    def run(
        url: str, *arguments: str, limit: int = 0, env: dict[str, str] | None = None, **named: Any
    ) -> Outcome:
        limited = ("--max-eval-instances", str(limit)) if limit else ()
        words = command(tmp_path, url, *limited, *arguments, **named)[3:]
        finished = program(*words, cwd=tmp_path, TEST_MODEL_KEY=CANARY, **(env or {}))
        return Outcome(finished.returncode, finished.stdout, finished.stderr, tmp_path / "out")

    return run


def command(
    folder: Path,
    url: str,
    *arguments: str,
    name: str = "lite",
    conf: str = CONF,
    models: tuple[str, ...] = ("test/model",),
) -> list[str]:
    """`QUESTIONS` in the conf is a file of questions of our own."""
    file = folder / "small.conf"
    questions = folder / "questions.jsonl"
    file.write_text(conf.replace("QUESTIONS", str(questions)), encoding="utf-8")
    if not questions.exists():
        questions.write_text("\n".join(json.dumps(question(number)) for number in range(INSTANCES)))
    named = list(chain.from_iterable(("--model", model) for model in models))
    return [
        sys.executable,
        "-m",
        "eval_factory",
        "leaderboard",
        "run",
        name,
        *named,
        "--model-url",
        url,
        "--api-key-name",
        "TEST_MODEL_KEY",
        "--conf",
        str(file),
        "--output-dir",
        "out",
        *arguments,
    ]


def question(number: int) -> dict[str, Any]:
    texts = [f"answer {number}", f"other {number}"]
    tags = [["correct"], []] if number % 2 else [[], ["correct"]]
    references = [
        {"output": {"text": text}, "tags": own} for text, own in zip(texts, tags, strict=True)
    ]
    return {"input": {"text": f"Question {number}?"}, "references": references, "split": "test"}


def tables_of(outcome: Outcome, name: str = "lite") -> Path:
    return outcome.output_dir / "helm" / "runs" / name


def runs_in(outcome: Outcome) -> set[str]:
    """Those in HELM's tables, by its own file."""
    return set(loaded(tables_of(outcome) / "runs_to_run_suites.json"))


def rows_of(outcome: Outcome, name: str = "lite") -> list[dict[str, Any]]:
    """Of leaderboard.json; runs without the path of their questions."""
    rows: list[dict[str, Any]] = loaded(outcome.output_dir / "leaderboard.json")["leaderboards"][
        name
    ]
    return [{**row, "run": re.sub(r"path=[^,]*,?", "", row["run"]).rstrip(":,")} for row in rows]


def cells_of(outcome: Outcome) -> dict[str, Path]:
    """Run -> its output folder."""
    return {
        row["run"]: outcome.output_dir / row["folder"] for row in rows_of(outcome) if row["folder"]
    }


def stats_of(folder: Path) -> bytes:
    (file,) = folder.glob("helm/runs/*/*/stats.json")
    return file.read_bytes()


def loaded(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def asked_twice(endpoint: ScriptedEndpoint) -> int:
    asked = [json.dumps(request, sort_keys=True) for request in endpoint.requests]
    return len(asked) - len(set(asked))


def test_several_entries(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    first = lead(endpoint.url, limit=6)
    assert first.returncode == 0, first.stderr
    says(first.stdout, "lite: 2 runs", "0 kept out", "0 failed")
    assert "helm-server --suite lite --output-path" in first.stdout
    says(first.stderr, "5 entries", "3 distinct entries", "2 of priority 2")
    assert len(endpoint.requests) == 12
    assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {CANARY}"}
    assert {request["model"] for request in endpoint.requests} == {"test/model"}
    assert len({r["max_tokens"] for r in endpoint.requests}) == 2
    assert set(cells_of(first)) == RUNS
    assert len(runs_in(first)) == 2
    for run in runs_in(first):
        assert len(loaded(tables_of(first) / run / "display_predictions.json")) == 6
    assert loaded(tables_of(first) / "schema.json")["run_groups"]
    for path in first.output_dir.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
        assert ":" not in path.relative_to(first.output_dir).as_posix()
        assert not path.is_symlink() or not path.readlink().is_absolute()


def test_several_models_are_compared_and_nothing_is_asked_twice(
    endpoint: ScriptedEndpoint, lead: Lead
) -> None:
    """Those of one command, and those of commands before."""
    first = lead(endpoint.url, limit=4, conf=ONE, models=("org/first", "second"))
    assert first.returncode == 0, first.stderr
    says(first.stdout, "lite: 2 runs")
    assert Counter(request["model"] for request in endpoint.requests) == {
        "org/first": 4,
        "second": 4,
    }
    (folder,) = cells_of(first).values()  # of the second model: both have the same run
    before = stats_of(folder.parents[1] / slug_of("org/first") / folder.name)

    # another run of the second model, but what was answered is kept
    more = lead(endpoint.url, "--parallelism", "2", limit=5, conf=ONE, models=("second", "third"))
    assert more.returncode == 0, more.stderr
    says(more.stdout, "lite: 2 runs")
    says(more.stdout, "other models: 3 runs")
    says(more.stdout, "warning: ", "4 and 5 instances")
    assert (len(endpoint.requests), asked_twice(endpoint)) == (8 + 1 + 5, 0)
    assert stats_of(folder.parents[1] / slug_of("org/first") / folder.name) == before
    assert len(list(folder.glob("results.set-aside-*"))) == 1
    assert len(runs_in(more)) == 3
    models = loaded(tables_of(more) / "schema.json")["models"]
    assert {model["display_name"] for model in models} == {"org/first", "second", "third"}
    rows = {
        (row["model_id"], row["state"], row["requested"], row["main_metric"])
        for row in rows_of(more)
    }
    assert rows == {
        (model, "in the tables", count, "exact_match")
        for model, count in (("org/first", 4), ("second", 5), ("third", 5))
    }
    assert len(rows_of(more)) == 3


def test_helms_tables_and_their_pages(lead: Lead, tmp_path: Path) -> None:
    """HELM's schema has groups for what it knows; `view` shows the same as helm-server would, without the pictures."""
    entry = (
        '{description: "mme:subject=color,model=vlm", groups: ["mm_star_knowledge"], priority: 1}'
    )
    env = prepare_mme(tmp_path / "hf", DATA)
    with SeeingEndpoint(sees) as endpoint:
        outcome = lead(
            endpoint.url, name="vhelm", conf=f"entries: [{entry}]", models=("a/b", "c"), env=env
        )
    assert outcome.returncode == 0, outcome.stderr
    assert len(endpoint.parts) == 2 * len(DATA)
    groups = tables_of(outcome, "vhelm") / "groups"
    (table, *_) = loaded(groups / "mme.json")
    assert [row[0]["value"] for row in table["rows"]] == ["a/b", "c"]
    assert [row[1]["value"] for row in table["rows"]] == [1.0, 1.0]
    assert any(table["rows"] for table in loaded(groups / "mm_star_knowledge.json"))
    links = [
        link["href"]
        for link in chain.from_iterable(
            table.get("links", []) for table in loaded(groups / "mme.json")
        )
    ]
    assert links
    assert all(Path(link).is_file() for link in links if link.startswith("/"))
    outcome.output_dir.rename(tmp_path / "elsewhere")
    for pictures in (tmp_path / "elsewhere").glob("*/*/helm/scenarios"):
        shutil.rmtree(pictures)
    shown = program("view", "elsewhere", "--export", "site", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    suite = tmp_path / "site" / "benchmark_output" / "runs" / "view"
    (again, *_) = loaded(suite / "groups" / "mme.json")
    values = [[cell.get("value") for cell in row] for row in again["rows"]]
    assert values == [[cell.get("value") for cell in row] for row in table["rows"]]
    assert "[color-0.png]" in next(suite.glob("mme*/instances.json")).read_text("utf-8")
    for folder in ("site", "elsewhere"):
        assert not [path for path in (tmp_path / folder).rglob("*") if ":" in path.name]
    assert not [path for path in (tmp_path / "site").rglob("*") if path.is_symlink()]


OF_SOUNDS = ("ffmpeg", "jiwer", "librosa", "soundfile")


@pytest.mark.skipif(not all(map(find_spec, OF_SOUNDS)), reason=f"needs {', '.join(OF_SOUNDS)}")
def test_what_a_child_says_is_played_to_the_model(lead: Lead, tmp_path: Path) -> None:
    """HELM's SLPHelm: its schema has other names than its runs, and the table is there all the same."""
    rows = [
        {
            "audio": tone(hertz),
            "transcription": f"a tone of {hertz}",
            "disorder_class": kind,
            "disorder_type": kind,
        }
        for hertz, kind in ((300, "speech_disorder"), (500, "typically_developing"))
    ]
    env = prepare(tmp_path / "hf", "SAA-Lab/SLPHelmUltraSuitePlus", {"train": rows}, media="audio")
    conf = """entries: [{description: "ultra_suite_asr_transcription:model=text", priority: 1}]"""
    with SeeingEndpoint(
        lambda prompt: "a tone of 300" if "[300 Hz]" in prompt else "a sound of 500"
    ) as endpoint:
        outcome = lead(endpoint.url, name="slphelm", conf=conf, env=env)
    assert outcome.returncode == 0, outcome.stderr
    assert [part[1]["input_audio"]["format"] for part in endpoint.parts] == ["mp3"] * 2
    (row,) = rows_of(outcome, "slphelm")
    (table, *_) = loaded(
        tables_of(outcome, "slphelm") / "groups" / "ultra_suite_asr_transcription.json"
    )
    assert (row["main_metric"], row["score"]) == ("wer_score", 0.125)
    shown = {
        head["value"]: cell.get("value")
        for head, cell in zip(table["header"], table["rows"][0], strict=True)
    }
    assert shown["WER"] == 0.125


def test_sounds_are_played_to_the_model(lead: Lead, tmp_path: Path) -> None:
    """AHELM's: this entry needs no package beside ours, and its files lie where it downloads them to."""
    rows = [
        {
            "path": f"{hertz}.wav",
            "options": ["low", "high", "?"],
            "label": kind,
            "question": "Which?",
        }
        for hertz, kind in ((300, "low"), (900, "high"), (800, "high"))
    ]
    run = f"{slug_of('test/model')}/parade-subset-status-voice-male"
    scenario = tmp_path / "out" / run / "helm" / "scenarios" / "parade"
    (scenario / "audio_files").mkdir(parents=True)
    for row, hertz in zip(rows, (300, 900, 300), strict=True):
        (scenario / "audio_files" / str(row["path"])).write_bytes(tone(hertz))
    annotations = {"onyx": {"status": {"pair": {str(at): row for at, row in enumerate(rows)}}}}
    (scenario / "annotation.json").write_text(json.dumps(annotations))
    conf = """entries: [
        {description: "parade:subset=status,voice=male,model=audiolm", priority: 1}
        {description: "audiocaps:num_respondents=1,model=audiolm", priority: 1}
    ]"""
    with SeeingEndpoint(lambda prompt: "A" if "[300 Hz]" in prompt else "B") as endpoint:
        outcome = lead(endpoint.url, name="audio", conf=conf)
    assert outcome.returncode == 0, outcome.stderr
    says(outcome.stdout, "1 left out")
    played = [part["type"] for part in chain.from_iterable(endpoint.parts)].count("input_audio")
    assert played == 2, "two files are the same sound"
    (row,) = (row for row in rows_of(outcome, "audio") if row["state"] == "in the tables")
    assert row["main_metric"] == "quasi_exact_match"
    assert row["score"] == pytest.approx(2 / 3)
    (table, *_) = loaded(tables_of(outcome, "audio") / "groups" / "parade.json")
    assert row["score"] in [cell.get("value") for cell in table["rows"][0]]


def test_a_run_with_answers_missing_is_kept_out_of_the_tables(
    endpoint: ScriptedEndpoint, lead: Lead
) -> None:
    reply = endpoint.reply

    def refuses_one(
        path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        status, answer = reply(path, headers, body)
        if body["max_tokens"] == 2 and (not refused or body in refused):
            refused.append(body)
            return 400, {"error": {"message": "not this one"}}
        return status, answer

    refused: list[dict[str, Any]] = []
    endpoint.reply = refuses_one  # type: ignore[method-assign]
    outcome = lead(endpoint.url, limit=5, conf=TWO)
    assert outcome.returncode == 1, outcome.stderr
    says(outcome.stdout, "1 runs", "1 kept out", "0 failed")
    says(outcome.stdout, "1 of 5 requests", "kept out of")
    assert "NOT REPORTABLE" in outcome.stderr
    (row,) = (row for row in rows_of(outcome) if row["state"] == "kept out")
    shortest = "custom_mcqa:num_output_tokens=2"
    assert (row["run"], row["score"]) == (shortest, None)
    says(row["reason"], "1 of 5 requests", "failed")
    assert len(runs_in(outcome)) == 1
    allowed = lead(endpoint.url, "--min_coverage", "0.8", limit=5, conf=TWO)
    assert allowed.returncode == 0, allowed.stderr
    assert len(runs_in(allowed)) == 2


def test_a_wrong_key_stops_all_runs(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    endpoint.status = 401
    outcome = lead(endpoint.url, "--no_preflight", "--parallelism", "1")
    assert outcome.returncode == 3, outcome.stderr
    assert len(endpoint.requests) <= 3  # of the runs that had started
    probed = lead(endpoint.url)
    assert probed.returncode == 3
    assert "401" in probed.stdout
    assert endpoint.probes == 1


def test_the_judges_of_helms_safety_leaderboards_are_asked_at_our_endpoint(
    root: Path, tmp_path: Path
) -> None:
    """HELM asks openai/gpt-4o-2024-05-13: the generated files take the place of its own deployment of that name."""
    code = """
import sys
from pathlib import Path
from eval_factory.tasks.framework import load_framework
from eval_factory.helm.command import model_deployments, model_metadata
from eval_factory.workflows.leaderboard.registry import find_leaderboard
from scripts.generate_dynamic_model_configs import standalone_judges, standalone_model
folder = Path(sys.argv[1])
model = standalone_model(load_framework(), url="https://mine.example/v1", model_id="m")
endpoints = (model, *standalone_judges(load_framework(), model, find_leaderboard("safety").judges))
(folder / "model_deployments.yaml").write_text(model_deployments(endpoints, cache_db="x"))
(folder / "model_metadata.yaml").write_text(model_metadata(endpoints))
from helm.benchmark.config_registry import register_builtin_configs_from_helm_package, register_configs_from_directory
register_builtin_configs_from_helm_package()
register_configs_from_directory(str(folder))
from helm.benchmark.model_deployment_registry import get_model_deployment
from helm.benchmark.annotation.air_bench_annotator import AIRBench2024Annotator
for name in ("openai/gpt-4o-2024-05-13", AIRBench2024Annotator._DEFAULT_MODEL_DEPLOYMENT):
    spec = get_model_deployment(name).client_spec
    print(spec.class_name, spec.args["url"], spec.args["model_id"])
"""
    finished = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=root,
        env=program_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    expected = (
        "eval_factory.helm_plugin.client.EndpointClient https://mine.example/v1 gpt-4o-2024-05-13"
    )
    assert finished.stdout.splitlines() == [expected, expected]


@pytest.mark.medical_data
def test_medhelm_with_its_jury(
    endpoint: ScriptedEndpoint,
    lead: Lead,
    tmp_path: Path,
    data_environment: dict[str, str],
    place_data: Callable[[Path, str], None],
) -> None:
    """MedHELM's entries name no jury: HELM's own judges are asked at the model's URL, by their names there."""
    conf = """entries: [
      {description: "aci_bench:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
      {description: "aci_bench:num_output_tokens=4000,model=openai/o3,model_deployment=stanfordhealthcare/o3", priority: 1}
      {description: "pubmed_qa:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
    ]"""
    endpoint.answer = lambda prompt: judgement(prompt, 4) if "Output Format:" in prompt else "A"
    for task in ("aci_bench", "pubmed_qa"):
        place_data(tmp_path / "out" / slug_of("test/model") / task / "helm", task)
    env = {**data_environment, "GPT_JUDGE_API_KEY": "gpt-judge-canary-0123456789"}
    outcome = lead(endpoint.url, limit=2, conf=conf, name="medhelm_public", env=env)
    assert outcome.returncode == 0, outcome.stderr + outcome.stdout
    says(outcome.stdout, "2 runs", "0 kept out", "0 failed")
    asked = [request["model"] for request in endpoint.requests]
    judges = {"gpt-4o-2024-05-13", "meta/llama-3.3-70b-instruct", "claude-3-7-sonnet-20250219"}
    assert {model: asked.count(model) for model in asked} == {
        "test/model": 4,
        **dict.fromkeys(judges, 2),
    }
    keys = {
        (r["model"] == "gpt-4o-2024-05-13", h["Authorization"])
        for r, h in zip(endpoint.requests, endpoint.headers, strict=True)
    }
    assert keys == {(True, "Bearer gpt-judge-canary-0123456789"), (False, f"Bearer {CANARY}")}
    (table, *_) = loaded(tables_of(outcome, "medhelm_public") / "groups" / "medhelm_scenarios.json")
    (row,) = table["rows"]
    shown = {
        head["value"].partition(" - ")[0]: cell.get("value")
        for head, cell in zip(table["header"], row, strict=True)
    }
    assert shown["ACI-Bench"] == 4.0
    assert shown["PubMedQA"] is not None


@pytest.mark.more_data
@pytest.mark.medical_data
def test_judges_elsewhere_and_data_of_a_bundle(
    endpoint: ScriptedEndpoint, lead: Lead, tmp_path: Path, medical_data: Path
) -> None:
    """A server that knows one model id, judges at another by a run config, and no network."""
    bundle = tmp_path / "bundle"
    assert program("data", "import", str(medical_data), "--to", str(bundle)).returncode == 0
    entries = (
        "aci_bench:",
        "mtsamples_procedures:",
        "medcalc_bench:",
        "head_qa:language=en,",
        "medbullets:",
    )
    tail = 'model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}'
    conf = "entries: [" + "\n".join('{description: "' + entry + tail for entry in entries) + "]"
    with ScriptedEndpoint(lambda prompt: judgement(prompt, 4)) as at_the_judges:
        judges = [
            {
                "name": name,
                "model_id": "one-judge",
                "url": at_the_judges.url,
                "api_key": "MY_JUDGE_KEY",
            }
            for name in ("gpt", "llama", "claude")
        ]
        run_config = {
            "config": {
                "params": {"extra": {"judges": judges, "data_dir": str(bundle), "offline": True}}
            }
        }
        (tmp_path / "run.yml").write_text(json.dumps(run_config))
        env = {"MY_JUDGE_KEY": "judge-canary-0123456789"}
        outcome = lead(
            endpoint.url,
            "--run_config",
            "run.yml",
            limit=2,
            conf=conf,
            name="medhelm_public",
            env=env,
        )
        assert {request["model"] for request in at_the_judges.requests} == {"one-judge"}
        assert {headers["Authorization"] for headers in at_the_judges.headers} == {
            "Bearer judge-canary-0123456789"
        }
    assert {request["model"] for request in endpoint.requests} == {"test/model"}
    says(outcome.stderr, "does not hold", "helm:medbullets")
    assert outcome.returncode == 3, outcome.stderr  # medbullets is not in the bundle
    says(outcome.stdout, "medhelm_public: 4 runs", "0 kept out", "1 failed")
    rows = {
        row["run"].partition(":")[0].partition(",")[0]: row
        for row in loaded(outcome.output_dir / "leaderboard.json")["leaderboards"]["medhelm_public"]
    }
    assert (rows["aci_bench"]["main_metric"], rows["aci_bench"]["score"]) == (
        "aci_bench_accuracy",
        4.0,
    )
    assert rows["medbullets"]["state"] == "failed"
    says(rows["medbullets"]["reason"], "does not hold", "helm:medbullets")
    cell = outcome.output_dir / rows["aci_bench"]["folder"]
    settings = loaded(cell / "model_configs/settings.json")  # for the printed command
    assert settings["allowed"] is not None
