#!/usr/bin/env python3
"""Writes HELM's model files for one endpoint, for users who call helm-run themselves.

The files are those that `eval-factory run_eval` generates. They contain no key: helm-run reads the
key from OPENAI_API_KEY when it sends a request.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

try:
    import click

    from eval_factory.config.value_types import DEMO_URLS
    from eval_factory.core.enums import MODEL_ROLE
    from eval_factory.core.safe_files import write_atomic
    from eval_factory.endpoint.openai_api import Adapter
    from eval_factory.helm import names
    from eval_factory.helm.command import deployment_of, model_deployments, model_metadata
    from eval_factory.plan.run_plan import EndpointPlan
    from eval_factory.tasks.framework import Framework, load_framework
except ModuleNotFoundError as error:
    sys.stderr.write(
        f"{Path(__file__).name}: {error.name} is not installed for {sys.executable}\n"
        "  run it with the Python of the environment that has eval-factory, "
        "such as .venv/bin/python\n"
    )
    sys.exit(3)


def standalone_model(
    framework: Framework, *, url: str, model_id: str, alias: str | None = None
) -> EndpointPlan:
    """Return the endpoint of the evaluated model, with the framework's defaults for all else.

    The built-in demo endpoint gets no key.
    """
    params = framework.defaults.config["params"]
    target = framework.defaults.target["api_endpoint"]
    adapter = {
        name: value for name, value in target["adapter_config"].items() if name != "use_nvcf"
    }
    return EndpointPlan(
        role=MODEL_ROLE,
        url=url,
        model_id=model_id,
        endpoint_type=target["type"],
        key_names=() if url in DEMO_URLS else (target["api_key"],),
        request_timeout=params["request_timeout"],
        max_retries=params["max_retries"],
        parallelism=params["parallelism"],
        adapter=Adapter(**adapter),
        alias=alias,
    )


def standalone_judges(
    framework: Framework, model: EndpointPlan, deployments: Mapping[str, str] = names.DEFAULT_JURY
) -> list[EndpointPlan]:
    """Return the endpoints of the default judges, at the URL of the model.

    They have the names of HELM's own default jury. A run entry that names no jury is therefore
    judged by these endpoints. A judge's key is read from the judge's own variable, or else from the
    model's variable.

    Args:
        framework: the framework, with the default judges.
        model: the endpoint of the evaluated model.
        deployments: a dict from each judge's role to HELM's name of the judge's deployment.
    """
    variables = framework.defaults.config["params"]["extra"]  # the names of the keys' variables
    judges = []
    for role, name in deployments.items():
        judge = framework.judges[role]
        keys = () if model.url in DEMO_URLS else (variables[judge.api_key], *model.key_names)
        judges.append(
            replace(model, role=role, model_id=judge.model_id, key_names=keys, helm_name=name)
        )
    return judges


@click.command()
@click.option("--model-name", required=True, help="Name of the model; HELM's name is made of it.")
@click.option("--base-url", required=True, help="The endpoint's base URL.")
@click.option(
    "--openai-model-name",
    default=None,
    help="The model's id at the endpoint; --model-name if not given.",
)
@click.option(
    "--output-dir", required=True, type=click.Path(path_type=Path), help="Folder for the files."
)
@click.option(
    "--helm-names",
    is_flag=True,
    help="Name the model as given (openai/gpt-4), and the three judges as HELM's own jury; "
    "their keys are read from"
    " GPT_JUDGE_API_KEY, LLAMA_JUDGE_API_KEY and CLAUDE_JUDGE_API_KEY, then from OPENAI_API_KEY.",
)
def main(
    model_name: str,
    base_url: str,
    openai_model_name: str | None,
    output_dir: Path,
    *,
    helm_names: bool,
) -> None:
    """Write model_deployments.yaml and model_metadata.yaml."""
    framework = load_framework()
    if helm_names and model_name.count("/") != 1:
        raise click.UsageError("HELM's names are organization/model; --model-name has another form")

    model = standalone_model(
        framework, url=base_url, model_id=openai_model_name or model_name, alias=model_name
    )
    if helm_names:
        model = replace(model, helm_name=model_name)
    endpoints = [model, *(standalone_judges(framework, model) if helm_names else [])]
    folder = output_dir.absolute()
    deployments = model_deployments(tuple(endpoints), cache_db=str(folder.parent / "cache.db"))
    write_atomic(folder / names.MODEL_DEPLOYMENTS_FILE, deployments)
    write_atomic(folder / names.MODEL_METADATA_FILE, model_metadata(tuple(endpoints)))
    click.echo(f"wrote {folder / names.MODEL_DEPLOYMENTS_FILE} and {names.MODEL_METADATA_FILE}")
    click.echo(
        f"helm-run --local-path {folder} --run-entries TASK:model={deployment_of(endpoints[0])} ..."
    )


if __name__ == "__main__":
    main()
