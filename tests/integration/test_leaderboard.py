"""A small leaderboard with the real helm-run and helm-summarize: several entries, one endpoint."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval_factory.plan.run_plan import slug_of
from integration.jury_endpoint import judgement
from integration.support import CANARY, TIMEOUT_S, Outcome, program_environment
from scripted_endpoint import ScriptedEndpoint

# As confs are: groups of models, an entry for each model of a study, a later priority, comments.
CONF = """
entries: [
  # three questions of one kind
  {description: "sample_medical_qa:model=text", priority: 1}
  {description: "sample_medical_qa:model=openai/gpt-4o,model_deployment=hospital/gpt-4o,num_output_tokens=3", groups: ["short"], priority: 2}
  {description: "sample_medical_qa:model=meta/llama,model_deployment=hospital/llama,num_output_tokens=3", groups: ["short"], priority: 1}
  {description: "sample_medical_qa:model=full_functionality_text,num_output_tokens=2", groups: ["shortest"], priority: 1}
  {description: "nothing_known:model=text", priority: 3}
]
"""
SLUG = slug_of("test/model")
RUN_NAMES = {
    f"sample_medical_qa:model=endpoint_{SLUG}",
    f"sample_medical_qa:model=endpoint_{SLUG},num_output_tokens=3,groups=short",
    f"sample_medical_qa:model=endpoint_{SLUG},num_output_tokens=2,groups=shortest",
}
Lead = Callable[..., Outcome]


@pytest.fixture
def lead(tmp_path: Path) -> Lead:
    """Runs `eval-factory leaderboard run` with a conf written for it."""

    def run(
        url: str, *arguments: str, name: str = "lite", conf: str = CONF, models: tuple[str, ...] = ("test/model",),
        env: dict[str, str] | None = None,
    ) -> Outcome:  # fmt: skip
        finished = subprocess.run(
            command(tmp_path, url, *arguments, name=name, conf=conf, models=models),
            env=program_environment(TEST_MODEL_KEY=CANARY, **(env or {})),
            capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path, check=False,
        )  # fmt: skip
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
    file = folder / "small.conf"
    file.write_text(conf, encoding="utf-8")
    named = [part for model in models for part in ("--model", model)]
    return [
        sys.executable, "-m", "eval_factory", "leaderboard", "run", name, *named, "--model-url", url,
        "--api-key-name", "TEST_MODEL_KEY", "--conf", str(file), "--output-dir", "out", *arguments,
    ]  # fmt: skip


def suite_of(outcome: Outcome, name: str = "lite") -> Path:
    return outcome.output_dir / "helm" / "runs" / name


def loaded(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def means(folder: Path) -> dict[str, float]:
    stats = loaded(folder / "stats.json")
    return {
        stat["name"]["name"]: stat["mean"] for stat in stats if "mean" in stat and "perturbation" not in stat["name"]
    }


def test_several_entries_in_one_run_and_nothing_asked_twice(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    first = lead(endpoint.url, "--max-eval-instances", "6")
    assert first.returncode == 0, first.stderr
    assert "lite: 3 runs in the tables, 0 kept out, 0 failed" in first.stdout
    assert "helm-server --suite lite --output-path" in first.stdout
    assert "5 entries, 4 different ones for one model, 3 of priority 2 or before" in first.stderr
    assert "[3/3] sample_medical_qa" in first.stderr
    assert first.stderr.count("  6/6 done") == 3  # each run counts from the beginning
    assert len(endpoint.requests) == 18
    assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {CANARY}"}
    assert {request["model"] for request in endpoint.requests} == {"test/model"}
    assert {r["max_tokens"] for r in endpoint.requests} == {5, 3, 2}
    suite = suite_of(first)
    # helm-server looks for folders of runs by HELM's own names.
    assert set(loaded(suite / "runs_to_run_suites.json")) == RUN_NAMES
    assert {path.name for path in suite.iterdir()} >= RUN_NAMES
    assert {len(loaded(suite / name / "display_predictions.json")) for name in RUN_NAMES} == {6}
    assert loaded(suite / "schema.json")["run_groups"]
    plain, _, short = sorted(RUN_NAMES)
    assert means(suite / plain)["exact_match"] == means(suite / short)["exact_match"]
    for path in first.output_dir.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
    before = {name: (suite / name / "stats.json").read_bytes() for name in RUN_NAMES}

    again = lead(endpoint.url, "--max-eval-instances", "6", "--parallelism", "2")
    assert again.returncode == 0, again.stderr
    assert "3 runs are complete already" in again.stderr
    assert len(endpoint.requests) == 18
    assert {name: (suite / name / "stats.json").read_bytes() for name in RUN_NAMES} == before

    more = lead(endpoint.url, "--max-eval-instances", "8")  # other runs, but what was answered is kept
    assert more.returncode == 0, more.stderr
    assert "complete already" not in more.stderr
    assert "3 runs of test/model with other settings or entries were moved to" in more.stderr
    aside = {
        path.parent.name: path.read_bytes()
        for path in (more.output_dir / "helm" / "set_aside" / "lite").glob("*/*/stats.json")
    }
    assert aside == before
    assert 18 < len(endpoint.requests) <= 24 + 18
    asked = [json.dumps(request, sort_keys=True) for request in endpoint.requests]
    assert len(set(asked)) == len(asked)
    assert {len(loaded(suite / name / "display_predictions.json")) for name in RUN_NAMES} == {8}


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = loaded(outcome.output_dir / "leaderboard.json")["leaderboards"]["lite"]
    return rows


def test_several_models_are_compared(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    """Those of one command, and those of commands before."""
    first = lead(endpoint.url, "--max-eval-instances", "4", models=("org/first", "second"))
    assert first.returncode == 0, first.stderr
    assert "model 2 of 2: second" in first.stderr
    assert "lite: 6 runs in the tables" in first.stdout
    assert [request["model"] for request in endpoint.requests] == ["org/first"] * 12 + ["second"] * 12
    before = {path: path.read_bytes() for path in suite_of(first).glob("*model=*/stats.json")}
    assert len(before) == 6

    third = lead(endpoint.url, "--max-eval-instances", "4", models=("third",))
    assert third.returncode == 0, third.stderr
    assert "lite: 3 runs in the tables" in third.stdout
    assert "with those of other models: 9 runs in the tables" in third.stdout
    assert {path: path.read_bytes() for path in before} == before
    assert len(loaded(suite_of(third) / "runs_to_run_suites.json")) == 9
    named = (third.output_dir / "model_configs" / "model_metadata.yaml").read_text("utf-8")
    assert {line.split()[-1] for line in named.splitlines() if "display_name" in line} == {
        "org/first",
        "second",
        "third",
    }
    assert [row["model_id"] for row in rows_of(third)] == ["org/first"] * 3 + ["second"] * 3 + ["third"] * 3
    assert {(row["state"], row["requested"], row["main_metric"]) for row in rows_of(third)} == {
        ("in the tables", 4, "exact_match")
    }

    again = lead(endpoint.url, "--max-eval-instances", "4", models=("org/first", "third"))
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("3 runs are complete already") == 2
    assert len(endpoint.requests) == 36
    assert len(rows_of(again)) == 9
    assert "warning" not in again.stdout
    fewer = lead(endpoint.url, "--max-eval-instances", "3", models=("second",))
    assert fewer.returncode == 0, fewer.stderr
    assert "3 runs of second with other settings or entries were moved to" in fewer.stderr
    assert "warning: the tables compare runs of 3 and 4 instances at most" in fewer.stdout
    assert {path: path.exists() for path in before} == dict.fromkeys(before, True)


def test_entries_for_more_than_text_are_left_out(endpoint: ScriptedEndpoint, lead: Lead, tmp_path: Path) -> None:
    conf = """entries: [
      {description: "twitter_aae:demographic=aa,model=full_functionality_text", priority: 1}
      {description: "mmlu:subject=anatomy,method=multiple_choice_separate_original,model=full_functionality_text", priority: 1}
      {description: "sample_medical_qa:model=text", priority: 1}
    ]"""
    outcome = lead(endpoint.url, "--max_eval_instances", "4", conf=conf)
    assert outcome.returncode == 0, outcome.stderr
    assert "1 entries are left out, an endpoint for text has none of: log probabilities (1)" in outcome.stderr
    assert "lite: 1 runs in the tables, 0 kept out, 0 failed, 2 left out" in outcome.stdout
    assert [(row["run"].partition(":")[0], row["state"]) for row in rows_of(outcome)] == [
        ("sample_medical_qa", "in the tables"), ("twitter_aae", "left out"), ("mmlu", "left out")
    ]  # fmt: skip
    assert rows_of(outcome)[2]["reason"] == "asks for the log probabilities of its prompts"


def test_data_that_are_not_there_or_hold_nothing(endpoint: ScriptedEndpoint, lead: Lead, tmp_path: Path) -> None:
    """Which file, and where it belongs; an empty one is no gap in the answers."""
    mmlu = tmp_path / "out" / "helm" / "scenarios" / "mmlu" / "data"
    conf = 'entries: [{description: "mmlu:subject=anatomy,model=text", priority: 1}]'
    absent = lead(endpoint.url, conf=conf, env={"https_proxy": "http://127.0.0.1:9"})
    assert absent.returncode == 3, absent.stderr
    assert (
        "DownloadError: https://people.eecs.berkeley.edu/~hendrycks/data.tar could not be downloaded" in absent.stdout
    )
    assert f"unpack it yourself as {mmlu}" in absent.stdout
    for part, split in (("dev", "dev"), ("val", "val"), ("test", "test")):
        (mmlu / part).mkdir(parents=True)
        (mmlu / part / f"anatomy_{split}.csv").write_text("")
    for _ in range(2):
        empty = lead(endpoint.url, conf=conf)
        assert empty.returncode == 3, empty.stderr
        assert (
            "NoInstancesError: HELM's scenario found no instances in its data: is the path to them right?"
            in empty.stdout
        )
        assert "NOT REPORTABLE" not in empty.stderr
    assert [(row["state"], row["main_metric"]) for row in rows_of(empty)] == [("failed", None)]
    assert endpoint.requests == []


def test_the_second_run_of_a_helm_run_scores_as_it_would_alone(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    """Nothing of the run before is left over: not in the counts, not in what is replaced in HELM."""
    together = lead(endpoint.url)
    assert together.returncode == 0, together.stderr
    last = sorted(RUN_NAMES)[1]
    files = ("stats.json", "per_instance_stats.json", "scenario_state.json")
    whole = {name: (suite_of(together) / last / name).read_bytes() for name in files}
    alone = lead(
        endpoint.url,
        conf="\n".join(line for line in CONF.splitlines() if "description" not in line or "shortest" in line),
    )
    assert alone.returncode == 0, alone.stderr
    assert "1 runs in the tables" in alone.stdout
    assert not (suite_of(alone) / sorted(RUN_NAMES)[0]).exists()  # of the other conf: gone from the tables
    for name in ("stats.json", "per_instance_stats.json"):
        ours = [s for s in json.loads(whole[name]) if "runtime" not in json.dumps(s)]
        theirs = [s for s in loaded(suite_of(alone) / last / name) if "runtime" not in json.dumps(s)]
        assert ours == theirs, name
    completions = [
        [state["result"]["completions"] for state in json.loads(text)["request_states"]]
        for text in (whole["scenario_state.json"], (suite_of(alone) / last / "scenario_state.json").read_bytes())
    ]
    assert completions[0] == completions[1]


def test_an_interrupted_leaderboard_goes_on(endpoint: ScriptedEndpoint, lead: Lead, tmp_path: Path) -> None:
    answer = endpoint.answer

    def slowly(prompt: str) -> str:
        if len(endpoint.requests) > 50:  # in the second run
            time.sleep(0.5)
        return answer(prompt)

    endpoint.answer = slowly
    process = subprocess.Popen(
        command(tmp_path, endpoint.url, "--parallelism", "2"), env=program_environment(TEST_MODEL_KEY=CANARY),
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(endpoint.requests) < 55 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "run the same command again" in said
    before = len(endpoint.requests)
    assert 55 <= before < 120
    endpoint.answer = answer
    finished = lead(endpoint.url)
    assert finished.returncode == 0, finished.stderr
    assert "1 runs are complete already" in finished.stderr
    assert "3 runs in the tables" in finished.stdout
    assert 120 <= len(endpoint.requests) <= 120 + 2  # the two under way when it was interrupted


def test_an_entry_that_helm_cannot_make_costs_itself_only(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    conf = """entries: [
      {description: "nothing_known:model=text", priority: 1}
      {description: "sample_medical_qa:model=text", priority: 1}
      {description: "sample_medical_qa:model=text,no_such_argument=1", priority: 1}
    ]"""
    outcome = lead(endpoint.url, "--max_eval_instances", "4", conf=conf)
    assert outcome.returncode == 4, outcome.stderr
    assert "1 runs in the tables, 0 kept out, 2 failed" in outcome.stdout
    assert f"failed: nothing_known:model=endpoint/{SLUG}: ValueError: Unknown run spec name" in outcome.stdout
    assert "no_such_argument" in outcome.stdout
    assert "[3/3] sample_medical_qa" in outcome.stderr
    assert [row["state"] for row in rows_of(outcome)] == ["in the tables", "failed", "failed"]
    assert len(endpoint.requests) == 4
    assert (suite_of(outcome) / "groups").is_dir()


def test_two_entries_whose_runs_have_one_name(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    """HELM's expander for the temperature leaves the name alone: the second run would overwrite the first."""
    conf = """entries: [
      {description: "sample_medical_qa:model=text", priority: 1}
      {description: "sample_medical_qa:model=text,temperature=0.5", priority: 1}
    ]"""
    outcome = lead(endpoint.url, "--max_eval_instances", "4", conf=conf)
    assert outcome.returncode == 4, outcome.stderr
    assert "1 runs in the tables, 0 kept out, 1 failed" in outcome.stdout
    assert "has the same name" in outcome.stdout
    assert {request["temperature"] for request in endpoint.requests} == {0.0}


