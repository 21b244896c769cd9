"""HELM's own rule against ours, which does not import HELM."""

from __future__ import annotations

import pytest

from eval_factory.tasks.custom_table import QUASI_METRICS, becomes_nothing


@pytest.mark.parametrize("answer", [
    "A", "a", " An ", "the", "The A.", "(A)", "a-n", "t.h.e", "--", "", " \n", "A a", "B", "as", "A1", "+1", "±", "A_",
    "Ä", "\uff41",
])  # fmt: skip
def test_it_is_helms_rule(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from helm.benchmark.metrics import nltk_helper

    monkeypatch.setattr(nltk_helper, "install_nltk_resources", lambda: None)  # it downloads
    from helm.benchmark.metrics import evaluate_reference_metrics as helm

    assert becomes_nothing(answer) is (helm.normalize_text(answer) == "")
    if becomes_nothing(answer):
        assert helm.quasi_prefix_exact_match(answer, "anything") == 1
        assert helm.quasi_exact_match(answer, "the") == 1
    assert all(hasattr(helm, name) for name in QUASI_METRICS)
