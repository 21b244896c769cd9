"""Keys that configurations of EvalFactory and NeMo Evaluator hold, and that mean nothing here, or one thing only.

What changes no result is accepted, and said once. What would change one, were it followed, is a mistake: a score of
other requests than the configuration speaks of is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eval_factory.config.merge import Layer
from eval_factory.tasks.framework import Framework, Task

ADAPTER = "target.api_endpoint.adapter_config"
_USE_PROMPT, _PROMPT = f"{ADAPTER}.use_system_prompt", "custom_system_prompt"

NO_EFFECT: Mapping[str, tuple[str, ...]] = {
    "": ("pkg_name", "answers_kept_by"),
    "config": ("supported_endpoint_types", "required_capabilities"),
    "target.api_endpoint": ("stream",),
    ADAPTER: (
        "use_caching", "caching_dir", "reuse_cached_responses", "save_requests", "save_responses", "max_saved_requests",
        "max_saved_responses", "local_cache_path",
        "use_request_logging", "use_response_logging", "max_logged_requests", "max_logged_responses",
        "log_failed_requests", "use_omni_info", "tracking_requests_stats", "logging_aggregated_stats_interval",
        "use_progress_tracking", "progress_tracking_url", "progress_tracking_interval", "use_raise_client_errors",
        "generate_html_report", "html_report_size", "include_json", "track_reasoning", "output_dir", "endpoint_type",
        "mode", "discovery", "post_eval_hooks",
    ),
}  # fmt: skip
"""Section -> keys that say how requests are kept, counted and reported: here that is always done the same way."""

_NEVER_SCORED = "the text between start_reasoning_token and end_reasoning_token is never scored here"
_CUT_OFF = "reasoning that was cut off is never scored here"
_OPENAI_ONLY = "requests and answers have the form of OpenAI's API here"
ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    f"{ADAPTER}.use_reasoning": ((True,), _NEVER_SCORED),
    f"{ADAPTER}.process_reasoning_traces": ((True,), _NEVER_SCORED),
    f"{ADAPTER}.include_if_reasoning_not_finished": ((False,), _CUT_OFF),
    f"{ADAPTER}.use_megatron": ((False,), _OPENAI_ONLY),
    f"{ADAPTER}.megatron_tokenizer": ((), _OPENAI_ONLY),
    f"{ADAPTER}.megatron_template_kwargs": ((), _OPENAI_ONLY),
    f"{ADAPTER}.custom_api_format": (("",), _OPENAI_ONLY),
    _USE_PROMPT: ((True, False), "must be true or false"),
}
"""Keys whose values, all but these, would ask for something else than is done, and what is done."""

_OURS_INSTEAD = {
    "system_message": "custom_system_prompt",
    "payload_modifier": "params_to_add, params_to_remove and params_to_rename",
    "reasoning": "start_reasoning_token and end_reasoning_token",
    "nvcf": "use_nvcf",
}
HARMLESS_INTERCEPTORS = frozenset(
    {
        "caching", "endpoint", "request_logging", "response_logging", "response_stats", "progress_tracking",
        "raise_client_errors", "omni_info",
    }
)  # fmt: skip
_INTERCEPTORS, _TASK = f"{ADAPTER}.interceptors", "config.params.task"
_COMMAND, _FRAMEWORK = "command", "framework_name"
_OTHERS = (_INTERCEPTORS, _TASK, _COMMAND, _FRAMEWORK)

_PATHS = (*(f"{place}.{key}".lstrip(".") for place, keys in NO_EFFECT.items() for key in keys), *ONLY, *_OTHERS)
Foreign = dict[str, Any]
"""Dotted path of such a key -> what the configuration says of it."""


def known_in(section: str) -> list[str]:
    """The names of such keys in a section."""
    return [path.rpartition(".")[2] for path in _PATHS if path.rpartition(".")[0] == section]


def take_keys(layers: Sequence[Layer]) -> Foreign:
    """Remove these keys from the layers; what the last of them says holds, and a null takes it back."""
    found: Foreign = {}
    for _, tree in layers:
        for path in _PATHS:
            *parents, name = path.split(".")
            section: Any = tree
            for parent in parents:
                section = section.get(parent) if isinstance(section, dict) else None
            if isinstance(section, dict) and name in section:
                found[path] = section.pop(name)
    return {path: value for path, value in found.items() if value is not None}


def problems_of(foreign: Foreign, task: Task | None, framework: Framework) -> Iterator[str]:
    """What the configuration asks for and does not get."""
    for path, value in foreign.items():
        values, done = ONLY.get(path, ((value,), ""))
        if not any(value is allowed or (value == allowed and isinstance(value, str)) for allowed in values):
            yield f"{path}: would change the results and is not followed; {done}; leave the key out"
    yield from _interceptor_problems(foreign.get(_INTERCEPTORS, []))
    if _TASK in foreign and task is not None and foreign[_TASK] not in _names_of(task, framework):
        yield f"{_TASK}: is not the task that config.type names, {task.name}; give one of them"
    name = framework.framework.name
    if foreign.get(_FRAMEWORK, name) != name:
        yield f"{_FRAMEWORK}: is not {name!r}: the configuration is of another framework"
    ours = framework.framework.pkg_name
    if _COMMAND in foreign and ours not in str(foreign[_COMMAND]):
        yield f"{_COMMAND}: would change what is run and is not followed; leave it out"


def _names_of(task: Task, framework: Framework) -> tuple[str, ...]:
    return (task.name, f"{framework.framework.name}.{task.name}", task.helm.run_spec)


def _interceptor_problems(interceptors: Any) -> Iterator[str]:
    if not isinstance(interceptors, list):
        yield f"{_INTERCEPTORS}: must be a list"
        return
    for entry in interceptors:
        one = entry if isinstance(entry, Mapping) else {"name": entry}
        name = str(one.get("name"))
        if one.get("enabled") is False or name in HARMLESS_INTERCEPTORS:
            continue
        ours = _OURS_INSTEAD.get(name)
        instead = f"write {ADAPTER}: {ours} instead" if ours else "eval-factory has no such interceptor"
        yield f"{_INTERCEPTORS}: {name!r} would change the results and is not followed; {instead}"


def without_unused_prompt(merged: dict[str, Any], foreign: Foreign) -> None:
    """`use_system_prompt: false` turns a system prompt off that stands in the configuration all the same."""
    section: Any = merged
    for name in ADAPTER.split("."):
        section = section.get(name) if isinstance(section, dict) else None
    if isinstance(section, dict) and foreign.get(_USE_PROMPT) is False:
        section[_PROMPT] = None


def warning_of(foreign: Foreign) -> str | None:
    """One line that names all that has no effect."""
    sections: dict[str, list[str]] = {}
    for path in foreign:
        section, _, name = path.rpartition(".")
        if path not in ONLY:
            sections.setdefault(section, []).append(name)
    named = "; ".join(f"{f'{section}: ' if section else ''}{', '.join(keys)}" for section, keys in sections.items())
    return f"keys without an effect here: {named}" if named else None
