"""`eval-factory view`: HELM's own web pages of finished results, in the browser or as files."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.streams import lasting
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import own_lines

HIGHEST_PORT = 65535


@click.command("view")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("--export", "target", type=HomePath(), default=None, help="Write the pages into this new folder instead.")
@click.option("--port", type=click.IntRange(0, HIGHEST_PORT), default=0, help="Port on 127.0.0.1; a free one if 0.")
@click.option("--no_browser", is_flag=True, help="Print the address, and open no browser.")
def view(folders: tuple[Path, ...], target: Path | None, port: int, no_browser: bool) -> None:
    """Show results in HELM's own web pages: every prompt, request and answer, and HELM's tables.

    DIR is the output folder of a run; several are shown side by side. The pages are served on this machine alone until
    Ctrl-C. They ask no other host, and nothing in DIR is changed. Exit code: 0, 3 no result, 4 helm-summarize failed.
    """
    from eval_factory import api  # imported here, as all that reads results: `ls` is to be quick

    screen = lasting(sys.stderr)
    if target is not None:
        if port or no_browser:
            raise ConfigError("view --export writes files and serves nothing: leave out --port and --no_browser")
        pages = api.export_pages(folders, target, screen=screen)
        screen.write(own_lines("\n".join(pages.lines())) + "\n")
        screen.write(f"to look at them:\n  {preview_command(pages.folder)}\n  then open http://127.0.0.1:8000/\n")
        click.echo(str(pages.folder))
        return
    with api.served_pages(folders, port=port, screen=screen) as pages:
        screen.write(own_lines("\n".join(pages.lines())) + "\n")
        lasting(sys.stdout).write(f"{pages.address}\n")
        screen.write("the address holds a secret and works on this machine alone; Ctrl-C ends it\n")
        if pages.address is not None and not no_browser and may_open(os.environ):
            import webbrowser

            webbrowser.open(pages.address)
        pages.wait()


def preview_command(folder: Path) -> str:
    """For a shell. The pages are opened through a server: browsers load no modules from files."""
    return f"python -m http.server --bind 127.0.0.1 --directory {shlex.quote(str(folder))}"


def may_open(env: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether there is a browser with a window; one for terminals (lynx) would take ours, and show nothing."""
    return platform in ("darwin", "win32") or any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
