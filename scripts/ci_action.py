#!/usr/bin/env python3
"""The program that action.yml runs: a preview of changed run configs, evaluations, or a gate.

SETTINGS lists the environment variables that it reads. No text of a user passes through a shell:
file names and inputs are passed as arguments. A preview gets no variable whose name is that of a
secret. In its output, no part of a file's name or content acts as Markdown, as HTML or as a command
to the CI system.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory import api
from eval_factory.core.errors import ConfigError, EvalFactoryError, PrerequisiteError
from eval_factory.core.foreign_text import printable, printable_lines
from eval_factory.core.plain_yaml import YamlError, parse
from eval_factory.core.secrets import names_a_secret

SETTINGS = {
    "EF_MODE": "preview, evaluate or gate",
    "EF_RUN_CONFIGS": "git's glob patterns of run configs, a line each",
    "EF_BASE": "the commit that changes are against; "
    "all run configs that match are previewed if not given",
    "EF_POLICY": "the gate's policy",
    "EF_CANDIDATES": "output folders, a line each",
    "EF_BASELINES": "output folders, a line each",
    "EF_JUNIT": "the file for JUnit XML",
    "EF_ARGS": "more arguments of run_eval or gate, a line each",
}
JOB_SUMMARY = "GITHUB_STEP_SUMMARY"
MAX_SUMMARY_BYTES = 700_000  # GitHub shows at most 1 MiB of a step's summary.
NO_COMMIT = "0" * 40
"""The commit that GitHub and GitLab name as the base of a branch's first push."""
INTERRUPTED = 130
EXIT_CODES = {
    0: "complete",
    1: "a score is not reportable",
    2: "wrong configuration",
    3: "something is missing",
    4: "HELM failed",
    5: "the folder is in use",
    70: "a defect",
    INTERRUPTED: "interrupted",
}

_MARKUP = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`|[]!*~"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
"""A table for `str.translate` that escapes the characters that Markdown would interpret: they could
end a table's cell, begin a link, an image or HTML, or make words bold.
"""
MIN_FENCE = 3  # the minimum number of backquotes that begin and end a code block


def markdown_cell(words: str) -> str:
    """Return Markdown that shows a text unchanged, on one line, in a table or a sentence."""
    return printable(words).translate(_MARKUP)


def code_block(text: str) -> str:
    """Return a code block of Markdown that shows lines unchanged.

    Its fences are longer than any run of backquotes in the text, which could end the block.
    """
    longest = max((len(backquotes) for backquotes in re.findall("`+", text)), default=0)
    fence = "`" * max(MIN_FENCE, longest + 1)
    return f"{fence}\n{printable_lines(text).rstrip()}\n{fence}\n"


@dataclass(frozen=True)
class Previewed:
    """The preview of one run config."""

    name: str  # the path of the run config in the checkout
    exit_code: int  # 0 if the run config is valid
    summary: str  # one line: a run would start, or the first problem
    text: str  # the complete output of `--dry_run`, or all problems


def main() -> int:
    env = os.environ
    modes: Mapping[str, Callable[[Mapping[str, str]], int]] = {
        "preview": preview,
        "evaluate": evaluate,
        "gate": gate,
    }
    mode = env.get("EF_MODE", "")
    try:
        if mode not in modes:
            raise ConfigError(f"mode: must be preview, evaluate or gate, not {mode!r}")
        return modes[mode](env)
    except EvalFactoryError as error:
        print(
            *(f"eval-factory: {printable(line)}" for line in str(error).split("\n")),
            sep="\n",
            file=sys.stderr,
        )
        return error.exit_code


def preview(env: Mapping[str, str]) -> int:
    """Make a dry run of each changed run config, and return the highest exit code.

    No model is asked, and no key is needed.
    """
    root = Path.cwd()
    base = _commit(env.get("EF_BASE", ""))
    names = list(_run_configs(env, base))
    env_without_secrets = {name: value for name, value in env.items() if not names_a_secret(name)}
    previews = [_previewed(root, name, env_without_secrets, base) for name in names]
    for preview_of_config in previews:
        exit_code = preview_of_config.exit_code
        outcome = "valid" if exit_code == 0 else f"exit {exit_code}"
        print(printable(f"{outcome}: {preview_of_config.name}: {preview_of_config.summary}"))
    noun = "changed run config" if base else "run config"
    if not previews:
        print(f"no {noun} matches")
    _add_summary(env, _summary_of_previews(previews, noun))
    return max((preview_of_config.exit_code for preview_of_config in previews), default=0)


def _previewed(root: Path, name: str, env: Mapping[str, str], base: str | None) -> Previewed:
    """Return the preview of a run config; with a base, also the changes against the base."""
    path = root / name
    # The file and its folders, below the checkout.
    paths = [part for part in (path, *path.parents) if part.is_relative_to(root) and part != root]
    if any(part.is_symlink() for part in paths):
        problem = "is a symbolic link, which a preview does not follow"
        return Previewed(name, ConfigError.exit_code, problem, problem)
    try:
        text = api.dry_run(path, env=env).text
        if base is not None:
            text = f"{_difference(path, name, base, env)}{text}"
    except EvalFactoryError as error:
        problems = str(error).replace(f"{root}{os.sep}", "").split("\n")
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Previewed(name, error.exit_code, problems[0] + more, "\n".join(problems))
    return Previewed(name, 0, "a run would start", text)


