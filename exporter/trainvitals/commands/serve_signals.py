"""Handles the signals of `trainvitals serve`.

A signal handler may interrupt any statement in the main thread, so the handlers only set flags, and
the server's loop does the remaining work.
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
    """Ignore SIGHUP until `handle_signals` is called, because all files are read later anyway."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def handle_signals(server: Server, machine: Machine, web_config: WebConfigFile | None) -> None:
    """Install the exporter's signal handlers.

    On SIGTERM and SIGINT, the exporter exits. On SIGHUP, the exporter reloads its files. On
    SIGUSR1, the exporter releases the accelerator drivers for one minute, or reopens released
    drivers.
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
