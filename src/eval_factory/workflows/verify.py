"""Is an output folder what it says it is? Its checksums, and everything in it made again and
compared.

What may differ without being a finding is a short list: the versions and the machine of who
verifies (`recollect.COLLECTOR_FIELDS`), data that are not here any more, corrected scores where the
errata have another version.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval_factory import __version__
from eval_factory.core.errors import (
    ConfigError,
    EvalFactoryError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.rundir import RunDir, SuiteDir, sha256_of
from eval_factory.core.safe_files import foreign_files, parse_json
from eval_factory.reading import VERSION
from eval_factory.report.checksums import (
    ChecksumsError,
    digests_of,
    read_checksums,
    result_statement,
)
from eval_factory.report.field_differences import (
    ABSENT,
    Difference,
    differences,
    differences_of_files,
)
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.methods import (
    STATISTICS_VERSION,
    changed_since,
    depends_on_reader,
    is_computed_otherwise,
)
from eval_factory.tasks.errata import CORRECTED
from eval_factory.workflows.import_results import imported_again, is_imported
from eval_factory.workflows.recollect import Recollected, last_state, recollected
from eval_factory.workflows.resume import checkout_commit, is_of_current_version, read_state

NO_CHECKSUMS = (
    "SHA256SUMS is not there: an earlier version wrote this folder, its last run did not finish, "
    "or it was deleted;"
    " the rest was verified"
)
_MISSING = "missing"
_RESULT = "evaluation_config.yaml"
WRONG_FILES = (
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    OSError,
    sqlite3.Error,
)
"""The errors of reading files whose content makes no sense."""


@dataclass(frozen=True)
class Finding:
    """Something that was altered."""

    file: str  # path in the output folder
    field: str  # the place in the file; empty if it is the file itself
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.field, self.message) if part)


@dataclass(frozen=True)
class Verified:
    """The findings about one folder."""

    folder: Path
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    unreadable: str | None = None  # why the folder could not be verified; None if it was

    @property
    def intact(self) -> bool:
        return not self.findings and self.unreadable is None

    @property
    def exit_code(self) -> int:
        if self.findings:
            return NotReportableError.exit_code
        if self.unreadable is None:
            return 0
        return PrerequisiteError.exit_code


def verify(folder: Path, *, suite: Callable[[SuiteDir], Verified] | None = None) -> Verified:
    """Compare a folder with its checksums and with what its own files give when they are collected
    again.

    Nothing in the folder is changed; no key, no network and none of the data are needed.

    Args:
        folder: an output folder, or that of a suite.
        suite: what verifies the folder of a suite, which verifies each of its runs by this
            function.
    """
    rundir = RunDir(folder)
    own_paths = (*rundir.own, *SuiteDir(folder).own)
    foreign = []
    for path, why in foreign_files(folder, own_paths):
        foreign.append(Finding(str(path.relative_to(folder)), "", f"{why}: it was not read"))
    if foreign:
        return Verified(folder, tuple(dict.fromkeys(foreign)))
    if not any(
        path.is_file() for path in (rundir.evaluation_config, rundir.checksums, rundir.run_state)
    ):
        if suite is not None and SuiteDir(folder).was_started:
            return suite(SuiteDir(folder))
        return Verified(
            folder,
            unreadable="is not an output folder with a result; it is written when a run ends",
        )
    outcomes: list[Finding | str] = []
    remembered: list[Finding] = []
    error: Exception | None = None
    try:
        for outcome in _looked_at(rundir, remembered):
            outcomes.append(outcome)  # findings before a file that makes no sense count
    except (EvalFactoryError, *WRONG_FILES) as raised:
        error = raised
    findings = []
    for finding in outcomes:
        if isinstance(finding, Finding):
            findings.append(finding)
    notes = tuple(note for note in outcomes if isinstance(note, str))
    if error is None:
        # if a field is known, the digest of the file says no more
        named = {finding.file for finding in findings}
        findings += [finding for finding in remembered if finding.file not in named]
        return Verified(folder, tuple(dict.fromkeys(findings)), notes)
    return _with_a_file_that_makes_no_sense(folder, error, findings, remembered, notes)


def _with_a_file_that_makes_no_sense(
    folder: Path,
    error: Exception,
    findings: Sequence[Finding],
    remembered: Sequence[Finding],
    notes: tuple[str, ...],
) -> Verified:
    """Return what was altered, if that is known; else why nobody can verify the folder."""
    if isinstance(error, EvalFactoryError):
        message = str(error)
    else:
        message = f"{type(error).__name__}: {error}"
    reason = f"the result cannot be made again: {message}"
    if (
        not findings
        and isinstance(error, EvalFactoryError)
        and not isinstance(error, PrerequisiteError)
    ):
        _, is_named, rest = message.partition(f"{folder}/")
        wrong = Finding(
            rest.split(":")[0].split(" ")[0] if is_named else "run_config.yml", "", message
        )
        return Verified(
            folder,
            (wrong, *(finding for finding in remembered if finding.file != wrong.file)),
            notes,
        )
    if findings or remembered:
        return Verified(folder, tuple(dict.fromkeys([*findings, *remembered])), (*notes, reason))
    return Verified(folder, (), notes, reason)


def _looked_at(rundir: RunDir, remembered: list[Finding]) -> Iterator[Finding | str]:
    """Findings and notes. `remembered`: gets the findings of files that .run_state.json names."""
    yield from _of_checksums(rundir)
    stored = _loaded(rundir)
    yield from _findings_of_statement(rundir, stored)
    if stored.result.provenance.imported is not None:
        yield from _of_import(rundir, stored)
        return
    # HELM's files, the cache and the list of packages are those that the result names
    record = stored.result.provenance
    yield from _other_digests(rundir, record.run_files, f"{_RESULT} (provenance.run_files)")
    if record.lock_sha256 is not None and rundir.packages.is_file():
        listed = {rundir.packages.name: record.lock_sha256}
        yield from _other_digests(rundir, listed, f"{_RESULT} (provenance.lock_sha256)")
    yield from _findings_of_state(rundir, stored)
    state = last_state(rundir)
    name = rundir.run_state.name
    # every file of the result, and what else is remembered of its collection, whoever made
    # SHA256SUMS again
    changed = differences(state.inputs, state.digest_of_inputs(vars(record)), "inputs")
    remembered += [_finding(name, difference, f"this file and {_RESULT}") for difference in changed]
    remembered += _other_digests(rundir, state.files, f"{name} (files)")
    with recollected(rundir, stored) as made:
        yield from _of_files(rundir, made, stored)
        complete = {"complete": not made.result.something_to_ask}
        for difference in differences({"complete": state.complete}, complete):
            yield _finding(name, difference, "HELM's files")
        yield from made.notes


def _of_checksums(rundir: RunDir) -> Iterator[Finding | str]:
    if not rundir.checksums.is_file():
        yield NO_CHECKSUMS
        return
    try:
        listed = read_checksums(rundir.checksums)
    except ChecksumsError as error:
        yield Finding(rundir.checksums.name, "", str(error))
        return
    yield from _other_digests(rundir, listed, rundir.checksums.name)
    runs = []
    if not is_imported(rundir):
        runs = [rundir.root / name for name in last_state(rundir).runs]
    unlisted = sorted(digests_of(rundir, runs).keys() - listed.keys())
    if rundir.attestation.is_file() and rundir.attestation.name not in listed:
        unlisted.append(rundir.attestation.name)
    result_names = {path.name for path in (*rundir.results, rundir.run_config, rundir.attestation)}
    for name in unlisted:
        if name in result_names or name.startswith(f"{rundir.responses.name}/"):
            yield Finding(name, "", "is not in SHA256SUMS")
        else:
            yield f"{name} was added after the run"


def _of_files(rundir: RunDir, made: Recollected, stored: StoredResult) -> Iterator[Finding | str]:
    """Yield what is found when every document is made again and compared with the one that stands
    there.
    """
    record = stored.result.provenance
    errata = made.result.provenance.errata_version
    reader = made.result.provenance.reader_version
    is_of_another = (record.eval_factory, record.git_hash) != (__version__, checkout_commit())
    otherwise = changed_since(record.statistics_version)
    if otherwise:
        names = "; ".join(method.name for method in otherwise)
        note = f"statistics version {record.statistics_version}; here it is {STATISTICS_VERSION}"
        yield f"{note}: it computes these in another way, and they were not compared: {names}"
    in_sentences: tuple[Path, ...] = (made.rundir.report_html, made.rundir.report_md)
    if record.errata_version != errata:
        note = f"corrected with errata version {record.errata_version}; here it is {errata}"
        yield f"{note}: corrected scores were not compared, nor the page"
    elif record.reader_version != reader:
        note = f"read by an older rule: version {record.reader_version}; here it is {reader}"
        yield f"{note}: what answers state was not compared, nor the page"
    elif is_of_another:
        written = f"the page and report.md are of eval-factory {record.eval_factory}"
        yield f"{written}: compared with SHA256SUMS alone"
    elif not otherwise:
        in_sentences = ()
    for made_path in made.rundir.written():
        name = made_path.relative_to(made.rundir.root).as_posix()
        if not (rundir.root / name).is_file():
            yield Finding(name, "", "is missing")
        elif made_path not in in_sentences:
            for difference in differences_of_files(rundir.root / name, made_path):
                of_errata = record.errata_version != errata and is_of_errata(difference.field)
                of_reader = record.reader_version != reader and depends_on_reader(difference.field)
                of_method = is_computed_otherwise(difference.field, record.statistics_version)
                is_newer = is_of_another and is_of_another_version(difference)
                if not (of_errata or of_reader or of_method or is_newer):
                    yield _finding(name, difference, origin_of_field(difference.field, name))
    for path in sorted(rundir.responses.glob("*.jsonl")):
        if not made.rundir.responses.joinpath(path.name).is_file():
            yield Finding(
                f"{rundir.responses.name}/{path.name}", "", "cache.db has no answers for this file"
            )


def _of_import(rundir: RunDir, stored: StoredResult) -> Iterator[Finding | str]:
    """Compare an imported result with its source: the files' hashes, and the import made again."""
    imported = stored.result.provenance.imported
    yield from _of_judges(rundir, stored)
    with imported_again(stored) as made_again:
        if made_again.rundir is None or imported is None:
            yield (
                f"the source {made_again.source} is not here: the folder's own files were compared"
            )
            return
        for name, digest in imported.files.items():
            if made_again.files[name] != digest:
                field = f"provenance.imported.files.{name}"
                yield Finding(
                    _RESULT, field, f"is {digest}; {made_again.source} has {made_again.files[name]}"
                )
        record = stored.result.provenance
        is_read_otherwise = record.reader_version != VERSION
        in_sentences: tuple[Path, ...] = ()
        if record.eval_factory != __version__ or is_read_otherwise:
            in_sentences = (made_again.rundir.report_html, made_again.rundir.report_md)
            yield "the page and report.md are of another version: compared with SHA256SUMS alone"
        if is_read_otherwise:
            yield (
                f"read by an older rule: version {record.reader_version}; here it is {VERSION}: "
                "what answers state was not compared"
            )
        for path in made_again.rundir.written():
            if path in in_sentences:
                continue
            name = path.relative_to(made_again.rundir.root).as_posix()
            if not (rundir.root / name).is_file():
                yield Finding(name, "", "is missing")
                continue
            for difference in differences_of_files(rundir.root / name, path):
                of_reader = is_read_otherwise and depends_on_reader(difference.field)
                if not of_reader:
                    yield _finding(name, difference, str(made_again.source))


