"""Tests of what `verify` finds in a folder, and what it leaves alone."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from eval_factory import __version__
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.reading import READER_VERSION as READER
from eval_factory.report.field_differences import ABSENT, Difference
from eval_factory.scoring.methods import (
    STATISTICS_VERSION,
    depends_on_reader,
    has_changed_method,
)
from eval_factory.tasks.errata import load_errata
from eval_factory.workflows import verify as module
from eval_factory.workflows.verify import (
    Finding,
    Verified,
    is_change_of_version,
    is_of_errata,
    source_of_field,
    verify,
)
from facts import each_says, says
from finished_folder import RUN


def replace_in(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def without_checksums(folder: RunDir) -> RunDir:
    folder.checksums.unlink()
    folder.attestation.unlink()
    return folder


def fields(found: Verified, file: str) -> set[str]:
    return {finding.field for finding in found.findings if finding.file == file}


def test_a_copied_folder_that_cannot_be_written_to_is_intact(folder: RunDir) -> None:
    before = {path: sha256_of(path) for path in folder.root.rglob("*") if path.is_file()}
    for path in (*folder.root.rglob("*"), folder.root):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        found = verify(folder.root)
    finally:
        for path in (folder.root, *folder.root.rglob("*")):
            path.chmod(0o700)
    assert found == Verified(folder.root)
    assert found.exit_code == 0
    assert before == {path: sha256_of(path) for path in folder.root.rglob("*") if path.is_file()}


def test_without_checksums_the_rest_is_verified(folder: RunDir) -> None:
    assert verify(without_checksums(folder).root) == Verified(
        folder.root, (), (module.NO_CHECKSUMS,)
    )
    replace_in(folder.evaluation_config, "value: 0.5", "value: 0.7")
    assert verify(folder.root).exit_code == 1


@pytest.mark.parametrize(
    ("name", "old", "new", "field"),
    [
        (
            "evaluation_config.yaml",
            "value: 0.5",
            "value: 0.7",
            "results.tasks.pubmed_qa.metrics.score.scores.exact_match.value",
        ),
        ("evaluation_config.yaml", "wall_s: 2.5", "wall_s: 2.6", "usage.wall_s"),
        ("evaluation_config.yaml", "requested: 4", "requested: 5", "validity.instances.requested"),
        (
            "evaluation_config.yaml",
            "run_identity: v1-",
            "run_identity: v2-",
            "provenance.run_identity",
        ),
        ("results.yml", "git_hash: abc123", "git_hash: abc124", "git_hash"),
        (
            "results.jsonl",
            '"exact_match": 0.0',
            '"exact_match": 1.0',
            "line 2: metrics.exact_match",
        ),
        ("instances.jsonl", '"prompt": "prompt 0"', '"prompt": "prompt 7"', "line 1: prompt"),
        ("responses/model.jsonl", '"created": 1.5', '"created": 1.6', "line 1: created"),
        ("run_config.yml", "framework_name: helm", "framework_name: helm2", "framework_name"),
        (".run_state.json", '"crfm-helm": "0', '"crfm-helm": "1', "versions.crfm-helm"),
        (".run_state.json", '"identity": "v1', '"identity": "v2', "identity"),
        (".run_state.json", '"complete": true', '"complete": false', "complete"),
        (".run_state.json", '"data_bundle": null', '"data_bundle": {"a": 1}', "data_bundle"),
        (".run_state.json", f'"{RUN}"', '"helm/runs/s/x"', "runs"),
        ("evaluation_config.yaml", "09-09T01:46:40", "09-09T01:46:41", "provenance.started_at"),
        ("evaluation_config.yaml", "09-09T01:47:10", "09-09T01:47:11", "provenance.ended_at"),
        (f"{RUN}/stats.json", '"mean": 1.0', '"mean": 2.0', ""),
        ("helm/run_record.json", "[]", "[ ]", ""),
        ("packages.txt", "==", "==9", ""),
        # Of these nothing else in the folder is made: what is remembered of every file is compared.
        ("model_configs/model_deployments.yaml", "org", "orf", ""),
        ("evaluation_config.yaml", "git_hash: abc123", "git_hash: abc124", ""),
        (".run_state.json", '"given": "', '"given": "0', "inputs"),
        (".run_state.json", '"inputs": "', '"inputs": "0', "inputs"),
        (".run_state.json", '"run_id": "run"', '"run_id": "nur"', "inputs"),
    ],
)
def test_what_was_altered_is_named_without_checksums(
    name: str, old: str, new: str, field: str, folder: RunDir
) -> None:
    replace_in(without_checksums(folder).root / name, old, new)
    found = verify(folder.root)
    assert field in fields(found, name), found
    assert found.exit_code == 1


def test_a_configuration_that_was_altered_is_named_with_its_file(folder: RunDir) -> None:
    replace_in(without_checksums(folder).run_config, "parallelism: 4", "parallelism: 5")
    (ours,) = (one for one in verify(folder.root).findings if one.file == "results.yml")
    says(str(ours), "results.yml", "config.params.parallelism", "is 4", "run_config.yml", "5")
    replace_in(folder.run_config, "parallelism: 5", "parallelism: 0")
    (wrong,) = verify(folder.root).findings
    assert wrong.file == "run_config.yml"
    assert "parallelism" in wrong.message


def test_a_score_that_was_altered_together_with_its_checksums_is_found(folder: RunDir) -> None:
    before = sha256_of(folder.evaluation_config), sha256_of(folder.attestation)
    replace_in(folder.evaluation_config, "value: 0.5", "value: 0.7")
    now = sha256_of(folder.evaluation_config)
    folder.attestation.write_text(
        folder.attestation.read_text("utf-8").replace(before[0], now), "utf-8"
    )
    sums = folder.checksums.read_text("utf-8").replace(before[0], now)
    folder.checksums.write_text(sums.replace(before[1], sha256_of(folder.attestation)), "utf-8")
    found = verify(folder.root)
    assert "results.tasks.pubmed_qa.metrics.score.scores.exact_match.value" in fields(
        found, "evaluation_config.yaml"
    )
    assert not any("SHA-256" in finding.message for finding in found.findings)
    assert found.exit_code == 1


def test_a_file_that_differs_from_its_checksums_is_named(folder: RunDir) -> None:
    settings = folder.model_configs / "settings.json"
    before = sha256_of(settings)
    settings.write_text("{}", "utf-8")
    folder.report_html.unlink()
    found = verify(folder.root)
    now = sha256_of(settings)
    assert set(found.findings) == {
        Finding(
            "model_configs/settings.json", "", f"its SHA-256 is {now}; SHA256SUMS has {before}"
        ),
        Finding(
            "model_configs/settings.json",
            "",
            f"its SHA-256 is {now}; attestation.intoto.json has {before}",
        ),
        Finding("report.html", "", "is missing; SHA256SUMS lists it"),
        Finding("report.html", "", "is missing; attestation.intoto.json lists it"),
        Finding("report.html", "", "is missing"),
        *(finding for finding in found.findings if finding.file == "attestation.intoto.json"),
    }


def test_files_that_were_added(folder: RunDir) -> None:
    (folder.root / RUN / "display_requests.json").write_text("[]", "utf-8")
    added = verify(folder.root)
    assert added == Verified(folder.root, (), added.notes)
    each_says(added.notes, [f"{RUN}/display_requests.json", "added after"])
    (folder.responses / "gpt.jsonl").write_text("{}\n", "utf-8")
    assert set(verify(folder.root).findings) == {
        Finding("responses/gpt.jsonl", "", "is not in SHA256SUMS"),
        Finding("responses/gpt.jsonl", "", "cache.db has no answers for this file"),
    }


def test_without_checksums_the_folder_still_remembers_its_files(folder: RunDir) -> None:
    (folder.root / "report.md").unlink()
    assert (
        Finding("report.md", "", "is missing; SHA256SUMS lists it") in verify(folder.root).findings
    )
    assert Finding("report.md", "", "is missing") in verify(without_checksums(folder).root).findings
    state = json.loads(folder.run_state.read_text("utf-8"))
    folder.run_state.write_text(json.dumps({**state, "files": None, "inputs": None}), "utf-8")
    assert ".run_state.json" in {one.file for one in verify(folder.root).findings}


def test_a_statement_that_is_missing_or_says_something_else(folder: RunDir) -> None:
    document = json.loads(folder.attestation.read_text("utf-8"))
    document["predicate"]["evalFactory"]["provenance"]["python"] = "2.7"
    folder.attestation.write_text(json.dumps(document), "utf-8")
    folder.checksums.unlink()
    (one,) = verify(folder.root).findings
    assert (one.file, one.field) == (
        "attestation.intoto.json",
        "predicate.evalFactory.provenance.python",
    )
    assert "evaluation_config.yaml" in one.message
    folder.checksums.write_text("", "utf-8")
    folder.attestation.unlink()
    assert Finding("attestation.intoto.json", "", "is missing") in verify(folder.root).findings
    folder.checksums.write_text("what?\n", "utf-8")
    none = Finding("SHA256SUMS", "", "line 1 is not a SHA-256 with the path of a file")
    assert none in verify(folder.root).findings


def test_a_folder_without_a_result_cannot_be_verified(tmp_path: Path) -> None:
    found = verify(tmp_path)
    assert (found.exit_code, found.intact, found.findings) == (3, False, ())
    assert str(found.unreadable).startswith("is not an output folder")


def test_a_result_of_another_schema_is_altered_where_this_version_wrote_the_folder(
    folder: RunDir,
) -> None:
    replace_in(folder.evaluation_config, "schema_version: ", "schema_version: 9")
    found = verify(folder.root)
    assert (found.exit_code, fields(found, "evaluation_config.yaml")) == (1, {""})
    says(found.notes[-1], "cannot be made again")
    found = verify(without_checksums(folder).root)
    assert (found.exit_code, fields(found, "evaluation_config.yaml")) == (1, {""})


def test_a_result_that_this_version_would_not_write_is_altered(folder: RunDir) -> None:
    replace_in(without_checksums(folder).evaluation_config, "prompts_sha256", "prompts_sha257")
    found = verify(folder.root)
    assert (found.exit_code, fields(found, "evaluation_config.yaml")) == (1, {""})
    replace_in(folder.run_state, '"crfm-helm": "0', '"crfm-helm": "9')
    assert verify(folder.root).exit_code == 3


def test_other_errata_and_another_version_are_notes(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    then = json.loads(folder.run_state.read_text())["versions"]["eval_factory"]
    with monkeypatch.context() as other:
        other.setattr("eval_factory.scoring.provenance.__version__", "9.9")
        found = verify(folder.root)
    assert found.findings == ()
    assert f"another version: eval_factory: {then} then, 9.9 here" in found.notes
    errata = load_errata().model_copy(update={"version": 99})
    monkeypatch.setattr("eval_factory.scoring.provenance.load_errata", lambda: errata)
    found = verify(folder.root)
    assert found.findings == ()
    says(found.notes[0], "here it is 99", "corrected scores")


def test_what_was_computed_otherwise_is_named_and_not_compared(folder: RunDir) -> None:
    """A result of before the statistics had a version, whose p values another test made."""
    without_checksums(folder)
    for path in folder.result_files:
        text = path.read_text().replace(f"  statistics_version: {STATISTICS_VERSION}\n", "")
        path.write_text(text)
    found = verify(folder.root)
    notes = [note for note in found.notes if "p values of groups" in note]
    assert len(notes) == 1
    assert f"version 1; here it is {STATISTICS_VERSION}" in notes[0]
    assert fields(found, "evaluation_config.yaml") <= {""}, "but for the digest of the whole file"
    group = "results.groups.ward.a.metrics.m.scores.m"
    assert has_changed_method(f"{group}.stats.p_holm", 1)
    assert not has_changed_method(f"{group}.stats.p_holm", STATISTICS_VERSION)
    assert not has_changed_method(f"{group}.value", 1)
    assert has_changed_method("validity.jury.agreement_p", 1)
    assert has_changed_method("validity.asked_again.confidence.calibration_error.value", 1)
    assert not has_changed_method("validity.asked_again.confidence.brier.value", 1)


def test_what_an_older_rule_read_is_intact_and_said_to_be_so(folder: RunDir) -> None:
    without_checksums(folder)
    for path in folder.result_files:
        path.write_text(path.read_text().replace(f"  reader_version: {READER}\n", ""))
    found = verify(folder.root)
    notes = [note for note in found.notes if "older rule" in note]
    assert len(notes) == 1
    assert f"version 1; here it is {READER}" in notes[0]
    assert fields(found, "evaluation_config.yaml") <= {""}, "but for the digest of the whole file"
    assert depends_on_reader("results.tasks.x.scores.exact_match.lenient.value")
    assert not depends_on_reader("results.tasks.x.scores.exact_match.value")


def test_a_field_that_an_older_version_lacks_is_no_alteration(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_checksums(folder)
    text = folder.evaluation_config.read_text()
    older = re.sub(r"\n +urgent_notes: .*", "", text)
    assert older != text
    folder.evaluation_config.write_text(older)
    assert "validity.urgent_notes" in fields(verify(folder.root), "evaluation_config.yaml")
    monkeypatch.setattr(module, "__version__", "9.9")
    assert fields(verify(folder.root), "evaluation_config.yaml") <= {""}


def test_another_version_words_a_reason_otherwise_and_computes_no_score_otherwise() -> None:
    absent = repr(ABSENT)
    assert is_change_of_version(Difference("comparability.reason", "a", "b"))
    for field in ("notes[3]", "not_reportable[0]", "failures[1].hint"):
        assert is_change_of_version(Difference(f"validity.{field}", "a", "b"))
        assert not is_change_of_version(Difference(f"validity.{field}", "a", absent))
        assert not is_change_of_version(Difference(f"validity.{field}", absent, "b"))
    assert not is_change_of_version(Difference("validity.failures[1].count", "1", "2"))
    assert is_change_of_version(Difference("validity.urgent_notes", absent, "2"))
    assert not is_change_of_version(Difference("validity.urgent_notes", "1", "2"))
    assert not is_change_of_version(Difference("comparability.comparable", "True", "False"))
    assert not is_change_of_version(Difference("results.scores.exact_match", absent, "1"))


def test_a_page_of_another_version_is_held_to_its_checksum(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version's page has other words and marks; a changed one is found all the same."""
    monkeypatch.setattr(module, "__version__", "9.9")
    monkeypatch.setattr(
        "eval_factory.report.write.results_page", lambda *_, **_how: "the page of 9.9"
    )
    found = verify(folder.root)
    assert found.findings == ()
    says("\n".join(found.notes), "page and report.md", "eval-factory")
    replace_in(folder.report_html, "exact_match", "exact_catch")
    assert {finding.file for finding in verify(folder.root).findings} == {"report.html"}
    monkeypatch.setattr(module, "__version__", __version__)
    assert len(verify(folder.root).findings) > 2, (
        "the same version's page is made again and compared"
    )


