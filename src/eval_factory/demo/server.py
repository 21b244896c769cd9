"""Serves an OpenAI-compatible demo endpoint on this machine during a run.

The endpoint answers as a model, or as a judge if the prompt is a judge's prompt. Its answers follow
from the prompt by fixed rules, so that repeated runs give identical answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

# The parts of a judge's prompt. It has one criterion, such as "[5] Names the dose", or a numbered
# list of criteria. In front of each criterion, its points stand in brackets.
_CONVERSATION = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_ONE_CRITERION = re.compile(r"<criterion>\n\[\S+\] (.*?)\n</criterion>", re.DOTALL)
_CRITERIA = re.compile(r"<criteria>\n(.*?)\n</criteria>", re.DOTALL)
_START_OF_CRITERION = re.compile(r"^\d+\. \[\S+\] ", re.MULTILINE)  # "2. [5] "
_START_OF_ANSWER = "\n\nassistant: "
_LONG_WORD = re.compile(r"\w{5,}")
_MODEL = "demo/baseline"  # the model that a response states if the request names none
_OPTION = re.compile(r"\(?([A-Z])[.)]\s+(\S.*)")  # "A. text", "A) text" or "(A) text"


def baseline_answer(prompt: str) -> str:
    """Return the answer to a prompt by a simple rule.

    If the prompt has options, the answer is the letter of the longest option, or of the first of
    several longest options. A block of options is two or more lines that begin with A, B and so
    on. If the prompt has several blocks, the last block counts, because the earlier blocks belong
    to examples. Without options, the answer is the first 40 words of the last paragraph.
    """
    block: list[tuple[str, str]] = []  # (letter, text) of each option
    last_block: list[tuple[str, str]] = []
    for line in prompt.splitlines():
        match = _OPTION.match(line.strip())
        if match and ord(match[1]) == ord("A") + len(block):  # the next letter of the block
            block.append((match[1], match[2]))
            if len(block) >= 2:
                last_block = block  # the same list, so it also gets the block's later options
        elif match and match[1] == "A":
            block = [("A", match[2])]  # the first option of a new block
        else:
            block = []
    if last_block:
        letter, _ = max(last_block, key=lambda option: len(option[1]))
        return letter
    paragraphs = []
    for part in prompt.split("\n\n"):
        if part.strip():
            paragraphs.append(part)
    if not paragraphs:
        return ""
    return " ".join(paragraphs[-1].split()[:40])


def embedded_judgement(prompt: str) -> str | None:
    """Return a judgement about the criteria in a judge's prompt, as JSON text.

    A criterion is met if the last answer in the conversation contains at least half of the
    criterion's words of five letters or more. Return None if the prompt is not a judge's prompt.
    """
    conversation = _CONVERSATION.search(prompt)
    if conversation is None:
        return None
    answer = conversation[1].rpartition(_START_OF_ANSWER)[2]
    # The conversation may quote the marks of criteria.
    after_conversation = prompt[conversation.end() :]
    one_criterion = _ONE_CRITERION.search(after_conversation)
    criteria = _CRITERIA.search(after_conversation)
    if one_criterion is not None:
        return json.dumps(_decision(one_criterion[1], answer))
    if criteria is None:
        return None
    texts = _START_OF_CRITERION.split(criteria[1])[1:]  # without the text before the first one
    judgements = []
    for number, text in enumerate(texts, start=1):
        judgements.append({"criterion": number, **_decision(text, answer)})
    return json.dumps({"judgements": judgements})


def _decision(criterion: str, answer: str) -> dict[str, str | bool]:
    """Return the judge's decision about a criterion, with an explanation, as a JSON object."""
    words = {word.lower() for word in _LONG_WORD.findall(criterion)}
    common_words = words & {word.lower() for word in _LONG_WORD.findall(answer)}
    text = f"{len(common_words)} of its {len(words)} longer words stand in the answer"
    is_met = bool(words) and 2 * len(common_words) >= len(words)
    return {"explanation": text, "criteria_met": is_met}


class _Handler(BaseHTTPRequestHandler):
    """A handler for the requests of eval-factory's own client.

    The handler does not check the requests, because this client sends valid requests only.
    """

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Send each response without delay (TCP_NODELAY)."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)

    def do_POST(self) -> None:
        """Answer a request for a completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_chat = "messages" in body
        prompt = body["messages"][-1]["content"] if is_chat else body["prompt"]
        if isinstance(prompt, str):
            self._send(HTTPStatus.OK, _completion(body, prompt, is_chat=is_chat))
        else:
            self._send(
                HTTPStatus.BAD_REQUEST,
                {"error": {"message": "the embedded endpoint reads text, and no picture or sound"}},
            )

    def _send(self, status: int, body: dict[str, Any]) -> None:
        """Send a JSON response."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: the output would disturb the user's screen."""


def _completion(body: dict[str, Any], prompt: str, *, is_chat: bool) -> dict[str, Any]:
    """Return the body of a chat completion or of a text completion.

    Each word counts as one token, both for the token limit and for the usage. A longer answer is
    cut at the limit.
    """
    words = (embedded_judgement(prompt) or baseline_answer(prompt)).split(" ")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    is_cut = isinstance(limit, int) and len(words) > limit
    finish_reason = "stop"
    if is_cut:
        words = words[:limit]
        finish_reason = "length"
    text = " ".join(words)
    prompt_tokens = len(prompt.split())
    completion_tokens = len(words)
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
    if is_chat:
        id_prefix = "chatcmpl"
        kind = "chat.completion"
        choice["message"] = {"role": "assistant", "content": text}
    else:
        id_prefix = "cmpl"
        kind = "text_completion"
        choice["text"] = text
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]
    return {
        "id": f"{id_prefix}-{digest}",
        "object": kind,
        "created": int(time.time()),
        "model": str(body.get("model") or _MODEL),
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


class DemoServer(ThreadingHTTPServer):
    """The embedded demo endpoint, which serves during its `with` block.

    `base_url` is known before the block begins.
    """

    daemon_threads = True  # an open connection does not keep the process from ending
    request_queue_size = 256  # connections that wait; the default of 5 is too few for a run

    def __init__(self, handler: type[BaseHTTPRequestHandler] = _Handler) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def base_url(self) -> str:
        """The URL of the endpoint, which ends with `/v1`."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, name="loopback-endpoint", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client may close its connection at any time."""
