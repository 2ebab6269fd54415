"""A check of the machine, and the finding that a check returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainvitals.verdicts.trouble import SEVERITIES, Severity, Trouble

if TYPE_CHECKING:  # the module `facts` does not import this module
    from trainvitals.doctor.facts import Facts

Status = Literal["ok", "warning", "problem", "not applicable"]

STATUSES: Mapping[Severity, Status] = {"critical": "problem", "warning": "warning", "info": "ok"}
"""The status of a check that finds a trouble with this severity."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of the machine.

    Attributes:
        status: `ok`; `warning` (a run works, but is slower than possible or may fail later);
            `problem` (a run fails, or may fail at any time); `not applicable`.
        what: The observed state, with names and numbers.
        command: A shell command that fixes the problem or shows more details; may be empty.
        advice: A remedy in addition to the command or instead of it.
        details: One line for each item that the check examined.
    """

    status: Status
    what: str
    command: str = ""
    advice: str = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the machine that is made before a run.

    Attributes:
        name: The check's name, which `--checks` accepts.
        subject: The group to which the check belongs.
        reports: The check's description, which the list of checks contains.
        why: The reason why the check matters.
        alerts: The alerts whose conditions the check evaluates. Other findings correspond to no
            alert and concern a run that is about to start.
        run: Performs the check and returns the finding.
        is_quick: Whether the check is run with `--quick`.
        on_timeout: The check's status if it does not finish in time.
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
    """Return a finding with the status `ok`."""
    return Finding("ok", what)


def warn(what: str, command: str = "", *, advice: str = "") -> Finding:
    """Return a finding with the status `warning`: a run works, but is slow or may fail later."""
    return Finding("warning", what, command, advice)


def fail(what: str, command: str = "", *, advice: str = "") -> Finding:
    """Return a finding with the status `problem`: a run fails, or may fail at any time."""
    return Finding("problem", what, command, advice)


def report(what: str, troubles: Sequence[Trouble], command: str = "", advice: str = "") -> Finding:
    """Return a finding with the status of the worst trouble; `ok` if no trouble was found."""
    found = {trouble.severity for trouble in troubles}
    worst: Severity = next((each for each in SEVERITIES if each in found), "info")
    status = STATUSES[worst]
    return ok(what) if status == "ok" else Finding(status, what, command, advice)


def skip(why: str) -> Finding:
    """Return a finding with the status `not applicable`, which contains the reason."""
    return Finding("not applicable", why)
