"""`eval-factory data ...`: bundles of benchmark data for runs without a network."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eval_factory.cli.console import HomePath, show_table
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines

if TYPE_CHECKING:
    from eval_factory.data.bundle import Manifest
    from eval_factory.data.sources import HubDataset, Sources, TaskSources

_TO = click.option(
    "--to", "target", type=HomePath(), required=True, metavar="DIR", help="The bundle; made if it is not there."
)


class _DataGroup(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """A folder that may not be written to, a full disk: the file system's own words, and which path."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except OSError as error:
            paths = " -> ".join(str(path) for path in (error.filename, error.filename2) if path is not None)
            raise PrerequisiteError(f"{paths or 'file system'}: {error.strerror or error}") from error


@click.group("data", cls=_DataGroup)
def data() -> None:
    """Data bundles: all that runs of some tasks read, to run without a network."""


@data.command("ls")
@click.argument("folder", type=HomePath(), required=False, metavar="[DIR]")
@click.option("--data_dir", type=HomePath(), help="The same as DIR.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def list_data(folder: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """What each task needs, and whether the bundle DIR holds it."""
    if folder is not None and data_dir not in (None, folder):
        raise ConfigError(f"data ls: {folder} and --data_dir {data_dir} are two bundles; name one of them")
    from eval_factory.data.bundle import Manifest, read_manifest  # imported here: `--help` is to be quick
    from eval_factory.data.sources import load_sources

    data_dir = folder or data_dir
    manifest = Manifest() if data_dir is None else read_manifest(data_dir)
    sources = load_sources()
    records = [_record(name, task, manifest, data_dir or Path(), sources) for name, task in sources.tasks.items()]
    if as_json:
        click.echo(json.dumps(records, indent=2))
    elif not sys.stdout.isatty():
        for one in records:
            size = "-" if one["size"] is None else str(one["size"])
            needs = ",".join(one["needs"]) or "-"
            click.echo("\t".join((one["task"], one["state"], size, needs, one["where"])))
    else:
        from rich.filesize import decimal

        if data_dir is not None:
            click.echo(f"{data_dir}\n")
        rows = []
        for one in records:
            size = "" if one["size"] is None else decimal(one["size"])
            rows.append((one["task"], one["state"], size, "\n".join(one["needs"]), one["where"]))
        show_table(("task", "state", "size", "needs", "where"), rows)


def _of_the_hub(dataset: HubDataset, manifest: Manifest) -> dict[str, Any]:
    entry = manifest.hub_entry(dataset.id, dataset.config)
    here = None if entry is None else entry.revision
    return {"id": dataset.id, "config": dataset.config, "pinned": dataset.revision, "here": here}


def _record(name: str, task: TaskSources, manifest: Manifest, root: Path, sources: Sources) -> dict[str, Any]:
    """One task: `size` in bytes of what is there, `where` a folder of the bundle or the hosts that have it."""
    from eval_factory.data.bundle import needs_of

    needs = needs_of(task, manifest, root, sources)
    listed = manifest.paths()
    paths = {path for need in needs for path in need.paths}
    folders = {str(root / "/".join(path.split("/")[:2])) for path in paths}
    hosts = {need.source.split("/")[2] for need in needs}
    missing = [need.missing for need in needs if need.missing]
    if not needs:
        state = "your own" if task.own_data else "needs none"
    elif missing:
        state = "incomplete" if paths else "not there"
    else:
        state = "there"
    count = 0 if task.listing is None else task.listing.count
    texts = {"hub": "hub:{name}", "listing": f"{count} text files and their list"}
    return {
        "task": name,
        "state": state,
        "needs": [texts.get(need.kind, "{name}").format(name=need.name) for need in needs],
        "missing": missing,
        "size": sum(listed[path].size for path in paths) if paths else None,
        "where": ", ".join(sorted(folders or hosts)) or "-",
        "sources": sorted({need.source for need in needs}),
        "hub": [_of_the_hub(dataset, manifest) for dataset in task.hub],
    }


@data.command("pull")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@_TO
@click.option("--origin", "origins", multiple=True, metavar="NAME=URL", help="A mirror for a source's origin.")
def pull_data(tasks: tuple[str, ...], target: Path, origins: tuple[str, ...]) -> None:
    """Download what runs of these tasks read ('all': of every task; 'leaderboards': the run entries of HELM's)."""
    from eval_factory.data.pull import LEADERBOARDS, pull
    from eval_factory.data.sources import load_sources

    mirrors = dict(origin.partition("=")[::2] for origin in origins)
    sources = load_sources().with_origins(mirrors)
    names = [*sources.tasks, LEADERBOARDS] if "all" in tasks else [name.removeprefix("helm.") for name in tasks]
    pull(names, target, sources, _say)


@data.command("verify")
@click.argument("folder", type=HomePath(), metavar="DIR")
def verify_data(folder: Path) -> None:
    """Compare every file with the manifest."""
    from eval_factory.data.bundle import compare_files, read_manifest, settle

    settle(folder)
    manifest = read_manifest(folder)
    differences = compare_files(folder, manifest)
    for line in differences.lines():
        _say(line)
    if differences:
        counts = (f"{len(getattr(differences, kind))} {kind}" for kind in ("missing", "altered", "extra"))
        raise PrerequisiteError(f"{folder}: differs from its manifest: {', '.join(counts)}")
    click.echo(f"{folder}: {len(manifest.files)} files are as the manifest says")


@data.command("pack")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.argument("archive", type=HomePath(), metavar="FILE.tar.gz")
def pack_data(folder: Path, archive: Path) -> None:
    """Put a bundle into one archive."""
    from eval_factory.data.archive import pack

    click.echo(f"{archive}: {pack(folder, archive)} bytes")


@data.command("unpack")
@click.argument("archive", type=HomePath(), metavar="FILE.tar.gz")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--max_bytes", type=click.IntRange(min=1),
              help="What the archive may unpack to; 20 GiB unless given.")  # fmt: skip
def unpack_data(archive: Path, folder: Path, max_bytes: int | None) -> None:
    """Make a bundle of an archive: checked before it is unpacked, and after."""
    from eval_factory.data.archive import DEFAULT_LIMIT, unpack
    from eval_factory.data.sources import load_sources

    manifest = unpack(archive, Path(os.path.abspath(folder)), load_sources(), limit=max_bytes or DEFAULT_LIMIT)
    click.echo(f"{folder}: {len(manifest.files)} files; complete: {', '.join(manifest.tasks) or 'no task'}")


@data.command("import")
@click.argument("folder", type=HomePath(), metavar="FOLDER")
@_TO
def import_data(folder: Path, target: Path) -> None:
    """Take a folder (scenarios/, hub/, nltk_data/, tiktoken/, perturbations/, SHA256SUMS) into a bundle."""
    from eval_factory.data.importing import import_folder
    from eval_factory.data.sources import load_sources

    if target.absolute() == folder.absolute():
        raise ConfigError(f"{target}: is the folder that is imported; name another one")
    import_folder(folder, target, load_sources(), _say)


def _say(line: str) -> None:
    click.echo(own_lines(line))
