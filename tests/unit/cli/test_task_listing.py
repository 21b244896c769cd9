"""`ls` in all its forms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from builders import evaluation
from eval_factory.cli import task_listing
from eval_factory.cli.main import cli
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import CODE_EXECUTION_KEY, load_index, needs_permission
from facts import naming, says

NAMES = load_framework().names()
RUN_SPECS = load_index().run_specs


def ls(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["ls", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_list_says_in_six_words_what_each_task_asks() -> None:
    tasks = load_framework().evaluations
    for task, row in zip(tasks, task_listing.task_rows(tasks), strict=True):
        assert row[1] == task.asks
        assert 2 <= len(task.asks.split()) <= 6, task.name
    of_a_package = replace(tasks[0], asks="")
    (row,) = task_listing.task_rows([of_a_package])
    assert row[1] == of_a_package.description


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "custom"]
)  # needs its own file: new-benchmark
def test_what_is_told_of_a_task_is_a_run_config(name: str, tmp_path: Path) -> None:
    file = tmp_path / "my_test.yml"
    file.write_text(ls(name), encoding="utf-8")
    result = CliRunner().invoke(
        cli, ["run_eval", "--run_config", str(file), "--dry_run"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert f"type: {name}" in result.output
    assert "$schema=run_config.schema.json" in ls(name)


def test_the_example_of_every_run_spec_that_runs_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    framework = load_framework()
    for name, spec in RUN_SPECS.items():
        text = task_listing.record_text(task_listing.record_of(f"helm:{name}", framework))
        if spec.asks is not None and not spec.makes_images:
            says(text, "cannot be run")
            assert yaml.safe_load(text) is None
            continue
        file.write_text(text, encoding="utf-8")
        allowed = {CODE_EXECUTION_KEY: True} if needs_permission(name, spec) else {}
        found = build_evaluation(RunRequest(run_config=file, flags=allowed), framework, {})
        assert found.task.helm.run_spec == name


def test_all_that_is_known_of_a_task() -> None:
    text = ls("med_dialog")
    subset = "subset: may be given, default healthcaremagic, one of"
    for said in ("med_dialog_accuracy", "gpt, llama, claude", "public", "CodaLab", subset):
        assert said in text
    record = json.loads(ls("med_dialog", "--json"))
    assert yaml.safe_load(record["example"])["config"]["params"]["extra"] == {
        "subset": "healthcaremagic"
    }
    assert json.loads(ls("helm.med_dialog", "--json")) == record
    assert "stanford-crfm/helm#3746" in ls("med_dialog_icliniq").replace("\n#   ", " ")
    assert "stanford-crfm/helm#4351" in ls("helm:medcalc_bench").replace("\n#   ", " ")
    assert "data_path/test.findings.tok" in ls("mimic_rrs")
    assert "subset: always icliniq" in ls("med_dialog_icliniq")


def test_a_run_spec() -> None:
    text = ls("helm:mmlu")
    every = "arguments of every run spec, if the scenario accepts them: add_to_stop"
    for said in (
        "subject (str, needed)",
        "method=multiple_choice_joint",
        "type: helm:mmlu:subject=<subject>",
        every,
    ):
        assert said in text
    assert ls("helm:mmlu:subject=anatomy") == text
    record = json.loads(ls("helm:harm_bench", "--json"))
    assert (record["prescribed_judges"], record["runs"]) == (["openai/gpt-4o-2024-05-13"], True)
    tasks = ["med_dialog_healthcaremagic", "med_dialog_icliniq", "med_dialog"]
    assert json.loads(ls("helm:med_dialog", "--json"))["tasks"] == tasks


def test_all_run_specs() -> None:
    lines = ls("--all").splitlines()
    assert len(lines) == len(RUN_SPECS)
    (line,) = (line for line in lines if line.startswith("helm:mmlu "))
    assert "subject (str, needed), method=multiple_choice_joint" in line
    assert line.endswith("(Hendrycks et al., 2021)")
    records = json.loads(ls("--all", "--json"))
    assert [record["name"] for record in records] == list(RUN_SPECS)
    assert all(set(record) == set(records[0]) for record in records)


def test_what_executes_answers_says_so() -> None:
    text = ls("helm:code").replace("\n#   ", " ")
    helms = "code_metrics_helper.RuntimeModule, code_metrics_helper.check_correctness"
    says(text, "executes", "(Python", "confined process")
    assert f"in HELM's {helms})" in text
    says(
        text, "refused", "--allow_code_execution", "config.params.extra.allow_code_execution: true"
    )
    lines = {line.split()[0]: line for line in ls("--all").splitlines()}
    says(lines["helm:code"], "executes", "(Python)", "needs --allow_code_execution")
    assert "needs --allow" not in lines["helm:ehr_sql"] + lines["helm:mmlu"]
    record = json.loads(ls("helm:bird_sql", "--json"))
    assert record["executes"] == {"SQL": "bird_sql_annotator.BirdSQLAnnotator"}
    assert record["needs_permission"] is True
    sql = ls("ehr_sql").replace("\n#   ", " ")
    says(sql, "only read", "have a time limit")
    assert "refused without" not in sql
    assert "which eval-factory cannot confine" in ls("helm:unitxt").replace("\n#   ", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pubmedqa"], "no task 'pubmedqa', did you mean 'pubmed_qa'?"),
        (["pubmed_qa", "--all"], "give one of"),
        (["mmlu"], "HELM has a run spec of that name: helm:mmlu"),
        (["--all", "--tag", "jury"], "give one of"),
        (["helm:mmlux"], "no run spec 'mmlux', did you mean 'mmlu'?"),
    ],
)
def test_mistakes(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        CliRunner().invoke(cli, ["ls", *arguments], catch_exceptions=False)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("name", "published", "public", "said"),
    [
        ("pubmed_qa", "2019-09", True, "2019-09; its answers are public"),
        ("mtsamples_replicate", None, True, "unknown; its answers are public"),
        ("medalign", "2023-08", False, "2023-08; its answers are not public"),
        ("custom", None, None, None),
    ],
)
def test_how_old_a_benchmark_is(
    name: str, published: str | None, public: bool | None, said: str | None
) -> None:
    record = json.loads(ls(name, "--json"))
    assert (record["published"], record["answers_public"]) == (published, public)
    assert [
        line.partition(":")[2].strip()
        for line in ls(name).splitlines()
        if line.startswith("# public since:")
    ] == ([said] if said else [])


def test_json_of_all_tasks_keeps_its_fields() -> None:
    records: list[dict[str, Any]] = json.loads(ls("--json"))
    fields = {
        "name",
        "type",
        "description",
        "endpoint_types",
        "judges",
        "main_metric",
        "access",
        "source",
        "instances",
        "tags",
        "parameters",
        "notes",
        "run_spec",
        "licence",
        "revision",
        "size_mb",
        "tried",
        "errata",
        "executes",
        "published",
        "answers_public",
        "label_noise",
    }
    assert all(fields == set(record) for record in records)


def test_names_nearly_written() -> None:
    close = {
        "mmul": "'helm:mmlu'",
        "helm:mmul": "'mmlu'",
        "medek": "'medec'",
        "mmulu": "'helm:mmlu'",
    }
    for given, near in close.items():
        result = CliRunner().invoke(cli, ["ls", given])
        assert f"did you mean {near}?" in str(result.exception)
    for given in ("nonsense", "helm:nonsense-nonsense"):
        assert "did you mean" not in str(CliRunner().invoke(cli, ["ls", given]).exception)
    with pytest.raises(ConfigError, match=naming("'mmul'", "'helm:mmlu'")):
        evaluation({"config.type": "mmul"})
    with pytest.raises(ConfigError, match=naming("'mmul'", "'mmlu'")):
        evaluation({"config.type": "helm:mmul"})


def shown_prompt(text: str) -> list[str]:
    """The lines of the judges' prompt among the comments, as they were before they became comments."""
    _, _, rest = text.partition("# the prompt of a judge; placeholders are in braces:\n#\n")
    lines = rest.partition("#\n# for completion")[0].splitlines()
    return [line.removeprefix("#   ").removeprefix("#") for line in lines]


