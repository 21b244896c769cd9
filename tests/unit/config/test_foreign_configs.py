"""Whole configurations of other programs, invented, as ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.foreign_configs import Translation, translate_config
from eval_factory.config.suite import build_suite
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from facts import each_says, says

ENDPOINT = {
    "url": "https://host.example/v1",
    "model_id": "org/model",
    "type": "chat",
    "api_key": "MY_KEY",
}
KEY = "nvapi-" + "a1B2c3D4e5" * 4


def of(document: Any, tmp_path: Path) -> Translation:
    file = tmp_path / "foreign.yml"
    file.write_text(
        document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    )
    return translate_config(file, load_framework())


def refused(document: Any, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        of(document, tmp_path)
    return str(caught.value).replace(f"{tmp_path}/", "")


def run_config(**params: Any) -> dict[str, Any]:
    given = {"temperature": 0.0, "top_p": 1.0, "max_new_tokens": 64, **params}
    config = {"type": "medec", "output_dir": "results/x", "params": given}
    return {"config": config, "target": {"api_endpoint": dict(ENDPOINT)}}


@pytest.mark.parametrize(
    "document",
    [
        run_config(extra={"num_train_trials": 3}),
        {
            **run_config(extra={"stop_after_failures": 3}),
            "executor": "slurm",
            "slurm": {"account": "lab"},
        },
        {
            **run_config(),
            "target": {
                "api_endpoint": {**ENDPOINT, "url": ["http://a.example/v1", "http://b.example/v1"]}
            },
        },
    ],
)
def test_a_run_config_that_runs_here_is_the_same(document: dict[str, Any], tmp_path: Path) -> None:
    found = of(document, tmp_path)
    assert found == Translation(document, ())
    assert "suite" not in found.document


def test_what_a_run_of_nvidias_writes_down_can_be_run_again(tmp_path: Path) -> None:
    document = {
        "command": "helm-run x",
        "framework_name": "helm",
        "pkg_name": "helm",
        "extra_key": 1,
        "metadata": None,
        **run_config(
            task="medec",
            request_timeout=60,
            extra={"disable_cache": False, "subset": None, "data_path": None},
        ),
    }
    found = of(document, tmp_path)
    assert found.document == run_config(request_timeout=60)
    *others, task, cache = found.findings
    says(cache, "config.params.extra.disable_cache", "always stores")
    says(task, "config.params.task", "config.type")
    each_says(
        others,
        ["command: ", "leave it out"],
        ["framework_name: ", "HELM"],
        ["pkg_name: ", "HELM"],
        ["extra_key: ", "no counterpart"],
    )


def test_what_flags_would_have_said_is_left_to_flags(tmp_path: Path) -> None:
    found = of({"config": {"type": "helm.ehrshot"}}, tmp_path)
    config = {"type": "ehrshot", "output_dir": "results/ehrshot"}
    assert found == Translation({"config": config, "target": {"api_endpoint": {}}}, ())
    extra = {"data_path": "/d", "subject": "guo_readmission"}
    flags = {f"config.params.extra.{name}": value for name, value in extra.items()}
    flags |= {"target.api_endpoint.url": "http://h/v1", "target.api_endpoint.model_id": "m"}
    evaluation = build_evaluation(
        RunRequest(document=found.document, flags=flags), load_framework(), {}
    )
    assert evaluation.run.config.params.extra.subject == "guo_readmission"


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "temperature top_p max_new_tokens"),
        ({"temperature": 0}, "top_p max_new_tokens"),
        ({"temperature": 0, "top_p": 1, "extra": {"num_output_tokens": 5}}, ""),
        ({"temperature": None, "top_p": 1, "max_new_tokens": 5}, "temperature"),
    ],
)
def test_defaults_of_nvidias_container_are_told_where_ours_hold(
    given: Any, missing: str, tmp_path: Path
) -> None:
    document = run_config()
    document["config"]["params"] = given
    told = of(document, tmp_path).findings
    names = [f"config.params.{name}" for name in missing.split()]
    assert [line.partition(": is not given")[0] for line in told] == names
    if missing == "temperature":
        says(told[0], "(helm:26.03) takes 0.6", "the container")


def test_what_the_container_does_not_do_is_not_done_here(tmp_path: Path) -> None:
    """It has not every task, and so no defaults of it; a system prompt it does not send."""
    document = run_config()
    document["config"] |= {"type": "helm:mmlu:subject=anatomy", "params": {}}
    found = of(document, tmp_path)
    assert found.findings == ()
    assert found.document["config"] == {
        "type": "helm:mmlu:subject=anatomy",
        "output_dir": "results/x",
    }
    prompted = run_config()
    prompted["target"]["api_endpoint"]["adapter_config"] = {"custom_system_prompt": "x"}
    found = of(prompted, tmp_path)
    assert (found.document, len(found.findings)) == (run_config(), 1)


PARAMS = {"temperature": 0.6, "top_p": 0.95, "max_new_tokens": 512}
LAUNCHER: dict[str, Any] = {
    "defaults": [{"execution": "local"}, {"deployment": "none"}, "_self_"],
    "execution": {"output_dir": "results/many"},
    "target": {"api_endpoint": {"url": "???", "model_id": "org/model", "api_key_name": "API_KEY"}},
    "evaluation": {
        "env_vars": {"API_KEY": "host:NGC_API_KEY"},
        "nemo_evaluator_config": {"config": {"params": {**PARAMS, "parallelism": 2}}},
        "tasks": [
            {
                "name": "helm.medec",
                "nemo_evaluator_config": {"config": {"params": {"parallelism": 8}}},
            }
        ],
    },
}


def launcher(*tasks: Any, **evaluation: Any) -> dict[str, Any]:
    return {
        **LAUNCHER,
        "evaluation": {**LAUNCHER["evaluation"], "tasks": list(tasks), **evaluation},
    }


def test_one_task_of_a_launcher_is_a_run_config(tmp_path: Path) -> None:
    found = of(LAUNCHER, tmp_path)
    params = {**PARAMS, "parallelism": 8}
    assert "suite" not in found.document
    assert found.document == {
        "config": {"type": "medec", "output_dir": "results/many", "params": params},
        "target": {
            "api_endpoint": {
                "url": "${MODEL_URL}",
                "model_id": "org/model",
                "api_key": "NGC_API_KEY",
            }
        },
    }
    assert [line.partition(": ")[0] for line in found.findings] == ["target.api_endpoint.url"]


def test_several_tasks_are_a_suite_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    names = ("lm-evaluation-harness.mmlu", "simple_evals.pubmedqa", None, KEY[6:])
    tasks = [
        {"name": "medec"},
        {"name": "pubmed_qa", "endpoint_type": "completions"},
        *({"name": one} for one in names),
    ]
    found = of(launcher(*tasks), tmp_path)
    assert "suite" in found.document
    suite = found.document["suite"]
    assert (suite["output_dir"], suite["evaluations"]) == ("results/many", ["medec", "pubmed_qa"])
    assert [target["api_endpoint"].get("type") for target in suite["targets"]] == [
        None,
        "completions",
    ]
    assert len(suite["exclude"]) == 2
    unknown = [line for line in found.findings if line.startswith("evaluation.tasks")]
    each_says(
        unknown,
        ["evaluation.tasks[2].name", "no task 'lm-evaluation-harness.mmlu'"],
        ["evaluation.tasks[3].name", "no task 'simple_evals.pubmedqa'", "'pubmed_qa'?"],
        ["evaluation.tasks[4].name", "eval-factory ls"],
        ["evaluation.tasks[5].name", "no task [API_KEY_REDACTED]"],
    )
    says(unknown[0], "helm:mmlu")
    for line in (unknown[0], unknown[1], unknown[3]):
        says(line, "eval-factory ls", "eval-factory ls --all")
    without_a_folder = of(
        {**launcher({"name": "medec"}, {"name": "head_qa"}), "execution": {}}, tmp_path
    )
    assert without_a_folder.document["suite"]["output_dir"] == "results/suite"


@pytest.mark.parametrize(
    ("entry", "named"), [("helm:nosuchspec:a=b", "nosuchspec"), ("helm:mmlu:subject", "subject")]
)
def test_a_wrong_run_entry_is_named(entry: str, named: str, tmp_path: Path) -> None:
    document = run_config()
    document["config"]["type"] = entry
    says(refused(document, tmp_path), "config.type", named)
    found = of(launcher({"name": "medec"}, {"name": entry}), tmp_path)
    says(found.findings, "evaluation.tasks[1].name", named)


def test_the_cells_of_a_suite_are_the_runs_of_the_tasks(tmp_path: Path) -> None:
    own = {"config": {"params": {"temperature": 0.1}}}
    tasks = [
        {"name": "medec", "nemo_evaluator_config": own},
        {"name": "head_qa", "endpoint_type": "completions"},
        "medec",
    ]
    suite = build_suite(
        None, document=of(launcher(*tasks), tmp_path).document, env={"MODEL_URL": "http://h/v1"}
    )
    assert [cell.name for cell in suite.cells] == [
        "model/medec",
        "model-2/head_qa",
        "model/medec-2",
    ]
    for cell, task in zip(suite.cells, tasks, strict=True):
        alone = of(launcher(task), tmp_path).document
        assert cell.document["config"]["params"] == alone["config"]["params"]
        assert cell.document["target"]["api_endpoint"] == {
            **alone["target"]["api_endpoint"],
            "url": "http://h/v1",
        }


SLURM = {
    "type": "slurm",
    "hostname": "h",
    "account": "lab",
    "partition": "gpu",
    "walltime": "04:00:00",
    "gres": "gpu:a100:2",
    "num_nodes": 1,
    "sbatch_comment": "a b",
    "output_dir": "/shared/out",
    "sbatch_extra_flags": {
        "exclusive": True,
        "constraint": "h100",
        "mem": "64G",
        "nodes": 2,
        "switches": None,
    },
}
VLLM = {
    "type": "vllm",
    "image": "x:y",
    "hf_model_handle": "org/served",
    "served_model_name": "served",
    "tensor_parallel_size": 2,
    "extra_args": "--max-model-len ${max_len}",
    "env_vars": {"HF_TOKEN": "host:HF_TOKEN", "OTHER": "lit:1"},
    "endpoints": {"health": "/ready"},
}


@pytest.mark.parametrize(
    ("execution", "slurm"),
    [
        ({"walltime": 4320}, {"time": "4320"}),  # in minutes: three days
        ({"walltime": "4:00:00"}, {"time": "4:00:00"}),
        ({"sbatch_extra_flags": {"time-min": 5000}}, {"extra": ["--time-min=5000"]}),
        ({"sbatch_extra_flags": {"mem": 64000}}, {"mem": "64000"}),
        ({"sbatch_extra_flags": {"nice": 5000}}, {"extra": ["--nice=5000"]}),
        ({"sbatch_extra_flags": {"nice": 0}}, {"extra": ["--nice=0"]}),
        ({"sbatch_extra_flags": {"exclusive": False, "switches": None}}, None),
    ],
)
def test_numbers_of_sbatch_options_are_kept(
    execution: dict[str, Any], slurm: dict[str, Any] | None, tmp_path: Path
) -> None:
    found = of({**LAUNCHER, "execution": {"type": "slurm", **execution}}, tmp_path)
    assert found.document.get("slurm") == slurm


def test_a_time_without_quotes_is_no_number(tmp_path: Path) -> None:
    document = {**LAUNCHER, "execution": {"type": "slurm", "walltime": "4:00:00"}}
    text = yaml.safe_dump(document, sort_keys=False).replace("'4:00:00'", "4:00:00")
    assert of(text, tmp_path).document["slurm"] == {"time": "4:00:00"}


def test_an_execution_on_slurm_is_ours(tmp_path: Path) -> None:
    found = of({**LAUNCHER, "execution": SLURM}, tmp_path)
    assert found.document["executor"] == "slurm"
    assert found.document["slurm"] == {
        "account": "lab",
        "partition": "gpu",
        "time": "04:00:00",
        "gpus": "a100:2",
        "mem": "64G",
        "extra": ["--exclusive", "--constraint=h100", '--comment="a b"'],
    }
    told = [line.partition(":")[0] for line in found.findings]
    assert {"execution.hostname", "execution.sbatch_extra_flags.nodes"} <= set(told)
    assert "execution.num_nodes" not in told, "one node is what there is"
    assert (
        of({**LAUNCHER, "execution": {"walltime": 14400}}, tmp_path).document.get("slurm") is None
    )
    asked = {"walltime": "4:00:00", "account": "???"}
    found = of(
        {**LAUNCHER, "defaults": [{"execution": "slurm/default"}], "execution": asked}, tmp_path
    )
    assert found.document["slurm"] == {"time": "4:00:00", "account": "${ACCOUNT}"}
    assert any(line.startswith("execution.account: is not given") for line in found.findings)


def test_a_deployment_is_a_server_of_ours(tmp_path: Path) -> None:
    found = of({**LAUNCHER, "max_len": 4096, "execution": SLURM, "deployment": VLLM}, tmp_path)
    suite = found.document["suite"]
    (target,) = suite["targets"]
    assert (suite["executor"], suite["slurm"]["gpus"], suite["evaluations"]) == (
        "slurm",
        "a100:2",
        ["medec"],
    )
    assert target["api_endpoint"] == {"model_id": "org/model", "api_key": "NGC_API_KEY"}
    assert target["serve"] == {
        "command": "vllm serve org/served --port {port} --trust-remote-code --served-model-name served --max-model-len 4096",
        "machine_options": "--tensor-parallel-size 2",
        "health": "/ready",
        "env": ["HF_TOKEN"],
    }
    told = [line.partition(":")[0] for line in found.findings]
    assert {"deployment.image", "deployment.env_vars.OTHER"} <= set(told)
    assert build_suite(None, document=found.document, env={}).cells


@pytest.mark.parametrize(
    "execution", [{}, {"num_instances": 2, "num_nodes": 2}, {"num_instances": 1, "num_nodes": 2}]
)
def test_several_servers_are_replicas_and_one_over_several_nodes_is_told(
    execution: Any, tmp_path: Path
) -> None:
    found = of({**LAUNCHER, "execution": {**SLURM, **execution}, "deployment": VLLM}, tmp_path)
    (target,) = found.document["suite"]["targets"]
    told = [line.partition(":")[0] for line in found.findings]
    assert ("execution.num_nodes" in told) is (execution.get("num_instances") == 1)
    several = execution.get("num_instances") == 2
    assert target["serve"].get("replicas") == (2 if several else None)
    assert ("execution.num_instances" in told) is several


def test_an_endpoint_for_pictures_is_one_of_chats_and_another_is_told(tmp_path: Path) -> None:
    tasks = [
        {"name": "medec", "endpoint_type": "vlm"},
        {"name": "pubmed_qa", "endpoint_type": "chat"},
    ]
    found = of({**LAUNCHER, "evaluation": {"tasks": tasks}}, tmp_path)
    (target,) = found.document["suite"]["targets"]
    assert target["api_endpoint"].get("type") in (None, "chat")
    other = of(
        {**LAUNCHER, "evaluation": {"tasks": [{"name": "medec", "endpoint_type": "embedding"}]}},
        tmp_path,
    )
    says("\n".join(other.findings), "answer with text", "give chat")


def test_a_command_of_ones_own_is_served_and_a_script_or_an_unknown_server_is_told(
    tmp_path: Path,
) -> None:
    own = {
        "image": "x",
        "command": "serve /m --port ${deployment.port}\n",
        "served_model_name": "org/own",
    }
    found = of({**LAUNCHER, "deployment": own, "target": {}, "defaults": []}, tmp_path)
    (target,) = found.document["suite"]["targets"]
    assert (target["serve"], target["api_endpoint"]) == (
        {"command": "serve /m --port {port}"},
        {"model_id": "org/own"},
    )
    for other in (
        {**own, "command": "set -e\nserve"},
        {"type": "nim", "served_model_name": "org/own"},
    ):
        found = of({**LAUNCHER, "target": {}, "deployment": other, "defaults": []}, tmp_path)
        assert found.document["target"]["api_endpoint"] == {"model_id": "org/own"}
        assert any(line.startswith("deployment (") for line in found.findings)


def test_the_judges_variables_are_named_as_the_users_are(tmp_path: Path) -> None:
    variables = {
        "GPT_JUDGE_API_KEY": "host:JUDGES_KEY",
        "CLAUDE_JUDGE_API_KEY": "host:CLAUDE_JUDGE_API_KEY",
    }
    found = of(launcher({"name": "aci_bench"}, env_vars=variables), tmp_path)
    assert found.document["config"]["params"]["extra"] == {"gpt_judge_api_key": "JUDGES_KEY"}
    assert [line.partition(": ")[0] for line in found.findings if "env_vars" in line] == [
        "evaluation.env_vars.CLAUDE_JUDGE_API_KEY"
    ]
    none = of(launcher({"name": "medec"}, env_vars=variables), tmp_path)
    assert "extra" not in none.document["config"].get("params", {})
    said = {"config": {"params": {"extra": {"gpt_judge_api_key": "SAID_KEY"}}}}
    kept = of(
        launcher({"name": "aci_bench", "nemo_evaluator_config": said}, env_vars=variables), tmp_path
    )
    assert kept.document["config"]["params"]["extra"] == {"gpt_judge_api_key": "SAID_KEY"}


def test_the_folder_of_a_data_set_is_the_tasks_data_where_it_reads_one(tmp_path: Path) -> None:
    said = {"config": {"params": {"extra": {"subject": "guo_readmission"}}}}
    entry = {"name": "ehrshot", "dataset_dir": "/my/data", "nemo_evaluator_config": said}
    found = of(launcher(entry), tmp_path)
    assert found.document["config"]["params"]["extra"] == {
        "subject": "guo_readmission",
        "data_path": "/my/data",
    }
    other = of(launcher({"name": "medec", "dataset_dir": "/my/data"}), tmp_path)
    says("\n".join(other.findings), "evaluation.tasks[0].dataset_dir", "leave it out")


def test_a_finding_is_told_once_for_all_tasks(tmp_path: Path) -> None:
    adapter = {"target": {"api_endpoint": {"adapter_config": {"use_caching": True}}}}
    found = of(
        launcher({"name": "medec"}, {"name": "head_qa"}, nemo_evaluator_config=adapter), tmp_path
    )
    told = list(found.findings)
    assert len(told) == len(set(told))
    assert sum("use_caching" in line for line in told) == 1
    assert sum(line.startswith("config.params.max_new_tokens: is not given") for line in told) == 1


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"target": {}},
            "foreign.yml: config.type: names no task; 'eval-factory ls' lists the tasks",
        ),
        (
            {"config": {"type": "medecc"}},
            "foreign.yml: config.type: eval-factory has no task 'medecc', did you mean 'medec'?",
        ),
        (launcher({"name": "mmlu"}), "foreign.yml: names no task that eval-factory has\n"),
        (launcher({"name": "mmlu"}), "evaluation.tasks[0].name: eval-factory has no task 'mmlu'"),
        ("a: 1", "foreign.yml: is not a configuration in a known form; known forms: "),
        ("[", "foreign.yml: line 1, column 2"),
        ("", "foreign.yml: is empty; it needs known forms: "),
    ],
)
def test_what_cannot_be_translated_is_refused(document: Any, said: str, tmp_path: Path) -> None:
    assert said in refused(document, tmp_path)


@pytest.mark.parametrize(
    "document",
    [
        {**LAUNCHER, "env_vars": {"HF_TOKEN": f"lit:{KEY}"}},
        {"config": {"type": "medec"}, "target": {"api_endpoint": {**ENDPOINT, "api_key": KEY}}},
        {"nothing_known": KEY},
    ],
)
def test_a_key_that_is_written_out_is_refused_and_never_shown(
    document: Any, tmp_path: Path
) -> None:
    found = refused(document, tmp_path)
    says(found, "looks like a key", "not shown", "no file was written")
    assert KEY[6:16] not in found
