"""One browser for all tests of a worker; without one they are skipped, and say what to install."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chromium import INSTALL, Chromium, Counted, counting_server, programs


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if programs() is None:
        pytest.skip(INSTALL)
    with pytest.MonkeyPatch.context() as without:
        for name in (
            "http_proxy",
            "HTTP_PROXY",
        ):  # by which Selenium would reach the driver, on this machine
            without.delenv(name, raising=False)
        started = Chromium(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def browser(_chromium: Chromium) -> Iterator[Chromium]:
    """As it was started: a light screen of 1280 pixels."""
    yield _chromium
    _chromium.dark(False)
    _chromium.width(None)


@pytest.fixture(scope="session")
def outside() -> Iterator[Counted]:
    """A server that no page may reach."""
    with counting_server() as counted:
        yield counted