@pytest.mark.parametrize(
    "name", [task.name for task in load_framework().evaluations if task.helm.judges]
)
def test_a_task_with_judges_shows_their_prompt(name: str) -> None:
    prompt = json.loads(ls(name, "--json"))["judge_prompt"]
    if name == "custom":
        assert prompt is None  # it is the benchmark's own
        return
    assert "{RESPONSE}" in prompt or "{conversation}" in prompt
    assert shown_prompt(ls(name)) == [line.rstrip() for line in prompt.splitlines()]


@pytest.mark.parametrize("kind", ["jury", "rubric", "choice"])
def test_a_benchmark_of_ones_own(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    result = CliRunner().invoke(
        cli, ["new_benchmark", str(folder), "--kind", kind], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    file = folder / "benchmark.yaml"
    record = json.loads(ls("--benchmark", str(file), "--json"))
    judges = {
        "jury": (folder / "judge_prompt.txt").read_text("utf-8") if kind == "jury" else None,
        "rubric": task_listing.record_of("healthbench", load_framework())["judge_prompt"],
        "choice": None,
    }
    assert record["judge_prompt"] == judges[kind]
    assert bool(record["judges"]) == (kind != "choice")
    assert (record["name"], record["instances"] > 0) == (
        yaml.safe_load(file.read_text("utf-8"))["name"],
        True,
    )
    if kind == "jury":
        scaled = "judge_prompt.txt\n    scale: {min: 0, max: 9}\n"
        file.write_text(
            file.read_text("utf-8").replace("judge_prompt.txt\n", scaled, 1), encoding="utf-8"
        )
        (folder / "judge_prompt.txt").write_text(f"{judges['jury']}\n{{SCALE}}", encoding="utf-8")
        record = json.loads(ls("--benchmark", str(file), "--json"))
        says(record["judge_prompt"], "from 0 to 9", "from the worst to")
    example = yaml.safe_load(ls("--benchmark", str(file)))
    assert example["config"]["type"] == "custom"
    assert example["config"]["params"]["extra"] == {"benchmark": str(file)}


def test_which_other_words_are_offered_for_a_task() -> None:
    assert json.loads(ls("medec", "--json"))["perturb"] == []
    offered = json.loads(ls("pubmed_qa", "--json"))["perturb"]
    assert "units" in offered
    assert "gender" not in offered
    assert "# other words:       none" in ls("medec").splitlines()


@pytest.mark.parametrize(
    ("task", "reasoned"),
    [("head_qa", "answer_style: reasoned"), ("mmlu_pro_health", "already"), ("medec", "no")],
)
def test_a_task_says_whether_it_takes_reasoned_answers(task: str, reasoned: str) -> None:
    (line,) = [line for line in ls(task).splitlines() if line.startswith("# reasoned answers:")]
    assert reasoned in line
    assert ("yes" in line) is (task == "head_qa")
