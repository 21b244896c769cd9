"""The commands `data` and `upstream`, which manage data bundles and installed versions of HELM."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eval_factory.cli.console import TSV_OPTION, HomePath, show_table, show_tsv
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.formats import first_of

if TYPE_CHECKING:
    from eval_factory.data.bundle import Manifest, Need
    from eval_factory.data.sources import Sources, TaskSources

_TO = click.option(
    "--to",
    "target",
    type=HomePath(),
    required=True,
    metavar="DIR",
    help="The bundle's folder; created if it does not exist.",
)


@click.group("data")
def data() -> None:
    """Manage data bundles: folders with all data of some tasks, for runs without a network."""


_COLUMNS = ("task", "state", "size", "needs", "where")  # the columns of `data ls`
# the maximum number of files and data sets in the column `needs`; --json lists all
MAX_NEEDS = 2


@data.command("ls")
@click.argument("folder", type=HomePath(), required=False, metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@TSV_OPTION
def list_data(folder: Path | None, as_json: bool, as_tsv: bool) -> None:
    """List the data that each task needs, and whether the bundle DIR contains them."""
    from rich.filesize import decimal  # imported late, to keep `--help` fast

    from eval_factory.data.bundle import Manifest, read_manifest
    from eval_factory.data.sources import load_sources

    # Without a folder, the manifest is empty, and no file below the root is read.
    manifest = Manifest() if folder is None else read_manifest(folder)
    root = folder or Path()
    sources = load_sources()
    records = []
    for name, task in sources.tasks.items():
        records.append(_record(name, task, manifest, root, sources))
    if as_json:
        click.echo(json.dumps(records, indent=2))
        return
    rows = []
    for record in records:
        size = ""
        if record["size"] is not None:
            size = f"{record['size']}" if as_tsv else decimal(record["size"])
        needs = first_of(record["needs"], MAX_NEEDS)
        rows.append((record["task"], record["state"], size, needs, record["where"]))
    if as_tsv:
        show_tsv(_COLUMNS, rows)
    else:
        if folder is not None:
            click.echo(f"{folder}\n")
        show_table(_COLUMNS, rows)


def _record(
    name: str, task: TaskSources, manifest: Manifest, root: Path, sources: Sources
) -> dict[str, Any]:
    """Return the record of one task.

    In the record, `size` is the size of the task's files in the bundle, in bytes, or None if the
    bundle has none of the files. `where` names the folders of these files, or else the hosts from
    which the data can be downloaded.

    `root`: the folder of the bundle.
    """
    from eval_factory.data.bundle import needs_of

    needs = needs_of(task, manifest, root, sources)
    listed_files = manifest.file_by_path()
    # the files that the bundle has; a need without files in the bundle has no paths
    paths = set(chain.from_iterable(need.paths for need in needs))
    # the first two parts of each path, such as scenarios/pubmed_qa
    folders = {str(root / "/".join(path.split("/")[:2])) for path in paths}
    # each source is a URL such as https://HOST/PATH, whose third part is the host
    hosts = {need.source.split("/")[2] for need in needs}
    missing = []
    for need in needs:
        if need.missing:  # a text that says what is missing
            missing.append(need.missing)
    if not needs:
        state = "your own" if task.own_data else "needs none"
    elif missing:
        state = "incomplete" if paths else "not there"
    else:
        state = "there"
    datasets = []
    for dataset in task.hub:
        entry = manifest.hub_entry(dataset.id, dataset.config)
        datasets.append(
            {
                "id": dataset.id,
                "config": dataset.config,
                "pinned": dataset.revision,
                # the revision in the bundle; None if the bundle does not have the data set
                "here": None if entry is None else entry.revision,
            }
        )
    return {
        "task": name,
        "state": state,
        "needs": [_need_text(need, task) for need in needs],
        "missing": missing,
        "size": sum(listed_files[path].size for path in paths) if paths else None,
        "where": ", ".join(sorted(folders or hosts)) or "-",
        "sources": sorted({need.source for need in needs}),
        "hub": datasets,
    }


def _need_text(need: Need, task: TaskSources) -> str:
    """Return the text of a file, data set or folder in the list of a task's needs."""
    if need.kind == "hub":
        return f"hub:{need.name}"
    if need.kind == "listing":  # a folder of text files, which are downloaded by a list
        count = 0 if task.listing is None else task.listing.count
        return f"{count} text files and their list"
    return need.name


@data.command("pull")
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@_TO
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="NAME=URL",
    help="Download from the mirror URL, not from the origin NAME.",
)
def pull_data(tasks: tuple[str, ...], target: Path, origins: tuple[str, ...]) -> None:
    """Download the data that runs of these tasks read ('all': the data of every task;
    'leaderboards': the run entries of HELM's leaderboards).
    """
    from eval_factory.data.pull import LEADERBOARDS, pull
    from eval_factory.data.sources import load_sources

    mirrors = {}
    for origin in origins:
        name, _, url = origin.partition("=")
        mirrors[name] = url
    sources = load_sources().with_origins(mirrors)
    if "all" in tasks:
        names = [*sources.tasks, LEADERBOARDS]
    else:
        # In `eval-factory ls --json`, the `type` of a task has this prefix.
        names = [name.removeprefix("helm.") for name in tasks]
    pull(names, target, sources, _say)


