"""Tests of whether the process that holds a folder still runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

from eval_factory.core.rundir import Holder


def test_who_has_ended_is_known() -> None:
    here = socket.gethostname()
    with subprocess.Popen([sys.executable, "-c", "print()"], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        ended.stdout.read()
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody has taken note
        assert Holder(ended.pid, here, "x").is_gone
    assert Holder(ended.pid, here, "x").is_gone
    assert not Holder(ended.pid, "another.example", "x").is_gone, (
        "processes of other machines are not looked for"
    )
    assert not Holder(os.getpid(), here, "x").is_gone


def test_who_is_written_down_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "holder.json"
    holder = Holder.this_process()
    assert Holder.read_from(file) is None
    file.write_text(holder.as_json())
    assert Holder.read_from(file) == holder
    assert (holder.pid, holder.host, holder.program) == (os.getpid(), socket.gethostname(), None)
    assert str(holder) == f"process {os.getpid()} on {holder.host}, since {holder.since}"
    assert datetime.fromisoformat(holder.since.replace("Z", "+00:00")) <= datetime.now(timezone.utc)
    for nobody in ("", "[]", "{}", '{"pid": 1}', "{"):
        file.write_text(nobody)
        assert Holder.read_from(file) is None
