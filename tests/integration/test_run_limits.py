"""A run stops at limits of its own, goes on when they are raised, and knows what it cost; nothing is asked twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_factory import api
from eval_factory.demo.example import write_example
from facts import says
from jury_endpoint import KIND, MODEL, judgement
from program_runs import Run
from scripted_endpoint import PROBE, ScriptedEndpoint

ROWS = 8
OF_MODEL = 0.0625
OF_JUDGE = 0.125
"""US dollars an answer; sums of them are exact."""
PRICES = [
    {"model_id": name, "input_per_million": 9, "output_per_million": 9} for name in (MODEL, KIND)
]
"""Far below what the endpoint says itself, which goes before them."""


class Charging(ScriptedEndpoint):
    """Says what each answer costs; one of its models is a judge."""

    def __init__(self) -> None:
        super().__init__(lambda _prompt: "Rest, and come again in a week.")
        self.asked: Counter[tuple[str, str]] = Counter()
        self.usage: Any = None
        """In place of what each answer costs."""

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        status, answer = super().reply(path, headers, body)
        prompt = body["messages"][-1]["content"]
        is_judge = body["model"] == KIND
        if prompt != PROBE:
            self.asked[(body["model"], prompt)] += 1
            answer["usage"]["cost"] = OF_JUDGE if is_judge else OF_MODEL
            answer["usage"] = self.usage or answer["usage"]
            if is_judge:
                answer["choices"][0]["message"]["content"] = judgement(prompt, 4)
        return status, answer

    def count(self, model: str) -> int:
        return sum(count for (name, _), count in self.asked.items() if name == model)


@pytest.fixture
def charging() -> Iterator[Charging]:
    with Charging() as server:
        yield server


def test_a_run_stops_at_each_limit_and_goes_on_there(
    charging: Charging, run_program: Run, tmp_path: Path
) -> None:
    write_example(tmp_path / "mine", "jury")
    extra = {
        "benchmark": str(tmp_path / "mine" / "benchmark.yaml"),
        "prices": PRICES,
        "judges": [{"name": "kind", "model_id": KIND, "api_key": "TEST_MODEL_KEY"}],
    }

    def run(*limits: str) -> Any:
        return run_program(
            "custom", charging.url, *limits, params={"parallelism": 1, "extra": extra}
        )

    first = run("--max_requests", "4")
    assert first.returncode == 1, first.stderr
    assert charging.count(MODEL) == 4
    says(first.stderr, "stopped: max_requests (4)", "4 requests")
    says(first.stderr, f"4 of {ROWS} instances", "no score is written")
    says(first.stderr, "raise max_requests", "same command again")
    assert not (first.output_dir / "evaluation_config.yaml").exists()

    # the judge takes from the same tracker
    judged = run("--max_cost", str(ROWS * OF_MODEL + 2 * OF_JUDGE))
    assert judged.returncode == 1, judged.stderr
    assert (charging.count(MODEL), charging.count(KIND)) == (ROWS, 2)
    says(judged.stderr, f"{ROWS} of {ROWS} instances", f"{ROWS} requests to judges", "kind 2")
    says(judged.stderr, "stopped: max_cost (0.75)", "10 requests", "0.75 USD")
    assert not (judged.output_dir / "evaluation_config.yaml").exists()

    whole = run("--max_cost", "100", "--max_wall_s", "600")
    assert whole.returncode == 0, whole.stderr
    assert set(charging.asked.values()) == {1}
    assert (charging.count(MODEL), charging.count(KIND)) == (ROWS, ROWS)
    usage = whole.document()["usage"]
    assert usage["all_runs"]["cost"] == {
        "value": ROWS * (OF_MODEL + OF_JUDGE),
        "source": "endpoint",
        "priced_requests": 2 * ROWS,
        "unpriced_requests": 0,
        "currency": "USD",
    }
    assert usage["all_runs"]["roles"]["kind"]["cost"]["value"] == ROWS * OF_JUDGE
    assert usage["cost"]["value"] == (ROWS - 2) * OF_JUDGE
    says(whole.stdout, "0.75 USD in this", "1.50 USD in all", "(endpoint)")
    says(
        (whole.output_dir / "report.md").read_text(),
        "0.75 USD in this",
        "1.50 USD in all",
        "(endpoint)",
    )
    assert api.verify(whole.output_dir).findings == ()

    estimated = api.estimate(tmp_path / "custom.yml", env={})
    assert (estimated.requests, estimated.cost, estimated.cached_answers) == (
        2 * ROWS,
        ROWS * (OF_MODEL + OF_JUDGE),
        2 * ROWS,
    )
    assert set(charging.asked.values()) == {1}


def test_an_estimate_of_a_run_that_never_was_asks_nobody(
    charging: Charging, run_program: Run
) -> None:
    """helm-run makes the requests in a folder of its own, without a key."""
    found = run_program(
        "sample_medical_qa",
        charging.url,
        "--estimate",
        "--limit_samples",
        "6",
        env={"TEST_MODEL_KEY": ""},
    )
    assert found.returncode == 0, found.stderr
    says(
        found.stdout.splitlines()[0], "sample_medical_qa: 6 requests", "unknown cost, unknown time"
    )
    assert "counted in the data" in found.stdout
    assert (charging.asked, charging.probes) == (Counter(), 0)
    assert not found.output_dir.exists()
