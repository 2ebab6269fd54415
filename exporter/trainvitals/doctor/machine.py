"""The machine to check, and the user's options for the checks."""

from __future__ import annotations

import os
import pwd
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.http.listen import Address, PortHolder, find_port_holder
from trainvitals.sources import external_program
from trainvitals.sources.accelerators.vendor import Vendor
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel import ClockState
from trainvitals.sources.http_client import fetch_page
from trainvitals.sources.runs.ownership import DEFAULT_RUN_DIR

Run = Callable[[Sequence[str], float, Mapping[str, str]], "tuple[int, str] | None"]


def run_program(
    command: Sequence[str], timeout_seconds: float, environ: Mapping[str, str]
) -> tuple[int, str] | None:
    """Run a read-only program and capture its output.

    Returns:
        The exit code and the output, with standard error last; None if the program cannot be
        started or does not finish in time.
    """
    try:
        ran = external_program.run(
            command, timeout_seconds=max(timeout_seconds, 0.1), environ=environ
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.returncode, ran.stdout + ran.stderr


def name_user(user: int) -> str:
    """Return the name of the user with a user ID, or `user ID` if no user has this ID."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that is checked, and the functions with which checks examine the machine.

    Attributes:
        roots: The root directories of the machine's file systems.
        environ: The environment that a run would inherit.
        vendors: The vendors whose accelerators are read.
        run: Runs a read-only program, as `run_program` does.
        connect: Connects to a TCP port of a host.
        resolve: Returns the IP addresses of a host name.
        fetch_page: Fetches a page from a program on this machine, as `http_client.fetch_page` does.
        find_holder: Returns the process that listens on a port of this machine.
        get_limit: Returns a resource's soft limit and hard limit; -1 means that no limit is set.
        statvfs: Returns the state of a file system.
        clock: Returns the current time in Unix seconds.
        adjtimex: Returns the kernel's clock state; None to make the system call.
        hostname: The host name of the machine.
        user: The user ID that a run would have.
    """

    roots: Roots = Roots()  # noqa: RUF009 - immutable
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    vendors: Sequence[Vendor] = VENDORS
    run: Run = run_program
    connect: Callable[[tuple[str, int], float], socket.socket] = socket.create_connection
    resolve: Callable[[str, int | None], Sequence[object]] = socket.getaddrinfo
    fetch_page: Callable[..., bytes | None] = fetch_page
    find_holder: Callable[[int], PortHolder | None] = find_port_holder
    get_limit: Callable[[int], tuple[int, int]] = resource.getrlimit
    statvfs: Callable[[Path | bytes], os.statvfs_result] = os.statvfs
    clock: Callable[[], float] = time.time
    adjtimex: Callable[[], ClockState | None] | None = None
    hostname: str = field(default_factory=socket.gethostname)
    user: int = field(default_factory=os.geteuid)

    @property
    def run_directory(self) -> Path:
        """The run directory of a run that is started in this environment."""
        return Path(self.environ.get("TRAINVITALS_RUN_DIR") or DEFAULT_RUN_DIR)


@dataclass(frozen=True, slots=True)
class Options:
    """The user's options, which describe the requirements of the run.

    Attributes:
        python: The run's Python interpreter; None to detect the interpreter.
        requirements: The requirements files that the interpreter's packages must satisfy.
        checkpoints: The checkpoint directory, which need not exist.
        checkpoint_bytes: The size of a checkpoint in bytes; None if the size is unknown.
        ports: The ports that must be free, besides the stack's ports.
        reach: The addresses (host and port) that must accept connections.
        needed: The environment variables that must be set.
        engine: The address of the container engine; `none` if no engine is to be queried; None for
            the first engine that is found.
    """

    python: Path | None = None
    requirements: tuple[Path, ...] = ()
    checkpoints: Path = Path()
    checkpoint_bytes: int | None = None
    ports: tuple[int, ...] = ()
    reach: tuple[Address, ...] = ()
    needed: tuple[str, ...] = ()
    engine: str | None = None
