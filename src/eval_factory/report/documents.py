"""The result as plain documents: evaluation_config.yaml, results.yml, run_config.yml, JSON lines. Pure functions.

Values of a document as somebody reads them: rounded where digits say nothing, short mappings on one line.

Everything that is rounded is rounded here, so that a document that is made again of the same result is the same. Scores
are never rounded: they are HELM's to the last digit.

A document as YAML, for people and any reader of YAML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import yaml

from eval_factory.core.nouns import MODEL_ROLE, Word

if TYPE_CHECKING:
    from eval_factory.core.results import (
        Comparability,
        InstanceRecord,
        Provenance,
        Score,
        Scores,
        Spent,
        SpentByRole,
        TaskResult,
        Usage,
    )

DIGITS_OF_SECONDS = 4
_DIGITS_OF_STATISTICS = 6
"""Significant digits of what is derived from scores, or measured. A clock is no better; an interval is an estimate."""

LONGEST_ON_A_LINE = 60
"""Characters of a text that stands on a line with others."""


class OneLine(dict[str, Any]):
    """A mapping that is written in as few lines as it takes, not one a value."""


class OneLineList(list[Any]):
    """The same of a list."""


def rounded(number: float, digits: int) -> float:
    """To so many significant digits: 0.001623436000016909 to 4 of them is 0.001623."""
    return float(f"{number:.{digits}g}")


def seconds(number: float | None) -> float | None:
    return None if number is None else rounded(number, DIGITS_OF_SECONDS)


def rounded_fields(fields: Mapping[str, Any], *exact: str) -> dict[str, Any]:
    """Each number with a fraction rounded, seconds (`..._s`) as such; the fields that are named are left alone."""
    return {name: value if name in exact else _rounded_value(name, value) for name, value in fields.items()}


def _rounded_value(name: str, value: Any) -> Any:
    if isinstance(value, float):
        return rounded(value, DIGITS_OF_SECONDS if name.endswith("_s") else _DIGITS_OF_STATISTICS)
    return rounded_fields(value) if isinstance(value, Mapping) else value


def laid_out(value: Any) -> Any:
    """Mappings and lists of short plain values alone on one line; others a value a line."""
    if isinstance(value, Mapping):
        items = {str(name): laid_out(item) for name, item in value.items()}
        return OneLine(items) if all(map(_is_short, items.values())) else items
    if isinstance(value, (list, tuple)):
        listed = [laid_out(item) for item in value]
        return OneLineList(listed) if _is_plain(listed) else listed
    return value


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST_ON_A_LINE and "\n" not in value
    return isinstance(value, OneLineList) or not isinstance(value, (dict, list))


def _is_plain(items: Sequence[Any]) -> bool:
    """Of numbers, or of words: a sentence has a line of its own."""
    return all(not isinstance(item, (dict, list)) and not (isinstance(item, str) and " " in item) for item in items)


def without_nulls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An empty list stays: of it is known that there is none."""
    return {name: value for name, value in fields.items() if value is not None}


_MAP, _LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


class _Dumper(yaml.SafeDumper):
    """Writes every value in full: no anchors, so that any reader of YAML takes it."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the base class asks per value
        return True


_Dumper.add_multi_representer(Word, lambda dumper, data: dumper.represent_str(str(data)))
_Dumper.add_representer(OneLine, lambda dumper, data: dumper.represent_mapping(_MAP, data, flow_style=True))
_Dumper.add_representer(OneLineList, lambda dumper, data: dumper.represent_sequence(_LIST, data, flow_style=True))


def to_yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


EVALUATION_CONFIG_SCHEMA = "evaluation_config.schema.json"
FIRST_SCHEMA = "evaluation_config.v1.schema.json"
"""Of a file with `schema_version: 1`, which is still read."""
RESULTS_SCHEMA = "results.schema.json"
SUITE_RESULTS_SCHEMA = "suite_results.schema.json"


def evaluation_config(result: TaskResult, config: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The standardised result, the most important first, and no number twice.

    Args:
        config: `config` and `target` as far as the user set them, redacted; run_config.yml has all of them.
    """
    from eval_factory.core.results import SCHEMA_VERSION  # imported here: a dry run needs `to_yaml` alone

    return {
        "schema_version": SCHEMA_VERSION,
        "status": result.status,
        "main_metric": result.main_metric,
        "results": {"tasks": _task(result), "groups": _groups(result)},
        "validity": _validity(result),
        **_clinicians(result),
        "comparability": _comparability(result.comparability),
        "usage": laid_out(usage(result.usage)),
        "provenance": _provenance(result.provenance),
        "config": config["config"],
        "target": config["target"],
        "command": command,
    }


