#!/usr/bin/env python3
"""Writes HELM's model files for one endpoint, for those who call helm-run themselves.

The same text that `eval-factory run_eval` generates. The key is read from OPENAI_API_KEY when helm-run asks.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

try:
    import click

    from eval_factory.core.safe_files import write_atomic
    from eval_factory.helm import names
    from eval_factory.helm.model_files import deployment_of, model_deployments, model_metadata
    from eval_factory.helm.standalone import standalone_judges, standalone_model
    from eval_factory.tasks.framework import load_framework
except ModuleNotFoundError as error:
    sys.stderr.write(
        f"{Path(__file__).name}: {error.name} is not installed for {sys.executable}\n"
        "  run it with the Python of the environment that has eval-factory, such as .venv/bin/python\n"
    )
    sys.exit(3)


@click.command()
@click.option("--model-name", required=True, help="Name of the model; HELM's name is made of it.")
@click.option("--base-url", required=True, help="The endpoint's base URL.")
@click.option("--openai-model-name", default=None, help="The model's id at the endpoint; --model-name if not given.")
@click.option("--output-dir", required=True, type=click.Path(path_type=Path), help="Folder for the files.")
@click.option(
    "--helm-names",
    is_flag=True,
    help="Name the model as given (openai/gpt-4), and the three judges as HELM's own jury; their keys are read from"
    " GPT_JUDGE_API_KEY, LLAMA_JUDGE_API_KEY and CLAUDE_JUDGE_API_KEY, then from OPENAI_API_KEY.",
)
def main(model_name: str, base_url: str, openai_model_name: str | None, output_dir: Path, *, helm_names: bool) -> None:
    """Write model_deployments.yaml and model_metadata.yaml."""
    framework = load_framework()
    if helm_names and model_name.count("/") != 1:
        raise click.UsageError("HELM's names are organization/model; --model-name has another form")

    model = standalone_model(framework, url=base_url, model_id=openai_model_name or model_name, alias=model_name)
    if helm_names:
        model = replace(model, helm_name=model_name)
    endpoints = [model, *(standalone_judges(framework, model) if helm_names else [])]
    folder = output_dir.absolute()
    deployments = model_deployments(tuple(endpoints), cache_db=str(folder.parent / "cache.db"))
    write_atomic(folder / names.MODEL_DEPLOYMENTS, deployments)
    write_atomic(folder / names.MODEL_METADATA, model_metadata(tuple(endpoints)))
    click.echo(f"wrote {folder / names.MODEL_DEPLOYMENTS} and {names.MODEL_METADATA}")
    click.echo(f"helm-run --local-path {folder} --run-entries TASK:model={deployment_of(endpoints[0])} ...")
    click.echo(f"  (benchmarks with a jury: --plugins {names.PLUGIN_MODULE}, unless torch is installed)")


if __name__ == "__main__":
    main()