def _of_judges(rundir: RunDir, stored: StoredResult) -> Iterator[Finding | str]:
    """Verify the run in which judges rated the answers of an imported result."""
    files = stored.result.provenance.run_files
    yield from _other_digests(rundir, files, f"{_RESULT} (provenance.run_files)")
    if not files or not rundir.judged.is_dir():
        return
    verified = verify(rundir.judged)
    name = rundir.judged.name
    for finding in verified.findings:
        yield Finding(f"{name}/{finding.file}", finding.field, finding.message)
    if verified.unreadable is not None:
        yield Finding(name, "", verified.unreadable)
    for note in verified.notes:
        yield f"{name}: {note}"


def _loaded(rundir: RunDir) -> StoredResult:
    """Return the result in this folder.

    Raises:
        PrerequisiteError: there is no result, or another version's.
        ConfigError: this version wrote it, and would not write it so.
    """
    try:
        return load_result(rundir.root)
    except PrerequisiteError as error:
        state = read_state(rundir)
        if (
            state is not None
            and is_of_current_version(state)
            and rundir.evaluation_config.is_file()
        ):
            raise ConfigError(str(error)) from error
        raise


def _findings_of_statement(rundir: RunDir, stored: StoredResult) -> Iterator[Finding]:
    """Yield what is found when the statement is made again from the files and the result that stand
    there now.
    """
    name = rundir.attestation.name
    if not rundir.attestation.is_file():
        if rundir.checksums.is_file():
            yield Finding(name, "", "is missing")
        return
    try:
        document = parse_json(rundir.attestation.read_text(encoding="utf-8"))
        subjects = {entry["name"]: entry["digest"]["sha256"] for entry in document["subject"]}
    except WRONG_FILES as error:
        yield Finding(name, "", f"cannot be read: {type(error).__name__}: {error}")
        return
    now = {file: _digest(rundir, file) for file in subjects}
    statement: Any = json.loads(json.dumps(result_statement(stored.result, now)))
    _remove_new_keys(rundir, document, statement)
    yield from _other_digests(rundir, subjects, name)
    for difference in differences({**document, "subject": []}, {**statement, "subject": []}):
        yield _finding(name, difference, _RESULT)


