"""Interrupts where Python loses them, in a process of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("forgets", "code"), [("", -signal.SIGINT), ("forget_interrupts()", 130)])
def test_an_interrupt_in_generated_code_does_not_change_the_exit_code(
    forgets: str, code: int, tmp_path: Path
) -> None:
    """The first case is CPython's own behaviour: once it is gone, `forget_interrupts` can go."""
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from eval_factory.core.this_process import forget_interrupts\n"
        "try:\n    exec('raise KeyboardInterrupt')\nexcept KeyboardInterrupt:\n    pass\n"
        f"{forgets}\n"
        "sys.exit(130)\n"
    )
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False)
    assert ended.returncode == code


IMPORTS_INTERRUPTED = """
import importlib, os, random, signal, sys, threading, time
from eval_factory.core.this_process import interrupt_on_signals

def imports(name):
    sys.modules.pop(name, None)
    importlib.import_module(name)

def goes_on():
    while True:
        imports("that_one")
        imported.set()

interrupt_on_signals()
random.seed(1)
imported = threading.Event()
threading.Thread(target=goes_on, daemon=True).start()
for number in (signal.SIGTERM, signal.SIGINT) * 40:
    until = time.monotonic() + 10
    try:
        # inside: on a busy machine it may be over before `start` returns
        threading.Timer(random.uniform(0.002, 0.02), os.kill, (os.getpid(), number)).start()
        while time.monotonic() < until:
            imports("this_one")
        sys.exit("an interrupt was lost")
    except KeyboardInterrupt:
        imported.clear()
    if not imported.wait(10):
        os._exit(2)  # the lock of an import is taken for ever
"""


def test_an_interrupt_while_something_is_imported_is_neither_lost_nor_holds_up_other_imports(
    tmp_path: Path,
) -> None:
    (tmp_path / "interrupted.py").write_text(IMPORTS_INTERRUPTED)
    for name in ("this_one", "that_one"):
        (tmp_path / f"{name}.py").write_text("")
    ended = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


IN_A_NOTEBOOK = """
import signal, sys, time
from eval_factory.core.this_process import interruptible

class Stopped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def states():
    return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM), sys.unraisablehook

before = states()
for seconds in (60, 0):  # where all is over before it is raised again, too
    try:
        with interruptible():
            Stopped()
            time.sleep(seconds)
        print("lost")
    except KeyboardInterrupt:
        print("interrupted")
assert states() == before
signal.signal(signal.SIGINT, lambda *_: print("the notebook's own"))
with interruptible():
    Stopped()
"""


def test_in_a_notebook_no_stop_is_lost_and_its_own_handlers_stay() -> None:
    argv = [sys.executable, "-c", IN_A_NOTEBOOK]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.stdout.split("\n"), ended.stderr) == (
        ["interrupted"] * 2 + ["the notebook's own", ""],
        "",
    )


def test_an_interrupt_in_a_destructor_comes_after_it(tmp_path: Path) -> None:
    """What else is raised there is reported as before."""
    (tmp_path / "interrupted.py").write_text(
        "import signal, time\n"
        "from eval_factory.core.this_process import interrupt_on_signals\n"
        "class Signals:\n    def __del__(self):\n        signal.raise_signal(signal.SIGTERM)\n"
        "class Fails:\n    def __del__(self):\n        raise ValueError('what is wrong')\n"
        "interrupt_on_signals()\n"
        "interrupt_on_signals()\n"
        "Fails()\n"
        "try:\n    Signals()\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    argv = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n")
    assert ended.stderr.count("ValueError: what is wrong") == 1
    assert "KeyboardInterrupt" not in ended.stderr
