"""A process that holds a fake accelerator in one of the situations in which accelerators idle.

    python -m tests.fakes.idling SITUATION FOLDER

Once the situation is set up, the program prints the PID of the process that holds the accelerator.
Every process ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PTRACE_TRACEME = 1, 15, 0
_MIB = 1 << 20


def begin(pid: int | None = None) -> None:
    """Print the PID of the process that holds the accelerator; by default it is this process."""
    print(pid or os.getpid(), flush=True)


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def name(text: str) -> None:
    """Set the name of the calling thread, as libraries do."""
    _LIBC.prctl(_PR_SET_NAME, text.encode())


def burn() -> None:
    """Use one CPU without end."""
    while True:
        pass


def sleep() -> None:
    """Do nothing."""
    while True:
        time.sleep(3600)


def fork(body: Callable[[], object], title: str = "") -> int:
    """Start a child process."""
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        if title:
            name(title)
        body()
        os._exit(0)
    return pid


def receive() -> None:
    """Wait for a peer that sends nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    _peer = server.accept()
    client.recv(1)


def read_slowly() -> None:
    """Read a file repeatedly, from the disk instead of the page cache, at 10 MiB a second."""
    path = Path(sys.argv[2]) / f"data-{os.getpid()}"
    path.write_bytes(os.urandom(4 * _MIB))
    while True:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(descriptor, _MIB):
            time.sleep(0.1)
        os.close(descriptor)


def poll() -> None:
    """Wait for an event that never comes."""
    select.epoll().poll()


def start(role: str, **environ: str) -> subprocess.Popen[bytes]:
    """Start another situation as a program, and return once the situation is set up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.idling", role, sys.argv[2]],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def wait_for_named_pipe() -> None:
    """Read a named pipe into which nothing is written."""
    path = Path(sys.argv[2]) / "fifo"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    begin()
    os.read(descriptor, 1)


def wait_for_feeder() -> None:
    """Read a pipe to which a child process writes nothing."""
    out, _into = os.pipe()
    fork(sleep)
    begin()
    os.read(out, 1)


def wait_for_network() -> None:
    """Receive from a peer that sends nothing."""
    begin()
    receive()


def wait_for_file() -> None:
    """Read a file slowly."""
    begin()
    read_slowly()


def wait_for_busy_workers() -> None:
    """Wait while two loader workers compute."""
    for _ in range(2):
        fork(burn, "pt_data_worker")
    begin()
    poll()


def wait_for_reading_worker() -> None:
    """Wait while a loader worker reads a file."""
    fork(read_slowly)
    begin()
    poll()


def wait_for_receiving_workers() -> None:
    """Wait while two loader workers wait for the network."""
    for _ in range(2):
        fork(receive, "pt_data_worker")
    begin()
    poll()


def compute() -> None:
    """Use one CPU without end."""
    begin()
    burn()


def compute_in_thread() -> None:
    """Use a CPU in a thread, while the first thread waits for it."""
    thread = threading.Thread(target=burn)
    thread.start()
    begin()
    thread.join()


def stop() -> None:
    """Stop this process by SIGSTOP."""
    begin()
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_in_debugger() -> None:
    """Stop a child process under a debugger, which is this process."""

    def wait_for_debugger() -> None:
        _LIBC.ptrace(_PTRACE_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)

    pid = fork(wait_for_debugger)
    os.waitpid(pid, os.WUNTRACED)
    begin(pid)
    sleep()


def sleep_in_loop() -> None:
    """Sleep."""
    begin()
    sleep()


def wait_at_terminal() -> None:
    """Wait for a line at a terminal, as an interpreter does."""
    _keyboard, terminal = pty.openpty()
    begin()
    os.read(terminal, 1)


def wait_as_notebook() -> None:
    """Wait for events, beside a thread with the name of a thread of a notebook's kernel."""
    threading.Thread(target=lambda: (name("ZMQbg/IO/0"), sleep())).start()
    begin()
    poll()


def compile_kernels() -> None:
    """Wait for a compiler and the assembler that it started."""
    fork(lambda: (fork(burn, "ptxas"), sleep()), "nvcc")
    begin()
    sleep()


def compile_extension() -> None:
    """Wait for a build whose compiler waits, too."""
    fork(lambda: (fork(sleep, "cc1plus"), sleep()), "ninja")
    begin()
    poll()


def compile_with_torch() -> None:
    """Wait for a worker of torch.compile."""
    _worker = start("compute", TORCH_WARM_POOL="0")
    begin()
    sleep()


def end_unseen_by_parent() -> None:
    """End a child process without reaping it, so that it remains a zombie."""
    pid = fork(lambda: None)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    begin(pid)
    sleep()


def launch(other: str) -> None:
    """Start two ranks, the first of which waits for the second."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
    rank = start("wait_for_network", RANK="0", **variables)
    _other = start(other, RANK="1", **variables)
    begin(rank.pid)
    sleep()


def wait_for_computing_rank() -> None:
    """Wait for a rank that computes on the CPU."""
    launch("compute")


def wait_for_stopped_rank() -> None:
    """Wait for a rank that is stopped."""
    launch("stop")


if __name__ == "__main__":
    end_with_parent()
    globals()[sys.argv[1]]()