def test_what_depends_on_errata_and_where_fields_come_from() -> None:
    score = "results.tasks.x.metrics.score.scores.exact_match"
    assert all(
        map(
            is_of_errata,
            (f"{score}.corrected.value", "validity.notes[1]", "provenance.errata_version"),
        )
    )
    assert not is_of_errata(f"{score}.value")
    for field, file, origin in [
        ("config.type", "results.yml", "run_config.yml"),
        ("command", "results.yml", "run_config.yml"),
        ("target.x", "evaluation_config.yaml", "run_config.yml"),
        ("config.type", "run_config.yml", "HELM's files"),
        ("provenance.started_at", "x", "logs/events.jsonl"),
        ("provenance.ended_at", "x", "logs/events.jsonl"),
        ("usage.wall_s", "evaluation_config.yaml", "cache.db and .run_state.json"),
        ("line 1: key", "responses/model.jsonl", "cache.db"),
    ]:
        assert source_of_field(field, file) == origin


def test_a_file_that_is_remembered_and_gone_is_named(folder: RunDir) -> None:
    (without_checksums(folder).model_configs / "settings.json").unlink()
    (found,) = map(str, verify(folder.root).findings)
    says(found, "model_configs/settings.json", "is missing", ".run_state.json (files)")


def test_a_list_of_files_does_not_lead_elsewhere(folder: RunDir) -> None:
    (folder.root.parent / "secret").write_text("secret")
    (folder.root / "more").symlink_to("../secret")
    state = json.loads(folder.run_state.read_text("utf-8"))
    state["files"]["more"] = digest = sha256_of(folder.root.parent / "secret")
    folder.run_state.write_text(json.dumps(state), "utf-8")
    with folder.checksums.open("a", encoding="utf-8") as sums:
        sums.write(f"{digest}  more\n")
    found = {one.message for one in verify(folder.root).findings if one.file == "more"}
    (finding,) = found
    says(finding, "SHA-256 is unknown", str(folder.root), f"SHA256SUMS has {digest}")


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_foreign_file_is_a_finding_and_nothing_more_is_read(kind: str, folder: RunDir) -> None:
    folder.results_jsonl.unlink()
    if kind == "fifo":
        os.mkfifo(folder.results_jsonl)
    else:
        folder.results_jsonl.symlink_to("/etc/passwd")
    said = "is not a regular file" if kind == "fifo" else f"leads out of the folder {folder.root}"
    (finding,) = verify(folder.root).findings
    assert finding.file == "results.jsonl"
    says(finding.message, "was not read")
    assert said in finding.message
