"""The rows are the page's, and the installed HELM has each schema."""

from __future__ import annotations

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.workflows.leaderboard import registry

# Name -> conf without run_entries and .conf, schema without schema_ and .yaml, trials, instances, priority.
PAGE = {
    "lite": ("_lite_20240424", "lite", 1, 1000, 2),
    "lite_instruct": ("_lite_20240424_output_format_instructions", "lite", 1, 1000, 2),
    "classic_before_0_2_4": ("", "classic", 3, 1000, 2),
    "classic": ("_lite", "classic", 1, 1000, 2),
    "heim": ("_heim", "heim", 1, 1000, 2),
    "mmlu": ("_mmlu", "mmlu", 1, 10000, 4),
    "vhelm_v1": ("_vhelm_lite", "vhelm_lite", 1, 1000, 2),
    "vhelm": ("_vhelm", "vhelm", 1, 1000, 2),
    "air_bench": ("_air_bench", "air_bench", 1, 10000, 2),
    "safety": ("_safety", "safety", 1, 1000, 2),
    "torr": ("_torr", "torr", 1, 100, 2),
    "seahelm": ("_seahelm_zero_shot", "seahelm", 1, 1000, 2),
    "medhelm_public": ("_medhelm_public", "medhelm", 1, 1000, 2),
    "medhelm_gated": ("_medhelm_gated", "medhelm", 1, 1000, 2),
    "medhelm_private": ("_medhelm_private_{organization}", "medhelm", 1, 1000, 2),
    "villm": ("_melt", "melt", 1, 1000, 2),
    "slphelm": ("_slphelm", "slphelm", 1, 1000, 2),
}
ROWS = registry.load_catalogue().leaderboards


def test_every_row_of_the_page() -> None:
    assert {
        row.name: (
            row.conf.removeprefix("run_entries").removesuffix(".conf"),
            row.schema_file.removeprefix("schema_").removesuffix(".yaml"),
            row.num_train_trials, row.max_eval_instances, row.priority,
        )
        for row in ROWS
    } == PAGE  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_installed_helm_has_the_schema(row: registry.Leaderboard) -> None:
    path = registry.schema_path(row)
    assert path is not None
    assert "metric" in path.read_text("utf-8")
    assert not any(row.schema_file in line for line in row.needed())


def test_a_schema_that_is_not_there_is_said() -> None:
    row = ROWS[0].model_copy(update={"schema_file": "schema_of_next_year.yaml"})
    assert registry.schema_path(row) is None
    assert any("schema_of_next_year.yaml: HELM" in line and "does not have it" in line for line in row.needed())


def test_what_is_needed() -> None:
    needed = {row.name: " ".join(row.needed()) for row in ROWS}
    assert needed["lite"] == ""
    assert {row.name for row in ROWS if row.lacks} == {"heim", "vhelm_v1", "vhelm", "slphelm"}
    assert "images" in needed["vhelm"]
    assert "data_path" in needed["medhelm_gated"]
    for name in ("safety", "air_bench", "medhelm_public"):
        assert "judges: gpt-4o-2024-05-13" in needed[name]


def test_finding() -> None:
    assert registry.find("AIR-Bench").name == "air_bench"
    assert registry.find("classic-before-0.2.4").num_train_trials == 3
    stanford = registry.find("medhelm_private_stanford")
    assert (stanford.name, stanford.conf) == ("medhelm_private_stanford", "run_entries_medhelm_private_stanford.conf")
    assert not stanford.names_no_organization
    assert registry.find("medhelm-private").names_no_organization
    with pytest.raises(ConfigError, match="did you mean safety"):
        registry.find("safty")
    with pytest.raises(ConfigError, match=r"no leaderboard is called 'medhelm_private_\.\./x'"):
        registry.find("medhelm_private_../x")
