"""A locked policy stays as it was."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from eval_factory.analysis.gate_policy import Policy, load_policy
from eval_factory.analysis.policy_lock import check, lock
from eval_factory.core.errors import ConfigError

NOW = datetime(2026, 11, 22, 6, 30, tzinfo=timezone.utc)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    path = tmp_path / "policy.yml"
    path.write_text("version: 1\nbenchmarks: {medec: {min: 0.6}}\n")
    return load_policy(path)


def test_an_unlocked_policy_has_no_time(policy: Policy) -> None:
    assert check(policy) is None


def test_a_locked_policy_says_when(policy: Policy) -> None:
    assert lock(policy, NOW) == policy.path.with_name("policy.yml.lock")
    assert check(policy) == NOW


def test_the_time_is_in_utc(policy: Policy) -> None:
    lock(policy, NOW.astimezone(timezone(timedelta(hours=5))))
    assert "2026-11-22T06:30:00+00:00" in policy.path.with_name("policy.yml.lock").read_text()


def test_a_changed_policy_is_refused(policy: Policy) -> None:
    lock(policy, NOW)
    policy.path.write_text(policy.path.read_text().replace("0.6", "0.5"))
    changed = load_policy(policy.path)
    with pytest.raises(
        ConfigError, match=r"was changed after it was locked on 2026-11-22 06:30 UTC.*policy\.yml\.lock"
    ):
        check(changed)
    with pytest.raises(ConfigError, match="was changed"):
        lock(changed, NOW)


def test_locking_again_keeps_the_first_time(policy: Policy) -> None:
    lock(policy, NOW)
    lock(policy, NOW + timedelta(days=1))
    assert check(policy) == NOW


UNREADABLE = {
    "empty": "",
    "nothing": "{}",
    "no_time": '{"sha256": "x"}',
    "no_moment": '{"sha256": "x", "locked_at": "soon"}',
    "no_zone": '{"sha256": "x", "locked_at": "2026-11-22T06:30:00"}',
    "number": '{"sha256": "x", "locked_at": 5}',
    "list": "[]",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_lock_that_cannot_be_read_is_refused(policy: Policy, content: str) -> None:
    policy.path.with_name("policy.yml.lock").write_text(content)
    with pytest.raises(ConfigError, match="is no lock of a policy; remove it"):
        check(policy)


def test_a_time_of_another_zone_is_read_as_utc(policy: Policy) -> None:
    content = f'{{"sha256": "{policy.sha256}", "locked_at": "2026-11-22T11:30:00+05:00"}}'
    policy.path.with_name("policy.yml.lock").write_text(content)
    read = check(policy)
    assert read is not None
    assert (read, read.tzinfo) == (NOW, timezone.utc)


def test_a_folder_in_the_locks_place_is_refused(policy: Policy) -> None:
    policy.path.with_name("policy.yml.lock").mkdir()
    with pytest.raises(ConfigError, match="is no lock of a policy"):
        lock(policy, NOW)
