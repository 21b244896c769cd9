#!/usr/bin/env python3
"""Starts a real Slurm on this machine, for tests and for trying things.

The nodes n1, n2 ... exist on loopback only.

    scripts/slurm/cluster.py up [N]             starts N nodes (default: 3); installs Slurm
    . "$(scripts/slurm/cluster.py env)"         sets SLURM_CONF, by which sbatch finds the cluster
    scripts/slurm/cluster.py node-kill n1       the node loses power: its slurmd and its jobs end
    scripts/slurm/cluster.py node-kill n1 STOP  its slurmd hangs, while its jobs go on
    scripts/slurm/cluster.py node-kill n1 CONT  its slurmd goes on
    scripts/slurm/cluster.py node-start n1      starts a node that was killed
    scripts/slurm/cluster.py controller-kill    kills slurmctld (SIGKILL)
    scripts/slurm/cluster.py controller-start   starts slurmctld again
    scripts/slurm/cluster.py down [--purge]     stops what was started; --purge: deletes its folder

It needs Debian's slurm-wlm and munge. Everything is under EVAL_FACTORY_SLURM (default:
eval-factory-slurm in the folder for temporary files); each such folder has names, key and ports of
its own, so that several clusters may stand side by side. CPUS, MEMORY_MB and MAX_ARRAY change what
a node has, and the largest array. Exit codes: 0; 2 wrong arguments; 1 a daemon did not start (its
log is named); 77 this machine cannot do it: not root, no Debian packages, or no namespaces (it says
which).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

CANNOT = 77  # the exit code if this machine cannot run a cluster
PACKAGES = {"slurmctld": "slurm-wlm", "munged": "munge"}
"""A dict from each program that is needed to the Debian package that contains it."""
APT_OPTIONS = (
    "-o",
    "Acquire::http::Timeout=15",
    "-o",
    "Acquire::https::Timeout=15",
    "-o",
    "Acquire::Retries=0",
)
"""The options with which apt-get gives up within a minute if there is no network."""
LOGIN_FILES = "~/.bash_profile ~/.bash_login ~/.profile ~/.bashrc"
"""The files of login shells, which are hidden from the nodes. Slurm runs a login shell for a job
that does not inherit its submitter's environment. If a node were killed while such a file holds a
lock (as pyenv's does), the lock would remain, and every later job would wait for it.
"""
CONTROLLER = "slurmctld"
MUNGE = "munged"
START_LIMIT_S = 90.0  # the time limit for the start of a daemon
MAX_SOCKET_PATH = 107  # the maximum length of a Unix socket's path, in bytes
PORTS = range(12_000, 32_000)
"""The ports among which the daemons' ports are chosen. The kernel gives higher ports to outgoing
connections.
"""
CONFIGURATION = """\
ClusterName=evalfactory
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock,cred_expire=5
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmctldPidFile={root}/slurmctld.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdSpoolDir={root}/spool-%n
SlurmdPidFile={root}/slurmd-%n.pid
SlurmdLogFile={root}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SlurmdTimeout=6
SlurmctldTimeout=10
MessageTimeout=5
KillWait=2
BatchStartTimeout=10
ReturnToService=2
MaxArraySize={max_array}
"""
"""The beginning of slurm.conf. Slurm uses only loopback, no cgroups and no systemd. The sizes of
the nodes need not be those of the machine (`config_overrides`). A lost node is noticed within
seconds.
"""


class CannotError(Exception):
    """An error that is raised because no cluster can be started on this machine."""


class Cluster:
    """A cluster: its folder, and the processes that were started for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.conf = root / "slurm.conf"
        self._records = root / "started"
        """The folder with a file for each started process: its id and its start time. The start
        time shows whether a process with this id is still the same process; no other is killed.
        """
        self._socket = root / "munge.sock"

    def up(self, count: int) -> None:
        """Start a cluster of `count` nodes, and return when all nodes are idle."""
        self._install()
        if any(self._is_alive(name) for name in self._names()):
            raise SystemExit(f"a cluster runs in {self.root}; stop it first: {sys.argv[0]} down")
        if len(os.fsencode(self._socket)) > MAX_SOCKET_PATH:
            raise SystemExit(
                f"{self._socket} is too long for a socket: "
                "set EVAL_FACTORY_SLURM to a shorter folder"
            )
        shutil.rmtree(self.root, ignore_errors=True)
        for folder in (self.root / "state", self._records):
            folder.mkdir(parents=True)
        self.root.chmod(0o755)
        self._configure(count)
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._start(
            MUNGE,
            [
                "munged",
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={self._socket}",
                f"--pid-file={self.root}/munged.pid",
                f"--log-file={self.root}/munged.log",
                f"--seed-file={self.root}/munged.seed",
            ],
        )
        self._until(lambda: self._socket.exists(), MUNGE)
        self.start_controller()
        for number in range(1, count + 1):
            self.start_node(f"n{number}")
        self._until(lambda: self._idle() >= count, CONTROLLER)

    def start_controller(self) -> None:
        self._start(CONTROLLER, ["slurmctld", "-D", "-f", str(self.conf)])

    def start_node(self, name: str) -> None:
        """Start a node in a process namespace of its own.

        If the namespace ends, all processes in it end, as if the node had lost its power.
        """
        self._known_node(name)
        (self.root / f"spool-{name}").mkdir(exist_ok=True)
        inside = (
            'hostname "$1"; mount --bind "$2/hosts" /etc/hosts;'
            f' for file in {LOGIN_FILES}; do [[ ! -f $file ]] || mount --bind /dev/null "$file"; '
            "done;"
            ' slurmd -D -N "$1" -f "$2/slurm.conf" & wait $!'
        )
        space = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--uts"]
        self._start(name, [*space, "bash", "-c", inside, "node", name, str(self.root)])

    def kill_node(self, name: str, signal_name: str) -> None:
        """End all processes of a node with `KILL`, or send another signal to its slurmd only."""
        self._known_node(name)
        pid = self._pid(name)
        if pid is None:
            raise SystemExit(f"{name} does not run; start it: {sys.argv[0]} node-start {name}")
        if signal_name == "KILL":
            self._end(name, signal.SIGKILL)
        else:
            os.kill(_slurmd_below(pid), getattr(signal, f"SIG{signal_name}"))

    def kill_controller(self) -> None:
        self._end(CONTROLLER, signal.SIGKILL)

    def down(self, *, purge: bool) -> None:
        """Stop all processes of the cluster: first the nodes, whose jobs end with them."""
        nodes = [name for name in self._names() if name not in (CONTROLLER, MUNGE)]
        for name in nodes:
            self._end(name, signal.SIGKILL)
        for name in (CONTROLLER, MUNGE):
            self._end(name, signal.SIGTERM)
        if purge:
            shutil.rmtree(self.root, ignore_errors=True)

    def env_file(self) -> Path:
        path = self.root / "env"
        if not path.is_file():
            raise SystemExit(f"there is no cluster in {self.root}; start one: {sys.argv[0]} up")
        return path

    def _install(self) -> None:
        if os.geteuid() != 0:
            raise CannotError("it needs root, for the daemons and the nodes' namespaces")
        with _one_at_a_time():
            _install_packages()
        tried = subprocess.run(
            ["unshare", "--fork", "--pid", "--mount-proc", "--uts", "true"],
            capture_output=True,
            text=True,
            check=False,
        )
        if tried.returncode:
            raise CannotError(
                f"namespaces of processes are not allowed here: {tried.stderr.strip()}"
            )

    def _configure(self, count: int) -> None:
        host = socket.gethostname().partition(".")[0]
        for name, text in files(
            self.root, host, free_ports(count + 1, str(self.root)), os.environ
        ).items():
            (self.root / name).write_text(text, "utf-8")

    def _known_node(self, name: str) -> None:
        """End the program if the cluster has no node with this name."""
        if not self.conf.is_file() or f"NodeName={name} " not in self.conf.read_text("utf-8"):
            raise SystemExit(f"there is no node {name!r} in {self.conf}")

    def _start(self, name: str, argv: Sequence[str]) -> None:
        if self._is_alive(name):
            raise SystemExit(f"{name} runs already")
        with (self.root / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "SLURM_CONF": str(self.conf)},
            )
        self._record(name).write_text(json.dumps([process.pid, _start_time(process.pid)]), "utf-8")
        # The process goes on when this program ends. With a return code, Popen does not warn that
        # it is still running.
        process.returncode = 0

    def _end(self, name: str, first_signal: signal.Signals) -> None:
        """End a process by a signal; if it is alive 5 s later, by SIGKILL."""
        pid = self._pid(name)
        if pid is not None:
            for signal_number in (first_signal, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal_number)
                with contextlib.suppress(TimeoutError):
                    _wait_for(lambda: not self._is_alive(name), 5.0)
                    break  # The process has ended in time.
        self._record(name).unlink(missing_ok=True)

    def _names(self) -> list[str]:
        return sorted(path.stem for path in self._records.glob("*.json"))

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _pid(self, name: str) -> int | None:
        """Return the id of a started process; None if it was not started, or has ended."""
        try:
            pid, start_time = json.loads(self._record(name).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        if start_time is None or _start_time(pid) != start_time:
            return None
        return int(pid)

    def _is_alive(self, name: str) -> bool:
        return self._pid(name) is not None

    def _idle(self) -> int:
        """Return the number of idle nodes."""
        listed = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"],
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            capture_output=True,
            text=True,
            check=False,
        )
        return len(set(listed.stdout.split()))

    def _until(self, is_ready: Callable[[], bool], name: str) -> None:
        """Wait until a daemon is ready; stop the cluster and end the program if this takes too
        long.
        """
        try:
            _wait_for(is_ready, START_LIMIT_S)
        except TimeoutError:
            self.down(purge=False)
            raise SystemExit(
                f"{name} did not start in {START_LIMIT_S:.0f} s: see {self.root}/{name}.out"
            ) from None


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Wait until no other process installs packages: a second apt-get would fail."""
    with (Path(tempfile.gettempdir()) / "eval-factory-slurm.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def missing_packages() -> list[str]:
    return [package for program, package in PACKAGES.items() if shutil.which(program) is None]


def _install_packages() -> None:
    """Install the packages that are missing.

    Raises:
        CannotError: the packages cannot be installed.
    """
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise CannotError(
            f"{' and '.join(missing)} missing, and there is no apt-get to install them with"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    messages = []  # the lines of apt-get's standard error
    for arguments in (
        ["update", "-qq"],
        ["install", "-qq", "-y", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(
            ["apt-get", *APT_OPTIONS, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        messages += done.stderr.strip().splitlines()
    if missing_packages():
        raise CannotError(
            f"apt-get cannot install {' and '.join(missing)}: "
            f"{messages[-1] if messages else 'it does not say why'}"
        )


def _wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition is true; raise TimeoutError after this number of seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def _start_time(pid: int) -> str | None:
    """Return the time at which a process started, in the kernel's ticks; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    # The fields after the program's name in parentheses: fields 3 and following of proc(5).
    fields = stat.rpartition(")")[2].split()
    state = fields[0]
    if state == "Z":  # The process has ended, and its parent has not read its exit code yet.
        return None
    return fields[19]


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()):
            yield child
            yield from _descendants(child)


