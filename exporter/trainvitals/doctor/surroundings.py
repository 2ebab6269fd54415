"""The world that is examined, and what the user said about it."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.listen import Address
from trainvitals.sources.accelerators.driver import Vendor
from trainvitals.sources.accelerators.vendors import VENDORS
from trainvitals.sources.files import Roots
from trainvitals.sources.kernel import ClockState

Run = Callable[[Sequence[str], float, Mapping[str, str]], "tuple[int, str] | None"]


def run_program(
    command: Sequence[str], timeout_seconds: float, environ: Mapping[str, str]
) -> tuple[int, str] | None:
    """Run a program that only tells something.

    Returns:
        Its exit code and what it printed, errors behind the rest; None where it cannot be run or
        does not end in time.
    """
    try:
        said = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(timeout_seconds, 0.1),
            env=dict(environ),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.returncode, said.stdout + said.stderr


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine, as far as checks look at it.

    Attributes:
        roots: Where its file systems are.
        environ: The environment that a run would inherit.
        vendors: Whose accelerators are looked for.
        run: Runs a program.
        connect: Connects to a host and port.
        resolve: Finds the addresses of a host.
        get_limit: Gives the soft and the hard limit of a resource; -1 for none.
        statvfs: Asks a file system.
        clock: The time of day, in seconds since 1970.
        adjtimex: Asks the kernel for its clock's error; the real call when None.
        hostname: The machine's name.
        user: The number of the user who would train.
    """

    roots: Roots = Roots()  # noqa: RUF009 - immutable
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    vendors: Sequence[Vendor] = VENDORS
    run: Run = run_program
    connect: Callable[[tuple[str, int], float], socket.socket] = socket.create_connection
    resolve: Callable[[str, int | None], Sequence[object]] = socket.getaddrinfo
    get_limit: Callable[[int], tuple[int, int]] = resource.getrlimit
    statvfs: Callable[[Path | bytes], os.statvfs_result] = os.statvfs
    clock: Callable[[], float] = time.time
    adjtimex: Callable[[], ClockState | None] | None = None
    hostname: str = field(default_factory=socket.gethostname)
    user: int = field(default_factory=os.geteuid)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user said about the run that is to come.

    Attributes:
        python: The Python that trains; None to find it.
        requirements: Files of requirements that it must meet.
        checkpoints: The folder that checkpoints go to; it need not exist.
        checkpoint_bytes: How large one is; None where nobody said.
        ports: Ports that the run needs, beside those of the stack.
        reach: Hosts and ports that must be reached.
        needed: Variables with secrets that must be set.
        engine: The container engine's address; None to look for one, `none` for none.
    """

    python: Path | None = None
    requirements: tuple[Path, ...] = ()
    checkpoints: Path = Path()
    checkpoint_bytes: int | None = None
    ports: tuple[int, ...] = ()
    reach: tuple[Address, ...] = ()
    needed: tuple[str, ...] = ()
    engine: str | None = None
