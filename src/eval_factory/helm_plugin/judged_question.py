"""`extra.judges_see_images`: whose answer is judged, so that a judge's client can show the question's pictures too.

HELM's annotators ask with a text and know of no pictures: the client adds them to whatever is asked while an answer is
judged. Each thread and greenlet has its own question; `map_at_once` hands it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from helm.benchmark.adaptation.request_state import RequestState
from helm.common.media_object import IMAGE_TYPE, MediaObject

_judged: ContextVar[RequestState | None] = ContextVar("judged", default=None)


@contextmanager
def judging(state: RequestState) -> Iterator[None]:
    token = _judged.set(state)
    try:
        yield
    finally:
        _judged.reset(token)


def judged_pictures() -> list[MediaObject]:
    """In the question's order. Its own, also where the model was shown others (`extra.blind_control`)."""
    state = _judged.get()
    content = None if state is None else state.instance.input.multimedia_content
    return [one for one in content.media_objects if one.is_type(IMAGE_TYPE)] if content else []
