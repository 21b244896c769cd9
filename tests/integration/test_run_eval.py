"""From the command line to the output folder, with the real helm-run on the sample benchmark."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.report import documents
from facts import says
from program_runs import CANARY, Outcome, Run, more_data, program_environment
from programs import eval_factory, holding, outcome_of, ran, run_eval
from scripted_endpoint import ScriptedEndpoint

TASK = "sample_medical_qa"
FILES = [
    "evaluation_config.yaml",
    "results.yml",
    "run_config.yml",
    "instances.jsonl",
    "results.jsonl",
    "cache.db",
    "eval_factory_metrics.json",
    "report.html",
    "packages.txt",
    "responses/model.jsonl",
    "logs/eval-factory.log",
    "logs/helm-run.log",
    "logs/events.jsonl",
    "report.md",
    "model_configs/model_deployments.yaml",
    "model_configs/model_metadata.yaml",
]


def assert_nothing_leaked(outcome: Outcome, secret: str = CANARY) -> None:
    assert secret not in outcome.stdout + outcome.stderr
    assert holding(outcome.output_dir, secret) == []


@pytest.fixture(scope="module")
def quickstart(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The shipped quickstart config, from another directory, no key set."""
    folder = tmp_path_factory.mktemp("quickstart")
    config = root / "test_cases" / "quickstart.yml"
    flags = ("--run_config", str(config), "--output-dir", "out dir é")
    return outcome_of(eval_factory("run_eval", *flags, cwd=folder), folder / "out dir é")


def test_quickstart_leaves_every_file(quickstart: Outcome) -> None:
    assert quickstart.returncode == 0, quickstart.stderr
    for name in FILES:
        assert (quickstart.output_dir / name).is_file(), name
    left = [
        path.name
        for path in quickstart.output_dir.rglob("*")
        if ".part" in path.name or ":" in path.name
    ]
    assert left == []


def test_quickstart_documents(quickstart: Outcome) -> None:
    document = quickstart.document()
    documents.check_document(document, documents.EVALUATION_CONFIG_SCHEMA)
    results = yaml.safe_load((quickstart.output_dir / "results.yml").read_text("utf-8"))
    documents.check_document(results, documents.RESULTS_SCHEMA)
    assert document["provenance"]["target"] == "demo baseline"
    assert any("demo baseline" in note for note in document["validity"]["notes"])
    assert document["validity"]["instances"]["scored"] == 40
    # The stated rule is right for the questions whose longest option is right: 8 of 40.
    assert quickstart.scores()["exact_match"] == 8 / 40
    # Its eight categories hold five questions each: too few to be shown.
    assert document["results"]["groups"] == {}
    assert any(note.endswith("by category") for note in document["validity"]["notes"])
    assert set(document["config"]) == {
        "type",
        "output_dir",
        "params",
    }  # what nobody set stands in run_config.yml
    assert set(document["config"]["params"]) == {"extra"}
    assert set(document["target"]["api_endpoint"]) == {"url", "model_id", "type"}
    text = (quickstart.output_dir / "evaluation_config.yaml").read_text("utf-8")
    assert len(text.splitlines()) <= 130, text
    (task,) = document["results"]["tasks"].values()
    scores = task["metrics"]["score"]["scores"]
    assert next(iter(scores)) == document["main_metric"]
    assert all(score["unit"] == "share" for score in scores.values())
    run_config = yaml.safe_load((quickstart.output_dir / "run_config.yml").read_text("utf-8"))
    assert set(run_config) == {"command", "framework_name", "pkg_name", "config", "target"}


def test_quickstart_metrics(quickstart: Outcome) -> None:
    """By EvalFactory's names the same counts as in `usage`."""
    usage = quickstart.document()["usage"]  # of one run: all runs are not told apart
    found = json.loads((quickstart.output_dir / "eval_factory_metrics.json").read_text("utf-8"))
    stats = found["response_stats"]
    evaluation = found["evaluation"]
    assert stats["count"] == stats["successful_count"] == usage["requests"] == 40
    assert (stats["status_codes"], stats["finish_reason"]) == ({"200": 40}, {"stop": 40})
    assert evaluation["token_usage"]["completion_tokens"] == usage["completion_tokens"]
    assert 0 < evaluation["inference_time_seconds"] <= evaluation["runtime_seconds"]
    assert evaluation["total_runs"] == 1


def lines(outcome: Outcome, name: str) -> list[Any]:
    return [
        json.loads(line) for line in (outcome.output_dir / name).read_text("utf-8").splitlines()
    ]


