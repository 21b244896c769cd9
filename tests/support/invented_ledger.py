"""A panel's ledger that is made up; the scores are nobody's.

Each kind of line has a function that makes it with usual values. `ledger` numbers such lines, and
`Invented` adds them one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.monitor.ledger import History
from eval_factory.monitor.panel_page import monitor_page

HEAD = "5e" * 32
HOSTILE = "<img src=http://h.test/x onerror=alert(1)>"
Line = Mapping[str, Any]
_Line = dict[str, Any]
_POWER = {
    "finds": [
        {"drop": 0.05, "share": 0.87, "weeks": 6},
        {"drop": 0.02, "share": 0.3, "weeks": None},
    ],
    "needed": 5,
    "drop": 0.1,
}


def watched(**changes: Any) -> _Line:
    shares = {"refused": 0.01, "unreadable": 0.02, "empty": 0.0, "failed": 0.0}
    return {**shares, "length": 31.25, "latency": 0.512, "stated": ["m1-0301"], **changes}


def limit(name: str = "notes", **changes: Any) -> _Line:
    return {
        "name": name,
        "task": "notes",
        "field": None,
        "value": None,
        "metric": "exact_match",
        "max_drop": 0.02,
        "scale": [0.0, 1.0],
        "higher_is_better": True,
        "instances": 100,
        "units": 100,
        "left_out": 0,
        "baseline": 0.83,
        "sigma": 0.009,
        "flip_rate": 0.068,
        **changes,
    }


def _run(folder: str, sha256: str) -> _Line:
    return {"task": "notes", "folder": f"{folder}/m/notes", "sha256": sha256}


def baseline(**changes: Any) -> _Line:
    repeats = []
    for number in range(1, 6):
        folder = f"baseline/1/{number}"
        runs = [_run(folder, f"{number}" * 64)]
        repeats.append({"folder": folder, "values": "9" * 64, "runs": runs})
    limits = changes.get("limits", [limit()])
    usual = {
        "kind": "baseline",
        "why": "first baseline",
        "target": {"name": "guarded", "model": "m1"},
        "repeats": repeats,
        "looks": 52,
        "alpha": 0.05,
        "harm_alpha": 0.05,
        "seed": 0,
        "alarm_on": [],
        "policy_sha256": "7" * 64,
        "limits": limits,
        "watched": watched(),
        "power": {entry["name"]: _POWER for entry in limits},
    }
    return {**usual, **changes}


def look(number: int, alarm: Line | None = None, **changes: Any) -> _Line:
    folder = f"looks/{number:04}"
    usual = {
        "kind": "look",
        "look": number,
        "evidence": number,
        "folder": folder,
        "values": "9" * 64,
        "runs": [_run(folder, "d" * 64)],
        "limits": [{"name": "notes", "value": 0.7, "missing": 3, "e": 0.8, "since": 1}],
        "e": 0.81239,
        "alarm": alarm,
        "changed": {"notes": {"e": 19.9, "since": 1}},
        "figures": {},
        "watched": watched(refused=0.03),
    }
    return {**usual, **changes}


def alarm(number: int, what: str = "harm", **changes: Any) -> _Line:
    drops = {"drops": {"notes": 0.06}} if what == "harm" else {}
    usual = {"what": what, "look": number, "names": ["notes"], "since": number}
    return {**usual, **drops, **changes}


def not_made(number: int, reason: str) -> _Line:
    return {"kind": "not_made", "look": number, "reason": reason}


def note(text: str, by: str = "Dr. A") -> _Line:
    return {"kind": "note", "by": by, "text": text}


def change(outcome: str = "pass", **changes: Any) -> _Line:
    usual = {
        "kind": "change",
        "change": 1,
        "folder": "changes/0001",
        "old": {"name": "guarded", "model": "m1"},
        "new": {"name": "n", "model": "m2", "fixed": {}},
        "outcome": outcome,
        "policy_sha256": "7" * 64,
        "checks": ["notes: not worse by more than 0.02"],
        "runs": [],
    }
    return {**usual, **changes}


def ledger(*lines: Line) -> list[Line]:
    """Lines with what every line has: its number, its time, the hash of the line before."""
    made = Invented()
    for line in lines:
        made.add(line)
    return list(made.lines)


class Invented:
    """A ledger that grows line after line."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.epoch = 0
        self.look_number = 0
        self.alarm: _Line | None = None

    def add(self, line: Line) -> _Line:
        if line["kind"] == "baseline":
            self.epoch += 1
        number = len(self.lines) + 1
        self.lines.append(
            {
                "number": number,
                "at": f"2027-{1 + number // 28:02}-{1 + number % 28:02}T06:00:00Z",
                "previous": None if number == 1 else f"{number - 1:064x}",
                "panel": "ca" * 32,
                "epoch": self.epoch,
                **line,
            }
        )
        return self.lines[-1]

    def baseline(
        self,
        limits: Sequence[_Line],
        model: str = "m1",
        why: str = "first baseline",
        **changes: Any,
    ) -> None:
        self.alarm = None
        target = {"name": "guarded", "model": model}
        self.add(baseline(limits=limits, target=target, why=why, **changes))

    def look(
        self,
        scores: Mapping[str, tuple[float | None, float]],
        since: int | None = None,
        **changes: Any,
    ) -> _Line:
        """Add a look, and what was said of its alarm in every look after it.

        scores: name of a limit -> its score and e-value.
        """
        self.begin()
        self.look_number += 1
        limits: list[_Line] = []
        for name, (value, e) in scores.items():
            missing = 2 if value is None else 0
            limits.append(
                {"name": name, "value": value, "missing": missing, "e": e, "since": since}
            )
        if changes.get("alarm"):
            self.alarm = {"look": self.look_number, **changes["alarm"]}
        fields = {
            "evidence": 1,
            "limits": limits,
            "e": sum(entry["e"] for entry in limits) / len(limits),
            "changed": {name: {"e": 0.8, "since": None} for name in scores},
            "watched": watched(),
            **changes,
            "alarm": self.alarm,
        }
        return self.add(look(self.look_number, **fields))

    def begin(self) -> None:
        """Add the line of a look that was started."""
        self.add({"kind": "begun", "look": self.look_number + 1})

    def not_made(self, reason: str) -> None:
        self.look_number += 1
        self.add(not_made(self.look_number, reason))

    @property
    def baseline_line(self) -> _Line:
        return next(line for line in reversed(self.lines) if line["kind"] == "baseline")

    @property
    def history(self) -> History:
        return History(self.lines, head=HEAD)

    def page(self, name: str = "clinic") -> str:
        return monitor_page(name, self.history)


