"""Tests of what is known of tasks, as records."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import Task, load_framework
from eval_factory.tasks.task_info import list_tasks, task_info, tasks_with_tag
from facts import naming

FRAMEWORK = load_framework()
TASKS = {task.name: task for task in list_tasks()}


def test_tasks_are_listed_in_their_order() -> None:
    assert (
        list(TASKS) == [task.name for task in tasks_with_tag(None, FRAMEWORK)] == FRAMEWORK.names()
    )
    found = list_tasks("jury")
    assert 0 < len(found) < len(TASKS)
    assert [task.name for task in found] == [
        name for name, task in TASKS.items() if "jury" in task.tags
    ]
    with pytest.raises(ConfigError, match=naming("'jurx'", "jury")):
        list_tasks("jurx")


@pytest.mark.parametrize("given", FRAMEWORK.evaluations, ids=FRAMEWORK.names())
def test_a_record_says_what_the_framework_says(given: Task) -> None:
    found = task_info(given)
    helm = given.helm
    about = given.about
    assert (found.name, found.type, found.description) == (
        given.name,
        f"helm.{given.name}",
        given.description,
    )
    assert (found.endpoint_types, found.judges) == (given.endpoint_types, helm.judges)
    assert (found.main_metric, found.run_spec) == (helm.main_metric, helm.run_spec)
    for name in (
        "access",
        "source",
        "licence",
        "revision",
        "instances",
        "size_mb",
        "tags",
        "tried",
        "notes",
        "published",
        "label_noise",
        "answers_public",
    ):
        assert getattr(found, name) == getattr(about, name), name
    scoring = "jury" if helm.judges else "rule"
    assert found.scoring == ("either" if given.name == "custom" else scoring)
    assert list(found.parameters) == list(helm.parameters)
    for name, rule in helm.parameters.items():
        told = found.parameters[name]
        for known in ("required", "fixed", "allowed", "path", "other_name", "about"):
            assert getattr(told, known) == getattr(rule, known), known
        assert told.default == given.default_of(name)
        assert len(told.layout) == len(rule.layout)


def test_what_is_known_of_publication_and_labels_can_be_true() -> None:
    for name, about in ((task.name, task.about) for task in FRAMEWORK.evaluations):
        assert about.published is None or re.fullmatch(r"20[12]\d-(0[1-9]|1[0-2])", about.published)
        assert about.answers_public is (None if name == "custom" else about.access == "public"), (
            name
        )
        assert (about.label_noise is None) is (about.label_audit is None)
        if about.label_noise is not None:
            least, greatest = about.label_noise
            assert 0 < least <= greatest < 1
    entry = replace(FRAMEWORK.evaluations[0].about, access="unknown")
    assert entry.answers_public is None, "of a run entry of HELM's nobody has said who may read it"
