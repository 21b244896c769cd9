"""What our plug-in leaves in helm-run's output folder, beside HELM's own files (`helm/output.py`)."""

from __future__ import annotations

from pathlib import Path

from eval_factory.helm import names
from eval_factory.helm.output import HelmRecord, read_record


class HubDataset(HelmRecord):
    id: str
    config: str
    revision: str
    folder: str

    def files(self) -> dict[str, Path]:
        """`hub:ID@REVISION/CONFIG/file` -> the prepared table that was read."""
        name = f"hub:{self.id}@{self.revision}/{self.config}"
        return {f"{name}/{path.name}": path for path in sorted(Path(self.folder).glob("*.arrow"))}


def hub_datasets(helm_dir: Path) -> list[HubDataset]:
    """The data sets of the Hugging Face Hub that were loaded. Raises HelmError."""
    file = helm_dir / names.HUB_DATASETS_FILE
    return list(read_record(file, list[HubDataset])) if file.is_file() else []


class AppliedPatch(HelmRecord):
    """A patch of HELM that a helm-run applied."""

    name: str
    run_specs: list[str] | None = None
    """Those that it is for; None: every run."""


class AppliedPatches(HelmRecord):
    applied: list[AppliedPatch]

    def of(self, run_spec: str) -> list[str]:
        """Names of those that a run of this run spec met; one helm-run may be of several."""
        return [patch.name for patch in self.applied if patch.run_specs is None or run_spec in patch.run_specs]


def applied_patches(helm_dir: Path) -> AppliedPatches | None:
    """None where helm-run did not write them down: that of an earlier version of ours. Raises HelmError."""
    file = helm_dir / names.PATCHES_FILE
    return read_record(file, AppliedPatches) if file.is_file() else None


class LimitedRecords(HelmRecord):
    """What a scenario's `max_length` did to the records that it read."""

    run_spec: str
    max_length: int
    records: int
    left_out: int = 0
    cut: int = 0


def limited_records(helm_dir: Path) -> LimitedRecords | None:
    """None where no scenario wrote such down. Raises HelmError."""
    file = helm_dir / names.LIMITED_RECORDS_FILE
    return read_record(file, LimitedRecords) if file.is_file() else None


class CodeExecution(HelmRecord):
    """How what the model answered was executed."""

    run_specs: list[str] = []
    by: list[str] = []
    still_can: list[str] | None = None
    """Of versions that executed answers without a sandbox, too: what an answer could do all the same."""
    ended: int = 0
    """Answers that ended the process that executed them."""
    shortened: int = 0
    """Queries that were ended before their time, because the model's others had used it up."""


def code_execution(helm_dir: Path) -> CodeExecution | None:
    """None where nothing was executed. Raises HelmError."""
    file = helm_dir / names.CODE_EXECUTION_FILE
    return read_record(file, CodeExecution) if file.is_file() else None


def judge_prompts(helm_dir: Path, annotation: str) -> tuple[str, ...] | None:
    """SHA-256 of each template of the prompt that the judges were asked with; None where they were not written down.

    Raises HelmError.
    """
    file = helm_dir / names.JUDGE_PROMPTS_FILE
    found: dict[str, list[str]] = read_record(file, dict[str, list[str]]) if file.is_file() else {}
    return tuple(found[annotation]) if annotation in found else None
