"""Makes docs/reference/config.md: the keys of a run config, each with type, default and flag.

The page also says which keys belong to the identity of a run: if such a key changes, the run is
another evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scripts.reference.page_text import code, page

from eval_factory.cli.run_command import FLAGS
from eval_factory.config.foreign_keys import EXECUTOR
from eval_factory.config.json_schema import DESCRIPTIONS, run_config_schema
from eval_factory.core.enums import SLURM
from eval_factory.plan.run_plan import JUDGE_RUNTIME_SETTINGS, RUNTIME_SETTINGS
from eval_factory.tasks.framework import Framework, load_framework

JUDGES = "config.params.extra.judges"
PRICES = "config.params.extra.prices"
NEEDED = {f"{JUDGES}.{name}" for name in ("name", "model_id")} | {
    f"{PRICES}.{name}" for name in ("model_id", "input_per_million", "output_per_million")
}
KINDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
}
LIMITS = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
MAX_TASKS = 20  # If a description names more tasks, a link replaces their names.
NO_LIMIT = 1_000_000_000  # A limit from this number on is not shown.
INTRODUCTION = """\
A run config is one YAML file; each key may also be given with `--overrides path.to.key=value`, and
some have a flag of their own. Overrides beat flags, flags the file, the file the defaults in
`framework.yml`. A null means the default; `${NAME}` and `${NAME:-default}` are taken from the
environment; secrets: [judges and keys](../judges.md#what-is-done-with-keys). Keys of EvalFactory's
and NeMo Evaluator's adapters that change no result (`use_caching`, `stream` ...) are accepted with
one warning; one that would change results is refused. `api_key_name` is another name of `api_key`.
An endpoint's own limit (429) is waited for and costs no retry.

**Identity**: values that change what is asked or what is scored. Where one of them changes, the
results in the output folder are moved to `results.set-aside-<time>/` and the run starts again;
requests that stay the same are answered from `cache.db`. A key without *identity* changes only how
a run goes or how its result is judged: the run goes on.

The same as a [JSON Schema](../schemas/README.md), for editors: `eval-factory schema run_config`."""


def keys_page() -> str:
    """Return the text of docs/reference/config.md."""
    framework = load_framework()
    rows = list(_rows(run_config_schema(framework), "", framework))
    extra = "config.params.extra"
    groups = (
        "config",
        "config.params",
        extra,
        f"{extra}.stop_when",
        JUDGES,
        PRICES,
        "target.api_endpoint",
    )
    lines = [INTRODUCTION]
    # The group "" has the keys at the top of the file.
    for group in (*groups, "target.api_endpoint.adapter_config", "", SLURM):
        title = f"{group}[]" if group in (JUDGES, PRICES) else group or EXECUTOR
        lines += ["", f"## `{title}`", ""]
        lines += [_line(*row[1:]) for row in rows if row[0] == group]
    return page("Every key of a run config", lines)


def _line(key: str, about: str, values: str, default: str, flag: str, is_identity: str) -> str:
    """Return the line of a key: `key` (values; default ...; flag; identity): description."""
    shown_default = default if default in ("", "needed") else f"default {default}"
    facts = "; ".join(
        filter(None, (values, shown_default, flag, "identity" if is_identity else ""))
    )
    return " ".join(f"- {key} ({facts}): {about}".split())


def _rows(schema: dict[str, Any], path: str, framework: Framework) -> Iterator[tuple[str, ...]]:
    """Yield a row for each key below a path: the key's group, and the arguments of `_line`.

    Args:
        schema: the schema of the mapping at the path.
        path: the path of a mapping, such as `config.params`, which is the group of its keys.
        framework: the framework, with the defaults of tasks.
    """
    for name, field in schema["properties"].items():
        key_path = f"{path}.{name}" if path else name
        if key_path not in DESCRIPTIONS:  # another spelling of a key, or a key without an effect
            continue
        if "properties" in field:
            yield from _rows(field, key_path, framework)
            continue
        # A description may end with " Tasks: NAME, NAME, ... Flag: --NAME".
        description = field["description"].partition(" Flag: ")[0]
        about, _, tasks = description.partition(" Tasks: ")
        if tasks.count(",") > MAX_TASKS and "(" not in tasks:
            link = "[Tasks](../tasks.md#files-of-your-own) lists what each task reads."
            description = f"{about} {link}"
        yield (
            path,
            f"`{name}`",
            description,
            _values(field),
            _default(field, key_path, framework),
            _flag(key_path),
            identity(key_path),
        )
        for option in field.get("anyOf", []):
            if "properties" in option.get("items", {}):
                yield from _rows(option["items"], key_path, framework)


def identity(path: str) -> str:
    """Return `yes` if a change of the key makes the run another evaluation, else an empty text."""
    group, _, name = path.rpartition(".")
    if group == JUDGES:
        return "" if name in JUDGE_RUNTIME_SETTINGS else "yes"
    is_runtime = (
        group == PRICES or SLURM in (group, path) or path == EXECUTOR or path in RUNTIME_SETTINGS
    )
    return "" if is_runtime else "yes"


def _flag(path: str) -> str:
    """Return the flag that sets a key; an empty text if there is none."""
    name = {key_path: flag for flag, key_path in FLAGS.items()}.get(path)
    return f"`--{name}`" if name else ""


def _default(field: dict[str, Any], path: str, framework: Framework) -> str:
    if path in (
        "config.type",
        "config.output_dir",
        "target.api_endpoint.url",
        "target.api_endpoint.model_id",
    ):
        return "needed"
    if path in NEEDED:
        return "needed"
    default = field.get("default")
    if default is None:
        return _of_tasks(path, framework)
    return code(str(default).lower() if isinstance(default, bool) else str(default))


def _of_tasks(path: str, framework: Framework) -> str:
    """Return the defaults that a key has for some tasks, such as "`en` (careqa, slake)"."""
    name = path.rpartition(".")[2]
    if path != f"config.params.extra.{name}":
        return ""
    tasks_by_default: dict[str, list[str]] = {}
    for task in framework.evaluations:
        if name in task.helm.parameters and task.default_of(name) is not None:
            tasks_by_default.setdefault(str(task.default_of(name)), []).append(task.name)
    defaults = []
    for value, tasks in tasks_by_default.items():
        defaults.append(f"`{value}` ({', '.join(tasks)})")
    return "; ".join(defaults)


def _values(field: dict[str, Any]) -> str:
    kinds = [_kind(option) for option in field.get("anyOf", []) if option.get("type") != "null"]
    return " or ".join(dict.fromkeys(kind for kind in kinds if kind))


def _kind(option: dict[str, Any]) -> str:
    if option.get("pattern", "").startswith(r"\$\{"):
        return ""  # a text such as ${NAME}, which may replace any value
    if "enum" in option:
        if len(option["enum"]) > 10:  # Only the names of tasks are so many.
            return "a task's name"
        return ", ".join(f"`{value}`" for value in option["enum"])
    kind = option["type"]
    if kind == "array":
        return "list of mappings" if "properties" in option["items"] else "list of texts"
    if kind == "object":
        return "mapping"
    return KINDS[kind] + _range(option)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _range(option: dict[str, Any]) -> str:
    if {"minimum", "maximum"} <= option.keys() and option["maximum"] < NO_LIMIT:
        return f" from {_number(option['minimum'])} to {_number(option['maximum'])}"
    limits = [
        f"{word} {_number(option[name])}"
        for name, word in LIMITS.items()
        if option.get(name, NO_LIMIT) < NO_LIMIT
    ]
    return f", {', '.join(limits)}" if limits else ""
