"""Turns a result into plain documents, which other modules write into files.

The documents are evaluation_config.yaml, results.yml, run_config.yml, and the lines of
instances.jsonl and results.jsonl.

The same result always gives the same document. Numbers in these documents are rounded here, but
scores and means of scores are never rounded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from functools import cache
from importlib import resources
from typing import Any

from eval_factory.core import results
from eval_factory.core.formats import rounded
from eval_factory.core.plain_yaml import OneLineList, OneLineMapping

DIGITS_OF_SECONDS = 4  # significant digits; clocks are not more precise
_MAX_SHORT_TEXT = 60  # characters; a mapping with a longer text is written on several lines
EVALUATION_CONFIG_SCHEMA = "evaluation_config.schema.json"  # a file in the folder `schemas`
RESULTS_SCHEMA = "results.schema.json"
SUITE_RESULTS_SCHEMA = "suite_results.schema.json"


def rounded_fields(fields: Mapping[str, Any], *, exact: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields with each float rounded, also in nested mappings, but not in lists.

    Fields whose name ends with `_s` are seconds and have `DIGITS_OF_SECONDS` digits. `exact` has
    the names of top-level fields that are not rounded.
    """
    rounded_values = dict(fields)
    for name, value in fields.items():
        if isinstance(value, Mapping):
            rounded_values[name] = rounded_fields(value)
        elif isinstance(value, float) and name not in exact:
            if name.endswith("_s"):
                rounded_values[name] = rounded(value, DIGITS_OF_SECONDS)
            else:
                rounded_values[name] = rounded(value)
    return rounded_values


def with_layout_marks(value: Any) -> Any:
    """Return a value with marks for the YAML writer.

    `OneLineMapping` and `OneLineList` are the marks: the writer puts such a mapping or list on one
    line. Mappings and lists with longer or nested values are not marked, and have one line for each
    value.
    """
    if isinstance(value, Mapping):
        items = {str(name): with_layout_marks(item) for name, item in value.items()}
        if all(map(_is_short, items.values())):
            return OneLineMapping(items)
        return items
    if isinstance(value, (list, tuple)):
        listed = [with_layout_marks(item) for item in value]
        # Numbers and single words share a line. A sentence has a line of its own.
        is_long = any(
            isinstance(item, (dict, list)) or (isinstance(item, str) and " " in item)
            for item in listed
        )
        if is_long:
            return listed
        return OneLineList(listed)
    return value


def _is_short(item: Any) -> bool:
    """Return True if a mapping with this formatted value may be written on one line."""
    if isinstance(item, str):
        return len(item) <= _MAX_SHORT_TEXT and "\n" not in item
    return isinstance(item, OneLineList) or not isinstance(item, (dict, list))


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None. An empty list stays, because it is a known value."""
    return {name: value for name, value in fields.items() if value is not None}


def evaluation_config_document(
    result: results.TaskResult, config: Mapping[str, Any], command: str
) -> dict[str, Any]:
    """Return the document of evaluation_config.yaml, the standardised result.

    The most important fields come first, and no number is written twice. The argument `config` has
    the sections `config` and `target` with the values that the user set, redacted; run_config.yml
    also has the defaults.
    """
    comparability = None
    if result.comparability is not None:
        comparability = _comparability(result.comparability)
    clinicians = {}
    if result.clinicians is not None:
        clinicians["clinicians"] = with_layout_marks(
            _rounded_without_empty(asdict(result.clinicians))
        )
    provenance = without_nulls(asdict(result.provenance))
    for endpoint in provenance["endpoints"].values():
        # An endpoint with one server has no `servers`, as in results of earlier versions.
        if endpoint["servers"] is None:
            del endpoint["servers"]
    return {
        "schema_version": results.SCHEMA_VERSION,
        "status": result.status,
        "main_metric": result.main_metric,
        "results": {"tasks": _task(result), "groups": _groups(result)},
        "validity": _validity(result),
        **clinicians,
        "comparability": comparability,
        "usage": with_layout_marks(usage_section(result.usage)),
        "provenance": with_layout_marks(provenance),
        "config": config["config"],
        "target": config["target"],
        "command": command,
    }


def _comparability(record: results.Comparability) -> dict[str, Any]:
    """Return the section `comparability`, without empty fields."""
    facts = asdict(record)
    for name in ("deviations", "remarks"):
        facts[name] = list(facts[name])  # The schema requires lists; `asdict` returns tuples.
    section = {}
    for name, value in facts.items():
        if value or name == "medhelm_settings":  # False and None are values of this field.
            section[name] = value
    return section


def _task(result: results.TaskResult) -> dict[str, Any]:
    """Return all scores of the task, the main score first.

    The main score has one line for each value; each other score is written on one line. Metric,
    split and perturbation are written only if they do not follow from the score's name.
    """
    main: dict[str, Any] = {}
    scores = {}
    for name, score in result.scores.items():
        # A plain name is HELM's name of the metric, over the main split, without a perturbation.
        implied_facts = {"metric": name, "split": result.validity.main_split, "perturbation": None}
        document = _score_and_facts(score, implied_facts)
        if name == result.main_metric:
            main[name] = {**document, "stats": OneLineMapping(document["stats"])}
        else:
            scores[name] = OneLineMapping(document)
    return {result.task: {"metrics": _nested({**main, **scores})}}


def _groups(result: results.TaskResult) -> dict[str, Any]:
    """Return the scores of all groups; an empty mapping if there are no groups.

    A group's score omits the facts that it shares with the score of the same name in `tasks`.
    """
    by_name = {name: vars(score) for name, score in result.scores.items()}
    groups: dict[str, Any] = {}
    for field, by_value in result.groups.items():
        written = {}
        for value, scores in by_value.items():
            documents = {}
            for name, score in scores.items():
                documents[name] = _score_and_facts(score, by_name.get(name, {}))
            written[value] = OneLineMapping({"metrics": _nested(documents)})
        groups[field] = {"groups": written}
    if groups:
        return {result.task: {"groups": groups}}
    return {}


def _nested(documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documents of scores in the nesting of NVIDIA's EvalFactory."""
    return {"score": {"scores": documents}}


