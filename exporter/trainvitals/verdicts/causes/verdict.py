"""Causes, findings, and the verdict on a death."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainvitals.verdicts.causes.case import Case

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that the evidence supports, with the evidence and the recommended steps.

    Attributes:
        reason: The ID of the cause.
        summary: One sentence about the cause, with the figures of this case.
        confidence: The confidence in the cause.
        speaks_for: The evidence for the cause, as sentences.
        speaks_against: The evidence against the cause and the evidence that is missing, as
            sentences.
        steps: The steps to take, the most useful first; each step names a command or a setting.
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
        """The ID of the most likely cause, which is one of a closed set."""
        return self.finding.reason

    @property
    def confidence(self) -> Confidence:
        """The confidence that the most likely cause is correct."""
        return self.finding.confidence

    @property
    def summary(self) -> str:
        """A sentence that describes the most likely cause."""
        return self.finding.summary


@dataclass(frozen=True, slots=True)
class Cause:
    """A row in the table of causes.

    Attributes:
        reason: The ID of the cause, in lower case with hyphens between words. The label `reason`
            has this value.
        title: A short name for the cause.
        signs: A description, for the documentation, of the evidence that identifies the cause.
        meaning: One or two sentences that explain what probably happened.
        steps: The general steps to take, the most useful first. Each step names a command or a
            setting.
        confidence: The confidence in the cause that these signs alone justify.
        detect: A function that returns a finding about a case, or None if the cause does not match.
    """

    reason: str
    title: str
    signs: str
    meaning: str
    steps: tuple[str, ...]
    confidence: Confidence
    detect: Callable[[Case], Finding | None]
