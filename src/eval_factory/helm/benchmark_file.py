"""What the benchmark.yaml made for HELM says of a jury: read by our plug-in in helm-run, and by the collector."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.jury_form import HELMS_FORM, JuryForm, form_of
from eval_factory.core.plain_yaml import parse_own
from eval_factory.helm import names


def jury_form_in(model_configs: Path) -> JuryForm:
    """HELM's where no custom benchmark is run, or it says nothing of its own.

    Raises:
        OSError, ValueError, KeyError, TypeError: the file is there and cannot be read.
    """
    file = model_configs / names.BENCHMARK
    if not file.is_file():
        return HELMS_FORM
    from eval_factory.tasks.custom_benchmark import JURY  # for a custom benchmark alone

    metrics = parse_own(file.read_text(encoding="utf-8")).get("metrics") or ()
    return next((form_of(metric) for metric in metrics if metric["name"] == JURY), HELMS_FORM)