def test_entries_whose_data_are_not_there(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    conf = 'entries: [{description: "ehrshot:model=x/y,subject=guo_readmission,data_path=/no/such/data", priority: 1}]'
    outcome = lead(endpoint.url, conf=conf, name="medhelm_gated")
    assert outcome.returncode == 3, outcome.stderr
    assert "data_path /no/such/data does not exist; 1 entries need it" in outcome.stderr
    assert "0 runs in the tables, 0 kept out, 1 failed" in outcome.stdout
    assert "helm-server" not in outcome.stdout
    assert endpoint.requests == []


def test_a_run_with_answers_missing_is_kept_out_of_the_tables(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    reply = endpoint.reply

    def refuses_one(path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = reply(path, headers, body)
        if body["max_tokens"] == 2 and not refused:
            refused.append(body)
            return 400, {"error": {"message": "not this one"}}
        return status, answer

    refused: list[dict[str, Any]] = []
    endpoint.reply = refuses_one  # type: ignore[method-assign]
    outcome = lead(endpoint.url, "--max_eval_instances", "5")
    assert outcome.returncode == 1, outcome.stderr
    assert "2 runs in the tables, 1 kept out, 0 failed" in outcome.stdout
    assert "1 of 5 requests failed: kept out of the tables" in outcome.stdout
    assert "NOT REPORTABLE" in outcome.stderr
    shortest = sorted(RUN_NAMES)[1]
    (row,) = (row for row in rows_of(outcome) if row["state"] == "kept out")
    assert (row["run"], row["reason"], row["score"]) == (shortest, "1 of 5 requests failed", None)
    assert shortest not in loaded(suite_of(outcome) / "runs_to_run_suites.json")
    assert (outcome.output_dir / "helm" / "withheld" / "lite" / shortest).is_dir()
    asked = len(endpoint.requests)
    again = lead(endpoint.url, "--max_eval_instances", "5")
    assert again.returncode == 0, again.stderr
    assert "2 runs are complete already" in again.stderr
    assert len(endpoint.requests) == asked + 1
    assert shortest in loaded(suite_of(again) / "runs_to_run_suites.json")
    assert not (again.output_dir / "helm" / "withheld").is_dir() or not list(
        (again.output_dir / "helm" / "withheld").rglob("*.json")
    )


def test_a_wrong_key_stops_all_runs(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    endpoint.status = 401
    outcome = lead(endpoint.url, "--no_preflight", "--parallelism", "1")
    assert outcome.returncode == 3, outcome.stderr
    assert len(endpoint.requests) == 1  # not one for each run
    assert "[2/3]" not in outcome.stderr
    probed = lead(endpoint.url)
    assert probed.returncode == 3
    assert "--api_key_name, or those of --run_config FILE" in probed.stderr
    assert endpoint.probes == 1
    assert len(endpoint.requests) == 1


def test_a_model_that_is_refused_in_the_middle_ends_its_own_turn(endpoint: ScriptedEndpoint, lead: Lead) -> None:
    reply = endpoint.reply

    def refuses(path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, answer = reply(path, headers, body)
        if body["model"] == "refused" and sum(request["model"] == "refused" for request in endpoint.requests) > 4:
            return 401, {"error": {"message": "the contract has ended"}}
        return status, answer

    endpoint.reply = refuses  # type: ignore[method-assign]
    outcome = lead(endpoint.url, "--max_eval_instances", "4", "--parallelism", "1", models=("refused", "other"))
    assert outcome.returncode == 3, outcome.stderr
    assert "refused was stopped, the next model's turn comes: " in outcome.stderr
    assert "the contract has ended" in outcome.stderr
    assert "model 2 of 2: other" in outcome.stderr
    assert "lite: 4 runs in the tables, 0 kept out, 1 failed" in outcome.stdout
    assert "refused was stopped before all its runs were begun" in outcome.stderr
    states = [(row["model_id"], row["state"]) for row in rows_of(outcome)]
    assert states == [("refused", "in the tables"), ("refused", "failed"), *[("other", "in the tables")] * 3]
    assert len(loaded(suite_of(outcome) / "runs_to_run_suites.json")) == 4

    endpoint.reply = reply  # type: ignore[method-assign]
    again = lead(endpoint.url, "--max_eval_instances", "4", "--parallelism", "1", models=("refused", "other"))
    assert again.returncode == 0, again.stderr
    assert "1 runs are complete already" in again.stderr
    assert "3 runs are complete already" in again.stderr
    assert "lite: 6 runs in the tables, 0 kept out, 0 failed" in again.stdout


def test_the_embedded_endpoint_needs_no_key(lead: Lead, tmp_path: Path) -> None:
    argv = command(tmp_path, "demo://baseline", "--max_eval_instances", "3")
    del argv[argv.index("--api-key-name") : argv.index("--api-key-name") + 2]
    finished = subprocess.run(
        argv, env=program_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, cwd=tmp_path, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "3 runs in the tables" in finished.stdout


def test_the_judges_of_helms_safety_leaderboards_are_asked_at_our_endpoint(root: Path, tmp_path: Path) -> None:
    """HELM asks openai/gpt-4o-2024-05-13: the generated files take the place of its own deployment of that name."""
    code = """
import sys
from pathlib import Path
from eval_factory.tasks.framework import load_framework
from eval_factory.helm.standalone import standalone_judges, standalone_model
from eval_factory.helm.model_files import model_deployments, model_metadata
from eval_factory.workflows.leaderboard.registry import find
folder = Path(sys.argv[1])
model = standalone_model(load_framework(), url="https://mine.example/v1", model_id="m")
endpoints = (model, *standalone_judges(load_framework(), model, find("safety").judges))
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
        [sys.executable, "-c", code, str(tmp_path)], env=program_environment(), capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    expected = "eval_factory.helm_plugin.client.EndpointClient https://mine.example/v1 gpt-4o-2024-05-13"
    assert finished.stdout.splitlines() == [expected, expected]


@pytest.mark.medical_data
def test_medhelm_with_its_jury(
    endpoint: ScriptedEndpoint, lead: Lead, tmp_path: Path, data_environment: dict[str, str],
    place_data: Callable[[Path, str], None],
) -> None:  # fmt: skip
    """MedHELM's entries name no jury: HELM's own judges are asked at the model's URL, by their names there."""
    conf = """entries: [
      {description: "aci_bench:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
      {description: "aci_bench:num_output_tokens=4000,model=openai/o3,model_deployment=stanfordhealthcare/o3", priority: 1}
      {description: "pubmed_qa:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
    ]"""
    endpoint.answer = lambda prompt: judgement(prompt, 4) if "Output Format:" in prompt else "A"
    for task in ("aci_bench", "pubmed_qa"):
        place_data(tmp_path / "out" / "helm", task)
    env = {**data_environment, "GPT_JUDGE_API_KEY": "gpt-judge-canary-0123456789"}
    outcome = lead(endpoint.url, "--max_eval_instances", "2", conf=conf, name="medhelm_public", env=env)
    assert outcome.returncode == 0, outcome.stderr + outcome.stdout
    assert "2 runs in the tables, 0 kept out, 0 failed" in outcome.stdout
    asked = [request["model"] for request in endpoint.requests]
    judges = {"gpt-4o-2024-05-13", "meta/llama-3.3-70b-instruct", "claude-3-7-sonnet-20250219"}
    assert {model: asked.count(model) for model in asked} == {"test/model": 4, **dict.fromkeys(judges, 2)}
    keys = {
        (r["model"] == "gpt-4o-2024-05-13", h["Authorization"])
        for r, h in zip(endpoint.requests, endpoint.headers, strict=True)
    }
    assert keys == {(True, "Bearer gpt-judge-canary-0123456789"), (False, f"Bearer {CANARY}")}
    (table, *_) = loaded(suite_of(outcome, "medhelm_public") / "groups" / "medhelm_scenarios.json")
    (row,) = table["rows"]
    shown = {
        head["value"].partition(" - ")[0]: cell.get("value") for head, cell in zip(table["header"], row, strict=True)
    }
    assert shown["ACI-Bench"] == 4.0
    assert shown["PubMedQA"] is not None


@pytest.mark.medical_data
def test_judges_elsewhere_and_data_of_a_bundle(
    endpoint: ScriptedEndpoint, lead: Lead, tmp_path: Path, medical_data: Path
) -> None:
    """A server that knows one model id, judges at another by a run config, and no network."""
    bundle = tmp_path / "bundle"
    importing = [sys.executable, "-m", "eval_factory", "data", "import", str(medical_data), "--to", str(bundle)]
    subprocess.run(importing, env=program_environment(), check=True, capture_output=True, timeout=TIMEOUT_S)
    conf = """entries: [
      {description: "aci_bench:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
      {description: "mtsamples_procedures:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
      {description: "medcalc_bench:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
      {description: "head_qa:language=en,model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
      {description: "medbullets:model=google/g,model_deployment=stanfordhealthcare/g", priority: 1}
    ]"""
    with ScriptedEndpoint(lambda prompt: judgement(prompt, 4)) as at_the_judges:
        judges = [
            {"name": name, "model_id": "one-judge", "url": at_the_judges.url, "api_key": "MY_JUDGE_KEY"}
            for name in ("gpt", "llama", "claude")
        ]
        run_config = {"config": {"params": {"extra": {"judges": judges, "data_dir": str(bundle), "offline": True}}}}
        (tmp_path / "run.yml").write_text(json.dumps(run_config))
        env = {"MY_JUDGE_KEY": "judge-canary-0123456789"}
        arguments = ("--max_eval_instances", "2", "--run_config", "run.yml")
        outcome = lead(endpoint.url, *arguments, conf=conf, name="medhelm_public", env=env)
        assert {request["model"] for request in at_the_judges.requests} == {"one-judge"}
        assert {headers["Authorization"] for headers in at_the_judges.headers} == {"Bearer judge-canary-0123456789"}
    assert {request["model"] for request in endpoint.requests} == {"test/model"}
    assert "does not hold all that helm:medbullets reads" in outcome.stderr
    assert outcome.returncode == 3, outcome.stderr  # medbullets is not in the bundle
    assert "medhelm_public: 4 runs in the tables, 0 kept out, 1 failed" in outcome.stdout
    rows = {
        row["run"].partition(":")[0].partition(",")[0]: row
        for row in loaded(outcome.output_dir / "leaderboard.json")["leaderboards"]["medhelm_public"]
    }
    assert (rows["aci_bench"]["main_metric"], rows["aci_bench"]["score"]) == ("aci_bench_accuracy", 4.0)
    assert rows["medbullets"]["state"] == "failed"
    assert "offline" in rows["medbullets"]["reason"]
    settings = loaded(outcome.output_dir / "model_configs/settings.json")["variables"]  # for the printed command
    assert {"EVAL_FACTORY_OFFLINE", "HF_HOME", "EVAL_FACTORY_FILE_LISTS"} <= settings.keys()
