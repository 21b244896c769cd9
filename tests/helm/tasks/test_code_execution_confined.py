"""Tests of what HELM executes, and who confines it."""

from __future__ import annotations

from eval_factory.helm_plugin.patches.patch_registry import PATCHES
from eval_factory.tasks.run_specs import (
    EXECUTES_ONLY_WITH,
    NEEDS_NO_PERMISSION,
    NOT_CONFINED,
    load_index,
    needs_permission,
)

CONFINED = frozenset().union(
    *(one.run_specs or () for one in PATCHES if one.name.startswith("confine_"))
)
EXECUTING = {
    "bigcodebench": "a remote service",
    "bird_sql": "SQL",
    "cleva": "Python",
    "code": "Python",
    "codeinsights_code_efficiency": "C++",
    "codeinsights_correct_code": "C++",
    "codeinsights_student_coding": "C++",
    "codeinsights_student_mistake": "C++",
    "czech_bank_qa": "SQL",
    "ehr_sql": "SQL",
    "image2musicsheet": "a program",
    "spider": "SQL",
    "unitxt": "any function that unitxt's card names",
}


def test_what_helm_executes_and_who_confines_it() -> None:
    """Where another HELM executes more, somebody has to say here what is done about it."""
    specs = load_index().run_specs
    found = {name: list(spec.executes) for name, spec in specs.items() if spec.executes}
    assert found == {name: [what] for name, what in EXECUTING.items()}
    assert set(found) == CONFINED | NOT_CONFINED | NEEDS_NO_PERMISSION
    assert not CONFINED & (NOT_CONFINED | NEEDS_NO_PERMISSION)
    assert set(EXECUTES_ONLY_WITH) <= set(found)
    assert {name for name, spec in specs.items() if needs_permission(name, spec)} == set(found) - {
        "ehr_sql"
    }
