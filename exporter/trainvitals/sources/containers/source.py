"""Read the state of this machine's containers.

Separate threads follow the containers' events while the exporter is running. A reading returns the
data that the threads have collected, and never waits for an engine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.address import find_engine
from trainvitals.sources.containers.cgrouppaths import find_groups
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.files import Roots

if TYPE_CHECKING:
    from trainvitals.sources.containers.judgement import Judge
    from trainvitals.sources.containers.monitor import ContainerMonitor

_DETECT_SECONDS = 60.0

Follow = Literal["auto", "all", "none"]


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """The options of the container collector.

    Attributes:
        engine: The container engine's address, or `none` for no engine; None to detect an engine.
        journal: The folder of the exit journal; None for the default folder.
        follow: The containers whose logs are followed: `auto` for the containers that are removed
            when they end, `all` for all containers, or `none` for no container.
        interval_seconds: The interval between samples of the control groups, in seconds.
        forget_after_seconds: The time for which the series of a removed container are kept, in
            seconds.
    """

    engine: str | None = None
    journal: Path | None = None
    follow: Follow = "auto"
    interval_seconds: float = 10.0
    forget_after_seconds: float = 600.0


class ContainerSource:
    """Watches the containers of this machine.

    If the machine has neither an engine nor a container's control group, readings repeat the check
    at most once a minute.

    Args:
        options: The options of the container collector.
        judge: A function that returns the verdict on a container exit.
        roots: The paths of the host's file systems.
        accelerators: The source of the processes that use an accelerator; None to report no
            accelerators.
        environ: The environment, from which variables such as `DOCKER_HOST` and
            `TRAINVITALS_JOURNAL_DIR` are read; None for this process's environment.
        clock: A function that returns the time, in seconds since 1970.
        monotonic: A function that returns the value of a monotonic clock, in seconds.

    Raises:
        ConfigurationError: The engine's address is invalid, or the certificates cannot be read.
    """

    def __init__(
        self,
        options: ContainerOptions = ContainerOptions(),
        *,
        judge: Judge,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        accelerators: AcceleratorSource | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._judge = judge
        self._roots = roots
        self._accelerators = accelerators
        self._environ = os.environ if environ is None else environ
        self._clock = clock
        self._monotonic = monotonic
        self._monitor: ContainerMonitor | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._detected = monotonic()
        self._detect()

    def read(self) -> ContainersReading:
        """Return the latest state of all containers."""
        with self._lock:
            is_due = self._monotonic() - self._detected >= _DETECT_SECONDS
            if self._monitor is None and not self._is_closed and is_due:
                self._detected = self._monotonic()
                self._detect()
            monitor = self._monitor
        return ContainersReading(is_there=False) if monitor is None else monitor.read()

    def close(self) -> None:
        """Stop watching containers; this blocks for at most about a second."""
        with self._lock:
            self._is_closed = True
            monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()

    def _detect(self) -> None:
        address = find_engine(
            self._options.engine, environ=self._environ, rootfs=self._roots.rootfs
        )
        if address is None and not find_groups(self._roots, most=1):
            return
        # The import uses 8 MiB of memory, which a machine without containers does not need.
        from trainvitals.sources.containers.monitor import start_monitor  # noqa: PLC0415

        self._monitor = start_monitor(
            self._options,
            address,
            roots=self._roots,
            accelerators=self._accelerators,
            environ=self._environ,
            judge=self._judge,
            clock=self._clock,
        )