def _difference(path: Path, name: str, base: str, env: Mapping[str, str]) -> str:
    """Return the values that differ from the run config in the base commit, for the preview.

    The text is empty if the base commit does not have the file, or if the file is not valid there.
    """
    try:
        before = parse(os.fsdecode(_git("show", f"{base}:{name}")))
        difference = api.dry_run(path, env=env, options=api.Options(diff=before)).text
    except (EvalFactoryError, YamlError):
        return ""
    return f"# what differs from the base\n{difference}\n"


def _summary_of_previews(previews: Sequence[Previewed], noun: str) -> str:
    """Return Markdown for the job's summary: a table, and the text of each preview if it fits."""
    if not previews:
        return f"## Preview of run configs\n\nNo {noun} matches.\n"
    lines = [
        "## Preview of run configs",
        "",
        "| run config | exit code | what is said |",
        "|---|---|---|",
    ]
    for shown in previews:
        name = markdown_cell(shown.name)
        lines.append(f"| {name} | {shown.exit_code} | {markdown_cell(shown.summary)} |")
    text = "\n".join(lines) + "\n"
    left_out = 0
    for shown in previews:
        details = (
            f"\n<details><summary>{markdown_cell(shown.name)}</summary>\n\n"
            f"{code_block(shown.text)}\n</details>\n"
        )
        if len((text + details).encode()) > MAX_SUMMARY_BYTES:
            left_out += 1
        else:
            text += details
    if left_out:
        text += f"\nDetails of {left_out} are left out: the page would be too large.\n"
    return text


def evaluate(env: Mapping[str, str]) -> int:
    """Run each run config, one after the other, and return the highest exit code."""
    codes: dict[str, int] = {}
    for name in _run_configs(env, None):
        path = Path.cwd() / name
        print(printable(f"evaluating {name}"), flush=True)
        codes[name] = _program("run_eval", f"--run_config={path}", *_lines(env, "EF_ARGS"))
        if codes[name] == INTERRUPTED:
            break
    if not codes:
        raise ConfigError(
            "run-configs: no file that git knows matches these patterns; is it committed?"
        )
    lines = ["## Evaluations", "", "| run config | exit code | |", "|---|---|---|"]
    lines += [
        f"| {markdown_cell(name)} | {code} | {EXIT_CODES.get(code, 'unknown')} |"
        for name, code in codes.items()
    ]
    _add_summary(env, "\n".join(lines) + "\n")
    return max(codes.values())


def gate(env: Mapping[str, str]) -> int:
    """Run `eval-factory gate`, which adds to the job's summary itself."""
    policy = env.get("EF_POLICY", "").strip()
    candidates = _lines(env, "EF_CANDIDATES")
    if not policy or not candidates:
        raise ConfigError("gate: give policy and candidates")
    junit = env.get("EF_JUNIT", "").strip()
    return _program(
        "gate",
        *(f"--candidate={folder}" for folder in candidates),
        *(f"--baseline={folder}" for folder in _lines(env, "EF_BASELINES")),
        *([f"--junit={junit}"] if junit else []),
        *_lines(env, "EF_ARGS"),
        "--",
        policy,
    )


def _program(*arguments: str) -> int:
    """Run the installed command `eval-factory`, and return its exit code.

    `python -m eval_factory` is not used, because it would import modules of the checkout.
    """
    command = Path(sys.executable).with_name("eval-factory")
    code = subprocess.run([str(command), *arguments], check=False).returncode
    if code < 0:  # The command was killed by the signal `-code`.
        return 128 - code  # the exit code that a shell would return
    return code


def _run_configs(env: Mapping[str, str], base: str | None) -> Iterator[str]:
    """Yield the paths of the run configs in the checkout that match the patterns.

    With a base commit, only the files that were added or changed since this commit are yielded.
    """
    patterns = [f":(glob){line}" for line in _lines(env, "EF_RUN_CONFIGS")]
    if not patterns:
        raise ConfigError("run-configs: give a pattern, such as evaluations/**/*.yml")
    if base is None:
        listed = _git("ls-files", "-z", "--", *patterns)
    else:
        # A, M and T: added files, modified files, and files whose type changed.
        changed = (
            "diff",
            "--name-only",
            "-z",
            "--no-renames",
            "--diff-filter=AMT",
            f"{base}...HEAD",
        )
        listed = _git(*changed, "--", *patterns)
    return (os.fsdecode(name) for name in sorted(set(listed.split(b"\0"))) if name)


def _commit(base: str) -> str | None:
    """Return the hash of the base commit; None if the base is empty or no commit."""
    if base.strip() in ("", NO_COMMIT):
        return None
    try:
        return os.fsdecode(
            _git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base.strip()}^{{commit}}"
            )
        )
    except PrerequisiteError:
        raise PrerequisiteError(
            f"base {base!r}: is not a commit of this checkout; check out with fetch-depth: 0"
        ) from None


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "--no-pager", *arguments], capture_output=True, check=False)
    if done.returncode:
        reason = os.fsdecode(done.stderr).strip() or f"exit code {done.returncode}"
        raise PrerequisiteError(
            f"git {arguments[0]} failed (check out with fetch-depth: 0): {reason}"
        )
    return done.stdout.removesuffix(b"\n")


def _lines(env: Mapping[str, str], name: str) -> list[str]:
    """Return the lines of a variable that are not empty, without white space around them."""
    return [line.strip() for line in env.get(name, "").splitlines() if line.strip()]


def _add_summary(env: Mapping[str, str], text: str) -> None:
    """Append a text to the job's summary, if the CI system has one."""
    if summary := env.get(JOB_SUMMARY):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
