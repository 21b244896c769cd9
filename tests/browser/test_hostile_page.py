"""Whatever a model, a data set, an endpoint or a judge wrote is text on the page: nothing of it runs, nothing is requested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.report_page import Keys, ReportPage, made
from chromium import CANARY, Chromium, Counted
from hostile_result import LONG_ID, ODD_ID, hostile_folder, hostile_records, mark
from hostile_texts import NAMES, ODD, ids, payloads

FOREIGN_MARKUP = """
    const own = new Set(['search', 'order']);
    return [...document.querySelectorAll('*')].filter(one =>
        ['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'BASE', 'LINK', 'TEMPLATE', 'TEXTAREA', 'VIDEO', 'AUDIO'].includes(one.tagName)
        || (one.tagName === 'INPUT' && !own.has(one.id) && one.type !== 'checkbox')
        || (one.tagName === 'FORM' && one.id !== 'filters')
        || (one.tagName === 'META' && (one.httpEquiv || '').toLowerCase() === 'refresh')
        || [...one.attributes].some(part => /^on|^srcdoc$|^formaction$/i.test(part.name) || /^\\s*(javascript|data|vbscript):/i.test(part.value))
        || (one.tagName === 'A' && !(one.getAttribute('href') || '').startsWith('#'))
    ).map(one => one.outerHTML.slice(0, 200));
"""
"""Elements that the page itself does not have."""
BREAK_IN = """
    const done = arguments[arguments.length - 1], url = arguments[0], found = [];
    document.addEventListener('securitypolicyviolation', event => found.push(event.effectiveDirective));
    const add = (name, change) => { const one = document.createElement(name); change(one); document.body.append(one); };
    add('script', one => { one.textContent = arguments[1]; });
    add('script', one => { one.src = url + '/script.js'; });
    add('div', one => { one.setAttribute('onclick', arguments[1]); one.click(); });
    add('img', one => { one.src = url + '/image'; });
    add('iframe', one => { one.src = url + '/frame'; });
    add('link', one => { one.rel = 'stylesheet'; one.href = url + '/sheet'; });
    add('style', one => { one.textContent = 'body { background: url(' + url + '/background) }'; });
    add('object', one => { one.data = url + '/object'; });
    add('video', one => { one.src = url + '/video'; });
    add('base', one => { one.href = url; });
    add('form', one => { one.action = url + '/form'; one.method = 'post'; one.submit(); });
    fetch(url + '/fetched').catch(() => 0);
    navigator.sendBeacon(url + '/beacon', 'x');
    try { new WebSocket(url.replace('http', 'ws') + '/socket'); } catch { found.push('socket'); }
    try { new Worker(url + '/worker.js'); } catch { found.push('worker'); }
    setTimeout(() => done(found), 500);
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, outside: Counted) -> Path:
    """Its name is hostile, too."""
    parent = tmp_path_factory.mktemp("hostile")
    return hostile_folder(parent / "a\"'><img src=x onerror=canary>#%3Cb%20&amp;{{7*7}} \u202efile", outside.url)


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return folder / "report.html"


def harm(browser: Chromium, outside: Counted) -> dict[str, Any]:
    """What ran, what was requested, what the policy had to stop, what is markup of others."""
    found = {
        "ran": browser.run("return window.canary"),
        "requested": browser.foreign() + outside.paths,
        "console": browser.said(),
        "markup": browser.run(FOREIGN_MARKUP),
        "title": "canary" in browser.driver.title,
    }
    return {name: what for name, what in found.items() if what}


def test_nothing_runs_and_every_text_is_read_as_it_was_written(file: Path, browser: Chromium, outside: Counted) -> None:
    """Every instance is opened, from the first to the last, by the keyboard."""
    outside.paths.clear()
    page = ReportPage(browser, file)
    assert harm(browser, outside) == {}
    expected = dict(expected_parts(outside.url))
    for record in hostile_records(outside.url):
        shown = " ".join(page.open_by("j").split())
        assert [part for part in expected.get(record.id, ()) if part not in shown] == [], record.id
        assert browser.run(FOREIGN_MARKUP) == [], record.id
    assert harm(browser, outside) == {}


def expected_parts(url: str) -> Iterator[tuple[str, list[str]]]:
    """Id -> what has to be read of the instance, blanks as one."""
    for number, (name, text) in enumerate(payloads(url).items()):
        said = " ".join(mark(name, text).split())
        yield f"p{number}", [f"{part} {said}" for part in ("answer", "thought", "reference", "system", "turn", "because", "error")]
        yield f"f{number}", [f"{part} {said}" for part in ("prompt", "error")]


def test_what_is_on_the_first_screen_is_text_too(file: Path, browser: Chromium, outside: Counted) -> None:
    page = ReportPage(browser, file)
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    shown = " ".join(browser.text().split())
    texts = [" ".join(text.split()) for text in payloads(outside.url).values()]
    assert [text for text in texts if shown.count(text) < 4] == []  # note, reason, cause and hint, file
    assert page.rows() > 0
    assert harm(browser, outside) == {}


def test_the_policy_stops_what_would_get_in(file: Path, browser: Chromium, outside: Counted) -> None:
    """As if all else had failed: elements of an attacker are in the page."""
    ReportPage(browser, file)
    outside.paths.clear()
    stopped = browser.driver.execute_async_script(BREAK_IN, outside.url, CANARY)
    assert {"script-src-elem", "script-src-attr", "img-src", "frame-src", "style-src-elem", "object-src", "media-src",
            "connect-src", "base-uri", "form-action"} <= set(stopped)  # fmt: skip
    assert browser.run("return window.canary") is None
    assert outside.paths == []


def test_characters_that_nobody_sees_are_shown_as_what_they_are(file: Path, browser: Chromium) -> None:
    page = ReportPage(browser, file, deep_link(ODD_ID))
    shown = page.detail()
    for name, letter in ODD.items():
        (line,) = {line for line in shown.splitlines() if line.startswith(f"before {name} ")}
        assert letter not in line
        code = f"{ord(letter):x}"
        assert code in line.removeprefix(f"before {name} ").removesuffix(f" after {name}").lower(), (name, line)
    assert "\x1b" not in shown.splitlines()


def test_a_megabyte_is_read_to_its_end(file: Path, browser: Chromium) -> None:
    page = ReportPage(browser, file, deep_link(LONG_ID))
    assert "<b>of a long answer</b>" in page.detail()
    last = browser.run("const found = document.getElementById('detail').textContent.match(/line (\\d+) /g); return found.at(-1)")
    assert last == f"line {1_000_000 // 36 - 1} "
    page.press("j")
    browser.wait(OPENED)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_every_object_has_are_names_like_others(name: str, file: Path, browser: Chromium) -> None:
    page = ReportPage(browser, file, deep_link(name))
    assert name in page.detail()
