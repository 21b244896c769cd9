"""The page of every exit code and every message, by its text."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from scripts.reference.message_texts import Source, other_texts
from scripts.reference.page_text import code, page, table

from eval_factory.core import errors

PACKAGE = Path(errors.__file__).resolve().parents[1]
VALUES = {"ValueError": 2, "PydanticCustomError": 2}
"""What a check of a value raises; the reader of the file makes a ConfigError of it."""
CHECKS_OF_VALUES = ("config/", "tasks/", "analysis/gate_policy.py", "core/plain_yaml.py", "core/user_paths.py")
ENDPOINT = "endpoint/stop_messages.py"
"""What ends a run because of an endpoint, passed on by helm-run."""
ELSEWHERE = ("cli/main.py", "config/json_schema.py", "demo/", "engine/", "report/page/", "helm_plugin/patches/")
"""Texts that are no messages, or that nobody but a developer meets: help, descriptions, samples, pages."""
CODES = {
    0: ("complete", "Nothing: the result is whole and may be reported."),
    1: (
        "a score is not reportable, results cannot be compared, a gate failed, a folder was altered",
        "Read the reason: it names what to change. Where requests failed, the same command asks for the missing ones.",
    ),
    2: (
        "the command line or a file of yours is wrong",
        "Nothing was asked. Correct what the message names; `run_eval --dry_run` checks without starting anything.",
    ),
    3: (
        "something is missing: a key, the endpoint, data, a package, disk space",
        "Supply what the message names and give the same command again: what was answered is kept.",
    ),
    4: (
        "HELM failed",
        "Read `logs/helm-run.log`, whose place the message names. Answers are kept; the same command goes on.",
    ),
    5: ("the folder is in use", "Wait for the other run, whose process the message names, or choose another folder."),
    70: (
        "a defect in eval-factory",
        "The message names a file with the traceback, without keys: report it with that file.",
    ),
    130: ("interrupted", "Give the same command again: it goes on where it was."),
}
INTRODUCTION = """\
`<name>` stands for a value. Find a message by a few words of its fixed part. The lines below a message, where it has
some, are its next step. All texts are read from the source when this page is made, which no list by hand is; the last
part has what is not tied to one exit code: warnings, notes of results, and parts that messages are put together from.
What pydantic, YAML or the system say of a value or file is passed on as it is, after the file and the key."""


def exit_codes() -> dict[str, int]:
    """The error classes, by the exit code of each."""
    return {
        name: value.exit_code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EvalFactoryError) and value.__bases__ != (Exception,)
    }


def collected(source: Source) -> dict[int, dict[str, list[str]]]:
    """Exit code -> module -> its messages, each once."""
    found: dict[int, dict[str, list[str]]] = {}

    def keep(items: Iterable[tuple[int, str, str]]) -> None:
        for number, path, text in items:
            known = found.setdefault(number, {}).setdefault(path, [])
            if text not in known:
                known.append(text)

    keep(source.raised(exit_codes()))
    keep(item for item in source.raised(VALUES) if item[1].startswith(CHECKS_OF_VALUES))
    keep((3, module.path, text) for module in source.modules.values() if module.path == ENDPOINT
         for text in other_texts(module, set()))  # fmt: skip
    return found


def messages_page() -> str:
    """docs/reference/messages.md."""
    source = Source.of(PACKAGE)
    about = {module.path: _about(module.tree) for module in source.modules.values()}
    by_code = collected(source)
    lines = [INTRODUCTION, "", *table(("exit code", "meaning", "what to do"), _code_rows())]
    for number, (meaning, _) in CODES.items():
        if number in by_code:
            lines += ["", f"## Exit code {number}: {meaning}"]
            for path, texts in sorted(by_code[number].items()):
                lines += ["", *_section(about[path], path, texts)]
    lines += ["", "## Warnings, notes and parts of messages"]
    known = {text for group in by_code.values() for texts in group.values() for text in texts}
    for module in source.modules.values():
        texts = [] if module.path.startswith(ELSEWHERE) else list(dict.fromkeys(other_texts(module, known)))
        if texts:
            lines += ["", *_section(about[module.path], module.path, texts)]
    return page("Every exit code and message", lines)


def _code_rows() -> list[tuple[str, str, str]]:
    return [(f"{number}", meaning, advice) for number, (meaning, advice) in CODES.items()]


def _about(tree: ast.Module) -> str:
    """The first sentence of a module's docstring."""
    text = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    return text if text.endswith(("?", ".")) else f"{text}."


def _section(about: str, path: str, texts: Iterable[str]) -> list[str]:
    lines = [f"### `{path}`", "", about, ""]
    for text in texts:
        first, *more = text.strip().splitlines()
        lines.append(f"- {code(first)}")
        lines += [f"  - {code(line.strip())}" for line in more if line.strip()]
    return lines
