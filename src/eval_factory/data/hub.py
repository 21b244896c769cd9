"""Downloads data sets of the Hugging Face Hub, and prepares them for offline use.

A prepared data set is in the cache format from which `load_dataset` reads without the Hub.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.core import sandbox
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.safe_files import foreign_files
from eval_factory.data.bundle import HF_HOME, HubEntry, files_under
from eval_factory.data.bundle_changes import Staging
from eval_factory.data.sources import HubDataset


class FetchError(Exception):
    """A file or a data set cannot be downloaded.

    `unreachable`: True if the host did not answer at all.
    """

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable


# variables that make the Hub's libraries work without the network
HF_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
}
UNKNOWN_REVISION = "0" * 40
"""The name of the folder of an unknown revision; `load_dataset` requires a name."""
DATASETS = "datasets"  # the folder of the `datasets` package in HF_HOME
SCRIPT_VARIABLES = (
    "PATH",
    "LANG",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
)
"""The environment variables that loading scripts get."""
SCRIPT_LIMIT_S = 3600.0  # the maximum duration of a loading script, in seconds
RESULT_FILE = "result.json"  # the file in the workspace that `_run_script` writes


class _Built(NamedTuple):
    """A data set that was converted to the cache format."""

    folder: Path
    config: str  # the name of the configuration
    version: str  # the version of the configuration


def dataset_cache_folder(dataset: str) -> str:
    """Return the name that the `datasets` package gives a data set's folder in its cache."""
    from datasets.naming import camelcase_to_snakecase

    # `owner/MyData` becomes `owner___my_data`
    *namespace, name = dataset.split("/")
    return "___".join([*namespace, str(camelcase_to_snakecase(name))])


def prepare_cache(
    repository: Path, dataset: HubDataset, *, revision: str | None, source: str, staging: Staging
) -> None:
    """Convert a copy of a data set's repository to the cache format, and stage the result.

    A loading script is run only if two conditions are met: the table of sources states that the
    data set has a script, and the revision is known.

    Args:
        repository: the folder with the copy of the repository.
        dataset: the data set.
        revision: the commit of the copy; None if it is unknown.
        source: the source of the data for the manifest.
        staging: the staging folder of the bundle.

    Raises:
        PrerequisiteError: the `datasets` package cannot read the data set, or a loading script has
            no sandbox, or the result contains a link.
    """
    workspace = staging.folder.with_name(f"{staging.folder.name}-cache")
    try:
        if revision is not None and dataset.script and _scripts(repository):
            built = _build_by_script(repository, dataset, workspace)
        else:
            built = _build(repository, dataset, workspace)
        cache_folder = f"{HF_HOME}/{DATASETS}/{dataset_cache_folder(dataset.id)}"
        folder = f"{cache_folder}/{built.config}/{built.version}/{revision or UNKNOWN_REVISION}"
        # The package records the paths of the files that it has read. They would reveal names of
        # folders of this machine.
        info = built.folder / "dataset_info.json"
        document = {**json.loads(info.read_text(encoding="utf-8")), "download_checksums": None}
        info.write_text(json.dumps(document), encoding="utf-8")
        for name in sorted(files_under(built.folder)):
            path = built.folder / name
            if path.is_symlink():  # a moved link may lead to another file
                raise PrerequisiteError(f"{dataset.id}: cannot be prepared: {name} is a link")
            shutil.move(path, staging.add_file(f"{folder}/{name}", source))
    finally:
        sandbox.delete_folder(workspace)
    staging.hub.append(
        HubEntry(
            id=dataset.id, config=dataset.config, revision=revision, folder=folder, source=source
        )
    )


def _build(repository: Path, dataset: HubDataset, workspace: Path) -> _Built:
    """Convert the data files of a repository without running a script.

    Raises:
        PrerequisiteError: the `datasets` package cannot read the data set.
    """
    import datasets

    scripts = _scripts(repository)
    hint = ""
    copy = workspace.with_name(f"{workspace.name}-data") / repository.name
    verbosity = datasets.logging.get_verbosity()
    were_bars_disabled = datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    try:
        folder = repository
        # The package would try to run a script with the name of the data set, and would not read
        # the data files. A copy without scripts is read.
        if scripts:
            shutil.copytree(repository, copy, ignore=shutil.ignore_patterns("*.py", "*.pyc"))
            folder = copy
            remedy = "put the data set's files as Parquet, CSV or JSON into its folder"
            hint = f"\n  {scripts[0]} is a program and is not executed; {remedy}"
        builder = datasets.load_dataset_builder(
            str(folder), dataset.config, cache_dir=str(workspace), trust_remote_code=False
        )
        builder.download_and_prepare()
    except Exception as error:  # unusual files make the package raise any kind of error
        cause = error.__cause__ or error
        reason = f"{type(cause).__name__}: {cause}{hint}"
        raise PrerequisiteError(f"{dataset.id}: cannot be prepared: {reason}") from error
    finally:
        shutil.rmtree(copy.parent, ignore_errors=True)
        datasets.logging.set_verbosity(verbosity)
        if not were_bars_disabled:
            datasets.enable_progress_bars()
    version = str(builder.config.version or "0.0.0")
    return _Built(Path(builder.cache_dir), str(builder.config.name), version)


