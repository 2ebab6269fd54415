"""What is told of what went wrong: alerts that fired and containers that died."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert that fired, each time that it did.

    Attributes:
        alert: Its name.
        severity: `critical`, `warning` or `info`.
        instance: The machine; empty for none.
        subject: The run, container, device or mount point; empty for the machine.
        verdict: What it means, and what was found out.
        spans: From when until when it fired; an end at the end of the period where it still did.
        is_firing: Whether it still fired at the end.
        resolution: How it ended.
    """

    alert: str
    severity: str
    instance: str
    subject: str
    verdict: str
    spans: tuple[tuple[float, float], ...]
    is_firing: bool
    resolution: str

    @property
    def seconds(self) -> float:
        """How long it fired, all together."""
        return sum(end - begin for begin, end in self.spans)


@dataclass(frozen=True, slots=True)
class Deaths:
    """Deaths of one container for one reason.

    Attributes:
        instance: Its machine.
        name: The container.
        reason: One of the closed set of `docs/diagnosis.md`.
        count: How many.
        last: When it last died.
        is_running: Whether it ran at the end; None unknown.
    """

    instance: str
    name: str
    reason: str
    count: int
    last: float
    is_running: bool | None
