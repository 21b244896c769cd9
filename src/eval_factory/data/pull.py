"""`data pull`: everything that runs of some tasks need, into a bundle."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.data.bundle import (
    FILE_LISTS,
    LIST_LIMIT,
    NLTK_DATA,
    PRESENTATION,
    SCENARIOS,
    TIKTOKEN,
    Staging,
    file_list_text,
    staging,
)  # fmt: skip
from eval_factory.data.content import Blob
from eval_factory.data.failure import FetchError
from eval_factory.data.fetch import Fetcher
from eval_factory.data.hub import pull_dataset
from eval_factory.data.published_check import looked_through
from eval_factory.data.sources import HubDataset, Listing, Nltk, Sources, relative_path

AT_ONCE = 8
LEADERBOARDS = "leaderboards"
"""Not a task: HELM's conf files."""
LARGEST_NLTK = 256 << 20
LARGEST_MEMBER = 1 << 30
MEMBERS_OF = "archives.part"

Say = Callable[[str], None]


def pull(tasks: Sequence[str], root: Path, sources: Sources, say: Say) -> None:
    """Pull each task on its own: what one of them lacks does not keep the others back.

    Raises:
        ConfigError: a task is unknown.
        PrerequisiteError: a message for each task whose data are not available in full; nothing of it was written.
    """
    unknown = [name for name in tasks if sources.asked(name) is None and name != LEADERBOARDS]
    if unknown:
        raise ConfigError(f"there is no task {', '.join(unknown)}; 'eval-factory data ls' lists them (or write: all)")
    failures: list[str] = []
    fetcher = Fetcher(connections=AT_ONCE)
    try:
        with staging(root, sources) as stage:
            pulled = False
            for name in dict.fromkeys(tasks):
                try:
                    pull_it = _pull_confs if name == LEADERBOARDS else _pull_task
                    notes = pull_it(name, sources, stage, fetcher, say)
                except (FetchError, PrerequisiteError) as error:
                    stage.discard()
                    failures.append(_failure(name, error))
                    continue
                if notes is None:
                    continue
                pulled = True
                stage.commit()
                say("; ".join([f"{name}: pulled", *notes]))
            if pulled:
                _pull_nltk(sources, stage, fetcher, say)
    finally:
        fetcher.close()
    if failures:
        raise PrerequisiteError("\n".join(failures))


def _failure(name: str, error: Exception) -> str:
    if isinstance(error, FetchError) and error.unreachable:
        return (
            f"{name}: not pulled, nothing was written: {error}; is there a network here? behind a proxy set"
            " HTTPS_PROXY, with a mirror give --origin"
        )
    return f"{name}: not pulled, nothing was written: {error}"


def _pull_task(name: str, sources: Sources, stage: Staging, fetcher: Fetcher, say: Say) -> list[str] | None:
    """Stage all of a task. None where there is nothing to pull."""
    task = sources.asked(name) or sources.task(name)
    notes: list[str] = []
    for file in task.files:
        url = sources.url(file.url)
        target = stage.path(f"{SCENARIOS}/{task.scenario}/{file.path}", url)
        if file.member is None:
            fetcher.file(url, target, sha256=file.sha256)
        else:
            _stage_member(file.member, url, target, stage.folder / MEMBERS_OF, fetcher)
        if file.form is not None:
            notes.append(looked_through(target, file.form, url))
    shutil.rmtree(stage.folder / MEMBERS_OF, ignore_errors=True)
    if task.files:
        notes.append(f"{len(task.files)} files" if len(task.files) > 1 else "1 file")
    if task.listing is not None:
        notes.append(_pull_listing(name, task.scenario, task.listing, sources, stage, fetcher, say))
    for dataset in task.hub:
        revision = pull_dataset(dataset, sources.origins["hub"], stage)
        notes.append(f"{dataset.id} at {revision} ({_how_pinned(dataset, revision)})")
    for vocabulary in task.tiktoken:
        entry = sources.tiktoken[vocabulary]
        url = sources.url(entry.url)
        fetcher.file(url, stage.path(f"{TIKTOKEN}/{entry.path}", url), sha256=entry.sha256)
        notes.append(f"vocabulary {vocabulary}")
    if task.own_data:
        say(f"{name}: its data are your own (config.params.extra.data_path); they are not pulled")
    elif not notes:
        say(f"{name}: needs no data but the package's")
    return notes or None


