"""An estimate counts each order of the choices."""

from __future__ import annotations

from pathlib import Path

from eval_factory.workflows.estimate import estimate
from unit.builders import evaluation


def test_each_order_of_the_choices_is_a_request(tmp_path: Path) -> None:
    flags = {"config.type": "sample_medical_qa", "config.output_dir": str(tmp_path / "x")}
    plain = estimate(evaluation(flags), {}, look_at_data=False)
    shuffled = estimate(evaluation({**flags, "config.params.extra.shuffle_choices": 3}), {}, look_at_data=False)
    assert (plain.requests, shuffled.requests) == (40, 120)
    assert shuffled.roles[0].sources["requests"].endswith("x 1 trial x 3 orders of the choices, at most")
