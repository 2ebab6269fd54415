"""Configuration read again by programs that run."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.stack.programs import Program, fetch
from trainvitals.stack.supervision import ask_states

RELOADS = ("prometheus", "alertmanager")
_READING = re.compile(
    r"^(?:prometheus|alertmanager)_config_last_reload_"
    r"(successful|success_timestamp_seconds) (\S+)$",
    re.MULTILINE,
)
_STEP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class _Reload:
    is_successful: bool
    succeeded_at: str


def reload_programs(
    state_dir: Path, programs: tuple[Program, ...], *, patience_seconds: float = 15.0
) -> None:
    """Let Prometheus and Alertmanager read their configuration again; they answer all the while.

    Raises:
        StackError: One refuses its new configuration and goes on with the old one.
    """
    pids = {state.name: state.pid for state in ask_states(state_dir) or ()}
    for program in programs:
        pid = pids.get(program.name)
        if program.name in RELOADS and pid is not None:
            reload_program(
                program,
                # No page for this in Prometheus: whoever can open one could make it quit as well.
                partial(os.kill, pid, signal.SIGHUP),
                look=f"read {program.log(state_dir)}",
                patience_seconds=patience_seconds,
            )


def reload_program(
    program: Program,
    hang_up: Callable[[], None],
    *,
    look: str,
    patience_seconds: float = 15.0,
) -> None:
    """Let one program read its configuration again and wait until it says how that went.

    Args:
        program: Prometheus or Alertmanager.
        hang_up: Sends it SIGHUP.
        look: Where a person finds what it complains about.
        patience_seconds: How long it may take.

    Raises:
        StackError: It refuses its new configuration and goes on with the old one.
    """
    before = _read(program)
    deadline = time.monotonic() + patience_seconds
    hang_up()
    while time.monotonic() < deadline:
        now = _read(program)
        if now and before and now.succeeded_at != before.succeeded_at:
            return
        # A refusal that follows a refusal changes nothing that can be read.
        if now and before and before.is_successful and not now.is_successful:
            break
        time.sleep(_STEP_SECONDS)
    now = _read(program)
    if now and not now.is_successful:
        raise StackError(
            f"{program.name} refuses its configuration and goes on with the old one: {look}"
        )


def _read(program: Program) -> _Reload | None:
    """Read from a program's own metrics how its last reload went; None where it does not say."""
    page = fetch(program.port, "/metrics", host=program.host)
    told = dict(_READING.findall(page.decode("utf-8", "replace"))) if page else {}
    if len(told) < len(RELOADS):
        return None
    return _Reload(told["successful"] == "1", told["success_timestamp_seconds"])
