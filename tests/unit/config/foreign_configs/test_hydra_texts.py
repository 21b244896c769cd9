"""Interpolations of Hydra, as variables of the environment."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.foreign_configs.findings import Finding
from eval_factory.config.foreign_configs.hydra_texts import plain_tree, variable_for

DOCUMENT: dict[str, Any] = {
    "a": {"b": "${oc.env:HOME}/x", "number": 3, "flag": True, "missing": "???", "none": None, "list": [1]},
    "again": "${a.b}/y",
    "loop": "${loop}",
    "half": "1.5",
}


def plain(text: Any) -> tuple[Any, list[Finding]]:
    findings: list[Finding] = []
    return plain_tree(text, DOCUMENT, "here", findings), findings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", "plain"),
        (3, 3),
        (None, None),
        ("${oc.env:NAME}", "${NAME}"),
        ("${oc.env: NAME }", "${NAME}"),
        ("${oc.env:NAME,some/where}", "${NAME:-some/where}"),
        ("${oc.env:NAME,''}", "${NAME:-}"),
        ("${oc.env:NAME, 'x y'}", "${NAME:-x y}"),
        ("${oc.env:NAME,null}", "${NAME}"),
        ("${oc.decode:${oc.env:COUNT}}", "${COUNT}"),
        ("${oc.decode:${oc.env:COUNT,4}}", "${COUNT:-4}"),
        ("https://${oc.env:HOST}/${oc.env:PLACE,v1}", "https://${HOST}/${PLACE:-v1}"),
        ("${a.number}", 3),
        ("${a.flag}", True),
        ("x-${a.number}", "x-3"),
        ("${half}", "1.5"),
        ("${again}", "${HOME}/x/y"),
        (["${a.number}", {"k": "${a.b}"}], [3, {"k": "${HOME}/x"}]),
    ],
)
def test_what_is_followed(text: Any, found: Any) -> None:
    assert plain(text) == (found, [])


@pytest.mark.parametrize(
    "text",
    ["${a.missing}", "${a.none}", "${a.list}", "${nowhere}", "${nowhere.at.all}", "${now:%Y}", "${loop}", "x${hydra:y}",
     "${oc.decode:[1]}"],
)  # fmt: skip
def test_what_is_not_followed_is_told_and_not_written(text: str) -> None:
    found, (finding,) = plain(text)
    assert found is None
    assert finding.text == "here: is an interpolation that is not followed here; write the value itself"


def test_a_value_that_has_to_be_given_is_a_variable_of_the_keys_name() -> None:
    findings: list[Finding] = []
    tree = {"url": "???", "limit-samples": "???", "items": ["???"]}
    assert plain_tree(tree, {}, "", findings) == {
        "url": "${MODEL_URL}",
        "limit-samples": "${LIMIT_SAMPLES}",
        "items": ["${ITEMS_0_}"],
    }
    assert findings == []
    assert variable_for("target.api_endpoint.model_id") == "MODEL_ID"


def test_the_path_of_a_finding_is_the_keys() -> None:
    findings: list[Finding] = []
    plain_tree({"a": {"b": ["x", "${now:x}"]}}, {}, "", findings)
    plain_tree({"c": "${now:x}"}, {}, "top", findings)
    assert [finding.path for finding in findings] == ["a.b[1]", "top.c"]
