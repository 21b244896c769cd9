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

CANNOT = 77
PACKAGES = {"slurmctld": "slurm-wlm", "munged": "munge"}
"""A program that is needed, and Debian's package of it."""
IMPATIENT = (
    "-o",
    "Acquire::http::Timeout=15",
    "-o",
    "Acquire::https::Timeout=15",
    "-o",
    "Acquire::Retries=0",
)
"""A machine without a network is told so in less than a minute."""
LOGIN_FILES = "~/.bash_profile ~/.bash_login ~/.profile ~/.bashrc"
"""Slurm runs a login shell for a job that takes nothing of its submitter's environment. What such
files do (a lock of pyenv's, say) would stay where a node is killed meanwhile, and keep every later
job waiting: nodes do not see them.
"""
CONTROLLER = "slurmctld"
MUNGE = "munged"
PATIENCE_S = 90.0
LONGEST_SOCKET = 107
"""Bytes of the path of a Unix socket."""
PORTS = range(12_000, 32_000)
"""Below those that the kernel gives to whoever connects."""
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
"""Loopback alone, neither cgroups nor systemd, make-believe sizes of nodes; a lost node is
noticed in seconds.
"""


class CannotError(Exception):
    """This machine is not one that a cluster can be started on."""


class Cluster:
    """The folder of one, and what was started for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.conf = root / "slurm.conf"
        self._records = root / "started"
        """A file for each process: its id and when it started, so that no other with the same id
        is ever killed.
        """
        self._socket = root / "munge.sock"

    def up(self, count: int) -> None:
        self._install()
        if any(self._is_alive(name) for name in self._names()):
            raise SystemExit(f"a cluster runs in {self.root}; stop it first: {sys.argv[0]} down")
        if len(os.fsencode(self._socket)) > LONGEST_SOCKET:
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
        """Start a node in a process namespace of its own, whose end is the end of all that is in
        it.
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

    def kill_node(self, name: str, how: str) -> None:
        self._known_node(name)
        pid = self._pid(name)
        if pid is None:
            raise SystemExit(f"{name} does not run; start it: {sys.argv[0]} node-start {name}")
        if how == "KILL":
            self._end(name, signal.SIGKILL)
        else:
            os.kill(_slurmd_below(pid), getattr(signal, f"SIG{how}"))

    def kill_controller(self) -> None:
        self._end(CONTROLLER, signal.SIGKILL)

    def down(self, *, purge: bool) -> None:
        """Nodes first: a node's end is that of its jobs."""
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
        if not self.conf.is_file() or f"NodeName={name} " not in self.conf.read_text("utf-8"):
            raise SystemExit(f"there is no node {name!r} in {self.conf}")

    def _start(self, name: str, argv: Sequence[str]) -> None:
        if self._is_alive(name):
            raise SystemExit(f"{name} runs already")
        with (self.root / f"{name}.out").open("ab") as said:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env={**os.environ, "SLURM_CONF": str(self.conf)},
            )
        self._record(name).write_text(json.dumps([process.pid, _began(process.pid)]), "utf-8")
        process.returncode = 0  # it outlives this program, which does not wait for it

    def _end(self, name: str, how: signal.Signals) -> None:
        pid = self._pid(name)
        if pid is not None:
            for number in (how, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                with contextlib.suppress(TimeoutError):
                    _wait_for(lambda: not self._is_alive(name), 5.0)
                    break
        self._record(name).unlink(missing_ok=True)

    def _names(self) -> list[str]:
        return sorted(path.stem for path in self._records.glob("*.json"))

    def _record(self, name: str) -> Path:
        return self._records / f"{name}.json"

    def _pid(self, name: str) -> int | None:
        try:
            pid, began = json.loads(self._record(name).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return int(pid) if began is not None and _began(pid) == began else None

    def _is_alive(self, name: str) -> bool:
        return self._pid(name) is not None

    def _idle(self) -> int:
        found = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"],
            env={**os.environ, "SLURM_CONF": str(self.conf)},
            capture_output=True,
            text=True,
            check=False,
        )
        return len(set(found.stdout.split()))

    def _until(self, holds: Callable[[], bool], name: str) -> None:
        try:
            _wait_for(holds, PATIENCE_S)
        except TimeoutError:
            self.down(purge=False)
            raise SystemExit(
                f"{name} did not start in {PATIENCE_S:.0f} s: see {self.root}/{name}.out"
            ) from None


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """apt-get itself refuses where another one works."""
    with (Path(tempfile.gettempdir()) / "eval-factory-slurm.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def missing_packages() -> list[str]:
    return [package for program, package in PACKAGES.items() if shutil.which(program) is None]


def _install_packages() -> None:
    """Install the packages that are missing.

    Raises:
        CannotError: they cannot be had.
    """
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise CannotError(
            f"{' and '.join(missing)} missing, and there is no apt-get to install them with"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    said = []
    for arguments in (
        ["update", "-qq"],
        ["install", "-qq", "-y", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(
            ["apt-get", *IMPATIENT, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said += done.stderr.strip().splitlines()
    if missing_packages():
        raise CannotError(
            f"apt-get cannot install {' and '.join(missing)}: "
            f"{said[-1] if said else 'it does not say why'}"
        )


def _wait_for(holds: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > ends:
            raise TimeoutError
        time.sleep(0.05)


def _began(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; None if it is gone, or only waits to be
    reaped.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _below(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()):
            yield child
            yield from _below(child)


def _slurmd_below(pid: int) -> int:
    """The first that is slurmd itself: its jobs are below it."""
    for child in _below(pid):
        if Path(f"/proc/{child}/comm").read_text("utf-8").strip() == "slurmd":
            return child
    raise SystemExit("the node has no slurmd")


def files(root: Path, host: str, ports: Sequence[int], env: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of the files that the daemons read, by name.

    Args:
        ports: the controller's, and one for each node.
    """
    port, *node_ports = ports
    size = f"CPUs={env.get('CPUS', '2')} RealMemory={env.get('MEMORY_MB', '2000')} State=UNKNOWN"
    lines = [
        CONFIGURATION.format(
            host=host, port=port, root=root, max_array=env.get("MAX_ARRAY", "1001")
        )
    ]
    for number, own in enumerate(node_ports, 1):
        lines.append(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} {size}\n"
        )
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
    names = "".join(f"127.0.0.1 n{number}\n" for number in range(1, len(node_ports) + 1))
    return {
        "slurm.conf": "".join(lines),
        # slurmd opens a cgroup plugin even where nothing uses it; to look for the right one fails
        # without systemd
        "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n",
        "hosts": f"127.0.0.1 localhost {host}\n{names}",
        "env": f"export SLURM_CONF={shlex.quote(str(root / 'slurm.conf'))}\n",
    }


def free_ports(count: int, name: str) -> list[int]:
    """Clusters of two names that start at the same moment look at different places first."""
    first = zlib.crc32(name.encode()) % len(PORTS)
    found: list[int] = []
    for port in (*PORTS[first:], *PORTS[:first]):
        if len(found) == count:
            break
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
    return found


def main(arguments: list[str]) -> int:
    root = os.environ.get("EVAL_FACTORY_SLURM") or str(
        Path(tempfile.gettempdir()) / "eval-factory-slurm"
    )
    cluster = Cluster(Path(root).absolute())
    try:
        match arguments:
            case ["up"] | ["up", _] if all(
                given.isdigit() and 0 < int(given) < 65 for given in arguments[1:]
            ):
                cluster.up(int(arguments[1]) if len(arguments) > 1 else 3)
                print(f'{cluster.root}: nodes are idle; go on with: . "{cluster.env_file()}"')
            case ["env"]:
                print(cluster.env_file())
            case ["down"] | ["down", "--purge"]:
                cluster.down(purge=len(arguments) > 1)
            case ["node-kill", name]:
                cluster.kill_node(name, "KILL")
            case ["node-kill", name, ("KILL" | "STOP" | "CONT") as how]:
                cluster.kill_node(name, how)
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
