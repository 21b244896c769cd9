"""Makes the output of the commands `ls` and `schema`.

`ls` prints lists of tasks and run specs, or the facts about one of them with an example of a run
config. `schema` prints a JSON Schema.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from eval_factory.cli.console import show_table
from eval_factory.core import formats, safe_files
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.tables import Table, screen_lines
from eval_factory.helm.criteria import criterion_template, prompt_of_jury
from eval_factory.tasks import run_entry
from eval_factory.tasks.errata import load_errata
from eval_factory.tasks.framework import Framework, Task, file_layout, load_framework
from eval_factory.tasks.reasoned import reasoned_tasks, tasks_that_reason_already
from eval_factory.tasks.run_specs import (
    CODE_EXECUTION_FLAG,
    CODE_EXECUTION_KEY,
    IMAGES,
    IndexedRunSpec,
    how_executed,
    load_index,
    needs_permission,
)
from eval_factory.tasks.task_info import list_tasks, task_info, tasks_with_tag
from eval_factory.tasks.upstreams import HELM, Upstream

Record = dict[str, Any]
"""The facts about a task or a run spec, as `ls --json` prints them."""


def run_spec_record(
    name: str, spec: IndexedRunSpec, framework: Framework, upstream: Upstream = HELM
) -> Record:
    """Return the record of one of HELM's run specs, without an example."""
    # `asks` names a kind of request other than text; only requests for pictures can be sent.
    can_run = spec.asks is None or spec.makes_images
    return {
        "name": name,
        "type": f"{run_entry.run_entry_prefix(framework)}{name}",
        "description": spec.description,
        "parameters": {
            parameter: {"required": "default" not in properties, **properties}
            for parameter, properties in spec.parameters.items()
            if parameter not in run_entry.RESERVED_ARGUMENTS
        },
        "any_parameter": spec.any_parameter,
        "arguments_of_every_run_spec": run_entry.common_arguments(load_index(upstream)),
        "main_metric": spec.main_metrics[0] if spec.main_metrics else None,
        "main_metrics": list(spec.main_metrics),
        "main_split": spec.main_split,
        "judges": list(framework.judges) if spec.has_jury else [],
        "annotators": list(spec.annotators),
        "prescribed_judges": list(spec.prescribed_judges),
        "errata": [
            erratum.model_dump(exclude_none=True)
            for erratum in load_errata().of(name, upstream=upstream)
        ],
        "executes": dict(spec.executes or {}),
        "needs_permission": needs_permission(name, spec),
        "runs": can_run,
        "asks": spec.asks,
        "module": spec.module,
        "scenario_class": spec.scenario_class,
        "tasks": [task.name for task in framework.evaluations if task.helm.run_spec == name],
    }


def record_of(name: str, framework: Framework, upstream: Upstream = HELM) -> Record:
    """Return the record of a task, or of a run spec (`helm:NAME`), with an example of a run config.

    Raises:
        ConfigError: There is no task or run spec with this name.
    """
    if run_entry.is_run_entry(name, framework):
        # Arguments may follow the name of the run spec: helm:mmlu:subject=anatomy.
        spec_name = name.removeprefix(run_entry.run_entry_prefix(framework)).partition(":")[0]
        return _record_of_run_spec(spec_name, framework, upstream)
    task = framework.task(name)
    if task is None:
        hint = run_entry.similar_name_hint(name, framework)
        raise ConfigError(f"there is no task {name!r}{hint}; 'eval-factory ls' lists all tasks")
    return _record_of_task(task)