def _remove_new_keys(rundir: RunDir, document: Any, statement: Any) -> None:
    """Remove from the statement made again the fields of the provenance that the version that ran
    did not know: neither its statement nor its result has them.
    """
    result = parse_own(rundir.evaluation_config.read_text(encoding="utf-8"))
    known_keys = _mapping_in(result, "provenance").keys() | _provenance_in(document).keys()
    fields = _provenance_in(statement)
    for name in [name for name in fields if name not in known_keys]:
        del fields[name]


def _provenance_in(statement: Any) -> dict[str, Any]:
    return _mapping_in(statement, "predicate", "evalFactory", "provenance")


def _mapping_in(document: Any, *path: str) -> dict[str, Any]:
    """Return the mapping at a path; an empty one if there is none."""
    value = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        return {}
    return value


def _other_digests(rundir: RunDir, listed: Mapping[str, str], list_name: str) -> Iterator[Finding]:
    for name, digest in listed.items():
        now = _digest(rundir, name)
        if now == _MISSING:
            yield Finding(name, "", f"is missing; {list_name} lists it")
        elif now != digest:
            yield Finding(name, "", f"its SHA-256 is {now}; {list_name} has {digest}")


def _digest(rundir: RunDir, name: str) -> str:
    """Return the SHA-256 of a file that a list names, if it lies in the folder."""
    try:
        return sha256_of(rundir.root / name, rundir.root)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return _MISSING
        return f"unknown: it {error.strerror}"


