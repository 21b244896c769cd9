"""An OpenAI-compatible endpoint on loopback whose models are the kinds of answers, and three scripted judges."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from scripts.validity.fed_answers import ADVICE, REFUSED, drawn

from eval_factory.demo.server import DemoServer

JUDGES = ("judge-one", "judge-two", "judge-three")
LOWEST, HIGHEST = 1, 5
_ADVICE = re.compile(re.escape(ADVICE).replace(r"\{\}", r"(\d+)"))


def judgement(judge: str, prompt: str) -> str:
    """A mark for each criterion: the lowest for a refusal, any for random advice, the highest for every other answer.

    The criteria are read from the example of the output that a judge's prompt ends with.
    """
    at = prompt.index("Output Format:")
    criteria, _ = json.JSONDecoder().raw_decode(prompt[prompt.index("{", at) :])
    advice = _ADVICE.search(prompt)
    marks = {}
    for criterion in criteria:
        mark = LOWEST if REFUSED in prompt else HIGHEST
        if advice:
            mark = LOWEST + drawn(f"{judge}:{criterion}:{advice[1]}", HIGHEST)
        marks[criterion] = {"score": mark, "explanation": "as scripted"}
    return json.dumps(marks)


class KindEndpoint(DemoServer):
    """Serves while the context is entered. A model's id is `<task>/<kind>`, or a judge's name."""

    def __init__(self, answer: Callable[[str, str, str], str]) -> None:
        """
        Args:
            answer: of task, kind and prompt.
        """
        self._answer = answer
        super().__init__(_handler(self))

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body of a chat completion; answers are never cut, so that both programs are fed the same."""
        prompt, model = body["messages"][-1]["content"], body["model"]
        if model in JUDGES:
            text = judgement(model, prompt)
        else:
            task, _, kind = model.partition("/")
            text = self._answer(task, kind, prompt)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        told = {"id": "x", "object": "chat.completion", "created": 1, "model": model}
        return {**told, "choices": [choice], "usage": usage}


def _handler(endpoint: KindEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = 200, {}
            try:
                answer = endpoint.reply(body)
            except Exception:
                traceback.print_exc()  # a mistake of this script: the run has to fail
                status, answer = 501, {"error": {"message": "the script has no answer"}}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler
