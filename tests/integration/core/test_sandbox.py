"""Programs that attack: each succeeds outside of the sandbox, and none inside."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_factory.core import sandbox
from eval_factory.core.errors import PrerequisiteError
from facts import naming, says
from program_runs import wait_until

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (bwrap)")

PYTHON = [os.path.realpath(sys.executable), "-I", "-S", "-c"]
READABLE = [os.path.realpath(sys.base_prefix), sys.base_prefix, sys.prefix]
X86 = platform.machine() == "x86_64"
SYSCALLS = (
    {"tgkill": 234, "keyctl": 250, "add_key": 248}
    if X86
    else {"tgkill": 131, "keyctl": 219, "add_key": 217}
)
SECRET = b"a-secret-of-another-program"
READ_KEYRING = 11
REMOVE_SEGMENT = 0
USER_KEYRING = -4
LIBC = ctypes.CDLL(None, use_errno=True)

RAISE_LIMIT = (
    "import resource\nresource.prlimit({victim}, resource.RLIMIT_NOFILE, (7, 7))\nprint('done')"
)
KILL = "import os, signal\nos.kill({victim}, signal.SIGKILL)\nprint('done')"
KILL_THREAD = "import ctypes\nif ctypes.CDLL(None).syscall({tgkill}, {victim}, {victim}, 9) == 0:\n    print('done')"
READ_ENVIRONMENT = (
    "print('done' if b'MY_KEY' in open('/proc/{victim}/environ', 'rb').read() else '')"
)
READ_SEGMENT = (
    "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n"
    "at = libc.shmat({segment}, None, 0o10000)\n"
    "print('done' if at not in (None, 2**64 - 1) and ctypes.string_at(at, {size}) == {secret!r} else '')"
)
LEAVE_SEGMENT = "import ctypes\nfound = ctypes.CDLL(None).shmget({left_key}, 4096, 0o1600)\nprint('done' if found >= 0 else '')"
READ_KEY = (
    "import ctypes\nbuffer = ctypes.create_string_buffer(100)\n"
    "ctypes.CDLL(None).syscall({keyctl}, 11, {key}, buffer, 100)\n"
    "print('done' if buffer.value == {secret!r} else '')"
)
CONNECT = "import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)\nprint('done')"
CONNECT_BY_NAME = (
    "import socket\nsocket.socket(socket.AF_UNIX).connect(chr(0) + {abstract!r})\nprint('done')"
)
READ_FILE = "open({file!r}).read()\nprint('done')"
WRITE_FILE = "open({file!r}, 'a').close()\nprint('done')"
START_PROCESS = "import os\nif os.fork() == 0:\n    os._exit(0)\nprint('done')"
MEMORY_OF_NO_PROCESS = (
    "import os\nfor number in range(20):\n    file = os.memfd_create(str(number))\n"
    "    os.write(file, bytes(1 << 20))\nprint('done')"
)
MEMORY_OF_NO_PROCESS_BY_SEGMENTS = (
    "import ctypes\nlibc = ctypes.CDLL(None)\nsegment = libc.shmget(0, 1 << 20, 0o1600)\n"
    "libc.shmctl(segment, 0, None)\nprint('done' if segment >= 0 else '')"
)
NEW_NAMESPACE = "import ctypes\nprint('done' if ctypes.CDLL(None).unshare(0x10000000) == 0 else '')"
NEW_NAMESPACE_OF_A_CHILD = (
    "import ctypes, os\nnumber = 56 if os.uname().machine == 'x86_64' else 220\n"
    "child = ctypes.CDLL(None).syscall(number, 0x10000011, 0, 0, 0, 0)\n"
    "if child == 0:\n    os._exit(0)\nprint('done' if child > 0 else '')"
)
BE_TRACED = "import ctypes\nprint('done' if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0 else '')"
COPY_MEMORY = (
    "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
    "class Part(ctypes.Structure):\n"
    "    _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
    "places = [ctypes.create_string_buffer(4) for _ in range(2)]\n"
    "parts = [ctypes.byref(Part(ctypes.addressof(place), 4)) for place in places]\n"
    "print('done' if libc.process_vm_{what}(os.getpid(), parts[0], 1, parts[1], 1, 0) == 4 else '')"
)
READ_MEMORY = COPY_MEMORY.format(what="readv")
WRITE_MEMORY = COPY_MEMORY.format(what="writev")


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this user's."""
    process = subprocess.Popen(["sleep", "100"], env={"MY_KEY": "x", "PATH": os.environ["PATH"]})
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def segment() -> Iterator[int]:
    """System V memory of another program's, with its secret."""
    LIBC.shmat.restype = ctypes.c_void_p
    number = LIBC.shmget(0, 4096, 0o1600)
    at = LIBC.shmat(number, None, 0)
    ctypes.memmove(at, SECRET, len(SECRET))
    yield number
    LIBC.shmctl(number, REMOVE_SEGMENT, None)