def _record_of_run_spec(name: str, framework: Framework, upstream: Upstream) -> Record:
    """Return the record of a run spec, with an example and the prompt that its judges get.

    Raises:
        ConfigError: There is no run spec with this name.
    """
    specs = load_index(upstream).run_specs
    if name not in specs:
        hint = run_entry.upstream_hint(name, upstream) or did_you_mean(name, list(specs))
        program = "HELM" if upstream is HELM else upstream.name
        raise ConfigError(
            f"{program} has no run spec {name!r}{hint}; 'eval-factory ls --all' lists all run specs"
        )
    spec = specs[name]
    record = run_spec_record(name, spec, framework, upstream)
    arguments = []
    for argument, properties in record["parameters"].items():
        if properties["required"]:
            is_path = argument in run_entry.PATH_PARAMETERS
            kind = properties.get("type")
            arguments.append(f"{argument}={_example_value(argument, is_path=is_path, kind=kind)}")
    config_type = record["type"]
    if arguments:
        config_type += f":{','.join(arguments)}"
    extra = {} if upstream is HELM else {"upstream": upstream.name}
    example = None
    if record["runs"]:
        endpoint_type = IMAGES if spec.makes_images else "chat"
        example = _example(config_type, extra, folder=name, endpoint_type=endpoint_type)
    return {**record, "judge_prompt": prompt_of_jury(record["annotators"]), "example": example}


def _record_of_task(task: Task) -> Record:
    """Return the record of a task, with an example and the prompt that its judges get."""
    prompt = None  # None if the task has no judges, or if the user's benchmark has the prompt
    spec = task.helm.indexed
    if task.helm.rubric:
        prompt = criterion_template(alone=True)
    elif spec is not None and task.helm.judges:
        prompt = prompt_of_jury(spec.annotators)
    # The example has the required parameters, and the choices that have a default.
    extra = {}
    for key, rule in task.helm.parameters.items():
        default = task.default_of(key)
        has_default_choice = rule.allowed and default
        if not rule.required and not has_default_choice:
            continue
        if default:
            extra[key] = default
        elif rule.allowed:
            extra[key] = rule.allowed[0]
        else:
            extra[key] = _example_value(key, is_path=rule.path)
    # imported late: a list of all tasks does not need this module
    from eval_factory.tasks.perturbations import FAMILIES, why_not_offered

    perturb = []
    for family in FAMILIES:
        if why_not_offered(family, task.name) is None:
            perturb.append(family)
    return {
        **task_info(task).as_dict(),
        "perturb": perturb,
        "reasoned": task.name in reasoned_tasks(),
        "judge_prompt": prompt,
        "example": _example(task.name, extra),
    }


def record_of_benchmark(path: Path, framework: Framework) -> Record:
    """Return the record of a custom benchmark, with the prompt that its judges get.

    Raises:
        ConfigError: The benchmark is not valid.
    """
    from eval_factory.tasks.custom_benchmark import load_benchmark

    benchmark = load_benchmark(path)
    task = framework.task("custom")
    assert task is not None  # noqa: S101 - framework.yml always has the task `custom`
    prompt = None
    prompt_file = benchmark.judge_prompt_file
    if benchmark.is_rubric:
        prompt = criterion_template(alone=True)
    elif prompt_file is not None:
        prompt = benchmark.jury_form.filled(safe_files.read_text(prompt_file))
    return {
        **task_info(task).as_dict(),
        "name": benchmark.name,
        "description": benchmark.description,
        "main_metric": benchmark.main_metric,
        "judges": list(task.helm.judges) if benchmark.has_jury else [],
        "source": str(path),
        "instances": benchmark.instances,
        "rows_with_pictures": benchmark.rows_with_pictures,
        "notes": list(benchmark.notes),
        "judge_prompt": prompt,
        "example": _example(task.name, {"benchmark": str(path)}),
    }


