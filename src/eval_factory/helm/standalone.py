"""Endpoints without a run config: for helm-run with entries of one's own, everything else by framework.yml."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.config.model import DEMO_URLS
from eval_factory.core.results import MODEL_ROLE
from eval_factory.helm import names
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.tasks.framework import Framework


def endpoint_by_hand(
    framework: Framework,
    role: str,
    *,
    url: str,
    model_id: str,
    key_names: tuple[str, ...],
    type: str | None = None,  # noqa: A002 - the field's name
    parallelism: int | None = None,
    alias: str | None = None,
    helm_name: str | None = None,
) -> EndpointPlan:
    """What is not given is the framework's default; the embedded endpoint needs no key."""
    params = framework.defaults.config["params"]
    target = framework.defaults.target["api_endpoint"]
    return EndpointPlan(
        role=role,
        url=url,
        model_id=model_id,
        type=type or target["type"],
        key_names=() if url in DEMO_URLS else key_names,
        request_timeout=params["request_timeout"],
        max_retries=params["max_retries"],
        parallelism=parallelism or params["parallelism"],
        adapter={name: value for name, value in target["adapter_config"].items() if name != "use_nvcf"},
        alias=alias,
        helm_name=helm_name,
    )


def model_by_hand(
    framework: Framework,
    *,
    url: str,
    model_id: str,
    key_name: str | None = None,
    type: str | None = None,  # noqa: A002 - the field's name
    parallelism: int | None = None,
    alias: str | None = None,
    helm_name: str | None = None,
) -> EndpointPlan:
    """The model that is evaluated; its key is in `key_name`, or in the framework's default variable."""
    return endpoint_by_hand(
        framework,
        MODEL_ROLE,
        url=url,
        model_id=model_id,
        key_names=(key_name or framework.defaults.target["api_endpoint"]["api_key"],),
        type=type,
        parallelism=parallelism,
        alias=alias,
        helm_name=helm_name,
    )


def helms_own_judges(
    framework: Framework,
    model: EndpointPlan,
    deployments: Mapping[str, str] = names.DEFAULT_JURY,
    *,
    parallelism: int | None = None,
) -> list[EndpointPlan]:
    """The default judges at the model's URL, under the names that HELM asks them by (role -> name).

    Entries that name no jury are judged by HELM's own; a judge's key is in its own variable, or else the model's.
    """
    variables = framework.defaults.config["params"]["extra"]
    judges = []
    for role, name in deployments.items():
        judge = framework.judges[role]
        judges.append(
            endpoint_by_hand(
                framework,
                role,
                url=model.url,
                model_id=judge.model_id,
                key_names=(variables[judge.api_key], *model.key_names),
                parallelism=parallelism,
                alias=model.alias,
                helm_name=name,
            )
        )
    return judges
