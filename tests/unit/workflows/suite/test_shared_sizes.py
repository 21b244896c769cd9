"""One look at the data for cells that make the same requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.estimate import PromptSizes, own_scenarios
from eval_factory.workflows.suite.suite_estimate import SharedSizes
from unit.builders import plan

KNOWN, NOT_HERE = PromptSizes(7, 100, 10), PromptSizes(None, reason="its data are not here")


class Looks:
    """Finds data where the folder of the cell has some, or everywhere."""

    def __init__(self, *, everywhere: bool) -> None:
        self.everywhere = everywhere
        self.folders: list[str] = []
        self.shared = SharedSizes(self._look)

    def _look(self, of: Plan, _env: object) -> PromptSizes:
        self.folders.append(of.rundir.root.name)
        return KNOWN if self.everywhere or own_scenarios(of).is_dir() else NOT_HERE

    def at(self, folder: Path, **changes: Any) -> PromptSizes:
        return self.shared(cell(folder, **changes), {})


def cell(folder: Path, **changes: Any) -> Plan:
    return plan({"config.output_dir": str(folder), **{name.replace("__", "."): one for name, one in changes.items()}})


def test_another_target_is_not_looked_at(tmp_path: Path) -> None:
    looks = Looks(everywhere=True)
    for name in ("a", "b", "c"):
        found = looks.at(
            tmp_path / name,
            target__api_endpoint__model_id=f"org/{name}",
            target__api_endpoint__url=f"https://{name}.org/v1",
            target__api_endpoint__type="completions" if name == "c" else "chat",
        )
        assert found == KNOWN
    assert looks.folders == ["a"]


def test_data_in_a_cells_own_folder_are_found_where_others_have_none(tmp_path: Path) -> None:
    own_scenarios(cell(tmp_path / "c")).mkdir(parents=True)
    looks = Looks(everywhere=False)
    assert [looks.at(tmp_path / name) for name in "abcd"] == [NOT_HERE, NOT_HERE, KNOWN, KNOWN]
    assert looks.folders == ["a", "c"]