def _task(result: TaskResult) -> dict[str, Any]:
    """The main metric's score a value a line and first, the others in short.

    Of the metric, split and perturbation stands what does not follow from the score's name: a plain name is HELM's own
    name of the metric, over the main split, with nothing perturbed.
    """
    split = result.validity.main_split
    usual = {name: {"metric": name, "split": split, "perturbation": None} for name in result.scores}
    scores = {name: OneLine(_score_and_facts(score, usual[name])) for name, score in result.scores.items()}
    main = scores.get(result.main_metric)
    first = {} if main is None else {result.main_metric: {**main, "stats": OneLine(main["stats"])}}
    return {result.task: {"metrics": {"score": {"scores": {**first, **scores, **first}}}}}


def _groups(result: TaskResult) -> dict[str, Any]:
    """A score of a group does not repeat what the score of that name in `tasks` says of its metric."""
    known = {name: _facts(score) for name, score in result.scores.items()}
    groups = {
        field: {"groups": {value: _group(scores, known) for value, scores in by_value.items()}}
        for field, by_value in result.groups.items()
    }
    return {result.task: {"groups": groups}} if groups else {}


def _group(scores: Scores, known: Mapping[str, Mapping[str, Any]]) -> OneLine:
    written = {name: _score_and_facts(score, known.get(name, {})) for name, score in scores.items()}
    return OneLine({"metrics": {"score": {"scores": written}}})


def _score_and_facts(score: Score, known: Mapping[str, Any]) -> dict[str, Any]:
    """What a score says of itself beside its value and statistics, but for what is known without it."""
    facts = {name: fact for name, fact in _facts(score).items() if name not in known or known[name] != fact}
    return {**_score(score), **facts}


def _facts(score: Score) -> dict[str, Any]:
    """Every other field of a score; null where it does not have it."""
    facts = {field.name: getattr(score, field.name) for field in fields(score) if field.name not in ("value", "stats")}
    return {**facts, "scale": None if score.scale is None else OneLineList(map(_end, score.scale))}


def _end(number: float) -> float:
    """An end of a scale: 1, not 1.0."""
    return int(number) if float(number).is_integer() else number


def _validity(result: TaskResult) -> dict[str, Any]:
    """Whether it may be reported first, the words last; a jury only where there is one."""
    record = asdict(result.validity)
    first = {
        "reportable": result.reportable,
        "coverage": rounded(result.validity.coverage, _DIGITS_OF_STATISTICS),
        "not_reportable": record.pop("not_reportable"),
    }
    last = {name: record.pop(name) for name in ("failures", "notes")}
    jury = None if result.validity.jury is None else rounded_fields(_jury(record["jury"]))
    orders = None if result.validity.choice_orders is None else rounded_fields(record["choice_orders"])
    written: dict[str, Any] = laid_out(
        without_nulls({**first, **record, "jury": jury, "choice_orders": orders, **last})
    )
    floors = {
        name: OneLine({key: value for key, value in floor.items() if value or key != "assumed"})
        for name, floor in written["floors"].items()
    }
    return {**written, "floors": floors}


def _jury(record: dict[str, Any]) -> dict[str, Any]:
    """Without what only a benchmark with its own scale or criteria says, and what an older version did not look at."""
    may_be_empty = ("labels", "criteria", "length_correlation")
    return {name: value for name, value in record.items() if value or name not in may_be_empty}


def _comparability(record: Comparability | None) -> dict[str, Any] | None:
    """What is empty is left out: of a run with the leaderboard's settings one line is left."""
    if record is None:
        return None
    told = {
        "reason": record.reason,
        "deviations": [asdict(deviation) for deviation in record.deviations],
        "remarks": list(record.remarks),
    }
    return {"medhelm_settings": record.medhelm_settings, **{name: found for name, found in told.items() if found}}


def _clinicians(result: TaskResult) -> dict[str, Any]:
    """Absent where nobody rated; what is not defined is left out."""
    if result.clinicians is None:
        return {}
    record = asdict(result.clinicians)
    judges = {judge: rounded_fields(without_nulls(one)) for judge, one in record["judges"].items()}
    parts = {name: None if record[name] is None else rounded_fields(without_nulls(record[name]))
             for name in ("corrected", "too_few", "agreement")}  # fmt: skip
    told = {**record, **parts, "judges": judges}
    filled = {name: value for name, value in told.items() if value not in (None, {}, ())}
    written: dict[str, Any] = laid_out(filled)
    return {"clinicians": written}


def _provenance(record: Provenance) -> dict[str, Any]:
    told = without_nulls(asdict(record))
    for asked in told["endpoints"].values():
        if asked["servers"] is None:  # there is one, as there was before there could be several
            del asked["servers"]
    written: dict[str, Any] = laid_out(told)
    return written


def usage(record: Usage) -> dict[str, Any]:
    """At the top the figures of this run; by role, and of all runs, where these are others."""
    return {
        **_spent(record.this_run.total),
        "wall_s": seconds(record.wall_s),
        **({} if record.cost_unknown is None else {"cost_unknown": record.cost_unknown}),
        **({} if _is_model_alone(record.this_run) else {"this_run": {"roles": _roles(record.this_run)}}),
        **({} if record.runs == 1 and record.all_runs == record.this_run else {"all_runs": _all_runs(record)}),
    }


