"""The containers of this machine, as they are known right now.

What happens to them is followed by threads of its own, from the first moment on; to read is only
to look at what they know, and never waits for an engine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.cgrouppaths import find_groups
from trainvitals.sources.containers.options import ContainerOptions
from trainvitals.sources.containers.reading import ContainersReading
from trainvitals.sources.files import Roots

if TYPE_CHECKING:
    from trainvitals.sources.containers.station import Station

_LOOK_AGAIN_SECONDS = 60.0

__all__ = ["ContainerOptions", "ContainerSource"]


class ContainerSource:
    """Watches the containers of this machine.

    Where there is neither an engine nor a container's control group, it looks for them again once
    a minute, when it is read.

    Args:
        options: Which containers, and how.
        roots: Where the host's file systems are.
        accelerators: Knows which processes hold an accelerator; None where nobody does.
        environ: Has `DOCKER_HOST`, `TRAINVITALS_JOURNAL_DIR` and their like.
        clock: The time of day, in seconds since 1970.
        monotonic: Seconds of a clock that nobody sets.

    Raises:
        ConfigurationError: No address is written like the engine's.
    """

    def __init__(
        self,
        options: ContainerOptions = ContainerOptions(),  # noqa: B008 - immutable
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        accelerators: AcceleratorSource | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._roots = roots
        self._accelerators = accelerators
        self._environ = os.environ if environ is None else environ
        self._clock = clock
        self._monotonic = monotonic
        self._post: Station | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._look()

    def read(self) -> ContainersReading:
        """Tell what is known of all containers."""
        with self._lock:
            is_due = self._monotonic() - self._looked >= _LOOK_AGAIN_SECONDS
            if self._post is None and not self._is_closed and is_due:
                self._looked = self._monotonic()
                self._look()
            post = self._post
        return ContainersReading(is_there=False) if post is None else post.read()

    def close(self) -> None:
        """Stop watching; what is under way is waited for a second at most."""
        with self._lock:
            self._is_closed = True
            post, self._post = self._post, None
        if post is not None:
            post.close()

    def _look(self) -> None:
        # Brings TLS along, which a program that only asks for the flags can do without.
        from trainvitals.sources.containers.engine import find_engine  # noqa: PLC0415

        address = find_engine(
            self._options.engine, environ=self._environ, rootfs=self._roots.rootfs
        )
        if address is None and not find_groups(self._roots, most=1):
            return
        # Costs 8 MiB, which nobody need pay where nothing runs in containers.
        from trainvitals.sources.containers.station import open_station  # noqa: PLC0415

        self._post = open_station(
            self._options,
            address,
            roots=self._roots,
            accelerators=self._accelerators,
            environ=self._environ,
            clock=self._clock,
        )
