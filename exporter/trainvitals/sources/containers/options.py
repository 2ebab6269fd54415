"""What can be chosen about the watch over containers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Follow = Literal["auto", "all", "none"]


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """Which containers are watched, and how.

    Attributes:
        engine: The engine's address, or `none`; None to look for one.
        journal: The folder of the journal of deaths; None for the usual one.
        follow: Whose logs are followed: of containers that are removed at their end (`auto`), of
            all, of none.
        interval_seconds: How often the control groups are looked at.
        forget_after_seconds: How long the series of a removed container stay.
    """

    engine: str | None = None
    journal: Path | None = None
    follow: Follow = "auto"
    interval_seconds: float = 10.0
    forget_after_seconds: float = 600.0