def _scripts(repository: Path) -> list[str]:
    """Return the relative paths of all Python files in the repository."""
    return sorted(path.relative_to(repository).as_posix() for path in repository.rglob("*.py"))


def _build_by_script(repository: Path, dataset: HubDataset, workspace: Path) -> _Built:
    """Convert the data set with its loading script, which runs in a sandbox.

    The script gets no key of this process, and can write only into `workspace`.

    Raises:
        PrerequisiteError: there is no sandbox on this machine, or the script failed.
    """
    workspace.mkdir(parents=True, exist_ok=True)
    work_path = str(workspace.resolve())
    home_variables = ("HOME", "TMPDIR", "HF_HOME", "HF_MODULES_CACHE", "XDG_CACHE_HOME")
    homes = dict.fromkeys(home_variables, work_path)  # the only folder that the script can write to
    passed_on = {}
    for name in SCRIPT_VARIABLES:
        if name in os.environ:
            passed_on[name] = os.environ[name]
    argument = json.dumps([str(repository.resolve()), dataset.config, work_path])
    argv = [sys.executable, "-m", "eval_factory.data.hub", argument]
    # the environment, and the Python from which it was made, of which the path may be a link
    python_folders = [sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)]
    import_folders = []
    for folder_name in sys.path:
        if folder_name:  # an empty name is the current folder
            import_folders.append(str(Path(folder_name).resolve()))
    network_folders = ["/etc", "/run/systemd/resolve"]  # host names and certificates
    readable = [*network_folders, *python_folders, *import_folders, str(repository.resolve())]
    # PYTHONSAFEPATH: modules are not imported from the current folder
    env = {**passed_on, **homes, "PYTHONSAFEPATH": "1"}
    try:
        allowed = sandbox.Allowed(readable, processes=True, network=True)
        finished = sandbox.run(argv, workspace, allowed, env=env, seconds=SCRIPT_LIMIT_S)
    except PrerequisiteError as error:
        raise PrerequisiteError(
            f"{dataset.id}: its loading script runs only in a sandbox\n  {error}"
        ) from None
    result = _script_result(workspace, finished.returncode)
    if "error" in result:
        raise PrerequisiteError(f"{dataset.id}: cannot be prepared: {result['error']}")
    folder = Path(result["folder"])
    if not folder.resolve().is_relative_to(work_path):
        raise PrerequisiteError(
            f"{dataset.id}: cannot be prepared: its script wrote outside of the workspace"
        )
    return _Built(folder, result["config"], result["version"])


def _script_result(workspace: Path, returncode: int) -> dict[str, str]:
    """Return the content of the result file: `folder`, `config` and `version`, or only `error`.

    The file is read only if no link in the workspace leads out of the workspace. `returncode`: the
    exit code of the process that ran the script.
    """
    for path, why in foreign_files(workspace, [workspace]):  # only the first file is reported
        return {"error": f"its script left {path.name}, which {why}"}
    try:
        result = json.loads((workspace / RESULT_FILE).read_text(encoding="utf-8"))
        if "error" in result:
            return {"error": str(result["error"])}
        return {
            "folder": str(result["folder"]),
            "config": str(result["config"]),
            "version": str(result["version"]),
        }
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {"error": f"the process that ran its script ended with exit code {returncode}"}


def _run_script(repository: str, config: str | None, workspace: str) -> None:
    """Run a loading script; this function runs inside of the sandbox.

    HELM runs the same script of the same revision. The script downloads the data that it needs.
    The folder of the result, the name of the configuration and its version are written into
    `RESULT_FILE`.
    """
    from datasets import load_dataset_builder

    result: dict[str, Any]
    try:
        builder = load_dataset_builder(
            repository, config, cache_dir=workspace, trust_remote_code=True
        )
        builder.download_and_prepare()
    except Exception as error:  # a script may raise any kind of error
        cause = error.__cause__ or error
        result = {"error": f"{type(cause).__name__}: {cause}"}
    else:
        version = str(builder.config.version or "0.0.0")
        result = {"folder": builder.cache_dir, "config": builder.config.name, "version": version}
    (Path(workspace) / RESULT_FILE).write_text(json.dumps(result), encoding="utf-8")


