"""Downloads all data that runs of some tasks need into a bundle (`data pull`).

Only complete files become a part of the bundle:

- If the table of sources states the SHA-256 of a file, the file must have it.
- A file of a listing (GitHub's list of a folder) must have the hash of git in this list.
- For any other file, the server must report the length of the file, or mark the end of its content
  (chunked transfer).
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from eval_factory import __version__
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.data import bundle
from eval_factory.data.bundle_changes import Staging, open_staging
from eval_factory.data.hub import FetchError, pull_dataset
from eval_factory.data.importing import describe_choice_file
from eval_factory.data.sources import (
    Listing,
    Nltk,
    Sources,
    TaskSources,
    relative_path,
    requested_sources,
)
from eval_factory.endpoint.proxies import (
    certificates_hint,
    find_trusted_certificates,
    proxy_from_environment,
)

PAGE_BEGINNINGS = (b"<!doctype html", b"<html")  # in lower case
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # of UTF-8


def difference_from_blob(path: Path, size: int, sha1: str) -> str | None:
    """Return how a file differs from a blob of git; None if it is equal.

    Args:
        path: the file.
        size: the size of the blob in bytes.
        sha1: the SHA-1 of the blob, as git computes it.
    """
    content = path.read_bytes()
    if len(content) != size:
        return f"{len(content)} bytes were received, {size} were expected"
    header = b"blob %d\0" % len(content)  # git hashes this header together with the content
    digest = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
    if digest == sha1:
        return None
    return f"its content differs from the listed file (git's hash is {digest}, listed is {sha1})"


def is_web_page(path: Path) -> bool:
    """Return True if the file begins like a web page."""
    with path.open("rb") as file:
        beginning = file.read(1024)
    return beginning.removeprefix(_BYTE_ORDER_MARK).lstrip().lower().startswith(PAGE_BEGINNINGS)


# the maximum waits in seconds: for a connection, and for the next block of a response
_TIMEOUT_S = (10.0, 60.0)
MAX_FILE_SIZE = 4 << 30  # 4 GiB, in bytes
_BLOCK_SIZE = 1 << 18  # the number of bytes of a response that are read at once
_DOWNLOADS_AT_ONCE = 8  # the maximum number of downloads of a listing at the same time
WEB_PAGE = "received a web page instead of the file: a login page, or a message of a proxy"

RETRIES = Retry(
    total=4,
    connect=1,  # `Fetcher` gives up a host that cannot be reached, so one more attempt is enough
    backoff_factor=0.5,
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods=("GET",),
    raise_on_status=False,
)


class Fetcher:
    """A downloader that keeps its connections open. Several threads may use an instance.

    After a host could not be reached, no further request is sent to this host.
    """

    def __init__(self) -> None:
        """Open a session that trusts the configured certificates.

        Raises:
            PrerequisiteError: an environment variable names certificates that do not exist.
        """
        self._session = requests.Session()
        trusted_certificates, _variable = find_trusted_certificates()
        self._session.verify = trusted_certificates
        self._session.headers["User-Agent"] = f"eval-factory/{__version__}"
        adapter = HTTPAdapter(max_retries=RETRIES, pool_maxsize=_DOWNLOADS_AT_ONCE)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)
        self._failed_hosts: dict[str, FetchError] = {}
        """The error of each host that could not be reached, by the host."""

    def close(self) -> None:
        """Close all connections."""
        self._session.close()

    def download_file(
        self,
        url: str,
        target: Path,
        *,
        sha256: str | None = None,
        blob: tuple[int, str] | None = None,
    ) -> None:
        """Download the file at `url` to `target`.

        Args:
            url: the URL of the file.
            target: the path of the new file.
            sha256: the expected SHA-256 in hexadecimal digits; None if it is unknown.
            blob: the expected size in bytes and SHA-1 of git's blob, as for `difference_from_blob`;
                None if they are unknown.

        Raises:
            FetchError: the file cannot be downloaded, is incomplete, or has another content than
                expected. `target` is not written then.
        """
        partial = target.with_name(f"{target.name}.part")
        try:
            digest, problem = self._stream(url, partial)
            # If the expected content is known, only a difference from this content is a problem.
            if sha256 is not None:
                problem = None
                if digest != sha256:
                    problem = f"its content has changed (SHA-256 {digest}, expected {sha256})"
            elif blob is not None:
                problem = difference_from_blob(partial, *blob)
            # A web page in place of the file explains any other problem. If the expected content is
            # not known, a web page is a problem by itself.
            is_content_known = sha256 is not None or blob is not None
            if (problem is not None or not is_content_known) and is_web_page(partial):
                problem = WEB_PAGE
            if problem is not None:
                raise FetchError(f"{url}: {problem}")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def fetch_json(self, url: str) -> Any:
        """Return the JSON document at this URL.

        Raises:
            FetchError: the document cannot be downloaded, or is not JSON.
        """
        with self._get(url) as response:
            try:
                return response.json()
            except ValueError:
                raise FetchError(f"{url}: the answer is not JSON") from None

    def _stream(self, url: str, target: Path) -> tuple[str, str | None]:
        """Download the file at `url` to `target`.

        Returns the SHA-256 of the content, and a problem with the response, or None. The caller
        ignores the problem if the expected content is known.

        Raises:
            FetchError: the file cannot be downloaded, is too large, or is shorter or longer than
                the response states.
        """
        digest = hashlib.sha256()
        size = 0
        with self._get(url) as response, target.open("wb") as file:
            try:
                for block in response.iter_content(_BLOCK_SIZE):
                    size += len(block)
                    if size > MAX_FILE_SIZE:
                        raise FetchError(f"{url}: is larger than {MAX_FILE_SIZE >> 30} GiB")
                    digest.update(block)
                    file.write(block)
            except requests.RequestException as error:
                raise FetchError(
                    f"{url}: the connection ended before the complete file was received"
                ) from error
            declared_size = response.headers.get("Content-Length", "")
            # For an encoded response, the declared size is the size before decoding.
            is_encoded = "Content-Encoding" in response.headers
            if declared_size.isdigit() and not is_encoded and int(declared_size) != size:
                raise FetchError(
                    f"{url}: {size} bytes were received, {declared_size} were announced"
                )
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            problem = None
            if media_type == "text/html":
                problem = WEB_PAGE
            elif not size:
                problem = "the file is empty"
            is_chunked = response.headers.get("Transfer-Encoding", "").lower() == "chunked"
            if problem is None and not declared_size and not is_chunked:
                problem = (
                    "the server does not say how long the file is, "
                    "so it is unknown whether the file is complete"
                )
        return digest.hexdigest(), problem

    def _get(self, url: str) -> requests.Response:
        """Send a GET request, and return the response.

        Raises:
            FetchError: the host cannot be reached, or the status is not 200.
        """
        host = urlsplit(url).netloc
        if host in self._failed_hosts:
            raise self._failed_hosts[host]
        proxy_from_environment(url)  # raises a clear error if the proxy's URL is not valid
        try:
            response = self._session.get(url, timeout=_TIMEOUT_S, stream=True)
        except requests.exceptions.SSLError as error:
            untrusted = f"{host}: TLS failed, its certificate is not trusted\n{certificates_hint()}"
            self._failed_hosts[host] = FetchError(untrusted)
            raise self._failed_hosts[host] from error
        except (requests.ConnectionError, requests.Timeout) as error:
            self._failed_hosts[host] = FetchError(f"{host} cannot be reached", unreachable=True)
            raise self._failed_hosts[host] from error
        except requests.RequestException as error:
            raise FetchError(f"{url}: {type(error).__name__}") from error
        if response.status_code != requests.codes.ok:
            response.close()
            used_up = response.headers.get("X-RateLimit-Remaining") == "0"
            hint = ""
            if used_up:
                hint = (
                    " (the limit of requests without an account is used up; try again in an hour)"
                )
            raise FetchError(f"{url}: HTTP {response.status_code}{hint}")
        return response


LEADERBOARDS = "leaderboards"  # the name for HELM's conf files, which belong to no task
MAX_NLTK_SIZE = 256 << 20  # the limit of all files of an NLTK package together, in bytes
MAX_MEMBER_SIZE = 1 << 30  # the limit of an unpacked member of a zip archive, in bytes

_Say = Callable[[str], None]


def pull(tasks: Sequence[str], root: Path, sources: Sources, say: _Say) -> None:
    """Download the data of each task into the bundle `root`.

    If the data of a task are not available, the other tasks are downloaded nevertheless.

    Raises:
        ConfigError: a task is unknown, or is a run entry whose data this function does not support.
        PrerequisiteError: the data of some tasks are not completely available. No data of these
            tasks were added to the bundle; the message lists the tasks.
    """
    wanted = {}
    unknown = []
    for name in tasks:
        if name != LEADERBOARDS and name not in wanted:
            wanted[name] = requested_sources(name, sources)
            if wanted[name] is None:
                unknown.append(name)
    if unknown:
        raise ConfigError(
            f"there is no task {', '.join(unknown)}; "
            "'eval-factory data ls' lists the tasks (or write: all)"
        )
    failures: list[str] = []
    with contextlib.closing(Fetcher()) as fetcher, open_staging(root, sources) as stage:
        puller = _Puller(sources, stage, fetcher, say)
        pulled = False  # True if the data of at least one task were added
        for name in dict.fromkeys(tasks):
            try:
                task = wanted.get(name)  # None: the name is `LEADERBOARDS`
                notes = puller.stage_confs() if task is None else puller.stage_task(name, task)
            except (FetchError, PrerequisiteError) as error:
                stage.discard()
                hint = ""
                if isinstance(error, FetchError) and error.unreachable:
                    hint = (
                        "; is there a network here? behind a proxy set HTTPS_PROXY, "
                        "with a mirror give --origin"
                    )
                failures.append(f"{name}: not pulled, nothing was written: {error}{hint}")
                continue
            if notes:  # without notes, the task needs no data
                pulled = True
                stage.commit()
                say("; ".join([f"{name}: pulled", *notes]))
        if pulled:
            puller.pull_nltk()
    if failures:
        raise PrerequisiteError("\n".join(failures))


class _Puller:
    """Downloads the data of tasks, and stages them for the bundle."""

    def __init__(self, sources: Sources, stage: Staging, fetcher: Fetcher, say: _Say) -> None:
        self._sources = sources
        self._stage = stage
        self._fetcher = fetcher
        self._say = say  # shows the user a message about the progress

    def stage_task(self, name: str, task: TaskSources) -> list[str]:
        """Stage all data of a task; return notes about the data, or an empty list without data.

        If there are no data, a message gives the user the reason.
        """
        notes: list[str] = []
        archives = self._stage.folder / "archives.part"  # deleted when all members are staged
        for file in task.files:
            url = self._sources.url(file.url)
            target = self._stage.add_file(f"{bundle.SCENARIOS}/{task.scenario}/{file.path}", url)
            if file.member is None:
                self._fetcher.download_file(url, target, sha256=file.sha256)
            else:
                self._stage_member(file.member, url, target, archives)
            if file.form is not None:
                notes.append(describe_choice_file(target, file.form, url))
        shutil.rmtree(archives, ignore_errors=True)
        if task.files:
            notes.append(f"{len(task.files)} files" if len(task.files) > 1 else "1 file")
        if task.listing is not None:
            notes.append(self._stage_listing(name, task.scenario, task.listing))
        for dataset in task.hub:
            revision = pull_dataset(dataset, self._sources.origins["hub"], self._stage)
            notes.append(f"{dataset.id} at {revision} ({_pin_note(dataset.revision, revision)})")
        for vocabulary in task.tiktoken:
            entry = self._sources.tiktoken[vocabulary]
            url = self._sources.url(entry.url)
            self._fetcher.download_file(
                url,
                self._stage.add_file(f"{bundle.TIKTOKEN}/{entry.path}", url),
                sha256=entry.sha256,
            )
            notes.append(f"vocabulary {vocabulary}")
        has_no_known_data = not notes and not task.own_data
        if task.perturbations and has_no_known_data:
            notes.append(
                "eval-factory does not know which data the task reads besides the files of its "
                "perturbations"
            )
        for file in self._sources.perturbation_files(task):
            url = self._sources.url(file.url)
            self._fetcher.download_file(
                url,
                self._stage.add_file(f"{bundle.PERTURBATIONS}/{file.path}", url),
                sha256=file.sha256,
            )
        for perturbation in task.perturbations:
            module = self._sources.perturbations[perturbation].module
            note = f"perturbation {perturbation}"
            if module is not None:
                note += f" (a run needs the package {module}, too)"
            notes.append(note)
        if task.own_data:
            self._say(
                f"{name}: its data are your own (config.params.extra.data_path); "
                "they are not pulled"
            )
        elif not notes:
            self._say(f"{name}: needs no data but the package's")
        return notes

    def _stage_member(self, member: str, url: str, target: Path, archives: Path) -> None:
        """Stage one member of a zip archive. The archive is downloaded only for its first member.

        Args:
            member: the name of the member in the archive.
            url: the URL of the archive.
            target: the path of the new file.
            archives: the folder for downloaded archives.

        Raises:
            FetchError: the archive cannot be downloaded or read, or has no such member.
        """
        archives.mkdir(exist_ok=True)
        archive = archives / f"{hashlib.sha256(url.encode()).hexdigest()}.zip"
        if not archive.exists():
            self._fetcher.download_file(url, archive)
        with _open_zip(archive, url) as members:
            try:
                info = members.getinfo(member)
            except KeyError:
                raise FetchError(f"{url}: the archive holds no {member}") from None
            if info.file_size > MAX_MEMBER_SIZE:
                raise FetchError(f"{url}: {member} is larger than {MAX_MEMBER_SIZE >> 20} MiB")
            with members.open(info) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)

    def _stage_listing(self, name: str, scenario: str, listing: Listing) -> str:
        """Stage GitHub's list of the files in a folder, and the text files in the list.

        At most `bundle.MAX_LISTED_FILES` files are staged. Returns a note with the number of files.

        Raises:
            FetchError: the list or a file cannot be downloaded, or has another content than
                expected.
        """
        url = self._sources.url(listing.url)
        answer = self._fetcher.fetch_json(url)
        try:
            texts = [entry for entry in answer if entry["name"].endswith(".txt")]
            # a dict from the name of a file to (size in bytes, SHA-1 of git)
            blobs = {}
            for entry in texts[: bundle.MAX_LISTED_FILES]:
                blobs[entry["name"]] = (int(entry["size"]), str(entry["sha"]))
            if any("/" in relative_path(file_name) for file_name in blobs):
                raise ValueError("a path instead of a name")  # caught below
        except (KeyError, TypeError, ValueError, AttributeError):
            raise FetchError(f"{url}: the answer is not a list of files") from None
        if len(blobs) < listing.count:
            raise FetchError(f"{url}: lists {len(blobs)} files; there should be {listing.count}")
        self._stage.stage_file_list(scenario, list(blobs), url)
        base = self._sources.url(listing.files)
        self._say(f"{name}: {len(blobs)} files to download")
        with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as threads:
            jobs = []
            for file_name, blob in blobs.items():
                file_url = base + quote(file_name)
                target = self._stage.add_file(
                    f"{bundle.SCENARIOS}/{scenario}/{file_name}", file_url
                )
                jobs.append(
                    threads.submit(self._fetcher.download_file, file_url, target, blob=blob)
                )
            try:
                for job in jobs:
                    job.result()
            except BaseException:  # also a KeyboardInterrupt: the downloads that wait are cancelled
                threads.shutdown(wait=True, cancel_futures=True)
                raise
        return f"{len(blobs)} files"

    def stage_confs(self) -> list[str]:
        """Stage HELM's conf files with the runs of its leaderboards; return notes about them."""
        presentation = self._sources.presentation
        if presentation is None:
            return []
        for file, sha256 in presentation.files.items():
            url = f"{self._sources.url(presentation.url)}{file}"
            self._fetcher.download_file(
                url, self._stage.add_file(f"{bundle.PRESENTATION}/{file}", url), sha256=sha256
            )
        return [f"{len(presentation.files)} files"]

    def pull_nltk(self) -> None:
        """Download the data of NLTK into the bundle.

        No medical benchmark reads these data. If they are not available, the bundle is complete
        nevertheless.
        """
        for name, package in self._sources.nltk.items():
            try:
                self._stage_nltk(name, package)
            except (FetchError, PrerequisiteError) as error:
                self._stage.discard()
                self._say(f"nltk {name}: not pulled ({error}); no medical benchmark reads it")
                continue
            self._stage.commit()
            self._say(f"nltk {name}: pulled")

    def _stage_nltk(self, name: str, package: Nltk) -> None:
        """Stage the files of one package of NLTK.

        Raises:
            FetchError: the archive cannot be downloaded or read, or has no files or too large ones.
        """
        url = self._sources.url(package.url)
        archive = self._stage.folder / f"{name}.zip"
        self._fetcher.download_file(url, archive)
        with _open_zip(archive, url) as members:
            wanted = []
            for info in members.infolist():
                if not info.is_dir() and info.filename.startswith(package.members):
                    wanted.append(info)
            total_size = sum(info.file_size for info in wanted)
            if not wanted or total_size > MAX_NLTK_SIZE:
                raise FetchError(
                    f"{url}: has no files below {package.members}, or more than "
                    f"{MAX_NLTK_SIZE >> 20} MiB"
                )
            for info in wanted:
                path = f"{bundle.NLTK_DATA}/{package.folder}/{relative_path(info.filename)}"
                target = self._stage.add_file(path, url)
                with members.open(info) as member:
                    # The limit matters if a hostile archive states a wrong size.
                    target.write_bytes(member.read(MAX_NLTK_SIZE))
        archive.unlink()


def _pin_note(pinned: str | None, revision: str) -> str:
    """Return a note that compares the downloaded revision with the pinned revision."""
    if pinned is None:
        return "no revision was pinned: this one is recorded"
    if pinned == revision:
        return "pinned"
    return (
        f"not the pinned {pinned}, which the Hub no longer has, or has not converted: "
        "scores may not be comparable"
    )


@contextlib.contextmanager
def _open_zip(archive: Path, url: str) -> Iterator[zipfile.ZipFile]:
    """Open a downloaded zip archive during the `with` block.

    Raises:
        FetchError: the file is not a zip archive, or a member that is read is damaged.
    """
    try:
        with zipfile.ZipFile(archive) as members:
            yield members
    # What zipfile raises for damaged, encrypted or unsupported members.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise FetchError(f"{url}: is not a zip file that can be read: {error}") from None