def _example(
    config_type: str, extra: Record, folder: str | None = None, endpoint_type: str = "chat"
) -> str:
    """Return a valid run config. Values that only the user knows are in angle brackets.

    Args:
        config_type: The value of `config.type`.
        extra: The values of `config.params.extra`.
        folder: The name of the output folder; None: `config_type`.
        endpoint_type: The type of the endpoint.
    """
    params: Record = {"limit_samples": 20}
    if extra:
        params["extra"] = extra
    # "helm:mmlu:subject=anatomy" -> "helm_mmlu_subject_anatomy"
    output_dir = "results/" + re.sub(r"[^A-Za-z0-9_]+", "_", folder or config_type)
    config = {"type": config_type, "output_dir": output_dir, "params": params}
    endpoint = {
        "url": "https://api.openai.com/v1",
        "model_id": "gpt-image-1" if endpoint_type == IMAGES else "gpt-4",
        "type": endpoint_type,
        "api_key": "OPENAI_API_KEY",
    }
    document = {"config": config, "target": {"api_endpoint": endpoint}}
    # 1000: no line is wrapped
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)


def _example_value(name: str, *, is_path: bool, kind: str | None = None) -> str:
    """Return an example of an argument: a number, a path, or a placeholder in angle brackets.

    `kind`: the type of the argument, such as `int`; None if it is unknown.
    """
    if kind == "int":
        return "1"
    if kind == "float":
        return "0.5"
    return f"/path/to/{name}" if is_path else f"<{name}>"


def _execution_lines(record: Record) -> Iterator[str]:
    """Yield lines that say how the benchmark executes answers, if it does."""
    if record["executes"]:
        # The record of a run spec has its name under `name`.
        run_spec = record.get("run_spec") or record["name"]
        yield from ("", f"the benchmark {how_executed(run_spec, record['executes'])}")
    if record.get("needs_permission"):
        why = "because nobody has checked the program that a model writes"
        yield from (
            "",
            f"refused without {CODE_EXECUTION_FLAG}, or {CODE_EXECUTION_KEY}: true, {why}",
        )


def _defect_line(erratum: Record) -> str:
    """Return the line about a known defect of the benchmark, and about the defect's remedy."""
    remedy = erratum.get("corrected") or erratum.get("patched") or erratum.get("avoided")
    label = ", ".join(text for text in (erratum["id"], erratum.get("upstream")) if text)
    return f"known defect ({label}): {erratum['defect']}. Here: {remedy}"


def record_text(record: Record) -> str:
    """Return the record of a task or run spec as a run config: the facts as comments, then the
    example.
    """
    lines = [f"{record['name']}: {record['description']}", "", *_facts(record)]
    parameters = list(_parameter_lines(record))
    if parameters:
        title = "parameters, in config.params.extra:"
        if "any_parameter" in record:  # only the record of a run spec has this key
            title = "arguments, in config.type:"
        lines += ["", title]
        lines += [f"  {line}" for line in parameters]
    if common := record.get("arguments_of_every_run_spec"):
        lines += [
            "",
            f"arguments of every run spec, if the scenario accepts them: {', '.join(common)}",
        ]
    for note in record.get("notes", ()):
        lines += ["", f"note: {note}"]
    for erratum in record["errata"]:
        lines += ["", _defect_line(erratum)]
    lines += _execution_lines(record)
    if record["example"] is None:
        last_line = (
            f"cannot be run: the run spec asks a model for {record['asks']}, "
            "which eval-factory cannot ask for"
        )
    else:
        last_line = (
            "for completion in an editor: "
            "`eval-factory schema run_config > run_config.schema.json` next to this file, "
            "and as its first line: # yaml-language-server: $schema=run_config.schema.json"
        )
    shown = list(_commented(lines))
    if (prompt := record.get("judge_prompt")) is not None:
        shown += ["#", "# the prompt of a judge; placeholders are in braces:", "#"]
        # The prompt is not wrapped, so that its own lines remain visible.
        shown += [f"#   {line}".rstrip() for line in prompt.splitlines()]
    shown += _commented(["", last_line])
    text = "\n".join(shown) + "\n"
    if record["example"] is not None:
        text += record["example"]
    return text


