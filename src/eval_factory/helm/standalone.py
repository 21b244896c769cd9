"""Endpoints without a run config: for those who call helm-run themselves; everything else is by framework.yml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eval_factory.config.model import DEMO_URLS
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.endpoint.openai_api import Adapter
from eval_factory.helm import names
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.tasks.framework import Framework


def standalone_model(
    framework: Framework, *, url: str, model_id: str, key_name: str | None = None, alias: str | None = None
) -> EndpointPlan:
    """The model that is evaluated; its key is in `key_name`, or in the framework's default variable.

    What is not an argument is the framework's default; the embedded endpoint needs no key.
    """
    params = framework.defaults.config["params"]
    target = framework.defaults.target["api_endpoint"]
    adapter = {name: value for name, value in target["adapter_config"].items() if name != "use_nvcf"}
    return EndpointPlan(
        role=MODEL_ROLE,
        url=url,
        model_id=model_id,
        endpoint_type=target["type"],
        key_names=() if url in DEMO_URLS else (key_name or target["api_key"],),
        request_timeout=params["request_timeout"],
        max_retries=params["max_retries"],
        parallelism=params["parallelism"],
        adapter=Adapter(**adapter),
        alias=alias,
    )


def standalone_judges(
    framework: Framework, model: EndpointPlan, deployments: Mapping[str, str] = names.DEFAULT_JURY
) -> list[EndpointPlan]:
    """The default judges at the model's URL, under the names that HELM asks them by (role -> name).

    Entries that name no jury are judged by HELM's own; a judge's key is in its own variable, or else the model's.
    """
    variables = framework.defaults.config["params"]["extra"]
    judges = []
    for role, name in deployments.items():
        judge = framework.judges[role]
        keys = () if model.url in DEMO_URLS else (variables[judge.api_key], *model.key_names)
        judges.append(replace(model, role=role, model_id=judge.model_id, key_names=keys, helm_name=name))
    return judges
