"""Generated text is compared with recorded files; EVAL_FACTORY_UPDATE_GOLDEN=1 records it anew."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from builders import plan
from eval_factory.helm import command
from eval_factory.helm.command import (
    Arguments,
    benchmark_files,
    deployment_of,
    model_files,
    roles_by_deployment,
)
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.jury_form import jury_form_of
from unit.tasks.custom.test_definition import JURY, write

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


EHRSHOT = {
    "limit_samples": 500,
    "parallelism": 2,
    "temperature": 0.5,
    "extra.data_path": "/custom/path/to/ehrshot/data",
    "extra.num_output_tokens": 1000,
    "extra.max_length": 4096,
    "extra.subject": "guo_readmission",
    "extra.num_train_trials": 3,
}


def check(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("EVAL_FACTORY_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text("utf-8") == text


def jury_plan() -> Plan:
    return plan(
        {
            "config.type": "aci_bench",
            "config.params.top_p": 0.9,
            "target.api_endpoint.model_id": "a/b:c,d=e",
        }
    )


def test_files_of_a_plain_task() -> None:
    files = model_files(plan({"config.params.extra.max_length": 2048}))
    assert sorted(files) == ["logging.yaml", "model_deployments.yaml", "model_metadata.yaml"]
    check("model_deployments_pubmed_qa.yaml", files["model_deployments.yaml"])
    check("model_metadata_pubmed_qa.yaml", files["model_metadata.yaml"])
    check("logging.yaml", files["logging.yaml"])
    assert "logging.yaml" not in model_files(plan(), debug=True), "HELM's own is left alone"


def test_files_of_a_jury_task() -> None:
    files = model_files(jury_plan())
    check("model_deployments_aci_bench.yaml", files["model_deployments.yaml"])
    check("judges_aci_bench.yaml", files["judges.yaml"])


def test_a_deployment_leads_back_to_its_role() -> None:
    judges = jury_plan().judges
    roles = roles_by_deployment(judges)
    assert [roles[deployment_of(judge)] for judge in judges] == ["gpt", "llama", "claude"]
    prescribed = [replace(judges[0], helm_name="openai/gpt-4o")]
    assert roles_by_deployment(prescribed) == {"openai/gpt-4o": "gpt"}


def test_the_jurys_own_form_is_told_to_helm_run(tmp_path: Path) -> None:
    """HELM reads the prompt as it is sent; one without a place stays where it is."""
    metric = {
        **JURY["metrics"][0],
        "scale": {"min": 0, "max": 3},
        "criteria": [{"name": "a", "description": "b"}],
    }
    block = '{RESPONSE}<rubric_criteria>{"a": ["score"]}</rubric_criteria>'
    for judge, filled in (("{RESPONSE} {SCALE} {CRITERIA}", True), (block, False)):
        bench = load_benchmark(write(tmp_path, {"metrics": [metric]}, judge=judge))
        made = benchmark_files(bench, jury_plan().judges[:1], tmp_path / "configs")
        (written,) = yaml.safe_load(made["benchmark.yaml"])["metrics"]
        assert jury_form_of(written) == bench.jury_form
        place = tmp_path / ("configs/judge_prompt.txt" if filled else "judge.txt")
        assert written["prompt_file"] == str(place)
        assert set(made) == {"benchmark.yaml", *(["judge_prompt.txt"] if filled else [])}
        assert made.get("judge_prompt.txt") == (bench.jury_form.filled(judge) if filled else None)
    plain = benchmark_files(
        load_benchmark(write(tmp_path, JURY)), jury_plan().judges, tmp_path / "configs"
    )
    assert set(yaml.safe_load(plain["benchmark.yaml"])["metrics"][0]) == {
        "name",
        "prompt_file",
        "judges",
    }


def test_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    # none beside Python
    monkeypatch.setattr(command, "helm_program", lambda name, _upstream: Arguments([name]))
    ehrshot = {
        "config.type": "ehrshot",
        **{f"config.params.{name}": value for name, value in EHRSHOT.items()},
    }
    plans = {
        "pubmed_qa": plan(),
        "aci_bench": jury_plan(),
        "ehrshot": plan(ehrshot),
        "med_dialog_icliniq": plan({"config.type": "med_dialog_icliniq"}),
    }
    text = "".join(f"{name}: {shlex.join(command.command_line(p))}\n" for name, p in plans.items())
    check("commands.txt", text)


@pytest.mark.parametrize(
    "value", ["{{ 7*7 }}", "{% raw %}", "a b", "a'b", '"', "$(touch x)", "`x`", "a;b", "-x"]
)
def test_what_a_value_holds_stays_one_argument(value: str) -> None:
    here = plan({"config.output_dir": f"/results/{value}"})
    argv = command.command_line(here)
    assert argv[argv.index("--output-path") + 1] == f"/results/{value}/helm"
    assert len(argv) == len(command.command_line(plan()))


@pytest.mark.parametrize(
    "model_id", ["gpt-5", "a/b/c", "a:b", "a,b", "a=b", "a b", "модель", "{{x}}", "#x", "- y"]
)
def test_any_model_id(model_id: str) -> None:
    here = plan({"target.api_endpoint.model_id": model_id})
    (deployment,) = yaml.safe_load(model_files(here)["model_deployments.yaml"])["model_deployments"]
    assert deployment["client_spec"]["args"]["model_id"] == model_id
    assert deployment["name"].count("/") == 1
    assert command.run_entry(here) == f"pubmed_qa:model={deployment['name']}"
