"""What a gate found, in four forms."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt

from eval_factory.analysis.gate import BenchmarkOutcome, Check, GateResult
from eval_factory.analysis.gate_report import SUITE, document, markdown, text, write_junit
from eval_factory.core.foreign_text import printable

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
        "gate: FAIL (policy.yml, sha256 abababababab, not locked)",
        "  FAIL          pubmed_qa (critical, exact_match)",
        "    min: 0.7 is at least 0.6",
        r"    max_drop [topic=a|b]: -0.2 on 40 | pairs\x00",
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
    assert lines[7] == (
        r"| pubmed_qa | critical, exact_match | max_drop \[topic=a\|b\] | FAIL | -0.2 on 40 \| pairs\\x00 |"
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
    assert (told["locked_at"], told["notes"]) == (None, [])


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
    assert messages == [r"fail: -0.2 on 40 | pairs\x00", "inconclusive: may be worse"]
    assert [failure.get("type") for failure in suite.iter("failure")] == ["fail", "inconclusive"]


LOCKED = datetime(2026, 11, 22, 6, 30, tzinfo=timezone.utc)
HOSTILE = (
    "a\n::error::forged\r| PASS | x |`</td><script>alert(1)</script>![i](http://192.0.2.1/x) [l](javascript:x) \x1b[2J"
    "\u202e\ud800 ]]>"
)


@pytest.fixture
def hostile() -> GateResult:
    check = Check("min", "fail", HOSTILE, f"topic={HOSTILE}")
    one = BenchmarkOutcome(HOSTILE, "critical", HOSTILE, "fail", (check,), "fail")
    return GateResult(Path("p\n`x`.yml"), "ab" * 32, "fail", (one,), (HOSTILE,), LOCKED, (HOSTILE,))


def test_foreign_names_begin_no_line_of_a_text(hostile: GateResult) -> None:
    lines = text(hostile).split("\n")
    assert [line[:11] for line in lines] == [
        "gate: FAIL ",
        "  FAIL     ",
        "    min [to",
        "not in the ",
        "note: a\\n::",
        "",
    ]
    assert all(line.isprintable() for line in lines)
    assert "locked on 2026-11-22 06:30 UTC)" in lines[0]


def test_foreign_names_are_no_markdown(hostile: GateResult) -> None:
    said = markdown(hostile)
    shown = MarkdownIt("commonmark").enable("table").render(said)
    assert not re.search(r"<(script|img|a|code)\b[^>]*>(?!ababab)", shown)
    assert shown.count("<tr>") == 2
    assert shown.count("<td>") == 5
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 6
    assert all(line.isprintable() for line in said.split("\n"))
    assert "locked on 2026-11-22 06:30 UTC, SHA-256" in said


def test_foreign_names_are_sound_xml(hostile: GateResult, tmp_path: Path) -> None:
    path = tmp_path / "sub" / "junit.xml"
    write_junit(hostile, path)
    (suite,) = JUnitXml.fromfile(str(path))
    assert [child.tag for child in ElementTree.parse(path).getroot()[0]] == ["properties", "testcase"]  # noqa: S314 - ours
    (case,) = suite
    assert case.classname == f"{SUITE}.{printable(HOSTILE)}"
    assert case.name == f"min [topic={printable(HOSTILE)}]"
    properties = suite.properties()  # type: ignore[no-untyped-call]
    assert [(found.name, found.value) for found in properties] == [
        ("policy_sha256", "ab" * 32), ("lock", "locked on 2026-11-22 06:30 UTC"), ("note", printable(HOSTILE)),
    ]  # fmt: skip


def test_json_says_when_it_was_locked(hostile: GateResult) -> None:
    told = json.loads(json.dumps(document(hostile)))
    assert (told["locked_at"], told["notes"]) == ("2026-11-22T06:30:00+00:00", [HOSTILE])
