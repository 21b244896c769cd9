"""Any text as an error: nothing but printable text, on one line, reaches the screen and the logs.

The client, the sign-in and the reports are the real ones, over loopback and in this process; one run is whole.
EVAL_FACTORY_FUZZ_FACTOR multiplies the number of examples; above 1 they are new ones each time.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helm.common.request import Request
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from eval_factory.cli import main
from eval_factory.core.foreign_text import MAX_FOREIGN_TEXT
from eval_factory.core.logs import FATAL, WARNING
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import servers
from eval_factory.endpoint import sign_in as signing
from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings
from eval_factory.endpoint.openai_api import Adapter
from eval_factory.endpoint.sign_in import OAuthSignIn, SignInError
from eval_factory.executors.progress import ProgressDisplay
from eval_factory.helm_plugin.client import Endpoint, EndpointStopped
from eval_factory.helm_plugin.session import session_for
from faults.test_matrix import command, environment
from loopback import AnswerServer
from program_runs import CANARY
from programs import outcome_of, ran
from scripted_endpoint import ADAPTER

FACTOR = float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))
STATUSES = [400, 401, 403, 404, 429, 500]
NOTE = "Mrs. Jane Roe, 54, has had crushing chest pain since seven this morning and takes warfarin."
HOSTILE = (
    "\x1b[2J\x1b]0;title\x07",
    "\x9b31m",
    "\u202e\u2066\u200b",
    "\neval-factory stops: paid for\n",
    "\r\neval-factory: done",
    "\u2028eval-factory: \u2029\x85\x0b\x0c",
    "\n2026-01-01 00:00:00,000 ERROR false\n",
    "\ud800",
    "\x00",
    NOTE,
)
SETTINGS = settings(
    deadline=None,
    database=None,
    derandomize=FACTOR == 1,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

NAMES = ["error", "message", "detail", "code", "x"]
text = st.lists(
    st.one_of(
        st.sampled_from(HOSTILE), st.text(max_size=30), st.text(max_size=3).map(lambda t: t * 400)
    ),
    max_size=4,
).map("".join)
any_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=4,
)


def as_json(document: Any) -> bytes:
    return json.dumps(document).encode()


bodies = st.one_of(
    text.map(lambda said: as_json({"error": {"message": said, "param": said, "code": said}})),
    text.map(lambda said: as_json({"error": said, "error_description": said})),
    text.map(lambda said: as_json({"message": said, "input": NOTE})),
    text.map(lambda said: as_json({"detail": [{"msg": said, "input": NOTE}]})),
    any_json.map(as_json),
    text.map(lambda said: said.encode("utf-8", "surrogatepass")),
    text.map(lambda said: f"<html><h1>{said}</h1></html>".encode("utf-16", "surrogatepass")),
    st.binary(max_size=200),
)


def examples(count: int) -> settings:
    return settings(SETTINGS, max_examples=max(1, int(count * FACTOR)))


class Echo(AnswerServer):
    """A server that says what it is told, with the status that it is told; `of` may choose both by the request."""

    def __init__(self) -> None:
        super().__init__(lambda data: self.of(json.loads(data) if data.startswith(b"{") else {}))
        self.status = 500
        self.body = b""
        self.of: Callable[[dict[str, Any]], tuple[int, bytes]] = lambda _request: (
            self.status,
            self.body,
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Echo]:
    """Nobody waits for the end of its rate limits."""
    with Echo() as echo, pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers, "WINDOW_S", 0.0)
        yield echo


def assert_printable_lines(shown: str, most: int, *, sent: str | None = NOTE) -> None:
    """Our own lines: the first, and what is indented under it. `sent` is the prompt, which nobody is shown."""
    first, *others = shown.removesuffix("\n").split("\n")
    assert first.isprintable(), first
    assert len(others) < most, shown
    for line in others:
        assert line.isprintable(), line
        assert line.startswith("  "), line
    assert sent is None or sent[20:60] not in shown
    assert len(shown) < most * (MAX_FOREIGN_TEXT + 300)


def shown_on_the_screen(event: dict[str, Any]) -> str:
    """As the run shows it: a fatal message at the end, a warning in between."""
    screen = io.StringIO()
    if event["event"] == FATAL:
        with contextlib.redirect_stderr(screen):
            main._say(event["message"])
        return screen.getvalue()
    with ProgressDisplay(screen) as display:
        display.show(event)
    return screen.getvalue()


@pytest.mark.parametrize("role", ["model", "gpt"])
@examples(150)
@given(status=st.sampled_from([*STATUSES, 200]), body=bodies)
@example(status=429, body=as_json({"error": {"message": f"\x1b[2J{NOTE}\neval-factory stops: x"}}))
@example(status=401, body=b"\x1b[2J\r\n\xc2\x9beval-factory: done \xe2\x80\xa8\xe2\x80\xae")
@example(
    status=200, body=as_json({"error": {"message": "\n\u202eeval-factory stops: x", "input": NOTE}})
)
def test_what_an_endpoint_says(
    role: str, status: int, body: bytes, server: Echo, tmp_path: Path
) -> None:
    server.status = status
    server.body = body
    settings = EndpointSettings(
        role=role,
        url=server.url,
        model_id="m",
        endpoint_type="chat",
        key_names=(),
        request_timeout=5,
        max_retries=0,
        parallelism=1,
        adapter=Adapter(**ADAPTER),
    )
    endpoint = Endpoint(settings, session_for(tmp_path))
    log = io.StringIO()
    events = tmp_path / "logs" / "events.jsonl"
    before = events.stat().st_size if events.exists() else 0
    request = Request(
        model="m/m", model_deployment="m/m", prompt=NOTE, max_tokens=5, temperature=0.0
    )
    with contextlib.redirect_stderr(log), contextlib.suppress(EndpointStopped):
        result = endpoint.make_request(request)
        if not result.success:
            assert_printable_lines(str(result.error), 1)
    if log.getvalue():
        assert_printable_lines(log.getvalue(), 4)
    with events.open("rb") as file:
        file.seek(before)
        lines = file.read().decode("utf-8").splitlines()
    for line in lines:
        event = json.loads(line)
        if event["event"] in (FATAL, WARNING):
            assert_printable_lines(shown_on_the_screen(event), 4)


@examples(100)
@given(status=st.sampled_from([200, *STATUSES]), body=bodies)
@example(
    status=400,
    body=as_json({"error": "x", "error_description": "\x1b[2J\neval-factory: done \u202e"}),
)
def test_what_a_token_server_says(status: int, body: bytes, server: Echo, tmp_path: Path) -> None:
    server.status = status
    server.body = body
    env = {"OPENAI_CLIENT_ID": "id", "OPENAI_CLIENT_SECRET": CANARY, "OPENAI_TOKEN_URL": server.url}
    for cached in tmp_path.glob("openai_*_oauth_token.json"):
        cached.unlink()
    log: list[str] = []
    settings = OAuthSettings("openai", None, None)
    sign_in = OAuthSignIn(settings, env=env, redactor=Redactor(), say=log.append, folder=tmp_path)
    screen = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(screen):
        patch.setattr(signing, "_TOKEN_RETRIES", signing._TOKEN_RETRIES.new(total=0))
        try:
            sign_in.header()
        except SignInError as error:
            assert_printable_lines(str(error), 3, sent=None)
            main._say(str(error))
    if screen.getvalue():
        assert_printable_lines(screen.getvalue(), 3, sent=None)
    assert all(line.isprintable() for line in log)


def hostile_body(number: int, prompt: str) -> bytes:
    """The n-th mischief in the n-th form; the note among them stands for the prompt."""
    mischief = HOSTILE[number % len(HOSTILE)]
    said = f"no {prompt if mischief is NOTE else mischief} more"
    forms: list[Any] = [
        {"error": {"message": said, "input": prompt}},
        {"detail": [{"msg": said, "input": prompt}]},
        said,
    ]
    form = forms[number // len(HOSTILE) % len(forms)]
    return form.encode("utf-8", "surrogatepass") if isinstance(form, str) else as_json(form)


def test_a_whole_run_shows_nothing_but_printable_text(tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    tries: Counter[str] = Counter()
    lock = threading.Lock()

    def answer(request: dict[str, Any]) -> tuple[int, bytes]:
        prompt = request["messages"][-1]["content"]
        with lock:
            number = seen.setdefault(prompt, len(seen))
            tries[prompt] += 1
        if prompt == "ping" or number % 4 == 0:
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": "B \x1b[2J"},
                "finish_reason": "stop",
            }
            return 200, as_json({"choices": [choice]})
        status = (400, 429, 500, 403)[number // 4 % 4]
        return 400 if status == 429 and tries[prompt] > 1 else status, hostile_body(number, prompt)

    with Echo() as echo:
        echo.of = answer
        argv = command(tmp_path / "out", echo.url, max_retries=0, parallelism=8)
        outcome = outcome_of(ran(argv, env=environment()), tmp_path / "out")
    assert outcome.returncode == 1, outcome.stderr
    quoted = [" ".join(prompt.split()) for prompt in seen if prompt != "ping"]
    screen = outcome.stdout + outcome.stderr
    assert "[text of the prompt]" in (outcome.output_dir / "report.html").read_text("utf-8")
    assert not any(prompt[-60:] in screen for prompt in quoted)
    for line in screen.split("\n"):
        assert line.isprintable(), line
        ours = ("eval-factory stops", "2026-01-01", "eval-factory: paid", "eval-factory: done")
        assert not line.startswith(ours), line
    for name in (
        "logs/eval-factory.log",
        "logs/helm-run.log",
        "report.html",
        "evaluation_config.yaml",
    ):
        written = (outcome.output_dir / name).read_text("utf-8")
        assert all(line.isprintable() for line in written.split("\n")), name
        assert not any(prompt[-60:] in written for prompt in quoted), name
        assert "\neval-factory stops" not in written, name
    failures = outcome.document()["validity"]["failures"]
    assert (
        sum(failure["count"] for failure in failures)
        == outcome.document()["validity"]["instances"]["failed"]
    )
    for name in ("results.jsonl", "logs/events.jsonl"):
        for line in (outcome.output_dir / name).read_text("utf-8").splitlines():
            json.loads(line)