def _facts(record: Record) -> list[str]:
    """Return a line for each known fact. The record of a run spec lacks some of the facts."""
    main_metrics = record.get("main_metrics") or [record["main_metric"] or "HELM names none"]
    published = ""
    if record.get("answers_public") is not None:
        negation = "" if record["answers_public"] else "not "
        published = f"{record['published'] or 'unknown'}; its answers are {negation}public"
    facts = {
        "main metric": " or ".join(main_metrics),
        "main split": record.get("main_split"),
        "endpoints": _joined(record.get("endpoint_types")),
        "judges": _joined(record["judges"]),
        "HELM's annotators": _joined(record.get("annotators")),
        "HELM's judges": _joined(record.get("prescribed_judges")),
        "access": record.get("access"),
        "source": record.get("source") or record.get("scenario_class"),
        "licence": record.get("licence"),
        "revision": record.get("revision"),
        "instances": formats.count(record.get("instances")),
        # not shown if no row has pictures
        "with pictures": formats.count(record.get("rows_with_pictures") or None),
        "data size": _size(record.get("size_mb")),
        "public since": published,
        "tried by us on": record.get("tried"),
        "reasoned answers": _reasoned_answers(record),
        "other words": _families_of_changes(record),
        "tags": _joined(record.get("tags")),
        "run spec": record.get("run_spec"),
        "module": record.get("module"),
        "our tasks of it": _joined(record.get("tasks")),
    }
    lines: list[str] = []
    for name, value in facts.items():
        if value:
            lines.append(f"{name + ':':<18} {value}")
    return lines


def _families_of_changes(record: Record) -> str:
    """Return the families of changed words that the setting `perturb` may name; "" if unknown."""
    if "perturb" not in record:
        return ""
    return _joined(record["perturb"] or ["none"])


def _reasoned_answers(record: Record) -> str:
    """Return a text that says whether a task supports `answer_style: reasoned`; "" if unknown."""
    if "reasoned" not in record:
        return ""
    if record["reasoned"]:
        return "yes (answer_style: reasoned)"
    if record["name"] in tasks_that_reason_already():
        return "no (its prompts ask for reasoning already)"
    return "no"


def _parameter_lines(record: Record) -> Iterable[str]:
    """Yield lines about the parameters of a task, or the arguments of a run spec."""
    if "any_parameter" in record:  # only the record of a run spec has this key
        for name, properties in record["parameters"].items():
            yield run_entry.signature(name, properties)
        if record["any_parameter"]:
            yield "any"
        return
    for name, rule in record["parameters"].items():
        if rule["fixed"] is not None:
            yield f"{name}: always {rule['fixed']}"
            continue
        line = f"{name}: {'needed' if rule['required'] else 'may be given'}"
        if rule["other_name"]:
            line += f", or as {rule['other_name']}"
        if rule["default"] is not None:
            line += f", default {rule['default']}"
        if rule["allowed"]:
            line += f", one of {', '.join(rule['allowed'])}"
        yield line
        if rule["about"]:
            yield f"  {rule['about']}"
        # imported late: this module imports the readers of all data formats
        from eval_factory.tasks.own_data import described_layout

        layout = [file_layout(entry) for entry in rule["layout"]]
        # No values are known, so a file's name is a template: `labels/{subject}/labels.parquet`.
        for layout_line in described_layout(layout, values={}):
            yield f"  {layout_line}"


_COMMENT_WIDTH = 110  # the maximum width of a comment without its `# `, in characters


def _commented(lines: Iterable[str]) -> Iterable[str]:
    """Yield the lines as wrapped YAML comments. Continuation lines are indented by two more."""
    for line in lines:
        leading_spaces = len(line) - len(line.lstrip())
        indent = " " * (leading_spaces + 2)
        parts = textwrap.wrap(
            line, _COMMENT_WIDTH, subsequent_indent=indent, break_on_hyphens=False
        )
        for part in parts or [""]:  # an empty line has no parts
            yield f"# {part}".rstrip()


def _joined(values: Sequence[str] | None) -> str:
    """Return the values separated by commas; "" if there are none."""
    return ", ".join(values or ())


