"""The interface of the verdict on a death; the sources do not depend on its implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainvitals.sources.containers.evidence import Evidence


class Judgement(Protocol):
    """The verdict on a death, which the journal records and the metrics expose."""

    @property
    def reason(self) -> str:
        """The cause, which is one of the fixed set in `docs/diagnosis.md`."""
        ...

    @property
    def confidence(self) -> str:
        """The confidence: `high`, `medium` or `low`."""
        ...

    @property
    def summary(self) -> str:
        """The cause in a sentence."""
        ...


# A function that judges a death, such as `trainvitals.verdicts.causes.judge.judge`.
Judge = Callable[[Evidence], Judgement]
