"""A panel's ledger that is made up: a baseline, and what came after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Line = Mapping[str, Any]
LIMIT = {
    "name": "pubmed_qa",
    "task": "pubmed_qa",
    "field": None,
    "value": None,
    "metric": "exact_match",
    "max_drop": 0.02,
    "scale": [0, 1],
    "higher_is_better": True,
    "instances": 150,
    "units": 150,
    "baseline": 0.71,
    "sigma": 0.01,
    "flip_rate": 0.05,
    "left_out": 0,
}
POWER = {
    "finds": [
        {"drop": 0.05, "share": 0.87, "weeks": 6},
        {"drop": 0.02, "share": 0.3, "weeks": None},
    ],
    "needed": 5,
    "drop": 0.1,
}
WATCHED = {
    "refused": 0.0,
    "unreadable": 0.01,
    "empty": 0.0,
    "failed": 0.0,
    "length": 3.0,
    "latency": 0.4,
    "stated": ["m"],
}


def ledger(*kinds: Mapping[str, Any]) -> list[Line]:
    """Lines with what every line has: its number, its time, the hash of the line before."""
    epochs = 0
    lines: list[Line] = []
    for number, line in enumerate(kinds, 1):
        if line["kind"] == "baseline":
            epochs += 1
        before = None if number == 1 else f"{number - 1:064x}"
        at = f"2026-11-{number:02}T16:00:00Z"
        lines.append(
            {
                "number": number,
                "at": at,
                "previous": before,
                "panel": "f" * 64,
                "epoch": epochs,
                **line,
            }
        )
    return lines


def baseline(**changes: Any) -> Line:
    repeats = [
        {
            "folder": f"baseline/1/{number}",
            "values": "9" * 64,
            "runs": [
                {
                    "task": "pubmed_qa",
                    "folder": f"baseline/1/{number}/m/pubmed_qa",
                    "sha256": f"{number}" * 64,
                }
            ],
        }
        for number in (1, 2)
    ]
    made = {
        "kind": "baseline",
        "why": "first baseline",
        "target": {"name": "m", "model": "org/model"},
        "repeats": repeats,
        "looks": 52,
        "alpha": 0.05,
        "harm_alpha": 0.025,
        "seed": 0,
        "alarm_on": ["changed"],
        "policy_sha256": "7" * 64,
        "limits": [LIMIT],
        "watched": WATCHED,
        "power": {"pubmed_qa": POWER},
    }
    return {**made, **changes}


def look(number: int, alarm: Line | None = None, **changes: Any) -> Line:
    limit = {"name": "pubmed_qa", "value": 0.7, "missing": 3, "e": 0.8, "since": 1}
    runs = [{"task": "pubmed_qa", "folder": f"looks/{number:04}/m/pubmed_qa", "sha256": "d" * 64}]
    made = {
        "kind": "look",
        "look": number,
        "evidence": number,
        "folder": f"looks/{number:04}",
        "values": "9" * 64,
        "runs": runs,
        "limits": [limit],
        "e": 0.81239,
        "alarm": alarm,
        "changed": {"pubmed_qa": {"e": 19.9, "since": 1}},
        "figures": {},
        "watched": {**WATCHED, "refused": 0.02},
    }
    return {**made, **changes}


def alarm(number: int, what: str = "harm", **changes: Any) -> Line:
    drops = {"drops": {"pubmed_qa": 0.06}} if what == "harm" else {}
    return {
        "what": what,
        "look": number,
        "names": ["pubmed_qa"],
        "since": number,
        **drops,
        **changes,
    }


def note(text: str, by: str = "Dr. A") -> Line:
    return {"kind": "note", "by": by, "text": text}


def change(outcome: str = "pass", **changes: Any) -> Line:
    made = {
        "kind": "change",
        "change": 1,
        "folder": "changes/0001",
        "old": {"name": "m", "model": "org/model"},
        "new": {"name": "n", "model": "org/model-2", "fixed": {}},
        "outcome": outcome,
        "policy_sha256": "7" * 64,
        "checks": ["pubmed_qa: not worse by more than 0.02"],
        "runs": [],
    }
    return {**made, **changes}
