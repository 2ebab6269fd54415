"""What was made of the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainvitals.causes.case import Case

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that the evidence speaks for.

    Attributes:
        reason: The cause's ID.
        summary: What happened, one sentence with this very container's figures.
        confidence: How sure that is.
        speaks_for: What of the evidence speaks for it, a sentence each.
        speaks_against: What speaks against it, or should be there and is not.
        steps: What to do, the most useful first; each names a command or a setting.
    """

    reason: str
    summary: str
    confidence: Confidence
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What it died of, as far as that can be told.

    Attributes:
        finding: The cause that goes before all others; its reason is `unknown` where none fits.
        contributing: Other causes that the evidence speaks for too, in the order of the table.
    """

    finding: Finding
    contributing: tuple[Finding, ...] = ()

    @property
    def reason(self) -> str:
        """The cause's ID, one of a closed set."""
        return self.finding.reason


@dataclass(frozen=True, slots=True)
class Cause:
    """One line of the table of causes.

    Attributes:
        reason: Its ID: lower case, words joined by hyphens; the value of the label `reason`.
        title: What it is, in a few words.
        signs: What it is known by, for the documentation.
        meaning: The likely cause, a sentence or two.
        steps: What to do in general, the most useful first; each names a command or a setting.
        confidence: How sure it is where only these signs are there.
        look: Looks at a case and gives a finding, or None where it does not fit.
    """

    reason: str
    title: str
    signs: str
    meaning: str
    steps: tuple[str, ...]
    confidence: Confidence
    look: Callable[[Case], Finding | None]
