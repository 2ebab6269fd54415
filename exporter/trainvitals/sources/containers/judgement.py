"""The interface of verdicts on container exits; the sources depend only on this interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainvitals.sources.containers.evidence import Evidence


class Judgement(Protocol):
    """The verdict on an exit, which the journal records and the metrics expose."""

    @property
    def reason(self) -> str:
        """The cause of the exit, which is one of the causes in `docs/diagnosis.md`."""
        ...

    @property
    def confidence(self) -> str:
        """The confidence in the cause: `high`, `medium` or `low`."""
        ...

    @property
    def summary(self) -> str:
        """The cause of the exit, in a sentence."""
        ...


# A function that returns the verdict on an exit: `trainvitals.verdicts.causes.judge.judge`.
Judge = Callable[[Evidence], Judgement]
