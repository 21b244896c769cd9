"""Which versions of HELM this program supports, and what it can evaluate with another one."""

from __future__ import annotations

from importlib import metadata

from eval_factory.helm import names

HELM = "crfm-helm"
"""HELM's name as a package."""

SUPPORTED_HELM = (names.MEASURED_HELM,)
"""Those that every patch of HELM was checked against."""

NEEDS_PATCHES = names.JURY_RUN_SPECS | {
    "bird_sql", "cleva", "code", "codeinsights_code_efficiency", "codeinsights_correct_code",
    "codeinsights_student_coding", "codeinsights_student_mistake", "czech_bank_qa", "ehr_sql", "ehrshot",
    "medbullets_freetext", "spider",
}  # fmt: skip
"""Run specs that are wrong or unsafe without a patch, which is applied to a supported version only. What stands here is
what the registry of patches says (`helm_plugin/patches/patch_registry.py`); a test compares them."""


def installed_helm() -> str:
    """Raises:
    PackageNotFoundError: HELM is not installed.
    """
    return metadata.version(HELM)


def is_refused(helm: str, run_spec: str) -> bool:
    """Whether a run spec may not be run with this version of HELM."""
    return helm not in SUPPORTED_HELM and run_spec in NEEDS_PATCHES
