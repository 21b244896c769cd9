"""HELM's downloads: at which revision, what a failure says, and which data sets of the Hub were read."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import HelmRunSettings, Pins

CANNOT_BE_READ_ANY_MORE = ("Revision", "trust_remote_code")
"""In the package's messages: the Hub has no such commit (authors replace histories), or that commit has a loading
script and the Hub keeps its own conversion for the newest one alone. The newest is read then, and the result says so.
"""


class DataInTheWayError(Exception):
    """Something of a data set's name lies in the working directory."""


_loaded: dict[tuple[str, str], dict[str, str]] = {}
_pinned: dict[str, str] = {}  # data set -> the revision that is read where HELM names none
_lock = threading.Lock()
_BEGAN = time.time()  # before any data were loaded


def record_hub_revisions(build: Callable[..., Any]) -> Callable[..., Any]:
    """From now on."""
    import datasets.exceptions

    def noting(path: Any, *args: Any, **kwargs: Any) -> Any:
        # `load_dataset("org/name")` reads a folder of that name in the working directory, and runs a script in it.
        here = Path(str(path))
        if not here.is_absolute() and "/" in str(path) and here.exists():
            raise DataInTheWayError(
                f"the folder that you are in holds {path}, which would be read instead of the Hub's data set of that"
                " name: rename it, or start from another folder"
            )
        if kwargs.get("cache_dir") is not None and datasets.config.HF_HUB_OFFLINE:
            # The Hub may not be asked: what was prepared lies in HF_HOME, not with the scenario.
            kwargs["cache_dir"] = None
        pinned = _pinned.get(str(path)) if kwargs.get("revision") is None else None
        try:
            builder = build(path, *args, **(kwargs | ({"revision": pinned} if pinned else {})))
        except (datasets.exceptions.DatasetNotFoundError, ValueError) as error:
            # offline the package does not choose among configurations that are there (AIR-Bench has judges' prompts)
            is_open = kwargs.get("name", "") is None and "There are multiple" in str(error)
            if not is_open and (pinned is None or not any(sign in str(error) for sign in CANNOT_BE_READ_ANY_MORE)):
                raise
            builder = build(path, *args, **(kwargs | ({"name": "default"} if is_open else {})))
        folder = str(builder.cache_dir)
        entry = {"id": str(path), "config": str(builder.config.name), "revision": Path(folder).name, "folder": folder}
        with _lock:
            _loaded[(entry["id"], entry["config"])] = entry
        return builder

    return noting


def loaded_datasets() -> list[dict[str, str]]:
    """So far."""
    with _lock:
        return [_loaded[key] for key in sorted(_loaded)]


def refuse_old_media(file: Path, shown: Iterable[Path]) -> None:
    """HELM keeps a picture or sound that is there: it would go with the questions of another revision.

    `file`: what the run before wrote down of itself. Raises DataInTheWayError.
    """
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    before = {(one["id"], one["config"]): one["revision"] for one in record.get("datasets", ())}
    if all(before.get(key, one["revision"]) == one["revision"] for key, one in _loaded.items()):
        return
    for old in shown:  # not the time of its last change, which an archive sets
        if old.is_relative_to(file.parent) and old.stat().st_ctime < _BEGAN:
            folder = Path(*old.relative_to(file.parents[1]).parts[:3])
            raise DataInTheWayError(f"{folder} holds pictures or sounds of another revision of the data: delete it")


def save_pictures_at_once(save: Callable[..., None]) -> Callable[..., None]:
    """Pillow's `Image.save`: half a picture, of a run that was killed, would be kept and sent ever after."""
    from PIL import Image

    def save_at_once(picture: Any, file: Any, format: str | None = None, **params: Any) -> None:  # noqa: A002
        kind = format or Image.registered_extensions().get(Path(str(file)).suffix.lower())
        is_path = isinstance(file, (str, Path)) and kind is not None
        save(picture, f"{file}.part" if is_path else file, kind, **params)
        if is_path:
            Path(f"{file}.part").replace(file)

    return save_at_once


class DownloadError(Exception):
    """A file of a scenario could not be downloaded. The message names it; it holds no prompt."""


def read_pinned_revisions(download: Callable[..., Any]) -> Callable[..., Any]:
    """Of files and data sets. Before a scenario is imported: it takes HELM's function along."""
    pins = HelmRunSettings.from_environment(os.environ).pins or Pins()
    _pinned.update(pins.hub)

    def download_pinned(source_url: str, *args: Any, **kwargs: Any) -> Any:
        return download(pins.files.get(source_url, source_url), *args, **kwargs)

    return download_pinned


def name_failed_downloads(download: Callable[..., Any]) -> Callable[..., Any]:
    """A download that fails says which file it was, and where it belongs. Before a scenario is imported, too."""

    def download_or_say(source_url: str, target_path: str, unpack: bool = False, **kwargs: Any) -> Any:
        try:
            return download(source_url, target_path, unpack, **kwargs)
        except Exception as error:
            # Of wget or gdown HELM says so, as a bare Exception.
            if not isinstance(error, OSError) and "Failed with exit code" not in str(error):
                raise
            how = "unpack it yourself as" if unpack else "put it yourself at"
            reason = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
            raise DownloadError(
                f"{source_url} could not be downloaded ({reason}); to do without the network, {how} {target_path}"
            ) from None

    return download_or_say
