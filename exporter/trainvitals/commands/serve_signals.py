"""The signals of `trainvitals serve`.

A handler may interrupt any statement of the main thread, so what takes more than setting a flag is
done by the server's loop.
"""

from __future__ import annotations

import logging
import signal
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainvitals.http.server import Server
    from trainvitals.http.web_config import WebConfigFile
    from trainvitals.metrics.machine import Machine

_LOG = logging.getLogger(__name__)


def ignore_hangup() -> None:
    """Ignore SIGHUP until `handle_signals`: all files are about to be read."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def handle_signals(server: Server, machine: Machine, web_config: WebConfigFile | None) -> None:
    """Handle the signals of the exporter.

    SIGTERM and SIGINT end it, SIGHUP has it read its files again, and SIGUSR1 releases the drivers of
    accelerators for a minute, or takes them up again.
    """
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    signal.signal(signal.SIGINT, lambda *_: server.stop())
    signal.signal(signal.SIGUSR1, lambda *_: machine.release())
    reload = partial(_reload, machine, web_config)
    signal.signal(signal.SIGHUP, lambda *_: server.call_soon(reload))


def _reload(machine: Machine, web_config: WebConfigFile | None) -> None:
    _LOG.info("reading the files again after SIGHUP")
    if web_config is not None:
        web_config.reload()
    machine.reload()
