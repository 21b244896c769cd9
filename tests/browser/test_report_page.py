"""The page of results as its readers use it: by keys, in the dark, by links, on paper, with a screen reader, without texts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from browser_page import Keys, ReportPage, deep_link, made
from chromium import Chromium
from eval_factory.core import results
from eval_factory.importing.tables import Columns
from eval_factory.workflows.annotate import export_sheets
from eval_factory.workflows.import_results import import_results
from facts import says
from foreign_results import QUESTIONS, inspect_samples, write_eval_log, write_table
from programs import ran
from seeing_endpoint import picture, tone
from stored_results import instance, kept, result, written

COUNT = 130
"""More rows than are shown at once."""
FEW = 24
UNFOLD = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
PATIENT = "Mrs Miller, 84"


def records(right_every: int, count: int) -> list[results.InstanceRecord]:
    """Every third is right, every twentieth failed; each with all that there may be."""
    return [record(number, right_every) for number in range(count)]


def record(number: int, right_every: int) -> results.InstanceRecord:
    if number % 20 == 19:
        return instance(f"q{number}", None, prompt=f"{PATIENT}: question {number}")
    return instance(
        f"q{number}",
        float(number % right_every == 0),
        prompt=f"{PATIENT}: question {number}",
        completion=f"{PATIENT} answers {number}",
        references=({"text": f"{PATIENT} reference {number}", "tags": ["correct"]},),
        reasoning=f"{PATIENT} thought {number}",
        turns=(
            {"role": "system", "content": f"{PATIENT} system"},
            {"role": "user", "content": f"{PATIENT}: question {number}"},
        ),
        categories={"ward": ("surgery", "medicine")[number % 2]},
        judges={"one": 2.0, "two": 4.0 + number % 2},
        judgements={
            "one": {"accuracy": {"score": 2, "explanation": f"{PATIENT} words of one"}},
            "two": {"error": "none"},
        },
        signs=("unparsed",) if number % 50 == 1 else (),
        latency_s=0.1 + number / 100,
    )


def whole_result(right_every: int = 3, count: int = FEW) -> results.TaskResult:
    made_up = records(right_every, count)
    value = sum(record.metrics.get("exact_match", 0.0) for record in made_up) / count
    score = results.Score(
        value,
        results.Stats(
            count,
            value,
            stddev=0.4,
            stderr=0.04,
            ci_low=value - 0.08,
            ci_high=value + 0.08,
            ci_method="wilson",
        ),
        "exact_match",
        "test",
        None,
        True,
        (0.0, 1.0),
        "share",
    )
    wards = {name: {"exact_match": score} for name in ("surgery", "medicine")}
    one = result(made_up, scores=("exact_match",), groups={"ward": wards})
    validity = replace(
        one.validity,
        notes=("a note of some weight", "another note"),
        not_reportable=("too few answers",),
        failures=(results.FailureCause("model", 6, "HTTP 500", "ask again"),),
        judges={
            "one": results.JudgeCounts(count, count, 0),
            "two": results.JudgeCounts(count, count - 1, 1),
        },
        jury=results.JuryReport(
            {"one": 2.0, "two": 4.5}, 0.2, {"one/two": 0.1}, {"one": 4.5, "two": 2.0}
        ),
        splits={"test": count},
    )
    return replace(one, scores={"exact_match": score}, validity=validity, reportable=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("a") / "a", whole_result(count=COUNT))


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return folder / "report.html"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small result."""
    return written(tmp_path_factory.mktemp("few") / "a", whole_result()) / "report.html"


