"""Ways in which a container ends, each with the expected diagnosis.

A container that waits for an action of the test first prints `ready`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

from tests.integration.engine.stage import Stage

_EAT = 'b = []\nwhile True: b.append(b"x" * (1 << 20))\n'
_EAT_WORD = "b = []; [b.append(b'x' * (1 << 20)) for _ in iter(int, 1)]"
_WAIT = 'import time\nprint("ready", flush=True)\ntime.sleep(600)\n'


def _python(code: str, *options: str) -> tuple[str, ...]:
    return ("python3", *options, "-c", dedent(code).strip())


def _after_worker(code: str) -> tuple[str, ...]:
    """Return a command whose child the OOM killer kills, and which then runs `code`."""
    head = f"""
        import subprocess, sys, time
        worker = subprocess.run([sys.executable, "-c", {_EAT_WORD!r}])
        print("worker ended with", worker.returncode, flush=True)
    """
    return _python(dedent(head) + dedent(code))


def _by_pointer(code: str) -> str:
    return f"import ctypes\nlibc = ctypes.CDLL(None)\n{code}"


_NULL = _by_pointer("ctypes.string_at(0)")
_DOUBLE_FREE = _by_pointer(
    "libc.malloc.restype = ctypes.c_void_p\n"
    "p = ctypes.c_void_p(libc.malloc(100))\n"
    "libc.free(p)\nlibc.free(p)"
)
_THROW = (
    "import ctypes\n"
    'ctypes.CDLL("libstdc++.so.6")._ZSt21__throw_runtime_errorPKc(b"NCCL communicator was aborted")'
)
_BAD_INSTRUCTION = (
    "import ctypes, mmap\n"
    "page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)\n"
    r'page.write(b"\x0f\x0b")' + "\n"
    "ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()"
)
_SHM = """
    import mmap, os
    file = os.open("/dev/shm/torch_7", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 8 << 20)
    memory = mmap.mmap(file, 8 << 20)
    memory.write(b"x" * (8 << 20))
"""
_FILLS_DISK = 'import time\ntime.sleep(1)\nopen("/d/epoch-1.pt", "wb").write(bytes(8 << 20))'
_THREADS = "import threading\nfor _ in range(9): threading.Timer(2, print).start()"
_PORT = """
    import socket
    first = socket.create_server(("", 29500))
    second = socket.socket()
    second.bind(("", 29500))
"""
_PROBED = ("--health-interval=300ms", "--health-retries=2")
_HEEDS_TERM = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("ready", flush=True)
    time.sleep(600)
"""


def _leave(_: Stage) -> None:
    """Do nothing to the container."""


def _kill(stage: Stage) -> None:
    stage.wait_for("ready")
    stage.docker("kill", stage.name)


def _remove(stage: Stage) -> None:
    stage.wait_for("ready")
    stage.docker("rm", "-f", stage.name)


def _kill_later(stage: Stage) -> None:
    stage.wait_for("worker ended")
    time.sleep(3)
    stage.docker("kill", stage.name)


def _kill_from_host(stage: Stage) -> None:
    stage.wait_for("ready")
    os.kill(stage.pid, signal.SIGKILL)


def _terminate_from_host(stage: Stage) -> None:
    stage.wait_for("ready")
    os.kill(stage.inner_pid, signal.SIGTERM)


def _interrupt(stage: Stage) -> None:
    stage.wait_for("ready")
    stage.docker("kill", "--signal=INT", stage.name)


def _stop(stage: Stage) -> None:
    stage.wait_for("ready")
    stage.docker("stop", "-t", "1", stage.name)


def _wait_for_worker(stage: Stage) -> None:
    stage.wait_for("worker ended")


def _wait_for_sickness(stage: Stage) -> None:
    def is_sick() -> bool:
        found = stage.inspect()
        return found is not None and found["State"]["Health"]["Status"] == "unhealthy"

    stage.wait_until(is_sick, "unhealthy")


def _wait_for_second_life(stage: Stage) -> None:
    stage.wait_for("second life")


def _starve_beside_sibling(stage: Stage) -> None:
    stage.wait_for("ready")
    sibling = stage.make_sibling(*WAITS)
    sibling.wait_for("ready")
    os.kill(stage.pid, signal.SIGUSR1)


def _restart(stage: Stage) -> None:
    stage.wait_for("ready")
    stage.docker("restart", "-t", "1", stage.name)


def _pause(stage: Stage) -> None:
    stage.wait_for("ready")
    stage.docker("pause", stage.name)


