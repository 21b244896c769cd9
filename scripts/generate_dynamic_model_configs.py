#!/usr/bin/env python3
"""Writes HELM's model files for one endpoint, for those who call helm-run themselves.

The same text that `eval-factory run_eval` generates. The key is read from OPENAI_API_KEY when helm-run asks.
"""

from __future__ import annotations

from pathlib import Path

import click

from eval_factory.config.framework import load_framework
from eval_factory.helm import names
from eval_factory.helm.model_files import deployment_of, model_deployments, model_metadata
from eval_factory.plan import EndpointPlan
from eval_factory.results import MODEL_ROLE
from eval_factory.rundir import write_atomic


@click.command()
@click.option("--model-name", required=True, help="Name of the model; HELM's name is made of it.")
@click.option("--base-url", required=True, help="The endpoint's base URL.")
@click.option("--openai-model-name", default=None, help="The model's id at the endpoint; --model-name if not given.")
@click.option("--output-dir", required=True, type=click.Path(path_type=Path), help="Folder for the files.")
def main(model_name: str, base_url: str, openai_model_name: str | None, output_dir: Path) -> None:
    """Write model_deployments.yaml and model_metadata.yaml."""
    defaults = load_framework().defaults
    params = defaults.config["params"]
    adapter = {k: v for k, v in defaults.target["api_endpoint"]["adapter_config"].items() if k != "use_nvcf"}
    endpoint = EndpointPlan(
        role=MODEL_ROLE,
        url=base_url,
        model_id=openai_model_name or model_name,
        type=defaults.target["api_endpoint"]["type"],
        key_names=(defaults.target["api_endpoint"]["api_key"],),
        request_timeout=params["request_timeout"],
        max_retries=params["max_retries"],
        parallelism=params["parallelism"],
        adapter=adapter,
        alias=model_name,
    )
    folder = output_dir.absolute()
    deployments = model_deployments((endpoint,), cache_db=str(folder.parent / "cache.db"))
    write_atomic(folder / names.MODEL_DEPLOYMENTS, deployments)
    write_atomic(folder / names.MODEL_METADATA, model_metadata((endpoint,)))
    click.echo(f"wrote {folder / names.MODEL_DEPLOYMENTS} and {names.MODEL_METADATA}")
    click.echo(f"helm-run --local-path {folder} --run-entries TASK:model={deployment_of(endpoint)} ...")


if __name__ == "__main__":
    main()
