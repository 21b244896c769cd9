"""Run configs of three other programs, invented, as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.foreign_configs import Translation, translate_config
from eval_factory.config.foreign_forms import FORMS, form_of
from eval_factory.config.merge import section_at
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from facts import each_says, says

HELM = "container://nvcr.io/nvidia/eval-factory/helm:26.03#"
SERVICE = {
    "type": "api",
    "url": "https://h.example/v1/chat/completions",
    "protocol": "chat_completions",
    "model": "org/m",
    "api_key": "${NV_KEY}",
}
SOLVER = {"type": "container", "service": "m"}


def of(document: Any, tmp_path: Path) -> Translation:
    file = tmp_path / "foreign.yml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return translate_config(file, load_framework())


def nel(*benchmarks: Any, **services: Any) -> dict[str, Any]:
    return {"services": {"m": SERVICE, **services}, "benchmarks": list(benchmarks)}


@pytest.mark.parametrize("form", FORMS)
def test_every_value_has_a_place_here(form: str) -> None:
    """A path is one of a merged configuration, or lies in a free mapping of it."""
    flags = {"target.api_endpoint.url": "http://h/v1", "target.api_endpoint.model_id": "m"}
    flags |= {"config.type": "pubmed_qa", "config.output_dir": "x"}
    merged = build_evaluation(RunRequest(flags=flags), load_framework(), {}).run.model_dump()
    free = ("params_to_add", "headers")
    for place in FORMS[form]["keys"].values():
        *sections, last = place.split(".")
        if not set(free) & set(sections):
            assert last in section_at(merged, sections), place
    for task in FORMS[form]["tasks"].values():
        assert load_framework().task(task) is not None, task


def test_a_benchmark_of_the_helm_container_is_the_task(tmp_path: Path) -> None:
    benchmark = {
        "name": f"{HELM}medec",
        "params": {"temperature": 1.0, "limit_samples": 10},
        "solver": SOLVER,
    }
    found = of({**nel(benchmark), "output": {"dir": "results/n"}}, tmp_path)
    assert found.findings == ()
    assert found.document == {
        "config": {
            "type": "medec",
            "output_dir": "results/n",
            "params": {"temperature": 1.0, "limit_samples": 10},
        },
        "target": {
            "api_endpoint": {
                "url": SERVICE["url"],
                "model_id": "org/m",
                "type": "chat",
                "api_key": "NV_KEY",
            }
        },
    }


def test_several_make_a_suite_that_runs(tmp_path: Path) -> None:
    names = [f"{HELM}medec", "gsm8k", f"{HELM}helm.pubmed_qa"]
    found = of(nel(*({"name": name, "solver": SOLVER} for name in names)), tmp_path)
    each_says(found.findings, ["benchmarks[1].name", "'gsm8k'", "not a task"])
    suite = build_suite(None, document=found.document, env={})
    assert [cell.evaluation for cell in suite.cells] == ["medec", "pubmed_qa"]


def test_what_nel_has_and_we_do_not_is_listed(tmp_path: Path) -> None:
    benchmark = {
        "name": "skills://mmlu-pro",
        "fewshot": 5,
        "scoring": {"metrics": [{"type": "judge", "service": "j"}]},
        "solver": {"type": "harbor", "service": "m", "agent": "a"},
    }
    served = {**SERVICE, "type": "vllm", "protocol": "responses"}
    document = {
        **nel(benchmark, m=served, j=SERVICE),
        "cluster": {"type": "slurm"},
        "unknown": 1,
    }
    found = of(document, tmp_path)
    each_says(
        found.findings,
        ["unknown", "no counterpart"],
        ["services.m.protocol", "chat or completions"],
        ["services.m.type", "vllm", "serve.md"],
        ["benchmarks[0].solver.type", "harbor", "eval-factory import"],
        ["benchmarks[0].solver.agent", "eval-factory import"],
        ["benchmarks[0].name", "nearest task is mmlu_pro_health"],
        ["benchmarks[0].fewshot", "max_train_instances"],
        ["benchmarks[0].scoring", "extra.judges"],
        ["cluster", "slurm.md"],
        ["services.j", "extra.judges"],
    )
    assert "type" not in found.document["config"]
    says(found.text, "# - benchmarks[0].fewshot")


@pytest.mark.parametrize("name", ["skills://mmlu-pro@1.0", "skills@main/mmlu-pro"])
def test_the_nearest_task_is_found_for_a_benchmark_with_a_version(
    name: str, tmp_path: Path
) -> None:
    found = of(nel({"name": name, "solver": SOLVER}), tmp_path)
    each_says(found.findings, ["benchmarks[0].name", "nearest task is mmlu_pro_health"])


def test_a_version_of_a_benchmark_is_no_key_and_a_key_is_one(tmp_path: Path) -> None:
    found = of(nel({"name": "harbor://swebench-verified@1.0", "solver": SOLVER}), tmp_path)
    each_says(found.findings, ["benchmarks[0].name", "not a task"])
    for name in ("harbor://user:secret@host/x", "sk-" + "a1B2c3D4e5" * 4):
        with pytest.raises(ConfigError) as caught:
            of(nel({"name": name, "solver": SOLVER}), tmp_path)
        assert "secret" not in str(caught.value)
        assert "a1B2" not in str(caught.value)


@pytest.mark.parametrize("is_text", [True, False])
def test_lm_eval_gives_endpoint_and_parameters(is_text: bool, tmp_path: Path) -> None:
    model_args: Any = {
        "model": "m",
        "base_url": "http://h/v1/completions",
        "num_concurrent": 8,
        "timeout": 60,
        "tokenizer": "t",
    }
    gen_kwargs: Any = {"temperature": 0.5, "max_gen_toks": 32, "until": "x"}
    tasks: Any = ["pubmedqa", {"task": "gsm8k"}]
    if is_text:
        model_args = ",".join(f"{name}={value}" for name, value in model_args.items())
        gen_kwargs = ",".join(f"{name}={value}" for name, value in gen_kwargs.items())
        tasks = "pubmedqa,gsm8k"
    document = {
        "model": "local-completions",
        "model_args": model_args,
        "gen_kwargs": gen_kwargs,
        "tasks": tasks,
        "limit": 0.1,
        "log_samples": True,
        "num_fewshot": 5,
    }
    found = of(document, tmp_path)
    assert found.document == {
        "config": {
            "output_dir": "results/imported",
            "params": {
                "parallelism": 8,
                "request_timeout": 60,
                "temperature": 0.5,
                "max_new_tokens": 32,
                "limit_samples": 0.1,
            },
        },
        "target": {
            "api_endpoint": {
                "type": "completions",
                "model_id": "m",
                "url": "http://h/v1/completions",
            }
        },
    }
    each_says(
        found.findings,
        ["model_args.tokenizer", "the endpoint counts"],
        ["gen_kwargs.until", "leave it out"],
        ["log_samples", "stores every answer"],
        ["num_fewshot", "max_train_instances"],
        ["tasks[0]", "'pubmedqa'", "nearest task is pubmed_qa"],
        ["tasks[1]", "'gsm8k'", "eval-factory ls"],
    )
    flags = {"config.type": "pubmed_qa"}
    run = build_evaluation(
        RunRequest(document=found.document, flags=flags), load_framework(), {}
    ).run
    assert run.config.params.max_new_tokens == 32


def test_no_value_of_a_body_is_lost_in_either_order(tmp_path: Path) -> None:
    body = {"extra_body": {"top_k": 5, "a.b": 1}}
    for config in ({"seed": 7, **body}, {**body, "seed": 7}):
        document = {"task": "x", "model": "openai/m", "generate_config": config}
        made = of(document, tmp_path)
        adapter = made.document["target"]["api_endpoint"]["adapter_config"]
        assert adapter["params_to_add"] == {"seed": 7, "top_k": 5}
        assert any("a.b" in finding for finding in made.findings)


@pytest.mark.parametrize("is_first", [True, False])
def test_lm_evals_gen_kwargs_go_before_its_model_args(is_first: bool, tmp_path: Path) -> None:
    sections: Any = [("gen_kwargs", {"max_gen_toks": 5}), ("model_args", {"max_gen_toks": 100})]
    if not is_first:
        sections.reverse()
    document = {"model": "local-completions", "tasks": "x", **dict(sections)}
    made = of(document, tmp_path)
    assert made.document["config"]["params"]["max_new_tokens"] == 5
    assert any("gen_kwargs.max_gen_toks" in finding for finding in made.findings)


def test_a_key_that_is_no_variable_is_named_and_not_shown(tmp_path: Path) -> None:
    service = {**SERVICE, "api_key": "${oc.env:MY_KEY}"}
    made = of(nel({"name": "x", "solver": SOLVER}, m=service), tmp_path)
    assert any("services.m.api_key" in finding for finding in made.findings)
    assert not any("oc.env" in finding for finding in made.findings)


@pytest.mark.parametrize(
    "document",
    [
        {"model": ["x"], "tasks": "x"},
        {"services": {"m": {"protocol": ["x"]}}, "benchmarks": [{"solver": {"service": ["m"]}}]},
        {"services": {"m": {"protocol": ["x"]}}, "benchmarks": [{"solver": {"service": "m"}}]},
    ],
)
def test_a_value_of_another_kind_is_listed(document: Any, tmp_path: Path) -> None:
    assert of(document, tmp_path).findings


@pytest.mark.parametrize("tasks", [5, {"a": 1}])
def test_tasks_of_another_kind_name_no_benchmark(tasks: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"foreign\.yml"):
        of({"model": "local-completions", "tasks": tasks}, tmp_path)


def test_a_model_in_the_process_is_no_endpoint(tmp_path: Path) -> None:
    found = of({"model": "hf", "model_args": {"pretrained": "g"}, "tasks": ["x"]}, tmp_path)
    says(found.findings[0], "model", "hf", "serve.md")
    assert found.document["target"]["api_endpoint"] == {"model_id": "g"}
    hosted = of({"model": "openai-chat-completions", "tasks": ["x"]}, tmp_path)
    endpoint = hosted.document["target"]["api_endpoint"]
    assert (endpoint["api_key"], endpoint["type"]) == ("OPENAI_API_KEY", "chat")


def test_inspects_run_config(tmp_path: Path) -> None:
    document = {
        "task": {"task": "inspect_evals/pubmedqa", "args": {"a": 1}},
        "model": {"model": "openai-api/my-lab/org/m", "args": {"b": 2}},
        "model_roles": {"grader": {"model": "x/y"}},
        "generate_config": {"temperature": 0.0, "max_connections": 20, "timeout": 9, "new": 1},
        "eval_config": {"limit": 100, "epochs": 3},
    }
    found = of(document, tmp_path)
    assert found.document["config"]["params"] == {
        "temperature": 0.0,
        "parallelism": 20,
        "limit_samples": 100,
        "extra": {"repeats": 3},
    }
    assert found.document["target"]["api_endpoint"] == {
        "model_id": "org/m",
        "url": "${MY_LAB_BASE_URL}",
        "api_key": "MY_LAB_API_KEY",
        "type": "chat",
    }
    each_says(
        found.findings,
        ["task.args", "config.params.extra"],
        ["model.args", "params_to_add"],
        ["model_roles", "extra.judges"],
        ["generate_config.timeout", "request_timeout"],
        ["generate_config.new", "params_to_add"],
        ["task", "nearest task is pubmed_qa"],
    )


@pytest.mark.parametrize(
    ("model", "endpoint"),
    [
        ("openai/gpt-4", {"model_id": "gpt-4", "url": "https://api.openai.com/v1"}),
        (
            "openrouter/org/m",
            {
                "model_id": "org/m",
                "url": "https://openrouter.ai/api/v1",
                "api_key": "OPENROUTER_API_KEY",
            },
        ),
        ("vllm/org/m", {"model_id": "org/m", "url": "${VLLM_BASE_URL}", "api_key": None}),
        ("azureai/claude", {"model_id": "claude"}),
    ],
)
def test_inspects_models(model: str, endpoint: dict[str, str], tmp_path: Path) -> None:
    document = {"task": "t", "model": model, "eval_config": {"limit": 1}}
    found = of(document, tmp_path)
    given = found.document["target"]["api_endpoint"]
    assert {name: given.get(name) for name in endpoint} == endpoint
    is_known = "url" in endpoint
    assert any("OpenAI-compatible" in finding for finding in found.findings) is not is_known


def test_inspects_model_may_have_settings_and_an_address_of_its_own(tmp_path: Path) -> None:
    """The file's own generate_config goes before the model's, in Inspect too."""
    model = {
        "model": "deepseek/m",
        "base_url": "http://proxy.example/v1",
        "config": {"temperature": 0.5, "top_p": 0.9, "reasoning_effort": "low", "cache": True},
    }
    document = {"task": "t", "model": model, "generate_config": {"temperature": 0.0}}
    found = of(document, tmp_path)
    assert found.document["config"]["params"] == {"temperature": 0.0, "top_p": 0.9}
    endpoint = found.document["target"]["api_endpoint"]
    assert (endpoint["url"], endpoint["api_key"]) == (model["base_url"], "DEEPSEEK_API_KEY")
    assert endpoint["adapter_config"]["params_to_add"] == {"reasoning_effort": "low"}
    each_says(
        found.findings,
        ["model.config.cache", "leave it out"],
        ["generate_config.temperature", "config.params.temperature"],
        ["task", "'t'"],
    )
    elsewhere = {**model, "model": "azureai/m"}
    (model_finding,) = [
        finding
        for finding in of({**document, "model": elsewhere}, tmp_path).findings
        if finding.startswith("model: ")
    ]
    says(model_finding, "azureai/m", "api_key")
    assert "api_endpoint.url" not in model_finding, "it is given"


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"model": "hf", "model_args": {"pretrained": "g"}, "gen_kwargs": {"top_p": 0.9}}, "tasks"),
        ({"model": "hf", "model_args": "pretrained=g", "gen_kwargs": "top_p=0.9"}, "tasks"),
        ({"model": "openai/g", "generate_config": {"top_p": 0.9}}, "task"),
        ({"task": "x", "generate_config": {"top_p": 0.9}}, "model"),
    ],
)
def test_what_is_left_to_the_command_line_is_asked_for(
    document: Any, named: str, tmp_path: Path
) -> None:
    """Many keep a file for each model, and name the task as they run it."""
    found = of(document, tmp_path)
    assert found.document["config"]["params"]["top_p"] == 0.9
    assert "type" not in found.document["config"]
    assert any(
        finding.startswith(f"{named}: is not given") and "run_eval --" in finding
        for finding in found.findings
    )


def test_a_key_that_is_unknown_is_likened_to_those_beside_it(tmp_path: Path) -> None:
    document = {"task": "t", "model": "openai/m", "eval_config": {"epoch": 2, "max_tokenz": 3}}
    findings = {one.partition(":")[0]: one for one in of(document, tmp_path).findings}
    says(findings["eval_config.epoch"], "did you mean 'epochs'")
    assert "did you mean" not in findings["eval_config.max_tokenz"], "it is generate_config's"


@pytest.mark.parametrize(
    "document",
    [
        {"tasks": ["a"]},
        {"task": "a"},
        {"task": "a", "model": "m"},
        {"model": "m", "batch_size": 1},
        {"log_dir": "logs", "tasks": [{"name": "a", "model": "openai/m"}]},
        {"kind": "LMEvalJob", "spec": {"model": "local-completions"}},
        {"services": {}},
        {"eval": {"tasks": ["a"], "model": "hf"}},
        {"handler": "x", "tasks": ["a"], "simple_evaluate_args": {}},
    ],
)
def test_a_file_of_another_form_is_none_of_these(document: Any, tmp_path: Path) -> None:
    assert form_of(document) is None
    with pytest.raises(ConfigError) as caught:
        of(document, tmp_path)
    says(str(caught.value), "services:", "tasks:", "generate_config:")
