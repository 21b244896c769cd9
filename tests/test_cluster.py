"""What scripts/slurm/cluster.py decides; that it starts a Slurm is shown by tests/faults."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from scripts.slurm import cluster
from scripts.slurm.cluster import CANNOT, PORTS, CannotError, Cluster, files, free_ports, main


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVAL_FACTORY_SLURM", str(tmp_path / "c"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_all_that_a_cluster_has_is_in_its_folder(tmp_path: Path) -> None:
    """So that two of them share neither a port nor a key, and can be taken down alone."""
    found = files(tmp_path / "a b", "host", [7, 8, 9], {})
    conf = found["slurm.conf"]
    lines = conf.splitlines()
    assert "SlurmctldHost=host(127.0.0.1)" in lines
    assert "SlurmctldPort=7" in lines
    assert "MaxArraySize=1001" in lines
    nodes = [line for line in lines if line.startswith("NodeName")]
    assert nodes == [
        f"NodeName=n{number} NodeHostname=host NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=2000 State=UNKNOWN"
        for number, port in ((1, 8), (2, 9))
    ]
    paths = [line.partition("=")[2].removeprefix("socket=") for line in lines if "/" in line and "State" in line]
    assert all(path.startswith(str(tmp_path / "a b")) for path in paths)
    assert found["hosts"] == "127.0.0.1 localhost host\n127.0.0.1 n1\n127.0.0.1 n2\n"
    assert found["env"] == f"export SLURM_CONF='{tmp_path / 'a b'}/slurm.conf'\n"


def test_the_size_of_a_node_can_be_said(tmp_path: Path) -> None:
    conf = files(tmp_path, "host", [7, 8], {"CPUS": "4", "MEMORY_MB": "99", "MAX_ARRAY": "50"})["slurm.conf"]
    assert "Port=8 CPUs=4 RealMemory=99 " in conf
    assert "MaxArraySize=50\n" in conf


def test_ports_are_free_and_those_of_two_clusters_differ() -> None:
    first = free_ports(4, "first")
    assert len(set(first)) == 4
    assert set(first) <= set(PORTS)
    assert set(first).isdisjoint(free_ports(4, "second"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first[0]))
        assert first[0] not in free_ports(4, "first")


@pytest.mark.parametrize(
    "arguments",
    [[], ["up", "0"], ["up", "65"], ["up", "x"], ["down", "--all"], ["node-kill"], ["node-kill", "n1", "HUP"]],
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "cluster.py up [N]" in capsys.readouterr().err


def test_without_root_it_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["up"]) == CANNOT
    assert "it needs root" in capsys.readouterr().err


def test_without_packages_it_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name != "munged" else "/usr/sbin/munged")
    assert cluster.missing_packages() == ["slurm-wlm"]
    with pytest.raises(CannotError, match="slurm-wlm missing, and there is no apt-get"):
        cluster._install_packages()


def test_what_is_installed_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "apt-get" else name)
    cluster._install_packages()


def test_a_folder_that_is_too_deep_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "_install", lambda _self: None)
    with pytest.raises(SystemExit, match="set EVAL_FACTORY_SLURM to a shorter folder"):
        Cluster(tmp_path / ("x" * 100)).up(1)


def test_without_a_cluster_the_next_step_is_said() -> None:
    with pytest.raises(SystemExit, match=r"start one: .* up"):
        main(["env"])
    with pytest.raises(SystemExit, match="there is no node 'n1'"):
        main(["node-start", "n1"])
    assert main(["down", "--purge"]) == 0


def test_down_ends_no_process_that_it_did_not_start(tmp_path: Path) -> None:
    """Its id may have been given to another one since."""
    records = tmp_path / "c" / "started"
    records.mkdir(parents=True)
    (records / "n1.json").write_text(json.dumps([os.getpid(), "1"]), "utf-8")
    (records / "n2.json").write_text("torn", "utf-8")
    (records / "n3.json").write_text(json.dumps([2**22 + 1, None]), "utf-8")
    assert main(["down"]) == 0
    assert list(records.iterdir()) == []


def test_a_process_is_known_by_when_it_began() -> None:
    began = cluster._began(os.getpid())
    assert began is not None
    assert began.isdigit()
    assert cluster._began(2**22 + 1) is None
