"""Which program a configuration is of, told by its sections."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_factory.config.model import Extra
from eval_factory.core.errors import ConfigError


class Form(str, enum.Enum):
    """What can be translated."""

    LAUNCHER = "nemo-evaluator-launcher"
    RUN_CONFIG = "EvalFactory"


_LAUNCHER = frozenset({"evaluation", "execution", "deployment"})
_RUN_CONFIG = frozenset({"config", "target"})
_SERVICES = frozenset({"services", "benchmarks"})
_DEFINITION = frozenset({"framework", "evaluations"})

THEIR_EXTRA = frozenset(
    {
        "data_path", "num_output_tokens", "max_length", "subject", "condition", "subset", "num_train_trials",
        "gpt_judge_api_key", "llama_judge_api_key", "claude_judge_api_key", "language", "category", "version",
    }
)  # fmt: skip
"""Keys of config.params.extra that are EvalFactory's too, or that another harness may have under the same name."""
_OUR_ENDPOINT = ("oauth", "requests_per_minute", "tokens_per_minute")

KNOWN = (
    "known forms: a config of nemo-evaluator-launcher (evaluation:, target:), a run config of EvalFactory or of"
    " 'nemo-evaluator run_eval' (config:, target:)"
)


def form_of(document: Mapping[str, Any], path: Path) -> Form:
    """The form of a configuration.

    Raises:
        ConfigError: it is none of them, it is ours, or it is of a kind that says something else.
    """
    sections = set(document)
    if "suite" in sections:
        raise ConfigError(f"{path}: is a suite of eval-factory already: eval-factory run_suite --run_config {path}")
    if sections >= _SERVICES:
        raise ConfigError(
            f"{path}: is a config of 'nel eval run' (services:, benchmarks:), which NeMo Evaluator has since 0.3;"
            f" it is not translated: write a run config with the URL and the model of its service; {KNOWN}"
        )
    if sections >= _DEFINITION:
        raise ConfigError(
            f"{path}: defines the tasks of a harness (framework.yml) and says nothing of a run; 'eval-factory ls' lists"
            f" the tasks that there are here; {KNOWN}"
        )
    if sections & _LAUNCHER:
        return Form.LAUNCHER
    if not sections & _RUN_CONFIG:
        raise ConfigError(f"{path}: is no configuration that is known; {KNOWN}")
    ours = our_key(document)
    if ours is not None:
        raise ConfigError(
            f"{path}: is a run config of eval-factory already ({ours} is a key of its own): eval-factory run_eval"
            f" --run_config {path}"
        )
    return Form.RUN_CONFIG


def our_key(document: Mapping[str, Any]) -> str | None:
    """A key that no configuration of EvalFactory has."""
    places = {
        "config.params.extra": sorted(set(Extra.model_fields) - THEIR_EXTRA),
        "target.api_endpoint": _OUR_ENDPOINT,
    }
    for place, names in places.items():
        section: Any = document
        for name in place.split("."):
            section = section.get(name) if isinstance(section, Mapping) else None
        for name in names:
            if isinstance(section, Mapping) and name in section:
                return f"{place}.{name}"
    return None