def _score_and_facts(score: results.Score, known_facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a score: value, statistics, and facts that are not in `known_facts`.

    Facts are the metric, the split, the unit and so on.
    """
    facts = {}
    for name, fact in vars(score).items():
        is_known = name in known_facts and known_facts[name] == fact
        if name not in ("value", "stats") and not is_known:
            facts[name] = fact
    if facts.get("scale") is not None:
        facts["scale"] = OneLineList(map(_without_decimal_zero, facts["scale"]))
    return {**_score(score), **facts}


def _without_decimal_zero(number: float) -> float:
    """Return the number as an int if it is integral, so that it is written as `1`, not `1.0`."""
    if float(number).is_integer():
        return int(number)
    return number


_OMITTED_IF_EMPTY = {
    "rubric": ("length_correlation", "correction", "constant"),
    "jury": ("labels", "criteria", "length_correlation", "agreement_p", "constant"),
    "choice_orders": ("same_words",),
}
"""A dict from a part of the validity to the part's fields that are left out if they are empty."""


def _validity(result: results.TaskResult) -> dict[str, Any]:
    """Return the section `validity`: `reportable` and `coverage` first, causes and notes last.

    Parts that are None, such as the jury if there was no jury, are left out.
    """
    parts = asdict(result.validity)
    for part, names in _OMITTED_IF_EMPTY.items():
        if parts[part] is not None:
            parts[part] = {
                name: value for name, value in parts[part].items() if value or name not in names
            }
    parts["instances"] = without_nulls(parts["instances"])
    stopped_early = parts["stopped_early"]
    if stopped_early is not None:
        # These looks are the checks of the rule for stopping early, not the looks of a panel.
        looks = [rounded_fields(look) for look in stopped_early["looks"]]
        parts["stopped_early"] = {**rounded_fields(stopped_early), "looks": looks}
    for part in ("jury", "choice_orders"):
        if parts[part] is not None:
            parts[part] = rounded_fields(parts[part])
    parts["asked_again"] = _rounded_without_empty(parts["asked_again"])
    last = {name: parts.pop(name) for name in ("failures", "urgent_notes", "notes")}
    in_order = {
        "reportable": result.reportable,
        "coverage": rounded(result.validity.coverage),
        "not_reportable": parts.pop("not_reportable"),
        **parts,
        **last,
    }
    section: dict[str, Any] = with_layout_marks(without_nulls(in_order))
    for name, floor in section["floors"].items():
        if not floor["assumed"]:  # Few floors are assumed, so `assumed` is written only if True.
            del floor["assumed"]
        section["floors"][name] = OneLineMapping(floor)
    return section


def _rounded_without_empty(value: Any) -> Any:
    """Return a value with each float rounded, and without mapping items that are None or empty."""
    if isinstance(value, Mapping):
        items = {name: _rounded_without_empty(item) for name, item in value.items()}
        return {name: item for name, item in items.items() if item not in (None, {}, [])}
    if isinstance(value, list | tuple):
        return [_rounded_without_empty(item) for item in value]
    if isinstance(value, float):
        return rounded(value)
    return value


def usage_section(record: results.Usage) -> dict[str, Any]:
    """Return the section `usage`, with the figures of this run at its top level.

    The figures by role are added if a judge was asked. The figures of all runs are added if they
    differ from the figures of this run.
    """
    section = {**_spent(record.this_run.total), "wall_s": rounded(record.wall_s, DIGITS_OF_SECONDS)}
    if record.cost_unknown is not None:
        section["cost_unknown"] = record.cost_unknown
    if roles := _roles(record.this_run):
        section["this_run"] = roles
    if record.runs != 1 or record.all_runs != record.this_run:
        section["all_runs"] = {
            "runs": record.runs,
            **_spent(record.all_runs.total),
            **_roles(record.all_runs),
        }
    return section


def _roles(spent: results.SpentByRole) -> dict[str, Any]:
    """Return the key `roles` with the figures by role; nothing if only the model was asked."""
    # The figures of the only role would equal the total.
    if dict(spent.roles) == {results.MODEL_ROLE: spent.total}:
        return {}
    return {"roles": {role: _spent(role_spent) for role, role_spent in spent.roles.items()}}


def _spent(spent: results.Spent) -> dict[str, Any]:
    """Return the rounded figures, with the cost if it is known.

    The price is not rounded, because the cost is computed again from the stored price.
    """
    figures = rounded_fields(
        {name: value for name, value in asdict(spent).items() if name != "cost"}
    )
    if spent.cost is None:
        return figures
    price = {}
    if spent.cost.price is not None:
        price = {"price": spent.cost.price.as_written()}
    cost = rounded_fields(
        {name: value for name, value in vars(spent.cost).items() if name != "price"}
    )
    return {**figures, "cost": {**cost, **price}}


def results_yml_document(
    result: results.TaskResult, config: Mapping[str, Any], command: str
) -> dict[str, Any]:
    """Return the document of results.yml, the result in the format of NVIDIA's EvalFactory.

    In this format `groups` repeats all scores of the task.
    """
    groups: dict[str, Any] = {}
    for field, by_value in result.groups.items():
        groups[field] = {"groups": {}}
        for value, scores in by_value.items():
            groups[field]["groups"][value] = {"metrics": _metrics(scores)}
    metrics = _metrics(result.scores)
    return {
        "git_hash": result.provenance.git_hash or "",  # The format requires a text.
        "command": command,
        "config": config["config"],
        "target": config["target"],
        "results": {
            "tasks": {result.task: {"metrics": metrics}},
            "groups": {result.task: {"metrics": metrics, "groups": groups}},
        },
    }


def run_config_document(
    config: Mapping[str, Any],
    command: str,
    *,
    framework_name: str,
    pkg_name: str,
    further: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the document of run_config.yml: the complete merged configuration of the run.

    `further` has additional sections, which few runs have.
    """
    return {
        "command": command,
        "framework_name": framework_name,
        "pkg_name": pkg_name,
        "config": config["config"],
        "target": config["target"],
        **(further or {}),
    }


def _metrics(scores: results.Scores) -> dict[str, Any]:
    """Return the value and statistics of each score, nested as in results.yml."""
    return _nested({name: _score(score) for name, score in scores.items()})


def _score(score: results.Score) -> dict[str, Any]:
    """Return the exact value with its rounded statistics; `mean` is exact too.

    Statistics that are None are left out.
    """
    return {
        "value": score.value,
        "stats": rounded_fields(without_nulls(asdict(score.stats)), exact=("mean",)),
    }


INSTANCE_FIELDS = ("id", "split", "sub_split", "trial", "perturbation", "prompt")
"""The fields of `InstanceRecord` that are in every line of instances.jsonl."""
RESULT_FIELDS = (
    "id",
    "split",
    "trial",
    "perturbation",
    "completion",
    "metrics",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "latency_s",
    "cached",
    "error",
)
"""The fields of `InstanceRecord` that are in every line of results.jsonl."""
OPTIONAL_RESULT_FIELDS = (
    "judges",
    "unjudged",
    "injection",
    "signs",
    "cluster",
    "reasoning",
    "judgements",
    "criteria",
)
"""The fields that a line of results.jsonl has only if they have a value. None, False and empty
lists and mappings are left out; an empty text is written.
"""


def instance_fields(record: results.InstanceRecord) -> dict[str, Any]:
    """Return the fields of one line of instances.jsonl."""
    line = {name: getattr(record, name) for name in INSTANCE_FIELDS}
    if record.turns:
        line["turns"] = list(record.turns)
    if record.media:
        line["media"] = list(record.media)
    if record.question is not None:
        line["question"] = record.question
    line["references"] = list(record.references)
    for name, value in record.categories.items():
        line[f"extra.{name}"] = value
    return line


def result_fields(record: results.InstanceRecord) -> dict[str, Any]:
    """Return the fields of one line of results.jsonl."""
    line = {name: getattr(record, name) for name in RESULT_FIELDS}
    if record.latency_s is not None:
        line["latency_s"] = rounded(record.latency_s, DIGITS_OF_SECONDS)
    for name in OPTIONAL_RESULT_FIELDS:
        value = getattr(record, name)
        if isinstance(value, tuple):
            value = list(value)
        if value or value == "":
            line[name] = value
    return line


def read_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema with this file name, which comes with the package."""
    text = (resources.files("eval_factory.report") / "schemas" / name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def check_document(document: Mapping[str, Any], schema_name: str) -> None:
    """Raise `jsonschema.ValidationError` if a document does not match its schema.

    If eval-factory is about to write the document, the error is a defect of eval-factory.
    """
    from jsonschema.exceptions import best_match  # Imported here: `--dry_run` checks no document.

    error = best_match(_validator(schema_name).iter_errors(document))
    if error is not None:
        raise error


@cache
def _validator(schema_name: str) -> Any:
    """Return the validator of a schema that comes with the package.

    The schema itself is not checked here, because a test checks it. `jsonschema.validate` would
    check the schema again at each call.
    """
    from jsonschema.validators import validator_for

    loaded = read_schema(schema_name)
    return validator_for(loaded)(loaded)