@pytest.fixture(scope="module")
def two(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It and another, beside each other."""
    parent = tmp_path_factory.mktemp("two")
    return made(
        parent / "page.html", few.parent, written(parent / "b", whole_result(right_every=2))
    )


def test_nothing_is_requested_and_nothing_is_complained_about(
    file: Path, two: Path, browser: Chromium
) -> None:
    for page in (file, two):
        ReportPage(browser, page).step("j")
        assert browser.foreign() == []
        assert browser.said() == []


def test_keys_open_move_search_and_close(file: Path, browser: Chromium) -> None:
    page = ReportPage(browser, file)
    page.step("j")
    assert page.title() == "Instance q0"
    top = browser.run("return document.getElementById('detail').getBoundingClientRect().top")
    assert 0 <= top < 200, "it is where the reader looks"
    page.step("j")
    assert page.title() == "Instance q1"
    assert page.address() == deep_link("q1")
    page.step("k")
    assert page.title() == "Instance q0"
    browser.type(Keys.ESCAPE)
    assert not page.is_open()
    assert browser.run("return document.activeElement.closest('tr').innerText").startswith("q0")
    browser.type(Keys.ENTER)
    browser.wait("!document.getElementById('detail').hidden")
    assert page.title() == "Instance q0"
    assert page.search("answers 77") == ["q77"]
    before = page.address()
    browser.type(Keys.ENTER)
    browser.wait("location.hash !== arguments[0]", before)
    assert page.title() == "Instance q77"


def test_an_opened_instance_shows_all_that_is_known(file: Path, browser: Chromium) -> None:
    shown = ReportPage(browser, file, deep_link("q1")).detail()
    for part in (
        " system",
        ": question 1",
        " answers 1",
        " reference 1",
        " thought 1",
        " words of one",
    ):
        assert f"{PATIENT}{part}" in shown
    assert "HTTP 500" in ReportPage(browser, file, deep_link("q19")).detail()


def test_the_address_of_an_instance_opens_it_and_back_leads_out(
    file: Path, browser: Chromium
) -> None:
    page = ReportPage(browser, file)
    page.step("j")
    page.step("j")
    browser.driver.back()
    browser.wait("document.getElementById('detail').hidden")
    browser.driver.forward()
    browser.wait("!document.getElementById('detail').hidden")
    assert page.title() == "Instance q1"
    assert ReportPage(browser, file, deep_link("q129")).title() == "Instance q129"
    assert "There is no instance nothing" in ReportPage(browser, file).browser.run(
        "location.hash = 'i=nothing'; return new Promise(done => setTimeout(() => done(document.getElementById('status').innerText), 100))"
    )


def test_filters_leave_what_they_say(file: Path, browser: Chromium) -> None:
    page = ReportPage(browser, file)
    browser.click("[data-flag=failed]")
    assert page.ids() == [f"q{number}" for number in range(COUNT) if number % 20 == 19]
    press = "for (const flag of arguments) document.querySelector(`[data-flag=${flag}]`).click()"
    browser.run(press, "failed", "unparsed")
    assert page.ids() == ["q1", "q51", "q101"]
    browser.run(press, "unparsed", "disagree")
    assert page.status() == f"{COUNT - 6} of {COUNT} instances"
    ward = "const ward = document.querySelector('#group-filters select'); ward.selectedIndex = 1;"
    browser.run(f"{ward} ward.dispatchEvent(new Event('change'))")
    assert set(page.ids()) <= {f"q{number}" for number in range(0, COUNT, 2)}
    assert page.status() == f"65 of {COUNT} instances"


def test_two_results_show_both_answers_of_what_flipped(two: Path, browser: Chromium) -> None:
    page = ReportPage(browser, two)
    browser.run("document.querySelector('a[data-filter=flipped]').click()")
    flipped = [n for n in range(FEW) if n % 20 != 19 and (n % 3 == 0) != (n % 2 == 0)]
    assert page.status() == f"{len(flipped)} of {FEW} instances"
    assert page.ids() == [f"q{number}" for number in flipped]
    cells = (
        "return [...document.querySelectorAll(arguments[0])].slice(-2).map(one => one.innerText)"
    )
    assert browser.run(cells, "#columns th") == ["answer of A", "answer of B"]
    assert browser.run(cells, "#rows tr:nth-child(1) td") == [f"{PATIENT} answers 2"] * 2
    assert page.step("j").count(f"{PATIENT} answers 2") == 2


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(dark: bool, few: Path, two: Path, browser: Chromium) -> None:
    """With an instance opened, and all that is folded; no two elements have one id."""
    browser.dark(dark)
    for page in (few, two):
        ReportPage(browser, page).step("j")
        browser.run(UNFOLD)
        assert browser.accessibility_violations() == []
        ids = browser.run("return [...document.querySelectorAll('[id]')].map(one => one.id)")
        assert len(ids) > 30
        assert sorted(set(ids)) == sorted(ids)
    background = browser.run(
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert (sum(background) < 3 * 128) is dark


def test_a_narrow_screen_scrolls_down_only_and_shows_the_scores(
    few: Path, two: Path, browser: Chromium
) -> None:
    """Its tables scroll sideways, and an opened instance covers the rest."""
    browser.width(390)
    for page in (few, two):
        shown = ReportPage(browser, page)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    cells = "[...document.querySelectorAll('#overview td.main')]"
    right_ends = browser.run(f"return {cells}.map(one => one.getBoundingClientRect().right)")
    assert len(right_ends) == 2
    assert max(right_ends) <= 390
    browser.run(UNFOLD)
    assert browser.accessibility_violations() == []
    shown.step("j")
    assert browser.accessibility_violations() == []


def test_paper_has_the_first_screen_and_no_buttons(
    file: Path, browser: Chromium, tmp_path: Path
) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("needs pdftotext: apt-get install poppler-utils")
    ReportPage(browser, file)
    (tmp_path / "page.pdf").write_bytes(browser.pdf())
    told = ran(["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"]).stdout
    for part in (
        "32.3 %",
        "24.3 %",
        "40.3 %",
        "org/model",
        "pubmed_qa",
        "a note of some weight",
        "Krippendorff",
    ):
        assert part in told
    assert "Show more" not in told


def test_the_hashes_of_a_thousand_files_are_folded_on_screen_and_paper(
    tmp_path: Path, browser: Chromium
) -> None:
    """As of mtsamples, where each case is a file: they were nine tenths of the page."""
    one = whole_result()
    heights = []
    pages = []
    for count in (1, 1000):
        files = {
            f"scenarios/mtsamples/case {number}.txt": f"{number:064d}" for number in range(count)
        }
        folder = written(
            tmp_path / str(count),
            replace(one, provenance=replace(one.provenance, dataset_files=files)),
        )
        ReportPage(browser, folder / "report.html")
        heights.append(browser.run("return document.documentElement.scrollHeight"))
        assert f"{count - 1:064d}" in browser.driver.page_source
        assert (f"{count - 1:064d}" in browser.text()) is (count == 1)
        pages.append(browser.pdf().count(b"/Type /Page\n"))
    assert abs(heights[1] - heights[0]) < 200
    assert 0 < pages[1] <= pages[0] + 1
    summaries = "[...document.querySelectorAll('summary')]"
    browser.run(f"{summaries}.find(one => one.innerText.includes('1,000 data files')).click()")
    assert f"{999:064d}" in browser.text()


def test_the_first_card_has_the_score_that_clinicians_corrected(
    tmp_path: Path, browser: Chromium
) -> None:
    rated = results.Clinicians(
        120, 130, 2, 240, results.CorrectedScore("exact_match", 0.412, 0.301, 0.523, "m", 0.5, 0.6)
    )
    ReportPage(
        browser, written(tmp_path / "a", replace(whole_result(), clinicians=rated)) / "report.html"
    )
    told = browser.text(".card.score")
    says(told, "Corrected by clinicians", "41.2 %", "30.1 % to 52.3", "120 of 130 answers")


def test_without_texts_no_patients_text_is_anywhere(
    folder: Path, two: Path, browser: Chromium, tmp_path: Path
) -> None:
    """In the file, in what is packed in it, and in what is read of each instance."""
    page = ReportPage(browser, made(tmp_path / "page.html", folder, without_texts=True))
    unpacked = browser.driver.execute_async_script(UNPACKED)
    assert '"q129"' in unpacked
    seen = [browser.driver.page_source, unpacked, browser.text()] + [
        page.step("j") for _ in range(20)
    ]
    words = (
        PATIENT,
        "Miller",
        "question 1",
        "answers 1",
        "reference 1",
        "thought 1",
        "words of one",
    )
    assert [word for word in words if any(word in text for text in seen)] == []
    with_texts = ReportPage(browser, two)
    assert PATIENT in browser.driver.execute_async_script(UNPACKED)
    assert PATIENT in with_texts.step("j")


def test_pictures_are_seen_and_sounds_played(tmp_path: Path, browser: Chromium) -> None:
    """On the page of a result, and larger on a rater's sheet; of what is not there a line says it."""
    folder = tmp_path / "a"
    gone = {"type": "image/png", "sha256": None, "bytes": None, "file": None}
    media = (
        kept(folder, "x.png", picture("red", side=900)),
        kept(folder, "x.wav", tone(440), "audio/wav"),
        gone,
    )
    score = replace(result([]).scores["exact_match"], scale=(0.0, 1.0))
    answers = [instance(f"q{number}", 1.0, media=media) for number in range(2)]
    written(folder, replace(result(answers), scores={"exact_match": score}))
    export_sheets(folder, tmp_path / "sheet", 2, 1)
    for page, fragment, side in (
        (folder / "report.html", "#i=q0", 512),
        (tmp_path / "sheet" / "rater_1.html", "", 900),
    ):
        browser.open(page, fragment)
        assert browser.wait("document.querySelector('.media audio')?.readyState > 0")
        size = "return document.querySelector('.media img[alt=\"image 1\"]').naturalWidth"
        assert browser.run(size) == side
        says(browser.text(".media").split("\n")[-1], "image 2", "not in this page")
        assert (browser.foreign(), browser.said(), browser.accessibility_violations()) == (
            [],
            [],
            [],
        )


UNPACKED = """
    const done = arguments[0];
    Promise.all([...document.querySelectorAll('script[type^="application/"]')].map(async script => {
        const packed = Uint8Array.from(atob(script.textContent), letter => letter.charCodeAt(0));
        return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
    })).then(parts => done(parts.join('\\n')));
"""


def test_one_row_has_the_same_question_of_two_programs(tmp_path: Path, browser: Chromium) -> None:
    write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    import_results(tmp_path / "fruit.eval", tmp_path / "a")
    columns = Columns("nr", "answer", "gold", None, "question", "options")
    import_results(write_table(tmp_path / "t.csv"), tmp_path / "b", columns=columns)
    page = ReportPage(browser, made(tmp_path / "page.html", tmp_path / "a", tmp_path / "b"))
    assert page.ids() == [f"fruit/{number}" for number in range(QUESTIONS)]
    rows = browser.text("#rows").splitlines()
    assert not any("not asked" in row for row in rows)
    browser.click("#rows button")
    browser.wait("!document.getElementById('detail').hidden")
    says(page.detail(), "Asked in other words", "1000", "ANSWER: B")