def pull_dataset(dataset: HubDataset, endpoint: str, staging: Staging) -> str:
    """Download a data set, prepare it and stage it; return the revision that was downloaded.

    The pinned revision is downloaded if possible. The newest revision is downloaded in three cases:

    - No revision is pinned.
    - The Hub no longer has the pinned revision: authors can replace the complete history.
    - The data set has a loading script that must not run. The Hub's conversion to Parquet, which
      is then downloaded, exists only for the newest revision.

    Raises:
        FetchError: the data set cannot be downloaded.
        PrerequisiteError: the data set cannot be prepared.
    """
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    workspace = staging.folder.with_name(f"{staging.folder.name}-hub")
    # A loading script is found by the name of its folder, so the folder has the data set's name.
    folder = workspace / dataset.id.rpartition("/")[2]
    try:
        try:
            revision = _download(dataset, endpoint, folder)
        except (FetchError, PrerequisiteError):
            raise
        # The Hub's library raises classes of its HTTP library, which differ between versions.
        except Exception as error:
            raise _fetch_error(dataset.id, endpoint, error) from error
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # files of `snapshot_download` itself
        source = f"hub:{dataset.id}@{revision}"
        prepare_cache(folder, dataset, revision=revision, source=source, staging=staging)
        return revision
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _download(dataset: HubDataset, endpoint: str, folder: Path) -> str:
    """Download the files of a data set into the folder, and return the revision.

    Raises:
        FetchError: the Hub does not report a revision, or has no conversion of the configuration.
        Exception: any error of the Hub's library.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RevisionNotFoundError

    hub = HfApi(endpoint=endpoint)
    try:
        info = hub.dataset_info(dataset.id, revision=dataset.revision)
    except RevisionNotFoundError:
        info = hub.dataset_info(dataset.id)
    revision = info.sha
    if not revision:
        raise FetchError(f"{endpoint}: does not say which revision of {dataset.id} it has")
    names = {file.rfilename for file in info.siblings or []}
    has_script = f"{folder.name}.py" in names  # a loading script has the name of the data set
    # Without a script, or with a script that may run, the repository itself is downloaded.
    if not has_script or dataset.script:
        snapshot_download(
            dataset.id,
            repo_type="dataset",
            revision=revision,
            endpoint=endpoint,
            local_dir=folder,
        )
        return revision
    if dataset.revision:  # the conversion below is of the newest revision, not of the pinned one
        revision = hub.dataset_info(dataset.id).sha or revision
    config = dataset.config or "default"
    snapshot_download(
        dataset.id,
        repo_type="dataset",
        revision="refs/convert/parquet",
        endpoint=endpoint,
        local_dir=folder,
        allow_patterns=f"{config}/*",
    )
    _name_the_splits(folder, config)
    return revision


def _name_the_splits(folder: Path, config: str) -> None:
    """Write a README.md that assigns the Parquet files to splits.

    The Hub's conversion has the files <config>/<split>/*.parquet.

    Raises:
        FetchError: the Hub has no conversion of this configuration.
    """
    files = []
    for path in sorted((folder / config).glob("*")):
        if path.is_dir() and any(path.glob("*.parquet")):
            files.append({"split": path.name, "path": f"{config}/{path.name}/*.parquet"})
    if not files:
        raise FetchError(f"the Hub has not converted its configuration {config} to Parquet")
    # The `datasets` package reads the splits from the YAML at the beginning of the README.
    metadata = {"configs": [{"config_name": config, "data_files": files}]}
    (folder / "README.md").write_text(f"---\n{json.dumps(metadata)}\n---\n", encoding="utf-8")


def _fetch_error(name: str, endpoint: str, error: Exception) -> FetchError:
    """Return a FetchError with a message for the user about an error of the Hub's library."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)  # None if there was no response
    if type(error).__name__ == "OfflineModeIsEnabled":
        return FetchError(f"{name}: HF_HUB_OFFLINE is set; unset it to pull")
    # A plain OSError comes from this machine, such as from a full disk. The errors of HTTP
    # libraries are classes of their own, of which some are OSErrors, too.
    if isinstance(error, OSError) and not status and type(error).__module__ == "builtins":
        return FetchError(f"{name}: {error}")
    if status:
        return FetchError(f"{name}: {endpoint} answered HTTP {status} ({type(error).__name__})")
    return FetchError(f"{endpoint} cannot be reached ({type(error).__name__})", unreachable=True)


def datasets_cache_folder(env: Mapping[str, str]) -> Path:
    """Return the cache folder that the `datasets` package uses with these environment variables."""
    if env.get("HF_DATASETS_CACHE"):
        return Path(env["HF_DATASETS_CACHE"]).expanduser()
    home = env.get("HF_HOME") or os.path.join(  # noqa: PTH118
        env.get("XDG_CACHE_HOME") or "~/.cache", "huggingface"
    )
    return Path(home).expanduser() / DATASETS


if __name__ == "__main__":  # in the process that `_build_by_script` starts
    _run_script(*json.loads(sys.argv[1]))