@data.command("verify")
@click.argument("folder", type=HomePath(), metavar="DIR")
def verify_data(folder: Path) -> None:
    """Compare every file of a bundle with the bundle's manifest."""
    from eval_factory.data.bundle import compare_files, read_manifest
    from eval_factory.data.bundle_changes import finish_interrupted_change

    finish_interrupted_change(folder)  # finish a change of the bundle that was interrupted
    manifest = read_manifest(folder)
    differences = compare_files(folder, manifest)
    for line in differences.lines():
        _say(line)
    if differences:
        raise PrerequisiteError(
            f"{folder}: differs from its manifest: {len(differences.missing)} missing, "
            f"{len(differences.altered)} altered, {len(differences.extra)} extra"
        )
    click.echo(f"{folder}: {len(manifest.files)} files match the manifest")


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
@click.option(
    "--max_bytes",
    type=click.IntRange(min=1),
    help="Maximum total size of the unpacked files; 20 GiB if not given.",
)
def unpack_data(archive: Path, folder: Path, max_bytes: int | None) -> None:
    """Unpack an archive into a bundle; the archive and the bundle are both checked."""
    from eval_factory.data.archive import DEFAULT_MAX_BYTES, unpack
    from eval_factory.data.sources import load_sources

    manifest = unpack(
        archive,
        Path(os.path.abspath(folder)),
        load_sources(),
        max_bytes=max_bytes or DEFAULT_MAX_BYTES,
    )
    click.echo(
        f"{folder}: {len(manifest.files)} files; "
        f"tasks with all their data: {', '.join(manifest.tasks) or 'none'}"
    )


@data.command("import")
@click.argument("folder", type=HomePath(), metavar="FOLDER")
@_TO
def import_data(folder: Path, target: Path) -> None:
    """Copy the data of a folder (scenarios/, hub/, nltk_data/, tiktoken/, perturbations/,
    SHA256SUMS) into a bundle.

    To import results of other programs, use `eval-factory import`; for ratings of clinicians,
    `annotate import`.
    """
    from eval_factory.data.importing import import_folder
    from eval_factory.data.sources import load_sources

    if target.absolute() == folder.absolute():
        raise ConfigError(f"{target}: is the folder that is imported; name another folder")
    import_folder(folder, target, load_sources(), _say)


def _say(line: str) -> None:
    """Print a line."""
    click.echo(printable_lines(line))


@click.group("upstream")
def upstream() -> None:
    """List and install the upstream packages that runs need.

    The packages are crfm-helm; medhelm, which has an environment of its own; and heim, the packages
    that crfm-helm's picture metrics need.
    """


@upstream.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def list_upstreams(as_json: bool) -> None:
    """List the upstreams with the installed version and its folder."""
    from eval_factory.workflows.install_upstream import upstream_states

    upstreams = upstream_states()
    if as_json:
        click.echo(
            json.dumps([{**asdict(state), "works": state.works} for state in upstreams], indent=2)
        )
        return
    for state in upstreams:
        version = state.installed or "not installed"
        if not state.works:
            version += f" (supported: {state.supported})"
        click.echo(f"{state.name:8}  {state.package} {version}, in {state.place}")
    hints = []
    for state in upstreams:
        # helm is installed together with eval-factory, and not by this command.
        if not state.works and state.name != "helm":
            name = state.name
            hints.append(f"to install {name}: eval-factory upstream install {name}")
    if hints:
        click.echo("\n".join(["", *hints]))


@upstream.command("install")
@click.argument("name")
@click.option(
    "--wheels",
    type=HomePath(),
    metavar="DIR",
    help="Install packages from this folder, and from no package index.",
)
@click.option(
    "--download",
    type=HomePath(),
    metavar="DIR",
    help="Download the packages to this folder; install nothing.",
)
def install_upstream(name: str, wheels: Path | None, download: Path | None) -> None:
    """Create the environment of NAME (medhelm, without torch; or heim, with torch).

    All packages have exact versions and are checked by their hashes. The environment is in the
    user's data folder, or in the folder that EVAL_FACTORY_MEDHELM or EVAL_FACTORY_HEIM names.
    """
    from eval_factory.workflows import install_upstream

    if wheels is not None and download is not None:
        raise click.UsageError("--wheels installs and --download does not; give one of them")
    chosen = install_upstream.upstream_named(name)
    if download is not None:
        install_upstream.download(chosen, download, env=os.environ, screen=sys.stderr)
        click.echo(str(download))
    else:
        click.echo(
            str(install_upstream.install(chosen, wheels=wheels, env=os.environ, screen=sys.stderr))
        )