def rich() -> Invented:
    """Two epochs: an alarm and a change of the model; then ratings, a group, a look not made, a value missing."""
    made = Invented()
    made.baseline([limit()])
    for score, e in ((0.82, 0.4), (0.84, 0.3)):
        made.look({"notes": (score, e)})
    made.look(
        {"notes": (0.7, 25.0)},
        since=3,
        alarm={"what": "harm", "names": ["notes"], "since": 3, "drops": {"notes": 0.13}},
    )
    made.add(note(f"asked the vendor {HOSTILE}", "A. Clinician"))
    made.add(change("fail", checks=["notes: not worse by more than 0.02: refuted"]))
    made.add(change(change=2, checks=["notes: kept"], new={"model": f"m3 {HOSTILE}"}))
    limits = [
        limit("notes, topic=heart", instances=40, units=31, left_out=3),
        limit(
            "letters",
            task="letters",
            metric="rating",
            scale=[1.0, 5.0],
            max_drop=0.25,
            baseline=3.9,
            sigma=0.06,
        ),
        limit(
            "harm",
            task="letters",
            metric="toxicity",
            higher_is_better=False,
            baseline=0.1,
            max_drop=0.05,
        ),
        limit(f"notes, topic={HOSTILE}"),
    ]
    made.baseline(
        limits,
        f"m3 {HOSTILE}",
        "the model was changed",
        alarm_on=["changed", "refused"],
        harm_alpha=0.025,
    )
    names = [one["name"] for one in limits]
    for week in range(14):
        if week == 4:
            made.not_made("the prompts differ from the baseline's")
            continue
        worse = max(0, week - 8)
        scores = (
            0.82 + 0.02 * (week % 3),
            3.9 - 0.09 * worse,
            0.1 + 0.01 * (week % 2),
            None if week == 6 else 0.8,
        )
        es = (0.9**week, 0.5 * 4.2**worse, 0.7, 1.1 - 0.05 * week)
        alarm = (
            {"what": "harm", "names": ["letters"], "since": 12, "drops": {"letters": 0.3}}
            if week == 12
            else None
        )
        since = 13 if worse else None
        changed = {name: {"e": 0.5, "since": since} for name in names}
        if "letters" in changed:
            changed["letters"]["e"] = 0.5 + 4.0**worse
        made.look(
            dict(zip(names, zip(scores, es, strict=True), strict=True)),
            since=12 if worse else None,
            alarm=alarm,
            changed=changed,
            figures={"refused": {"e": 1.25, "since": None}},
            watched=watched(
                refused=0.01 * week,
                latency=None if week == 5 else 0.5,
                stated=["m1-0301"] if week < 10 else [f"m4 {HOSTILE}"],
            ),
        )
    made.add(note("the vendor\nrolled back", HOSTILE))
    made.begin()
    return made


def one_limit(*scores: float | None, e: float = 0.5, **of_limit: Any) -> Invented:
    made = Invented()
    made.baseline([limit(**of_limit)])
    for score in scores:
        made.look({"notes": (score, e)})
    return made
