"""Causes, findings, and the verdict on a death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainvitals.verdicts.causes.case import Case

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that the evidence supports.

    Attributes:
        reason: The ID of the cause.
        summary: One sentence about the cause, with the figures of this case.
        confidence: How certain the cause is.
        speaks_for: The evidence for the cause, one sentence each.
        speaks_against: The evidence against the cause, and missing evidence.
        steps: The steps to take, the most useful first; each names a command or a setting.
    """

    reason: str
    summary: str
    confidence: Confidence
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The most likely cause of a death, and the contributing causes.

    Attributes:
        finding: The cause that takes precedence; its reason is `unknown` if no cause matches.
        contributing: Other causes that the evidence supports, in the order of the table.
    """

    finding: Finding
    contributing: tuple[Finding, ...] = ()

    @property
    def reason(self) -> str:
        """The ID of the cause, one of a closed set."""
        return self.finding.reason

    @property
    def confidence(self) -> Confidence:
        """How certain the cause is."""
        return self.finding.confidence

    @property
    def summary(self) -> str:
        """The cause in one sentence."""
        return self.finding.summary


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table of causes.

    Attributes:
        reason: The ID: lower case, words joined by hyphens; the value of the label `reason`.
        title: The cause in a few words.
        signs: The evidence that identifies the cause, for the documentation.
        meaning: The likely explanation, one or two sentences.
        steps: The general steps to take, the most useful first; each names a command or a setting.
        confidence: How certain the cause is with these signs alone.
        detect: A function that returns a finding about a case, or None if the cause does not match.
    """

    reason: str
    title: str
    signs: str
    meaning: str
    steps: tuple[str, ...]
    confidence: Confidence
    detect: Callable[[Case], Finding | None]
