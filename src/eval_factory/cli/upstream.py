"""`eval-factory upstream ...`: which HELM can be run here."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from eval_factory.cli.console import HomePath


@click.group("upstream")
def upstream() -> None:
    """Which HELM a run has: crfm-helm, or medhelm, which lives in an environment of its own."""


@upstream.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_upstreams(as_json: bool) -> None:
    """What is installed, and where."""
    from eval_factory.workflows.install_upstream import states

    found = states()
    if as_json:
        click.echo(json.dumps([{**asdict(one), "works": one.works} for one in found], indent=2))
        return
    for one in found:
        said = one.installed or "not installed"
        needed = "" if one.works else f" (supported: {one.supported})"
        click.echo(f"{one.name:8}  {one.package} {said}{needed}, in {one.place}")
    if missing := [one.name for one in found if not one.works and one.package == one.name]:
        click.echo(f"\ninstall it: eval-factory upstream install {missing[0]}")


@upstream.command("install")
@click.argument("name")
@click.option("--wheels", type=HomePath(), metavar="DIR", help="Take packages from this folder, and from no index.")
@click.option("--download", type=HomePath(), metavar="DIR", help="Put the packages into this folder; install nothing.")
def install_upstream(name: str, wheels: Path | None, download: Path | None) -> None:
    """Make the environment of NAME (medhelm): exact versions, checked by their hashes, without torch.

    It lies in the user's folder of data; EVAL_FACTORY_MEDHELM names another place.
    """
    from eval_factory.workflows import install_upstream

    if wheels is not None and download is not None:
        raise click.UsageError("--wheels installs and --download does not; give one of them")
    chosen = install_upstream.upstream_named(name)
    if download is not None:
        install_upstream.download(chosen, download, env=os.environ, screen=sys.stderr)
        click.echo(str(download))
    else:
        click.echo(str(install_upstream.install(chosen, wheels=wheels, env=os.environ, screen=sys.stderr)))
