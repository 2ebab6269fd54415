"""The cores' clock frequencies, read from `/sys/devices/system/cpu` or `/proc/cpuinfo`."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainvitals.errors import SourceError
from trainvitals.sources.files import KeptFile, Roots

_HERTZ_PER_KHZ = 1000
_AGE_SECONDS, _CPUINFO_AGE_SECONDS = 60.0, 15.0  # `/proc/cpuinfo` is long if there are many cores
_HERTZ_PER_MHZ = 1_000_000
# Some drivers provide only the second file, which only root can read.
_FILES = ("scaling_cur_freq", "cpuinfo_cur_freq")
_FILE_BYTES = 64
_KILOHERTZ = re.compile(rb"[1-9][0-9]{0,8}")
# The line with a core's frequency on x86, s390 and POWER.
_MEGAHERTZ = re.compile(
    rb"(?m)^(?:cpu MHz(?: dynamic)?|clock)\s*: ([0-9]{1,6}(?:\.[0-9]{1,9})?)(?:MHz)?$"
)
_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Statistics of the core clock frequencies that were read.

    Attributes:
        mean_hertz: The mean frequency of the cores.
        min_hertz: The frequency of the slowest core.
        max_hertz: The frequency of the fastest core.
    """

    mean_hertz: float
    min_hertz: int
    max_hertz: int


class FrequencySource:
    """Reads the cores' clock frequencies.

    On some kernels, reading a core's frequency takes 10 ms or more, so reading 128 cores takes more
    than a second. Therefore, a reading stops after `budget_seconds`, and the next reading continues
    with the next core. The order of the cores is chosen so that even a few cores cover all sockets.
    A core's frequency is used for one minute after it was read.

    If `/sys` contains no frequencies, as on most virtual machines, the frequencies are read from
    `/proc/cpuinfo`.

    Args:
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns a monotonic time in seconds.
        budget_seconds: The maximum duration of one reading of `/sys`.
    """

    def __init__(
        self,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
        clock: Callable[[], float] = time.monotonic,
        budget_seconds: float = 0.005,
    ) -> None:
        self._cpus = roots.sysfs / "devices/system/cpu"
        self._cpuinfo = KeptFile(roots.procfs / "cpuinfo")
        self._clock = clock
        self._budget_seconds = budget_seconds
        self._paths: Sequence[str] | None = None
        self._next = 0
        self._known: dict[str, tuple[int, float]] = {}
        self._stated: Frequencies | None = None
        self._stated_until = -math.inf

    def read(self) -> Frequencies | None:
        """Read the cores' current clock frequencies.

        Returns:
            Statistics of the frequencies; None if the kernel does not report frequencies.
        """
        if self._paths is None:
            self._paths = _spread(_find_files(self._cpus))
        self._ask(self._paths)
        oldest = self._clock() - _AGE_SECONDS
        known = [hertz for hertz, read_at in self._known.values() if read_at >= oldest]
        return _summarize(known) or self._read_cpuinfo()

    def forget(self) -> None:
        """Close `/proc/cpuinfo`, and list the cores again at the next reading."""
        self._cpuinfo.close()
        self._paths = None
        self._next = 0
        self._known = {}
        self._stated_until = -math.inf

    def _ask(self, paths: Sequence[str]) -> None:
        now = self._clock()
        until = now + self._budget_seconds
        for _ in paths:
            path = paths[self._next]
            self._next = (self._next + 1) % len(paths)
            hertz = _read_hertz(path)
            now = self._clock()
            if hertz is None:
                self._known.pop(path, None)
            else:
                self._known[path] = (hertz, now)
            if now >= until:
                break

    def _read_cpuinfo(self) -> Frequencies | None:
        now = self._clock()
        if now >= self._stated_until:
            self._stated_until = now + _CPUINFO_AGE_SECONDS
            try:
                data = self._cpuinfo.read() or b""
            except SourceError:  # the file cannot be read
                data = b""
            hertz = [round(float(each) * _HERTZ_PER_MHZ) for each in _MEGAHERTZ.findall(data)]
            self._stated = _summarize([each for each in hertz if each])
        return self._stated


def _find_files(cpus: Path) -> list[str]:
    """Return the paths of the frequency files of all cores.

    Since Linux 4.3, each file belongs to a policy, which applies to one core or a group of cores.
    """
    folders = _sort(cpus.glob("cpufreq/policy[0-9]*")) or _sort(cpus.glob("cpu[0-9]*/cpufreq"))
    found = ([folder / name for name in _FILES if (folder / name).exists()] for folder in folders)
    return [str(files[0]) for files in found if files]


def _sort(folders: Iterable[Path]) -> list[Path]:
    return sorted(folders, key=lambda folder: (len(str(folder)), folder))


def _spread(paths: Sequence[str]) -> Sequence[str]:
    """Reorder the paths so that successive paths are far apart in the original order."""
    count = len(paths)
    step = max(1, round(count * _GOLDEN_RATIO))
    while math.gcd(step, count) > 1:
        step += 1
    return [paths[at * step % count] for at in range(count)]


def _read_hertz(path: str) -> int | None:
    """Read a frequency file; return None if the frequency is unknown or the core is offline."""
    # The files are not kept open, because there may be hundreds of files.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = _KILOHERTZ.fullmatch(os.read(descriptor, _FILE_BYTES).strip())
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return int(found[0]) * _HERTZ_PER_KHZ if found else None


def _summarize(hertz: Sequence[int]) -> Frequencies | None:
    return Frequencies(sum(hertz) / len(hertz), min(hertz), max(hertz)) if hertz else None
