"""`trainvitals serve`: the exporter as a process."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals import __version__
from trainvitals.allocator import give_back_free_memory, use_one_arena
from trainvitals.endpoints import Endpoints, observe_machine
from trainvitals.listen import parse_address
from trainvitals.machine import Machine, MachineOptions
from trainvitals.server import Server

if TYPE_CHECKING:
    from trainvitals.sources.files import Roots
    from trainvitals.web.live.firing import FiringAlerts
    from trainvitals.webconfig import WebConfigFile

_SWITCH_INTERVAL_SECONDS = 0.0001

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `trainvitals serve` was told.

    Attributes:
        listen: Addresses to listen on, as they were written.
        web_config: The file with TLS and users; None for neither.
        machine: What to look at, and where.
        prometheus: The address of the Prometheus whose alerts the live page shows; None for none.
    """

    listen: Sequence[str]
    web_config: Path | None
    machine: MachineOptions
    prometheus: str | None = None


def serve(options: ServeOptions, *, ready: Callable[[Server], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, answer what is in flight, and give the exit code.

    SIGUSR1 lets go of the accelerators' drivers for a minute, or takes them up again.

    Args:
        options: What to serve, and where.
        ready: Called once the addresses are listened on.

    Raises:
        ConfigurationError: An address or the web configuration cannot be used.
    """
    # A collector's thread makes hundreds of short calls that release the interpreter; with the
    # default of 5 ms each could wait that long for a thread that is writing a page.
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    use_one_arena()
    addresses = [parse_address(text) for text in options.listen]
    web_config = _read_web_config(options.web_config)
    roots = options.machine.roots
    alerts = _find_alerts(options.prometheus, roots)
    machine = Machine(options.machine)
    try:
        endpoints = Endpoints(machine, observe=partial(observe_machine, roots), alerts=alerts)
        server = Server(addresses, endpoints.answer, web_config=web_config)
        server.bind()
        _handle_signals(server, machine)
        for address in server.bound:
            _log.info("trainvitals %s listens on %s", __version__, address)
        if ready is not None:
            ready(server)
        gc.collect()
        gc.freeze()  # what is here now stays; the collector need not look at it again
        give_back_free_memory()
        server.run()
    finally:
        machine.close()
    _log.info("trainvitals ends")
    return 0


def _read_web_config(path: Path | None) -> WebConfigFile | None:
    if path is None:
        return None
    from trainvitals.webconfig import WebConfigFile  # noqa: PLC0415 - imports ssl

    return WebConfigFile(path)


def _find_alerts(url: str | None, roots: Roots) -> FiringAlerts | None:
    if not url:
        return None
    from trainvitals.overview.observer import name_machine  # noqa: PLC0415 - slow to import
    from trainvitals.web.live.firing import FiringAlerts, read_prometheus_url  # noqa: PLC0415

    return FiringAlerts(read_prometheus_url(url), name_machine(roots))


def _handle_signals(server: Server, machine: Machine) -> None:
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    signal.signal(signal.SIGINT, lambda *_: server.stop())
    signal.signal(signal.SIGUSR1, lambda *_: machine.let_go())
