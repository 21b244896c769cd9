"""Verifies that an output folder was not altered.

The files are compared with their checksums. All documents are made again from HELM's files and the
cache, and compared with the stored documents. A finding is a sign that a file was altered. A
difference is no finding if another version may cause it: of eval-factory, of the errata (known
defects of benchmarks), of the reader (the rules that find the option which an answer states), or of
the statistics.
"""

from __future__ import annotations

import json
import re
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
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.results import ImportedFrom, Provenance
from eval_factory.core.rundir import RunDir, SuiteDir, sha256_of
from eval_factory.core.safe_files import foreign_files, parse_json
from eval_factory.reading import READER_VERSION
from eval_factory.report.checksums import (
    ChecksumsError,
    digests_of,
    read_checksums,
    result_statement,
)
from eval_factory.report.field_differences import (
    ABSENT,
    Difference,
    differences_of_documents,
    differences_of_files,
)
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.methods import (
    STATISTICS_VERSION,
    changed_since,
    depends_on_reader,
    has_changed_method,
)
from eval_factory.tasks.errata import CORRECTED_SUFFIX
from eval_factory.workflows.import_results import imported_again, is_imported
from eval_factory.workflows.recollect import Recollected, recollected, require_last_run_state
from eval_factory.workflows.resume import (
    checkout_commit,
    is_of_current_version,
    read_last_run_state,
)

NO_CHECKSUMS = (
    "SHA256SUMS is missing: an earlier version wrote this folder, the last run of the folder did "
    "not finish, or SHA256SUMS was deleted;"
    " everything else was verified"
)
_MISSING = "missing"  # replaces the digest of a file that does not exist
_RESULT = "evaluation_config.yaml"  # the file with the result
WRONG_FILES = (
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    OSError,
    sqlite3.Error,
)
"""The errors that reading a file with invalid content may raise."""


@dataclass(frozen=True)
class Finding:
    """A sign that a file was altered."""

    file: str  # the path in the output folder
    field: str  # the field in the file; empty if the finding is about the file itself
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.field, self.message) if part)


def finding_about_file(file: str, message: str) -> Finding:
    """Return a finding about a file, not about one of its fields."""
    return Finding(file, field="", message=message)


