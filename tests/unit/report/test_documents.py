from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.core.results import FailureCause, Score, Spent, SpentByRole, TaskResult, Usage
from eval_factory.report import documents
from eval_factory.report.screen import summary
from eval_factory.report.write import _response_line, html
from unit.builders import plan
from unit.scoring.test_collect import FOUR, result_of, state


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    return result_of(tmp_path, states=[state(i, "<b>yes</b>") for i in range(4)], values={"exact_match": FOUR})


def test_documents_are_of_their_schemas(result: TaskResult) -> None:
    config = plan().evaluation.as_dict()
    document = documents.evaluation_config(result, config, "helm-run x")
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    other = documents.results_yml(result, config, "helm-run x")
    documents.check(other, documents.RESULTS_SCHEMA)
    assert list(other) == ["git_hash", "command", "config", "target", "results"]
    assert yaml.safe_load(documents.to_yaml(document)) == document


@pytest.mark.parametrize(("patches", "shown"), [(None, None), ((), []), (("a", "b"), ["a", "b"])])
def test_patches_are_a_list_or_unknown(result: TaskResult, patches: Any, shown: Any) -> None:
    given = replace(result, provenance=replace(result.provenance, patches=patches))
    document = documents.evaluation_config(given, plan().evaluation.as_dict(), "helm-run x")
    documents.check(document, documents.EVALUATION_CONFIG_SCHEMA)
    assert document["provenance"]["patches"] == shown


def test_the_schema_refuses_what_it_does_not_know(result: TaskResult) -> None:
    document = documents.evaluation_config(result, plan().evaluation.as_dict(), "helm-run x")
    with pytest.raises(jsonschema.ValidationError):
        documents.check({**document, "surprise": 1}, documents.EVALUATION_CONFIG_SCHEMA)


def test_html_escapes_and_loads_nothing(result: TaskResult) -> None:
    page = html(result, "helm-run <x>")
    assert "<x>" not in page
    assert "&lt;x&gt;" in page
    assert "exact_match" in page
    assert "http" not in page
    assert "<script" not in page


def test_lines(result: TaskResult) -> None:
    instance = documents.instance_line(next(iter(result.instances)))
    assert instance["id"] == "id0"
    assert instance["extra.category"] == "even"
    assert "extra.long" not in instance
    line = documents.result_line(next(iter(result.instances)))
    assert (line["completion"], line["metrics"]) == ("<b>yes</b>", {"exact_match": 1.0})


def test_summary(result: TaskResult) -> None:
    text = summary(result, plan().rundir)
    assert text.startswith("pubmed_qa: exact_match = 0.5000  (95 % interval")
    assert text.endswith("/results/x/evaluation_config.yaml")


def test_answers_that_say_nothing_are_shown(result: TaskResult) -> None:
    said = "3 answers say nothing that can be scored"
    counts = replace(result.validity.instances, unreadable=3)
    bad = replace(result, reportable=False, validity=replace(result.validity, instances=counts))
    assert f"; {said}\n" in summary(bad, plan().rundir)
    assert said in " ".join(html(bad, "helm-run").split())
    assert said not in summary(result, plan().rundir)
    line = documents.result_line(replace(next(iter(result.instances)), signs=("refused",)))
    assert line["signs"] == ["refused"]
    assert "signs" not in documents.result_line(next(iter(result.instances)))


def test_json_lines_hold_no_number_that_is_none() -> None:
    odd = {"a": float("nan"), "b": [1.5, float("inf"), {"c": -float("inf")}], "d": (1, float("nan")), "e": "NaN"}
    lines = list(documents.json_lines([odd, {"a": 1.5}]))
    assert lines == ['{"a": null, "b": [1.5, null, {"c": null}], "d": [1, null], "e": "NaN"}\n', '{"a": 1.5}\n']


def causes(*counts: int) -> tuple[FailureCause, ...]:
    return tuple(FailureCause("model", count, f"HTTP 400: cause {count}", None) for count in counts)