@dataclass(frozen=True, slots=True)
class Provocation:
    """A way in which a container ends.

    Attributes:
        number: Its row in the list that `docs/diagnosis.md` was drawn from; variants share it.
        title: The way to end, as a part of the container's name.
        reasons: The right reasons; if there are several, the evidence does not distinguish them.
        exit_code: The expected exit code; None if the container does not end.
        options: Options of `docker run`.
        command: The command in the container.
        act: The action of the test on the container.
        deaths: The expected number of deaths.
        times: The number of repetitions, each with a new container.
        parent_limit: The memory limit of the parent control group; None for the engine's own group.
        has_sibling: Whether another container, which must survive, runs in the same group.
        says: A text that the recorded log lines of the container must have.
        is_left_running: Whether the container still runs afterwards.
        shows: The metric and labels that `/metrics` must have of a container that is left running.
    """

    number: int
    title: str
    reasons: tuple[str, ...]
    exit_code: int | None
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    act: Callable[[Stage], None] = _leave
    deaths: int = 1
    times: int = 1
    parent_limit: str | None = None
    has_sibling: bool = False
    says: str = ""
    is_left_running: bool = False
    shows: tuple[str, dict[str, str]] | None = None


_ENDS_WHEN_TOLD = """
    import signal, sys
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
    print("ready", flush=True)
    signal.pause()
"""
_EATS_WHEN_TOLD = f"""
    import signal
    signal.signal(signal.SIGUSR1, lambda *_: None)
    print("ready", flush=True)
    signal.pause()
    {_EAT_WORD}
"""

WAITS = _python(_WAIT)
ENDS_WHEN_TOLD = _python(_ENDS_WHEN_TOLD)
EATS_WHEN_TOLD = _python(_EATS_WHEN_TOLD)

_SMALL = ("--memory=48m",)


