from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core.budget import Budget, LongPrompts, Price
from eval_factory.core.helm_run_settings import (
    HelmRunSettings,
    Pins,
    SampleSettings,
    SharedLimitsSettings,
)

EVERYTHING = HelmRunSettings(
    run_id="r1",
    parent=17,
    probed=frozenset({"model", "a_judge"}),
    allowed=(("host.example", 443), ("::1", 8000)),
    proxies={"https://host.example": "http://user:secret@proxy.example:3128"},
    pins=Pins({"https://a/main/x": "https://a/0123/x"}, {"org/data": "abc"}),
    file_lists="/lists",
    sample=SampleSettings(7, "patient", ids=("a", "b")),
    only_generate=True,
    budget=Budget(max_cost=1.0),
    prices={"model": Price(1.0, 2.0, long_prompts=(LongPrompts(2.0, 4.0, above=9),))},
    limits=SharedLimitsSettings("/run/x/s", {"model": "https://host.example/v1"}),
)
TEXTS = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0,"), min_size=1, max_size=9
)


def test_nothing_allowed_and_nobody_probed_are_said() -> None:
    nothing = HelmRunSettings(allowed=(), probed=frozenset(), proxies={})
    assert HelmRunSettings.from_environment(nothing.environment()) == nothing
    assert HelmRunSettings.from_environment({}) == HelmRunSettings()
    assert HelmRunSettings.from_environment(EVERYTHING.environment()) == EVERYTHING


@given(
    st.builds(
        HelmRunSettings,
        run_id=st.none() | TEXTS,
        parent=st.none() | st.integers(0, 9999),
        probed=st.none() | st.frozensets(TEXTS),
        allowed=st.none() | st.lists(st.tuples(TEXTS, st.integers(0, 65535))).map(tuple),
        proxies=st.none() | st.dictionaries(TEXTS, TEXTS),
        pins=st.none()
        | st.builds(Pins, st.dictionaries(TEXTS, TEXTS), st.dictionaries(TEXTS, TEXTS)),
        file_lists=st.none() | TEXTS,
        sample=st.none() | st.builds(SampleSettings, st.integers(0), st.none() | TEXTS),
        limits=st.none() | st.builds(SharedLimitsSettings, TEXTS, st.dictionaries(TEXTS, TEXTS)),
    )
)
def test_the_environment_says_it_all(settings: HelmRunSettings) -> None:
    assert HelmRunSettings.from_environment(settings.environment()) == settings


def test_the_file_says_all_but_where_proxies_are_and_what_ends_with_other_runs() -> None:
    text = EVERYTHING.file_text()
    assert "secret" not in text
    without = replace(EVERYTHING, proxies={"https://host.example": ""}, limits=None)
    assert HelmRunSettings.from_json(text) == without
    old = text.replace("library_variables", "libraries").replace(
        "sends_singly", "asks_rest_of_batches"
    )
    assert old != text
    assert HelmRunSettings.from_json(old) == without
    assert HelmRunSettings.from_json(HelmRunSettings(run_id="x").file_text()) == HelmRunSettings(
        run_id="x"
    )


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"variables"', "3"])
def test_another_file(text: str) -> None:
    with pytest.raises(ValueError, match="settings"):
        HelmRunSettings.from_json(text)
