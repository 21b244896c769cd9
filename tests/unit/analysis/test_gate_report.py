"""What a gate found, in four forms."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from eval_factory.analysis.gate import BenchmarkOutcome, Check, GateResult
from eval_factory.analysis.gate_report import document, markdown, text, write_junit

KEPT = Check("min", "pass", "0.7 is at least 0.6", None, 0.6, 0.7, 0.65, 0.75)
BROKEN = Check("max_drop", "fail", "-0.2 on 40 | pairs\x00", "topic=a|b", 0.05, -0.2, -0.3, -0.1)
UNSURE = Check("max_drop", "inconclusive", "may be worse", None, 0.05, -0.04, -0.1, 0.02)


@pytest.fixture
def found() -> GateResult:
    return GateResult(
        Path("policy.yml"),
        "ab" * 32,
        "fail",
        (
            BenchmarkOutcome("pubmed_qa", "critical", "exact_match", "fail", (KEPT, BROKEN), "fail"),
            BenchmarkOutcome("medec", "advisory", "flag", "inconclusive", (UNSURE,), "pass"),
            BenchmarkOutcome("head_qa", "critical", None, "inconclusive", (UNSURE,), "inconclusive"),
        ),
        ("sample",),
    )


def test_text(found: GateResult) -> None:
    assert text(found).splitlines() == [
        "gate: FAIL (policy.yml, sha256 abababababab)",
        "  FAIL          pubmed_qa (critical, exact_match)",
        "    min: 0.7 is at least 0.6",
        "    max_drop [topic=a|b]: -0.2 on 40 | pairs\x00",
        "  INCONCLUSIVE  medec (advisory, flag, counts as pass)",
        "    max_drop: may be worse",
        "  INCONCLUSIVE  head_qa (critical)",
        "    max_drop: may be worse",
        "not in the policy, not counted: sample",
    ]


def test_markdown_keeps_its_columns_whatever_the_words(found: GateResult) -> None:
    lines = markdown(found).splitlines()
    assert lines[0] == "## Gate: FAIL"
    assert lines[6] == "| pubmed_qa | critical, exact_match | min | PASS | 0.7 is at least 0.6 |"
    assert lines[7].startswith(
        "| pubmed_qa | critical, exact_match | max_drop [topic=a\\|b] | FAIL | -0.2 on 40 \\| pairs"
    )
    assert lines[-1] == "Not in the policy, not counted: sample"
    assert f"SHA-256 `{'ab' * 32}`" in lines[2]


def test_json_holds_every_figure(found: GateResult) -> None:
    told = document(found)
    assert (told["outcome"], told["exit_code"], told["policy"]) == ("fail", 1, "policy.yml")
    assert told["benchmarks"][0]["checks"][0] == {
        "limit": "min", "outcome": "pass", "message": "0.7 is at least 0.6", "group": None, "allowed": 0.6,
        "observed": 0.7, "ci_low": 0.65, "ci_high": 0.75,
    }  # fmt: skip
    assert told["benchmarks"][1]["counted_as"] == "pass"
    assert told["not_in_policy"] == ["sample"]


def test_junit_fails_what_counts_and_skips_what_does_not(found: GateResult, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    write_junit(found, path)
    root = ElementTree.parse(path).getroot()  # noqa: S314 - our own file
    (suite,) = root.iter("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    cases = [
        (case.get("classname"), case.get("name"), [child.tag for child in case]) for case in suite.iter("testcase")
    ]
    assert cases == [
        ("eval-factory gate.pubmed_qa", "min", []),
        ("eval-factory gate.pubmed_qa", "max_drop [topic=a|b]", ["failure"]),
        ("eval-factory gate.medec", "max_drop", ["skipped"]),
        ("eval-factory gate.head_qa", "max_drop", ["failure"]),
    ]
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert messages == ["fail: -0.2 on 40 | pairs\ufffd", "inconclusive: may be worse"]
    assert [failure.get("type") for failure in suite.iter("failure")] == ["fail", "inconclusive"]