def _all_runs(record: Usage) -> dict[str, Any]:
    roles = {} if _is_model_alone(record.all_runs) else {"roles": _roles(record.all_runs)}
    return {"runs": record.runs, **_spent(record.all_runs.total), **roles}


def _roles(spent: SpentByRole) -> dict[str, Any]:
    return {role: _spent(one) for role, one in spent.roles.items()}


def _spent(spent: Spent) -> dict[str, Any]:
    """The cost only where something of it is known; its price to the last digit: from it the cost is made again."""
    fields_of_it = rounded_fields({name: value for name, value in asdict(spent).items() if name != "cost"})
    if spent.cost is None:
        return fields_of_it
    price = {} if spent.cost.price is None else {"price": spent.cost.price.as_written()}
    cost = rounded_fields({name: value for name, value in vars(spent.cost).items() if name != "price"})
    return {**fields_of_it, "cost": {**cost, **price}}


def _is_model_alone(spent: SpentByRole) -> bool:
    """Whether the figures of the roles are those of all."""
    return dict(spent.roles) == {MODEL_ROLE: spent.total}


def results_yml(result: TaskResult, config: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The same in EvalFactory's own shape."""
    return {
        "git_hash": result.provenance.git_hash or "",
        "command": command,
        "config": config["config"],
        "target": config["target"],
        "results": _results(result),
    }


def run_config(
    config: Mapping[str, Any], command: str, framework_name: str, pkg_name: str, more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The full merged configuration that is run. `more`: sections that few runs have."""
    return {
        "command": command,
        "framework_name": framework_name,
        "pkg_name": pkg_name,
        "config": config["config"],
        "target": config["target"],
        **(more or {}),
    }


def _results(result: TaskResult) -> dict[str, Any]:
    """EvalFactory's shape, in which `groups` holds the scores of the whole again."""
    groups = {
        field: {"groups": {value: {"metrics": _metrics(scores)} for value, scores in by_value.items()}}
        for field, by_value in result.groups.items()
    }
    metrics = _metrics(result.scores)
    return {
        "tasks": {result.task: {"metrics": metrics}},
        "groups": {result.task: {"metrics": metrics, "groups": groups}},
    }


def _metrics(scores: Scores) -> dict[str, Any]:
    return {"score": {"scores": {name: _score(score) for name, score in scores.items()}}}


def _score(score: Score) -> dict[str, Any]:
    """The value to the last digit, its statistics rounded; a statistic that is not defined is left out."""
    return {"value": score.value, "stats": rounded_fields(without_nulls(asdict(score.stats)), "mean")}


def instance_line(record: InstanceRecord) -> dict[str, Any]:
    """One line of instances.jsonl."""
    return {
        "id": record.id,
        "split": record.split,
        "sub_split": record.sub_split,
        "trial": record.trial,
        "perturbation": record.perturbation,
        "prompt": record.prompt,
        **({"turns": list(record.turns)} if record.turns else {}),
        "references": list(record.references),
        **{f"extra.{name}": value for name, value in record.categories.items()},
    }


def result_line(record: InstanceRecord) -> dict[str, Any]:
    """One line of results.jsonl."""
    return {
        "id": record.id,
        "split": record.split,
        "trial": record.trial,
        "perturbation": record.perturbation,
        "completion": record.completion,
        "metrics": dict(record.metrics),
        "finish_reason": record.finish_reason,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "latency_s": seconds(record.latency_s),
        "cached": record.cached,
        "error": record.error,
        **({"judges": dict(record.judges)} if record.judges else {}),
        **({"unjudged": True} if record.unjudged else {}),
        **({"injection": list(record.injection)} if record.injection else {}),
        **({"signs": list(record.signs)} if record.signs else {}),
        **({"cluster": record.cluster} if record.cluster is not None else {}),
        **({"reasoning": record.reasoning} if record.reasoning is not None else {}),
        **({"judgements": dict(record.judgements)} if record.judgements else {}),
        **({"criteria": list(record.criteria)} if record.criteria else {}),
    }


def schema(name: str) -> dict[str, Any]:
    """A JSON Schema that comes with the package."""
    text = (resources.files("eval_factory.report") / "schemas" / name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def check_document(document: Mapping[str, Any], schema_name: str) -> None:
    """Raises `jsonschema.ValidationError` where a document is not of its schema: a defect of ours."""
    from jsonschema.exceptions import best_match  # imported here: `--dry_run` checks nothing

    error = best_match(_validator(schema_name).iter_errors(document))
    if error is not None:
        raise error


@cache
def _validator(schema_name: str) -> Any:
    """Of a schema that comes with the package; that it is one, a test checks: `jsonschema.validate` does each time."""
    from jsonschema.validators import validator_for

    loaded = schema(schema_name)
    return validator_for(loaded)(loaded)
