"""How fast the cores run, from `/sys/devices/system/cpu/cpufreq`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots

_HERTZ_PER_KHZ = 1000


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The clock frequencies of the cores that were asked.

    Attributes:
        mean_hertz: Their mean.
        min_hertz: That of the slowest.
        max_hertz: That of the fastest.
    """

    mean_hertz: float
    min_hertz: int
    max_hertz: int


class FrequencySource:
    """Reads the clock frequencies of the cores.

    Some kernels make every such read wait 10 ms and more, so that a pass over 128 cores takes
    seconds. A reading stops when its time is spent, and the next one goes on from there.

    Args:
        roots: Where `/sys` is.
        clock: Seconds that never go back.
        limit: The most frequency policies (cores, or groups of cores) to ask.
        budget_seconds: How long one reading may take.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        limit: int = 32,
        budget_seconds: float = 0.005,
    ) -> None:
        self._folder = roots.sysfs / "devices/system/cpu/cpufreq"
        self._clock = clock
        self._limit = limit
        self._budget_seconds = budget_seconds
        self._files: list[KeptFile] | None = None
        self._next = 0

    def read(self) -> Frequencies | None:
        """Read the frequencies as they are now.

        Returns:
            The frequencies; None where the kernel does not know them, as in most virtual
            machines.
        """
        if self._files is None:
            self._files = self._find()
        hertz = self._ask(self._files)
        if not hertz:
            return None
        return Frequencies(sum(hertz) / len(hertz), min(hertz), max(hertz))

    def forget(self) -> None:
        """Close the files and look anew for the policies at the next reading."""
        for file in self._files or ():
            file.close()
        self._files = None
        self._next = 0

    def _find(self) -> list[KeptFile]:
        policies = sorted(self._folder.glob("policy*"), key=lambda path: (len(path.name), path))
        return [
            KeptFile(policy / "scaling_cur_freq", single=True) for policy in policies[: self._limit]
        ]

    def _ask(self, files: list[KeptFile]) -> list[int]:
        hertz = []
        until = self._clock() + self._budget_seconds
        for _ in files:
            file = files[self._next]
            self._next = (self._next + 1) % len(files)
            try:
                hertz.append(int(file.read() or b"") * _HERTZ_PER_KHZ)
            except (SourceError, ValueError):  # "<unknown>", or a core that was switched off
                continue
            finally:
                late = self._clock() >= until
            if late:
                break
        return hertz
