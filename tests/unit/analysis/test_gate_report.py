"""Tests of what a gate found, as text, Markdown, JUnit and statements."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from eval_factory.analysis import gate_report
from eval_factory.analysis.gate import BenchmarkOutcome, GateResult
from eval_factory.analysis.gate_checks import Check
from eval_factory.analysis.gate_policy import LIMITS
from eval_factory.analysis.gate_report import (
    commitment,
    gate_document,
    gate_markdown,
    gate_text,
    write_statements,
)
from eval_factory.core.enums import Verdict
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.results import ImportedFrom
from eval_factory.core.rundir import RunDir
from eval_factory.report.checksums import digests_of, write_checksums
from eval_factory.report.reader import StoredResult, load_result
from facts import each_says, naming, rows_of, says
from stored_results import PROVENANCE, right_or_wrong

KEPT = Check("min", Verdict.PASS, "0.7 is at least 0.6", None, 0.6, 0.7, 0.65, 0.75)
BROKEN = Check(
    "max_drop", Verdict.FAIL, "-0.2 on 40 | pairs\x00", "topic=a|b", 0.05, -0.2, -0.3, -0.1
)
UNSURE = Check("max_drop", Verdict.INCONCLUSIVE, "may be worse", None, 0.05, -0.04, -0.1, 0.02)


OUTCOMES = (
    BenchmarkOutcome(
        "pubmed_qa", "critical", "exact_match", Verdict.FAIL, (KEPT, BROKEN), Verdict.FAIL
    ),
    BenchmarkOutcome("medec", "advisory", "flag", Verdict.INCONCLUSIVE, (UNSURE,), Verdict.PASS),
    BenchmarkOutcome(
        "head_qa", "critical", None, Verdict.INCONCLUSIVE, (UNSURE,), Verdict.INCONCLUSIVE
    ),
)
FOUND = GateResult(Path("policy.yml"), "ab" * 32, Verdict.FAIL, OUTCOMES, ("sample",))


def test_text() -> None:
    each_says(
        gate_text(FOUND).splitlines(),
        ["gate: FAIL", "policy.yml", "sha256 abababababab", "not locked"],
        ["FAIL pubmed_qa", "critical, exact_match"],
        ["min: 0.7", "at least 0.6"],
        [r"max_drop [topic=a|b]: -0.2", r"40 | pairs\x00"],
        ["INCONCLUSIVE medec", "advisory, flag", "counts as pass"],
        ["max_drop: ", "may be worse"],
        ["INCONCLUSIVE head_qa (critical)"],
        ["max_drop: ", "may be worse"],
        ["not in the policy", "sample"],
    )


def test_markdown_keeps_its_columns_whatever_the_words() -> None:
    lines = gate_markdown(FOUND).splitlines()
    assert lines[0] == "## Gate: FAIL"
    cells = rows_of(lines[6])[0]
    assert cells[:4] == ["pubmed_qa", "critical, exact_match", "min", "PASS"]
    says(cells[4], "0.7", "at least 0.6")
    cells = rows_of(lines[7])[0]
    assert cells[1:4] == ["critical, exact_match", "max_drop `[topic=a¦b]`", "FAIL"]
    says(cells[4], "-0.2", "40 `¦` `pairs\\x00`")
    says(lines[-1].lower(), "not in the policy", "sample")
    assert f"SHA-256 `{'ab' * 32}`" in lines[2]


def test_json_holds_every_figure() -> None:
    told = gate_document(FOUND)
    assert (told["outcome"], told["exit_code"], told["policy"]) == ("fail", 1, "policy.yml")
    check = dict(told["benchmarks"][0]["checks"][0])
    says(check.pop("message"), "0.7", "at least 0.6")
    assert check == {
        "limit": "min",
        "outcome": "pass",
        "group": None,
        "allowed": 0.6,
        "observed": 0.7,
        "ci_low": 0.65,
        "ci_high": 0.75,
        "can_fail": True,
    }
    assert (told["benchmarks"][1]["counted_as"], told["not_in_policy"]) == ("pass", ["sample"])
    assert (told["locked_at"], told["notes"]) == (None, [])
    told = json.loads(json.dumps(gate_document(replace(FOUND, locked_at=LOCKED, notes=(HOSTILE,)))))
    assert (told["locked_at"], told["notes"]) == ("2026-11-22T06:30:00+00:00", [HOSTILE])


def test_junit_fails_what_counts_and_skips_what_does_not(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    gate_report.write_junit(FOUND, path)
    (suite,) = ElementTree.parse(path).getroot().iter("testsuite")  # noqa: S314 - our own file
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    cases = suite.iter("testcase")
    assert [
        (case.get("classname"), case.get("name"), [child.tag for child in case]) for case in cases
    ] == [
        ("eval-factory gate.pubmed_qa", "min", []),
        ("eval-factory gate.pubmed_qa", "max_drop [topic=a|b]", ["failure"]),
        ("eval-factory gate.medec", "max_drop", ["skipped"]),
        ("eval-factory gate.head_qa", "max_drop", ["failure"]),
    ]
    failures = list(suite.iter("failure"))
    assert [failure.get("type") for failure in failures] == ["fail", "inconclusive"]
    each_says(
        [str(failure.get("message")) for failure in failures],
        ["fail: -0.2", r"40 | pairs\x00"],
        ["inconclusive: ", "may be worse"],
    )


LOCKED = datetime(2026, 11, 22, 6, 30, tzinfo=timezone.utc)
HOSTILE = (
    "a\n::error::forged\r| PASS | x |`</td><script>alert(1)</script>![i](http://192.0.2.1/x) [l](javascript:x) \x1b[2J"
    "\u202e\ud800 ]]>"
)


@pytest.fixture
def hostile() -> GateResult:
    check = Check("min", Verdict.FAIL, HOSTILE, f"topic={HOSTILE}")
    one = BenchmarkOutcome(HOSTILE, "critical", HOSTILE, Verdict.FAIL, (check,), Verdict.FAIL)
    return GateResult(
        Path("p\n`x`.yml"), "ab" * 32, Verdict.FAIL, (one,), (HOSTILE,), LOCKED, (HOSTILE,)
    )


def test_foreign_names_begin_no_line_of_a_text(hostile: GateResult) -> None:
    lines = gate_text(hostile).split("\n")
    assert [line[:11] for line in lines] == [
        "gate: FAIL ",
        "  FAIL     ",
        "    min [to",
        "not in the ",
        "note: a\\n::",
        "",
    ]
    assert all(line.isprintable() for line in lines)
    says(lines[0], "locked on 2026-11-22 06:30")


def test_foreign_names_are_no_markdown(hostile: GateResult) -> None:
    said = gate_markdown(hostile)
    shown = MarkdownIt("commonmark").enable("table").render(said)
    assert not re.search(r"<(script|img|a)\b", shown)
    assert (shown.count("<tr>"), shown.count("<td")) == (2, 5)
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 6
    assert all(line.isprintable() for line in said.split("\n"))
    says(said, "locked on 2026-11-22 06:30", "SHA-256")


def test_foreign_names_are_sound_xml(hostile: GateResult, tmp_path: Path) -> None:
    path = tmp_path / "sub" / "junit.xml"
    gate_report.write_junit(hostile, path)
    (suite,) = JUnitXml.fromfile(str(path))
    assert [child.tag for child in ElementTree.parse(path).getroot()[0]] == [  # noqa: S314
        "properties",
        "testcase",
    ]
    (case,) = suite
    assert case.classname == f"{gate_report._SUITE}.{printable(HOSTILE)}"
    assert case.name == f"min [topic={printable(HOSTILE)}]"
    properties = list(suite.properties())  # type: ignore[no-untyped-call]
    says(str(properties[1].value), "2026-11-22 06:30 UTC")
    assert [(found.name, found.value) for found in properties[::2]] == [
        ("policy_sha256", "ab" * 32),
        ("note", printable(HOSTILE)),
    ]


BEGAN = datetime(2026, 11, 22, 6, 0, tzinfo=timezone.utc)
MADE = replace(PROVENANCE, started_at="2026-11-22T06:00:00Z", ended_at="2026-11-22T06:05:00Z")
LEAST = Check("min", Verdict.PASS, "", None, 0.6, 0.75, 0.65, 0.8)
DROP = Check("max_drop", Verdict.INCONCLUSIVE, "", "topic=a", 0.00001, -0.02, -0.1, 0.05)
MISSING = Check("result", Verdict.FAIL, "no candidate has a result of this benchmark")
SALT = b"0123456789abcdef"


@pytest.fixture
def stored(tmp_path: Path) -> StoredResult:
    folder = right_or_wrong(tmp_path / "a", "1101", provenance=MADE)
    write_checksums(RunDir(folder), load_result(folder).result, digests_of(RunDir(folder), []))
    return load_result(folder)


def held(
    folder: Path, task: str = "pubmed_qa", *checks: Check, locked_at: datetime | None = None
) -> GateResult:
    one = BenchmarkOutcome(
        task, "critical", "exact_match", Verdict.PASS, checks or (LEAST,), Verdict.PASS, folder
    )
    missing = BenchmarkOutcome("medec", "critical", None, Verdict.FAIL, (MISSING,), Verdict.FAIL)
    return GateResult(Path("policy.yml"), "d" * 64, Verdict.FAIL, (one, missing), (), locked_at)


def statement(
    stored: StoredResult, *checks: Check, locked_at: datetime | None = None
) -> dict[str, Any]:
    gate = held(stored.folder, "pubmed_qa", *checks, locked_at=locked_at)
    who = "https://lab.example/"
    return gate_report.gate_statement(
        stored, "exact_match", checks, evaluator=who, salt=SALT, gate=gate
    )


def test_a_statement(stored: StoredResult) -> None:
    """Each limit is a claim, and only what was shown is passed. The model is named to those alone who know the salt."""
    receipt = {
        "name": "SHA256SUMS",
        "digest": {
            "sha256": hashlib.sha256((stored.folder / "SHA256SUMS").read_bytes()).hexdigest()
        },
    }
    of_files, model = (
        hashlib.sha256(one).hexdigest() for one in (f"{'a' * 64}\n".encode(), SALT + b"org/model")
    )
    made = statement(stored, LEAST, DROP, MISSING)
    assert made == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [receipt],
        "predicateType": "https://in-toto.io/attestation/eval-result/v0.1",
        "predicate": {
            "evaluator": {"id": "https://lab.example/"},
            "evaluatedAt": "2026-11-22T06:05:00Z",
            "suite": {"name": "pubmed_qa", "version": "crfm-helm 0.5.16, errata 3"},
            "claims": [
                {"metric": "exact_match", "comparator": ">=", "threshold": "0.6", "passed": True},
                {
                    "metric": "drop of exact_match[topic=a] from the baseline",
                    "comparator": "<=",
                    "threshold": "0.00001",
                    "passed": False,
                },
            ],
            "sampleSize": 4,
            "commitments": {"model": {"alg": "sha256-salted-v1", "value": model, "salted": True}},
            "dataset": {"name": "pubmed_qa", "digest": {"evalFactoryFilesV1": of_files}},
            "assuranceLevel": "self_attested",
            "subjectProfile": "receipt",
            "evidence": [{**receipt, "mediaType": "text/plain"}],
            "harness": {"name": "eval-factory", "version": "1"},
        },
    }
    assert "org/model" not in str(made)
    source = ImportedFrom("inspect_ai", "0.3.2", {}, ())
    provenance = replace(stored.result.provenance, imported=source)
    imported = replace(stored, result=replace(stored.result, provenance=provenance))
    suite = statement(imported, LEAST)["predicate"]["suite"]
    assert suite == {"name": "pubmed_qa", "version": "inspect_ai 0.3.2, errata 3"}
    assert commitment(b"x", "org/model") != model


def test_where_no_files_are_known_the_data_are_named_by_the_prompts(stored: StoredResult) -> None:
    without = replace(
        stored, result=replace(stored.result, provenance=replace(MADE, dataset_files={}))
    )
    assert statement(without, LEAST)["predicate"]["dataset"]["digest"] == {
        "evalFactoryPromptsV1": "b" * 64
    }


@pytest.mark.parametrize(("seconds", "told"), [(-60, True), (0, True), (60, False)])
def test_only_a_lock_that_is_older_than_the_run_is_told(
    stored: StoredResult, seconds: int, told: bool
) -> None:
    found = statement(stored, LEAST, locked_at=BEGAN + timedelta(seconds=seconds))["predicate"]
    assert found.get("preRegistration") == ({"alg": "sha256", "value": "d" * 64} if told else None)


@pytest.mark.parametrize("lacking", ["started_at", "ended_at", "checksums"])
def test_a_result_without_times_or_checksums_gives_no_statement(
    stored: StoredResult, lacking: str
) -> None:
    if lacking == "checksums":
        (stored.folder / "SHA256SUMS").unlink()
    else:
        without = replace(MADE, **{lacking: None})  # type: ignore[arg-type]
        stored = replace(stored, result=replace(stored.result, provenance=without))
    with pytest.raises(PrerequisiteError, match=naming("checksums", "run it again")):
        statement(stored, LEAST)


def test_a_statement_is_written_for_each_benchmark_with_a_number(
    stored: StoredResult, tmp_path: Path
) -> None:
    (file,) = write_statements(held(stored.folder, locked_at=BEGAN), tmp_path / "signed", "urn:me")
    salt = file.with_name("pubmed_qa.eval-result.salt")
    assert file == tmp_path / "signed" / "pubmed_qa.eval-result.intoto.json"
    assert {path.name for path in file.parent.iterdir()} == {file.name, salt.name}
    assert salt.stat().st_mode & 0o777 == 0o600
    found = json.loads(file.read_text("utf-8"))["predicate"]
    assert found["preRegistration"]["value"] == "d" * 64
    assert found["commitments"]["model"]["value"] == commitment(
        bytes.fromhex(salt.read_text()), "org/model"
    )
    assert salt.read_text().strip() not in file.read_text("utf-8")


def test_the_same_result_gives_the_same_statement(stored: StoredResult, tmp_path: Path) -> None:
    (file,) = write_statements(held(stored.folder), tmp_path, "urn:me")
    first = file.read_bytes()
    assert write_statements(held(stored.folder), tmp_path, "urn:me") == [file]
    assert file.read_bytes() == first
    (other,) = write_statements(held(stored.folder), tmp_path / "other", "urn:me")
    assert other.read_bytes() != first  # another salt


def test_any_tasks_name_is_a_files(stored: StoredResult, tmp_path: Path) -> None:
    gates = [held(stored.folder, task) for task in ("helm:a/b", "helm-a-b")]
    names = {write_statements(gate, tmp_path, "urn:me")[0].name for gate in gates}
    assert len(names) == 2
    assert all("/" not in name and ":" not in name for name in names)


def test_a_gate_without_numbers_writes_nothing(tmp_path: Path) -> None:
    assert write_statements(held(tmp_path, "pubmed_qa", MISSING), tmp_path / "none", "urn:me") == []
    assert not (tmp_path / "none").exists()


def test_a_salt_that_is_none_is_refused(stored: StoredResult, tmp_path: Path) -> None:
    (tmp_path / "pubmed_qa.eval-result.salt").write_text("no salt")
    with pytest.raises(PrerequisiteError, match=naming("is not a salt", "move the file away")):
        write_statements(held(stored.folder), tmp_path, "urn:me")


@pytest.mark.parametrize("limit", LIMITS)
def test_a_statement_claims_each_limit(stored: StoredResult, limit: str) -> None:
    check = Check(limit, Verdict.PASS, "", None, 0.05, 0.1)
    (claim,) = statement(stored, check)["predicate"]["claims"]
    assert "exact_match" in claim["metric"]
    is_at_most = limit in ("max_drop", "max_relative_drop")
    assert (claim["comparator"], claim["threshold"]) == ("<=" if is_at_most else ">=", "0.05")