def changed(result: TaskResult, **validity: Any) -> TaskResult:
    return replace(result, validity=replace(result.validity, **validity))


def shown(result: TaskResult) -> list[str]:
    return summary(result, plan().rundir).split("\n")


def test_the_screen_says_why_instances_failed_and_what_may_help(result: TaskResult) -> None:
    failures = (
        FailureCause("model", 8, "HTTP 400: maximum context length is 768 tokens", "try max_length"),
        FailureCause("gpt", 3, "HTTP 500: boom", None),
    )
    lines = shown(changed(result, failures=failures))
    at = lines.index("  failed: 8 x HTTP 400: maximum context length is 768 tokens; try max_length")
    assert lines[at + 1] == "  judge gpt: 3 x HTTP 500: boom"
    assert lines[at - 1].startswith("  instances: ")
    assert lines[at + 2].startswith("  requests: ")


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("It is so.", "It is so"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 120 + " ..."),
        (f"{'x' * 119} yz", "x" * 119 + " ..."),
    ],
)
def test_a_cause_is_short_on_the_screen(cause: str, told: str, result: TaskResult) -> None:
    failures = (FailureCause("model", 2, cause, "try it"),)
    assert f"  failed: 2 x {told}; try it" in shown(changed(result, failures=failures))


def test_the_screen_shows_the_most_frequent_causes(result: TaskResult) -> None:
    lines = [line for line in shown(changed(result, failures=causes(*range(9, 2, -1)))) if "cause" in line]
    assert [line.split()[1] for line in lines[:-1]] == ["9", "8", "7", "6", "5"]
    assert lines[-1] == "  2 more causes of failures: validity.failures, report.html"
    assert not any("more cause" in line for line in shown(changed(result, failures=causes(*range(5, 0, -1)))))
    one_more = shown(changed(result, failures=causes(*range(6, 0, -1))))
    assert "  1 more cause of failures: validity.failures, report.html" in one_more


@pytest.mark.parametrize(("count", "more"), [(0, None), (5, None), (6, "1 more note"), (8, "3 more notes")])
def test_the_screen_shows_five_notes_and_says_where_the_rest_is(
    count: int, more: str | None, result: TaskResult
) -> None:
    lines = shown(changed(result, notes=tuple(f"number {number}" for number in range(count))))
    assert [line for line in lines if "note: " in line] == [
        f"  note: number {number}" for number in range(min(count, 5))
    ]
    told = [line for line in lines if "more note" in line]
    assert told == ([f"  {more} of less weight: validity.notes, report.html"] if more else [])


def test_the_screen_says_which_split_a_score_is_of(result: TaskResult) -> None:
    of_valid = Score(0.25, result.scores["exact_match"].stats, "exact_match", "valid")
    split = replace(
        changed(result, splits={"test": 4, "train": 1, "valid": 2}, main_split="test"),
        scores={**result.scores, "exact_match@valid": of_valid},
    )
    first, second, third, fourth, *_ = shown(split)
    assert first.startswith("pubmed_qa: exact_match = 0.5000 over the 4 instances of split test  (95 % interval")
    assert second == "  split train: 1 instance more have no such score"
    assert third == "  split valid: 2 instances more: exact_match@valid = 0.2500"
    assert fourth.endswith("(7 instances, each trial and perturbation counted)")


def test_a_score_over_fewer_instances_says_so(result: TaskResult) -> None:
    counts = replace(result.validity.instances, scored=5)
    assert shown(changed(result, instances=counts))[0].startswith(
        "pubmed_qa: exact_match = 0.5000 over 4 instances  (95"
    )
    assert "over" not in shown(result)[0]
    assert "perturbation" not in shown(result)[1]


def spent(requests: int, tokens: int | None) -> Spent:
    return Spent(requests, 1, 2, tokens, tokens, 0.5, None)