def _slurmd_below(pid: int) -> int:
    """Return the first descendant that is slurmd. The jobs are descendants of slurmd."""
    for child in _descendants(pid):
        if Path(f"/proc/{child}/comm").read_text("utf-8").strip() == "slurmd":
            return child
    raise SystemExit("the node has no slurmd")


def files(root: Path, host: str, ports: Sequence[int], env: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the files that the daemons read, by name.

    Args:
        root: the cluster's folder.
        host: the name of this machine.
        ports: the port of the controller, then one port for each node.
        env: the environment variables, which may state the size of a node.
    """
    port, *node_ports = ports
    size = f"CPUs={env.get('CPUS', '2')} RealMemory={env.get('MEMORY_MB', '2000')} State=UNKNOWN"
    lines = [
        CONFIGURATION.format(
            host=host, port=port, root=root, max_array=env.get("MAX_ARRAY", "1001")
        )
    ]
    for number, node_port in enumerate(node_ports, 1):
        lines.append(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} {size}\n"
        )
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
    names = "".join(f"127.0.0.1 n{number}\n" for number in range(1, len(node_ports) + 1))
    return {
        "slurm.conf": "".join(lines),
        # slurmd loads a cgroup plugin even if nothing uses it. Name the plugin, because slurmd's
        # own search for the right plugin fails without systemd.
        "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n",
        "hosts": f"127.0.0.1 localhost {host}\n{names}",
        "env": f"export SLURM_CONF={shlex.quote(str(root / 'slurm.conf'))}\n",
    }


def free_ports(count: int, name: str) -> list[int]:
    """Return ports that no process uses.

    The search begins at a port that depends on `name`. Two clusters with different names that start
    at the same moment therefore find different ports.
    """
    first = zlib.crc32(name.encode()) % len(PORTS)
    free: list[int] = []
    for port in (*PORTS[first:], *PORTS[:first]):
        if len(free) == count:
            break
        # A port that is in use raises OSError.
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            free.append(port)
    return free


def main(arguments: list[str]) -> int:
    root = os.environ.get("EVAL_FACTORY_SLURM") or str(
        Path(tempfile.gettempdir()) / "eval-factory-slurm"
    )
    cluster = Cluster(Path(root).absolute())
    try:
        match arguments:
            case ["up"] | ["up", _] if all(
                count.isdigit() and 0 < int(count) < 65 for count in arguments[1:]
            ):
                cluster.up(int(arguments[1]) if len(arguments) > 1 else 3)
                print(f'{cluster.root}: nodes are idle; go on with: . "{cluster.env_file()}"')
            case ["env"]:
                print(cluster.env_file())
            case ["down"] | ["down", "--purge"]:
                cluster.down(purge=len(arguments) > 1)
            case ["node-kill", name]:
                cluster.kill_node(name, "KILL")
            case ["node-kill", name, ("KILL" | "STOP" | "CONT") as signal_name]:
                cluster.kill_node(name, signal_name)
            case ["node-start", name]:
                cluster.start_node(name)
            case ["controller-kill"]:
                cluster.kill_controller()
            case ["controller-start"]:
                cluster.start_controller()
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except CannotError as error:
        print(f"no Slurm can be started on this machine: {error}", file=sys.stderr)
        return CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
