"""Which environment variable's key serves which endpoint, and the log lines that say so."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.config.merge import Source
from eval_factory.errors import PrerequisiteError
from eval_factory.plan import EndpointPlan, Plan
from eval_factory.results import MODEL_ROLE
from eval_factory.secrets import Secret

API_KEY_PATH = "target.api_endpoint.api_key"
_JUDGE_NAMES = {"gpt": "GPT"}


def key_report(plan: Plan, env: Mapping[str, str]) -> list[str]:
    """The lines to log about keys; never a key.

    Raises:
        PrerequisiteError: a variable that the configuration names is not set.
    """
    lines: list[str] = []
    missing: list[str] = []
    for endpoint in plan.endpoints:
        if not endpoint.key_names:
            continue
        found = next((name for name in endpoint.key_names if env.get(name)), None)
        first = endpoint.key_names[0]
        if found is None:
            if endpoint.role == MODEL_ROLE and plan.evaluation.sources.get(API_KEY_PATH) is Source.FRAMEWORK:
                lines.append(f"{first} is not set: asking {endpoint.url} without a key")
            else:
                missing.append(first)
            continue
        if found != first:
            lines.append(f"{first} is not set, setting to {found}")
        elif endpoint.role != MODEL_ROLE:
            lines.append(_judge_line(endpoint))
        lines.append(f"Using API key {found} for {endpoint.role}, ends with {Secret(env[found]).ending()}")
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise PrerequisiteError(
            f"no API key: the environment variable {names} is not set\n"
            f"  set it (export {missing[0]}=...) or name another one with --api_key_name"
        )
    return lines


def _judge_line(endpoint: EndpointPlan) -> str:
    name = _JUDGE_NAMES.get(endpoint.role, endpoint.role.capitalize())
    return f"Using {name} judge API key from environment variable for model: {endpoint.model_id}"
