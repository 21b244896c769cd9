"""A model's server as a process, for tests: `model_server.py PORT FOLDER [what it does ...]`.

It answers as `varied_answer`, keeps a line for each request in FOLDER/requests.jsonl, and leaves FOLDER/pids. It can be
`slow=SECONDS` to start, `takes=SECONDS` for an answer, `exits=CODE` before it listens, `never` be ready, answer GETs with `gets=STATUS`, `die_after=N` or `hang_after=N` requests (once:
FOLDER/lost says that it was), and have a `child` that ignores SIGTERM. A word with `@X` at its end holds where X is the
port, or what `replica=` says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from loopback import Handler, Server
from program_runs import varied_answer


class ModelServer:
    """What it was told to do, and how far it is."""

    def __init__(self, folder: Path, told: dict[str, str]) -> None:
        self.folder = folder
        self.told = told
        self.asked = 0
        self.hangs = False
        self.lock = threading.Lock()

    def count(self, prompt: str) -> None:
        with self.lock:
            self.asked += 1
            with (self.folder / "requests.jsonl").open("a") as file:
                file.write(json.dumps({"pid": os.getpid(), "prompt": prompt}) + "\n")
            for what in ("die_after", "hang_after"):
                if what in self.told and self.asked > int(self.told[what]) and self.first_time():
                    if what == "die_after":
                        os._exit(7)
                    self.hangs = True
        while self.hangs:
            time.sleep(0.1)

    def first_time(self) -> bool:
        if "always" in self.told:
            return True
        try:
            (self.folder / "lost").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def handler_of(server: ModelServer) -> type[Handler]:
    class Model(Handler):
        def reply(self) -> None:
            if self.command == "POST":
                self.complete()
            else:
                while server.hangs:
                    time.sleep(0.1)
                self.answer(
                    int(server.told.get("gets", 503 if "never" in server.told else 200)), b"{}"
                )

        def complete(self) -> None:
            body = json.loads(self.body())
            prompt = body["messages"][-1]["content"]
            print("asked with", self.headers.get("Authorization"), flush=True)
            if prompt != "ping":
                server.count(prompt)
            time.sleep(float(server.told.get("takes", 0)))
            message = {"role": "assistant", "content": varied_answer(prompt)}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
            answer = {
                "id": uuid.uuid4().hex,
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
            }
            self.answer(200, json.dumps({**answer, "choices": [choice], "usage": usage}).encode())

    return Model


def main(port: int, folder: Path, words: list[str]) -> None:
    who = {
        "",
        str(port),
        *(word.partition("=")[2] for word in words if word.startswith("replica=")),
    }
    told = dict(
        word.partition("@")[0].partition("=")[::2]
        for word in words
        if word.partition("@")[2] in who
    )
    pids = [os.getpid()]
    if "child" in told:
        ignoring = (
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        )
        pids.append(subprocess.Popen([sys.executable, "-c", ignoring]).pid)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with (folder / "pids").open("a") as file:
        file.write("".join(f"{pid}\n" for pid in pids))
    (folder / "environment.json").write_text(json.dumps(dict(os.environ)))
    time.sleep(float(told.get("slow", 0)))
    if "exits" in told:
        print("no such model")
        sys.exit(int(told["exits"]))
    Server(("127.0.0.1", port), handler_of(ModelServer(folder, told))).serve_forever(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
