"""Tests of what papers and auditors get: of one run, of a suite, of runs beside each other, of a panel."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner

from eval_factory.analysis.gate_policy import CONDITIONS, LIMITS, load_policy, write_lock
from eval_factory.analysis.paper import pack_of_panel, written_for
from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import suite_results
from eval_factory.cli.main import cli
from eval_factory.cli.result_commands import _PURPOSES
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import SuiteDir
from eval_factory.monitor.ledger import History
from eval_factory.monitor.report import PanelPackWriter
from eval_factory.report.evidence_packs import PACKS, pack_markdown
from facts import naming, rows_of, says
from invented_ledger import alarm, baseline, ledger, look
from stored_results import right_or_wrong
from stored_suite import cells
from suite_folders import BETTER, SAME, scored, suite_folder

SEVERAL = [name for name in _PURPOSES if name != "model-card"]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    values = {"small/qa": SAME, "large_1/qa": BETTER, "small/calc": SAME, "large_1/calc": SAME}
    return suite_folder(tmp_path / "suite", values, {"large_1/law": "the endpoint is gone"})


@pytest.mark.parametrize("purpose", _PURPOSES)
def test_it_goes_to_standard_output_or_to_a_file(purpose: str, tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    page = (folder / "report.html").read_bytes()
    text = written_for(purpose, [folder])
    assert (text[-1], "What is q" in text, "answer to q" in text) == ("\n", False, False)
    file = tmp_path / "out"
    asked = ["report", str(folder), "--for", purpose]
    for arguments, output in (([], text), (["-o", str(file)], f"{file}\n")):
        assert (
            CliRunner().invoke(cli, [*asked, *arguments], catch_exceptions=False).output == output
        )
    assert file.read_text("utf-8") == text
    assert (folder / "report.html").read_bytes() == page


def test_a_suites_methods_say_once_what_holds_for_all_and_whose_the_rest_is(suite: Path) -> None:
    text = written_for("methods", [suite])
    body, _, rest = text.partition("\n\nReferences\n")
    references, _, _ = rest.partition("\n\n")
    assert body.count("main metric was exact_match") == 1
    assert "The models were compared" not in body
    says(body, "compared in pairs")
    says(body, "large_1 on law", "the endpoint is gone")
    cited = [
        int(one)
        for one in chain.from_iterable(
            found.split(", ") for found in re.findall(r"\[(\d+(?:, \d+)*)\]", body)
        )
    ]
    assert list(dict.fromkeys(cited)) == list(range(1, len(references.splitlines()) + 1))


def test_what_holds_for_some_runs_is_behind_their_names(tmp_path: Path) -> None:
    values = {"a/qa": SAME, "b/qa": SAME, "a/calc": SAME + "1", "b/calc": SAME + "1"}
    text = written_for("methods", [suite_folder(tmp_path / "s", values)])
    runs = rows_of(text.partition("\n\nRuns\n\n")[2])
    assert ["b", "qa", "20", "20", "0"] in [row[:5] for row in runs]
    assert ["b", "calc", "21", "21", "0"] in [row[:5] for row in runs]


def test_a_suites_checklist_has_each_runs_scores_and_the_comparisons(suite: Path) -> None:
    text = written_for("tripod-llm", [suite])
    head = "# TRIPOD-LLM checklist\n\nOf 2 models on 3 benchmarks: `small`, `large_1` on `qa`, `calc`, `law`."
    assert text.startswith(head)
    performance = text.partition("### 17")[2].partition("## Left")[0]
    says(
        performance,
        "small on qa",
        "exact_match = 0.5000",
        "large_1 on qa",
        "exact_match = 1.0000",
        "large_1 is better",
        "large_1 minus small",
        "+50.0 (95 % interval",
        "large_1 has rank 1",
        "small has rank 1",
        "1 to 2",
    )
    says(text.partition("### 5e")[2].partition("###")[0], "large_1 on law")
    compared = text.partition("### 7e")[2].partition("###")[0]
    says(compared, "compared in pairs", "comparisons with people")
    assert "comparisons with other models" not in compared
    alone = written_for("tripod-llm", [suite / "small" / "qa"])
    says(alone.partition("### 7e")[2].partition("###")[0], "comparisons with other models")


def test_tables_have_intervals_and_ranks(suite: Path) -> None:
    scores, rates, differences = written_for("markdown", [suite]).split("\n\n## ")
    qa = ["qa", "exact_match", "large_1", "20", "100.0 %", "80.0 % to 100.0 %", "1"]
    assert qa in rows_of(scores)
    qa_small = ["qa", "exact_match", "small", "20", "50.0 %", "30.0 % to 70.0 %", "2"]
    assert qa_small in rows_of(scores)
    calc = ["calc", "exact_match", "small", "20", "50.0 %", "30.0 % to 70.0 %", "1 to 2"]
    assert calc in rows_of(scores)
    assert ["law", "-", "large_1", "-", "failed", "-", "-"] in rows_of(scores)
    assert ["large_1", "0.750", "1 to 2", "2"] in rows_of(rates)
    says(differences, "| qa", "| +50.0 |")


def test_latex_tables_are_whole_and_names_stay_text(suite: Path) -> None:
    text = written_for("latex", [suite])
    assert (
        text.count("\\begin{table}")
        == text.count("\\end{table}")
        == text.count("\\end{tabular}")
        == 3
    )
    assert (
        "qa & exact\\_match & large\\_1 & 20 & 100.0 \\% & 80.0 \\% to 100.0 \\% & 1 \\\\" in text
    )
    assert not re.search(r"(?<!\\)[_%#$]", text)


def test_a_score_that_may_not_be_reported_is_marked(tmp_path: Path) -> None:
    suite = suite_folder(tmp_path / "s", {"a/qa": SAME, "b/qa": SAME})
    scored(suite / "a" / "qa", SAME, reportable=False)
    says(written_for("markdown", [suite]), "50.0 % (not reportable)")


@pytest.mark.parametrize("purpose", SEVERAL)
def test_runs_beside_each_other_are_told_of_as_a_suite_is(purpose: str, tmp_path: Path) -> None:
    folders = [scored(tmp_path / name, value) for name, value in (("a", SAME), ("b", BETTER))]
    text = written_for(purpose, folders)
    assert "+50.0" in text or "compared in pairs" in text
    if purpose != "methods":  # which names nobody where the two are alike
        shown = str(folders[0]).replace("_", "\\_" if purpose == "latex" else "_")
        assert shown in text, "of one model, the folders tell them apart"


def test_a_suites_page_leads_to_its_runs_from_where_it_is_written(tmp_path: Path) -> None:
    suite = tmp_path / "results" / "mine"
    given = cells(suite, {"x": {"a": "1110", "b": "1000"}, "y": {"a": "1110", "b": "1000"}})
    write_suite_results(suite_results(given), SuiteDir(suite))
    page = tmp_path / "pages" / "suite.html"
    finished = CliRunner().invoke(
        cli, ["report", str(suite), "-o", str(page)], standalone_mode=False
    )
    assert finished.exception is None
    assert 'href="../results/mine/a/x/report.html"' in page.read_text("utf-8")


def test_a_card_is_about_one_run(suite: Path, tmp_path: Path) -> None:
    folders = [right_or_wrong(tmp_path / name, "101") for name in "ab"]
    with pytest.raises(
        ConfigError, match=naming("--for model-card", "one run", "one output folder")
    ):
        written_for("model-card", folders)
    with pytest.raises(ConfigError, match=naming("--for model-card", "one run", "has 4")):
        written_for("model-card", [suite])
    one = suite_folder(tmp_path / "one", {"a/qa": SAME})
    assert written_for("model-card", [one]) == written_for("model-card", [one / "a" / "qa"])


@pytest.mark.parametrize("purpose", PACKS)
def test_a_pack_is_a_page_where_the_file_is_called_one(purpose: str, tmp_path: Path) -> None:
    folder = right_or_wrong(tmp_path / "a", "101")
    for name in ("pack.html", "pack.HTM"):
        asked = ["report", str(folder), "--for", purpose, "-o", str(tmp_path / name)]
        assert (
            CliRunner().invoke(cli, asked, catch_exceptions=False).output == f"{tmp_path / name}\n"
        )
        assert (tmp_path / name).read_text("utf-8") == written_for(purpose, [folder], as_page=True)
    page = (tmp_path / "pack.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    says(page, "run identity", "pubmed_qa", "org/model")
    assert "What is q" not in page


def test_a_suites_pack_has_each_runs_scores_and_what_is_missing(suite: Path) -> None:
    scored(suite / "small" / "calc", SAME, reportable=False)
    text = written_for("ruaih", [suite])
    top, _, rest = text.partition("## What is known")
    says(top, "2 models", "3 benchmarks", "small, large_1 on qa", "qa, calc, law")
    says(top, "small on calc", "Not reportable: ")
    says(top, "large_1 on law", "the endpoint is gone")
    scores = [line for line in rest.splitlines() if line.startswith("- Of small on qa: exact")]
    says(scores[0], "exact_match = 0.5000", "0.3000 to 0.7000", "20 instances")
    says(scores[0], "95 % interval", "Wilson's")
    says(rest, "small on calc", "may not be reported")
    assert "large_1 is better." in rest
    assert rest.count("20 of 20 requested") == 1
    one = suite_folder(suite.parent / "one", {"a/qa": SAME}, {"a/law": "the endpoint is gone"})
    says(written_for("pccp", [one]), "a on law")


def test_a_panels_pack_says_what_its_ledger_the_looks_runs_and_the_gates_policy_hold(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "gate.yml"
    policy.write_text(
        "version: 1\nbenchmarks:\n  pubmed_qa: {tier: critical, max_drop: 0.02, min: 0.6}\n"
        "  custom.x: {on_inconclusive: pass, max_relative_drop: 0.1, groups: {ward: {a: {min: 0.5}}}}\n"
    )
    folder = scored(tmp_path / "looks" / "2" / "m" / "pubmed_qa", SAME)
    lines = ledger(baseline(), look(1), look(2, alarm(2)))

    def text() -> str:
        found = load_policy(policy)
        plan = {"change": "another model", "policy": found, "locked_at": found.locked_at}
        return pack_markdown(
            pack_of_panel(
                "pccp",
                PanelPackWriter(History(lines, head="e" * 64), plan).render_sentences,
                [folder],
            )
        )

    for sentence in (
        "Of a panel of m1: 3 lines in its ledger, 2 looks made. Sentences about single runs are about look 2.",
        "**ALARM: a drop beyond its limit: notes (worse by 0.0600); raised by look 2 of epoch 1, since about look 2.**",
        "- Planned: another model\n",
        f"- The gate's policy (SHA-256 {load_policy(policy).sha256}) is not locked.",
        (
            "- pubmed_qa (critical; if the result is inconclusive: fail): at least 0.6, worse by "
            "at most 0.02."
        ),
        (
            "- custom.x (supporting; if the result is inconclusive: pass): worse by at most this "
            "share 0.1; with limits of groups by ward."
        ),
        "- Of org/model on pubmed_qa: exact_match = 0.5000 (95 % interval 0.3000 to 0.7000), over 20 instances.",
    ):
        assert sentence in text()
    write_lock(load_policy(policy), datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc))
    says(text(), "locked", "`2026-01-02T03:04:05Z` (UTC)")
    policy.write_text(policy.read_text() + "# changed\n")
    with pytest.raises(ConfigError, match=naming("changed", "locked")):
        text()
    bare = pack_markdown(
        pack_of_panel(
            "ai-act", PanelPackWriter(History(ledger(baseline())), {}).render_sentences, []
        )
    )
    says(bare, "the baseline's last")
    assert "The gate's policy" not in bare
    assert "exact_match =" not in bare


def test_a_panels_pack_names_each_limit_of_the_gates_policy(tmp_path: Path) -> None:
    limits = {name: place / 100 for place, name in enumerate((*LIMITS, *CONDITIONS), 1)}
    path = tmp_path / "gate.yml"
    path.write_text(f"version: 1\nbenchmarks: {{pubmed_qa: {limits}}}\n")
    policy = load_policy(path)
    plan = {"change": "another model", "policy": policy, "locked_at": None}
    writer = PanelPackWriter(History(ledger(baseline()), head="e" * 64), plan)
    text = pack_markdown(pack_of_panel("pccp", writer.render_sentences, []))
    for words, number in policy.benchmarks[0].in_words:
        assert f"{words} {number:g}" in text
    assert len(policy.benchmarks[0].in_words) == len(limits)


def test_a_suites_times_and_hashes_stand_in_one_table_beside_the_text(suite: Path) -> None:
    text = written_for("methods", [suite])
    body, _, table = text.partition("\n\nRuns\n\n")
    runs = rows_of(table)[1:]
    assert [row[:2] for row in runs if row[0] in ("small", "large_1")] == [
        ["small", "qa"],
        ["large_1", "qa"],
        ["small", "calc"],
        ["large_1", "calc"],
    ]
    assert "SHA-256" not in body
    assert "(UTC)" not in body


def test_a_pack_has_the_runs_in_an_appendix(suite: Path) -> None:
    alone = written_for("ai-act", [suite / "small" / "qa"])
    assert rows_of(alone.partition("## Appendix")[2])[-1][1] == "pubmed_qa"
    body, _, appendix = written_for("ai-act", [suite]).partition("## Appendix")
    assert len([row for row in rows_of(appendix) if row[1] in ("qa", "calc")]) == 4
    assert "of all prompts" not in body
