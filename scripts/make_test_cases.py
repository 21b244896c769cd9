#!/usr/bin/env python3
"""Writes a run config for each task of framework.yml into test_cases/.

A test checks that the run configs are up to date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from eval_factory.tasks.framework import Framework, ScenarioParameter, Task, load_framework

FOLDER = Path(__file__).resolve().parents[1] / "test_cases"
MODELINE = "# yaml-language-server: $schema=../docs/schemas/run_config.schema.json"
"""The line by which an editor finds the schema with which it completes and checks a run config."""
PREFIX = "test_case_nim_llama_3_1_8b_"
INSTANCES = 10
ENDPOINT = {
    "url": "https://integrate.api.nvidia.com/v1",
    "model_id": "nvdev/meta/llama-3.1-8b-instruct",
    "type": "chat",
    "api_key": "OPENAI_API_KEY",
}
CHOSEN = {
    ("clear", "condition"): "alcohol_dependence",
    ("ehrshot", "subject"): "guo_readmission",
    ("med_dialog", "subset"): "icliniq",
    ("mmlu_clinical_afr", "language"): "zu",
    ("mmlu_clinical_afr", "subject"): "virology",
    ("n2c2_ct_matching", "subject"): "ABDOMINAL",
}
"""A dict from (task, parameter) to a value, for parameters whose value the user has to choose."""
PATHS = {
    "dischargeme": "data/physionet.org",
    "mimic_bhc": "data/mimic_bhc.jsonl",
    "mimiciv_billing_code": "data/mimiciv_icd10.feather",
    "n2c2_ct_matching": "data/n2c2",
}
"""A dict from a task to the path of the user's own file or folder, if the path is not `data/TASK`
or `data/TASK.csv`.
"""
CUSTOM_PARAMS = {"parallelism": 4, "extra": {"benchmark": "custom_benchmark/benchmark.yaml"}}
"""The parameters of the task `custom`. All its instances are asked, because its table, which is in
test_cases/, is small. It has no judges, because its metrics need no jury.
"""


def run_configs(framework: Framework) -> dict[str, str]:
    """Return the text of each run config, by the name of its file."""
    return {f"{PREFIX}{task.name}.yml": _text(framework, task) for task in framework.evaluations}


def _text(framework: Framework, task: Task) -> str:
    params = CUSTOM_PARAMS if task.name == "custom" else _params(framework, task)
    document = {
        "config": {
            "type": task.name,
            "output_dir": f"{FOLDER.name}/{PREFIX}{task.name}",
            "params": params,
        },
        "target": {"api_endpoint": ENDPOINT},
    }
    return f"{MODELINE}\n{yaml.safe_dump(document, sort_keys=False)}"


def _params(framework: Framework, task: Task) -> dict[str, Any]:
    rules = task.helm.parameters
    chosen = {name: value for name in rules if (value := CHOSEN.get((task.name, name)))}
    paths = {name: _path(task, rule) for name, rule in rules.items() if rule.path and rule.required}
    keys = [framework.judges[judge].api_key for judge in task.helm.judges]
    variables = {key: key.upper() for key in keys}  # setting -> the variable that holds the key
    extra = {**chosen, **paths, **variables}
    params: dict[str, Any] = {"limit_samples": INSTANCES, "parallelism": 4}
    if extra:
        params["extra"] = extra
    return params


def _path(task: Task, rule: ScenarioParameter) -> str:
    """Return a path for the user's own data of a task."""
    is_file = any(entry.file is None for entry in rule.layout)
    return PATHS.get(task.name, f"data/{task.name}{'.csv' if is_file else ''}")


def main() -> None:
    """Write all files, and delete the files of tasks that no longer exist."""
    texts = run_configs(load_framework())
    for file in FOLDER.glob(f"{PREFIX}*.yml"):
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