@pytest.fixture
def key() -> int:
    """A key in the user's keyring; the kernel's, not ours."""
    number: int = LIBC.syscall(
        SYSCALLS["add_key"], b"user", b"canary", SECRET, len(SECRET), USER_KEYRING
    )
    if number == -1:
        pytest.skip("needs the kernel's keyrings")
    return number


def inside(program: str, folder: Path, *, processes: bool = True) -> str:
    ended = sandbox.run(
        [*PYTHON, program],
        folder,
        sandbox.Allowed(READABLE, processes=processes),
        env=sandbox.environment_without_secrets(folder),
        seconds=20,
    )
    return ended.output.decode().strip()


def outside(program: str) -> str:
    done = subprocess.run(
        [*PYTHON, program], capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout.strip()


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("attack", [READ_ENVIRONMENT, RAISE_LIMIT, KILL, KILL_THREAD])
def test_another_process_is_out_of_reach(
    attack: str, processes: bool, victim: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    program = attack.format(victim=victim.pid, tgkill=SYSCALLS["tgkill"])
    assert inside(program, tmp_path, processes=processes) != "done"
    assert victim.poll() is None
    assert outside(program) == "done"


def test_memory_of_other_programs_is_not_read_and_none_is_left(
    segment: int, tmp_path: Path
) -> None:
    read = READ_SEGMENT.format(segment=segment, size=len(SECRET), secret=SECRET)
    left_key = 0x5EED0000 + os.getpid() % 0xFFFF
    leave = LEAVE_SEGMENT.format(left_key=left_key)
    for processes in (False, True):
        assert inside(read, tmp_path, processes=processes) != "done"
        assert inside(leave, tmp_path, processes=processes) != "done"
    assert LIBC.shmget(left_key, 0, 0) == -1
    assert outside(read) == outside(leave) == "done"
    LIBC.shmctl(LIBC.shmget(left_key, 0, 0), REMOVE_SEGMENT, None)


def test_the_kernels_keys_are_not_read(key: int, tmp_path: Path) -> None:
    program = READ_KEY.format(keyctl=SYSCALLS["keyctl"], key=key, secret=SECRET)
    assert inside(program, tmp_path) != "done"
    assert outside(program) == "done"


HOST_OF_THE_MACHINE = "import socket\nsocket.socket(40, socket.SOCK_STREAM)\nprint('done')"
QUEUE_OF_MESSAGES = (
    "import ctypes, os\nnumber = 240 if os.uname().machine == 'x86_64' else 180\n"
    "found = ctypes.CDLL(None).syscall(number, b'queue', 66, 0o600, None)\n"
    "print('done' if found >= 0 else '')"
)
SOCKETS = (
    "import socket\nfor family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):\n"
    "    socket.socket(family).close()\nsocket.socketpair()\nprint('done')"
)


@pytest.mark.parametrize("processes", [False, True])
def test_sockets_that_no_namespace_holds(processes: bool, tmp_path: Path) -> None:
    """Those to the host of a virtual machine; queues of messages are memory of no process."""
    assert inside(HOST_OF_THE_MACHINE, tmp_path, processes=processes) != "done"
    assert inside(QUEUE_OF_MESSAGES, tmp_path, processes=processes) != "done"
    assert inside(SOCKETS, tmp_path, processes=processes) == "done"


DEEP = "import os\nfor _ in range({levels}):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n"


def test_folders_too_deep_for_a_path_end_nothing_but_the_program(tmp_path: Path) -> None:
    assert inside(DEEP.format(levels=25) + "print('done')", tmp_path) == "done"
    find = ["find", str(tmp_path), "-uid", "65534"]
    assert subprocess.run(find, capture_output=True, check=False).stdout == b""
    shutil.rmtree(tmp_path)


def test_folders_too_deep_for_pythons_recursion(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    deep = DEEP.replace("200", "1").format(levels=sys.getrecursionlimit() + 500)
    assert inside(deep + "print('done')", folder) == "done"
    sandbox.delete_folder(folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    "attack",
    [
        MEMORY_OF_NO_PROCESS,
        MEMORY_OF_NO_PROCESS_BY_SEGMENTS,
        NEW_NAMESPACE,
        NEW_NAMESPACE_OF_A_CHILD,
        BE_TRACED,
        READ_MEMORY,
        WRITE_MEMORY,
    ],
)
@pytest.mark.parametrize("processes", [False, True])
def test_calls_that_are_refused(attack: str, processes: bool, tmp_path: Path) -> None:
    """Memory that no limit counts, a way to rights in a namespace of one's own, and the memory of
    another process: of bubblewrap's own, which ends the program with its parent.
    """
    assert inside(attack, tmp_path, processes=processes) != "done"
    assert outside(attack) == "done"


READ_KERNELS_LOG = (
    "import ctypes, os\nnumber = 103 if os.uname().machine == 'x86_64' else 116\n"
    "print('done' if ctypes.CDLL(None).syscall(number, 10, None, 0) >= 0 else '')"
)
"""Asks how large it is."""
FILTER = (
    "import ctypes, sys\nrules = bytes.fromhex(sys.argv[1])\n"
    "class Rules(ctypes.Structure):\n"
    "    _fields_ = [('count', ctypes.c_ushort), ('rules', ctypes.c_char_p)]\n"
    "libc = ctypes.CDLL(None)\nassert libc.prctl(38, 1, 0, 0, 0) == 0\n"
    "assert libc.prctl(22, 2, ctypes.byref(Rules(len(rules) // 8, rules)), 0, 0) == 0\n"
)
"""Refuses the calls that the sandbox refuses, outside of a sandbox."""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may read the log everywhere")
def test_the_kernels_log_is_not_read() -> None:
    """Of a machine where everybody may read it: here root reads it without the other walls."""
    rules = sandbox.refused_calls(sandbox.Allowed()).hex()
    filtered = subprocess.run(
        [*PYTHON, FILTER + READ_KERNELS_LOG, rules], capture_output=True, text=True, check=True
    )
    assert filtered.stdout == "\n"
    assert outside(READ_KERNELS_LOG) == "done"


def test_no_file_in_memory_can_be_written(tmp_path: Path) -> None:
    program = (
        "import os\nfor folder in ('/', '/dev', '/dev/shm', '/proc', '/tmp', '/usr'):\n    try:\n"
        "        open(os.path.join(folder, 'large'), 'w')\n        print(folder)\n    except OSError:\n        pass"
    )
    assert inside(program, tmp_path) == ""


def test_connections(tmp_path: Path) -> None:
    name = f"eval-factory-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as by_name:
        by_name.bind("\0" + name)
        by_name.listen()
        for program in (
            CONNECT.format(port=server.getsockname()[1]),
            CONNECT_BY_NAME.format(abstract=name),
        ):
            assert inside(program, tmp_path) != "done"
            assert outside(program) == "done"
        reach = CONNECT.format(port=server.getsockname()[1])
        allowed = sandbox.Allowed(READABLE, network=True)
        ended = sandbox.run([*PYTHON, reach], tmp_path, allowed, env={}, seconds=20)
        assert ended.output == b"done\n"
        by_abstract_name = [*PYTHON, CONNECT_BY_NAME.format(abstract=name)]
        ended = sandbox.run(by_abstract_name, tmp_path, allowed, env={}, seconds=20)
        assert ended.output == b""  # such as a desktop's


def test_files(tmp_path: Path) -> None:
    own, read, other = (tmp_path / name for name in ("own", "read", "other"))
    for folder in (own, read, other):
        folder.mkdir()
        (folder / "file").write_text("x")

    def found(program: str, folder: Path) -> str:
        allowed = sandbox.Allowed([*READABLE, str(read), "/nowhere"])
        argv = [*PYTHON, program.format(file=str(folder / "file"))]
        ended = sandbox.run(argv, own, allowed, env={}, seconds=20)
        return ended.output.decode().strip()

    assert [found(READ_FILE, folder) for folder in (own, read, other)] == ["done", "done", ""]
    assert [found(WRITE_FILE, folder) for folder in (own, read, other)] == ["done", "", ""]


def test_a_link_in_a_folder_that_may_be_read_leads_on(tmp_path: Path) -> None:
    """A project whose `.venv` lies elsewhere; in whatever order both are named."""
    own, project, elsewhere = (tmp_path / name for name in ("own", "project", "elsewhere"))
    for folder in (own, project, elsewhere / "lib"):
        folder.mkdir(parents=True)
    (elsewhere / "lib" / "file").write_text("x")
    (project / ".venv").symlink_to(elsewhere)
    read = READ_FILE.format(file=str(project / ".venv" / "lib" / "file"))
    names = [str(project), str(project / ".venv"), str(project / ".venv" / "lib")]
    for order in (names, names[::-1], names[1:], [names[1], names[0], names[2]]):
        ended = sandbox.run(
            [*PYTHON, read], own, sandbox.Allowed([*READABLE, *order]), env={}, seconds=20
        )
        assert ended.output == b"done\n", (order, ended.errors)


def test_processes_only_where_they_are_allowed_and_threads_always(tmp_path: Path) -> None:
    thread = (
        "import threading\nt = threading.Thread(target=print, args=('done',))\nt.start()\nt.join()"
    )
    assert [inside(START_PROCESS, tmp_path, processes=allowed) for allowed in (False, True)] == [
        "",
        "done",
    ]
    assert [inside(thread, tmp_path, processes=allowed) for allowed in (False, True)] == [
        "done",
        "done",
    ]


def test_it_has_no_right_and_no_variable_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_MODEL_KEY", "sk-canary")
    program = (
        "for name in ('self/status', 'self/environ', '1/environ'):\n    try:\n"
        "        print(open('/proc/' + name).read())\n    except OSError:\n        pass"
    )
    found = inside(program, tmp_path)
    lines = dict(line.split(":\t", 1) for line in found.splitlines() if ":\t" in line)
    assert [int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")] == [0, 0, 0]
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert "canary" not in found
    assert f"HOME={tmp_path}" in found


WRITABLE_PROC = (
    "import os\nfor parent, _, files in os.walk('/proc'):\n    for name in files:\n        try:\n"
    "            os.close(os.open(os.path.join(parent, name), os.O_WRONLY | os.O_NONBLOCK))\n"
    "            print(os.path.join(parent, name))\n        except OSError:\n            pass"
)
"""Lists what can be opened for writing; it writes nothing."""


@pytest.mark.parametrize("processes", [False, True])
def test_nothing_below_proc_can_be_written(processes: bool, tmp_path: Path) -> None:
    """Not `/proc/sys/kernel/core_pattern` either: a program that the kernel starts as root."""
    assert inside(WRITABLE_PROC, tmp_path, processes=processes) == ""


@pytest.mark.parametrize(
    "name", ["kallsyms", "kpagecount", "kpageflags", "keys", "kmsg", "timer_list", "sysrq-trigger"]
)
def test_the_kernels_own_files_are_hidden(name: str, tmp_path: Path) -> None:
    program = (
        "import os\ntry:\n    file = os.open({file!r}, os.O_RDONLY | os.O_NONBLOCK)\n"
        "    print(len(os.read(file, 8)))\nexcept OSError:\n    print('hidden')"
    ).format(file=f"/proc/{name}")
    assert inside(program, tmp_path) == "hidden"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_roots_programs_run_as_nobody(tmp_path: Path) -> None:
    """Also where packages and the folder lie in a folder that root alone may enter."""
    folder = tmp_path / "own"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "given").write_text("x")
    (folder / "inner" / "given").chmod(0o600)
    (folder / "link").symlink_to(tmp_path)
    tmp_path.chmod(0o700)
    program = (
        "import os\nprint(os.getresuid(), os.getresgid(), os.getgroups())\n"
        "open('inner/given').close()\nopen('inner/made', 'w').write('y')"
    )
    assert inside(program, folder) == f"{(65534,) * 3} {(65534,) * 3} []"
    owners = {path.lstat().st_uid for path in (folder, *folder.rglob("*"), tmp_path)}
    assert owners == {0}
    assert (folder / "inner" / "made").read_text() == "y"


def test_where_root_cannot_become_nobody_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'setpriv: setresuid failed' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _name: str(program))
    with pytest.raises(PrerequisiteError, match=naming("as an ordinary user")):
        sandbox.require_working("code")
    monkeypatch.setattr(shutil, "which", {"bwrap": str(program)}.get)
    with pytest.raises(PrerequisiteError, match="util-linux"):
        sandbox.require_working("code")


def test_what_the_program_may_not_read_is_named(tmp_path: Path) -> None:
    """A package folder of root's alone: programs that run as nobody would fail one and all."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    with pytest.raises(PrerequisiteError, match=str(closed)):
        sandbox.require_working("code", sandbox.Allowed([str(closed)]))


def test_input_output_and_end(tmp_path: Path) -> None:
    def ended(*argv: str, seconds: float = 20, given: bytes = b"") -> sandbox.EndedProgram:
        return sandbox.run(
            argv, tmp_path, env={"PATH": "/usr/bin:/bin"}, seconds=seconds, standard_input=given
        )

    assert ended("cat", given="ä\n".encode()) == sandbox.EndedProgram(0, "ä\n".encode())
    assert ended("sh", "-c", "exit 3").returncode == 3
    assert ended("sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV
    assert ended("sleep", "30", seconds=0.5) == sandbox.EndedProgram(
        sandbox.TIMED_OUT_EXIT_CODE, b""
    )
    assert ended("pwd").output.decode().strip() == str(tmp_path)


def test_output_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_MAX_OUTPUT", 1_000)
    ended = sandbox.run(
        ["head", "-c", "2000", "/dev/zero"], tmp_path, env={"PATH": "/usr/bin:/bin"}, seconds=20
    )
    assert len(ended.output) == 1_000


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    duration = str(1_000_000 + os.getpid())
    start = (
        "import sys\nfrom pathlib import Path\nfrom eval_factory.core import sandbox\n"
        "sandbox.run(['sleep', sys.argv[1]], Path(sys.argv[2]), env={'PATH': '/usr/bin:/bin'}, seconds=90)"
    )
    starter = subprocess.Popen([sys.executable, "-c", start, duration, str(tmp_path)])
    try:
        wait_until(lambda: bool(running(f"sleep\0{duration}\0")))
    finally:
        starter.kill()
        starter.wait()
    wait_until(lambda: not running(f"sleep\0{duration}\0"))


def running(arguments: str) -> list[str]:
    """Processes that have these arguments and no others; the sandbox itself has more."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if arguments.encode() == file.read_bytes():
                found.append(file.parent.name)
        except OSError:  # it has ended
            continue
    return found


def test_without_bubblewrap_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(PrerequisiteError) as raised:
        sandbox.require_working("code executes what the model answers")
    why, what, nothing = str(raised.value).splitlines()
    says(why, "code", "executes")
    says(nothing, "nothing was asked")
    says(what, "bwrap is not installed", "bubblewrap", "apt-get")


def test_a_bubblewrap_that_may_not_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _name: str(program))
    with pytest.raises(
        PrerequisiteError, match=naming("cannot make a sandbox", "bwrap: No permissions")
    ):
        sandbox.require_working("code")
    program.write_text(
        "#!/bin/sh\ncase $* in *ro-bind?/odd*) exit 7; esac\nexec sh -c 'echo ready'\n"
    )
    (odd := tmp_path / "odd").mkdir()
    sandbox.require_working("code")
    program.write_text(program.read_text().replace("/odd", str(odd)))
    with pytest.raises(PrerequisiteError, match=naming("cannot make a sandbox", "code 7")):
        sandbox.require_working("code", sandbox.Allowed([str(odd)]))
    program.write_text("#!/bin/sh\nexit 7\n")
    with pytest.raises(PrerequisiteError, match=naming("cannot make a sandbox", "code 7")):
        sandbox.require_working("code")


def test_another_kind_of_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(PrerequisiteError, match=naming("Linux", "x86_64 or aarch64")):
        sandbox.run(["true"], tmp_path, env={}, seconds=1)