def _size(megabytes: float | None) -> str:
    """Return the text of a size in megabytes; "" if the size is unknown."""
    if megabytes is None:
        return ""
    return formats.megabytes(megabytes)


TASK_COLUMNS = (
    "task",
    "what it asks",
    "access",
    "judges",
    "instances",
    "data size",
    "public since",
)
RUN_SPEC_COLUMNS = ("run spec", "parameters", "what it measures")
_MAX_COLUMN = 48  # the maximum width of these columns without a terminal, in characters


def show_tasks(framework: Framework, tag: str | None, *, as_json: bool) -> None:
    """Print the tasks for a terminal, or as JSON."""
    if as_json:
        click.echo(json.dumps([task.as_dict() for task in list_tasks(tag)], indent=2))
    else:
        show_table(TASK_COLUMNS, task_rows(tasks_with_tag(tag, framework)))


def task_rows(tasks: Iterable[Task]) -> list[tuple[str, ...]]:
    """Return the cells of `TASK_COLUMNS` for each task."""
    rows: list[tuple[str, ...]] = []
    for task in tasks:
        rows.append(
            (
                task.name,
                task.asks or task.description,
                task.about.access,
                _joined(task.helm.judges),
                formats.count(task.about.instances),
                _size(task.about.size_mb),
                task.about.published or "unknown",
            )
        )
    return rows


def show_run_specs(framework: Framework, upstream: Upstream, *, as_json: bool) -> None:
    """Print HELM's run specs, with a note if a run spec cannot be run or needs a permission."""
    specs = load_index(upstream).run_specs
    records = [run_spec_record(name, spec, framework, upstream) for name, spec in specs.items()]
    if as_json:
        click.echo(json.dumps(records, indent=2))
        return
    rows = []
    for record in records:
        arguments = []
        for name, properties in record["parameters"].items():
            # `(needed)` is left out: a needed argument differs by having no `=default`.
            arguments.append(run_entry.signature(name, properties).replace(" (needed)", ""))
        if record["any_parameter"]:
            arguments.append("...")
        description = record["description"]
        if not record["runs"]:
            description += f" [cannot be run: asks for {record['asks']}]"
        elif record["needs_permission"]:
            description += (
                f" [executes the model's answers ({', '.join(record['executes'])}): "
                f"needs {CODE_EXECUTION_FLAG}]"
            )
        rows.append((record["type"], ", ".join(arguments), description))
    if sys.stdout.isatty():
        show_table(RUN_SPEC_COLUMNS, rows)
    else:
        lines = screen_lines(Table(RUN_SPEC_COLUMNS, rows), widest=_MAX_COLUMN)
        click.echo("\n".join(lines[1:]))  # without the heading, for other programs


SCHEMAS = (
    "run_config",
    "evaluation_config",
    "results",
    "suite_results",
    "gate_policy",
    "suite",
    "monitor",
)
"""The names of the schemas: docs/schemas has a file for each, which make_schemas.py writes."""


def schema_text(name: str) -> str:
    """Return a JSON Schema as a text. Raises ConfigError if there is no schema with this name."""
    if name not in SCHEMAS:
        hint = did_you_mean(name, SCHEMAS) or f"; there are {', '.join(SCHEMAS)}"
        raise ConfigError(f"there is no schema {name!r}{hint}")
    if name == "run_config":
        from eval_factory.config.json_schema import run_config_schema

        document = run_config_schema(load_framework())
    elif name == "suite":
        from eval_factory.config.json_schema import suite_schema

        document = suite_schema(load_framework())
    elif name == "gate_policy":
        from eval_factory.analysis.gate_policy import gate_policy_schema

        document = gate_policy_schema()
    elif name == "monitor":
        from eval_factory.monitor.panel import panel_schema

        document = panel_schema()
    else:
        from eval_factory.report import documents

        document = documents.read_schema(f"{name}.schema.json")
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