@dataclass(frozen=True)
class Verified:
    """The outcome of verifying one folder."""

    folder: Path
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    # why the folder could not be verified; None if it could be verified
    unreadable: str | None = None

    @property
    def intact(self) -> bool:
        """True if the folder was verified and there are no findings."""
        return not self.findings and self.unreadable is None

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if intact, 1 if altered, 3 if the folder could not be verified."""
        if self.findings:
            return NotReportableError.exit_code
        if self.unreadable is None:
            return 0
        return PrerequisiteError.exit_code


def verify(folder: Path, *, verify_suite: Callable[[SuiteDir], Verified] | None = None) -> Verified:
    """Compare a folder with its checksums, and its documents with documents made again.

    The folder is not changed. Verification needs no key, no network and no data set.

    Args:
        folder: the output folder of a run, or the folder of a suite.
        verify_suite: the function that verifies the folder of a suite; None if `folder` must be
            the output folder of a run.

    Returns:
        The findings and notes. If the folder cannot be verified, `unreadable` says why; no error is
        raised.
    """
    rundir = RunDir(folder)
    own_paths = (*rundir.all_paths, *SuiteDir(folder).all_paths)
    foreign = []
    for path, why in foreign_files(folder, own_paths):
        name = str(path.relative_to(folder))
        foreign.append(finding_about_file(name, f"{why}: it was not read"))
    if foreign:
        return Verified(folder, tuple(dict.fromkeys(foreign)))
    files_of_result = (rundir.evaluation_config, rundir.checksums, rundir.run_state)
    if not any(path.is_file() for path in files_of_result):
        if verify_suite is not None and SuiteDir(folder).was_started:
            return verify_suite(SuiteDir(folder))
        return Verified(
            folder,
            unreadable="is not an output folder with a result; a run writes the result at its end",
        )
    findings: list[Finding] = []
    notes: list[str] = []
    state_findings: list[Finding] = []
    try:
        # Each finding is stored at once: an error must not lose the earlier findings.
        for finding_or_note in _findings_and_notes(rundir, state_findings):
            if isinstance(finding_or_note, Finding):
                findings.append(finding_or_note)
            else:
                notes.append(finding_or_note)
    except (EvalFactoryError, *WRONG_FILES) as error:
        return _unreadable_folder(
            folder, error, findings=findings, state_findings=state_findings, notes=tuple(notes)
        )
    # If a field of a file is known to be altered, the file's altered digest adds nothing.
    altered_files = {finding.file for finding in findings}
    findings += [finding for finding in state_findings if finding.file not in altered_files]
    return Verified(folder, tuple(dict.fromkeys(findings)), tuple(notes))


def _unreadable_folder(
    folder: Path,
    error: Exception,
    *,
    findings: Sequence[Finding],
    state_findings: Sequence[Finding],
    notes: tuple[str, ...],
) -> Verified:
    """Return the outcome for a folder whose documents cannot be made again.

    The outcome has the findings, if there are any; otherwise the reason why the folder cannot be
    verified.

    Args:
        folder: the output folder.
        error: why the documents cannot be made again.
        findings: the findings before the error.
        state_findings: the findings from the digests in .run_state.json.
        notes: the notes before the error.
    """
    if isinstance(error, EvalFactoryError):
        message = str(error)
    else:
        message = f"{type(error).__name__}: {error}"
    reason = f"the result cannot be made again: {message}"
    # A PrerequisiteError may be about this machine. Any other error of eval-factory means that a
    # file was altered.
    is_about_machine = isinstance(error, PrerequisiteError)
    shows_alteration = isinstance(error, EvalFactoryError) and not is_about_machine
    if shows_alteration and not findings:
        # The message begins with the path of the altered file. A message without a path is about
        # the configuration, which is read from run_config.yml.
        _, separator, text_after_folder = message.partition(f"{folder}/")
        file = "run_config.yml"
        if separator:
            file = text_after_folder.split(":")[0].split(" ")[0]
        other_findings = [finding for finding in state_findings if finding.file != file]
        return Verified(folder, (finding_about_file(file, message), *other_findings), notes)
    if findings or state_findings:
        return Verified(
            folder, tuple(dict.fromkeys([*findings, *state_findings])), (*notes, reason)
        )
    return Verified(folder, notes=notes, unreadable=reason)


def _findings_and_notes(rundir: RunDir, state_findings: list[Finding]) -> Iterator[Finding | str]:
    """Yield the findings and notes about an output folder.

    `state_findings`: the list to which the findings from the digests in .run_state.json are added.
    Such a finding is not yielded, because it adds nothing to another finding about the same file.
    """
    yield from _checksum_findings(rundir)
    stored = _loaded(rundir)
    provenance = stored.result.provenance
    yield from _statement_findings(rundir, stored)
    if provenance.imported is not None:
        yield from _import_findings(rundir, stored, provenance.imported)
        return
    # The result contains the digests of HELM's files, the cache and the list of packages.
    yield from _digest_findings(rundir, provenance.run_files, f"{_RESULT} (provenance.run_files)")
    if provenance.lock_sha256 is not None and rundir.packages.is_file():
        listed = {rundir.packages.name: provenance.lock_sha256}
        yield from _digest_findings(rundir, listed, f"{_RESULT} (provenance.lock_sha256)")
    yield from _state_findings(rundir, stored)
    state = require_last_run_state(rundir)
    name = rundir.run_state.name
    # .run_state.json has the digests of the result's files (`files`), and one digest of its own
    # fields together with those of the provenance that name the input files (`inputs`). These
    # digests reveal changes even if somebody has made SHA256SUMS again.
    inputs = state.digest_of_inputs(vars(provenance))
    for difference in differences_of_documents(state.inputs, inputs, path="inputs"):
        state_findings.append(_finding(name, difference, f"this file and {_RESULT}"))
    state_findings += _digest_findings(rundir, state.files, f"{name} (files)")
    # `made`: the documents that are made again, in a temporary folder
    with recollected(rundir, stored) as made:
        yield from _file_findings(rundir, made, stored)
        made_complete = {"complete": not made.result.something_to_ask}
        for difference in differences_of_documents({"complete": state.complete}, made_complete):
            yield _finding(name, difference, "HELM's files")
        yield from made.notes


def _checksum_findings(rundir: RunDir) -> Iterator[Finding | str]:
    """Yield the differences between the files of the folder and SHA256SUMS."""
    if not rundir.checksums.is_file():
        yield NO_CHECKSUMS
        return
    try:
        listed = read_checksums(rundir.checksums)
    except ChecksumsError as error:
        yield finding_about_file(rundir.checksums.name, str(error))
        return
    yield from _digest_findings(rundir, listed, rundir.checksums.name)
    helm_folders = []
    if not is_imported(rundir):
        helm_folders = [rundir.root / name for name in require_last_run_state(rundir).runs]
    unlisted = sorted(digests_of(rundir, helm_folders).keys() - listed.keys())
    if rundir.attestation.is_file() and rundir.attestation.name not in listed:
        unlisted.append(rundir.attestation.name)
    result_names = {
        path.name for path in (*rundir.result_files, rundir.run_config, rundir.attestation)
    }
    for name in unlisted:
        if name in result_names or name.startswith(f"{rundir.responses.name}/"):
            yield finding_about_file(name, "is not in SHA256SUMS")
        else:
            yield f"{name} was added after the run"


def _file_findings(
    rundir: RunDir, made: Recollected, stored: StoredResult
) -> Iterator[Finding | str]:
    """Yield the differences between the stored documents and the documents made again."""
    changes = _VersionChanges.between(stored.result.provenance, made.result.provenance)
    yield from changes.notes()
    for made_path in made.rundir.existing_result_files():
        name = made_path.relative_to(made.rundir.root).as_posix()
        is_page = made_path in (made.rundir.report_html, made.rundir.report_md)
        if not (rundir.root / name).is_file():
            yield finding_about_file(name, "is missing")
            continue
        if is_page and changes.may_change_pages:
            continue
        for difference in differences_of_files(rundir.root / name, made_path):
            if not changes.may_cause(difference):
                yield _finding(name, difference, source_of_field(difference.field, name))
    for path in sorted(rundir.responses.glob("*.jsonl")):
        if not made.rundir.responses.joinpath(path.name).is_file():
            name = f"{rundir.responses.name}/{path.name}"
            yield finding_about_file(name, "cache.db has no answers for this file")


@dataclass(frozen=True)
class _VersionChanges:
    """The differences between the versions that made a stored result and the current versions."""

    stored: Provenance  # has the versions that made the stored result
    made: Provenance  # has the versions that made the result again
    other_errata: bool
    other_reader: bool
    other_eval_factory: bool

    @classmethod
    def between(cls, stored: Provenance, made: Provenance) -> _VersionChanges:
        """Compare the versions of the stored result with those of the result made again."""
        # In `made`, these two are copied from the stored result (see `_collect_again` in
        # recollect.py). They are therefore taken from the running program.
        current = (__version__, checkout_commit())
        return cls(
            stored,
            made,
            other_errata=stored.errata_version != made.errata_version,
            other_reader=stored.reader_version != made.reader_version,
            other_eval_factory=(stored.eval_factory, stored.git_hash) != current,
        )

    @property
    def may_change_pages(self) -> bool:
        """True if report.html and report.md may differ, because a version differs."""
        return (
            self.other_errata
            or self.other_reader
            or self.other_eval_factory
            or bool(changed_since(self.stored.statistics_version))
        )

    def may_cause(self, difference: Difference) -> bool:
        """Return True if a version that differs may cause this difference."""
        field = difference.field
        return (
            (self.other_errata and is_of_errata(field))
            or (self.other_reader and depends_on_reader(field))
            or (self.other_eval_factory and is_change_of_version(difference))
            or has_changed_method(field, self.stored.statistics_version)
        )

    def notes(self) -> Iterator[str]:
        """Yield notes that say what was not compared, because a version differs."""
        changed_methods = changed_since(self.stored.statistics_version)
        if changed_methods:
            names = "; ".join(method.name for method in changed_methods)
            yield (
                f"statistics version {self.stored.statistics_version}; "
                f"here it is {STATISTICS_VERSION}: "
                f"it computes these in another way, and they were not compared: {names}"
            )
        # Each of these notes says that the page was not compared. Only the first note that applies
        # is shown. If a second of these versions differs too, further fields were not compared.
        if self.other_errata:
            yield (
                f"corrected with errata version {self.stored.errata_version}; "
                f"here it is {self.made.errata_version}: "
                "corrected scores were not compared, nor the page"
            )
        elif self.other_reader:
            yield (
                f"read by an older rule: version {self.stored.reader_version}; "
                f"here it is {self.made.reader_version}: "
                "what answers state was not compared, nor the page"
            )
        elif self.other_eval_factory:
            yield (
                f"the page and report.md are of eval-factory {self.stored.eval_factory}: "
                "compared with SHA256SUMS alone"
            )


def _import_findings(
    rundir: RunDir, stored: StoredResult, imported: ImportedFrom
) -> Iterator[Finding | str]:
    """Yield the differences between an imported result and its source.

    The hashes of the source files are compared. The source is also imported again, and the two
    imports are compared.
    """
    yield from _judge_findings(rundir, stored)
    with imported_again(stored) as made_again:
        if made_again.rundir is None:
            yield (
                f"the source {made_again.source} is not here: the folder's own files were compared"
            )
            return
        for name, digest in imported.files.items():
            current = made_again.files[name]
            if current != digest:
                field = f"provenance.imported.files.{name}"
                yield Finding(_RESULT, field, f"is {digest}; {made_again.source} has {current}")
        provenance = stored.result.provenance
        other_reader = provenance.reader_version != READER_VERSION
        may_change_pages = other_reader or provenance.eval_factory != __version__
        if may_change_pages:
            yield "the page and report.md are of another version: compared with SHA256SUMS alone"
        if other_reader:
            yield (
                f"read by an older rule: version {provenance.reader_version}; "
                f"here it is {READER_VERSION}: "
                "what answers state was not compared"
            )
        for made_path in made_again.rundir.existing_result_files():
            name = made_path.relative_to(made_again.rundir.root).as_posix()
            is_page = made_path in (made_again.rundir.report_html, made_again.rundir.report_md)
            if is_page and may_change_pages:
                continue
            if not (rundir.root / name).is_file():
                yield finding_about_file(name, "is missing")
                continue
            for difference in differences_of_files(rundir.root / name, made_path):
                is_by_reader = other_reader and depends_on_reader(difference.field)
                if not is_by_reader:
                    yield _finding(name, difference, str(made_again.source))


def _judge_findings(rundir: RunDir, stored: StoredResult) -> Iterator[Finding | str]:
    """Yield the findings about the run in which judges rated the answers of an imported result."""
    files = stored.result.provenance.run_files
    yield from _digest_findings(rundir, files, f"{_RESULT} (provenance.run_files)")
    if not files or not rundir.judged.is_dir():
        return
    verified = verify(rundir.judged)
    name = rundir.judged.name
    for finding in verified.findings:
        yield Finding(f"{name}/{finding.file}", finding.field, finding.message)
    if verified.unreadable is not None:
        yield finding_about_file(name, verified.unreadable)
    for note in verified.notes:
        yield f"{name}: {note}"


def _loaded(rundir: RunDir) -> StoredResult:
    """Return the result in this folder.

    Raises:
        PrerequisiteError: there is no result, or another version of eval-factory wrote it.
        ConfigError: this version wrote the result, but cannot read it: the file was altered.
    """
    try:
        return load_result(rundir.root)
    except PrerequisiteError as error:
        state = read_last_run_state(rundir)
        is_of_this_version = state is not None and is_of_current_version(state)
        if is_of_this_version and rundir.evaluation_config.is_file():
            raise ConfigError(str(error)) from error
        raise


def _statement_findings(rundir: RunDir, stored: StoredResult) -> Iterator[Finding]:
    """Yield the differences between the stored attestation and an attestation made again.

    The attestation is an in-toto statement about the files of the folder and the result.
    """
    name = rundir.attestation.name
    if not rundir.attestation.is_file():
        # A run writes SHA256SUMS last: if this file exists, the run has written the attestation.
        if rundir.checksums.is_file():
            yield finding_about_file(name, "is missing")
        return
    try:
        document = parse_json(rundir.attestation.read_text(encoding="utf-8"))
        subjects = {entry["name"]: entry["digest"]["sha256"] for entry in document["subject"]}
    except WRONG_FILES as error:
        yield finding_about_file(name, f"cannot be read: {type(error).__name__}: {error}")
        return
    current_digests = {file: _digest(rundir, file) for file in subjects}
    # converted to JSON and back, because JSON stores tuples as lists
    statement: Any = json.loads(json.dumps(result_statement(stored.result, current_digests)))
    _remove_new_keys(rundir, document, statement)
    # the subjects are compared with the files, and everything else with the new statement
    yield from _digest_findings(rundir, subjects, name)
    for difference in differences_of_documents(
        {**document, "subject": []}, {**statement, "subject": []}
    ):
        yield _finding(name, difference, _RESULT)


def _remove_new_keys(rundir: RunDir, document: Any, statement: Any) -> None:
    """Remove new fields of the provenance from the statement that was made again.

    A field is new if neither the stored statement nor the stored result has it: the version that
    wrote them did not know the field.
    """
    result = parse_own_text(rundir.evaluation_config.read_text(encoding="utf-8"))
    known_keys = _mapping_in(result, "provenance").keys() | _provenance_in(document).keys()
    fields = _provenance_in(statement)
    new_names = fields.keys() - known_keys
    for name in new_names:
        del fields[name]


def _provenance_in(statement: Any) -> dict[str, Any]:
    """Return the provenance in a statement; an empty mapping if there is none."""
    return _mapping_in(statement, "predicate", "evalFactory", "provenance")


def _mapping_in(document: Any, *path: str) -> dict[str, Any]:
    """Return the mapping at a path of keys; an empty mapping if there is none."""
    value = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, dict):
        return {}
    return value


def _digest_findings(
    rundir: RunDir, listed: Mapping[str, str], list_name: str
) -> Iterator[Finding]:
    """Yield a finding for each file whose digest differs from the digest in the list.

    Args:
        rundir: the output folder.
        listed: the SHA-256 digest of each file, by the path of the file in the folder.
        list_name: the name of the list, which the message of a finding contains.
    """
    for name, digest in listed.items():
        current = _digest(rundir, name)
        if current == _MISSING:
            yield finding_about_file(name, f"is missing; {list_name} lists it")
        elif current != digest:
            yield finding_about_file(name, f"its SHA-256 is {current}; {list_name} has {digest}")


def _digest(rundir: RunDir, name: str) -> str:
    """Return the SHA-256 digest of a file in the folder.

    Returns `_MISSING` if the file does not exist. If the file cannot be read, returns a text with
    the reason.
    """
    try:
        return sha256_of(rundir.root / name, rundir.root)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return _MISSING
        return f"unknown ({error.strerror})"  # such as "unknown (Permission denied)"


# fields that results of earlier versions do not have
_NEW_FIELDS = ("validity.urgent_notes", "validity.jury.constant")
# "validity.notes[0]", "comparability.deviations[2].effect"
_SENTENCES = re.compile(
    r"clinicians\.notes\[\d+\]"
    r"|comparability\.(?:reason|remarks\[\d+\]|deviations\[\d+\]\.effect)"
    r"|usage\.cost_unknown"
    r"|validity\.(?:notes\[\d+\]|not_reportable\[\d+\]|failures\[\d+\]\.hint)"
)
"""The names of fields that contain a sentence, which each version may word differently."""


def is_change_of_version(difference: Difference) -> bool:
    """Return True if the difference may come from another version of eval-factory.

    Versions differ in the wording of sentences, and in the keys that they know. A sentence that
    only one of the two results has is a real difference.
    """
    # A difference has its values as texts; the text of a missing value is `repr(ABSENT)`.
    is_in_both = repr(ABSENT) not in (difference.stored, difference.made)
    if is_in_both and _SENTENCES.fullmatch(difference.field):
        return True
    is_setting = difference.field.startswith(("config.params.", "target.api_endpoint."))
    is_new = is_setting or difference.field in _NEW_FIELDS
    return is_new and difference.stored == repr(ABSENT)


def is_of_errata(field: str) -> bool:
    """Return True if the field depends on the errata: corrected scores, and notes about them."""
    return CORRECTED_SUFFIX in field or field.startswith(
        ("provenance.errata_version", "validity.notes")
    )


def source_of_field(field: str, name: str) -> str:
    """Return the names of the files from which a field of the file `name` was made again."""
    if field.split(".")[0] in ("command", "config", "target") and name != "run_config.yml":
        return "run_config.yml"
    if field.startswith("usage"):
        return "cache.db and .run_state.json"
    if field.startswith(("provenance.started_at", "provenance.ended_at")):
        return "logs/events.jsonl"
    if name.startswith("responses/") or field.endswith("_answer"):
        return "cache.db"
    return "HELM's files"


def _finding(name: str, difference: Difference, source: str) -> Finding:
    """Return a finding about a difference in a file.

    Args:
        name: the path of the file in the output folder.
        difference: the field, with the stored value and the value that was made again.
        source: the files from which the field was made again.
    """
    return Finding(
        name,
        difference.field,
        f"is {difference.stored}; made again from {source} it is {difference.made}",
    )


def _state_findings(rundir: RunDir, stored: StoredResult) -> Iterator[Finding]:
    """Yield the differences between .run_state.json and the provenance of the result."""
    provenance = stored.result.provenance
    state = require_last_run_state(rundir)
    expected = {
        "identity": provenance.run_identity,
        "versions": {
            "eval_factory": provenance.eval_factory,
            provenance.helm_package: provenance.helm,
        },
        "data_bundle": provenance.data_bundle,
    }
    recorded = {}
    for name, value in asdict(state).items():
        if name in expected:
            recorded[name] = value
    for difference in differences_of_documents(recorded, expected):
        yield _finding(rundir.run_state.name, difference, _RESULT)
    # `state.runs` has the folders of HELM's runs, and `run_files` the paths of HELM's files.
    # Results of earlier versions have no `run_files`.
    listed_folders = {name.rpartition("/")[0] for name in provenance.run_files}
    for folder in state.runs:
        if listed_folders and folder not in listed_folders:
            message = f"names {folder}, which is not in provenance.run_files"
            yield Finding(rundir.run_state.name, "runs", message)
