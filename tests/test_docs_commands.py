"""Every command and configuration in README and docs/: run where nothing outside is needed, else parsed, with the reason."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator

from eval_factory.analysis.gate_policy import load_policy
from eval_factory.cli.main import cli
from eval_factory.config.json_schema import run_config_schema, suite_schema
from eval_factory.core.errors import EvalFactoryError
from eval_factory.monitor.panel import panel_schema
from eval_factory.report import documents
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.framework import load_framework
from invented_labels import COLUMN, drawn, written_labels
from stored_results import instance, result, written

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "eval-factory"
PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
PREVIEWED = ("run_eval", "run_suite", "leaderboard run")
"""They need endpoints and keys: the preview is run in their place."""
NOT_RUN = {
    "data pull",
    "data pack",
    "data unpack",
    "data import",
    "data verify",  # a network, or a bundle
    "upstream install",  # a network, and an environment of 760 MB
    "verify",
    "reproduce",
    "rescore",
    "export",
    "view",  # whole runs
    "import",  # results of other programs
    "report",
    "suite",
    "annotate",  # files that no page makes
}
"""Commands, or groups of them, that are parsed only: they have tests of their own."""
OTHER_PROGRAMS = {
    "bash",
    "cat",
    "cosign",
    "cp",
    "curl",
    "docker",
    "echo",
    "export",
    "git",
    "gpg",
    "head",
    "helm-run",
    "helm-server",
    "helm-summarize",
    "kubectl",
    "minisign",
    "mkdir",
    "pip",
    "pipx",
    "printf",
    "python",
    "sed",
    "sh",
    "sha256sum",
    "source",
    "uv",
    "uvx",
}
"""Programs that are not ours; scripts of the project that they start are looked for."""


@dataclass(frozen=True)
class Step:
    """One simple command of a block, or a file that it writes."""

    words: tuple[str, ...]
    writes: str | None = None
    text: str = ""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


def steps(block: str) -> Iterator[Step]:
    """Simple commands in their order; `cat > file << EOF` is a file."""
    rest = block.replace("\\\n", " ").splitlines()
    while rest:
        line = rest.pop(0)
        here = re.match(r"cat > (\S+) << '?(\w+)'?$", line.strip())
        if here:
            end = rest.index(here[2])
            yield Step(("cat",), here[1], "\n".join(rest[:end]) + "\n")
            del rest[: end + 1]
            continue
        yield from _simple(line)


def _simple(line: str) -> Iterator[Step]:
    if re.match(r"\w+=\$?\S*\(|#", line.strip()):
        return  # a variable of the shell, or a remark
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|>")
    words.whitespace_split = True
    current: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set(";&|"):
            if current:
                yield Step(tuple(_without_redirection(current)))
            current = []
        else:
            current.append(word)


def _without_redirection(words: list[str]) -> list[str]:
    if ">" in words:
        at = words.index(">")
        words = words[:at] + words[at + 2 :]
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    return words


def parsed(words: tuple[str, ...]) -> tuple[str, click.Context]:
    """The command that click finds, with its options read: a wrong one is an error."""
    context = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    arguments = list(words[1:])
    while arguments and arguments[0] in ("--debug",):
        arguments.pop(0)
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, words
        command = found
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
        else:
            context = command.make_context(str(name), arguments, parent=context)
    return context.command_path.removeprefix(f"{PROGRAM} "), context


def our_commands(page: Path) -> list[Step]:
    return list(chain.from_iterable(steps(block) for block in blocks(page, "bash")))


def assert_known(step: Step) -> None:
    """Another's program, or a script of the project."""
    program, *arguments = step.words
    assert program in {*OTHER_PROGRAMS, *functions_of_venv_sh()} or program.startswith(".venv"), (
        step.words
    )
    if program in ("bash", "source", "python") and arguments:
        assert arguments[0].startswith(("-", ".venv")) or (ROOT / arguments[0]).is_file(), (
            step.words
        )
    if program.endswith("/nox") and arguments[0] == "-s":
        named = [
            word for word in arguments[1:] if word != "--" and not word.startswith(("tests", "-"))
        ]
        assert {word.partition("-")[0] for word in named} <= sessions(), step.words


def test_every_command_beside_another_programs_is_one_that_there_is() -> None:
    """In the tables commands stand inside of lines, and a shell's block would not hold them."""
    page = (ROOT / "docs" / "coming-from.md").read_text("utf-8")
    commands = re.findall(rf"`({PROGRAM} [^`]+)`", page)
    assert len(commands) > 12
    for command in commands:
        parsed(tuple(shlex.split(command)))


