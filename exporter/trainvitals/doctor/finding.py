"""A check, and its finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # facts import no checks
    from trainvitals.doctor.facts import Facts

Status = Literal["ok", "warning", "problem", "not applicable"]


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
        run: Does the check and returns its finding.
        is_quick: Whether it is part of `--quick`.
        on_timeout: Its status if it does not finish in time.
    """

    name: str
    subject: str
    reports: str
    why: str
    run: Callable[[Facts], Finding]
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


def skip(why: str) -> Finding:
    """Return that there is nothing to check, and why."""
    return Finding("not applicable", why)
