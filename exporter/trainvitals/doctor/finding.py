"""What a check finds, and what a check is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # facts are gathered for checks, and know of none
    from trainvitals.doctor.facts import Facts

Status = Literal["ok", "warning", "problem", "not applicable"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        status: `ok`; `warning` (a run works, and worse than it could, or may fail later);
            `problem` (a run fails or is in danger); `not applicable`.
        what: What is so, with names and numbers.
        mend: The command that mends it, to be copied to a shell; empty where there is none.
        advice: What goes with the command, or stands in its place.
    """

    status: Status
    what: str
    mend: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        name: Its name, as `--checks` takes it.
        subject: What kind of thing it looks at.
        finds: What it complains of, for the list of checks.
        why: Why that matters.
        examine: Looks, and tells what it found.
        is_quick: Whether `--quick` has it.
        silence: What it means when it does not come back in time.
    """

    name: str
    subject: str
    finds: str
    why: str
    examine: Callable[[Facts], Finding]
    is_quick: bool = False
    silence: Status = "warning"


def approve(what: str) -> Finding:
    """Tell that all is well."""
    return Finding("ok", what)


def warn(what: str, mend: str = "", *, advice: str = "") -> Finding:
    """Tell what is worse than it could be."""
    return Finding("warning", what, mend, advice)


def complain(what: str, mend: str = "", *, advice: str = "") -> Finding:
    """Tell what a run fails of."""
    return Finding("problem", what, mend, advice)


def pass_over(why: str) -> Finding:
    """Tell why there is nothing to check."""
    return Finding("not applicable", why)