def _how_pinned(dataset: HubDataset, revision: str) -> str:
    if dataset.revision is None:
        return "no revision was pinned: this one is recorded"
    if dataset.revision == revision:
        return "pinned"
    return f"not the pinned {dataset.revision}, which the Hub does not give any more: scores may not compare"


def _pull_confs(_name: str, sources: Sources, stage: Staging, fetcher: Fetcher, _say: Say) -> list[str] | None:
    """The run entries of HELM's leaderboards."""
    found = sources.presentation
    if found is None:
        return None
    for file, sha256 in found.files.items():
        url = f"{sources.url(found.url)}{file}"
        fetcher.file(url, stage.path(f"{PRESENTATION}/{file}", url), sha256=sha256)
    return [f"{len(found.files)} files"]


def _stage_member(member: str, url: str, target: Path, kept: Path, fetcher: Fetcher) -> None:
    """One file of a zip archive, which is downloaded once for all of its files."""
    kept.mkdir(exist_ok=True)
    archive = kept / f"{hashlib.sha256(url.encode()).hexdigest()}.zip"
    if not archive.exists():
        fetcher.file(url, archive)
    try:
        with zipfile.ZipFile(archive) as members:
            if members.getinfo(member).file_size > LARGEST_MEMBER:
                raise FetchError(f"{url}: {member} is larger than {LARGEST_MEMBER >> 20} MiB")
            with members.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
    except KeyError:
        raise FetchError(f"{url}: the archive holds no {member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FetchError(f"{url}: is no zip file that can be used: {error}") from None


def _pull_listing(
    name: str, scenario: str, listing: Listing, sources: Sources, stage: Staging, fetcher: Fetcher, say: Say
) -> str:
    """The list as GitHub gives it, and every file on it, as git knows it."""
    url = sources.url(listing.url)
    answer = fetcher.json(url)
    try:
        texts = [entry for entry in answer if entry["name"].endswith(".txt")][:LIST_LIMIT]
        blobs = {entry["name"]: Blob(int(entry["size"]), str(entry["sha"])) for entry in texts}
        names = list(blobs)
        for text in names:
            if "/" in relative_path(text):
                raise ValueError(text)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FetchError(f"{url}: the answer is no list of files") from None
    if len(names) < listing.count:
        raise FetchError(f"{url}: lists {len(names)} files, {listing.count} are known")
    stage.path(f"{FILE_LISTS}/{scenario}.json", url).write_text(file_list_text(names, url), encoding="utf-8")
    base = sources.url(listing.files)
    targets = {text: stage.path(f"{SCENARIOS}/{scenario}/{text}", base + quote(text)) for text in names}
    say(f"{name}: {len(names)} files to download")
    with ThreadPoolExecutor(AT_ONCE) as threads:
        jobs = [
            threads.submit(fetcher.file, base + quote(text), target, blob=blobs[text])
            for text, target in targets.items()
        ]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise
    return f"{len(names)} files"


def _pull_nltk(sources: Sources, stage: Staging, fetcher: Fetcher, say: Say) -> None:
    """No medical benchmark reads these: where they are unavailable, the bundle is complete all the same."""
    for name, package in sources.nltk.items():
        try:
            _stage_nltk(name, package, sources, stage, fetcher)
        except (FetchError, PrerequisiteError) as error:
            stage.discard()
            say(f"nltk {name}: not pulled ({error}); no medical benchmark reads it")
            continue
        stage.commit()
        say(f"nltk {name}: pulled")


def _stage_nltk(name: str, package: Nltk, sources: Sources, stage: Staging, fetcher: Fetcher) -> None:
    url = sources.url(package.url)
    archive = stage.folder / f"{name}.zip"
    fetcher.file(url, archive)
    try:
        with zipfile.ZipFile(archive) as members:
            wanted = [
                info for info in members.infolist()
                if info.filename.startswith(package.members) and not info.is_dir()
            ]  # fmt: skip
            if not wanted or sum(info.file_size for info in wanted) > LARGEST_NLTK:
                raise FetchError(f"{url}: does not hold {package.members}, or too much of it")
            for info in wanted:
                target = stage.path(f"{NLTK_DATA}/{package.folder}/{relative_path(info.filename)}", url)
                with members.open(info) as source:
                    target.write_bytes(source.read(LARGEST_NLTK))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise FetchError(f"{url}: is no zip file that can be used: {error}") from None
    archive.unlink()