def test_the_screen_shows_the_usage_of_this_run_by_role_and_of_all_runs(result: TaskResult) -> None:
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    usage = Usage(SpentByRole(spent(7, 40), both), SpentByRole(spent(9, 90), both), 3, 1.0)
    lines = shown(replace(result, usage=usage))
    at = lines.index("  requests: 7 sent, 1 from the cache, 2 retries; 40 prompt and 40 completion tokens")
    assert lines[at + 1 : at + 4] == [
        "    gpt: 4 sent, 1 from the cache, 2 retries; 40 prompt and 40 completion tokens",
        "    model: 3 sent, 1 from the cache, 2 retries",
        "  with the 2 runs before: 9 sent, 1 from the cache, 2 retries; 90 prompt and 90 completion tokens",
    ]
    twice = Usage(SpentByRole(spent(7, 40), {}), SpentByRole(spent(9, None), {}), 2, 1.0)
    assert "  with the 1 run before: 9 sent, 1 from the cache, 2 retries" in shown(replace(result, usage=twice))
    alone = Usage(SpentByRole(spent(7, 40), {"model": spent(7, 40)}), SpentByRole(spent(7, 40), {}), 1, 1.0)
    assert len([line for line in shown(replace(result, usage=alone)) if "sent" in line]) == 1
    document = documents.usage(usage)
    assert (document["requests"], document["wall_s"], document["all_runs"]["runs"]) == (7, 1.0, 3)
    assert document["this_run"]["roles"]["gpt"]["prompt_tokens"] == 40
    assert document["all_runs"]["requests"] == 9


def test_the_page_holds_all_of_it_printable(result: TaskResult) -> None:
    failures = (*causes(*range(9, 2, -1)), FailureCause("gpt", 1, "odd \x1b[2J\u202e<b>", "try max_length"))
    both = {"gpt": spent(4, 40), "model": spent(3, None)}
    page = html(
        replace(
            changed(result, failures=failures, notes=tuple(f"number {n}" for n in range(8)), splits={"test": 4, "valid": 2}),
            usage=Usage(SpentByRole(spent(7, 40), both), SpentByRole(spent(9, 90), both), 3, 1.0), reportable=False,
        ),
        "helm-run \x9b\u2028",
    )  # fmt: skip
    assert all(f"cause {count}" in page for count in range(3, 10))
    assert all(f"<li>number {number}</li>" in page for number in range(8))
    assert "odd \\x1b[2J\\u202e&lt;b&gt;" in page
    assert "judge gpt" in page
    assert "try max_length" in page
    assert "Instances by split: test 4, valid 2." in page
    assert "helm-run \\x9b\\u2028" in page
    assert "all runs, gpt" in page
    assert "Not reportable" in page
    assert page.replace("\n", "").isprintable()


def test_json_lines_are_lines_to_every_reader() -> None:
    text = "".join(documents.json_lines([{"a": "x\u2028y\x85\ud800", "b": float("inf")}, {"a": 1}]))
    assert text == '{"a": "x\\u2028y\\u0085\\ud800", "b": null}\n{"a": 1}\n'


def row(response: str) -> dict[str, Any]:
    return {"key": "k", "model_id": "m", "created": 1.0, "latency_s": 2.0, "request": "{}", "response": response}


def test_a_response_is_written_whatever_is_in_it() -> None:
    redactor = Redactor(["a-known-key-value-1"])
    line = json.loads(_response_line(row('{"a": [Infinity, NaN, 1], "b": "a-known-key-value-1\\u2028"}'), redactor))
    assert line["response"] == {"a": [None, None, 1], "b": f"{REDACTED}\u2028"}
    deep = "[" * 100_000 + "]" * 100_000
    assert json.loads(_response_line(row(deep), redactor))["response"] == deep
    assert json.loads(_response_line(row(f'{{"a": {"9" * 5000}}}'), redactor))["key"] == "k"
