"""A real process that writes a run file, for tests of the programs that read run files."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from trainvitals.runfile import EMPTY_STATE, EMPTY_STEP, STATE, STEP, Identity, State
from trainvitals.runfile.codec import encode_header
from trainvitals.sources.runs.liveness import read_host

WRITER = Path(__file__).with_name("writer.py")
SOURCE_ROOT = Path(__file__).parents[4] / "exporter"


class Trainer:
    """A process that writes a run file and executes commands, which `writer.py` defines.

    Args:
        directory: The run directory.
        rank: The rank of the process.
        run: The name of the run.
        wrapper: A command that runs the writer, such as `unshare`.

    Attributes:
        process: The writer, or the wrapper that runs the writer.
        path: The path of the run file.
    """

    def __init__(
        self, directory: Path, *, rank: int = 0, run: str = "run", wrapper: Sequence[str] = ()
    ) -> None:
        writer = [sys.executable, "-S", "-E", WRITER, SOURCE_ROOT, directory, str(rank), run]
        self.process = subprocess.Popen(
            [*wrapper, *writer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.path = Path(self.process.stdout.readline().strip())

    @property
    def pid(self) -> int:
        """The PID of the process, or of its wrapper."""
        return self.process.pid

    def do(self, command: str) -> str:
        """Send a command and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self, number: int = 9) -> None:
        """Send a signal and wait for the process to end."""
        os.kill(self.pid, number)
        self.process.wait()

    def __enter__(self) -> Trainer:  # noqa: PYI034 - Self is newer than Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def compose_run_file(
    run: str = "run",
    *,
    rank: int = 0,
    pid: int = 4000000,
    boot_id: bytes | None = None,
    state: State = State.RUNNING,
    wall_time: float = 1000.0,
    loss: float = 0.5,
    created_time: float = 0.0,
    **others: float,
) -> bytes:
    """Return a run file as a process in another PID namespace of this boot could write it."""
    identity = Identity(
        run,
        rank=rank,
        pid=pid,
        start_ticks=4711,
        boot_id=read_host().boot_id if boot_id is None else boot_id,
        pid_namespace=1,
        created_time=created_time,
    )
    step, words = list(EMPTY_STEP), list(EMPTY_STATE)
    step[STEP["wall_time"]] = words[STATE["wall_time"]] = wall_time
    for name, value in {"loss": loss, **others}.items():
        row, at = (step, STEP[name]) if name in STEP else (words, STATE[name])
        row[at] = value
    words[STATE["state"]], words[STATE["state_time"]] = float(state), wall_time
    data = bytearray(16384)
    data[:4096] = encode_header(identity)
    for at, row in ((8192, step), (10240, words)):
        slot = struct.pack(f"<2Q{len(row) - 2}d", 2, len(row), 1.0, *row[3:])
        slot += struct.pack("<Q", zlib.crc32(slot))
        data[at : at + len(slot)] = slot
    return bytes(data)


_HOLD = """
import fcntl, os, sys
user, *paths = sys.argv[1:]
files = [open(path, "r+b") for path in paths]
os.setuid(int(user))
for file in files:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(*paths: Path, user: int) -> Iterator[None]:
    """Hold the locks of run files in a process of the given user, as their writers do."""
    command = [sys.executable, "-S", "-E", "-c", _HOLD, str(user), *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield
        process.kill()


@cache
def kernel_tells_exits() -> bool:
    """Return whether the kernel reports exits of processes that were waited for (Linux 6.15)."""
    if not hasattr(os, "pidfd_open"):
        return False
    get_info, exit_info = 0xC040FF0B, 1 << 3
    info = bytearray(struct.pack("=Q56x", exit_info))
    with subprocess.Popen(["sleep", "60"]) as process:
        pidfd = os.pidfd_open(process.pid)
        process.kill()
    try:
        fcntl.ioctl(pidfd, get_info, info)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return bool(struct.unpack_from("=Q", info)[0] & exit_info)