_NEW_FIELDS = ("validity.urgent_notes", "validity.jury.constant")
_IN_SENTENCES = ("comparability.reason",)


def is_of_another_version(difference: Difference) -> bool:
    """Return True if a key is one that the version that ran did not know, or a sentence, which
    another version words in another way.
    """
    if difference.field in _IN_SENTENCES:
        return True
    is_setting = difference.field.startswith(("config.params.", "target.api_endpoint."))
    is_new = is_setting or difference.field in _NEW_FIELDS
    return is_new and difference.stored == repr(ABSENT)


def is_of_errata(field: str) -> bool:
    """Return True if a field depends on the errata that a version knows: they have scores of their
    own, and notes.
    """
    return CORRECTED in field or field.startswith(("provenance.errata_version", "validity.notes"))


def origin_of_field(field: str, name: str) -> str:
    """Return what a field was made from, when it was made again."""
    if field.split(".")[0] in ("command", "config", "target") and name != "run_config.yml":
        return "run_config.yml"
    if field.startswith("usage"):
        return "cache.db and .run_state.json"
    if field.startswith(("provenance.started_at", "provenance.ended_at")):
        return "logs/events.jsonl"
    if name.startswith("responses/") or field.endswith("_answer"):
        return "cache.db"
    return "HELM's files"


def _finding(name: str, difference: Difference, origin: str) -> Finding:
    return Finding(
        name,
        difference.field,
        f"is {difference.stored}; made again from {origin} it is {difference.made}",
    )


def _findings_of_state(rundir: RunDir, stored: StoredResult) -> Iterator[Finding]:
    """Yield what the folder remembers, for the next run, of the one that made the result."""
    provenance = stored.result.provenance
    state = last_state(rundir)
    expected = {
        "identity": provenance.run_identity,
        "versions": {
            "eval_factory": provenance.eval_factory,
            provenance.helm_package: provenance.helm,
        },
        "data_bundle": provenance.data_bundle,
    }
    now = {}
    for name, value in asdict(state).items():
        if name in expected:
            now[name] = value
    for difference in differences(now, expected):
        yield _finding(rundir.run_state.name, difference, _RESULT)
    runs = {name.rpartition("/")[0] for name in provenance.run_files}
    for run in state.runs:
        if runs and run not in runs:
            yield Finding(
                rundir.run_state.name, "runs", f"names {run}, which is not in provenance.run_files"
            )
