"""Sending and receiving over TLS, which may want to read before it writes."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from in_event_loop import WAYS, all_is_sent_and_the_answer_read
from tls import certificate


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("way", WAYS)
def test_all_is_sent_to_a_slow_reader_and_the_answer_read(way: str, version: ssl.TLSVersion, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(cert))
    theirs.load_cert_chain(cert, key)
    ours.maximum_version = version
    near, far = socket.socketpair()
    met: list[ssl.SSLSocket] = []
    greeting = threading.Thread(target=lambda: met.append(theirs.wrap_socket(far, server_side=True)))
    greeting.start()
    with ours.wrap_socket(near, server_hostname="127.0.0.1") as connected:
        greeting.join()
        with met[0]:
            all_is_sent_and_the_answer_read(connected, met[0], way)
