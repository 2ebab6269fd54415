"""A check, and its finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainvitals.verdicts.trouble import SEVERITIES, Severity, Trouble

if TYPE_CHECKING:  # facts import no checks
    from trainvitals.doctor.facts import Facts

Status = Literal["ok", "warning", "problem", "not applicable"]

STATUSES: Mapping[Severity, Status] = {"critical": "problem", "warning": "warning", "info": "ok"}
"""The status of a check that finds a trouble of this severity."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check.

    Attributes:
        status: `ok`; `warning` (a run works, but slower than it could, or may fail later);
            `problem` (a run fails, or may fail at any time); `not applicable`.
        what: The state, with names and numbers.
        command: A shell command that fixes it or shows more; empty if there is none.
        advice: A remedy besides the command, or instead of it.
        details: A line for each thing that was examined.
    """

    status: Status
    what: str
    command: str = ""
    advice: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        name: Its name, as in `--checks`.
        subject: The group that it belongs to.
        reports: Its description, for the list of checks.
        why: The reason why it matters.
        alerts: The alerts of which it shows the verdict. What else it reports, and whatever checks
            without alerts report, concerns a run that is about to start, and no alert has it.
        run: Does the check and returns its finding.
        is_quick: Whether it is part of `--quick`.
        on_timeout: Its status if it does not finish in time.
    """

    name: str
    subject: str
    reports: str
    why: str
    run: Callable[[Facts], Finding]
    alerts: tuple[str, ...] = ()
    is_quick: bool = False
    on_timeout: Status = "warning"


def ok(what: str) -> Finding:
    """Return a finding without a fault."""
    return Finding("ok", what)


def warn(what: str, command: str = "", *, advice: str = "") -> Finding:
    """Return a warning: a run works, but slower than it could, or may fail later."""
    return Finding("warning", what, command, advice)


def fail(what: str, command: str = "", *, advice: str = "") -> Finding:
    """Return a problem: a run fails, or may fail at any time."""
    return Finding("problem", what, command, advice)


def report(what: str, troubles: Sequence[Trouble], command: str = "", advice: str = "") -> Finding:
    """Return a finding about troubles, with the status of the worst; `ok` without any."""
    found = {trouble.severity for trouble in troubles}
    worst: Severity = next((each for each in SEVERITIES if each in found), "info")
    status = STATUSES[worst]
    return ok(what) if status == "ok" else Finding(status, what, command, advice)


def skip(why: str) -> Finding:
    """Return that there is nothing to check, and why."""
    return Finding("not applicable", why)
