from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import RunDir
from eval_factory.plan.role_servers import SERVERS_SECTION, servers_section
from eval_factory.plan.run_plan import Plan, key_destination_lines
from eval_factory.report.documents import run_config_document

A, B, C, D = (f"http://{name}.example/v1" for name in "abcd")
URL = "target.api_endpoint.url"


def planned(folder: Path, url: Any, **more: Any) -> Plan:
    """The plan of a run in the folder, which is then what the folder remembers."""
    made = plan({"config.output_dir": str(folder), URL: url, **more})
    same = servers_section(made.endpoints, made.earlier_servers)
    document = run_config_document(
        made.evaluation.as_dict(),
        "",
        framework_name="helm",
        pkg_name="p",
        further={SERVERS_SECTION: same} if same else None,
    )
    RunDir(folder).run_config.write_text(to_yaml(document))
    return made


@pytest.mark.parametrize(
    "lists",
    [
        ([A], [A, B], [B, A], [C, B], [C], [A, C]),
        ([A, B], [B], [B, C], [A]),
        ([A], [B, A], [B]),
        ([A], [B, f"{A}/chat/completions/"]),
    ],
)
def test_a_list_with_one_in_common_is_the_same_target(
    lists: tuple[list[str], ...], tmp_path: Path
) -> None:
    plans = [planned(tmp_path, urls) for urls in lists]
    assert {one.identity for one in plans} == {plans[0].identity}
    assert {one.model.url for one in plans} == {A}
    assert [list(one.model.urls) for one in plans] == list(lists)


def test_a_single_url_is_what_it_always_was(tmp_path: Path) -> None:
    here = planned(tmp_path, A)
    assert here.identity == planned(tmp_path, [A]).identity == plan({URL: A}).identity
    assert "servers" not in here.model.to_args()
    assert SERVERS_SECTION not in RunDir(tmp_path).run_config.read_text()
    assert planned(tmp_path, B).identity == plan({URL: B}).identity != here.identity


def test_a_list_with_none_in_common_is_another_target(tmp_path: Path) -> None:
    here = planned(tmp_path, [A, B])
    there = planned(tmp_path, [C, D])
    assert (here.identity != there.identity, there.model.url) == (True, C)
    assert planned(tmp_path, [B, C]).model.url == C, "what the last run had"


def test_a_prescribed_judge_at_the_target_has_the_targets_earlier_server(tmp_path: Path) -> None:
    task = {"config.type": "helm:air_bench_2024"}
    planned(tmp_path, A, **task)
    (judge,) = planned(tmp_path, [B, A], **task).prescribed
    assert (judge.url, judge.urls) == (A, (B, A))


def test_a_judges_servers_are_its_own(tmp_path: Path) -> None:
    def jury(*urls: Any) -> dict[str, Any]:
        judges = [
            {"name": f"j{number}", "model_id": "m", "url": url} for number, url in enumerate(urls)
        ]
        return {"config.type": "aci_bench", "config.params.extra.judges": judges}

    first = planned(tmp_path, A, **jury(A, B, None))
    again = planned(tmp_path, [D, A], **jury([C, A], B, None))
    assert again.identity == first.identity
    assert [judge.url for judge in again.judges] == [A, B, A]
    assert [judge.urls for judge in again.judges] == [(C, A), (B,), (D, A)]
    other = planned(tmp_path, [D, A], **jury([C, A], [D], None))
    assert other.identity != first.identity
    asked = [line.partition(" at http:")[0] for line in key_destination_lines(other.endpoints)]
    assert asked == ["model", "model", "j0", "j0", "j1", "j2", "j2"]