def test_quickstart_lines(quickstart: Outcome) -> None:
    results = lines(quickstart, "results.jsonl")
    instances = lines(quickstart, "instances.jsonl")
    assert len(results) == len(instances) == 40
    assert {line["id"] for line in results} == {line["id"] for line in instances}
    assert all(line["id"].startswith("sample-") for line in results)  # the table's own ids
    for line in results:
        assert line["completion"] in "ABCD"
        assert line["finish_reason"] == "stop"
        assert line["completion_tokens"] == 1
        assert line["latency_s"] > 0


def test_the_printed_command_does_the_same_run(quickstart: Outcome) -> None:
    finished = ran(shlex.split(quickstart.document()["command"]), quickstart.output_dir)
    assert finished.returncode == 0, finished.stderr
    stats = next((quickstart.output_dir / "helm").rglob("stats.json"))
    means = {
        stat["name"]["name"]: stat.get("mean") for stat in json.loads(stats.read_text("utf-8"))
    }
    assert means["exact_match"] == quickstart.scores()["exact_match"]


def test_again_asks_nothing_and_gives_the_same(
    endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    first = run_program(TASK, endpoint.url)
    assert first.returncode == 0, first.stderr
    asked = len(endpoint.requests)
    assert asked == 40
    before = first.document()
    second = run_program(TASK, endpoint.url, params={"parallelism": 13, "request_timeout": 7})
    assert second.returncode == 0
    assert len(endpoint.requests) == asked
    assert second.document()["results"] == before["results"]
    assert second.document()["usage"] == before["usage"]
    assert "complete already" in second.stderr
    assert "asking" not in second.stderr
    fresh = run_program(TASK, endpoint.url, "--fresh")
    assert fresh.returncode == 0
    assert len(endpoint.requests) == 2 * asked
    assert_nothing_leaked(fresh)


def test_the_endpoint_gets_key_and_model_id_and_debug_shows_no_key(
    endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    model_id = "some/org: modèle,x=1"
    params = {"limit_samples": 3, "top_p": 0.5}
    outcome = run_program(TASK, f"{endpoint.url}/", "--debug", params=params, model_id=model_id)
    assert outcome.returncode == 0, outcome.stderr
    assert {request["model"] for request in endpoint.requests} == {model_id}
    assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {CANARY}"}
    assert {request["top_p"] for request in endpoint.requests} == {0.5}
    assert "run_specs" in (outcome.output_dir / "logs" / "helm-run.log").read_text("utf-8")
    assert_nothing_leaked(outcome)


def test_an_unreachable_host_stops_the_run(run_program: Run) -> None:
    outcome = run_program(TASK, "http://127.0.0.1:9/v1", "--no_preflight")
    assert outcome.returncode == 3
    assert "cannot reach http://127.0.0.1:9/v1" in outcome.stderr


def test_one_bad_request_costs_one_instance(endpoint: ScriptedEndpoint, run_program: Run) -> None:
    usual = endpoint.reply

    def refuse_one(
        path: str, headers: dict[str, str], body: dict[str, object]
    ) -> tuple[int, dict[str, object]]:
        if "aorta" in str(body["messages"]):
            return 400, {"error": {"message": f"refused: {body} with {headers['Authorization']}"}}
        return usual(path, headers, body)

    endpoint.reply = refuse_one  # type: ignore[method-assign]
    outcome = run_program(TASK, endpoint.url)
    assert outcome.returncode == 1, outcome.stderr
    document = outcome.document()
    assert document["status"] == "partial"
    assert document["validity"]["instances"]["failed"] == 1
    low, high = document["validity"]["bounds"]["exact_match"]
    assert low <= outcome.scores()["exact_match"] <= high
    assert high - low == pytest.approx(1 / 40)
    assert "NOT REPORTABLE" in outcome.stderr
    (failure,) = document["validity"]["failures"]
    assert (failure["role"], failure["count"]) == ("model", 1)
    assert failure["cause"].startswith("HTTP 400: refused: ")
    says(outcome.stdout, "1 x HTTP 400", "refused")
    assert "aorta" not in outcome.stdout + outcome.stderr + "".join(
        (outcome.output_dir / name).read_text("utf-8") for name in ("report.html", "report.md")
    )
    log = (outcome.output_dir / "logs" / "helm-run.log").read_text("utf-8")
    assert "aorta" not in log
    assert_nothing_leaked(outcome)
    endpoint.reply = usual  # type: ignore[method-assign]
    before = len(endpoint.requests)
    again = run_program(TASK, endpoint.url)
    assert again.returncode == 0
    assert len(endpoint.requests) == before + 1
    usage = again.document()["usage"]
    assert (usage["requests"], usage["cached"], usage["retries"]) == (1, 39, 0)
    assert "this_run" not in usage  # the model alone was asked: its figures stand at the top
    assert (
        usage["all_runs"]["runs"],
        usage["all_runs"]["requests"],
        usage["all_runs"]["cached"],
    ) == (2, 41, 39)
    assert (
        usage["all_runs"]["prompt_tokens"]
        == document["usage"]["prompt_tokens"] + usage["prompt_tokens"]
    )
    assert again.document()["validity"]["failures"] == []


def test_a_reasoning_model_that_refuses_fields_gets_none_of_them(
    endpoint: ScriptedEndpoint, run_program: Run
) -> None:
    usual = endpoint.reply

    unsupported = {
        "max_tokens": "parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "temperature": "value: 'temperature' does not support 0 with this model.",
    }

    def picky(
        path: str, headers: dict[str, str], body: dict[str, object]
    ) -> tuple[int, dict[str, object]]:
        texts = [f"Unsupported {text}" for name, text in unsupported.items() if name in body]
        return (400, {"error": {"message": texts[0]}}) if texts else usual(path, headers, body)

    endpoint.reply = picky  # type: ignore[method-assign]
    overrides = "target.api_endpoint.adapter_config.params_to_add={reasoning_effort: low}"
    outcome = run_program(TASK, endpoint.url, "--overrides", overrides, model_id="o3-mini")
    assert outcome.returncode == 0, outcome.stderr
    assert {tuple(sorted(request)) for request in endpoint.requests} == {
        ("max_completion_tokens", "messages", "model", "reasoning_effort", "top_p")
    }
    asked = len(endpoint.requests)
    (outcome.output_dir / ".run_state.json").unlink()  # helm-run itself finds the answers again
    again = run_program(TASK, endpoint.url, "--overrides", overrides, model_id="o3-mini")
    assert (again.returncode, len(endpoint.requests)) == (0, asked), again.stderr
    for document in (outcome.document(), again.document()):
        says(
            document["validity"]["notes"], "refuses temperature", "left out", "model's own default"
        )


def test_dry_run_writes_nothing(run_program: Run, tmp_path: Path) -> None:
    outcome = run_program(
        TASK, "http://127.0.0.1:9/v1", "--dry_run", "--api_key_name", "NO_SUCH_KEY"
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "helm-run" in outcome.stdout
    assert "run config: " in outcome.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{TASK}.yml"]


@pytest.mark.parametrize("number", [signal.SIGINT, *more_data(signal.SIGTERM)])
def test_an_interrupt_ends_all_and_keeps_the_answers(
    number: int, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    usual = endpoint.answer

    def slowly(prompt: str) -> str:
        time.sleep(0.3)
        return usual(prompt)

    endpoint.answer = slowly
    argv = run_eval(tmp_path / "out", endpoint.url, "--overrides", "config.params.parallelism=2")
    with subprocess.Popen(
        argv, env=program_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 60
        while len(endpoint.requests) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, number)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    says(stderr, "same command again")
    asked = len(endpoint.requests)
    time.sleep(1)
    assert len(endpoint.requests) <= asked
    endpoint.answer = usual
    again = ran(argv)
    assert again.returncode == 0, again.stderr
    assert len(endpoint.requests) <= 40 + 2  # at most what was in flight is asked twice


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
HOSTILE = (
    "DROP TABLE patient",
    "ATTACH DATABASE 'stolen.sqlite' AS stolen",
    f"{ENDLESS} SELECT count(*) FROM n",
    f"{ENDLESS} SELECT printf('%.*c', 9999990, 'x') FROM n",
    f"{ENDLESS} SELECT printf('%.*c', 9999990, 'x') FROM n LIMIT 60",
    "SELECT instr(printf('%.*c', 9999990, 'a'), printf('%.*c', 4999990, 'a') || 'b')",
    "INSERT INTO patient SELECT * FROM patient",
)
COUNT = "SELECT count(*) FROM patient"


def small_ehr_sql(folder: Path, gold: list[str]) -> bytes:
    """A small database of the benchmark's form, and a question `How many, N?` for each gold query: the database."""
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "eicu.sqlite") as connection:
        connection.execute("CREATE TABLE patient (id INTEGER)")
        connection.execute("INSERT INTO patient VALUES (1)")
    connection.close()
    (folder / "eicu.sql").write_text("CREATE TABLE patient\n(\n id INTEGER\n);\n")
    rows = [
        {"question": f"How many, {n}?", "query": query, "is_impossible": query == "null"}
        for n, query in enumerate(gold)
    ]
    for split in ("train", "valid", "test"):
        (folder / f"ehrsql_{split}.json").write_text(json.dumps(rows if split == "test" else []))
    return (folder / "eicu.sqlite").read_bytes()


NOTHING = "SELECT id FROM patient WHERE id < 0"
GOLD_ANSWER_HELM_CORRECTED = [
    *((COUNT, answer, 0.0, 0.0) for answer in HOSTILE),
    ("SELECT x'00'", "SELECT x'00' FROM patient", 1.0, 1.0),
    ("SELECT x'00'", "SELECT x'01'", 0.0, 0.0),
    ("SELECT 9e999", "SELECT 9e999", 1.0, 1.0),
    (COUNT, "SELECT CAST(count(*) AS REAL) FROM patient", 1.0, 1.0),
    (COUNT, "SELECT 1 UNION ALL SELECT 1", 1.0, 1.0),
    (NOTHING, NOTHING, 0.0, 1.0),
    (NOTHING, "-- nobody knows", 0.0, 0.0),
    (NOTHING, "", 1.0, 0.0),
    ("null", "", 1.0, 1.0),
    ("null", "<sql></sql>", 0.0, 1.0),
    ("null", "```sql\n```", 0.0, 1.0),
    ("null", "I cannot say.", 0.0, 0.0),
    ("null", COUNT, 0.0, 0.0),
]


def test_a_models_sql_can_do_no_harm_and_any_value_can_be_written_down(
    run_program: Run, tmp_path: Path
) -> None:
    """After the run the database is byte for byte what it was, and the output is small."""
    gold, answers, *_ = zip(*GOLD_ANSWER_HELM_CORRECTED, strict=True)
    folder = tmp_path / "out" / "helm" / "scenarios" / "ehr_sql"
    before = small_ehr_sql(folder, list(gold))
    with ScriptedEndpoint(
        lambda prompt: answers[int(re.findall(r"How many, (\d+)\?", prompt)[-1])]
    ) as endpoint:
        params = {"parallelism": 8, "extra": {"max_unreadable": 1.0}}  # what writes is no query
        outcome = run_program("ehr_sql", endpoint.url, params=params)
    assert outcome.returncode == 0, outcome.stderr
    assert (folder / "eicu.sqlite").read_bytes() == before
    assert {file.name for file in folder.iterdir() if file.suffix != ".lock"} == {
        "eicu.sqlite",
        "eicu.sql",
        "ehrsql_train.json",
        "ehrsql_valid.json",
        "ehrsql_test.json",
    }
    assert not list(tmp_path.rglob("stolen.sqlite"))
    assert (
        sum(file.stat().st_size for file in outcome.output_dir.rglob("*") if file.is_file())
        < 5_000_000
    )
    name = "ehr_sql_execution_accuracy"
    found = []
    valid = []
    for number, of in (
        (int(line["id"].removeprefix("id")), line["metrics"])
        for line in lines(outcome, "results.jsonl")
    ):
        found.append((gold[number], answers[number], of[name], of[f"{name}.corrected"]))
        valid += [of["ehr_sql_query_validity"]] if answers[number] in HOSTILE else []
    assert sorted(found) == sorted(GOLD_ANSWER_HELM_CORRECTED)
    assert valid == [0.0] * len(HOSTILE)
    (state,) = outcome.output_dir.rglob("scenario_state.json")

    def no_json(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(state.read_text("utf-8"), parse_constant=no_json)


def test_no_copy_of_the_database_is_left_by_a_run_that_was_killed(tmp_path: Path) -> None:
    """Killed while queries run: a hospital's database must not stay behind in a temporary folder."""
    out = tmp_path / "out"
    database = small_ehr_sql(out / "helm" / "scenarios" / "ehr_sql", [COUNT] * 8)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with ScriptedEndpoint(lambda _prompt: f"{ENDLESS} SELECT count(*) FROM n") as endpoint:
        argv = run_eval(out, endpoint.url, task="ehr_sql")
        environment = program_environment(TMPDIR=str(temporary))
        with subprocess.Popen(argv, env=environment, stderr=subprocess.DEVNULL) as process:
            events = out / "logs" / "events.jsonl"
            deadline = time.monotonic() + 60
            while not (events.exists() and '"judging"' in events.read_text("utf-8")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            time.sleep(1)
            process.kill()
    copies = [
        file for file in tmp_path.rglob("*") if file.is_file() and file.read_bytes() == database
    ]
    assert copies == [out / "helm" / "scenarios" / "ehr_sql" / "eicu.sqlite"]
