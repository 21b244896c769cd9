from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.tasks.errata import Errata, load_errata
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import load_index
from eval_factory.tasks.upstreams import MEDHELM
from facts import naming


def test_every_erratum_is_about_something_that_we_have_and_stands_in_the_documentation(
    root: Path,
) -> None:
    ours = {task.helm.run_spec for task in load_framework().evaluations}
    run_specs = {"helm": ours, "medhelm": ours | set(load_index(MEDHELM).run_specs)}
    text = (root / "docs" / "errata.md").read_text("utf-8")
    for entry in load_errata().errata:
        assert all(set(entry.run_specs) <= run_specs[name] for name in entry.upstreams), entry.id
        assert (entry.upstreams == ("medhelm",)) is entry.id.startswith("medhelm-")
        assert f"`{entry.id}`" in text, entry.id


def test_a_defect_has_one_remedy() -> None:
    with pytest.raises(ValueError, match=naming("corrected, patched and avoided")):
        Errata.model_validate(
            {
                "version": 1,
                "errata": [{"id": "x", "run_specs": [], "defect": "d", "upstream": None}],
            }
        )


def test_an_erratum_may_be_about_some_arguments_only() -> None:
    names = [entry.id for entry in load_errata().of("med_dialog", {"subset": "icliniq"})]
    assert "med-dialog-repeated" in names
    assert "med-dialog-repeated" not in [
        e.id for e in load_errata().of("med_dialog", {"subset": "healthcaremagic"})
    ]
    assert "med-dialog-repeated" in [entry.id for entry in load_errata().of("med_dialog")]
