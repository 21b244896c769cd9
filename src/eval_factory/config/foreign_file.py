"""The conversion of one file of another program: what is found in it, and what is read of it.

A finding is a line about a setting that the new configuration lacks or holds in another form.
`foreign_configs.yml` holds the tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.config.foreign_keys import NO_EFFECT, ONLY, TABLE
from eval_factory.config.merge import is_credential
from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.secrets import REDACTED, looks_like_key
from eval_factory.tasks.framework import Framework, Task
from eval_factory.tasks.run_entry import (
    CONFIG_TYPE,
    is_run_entry,
    similar_name_hint,
    task_of_run_entry,
)

Tree = dict[str, Any]
ADVICE = TABLE["advice"]  # the name of a key, or `section.*` -> the advice about the key
MESSAGES = TABLE["messages"]  # the name of a message -> the message, with placeholders
_MAX_FINDING = 2000  # the maximum length of a finding, in characters


@dataclass
class FileImport:
    """The conversion of one file, with the findings so far."""

    path: Path
    framework: Framework
    document: Mapping[str, Any]
    findings: list[str] = field(default_factory=list)
    serve: Tree | None = None  # the server that is started for every target
    api_key_variables: set[str] = field(default_factory=set)
    """The container's variables that hold an API key. The new configuration names the user's own
    variables instead.
    """

    def note(self, path: str, message: str) -> None:
        """Add a finding about the setting at a path."""
        # Names in a file are foreign text, so they may hold line breaks and be very long.
        self.findings.append(one_line(f"{path}: {message}", _MAX_FINDING))

    def note_unknown_keys(self, section: str, value: Any, known_keys: Collection[str]) -> None:
        """Note the keys of a section that are not read; the arguments are those of known_values."""
        self.known_values(section, value, known_keys)

    def known_values(
        self, section: str, value: Any, known_keys: Collection[str], prefix: str = ""
    ) -> Tree:
        """Return the values of a section whose keys are known, and note the other keys.

        Nulls are dropped, except the null of a credential, which means that no API key is sent. An
        unknown key with an empty value is not noted.

        Args:
            section: the path of the section in its layer; empty for the top.
            value: the section as the file holds it.
            known_keys: the keys that are read.
            prefix: the path of the layer in the file, with a final dot; empty for the top.
        """
        if value is not None and not isinstance(value, Mapping):
            self.note(f"{prefix}{section}", "must be a mapping of keys to values")
        known: Tree = {}
        for name, entry in mapping(value).items():
            if entry is None and not is_credential(name):
                continue
            if name in known_keys:
                known[name] = entry
            elif entry not in ("", {}, []):
                advice = self._advice(section, name, known_keys)
                self.note(f"{prefix}{section}.{name}".lstrip("."), advice)
        return known

    def _advice(self, section: str, name: str, known_keys: Collection[str]) -> str:
        """Return the advice about a key that eval-factory does not read.

        The advice about the key itself is preferred to the advice about its section.
        """
        only = ONLY.get(f"{section}.{name}")
        if only is not None:
            return f"cannot be changed here: {only['done']}; leave it out"
        if name in ADVICE:
            return str(ADVICE[name])
        if name in NO_EFFECT.get(section, ()):
            return str(ADVICE["caching"])  # This advice fits all keys without an effect.
        if f"{section}.*" in ADVICE:
            return str(ADVICE[f"{section}.*"])
        return f"has no counterpart; leave it out{did_you_mean(name, sorted(known_keys))}"

    def task(self, name: Any, path: str) -> Task | None:
        """Return the task of this name; None, with a finding, if eval-factory has no such task.

        A task of another harness is another benchmark, even if both use the same data. It is
        therefore never replaced by a task of eval-factory.
        """
        if not isinstance(name, str):
            self.note(path, "names no task; 'eval-factory ls' lists the tasks")
            return None
        if is_run_entry(name, self.framework):
            mistakes: list[str] = []
            task = task_of_run_entry(name, self.framework, mistakes)
            for mistake in mistakes:
                self.note(path, mistake.removeprefix(f"{CONFIG_TYPE}: "))
            return task
        task = self.framework.task(name)
        if task is None:
            short_name = name.rpartition(".")[2]  # without the name of the harness
            near = similar_name_hint(short_name, self.framework)
            shown_name = REDACTED if looks_like_key(name) else repr(name)
            self.note(path, f"eval-factory has no task {shown_name}{near}; {MESSAGES['tasks']}")
        return task


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping; an empty mapping for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return value


def last_name(path: str) -> str:
    """Return the last name of a dotted path: `NAME` of `evaluation.env_vars.NAME`."""
    return path.rpartition(".")[2]


def without_empty(tree: Tree) -> Tree:
    """Return the tree without entries at its top level that are an empty mapping or list."""
    return {name: value for name, value in tree.items() if value not in ({}, [])}
