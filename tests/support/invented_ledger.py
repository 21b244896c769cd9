"""A panel's ledger that is made up, line after line; the scores are nobody's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.monitor.ledger import History
from eval_factory.monitor.report import monitor_page

HEAD = "5e" * 32
HOSTILE = "<img src=http://h.test/x onerror=alert(1)>"
_Line = dict[str, Any]


class Invented:
    """A ledger, line after line. The scores are nobody's."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self.look_number = 0
        self.alarm: _Line | None = None

    def add(self, kind: str, **fields: Any) -> _Line:
        number = len(self.lines) + 1
        at = f"2027-{1 + number // 28:02}-{1 + number % 28:02}T06:00:00Z"
        self.lines.append(
            {"number": number, "kind": kind, "at": at, "previous": "0" * 64, **fields}
        )
        return self.lines[-1]

    def baseline(
        self, limits: Sequence[_Line], model: str = "m1", why: str = "first baseline", **other: Any
    ) -> None:
        self.alarm = None
        power = {"finds": [{"drop": 0.1, "share": 0.97, "weeks": 5}], "needed": 5, "drop": 0.1}
        self.add(
            "baseline",
            **{
                "epoch": 1,
                "panel": "ca" * 32,
                "why": why,
                "target": {"name": "guarded", "model": model},
                "alpha": 0.05,
                "harm_alpha": 0.05,
                "looks": 52,
                "seed": 0,
                "alarm_on": [],
                "repeats": [{}] * 5,
                "limits": limits,
                "watched": watched(),
                "power": {one["name"]: power for one in limits},
                **other,
            },
        )

    def look(
        self,
        found: Mapping[str, tuple[float | None, float]],
        since: int | None = None,
        **other: Any,
    ) -> _Line:
        """found: limit -> score, e-value."""
        self.look_number += 1
        self.add("begun", look=self.look_number)
        limits: list[_Line] = [
            {
                "name": name,
                "value": value,
                "missing": 2 if value is None else 0,
                "e": e,
                "since": since,
            }
            for name, (value, e) in found.items()
        ]
        fields = {
            "look": self.look_number,
            "evidence": 1,
            "limits": limits,
            "e": sum(one["e"] for one in limits) / len(limits),
            "changed": {name: {"e": 0.8, "since": None} for name in found},
            "figures": {},
            "watched": watched(),
            **other,
        }
        if fields.get("alarm"):
            self.alarm = {"look": self.look_number, **fields["alarm"]}
        return self.add("look", **{**fields, "alarm": self.alarm})

    def not_made(self, reason: str) -> None:
        self.look_number += 1
        self.add("not_made", look=self.look_number, reason=reason)

    @property
    def baseline_line(self) -> _Line:
        return next(line for line in reversed(self.lines) if line["kind"] == "baseline")

    @property
    def history(self) -> History:
        return History(self.lines, head=HEAD)

    def page(self, name: str = "clinic") -> str:
        return monitor_page(name, self.history)


def watched(**other: Any) -> _Line:
    shares = {"refused": 0.01, "unreadable": 0.02, "empty": 0.0, "failed": 0.0}
    return {**shares, "length": 31.25, "latency": 0.512, "stated": ["m1-0301"], **other}


def limit(name: str = "notes", **other: Any) -> _Line:
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
        **other,
    }


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
    made.add("note", by="A. Clinician", text=f"asked the vendor {HOSTILE}")
    change = {
        "old": {"model": "m1"},
        "checks": ["notes: not worse by more than 0.02: refuted"],
        "change": 1,
    }
    made.add("change", **change, new={"model": "m2"}, outcome="fail")
    made.add(
        "change",
        **{**change, "change": 2, "checks": ["notes: kept"]},
        new={"model": f"m3 {HOSTILE}"},
        outcome="pass",
    )
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
        epoch=2,
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
    made.add("note", by=HOSTILE, text="the vendor\nrolled back")
    made.add("begun", look=made.look_number + 1)
    return made


def one_limit(*scores: float | None, e: float = 0.5, **of_limit: Any) -> Invented:
    made = Invented()
    made.baseline([limit(**of_limit)])
    for score in scores:
        made.look({"notes": (score, e)})
    return made
