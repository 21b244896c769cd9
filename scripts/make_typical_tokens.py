#!/usr/bin/env python3
"""Writes src/eval_factory/tasks/typical_tokens.yml: the size of one request of each public task.

If a task's data are on this machine (as for scripts/validity_table.py: --scenarios, HF_HOME), the
requests that HELM makes are measured. Else the size is computed from the lengths of texts in
scripts/typical_lengths.yml and from HELM's run spec. A task without data and without lengths keeps
its earlier entry. `--data-of healthbench=FILE` names the data of a benchmark that reads
`data_path`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts.validity.bare_helm import environment  # noqa: E402
from scripts.validity.our_runs import place, why_not  # noqa: E402

from eval_factory.config.evaluation import RunRequest, build_evaluation  # noqa: E402
from eval_factory.plan.run_plan import make_plan  # noqa: E402
from eval_factory.tasks.framework import Task, load_framework  # noqa: E402
from eval_factory.tasks.typical_tokens import FILE, TypicalRequest, typical_requests  # noqa: E402
from eval_factory.workflows.measured_prompts import prompt_sizes  # noqa: E402

LENGTHS = ROOT / "scripts" / "typical_lengths.yml"
HEAD = """\
# What one request of each public task takes: scripts/make_typical_tokens.py writes it.
"""
OPTION_BYTES = 4  # the bytes of `A. ` and of the end of the line, for each option
FRAME_BYTES = 20  # the bytes of `Question: `, `Answer:` and the ends of these lines


def measured(
    task: Task, scenarios: Path | None, data_path: str | None, env: Mapping[str, str]
) -> TypicalRequest | None:
    """Measure the requests that HELM makes from the data; return None if this is not possible.

    Args:
        task: the task.
        scenarios: the folder with the data of scenarios; None if there is none.
        data_path: the user's file or folder; None if the task reads published data.
        env: the environment variables.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place(scenarios, task, folder / "helm" / "scenarios")
        flags = {
            "config.type": task.name,
            "config.output_dir": name,
            "target.api_endpoint.url": "http://127.0.0.1:9/v1",
            "target.api_endpoint.model_id": "none",
            "target.api_endpoint.api_key": "NO_KEY",
        }
        if data_path is not None:
            flags["config.params.extra.data_path"] = data_path
        evaluation = build_evaluation(RunRequest(flags=flags), load_framework(), env)
        sizes = prompt_sizes(make_plan(evaluation), env)
    if not sizes.requests:
        print(f"{task.name}: {sizes.reason}", file=sys.stderr)
        return None
    count = sizes.requests
    return TypicalRequest(
        prompt_bytes=round(sizes.prompt_bytes / count),
        answer_tokens=round(sizes.most_tokens / count),
        source=f"measured on {count:,} requests",
        judge_requests=round(sizes.judge_requests / count, 1),
        media_tokens=round((sizes.media_tokens or 0) / count),
    )


def composed(task: Task, lengths: Mapping[str, Any]) -> TypicalRequest:
    """Compute the size of a request from the published lengths of texts and from HELM's run spec.

    `lengths` is the task's entry in scripts/typical_lengths.yml.
    """
    answer_tokens = lengths.get("answer_tokens")
    instructions = lengths.get("instruction_bytes", 0)
    examples = 0
    if answer_tokens is None:  # The run spec states the rest of the request.
        adapter = run_spec_of(task).adapter_spec
        answer_tokens = adapter.max_tokens
        instructions = len(adapter.instructions.encode())
        examples = adapter.max_train_instances
    question = lengths["text_bytes"] + lengths["options"] * OPTION_BYTES + FRAME_BYTES
    return TypicalRequest(
        prompt_bytes=instructions + question * (1 + examples),
        answer_tokens=answer_tokens,
        source=f"made of {lengths['source']}",
        media_tokens=lengths.get("media_tokens", 0),
    )


def run_spec_of(task: Task) -> Any:
    """Return HELM's run spec of a task, made without arguments."""
    from helm.benchmark.run_spec import discover_run_spec_functions, get_run_spec_function

    import eval_factory.helm_plugin.choice_scenario  # noqa: F401 - registers its run specs

    discover_run_spec_functions()
    return get_run_spec_function(task.helm.run_spec)()


def without_zeros(typical: TypicalRequest) -> dict[str, Any]:
    """Return the fields of an entry, without fields that are 0 or empty."""
    return {name: value for name, value in asdict(typical).items() if value}


@click.command()
@click.option("--scenarios", type=click.Path(path_type=Path), help="Folder of scenarios' data.")
@click.option("--task", "names", multiple=True, help="This task alone; may be repeated.")
@click.option("--data-of", multiple=True, help="TASK=FILE, for `data_path`.")
def main(scenarios: Path | None, names: tuple[str, ...], data_of: tuple[str, ...]) -> None:
    logging.disable(logging.CRITICAL)
    files = dict(item.split("=", 1) for item in data_of)
    lengths = yaml.safe_load(LENGTHS.read_text("utf-8"))
    entries: dict[str, Any] = {}
    if FILE.is_file():
        for name, typical_request in typical_requests().items():
            entries[name] = without_zeros(typical_request)
    for task in load_framework().evaluations:
        if task.about.access != "public" or (names and task.name not in names):
            continue
        data_path = files.get(task.name)
        typical = None
        if data_path is not None or why_not(task, scenarios, environment()) is None:
            typical = measured(task, scenarios, data_path, environment())
        if typical is None and task.name in lengths:
            typical = composed(task, lengths[task.name])
        if typical is not None:
            entries[task.name] = without_zeros(typical)
    lines = [HEAD]
    for name in sorted(entries):
        flow = yaml.safe_dump(entries[name], default_flow_style=True, sort_keys=False, width=1000)
        lines.append(f"{name}: {flow}")
    FILE.write_text("".join(lines), "utf-8")
    print(f"{len(entries)} tasks in {FILE}")


if __name__ == "__main__":
    main()