def functions_of_venv_sh() -> set[str]:
    return set(
        re.findall(r"^(\w+)\(\)", (ROOT / "scripts" / "venv.sh").read_text("utf-8"), re.MULTILINE)
    )


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text("utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return functions | {"unit", "helm", "integration", "faults", "tests"}


FOLDERS = {
    "results/a": "1101100101",
    "results/b": "1101111111",
    "results/c": "0101100101",
    "results/my_test": "1101",
    "results/first": "1100",
    "results/second": "1100",
    "results/small": "1101" * 50,
    "results/large": "1111" * 50,
}
"""Results that pages speak of, with which instances are right."""
LENIENT = "exact_match.lenient"
NOT_MADE = {
    "panel.yml": "a panel of the reader's; tests/integration/test_monitor.py",
    "policy.yml": "a policy of the reader's; tests/unit/analysis/test_gate.py",
    "my_rubric/run_config.yml": "of the README's new_benchmark, which runs it; elsewhere parsed only",
    "run_entries_medhelm_public.conf": "a file of HELM's repository; tests/integration/test_leaderboard.py",
}
"""Files that a page speaks of and does not show; a command that names one is parsed only."""
MAY_END_WITH = {"gate": {0, 1}, "doctor": {0, 3}}
"""Exit codes other than 0 that a result may have."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages' commands find: results, the project's run configs."""
    folder = tmp_path_factory.mktemp("docs")
    for name, values in FOLDERS.items():
        records = [instance(f"q{number}", float(one)) for number, one in enumerate(values)]
        records = [
            replace(one, metrics={**one.metrics, LENIENT: one.metrics["exact_match"]})
            for one in records
        ]
        written(folder / name, result(records, ("exact_match", LENIENT)))
    return folder


def my_test() -> str:
    """The README's run config."""
    (found,) = (
        step.text for step in our_commands(ROOT / "README.md") if step.writes == "my_test.yml"
    )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_page_run(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").symlink_to(finished / "results")
    (tmp_path / "test_cases").symlink_to(ROOT / "test_cases")
    (tmp_path / "my_test.yml").write_text(my_test())
    written_labels(
        tmp_path / "labels.jsonl", [{**row, "my_judge": row[COLUMN]} for row in drawn(40)]
    )
    monkeypatch.chdir(tmp_path)
    for step in our_commands(ROOT / name):
        if step.writes:
            Path(step.writes).write_text(step.text)
        elif step.words[:1] == (PROGRAM,) and step.words[1:] != ("--version",):
            code, said = outcome(step.words)
            path = parsed(step.words)[0]
            assert code in MAY_END_WITH.get(path, {0}), f"{shlex.join(step.words)}\n{said}"
        elif step.words[:1] not in ((), (PROGRAM,)):
            assert_known(step)


def outcome(words: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and output; 0 and nothing where it was parsed only."""
    path, context = parsed(words)
    if not_there(context) or (path == "data ls" and len(words) > 3):
        return 0, ""
    if path in PREVIEWED:
        if context.params.get("data_dir") or any("..." in word for word in words):
            return 0, ""  # a bundle that is not there
        words = (*words, "--dry_run")
    elif {path, path.partition(" ")[0]} & NOT_RUN:
        return 0, ""
    ended = CliRunner().invoke(cli, list(words[1:]))
    error = ended.exception
    code = error.exit_code if isinstance(error, EvalFactoryError) else ended.exit_code
    return code, f"{ended.output}{error or ''}"


def not_there(context: click.Context) -> bool:
    """A file that nobody made in front of the command, and that is named here."""
    named = {value for value in context.params.values() if isinstance(value, Path)}
    return any(str(path) in NOT_MADE and not path.exists() for path in named)


def yaml_blocks() -> list[tuple[str, str]]:
    inside = []
    written = []
    for name in NAMES:
        inside += [(name, block) for block in blocks(ROOT / name, "ya?ml")]
        steps_of_page = our_commands(ROOT / name)
        written += [(name, step) for step in steps_of_page if (step.writes or "").endswith("ml")]
    return [
        *(pair for pair in inside if "apiVersion:" not in pair[1]),  # Kubernetes' own
        *((name, step.text) for name, step in written),
    ]


@pytest.mark.parametrize(
    ("name", "block"), yaml_blocks(), ids=lambda value: value if value in NAMES else "block"
)
def test_a_yaml_block_is_what_it_says(name: str, block: str, tmp_path: Path) -> None:
    """A run config, a policy, a benchmark, or a part of a result."""
    text = re.sub(r"\{\.\.\., ", "{", re.sub(r", \.\.\.\}", "}", block)).replace(" ...,", " x,")
    document = yaml.safe_load(text)
    if set(document) <= {"config", "target", "executor", "slurm"}:
        assert not unknown(document, run_config_schema(load_framework())), name
    elif "benchmarks" in document:
        (tmp_path / "policy.yml").write_text(text)
        assert load_policy(tmp_path / "policy.yml").benchmarks
    elif "dataset_file" in document:
        messages = '{"id": "a", "messages": [{"role": "user", "content": "?"}], '
        for file, content in (
            ("prompt.txt", "{question}"),
            ("data.csv", "question,correct_answer\nWhat?,A\n"),
            ("cases.jsonl", messages + '"rubrics": [{"criterion": "c", "points": 1}]}'),
            ("conversations.jsonl", messages + '"correct_answer": "A"}'),
        ):
            (tmp_path / file).write_text(content)
        (tmp_path / "benchmark.yaml").write_text(text)
        assert load_benchmark(tmp_path / "benchmark.yaml")
    elif "metrics" in document:
        assert all("name" in metric for metric in document["metrics"])
    elif {"jobs", "on", True} & set(document):
        assert document["jobs"]  # a workflow of GitHub
    elif "monitor" in document:
        assert not unknown(document, panel_schema()), name
    elif "suite" in document:
        assert not list(Draft7Validator(suite_schema(load_framework())).iter_errors(document)), name
    elif "variables" in document:
        assert any("script" in job for job in document.values())  # jobs of GitLab
    else:
        schema = documents.read_schema(documents.EVALUATION_CONFIG_SCHEMA)
        places = (schema["properties"], schema["properties"]["validity"]["properties"])
        assert any(set(document) <= set(place) for place in places) or "runs" in document, name


def unknown(document: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Keys that a run config does not have."""
    found: list[str] = []
    for option in (schema, *schema.get("anyOf", [])):
        known = option.get("properties")
        if known is not None and isinstance(document, dict):
            for key, value in document.items():
                found += (
                    unknown(value, known[key], f"{path}.{key}")
                    if key in known
                    else [f"{path}.{key}"]
                )
        elif "items" in option and isinstance(document, list):
            for value in document:
                found += unknown(value, option["items"], f"{path}[]")
    return found
