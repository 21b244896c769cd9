"""Means of what kept answers took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache
from eval_factory.workflows.estimate import KeptFigures, kept_figures


def kept(tmp_path: Path, *answers: tuple[str, str, Any, float]) -> Path:
    cache = ResponseCache(tmp_path / "cache.db", "run")
    for number, (role, model, usage, latency) in enumerate(answers):
        attempt = Attempt(f"k{number}", role, 1, "answered", 200, None, float(number), latency)
        cache.save(Answer(f"k{number}", role, model, {}, {"usage": usage}, float(number), latency), attempt)
    cache.close()
    return cache.path


def test_means_are_of_one_model_in_one_role(tmp_path: Path) -> None:
    path = kept(
        tmp_path,
        ("model", "m", {"prompt_tokens": 10, "completion_tokens": 2, "cost": 0.5}, 1.0),
        ("model", "m", {"prompt_tokens": 30, "completion_tokens": 4, "cost": 1.5}, 2.0),
        ("model", "other", {"prompt_tokens": 900, "completion_tokens": 900, "cost": 9.0}, 9.0),
        ("gpt", "m", {"prompt_tokens": 900, "completion_tokens": 900, "cost": 9.0}, 9.0),
    )
    assert kept_figures(path, "model", "m") == KeptFigures(2, 20.0, 3.0, 1.5, 1.0)


def test_what_not_all_answers_say_is_not_known(tmp_path: Path) -> None:
    path = kept(tmp_path, ("model", "m", {"prompt_tokens": 10, "cost": 0.5}, 1.0), ("model", "m", None, 3.0))
    assert kept_figures(path, "model", "m") == KeptFigures(2, None, None, 2.0, None)


def test_a_folder_without_answers_says_nothing(tmp_path: Path) -> None:
    assert kept_figures(tmp_path / "none.db", "model", "m") == KeptFigures(0, None, None, None, None)
    assert not (tmp_path / "none.db").exists()
