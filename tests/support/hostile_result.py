"""An output folder in which everything that others wrote is hostile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.results import (
    AskedEndpoint,
    FailureCause,
    InstanceRecord,
    JudgeCounts,
    Score,
    Stats,
)
from hostile_texts import NAMES, ODD, ids, payloads, terminal_text
from stored_results import CONFIG, PROVENANCE, instance, result, written

LONG = 1_000_000
LONG_ID = "long"
ODD_ID = "odd"
METRIC = "exact_match"


def mark(name: str, text: str) -> str:
    """Return a text with visible text on both sides, so that it is known to be shown whole."""
    return f"before {name} {text} after {name}"


def odd_text() -> str:
    return "\n".join(mark(name, letter) for name, letter in ODD.items()) + "\n" + terminal_text()


def instance_of(key: str, name: str, text: str) -> InstanceRecord:
    """The text wherever others write."""
    said = mark(name, text)
    return instance(
        key,
        1.0,
        prompt=f"prompt {said}",
        completion=f"answer {said}",
        reasoning=f"thought {said}",
        references=(
            {"text": f"reference {said}", "tags": ["correct", text]},
            {"text": text, "tags": []},
        ),
        categories={"field": text, text[:300]: "value", "__proto__": "constructor"},
        finish_reason=text[:300],
        turns=(
            {"role": "system", "content": f"system {said}"},
            {"role": text[:300], "content": f"turn {said}"},
        ),
        judges={"judge": 3.0, "__proto__": 2.0},
        judgements={
            "judge": {
                "accuracy": {"score": 3, "explanation": f"because {said}"},
                text[:300]: {"score": text},
            },
            "__proto__": {"error": f"error {said}"},
            "constructor": {"error": "none"},
        },
        injection=(text[:300],),
        signs=("unparsed", text[:300]),
        cluster=text[:300],
        sub_split=text[:300],
    )


def hostile_records(url: str) -> list[InstanceRecord]:
    """One for each payload, one for each id, one with odd characters, one with an answer of a megabyte, one that failed."""
    texts = payloads(url)
    long = "".join(f"line {number} <b>of a long answer</b>\n" for number in range(LONG // 36))
    return [
        *(
            instance_of(f"p{number}", name, text)
            for number, (name, text) in enumerate(texts.items())
        ),
        *(instance(key, 0.0, categories={"field": key[:300]}) for key in ids(url)),
        instance_of(ODD_ID, "odd", odd_text()),
        instance(LONG_ID, 0.0, completion=long),
        *(
            instance(
                f"f{number}",
                None,
                prompt=f"prompt {mark(name, text)}",
                error=f"error {mark(name, text)}",
            )
            for number, (name, text) in enumerate(texts.items())
        ),
    ]


def hostile_folder(folder: Path, url: str) -> Path:
    """Written as a run writes one.

    Args:
        url: the URL of the server that nothing may reach.
    """
    texts = list(payloads(url).values())
    records = hostile_records(url)
    made = result(records, (METRIC,), groups=_groups(texts))
    validity = replace(
        made.validity,
        notes=tuple(texts),
        not_reportable=tuple(texts),
        failures=tuple(FailureCause("model", 1, text, text) for text in texts),
        judges={name: JudgeCounts(3, 2, 1) for name in ("judge", "__proto__", texts[0])},
    )
    stated = AskedEndpoint(
        texts[0], texts[1], ({"temperature": texts[2]},), 3, dict.fromkeys(texts, 1), 3, None
    )
    provenance = replace(
        PROVENANCE,
        dataset_files={f"scenarios/{text}": "a" * 64 for text in texts},
        endpoints={"model": stated, "__proto__": stated},
        target=texts[0],
        packages=dict.fromkeys(texts, "1"),
        platform={text: text for text in texts[:3]},
    )
    config: dict[str, Any] = {
        **CONFIG,
        "target": {
            "api_endpoint": {
                "model_id": texts[0],
                "adapter_config": {"custom_system_prompt": texts[2]},
            }
        },
    }
    return written(
        folder, replace(made, validity=validity, provenance=provenance, reportable=False), config
    )


def _groups(texts: list[str]) -> dict[str, dict[str, dict[str, Score]]]:
    values = [*NAMES, *texts]
    return {
        field: {
            value: {
                METRIC: Score(
                    0.5,
                    Stats(
                        4, 0.5, stddev=0.1, stderr=0.1, ci_low=0.3, ci_high=0.7, ci_method="wilson"
                    ),
                    METRIC,
                    "test",
                    None,
                )
            }
            for value in values
        }
        for field in ("field", "__proto__", texts[0])
    }
