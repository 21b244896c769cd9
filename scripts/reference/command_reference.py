"""Makes docs/reference/commands.md: every command with its options, read from click."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import click
from scripts.reference.page_text import code, page, table

from eval_factory.cli.main import PROGRAM, cli
from eval_factory.cli.run_command import FLAGS

INTRODUCTION = """\
`eval-factory COMMAND --help` says the same. An option that does the same in `run_eval` is described
there. [Exit codes](#exit-codes) stand at the end."""
EXPERIMENTAL = frozenset(
    {"calibrate", "export", "import", "import_config", "leaderboard", "monitor", "upstream"}
)
"""Commands whose options and output may change in a minor version; all others are stable."""
MIN_FLAGS_FOR_LINK = 3
"""The minimum number of flags that set keys of a run config for which a command shows a link to the
page of keys, instead of a description of each flag.
"""
MAIN_COMMAND = "run_eval"
"""The command whose page describes the options that other commands have too."""
STABLE_LABEL = "*Stable*: a minor version keeps its options, and says so before one goes."
EXPERIMENTAL_LABEL = "*Experimental*: a minor version may change its options and its output."
CODES = {
    0: (
        "complete; also a demo (`demo://baseline`), though none of its scores may be reported",
        "Nothing: the result is whole, and of a model it may be reported.",
    ),
    1: (
        (
            "a score is not reportable, a demo is exported or gated, "
            "results cannot be compared, a gate failed, a folder was altered"
        ),
        "Read the reason. Where requests failed, the same command asks for the missing ones.",
    ),
    2: (
        "the command line or a file of yours is wrong",
        (
            "Nothing was asked. Correct what the message names; "
            "`run_eval --dry_run` checks without starting anything."
        ),
    ),
    3: (
        "something is missing: a key, the endpoint, data, a package, disk space",
        "Supply it and give the same command again: what was answered is kept.",
    ),
    4: (
        "HELM failed",
        "Read `logs/helm-run.log`. Answers are kept; the same command goes on.",
    ),
    5: ("the folder is in use", "Wait for the other run, or choose another folder."),
    70: (
        "a defect in eval-factory",
        "The message names a file with the traceback, without keys: report it with that file.",
    ),
    130: ("interrupted", "Give the same command again: it goes on where it was."),
}


def commands_page() -> str:
    """Return the text of docs/reference/commands.md."""
    lines = [INTRODUCTION]
    # The root needs the settings of the group, because click makes a command's help option with the
    # first context in which it is asked for.
    root = click.Context(cli, info_name=PROGRAM, **cli.context_settings)
    all_contexts = list(contexts(root))
    (main_context,) = (context for context in all_contexts if context.info_name == MAIN_COMMAND)
    for context in all_contexts:
        described_rows = set() if context is main_context else set(_rows(main_context))
        lines += ["", *_section(context, described_rows)]
    rows = [(f"{number}", meaning, advice) for number, (meaning, advice) in CODES.items()]
    lines += ["", "## Exit codes", "", *table(("exit code", "meaning", "what to do"), rows)]
    return page("Every command", lines)


def contexts(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command, and those of all its subcommands, and so on."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None:
                yield from contexts(click.Context(command, info_name=name, parent=context))


def _section(context: click.Context, described: Collection[str]) -> list[str]:
    """Return the section about a command.

    Args:
        context: the context of the command.
        described: the rows of options that the section of `MAIN_COMMAND` describes. This section
            only names them.
    """
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)]).replace(
        " [OPTIONS]", ""
    )
    title = context.command_path if isinstance(command, click.Group) else usage
    lines = [
        f"## {title if context.parent is None else code(title)}",
        "",
        " ".join((command.help or "").split()),
    ]
    if context.parent is not None and context.parent.parent is None:
        lines += ["", EXPERIMENTAL_LABEL if context.info_name in EXPERIMENTAL else STABLE_LABEL]
    rows = _rows(context)
    # A row begins with "- `--NAME`".
    key_rows = [row for row in rows if row.split("`")[1].removeprefix("--") in FLAGS]
    linked = [row for row in key_rows if context.info_name == MAIN_COMMAND or row in described]
    if len(linked) < MIN_FLAGS_FOR_LINK:
        linked = []
    same = [row for row in rows if row in described and row not in key_rows]
    rows = [row for row in rows if row not in linked and row not in same]
    if same:
        rows.append(f"- As in `{MAIN_COMMAND}`: {_names(same)}")
    if linked:
        rows.append(
            f"- Each sets [the key of a run config](config.md) that names it: {_names(linked)}"
        )
    return [*lines, "", *rows] if rows else lines


def _names(rows: Iterable[str]) -> str:
    """Return the options of rows, without their descriptions."""
    return ", ".join(row.partition(":")[0].removeprefix("- ") for row in rows)


def _rows(context: click.Context) -> list[str]:
    """Return a line for each option of a command, except for hidden options."""
    rows = []
    for parameter in context.command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            rows.append(_row(parameter, context))
    return rows


def _row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {code(option.make_metavar(context))}"
    repeated = (
        " May be repeated." if option.multiple and "repeated" not in (option.help or "") else ""
    )
    about = f": {option.help}" if option.help else ""
    return f"- {names}{value}{_default(option)}{about}{repeated}"


def _default(option: click.Option) -> str:
    if option.required:
        return " (needed)"
    default = option.default
    is_shown = isinstance(default, (str, int, float)) and not isinstance(default, bool)
    return f" (default {code(str(default))})" if is_shown else ""
