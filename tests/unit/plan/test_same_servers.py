from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.rundir import RunDir
from eval_factory.plan.run_plan import KEPT_BY, Plan, kept_by, where_keys_go
from eval_factory.report.documents import run_config, to_yaml
from unit.builders import plan

A, B, C, D = (f"http://{name}.example/v1" for name in "abcd")
URL = "target.api_endpoint.url"


def planned(folder: Path, url: Any, **more: Any) -> Plan:
    """The plan of a run in the folder, which is then what the folder remembers."""
    made = plan({"config.output_dir": str(folder), URL: url, **more})
    same = kept_by(made.endpoints, made.servers_before)
    document = run_config(made.evaluation.as_dict(), "", "helm", "p", {KEPT_BY: same} if same else None)
    RunDir(folder).run_config.write_text(to_yaml(document))
    return made


@pytest.mark.parametrize("lists", [
    ([A], [A, B], [B, A], [C, B], [C], [A, C]),
    ([A, B], [B], [B, C], [A]),
    ([A], [B, A], [B]),
    ([A], [B, f"{A}/chat/completions/"]),
])  # fmt: skip
def test_a_list_with_one_in_common_is_the_same_target(lists: tuple[list[str], ...], tmp_path: Path) -> None:
    plans = [planned(tmp_path, urls) for urls in lists]
    assert {one.identity for one in plans} == {plans[0].identity}
    assert {one.model.url for one in plans} == {A}
    assert [list(one.model.urls) for one in plans] == list(lists)


def test_a_single_url_is_what_it_always_was(tmp_path: Path) -> None:
    here = planned(tmp_path, A)
    assert here.identity == planned(tmp_path, [A]).identity == plan({URL: A}).identity
    assert "servers" not in here.model.to_args()
    assert KEPT_BY not in RunDir(tmp_path).run_config.read_text()
    assert planned(tmp_path, B).identity == plan({URL: B}).identity != here.identity


def test_a_list_with_none_in_common_is_another_target(tmp_path: Path) -> None:
    here, there = planned(tmp_path, [A, B]), planned(tmp_path, [C, D])
    assert here.identity != there.identity
    assert there.model.url == C
    assert planned(tmp_path, [B, C]).model.url == C, "what the last run had"


def test_a_judges_servers_are_its_own(tmp_path: Path) -> None:
    def jury(*urls: Any) -> dict[str, Any]:
        judges = [{"name": f"j{number}", "model_id": "m", "url": url} for number, url in enumerate(urls)]
        return {"config.type": "aci_bench", "config.params.extra.judges": judges}

    first = planned(tmp_path, A, **jury(A, B, None))
    again = planned(tmp_path, [D, A], **jury([C, A], B, None))
    assert again.identity == first.identity
    assert [judge.url for judge in again.judges] == [A, B, A]
    assert [judge.urls for judge in again.judges] == [(C, A), (B,), (D, A)]
    other = planned(tmp_path, [D, A], **jury([C, A], [D], None))
    assert other.identity != first.identity
    assert [line.partition(":")[0] for line in where_keys_go(other.endpoints)] == [
        "model at http", "model at http", "j0 at http", "j0 at http", "j1 at http", "j2 at http", "j2 at http",
    ]  # fmt: skip
