"""What the verdict on a death is to the sources, which do not know who judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainvitals.sources.containers.evidence import Evidence


class Judgement(Protocol):
    """The verdict on a death, as the journal keeps it and the metrics serve it."""

    @property
    def reason(self) -> str:
        """The cause: one of the closed set of `docs/diagnosis.md`."""
        ...

    @property
    def confidence(self) -> str:
        """`high`, `medium` or `low`."""
        ...

    @property
    def summary(self) -> str:
        """The cause in a sentence."""
        ...


# Judges a death; `trainvitals.verdicts.causes.judge.judge`, which sources do not know.
Judge = Callable[[Evidence], Judgement]
