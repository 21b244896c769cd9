"""A shard finds what the whole evaluation has already, and writes nothing there."""

from __future__ import annotations

from pathlib import Path

from eval_factory.endpoint.earlier_answers import EarlierAnswers
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache


def store(path: Path, *keys: str, earlier: EarlierAnswers | None = None) -> ResponseCache:
    cache = ResponseCache(path, "run", earlier)
    for key in keys:
        answer = Answer(key, "model", "m", {}, {"of": path.name}, 10.0, 0.5)
        cache.save(answer, Attempt(key, "model", 1, "answered", 200, None, 10.0, 0.5))
    return cache


def test_what_the_own_store_lacks_is_looked_for_in_the_other(tmp_path: Path) -> None:
    store(tmp_path / "whole", "a", "b").close()
    own = store(tmp_path / "own", "b", earlier=EarlierAnswers(tmp_path / "whole"))
    assert own.get("a") == ({"of": "whole"}, 0.5, 10.0)
    assert own.get("b") == ({"of": "own"}, 0.5, 10.0)
    assert own.get("c") is None
    assert not own.holds("a")  # nothing of the other may be archived
    own.close()
    assert store(tmp_path / "third", "b").get("a") is None


def test_a_model_that_answered_before_is_known(tmp_path: Path) -> None:
    store(tmp_path / "whole", "a").close()
    own = store(tmp_path / "own", earlier=EarlierAnswers(tmp_path / "whole"))
    assert own.has_answers("model", "m")
    assert not own.has_answers("judge", "m")
    assert not own.has_answers("model", "other")
    assert not store(tmp_path / "third").has_answers("model", "m")