PROVOCATIONS = (
    # The kernel's OOM killer.
    Provocation(1, "oom", ("oom-cgroup",), 137, _SMALL, _python(_EAT)),
    Provocation(
        1,
        "oom-at-once",
        ("oom-cgroup", "oom-missed"),
        137,
        ("--memory=16m",),
        ("dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"),
        times=20,
    ),
    Provocation(
        1,
        "oom-removed",
        ("oom-cgroup", "oom-missed"),  # a busy Docker may remove the container without an OOM event
        137,
        (*_SMALL, "--rm"),
        _python(f'import time\nprint("epoch 1", flush=True)\ntime.sleep(1)\n{_EAT}'),
        says="epoch 1",
    ),
    Provocation(2, "oom-init", ("oom-cgroup",), 137, (*_SMALL, "--init"), _python(_EAT)),
    Provocation(3, "worker-exit-1", ("oom-worker",), 1, _SMALL, _after_worker("sys.exit(1)")),
    Provocation(4, "worker-exit-0", ("oom-hidden-exit0",), 0, _SMALL, _after_worker("sys.exit(0)")),
    Provocation(
        5,
        "worker-left-alive",
        ("oom-worker-alive",),
        None,
        _SMALL,
        _after_worker("time.sleep(600)"),
        _wait_for_worker,
        is_left_running=True,
        # Of any source: a busy Docker may omit events, but the kernel counts every kill.
        shows=("container_oom_kills_total", {}),
    ),
    Provocation(
        6,
        "worker-then-kill",
        ("kill-operator",),
        137,
        _SMALL,
        _after_worker("time.sleep(600)"),
        _kill_later,
    ),
    Provocation(
        7,
        "shell-hides-it",
        ("oom-hidden-exit0",),
        0,
        _SMALL,
        ("sh", "-c", f'python3 -c "{_EAT_WORD}"; echo rc=$?'),
        says="rc=137",
    ),
    Provocation(
        8,
        "shell-passes-it",
        ("oom-cgroup",),
        137,
        _SMALL,
        ("sh", "-c", f'echo x; python3 -c "{_EAT_WORD}"; exit $?'),
    ),
    # A signal.
    Provocation(9, "kill", ("kill-operator",), 137, (), WAITS, _kill),
    Provocation(9, "rm-force", ("kill-operator",), 137, (), WAITS, _remove),
    Provocation(10, "kill-from-host", ("kill-outside",), 137, (), WAITS, _kill_from_host),
    Provocation(11, "exit-137", ("kill-outside",), 137, (), _python("raise SystemExit(137)")),
    Provocation(12, "stop-timeout", ("stop-timeout",), 137, (), WAITS, _stop),
    Provocation(
        12,
        "restart-timeout",
        ("stop-timeout",),
        137,
        (),
        WAITS,
        _restart,
        is_left_running=True,
        shows=("container_state", {"state": "running"}),
    ),
    Provocation(13, "stop-init", ("stop-graceful",), 143, ("--init",), WAITS, _stop),
    Provocation(14, "stop-heeded", ("stop-graceful",), 0, (), _python(_HEEDS_TERM), _stop),
    Provocation(
        15,
        "term-from-host",
        ("term-outside",),
        143,
        ("--init",),
        WAITS,
        _terminate_from_host,
    ),
    Provocation(16, "interrupt", ("interrupted",), 130, ("--init",), WAITS, _interrupt),
    # A crash in native code.
    Provocation(17, "null", ("segfault",), 139, (), _python(_NULL)),
    Provocation(
        17, "null-told", ("segfault",), 139, ("--init",), _python(_NULL, "-X", "faulthandler")
    ),
    Provocation(
        18,
        "null-in-shell",
        ("segfault",),
        139,
        (),
        ("bash", "-c", "python3 -c 'import ctypes; ctypes.string_at(0)'; exit $?"),
    ),
    Provocation(19, "abort", ("abort",), 139, (), _python(_DOUBLE_FREE)),
    # Without a log message, only the kernel's trap line distinguishes it from a segmentation fault.
    Provocation(
        19, "abort-silent", ("abort", "segfault"), 139, (), _python("import os; os.abort()")
    ),
    Provocation(20, "abort-init", ("abort",), 134, ("--init",), _python("import os; os.abort()")),
    Provocation(21, "throw", ("abort",), 139, (), _python(_THROW)),
    Provocation(21, "throw-init", ("abort",), 134, ("--init",), _python(_THROW)),
    Provocation(22, "shm", ("sigbus-shm",), 135, ("--shm-size=1m",), _python(_SHM)),
    Provocation(23, "instruction", ("illegal-instr",), 132, ("--init",), _python(_BAD_INSTRUCTION)),
    # A container that could not be started.
    Provocation(24, "no-command", ("start-cmd",), 127, (), ("nosuchcmd",)),
    Provocation(25, "no-program", ("start-perm",), 126, (), ("/etc/passwd",)),
    Provocation(26, "mount", ("start-mount",), 127, ("--volume=/etc:/etc/passwd",), ("true",)),
    Provocation(27, "gpus", ("start-gpu-toolkit",), 128, ("--gpus=all",), ("true",)),
    Provocation(
        29, "log-options", ("start-logdriver",), 128, ("--log-opt=compress=true",), ("true",)
    ),
    Provocation(31, "tiny", ("start-limit-too-small",), 128, (), ("true",), parent_limit="1m"),
    # A resource was exhausted or missing.
    Provocation(
        32,
        "disk",
        ("disk-full",),
        1,
        ("--tmpfs=/d:size=1m",),
        _python(_FILLS_DISK),
    ),
    Provocation(
        32,
        "disk-removed",
        ("disk-full",),
        1,
        ("--tmpfs=/d:size=1m", "--rm"),
        _python(_FILLS_DISK),
        says="No space left on device",
    ),
    # The error text is the same for both, and the file system ended with the container.
    Provocation(
        33,
        "inodes",
        ("disk-full", "inodes-full"),
        1,
        ("--tmpfs=/d:nr_inodes=10",),
        _python('for i in range(20): open(f"/d/{i}", "w").close()'),
    ),
    Provocation(34, "read-only", ("read-only",), 1, ("--read-only",), _python('open("/x", "w")')),
    Provocation(35, "threads", ("pids-limit",), 1, ("--pids-limit=5",), _python(_THREADS)),
    Provocation(36, "port", ("port-in-use",), 1, (), _python(_PORT)),
    # A state that the engine reports.
    Provocation(
        37,
        "unhealthy",
        ("unhealthy",),
        None,
        ("--health-cmd=echo no answer; exit 1", *_PROBED),
        WAITS,
        _wait_for_sickness,
        is_left_running=True,
        shows=("container_health", {"status": "unhealthy"}),
    ),
    Provocation(
        38,
        "unhealthy-hangs",
        ("unhealthy",),
        None,
        ("--health-cmd=sleep 30", "--health-timeout=500ms", *_PROBED),
        WAITS,
        _wait_for_sickness,
        is_left_running=True,
        shows=("container_health", {"status": "unhealthy"}),
    ),
    Provocation(
        39,
        "crash-loop",
        ("crash-loop",),
        3,
        ("--restart=on-failure:3",),
        ("sh", "-c", "exit 3"),
        deaths=4,
    ),
    Provocation(
        40,
        "oom-then-restart",
        ("oom-cgroup",),
        137,
        (*_SMALL, "--restart=on-failure:3"),
        (
            "sh",
            "-c",
            f'[ -e /was ] && echo second life && sleep 600; >/was; python3 -c "{_EAT_WORD}"; exit $?',
        ),
        _wait_for_second_life,
        is_left_running=True,
        shows=("container_state", {"state": "running"}),
    ),
    Provocation(
        41,
        "paused",
        ("running",),
        None,
        (),
        WAITS,
        _pause,
        is_left_running=True,
        shows=("container_state", {"state": "paused"}),
    ),
    Provocation(
        42,
        "parent",
        ("oom-parent",),
        137,
        (),
        EATS_WHEN_TOLD,
        _starve_beside_sibling,
        parent_limit="64m",
        has_sibling=True,
    ),
)

ELSEWHERE = {
    30: "test_second_engine.py takes the bridge away from an engine of its own",
    43: "test_second_engine.py stops an engine of its own",
}
NOT_HERE = {
    28: "the engine refuses to create it, so that there is no container and no event",
    44: "the machine itself would have to run out of memory",
}
