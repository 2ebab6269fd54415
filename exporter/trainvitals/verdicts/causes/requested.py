"""The memory and time that a job requested, read from the log, and advice to request more."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.advice import format_option, suggest_limit
from trainvitals.verdicts.causes.case import Case

_UNITS = {"": 1024**2, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_MEMORY = re.compile(
    r"(?:--mem[= ]|\bReqMem[=: ]{1,3}|\bmem=|Total Requested Memory ?: {0,40}|Memory [Rr]equested: {0,40}"
    r"|request_memory ?= ?|\bh_vmem=|\bMemoryMax=|mem [0-9]{1,15}kb exceeded limit )"
    r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?([KMGTkmgt]?)"
)
_TIME = re.compile(
    r"(?:--time[= ]|[Ww]all-?time [Rr]equested: {0,40}|\bwalltime=|\bTimelimit[=: ])"
    r"([0-9][0-9:-]{1,15})"
)
_SECONDS = re.compile(r"(?:walltime|cput) [0-9]{1,9} exceeded limit ([0-9]{1,9})\b")
_MINUTES = re.compile(r"out of requested ([0-9]{1,7}) minutes")
_PARTS = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,4})(?::([0-9]{2}))?(?::([0-9]{2}))?")
_IN_SECONDS = re.compile(r"[Ss]econds|timeout")
_TWICE = 2


def advise_more_memory(case: Case, option: str) -> str:
    """Return a step, without the final period, that requests more memory than the job had.

    Args:
        case: The case to examine.
        option: The option of the scheduler, with `{}` in place of the size.
    """
    had = _find_memory(case)
    if had is None:
        return f"Request more memory than it had: `{option.format('SIZE')}`"
    wanted = format_option(suggest_limit(had)).upper()
    return f"Request more than the {format_bytes(had)} that it had: `{option.format(wanted)}`"


def advise_more_time(case: Case, option: str) -> str:
    """Return a step, without the final period, that requests more time than the job had.

    The arguments are the same as those of `advise_more_memory`.
    """
    had = _find_seconds(case)
    if had is None:
        named = f": `{option.format('TIME')}`" if option else " from the scheduler or the service"
        return f"Request more time than it had{named}"
    wanted = str(_TWICE * had) if _IN_SECONDS.search(option) else _write_time(_TWICE * had)
    named = f": `{option.format(wanted)}`" if option else ""
    return f"Request more than the {_write_time(had)} that it had{named}"


def _find_memory(case: Case) -> int | None:
    """Return the memory limit of the job in bytes; None if the limit is unknown."""
    found = _find(case.lines, _MEMORY)
    if found is not None:
        unit = found[2].upper() or ("K" if "kb exceeded" in found[0] else "")
        return int(float(found[1]) * _UNITS[unit])
    kills = case.list_own_kills()
    return case.memory_limit_bytes or (kills[-1].limit_bytes if kills else None)


def _find_seconds(case: Case) -> int | None:
    if (found := _find(case.lines, _SECONDS)) is not None:
        return int(found[1])
    if (found := _find(case.lines, _MINUTES)) is not None:
        return 60 * int(found[1])
    found = _find(case.lines, _TIME)
    parts = _PARTS.fullmatch(found[1]) if found is not None else None
    return None if parts is None else _count_seconds(parts)


def _count_seconds(parts: re.Match[str]) -> int:
    """Convert `minutes`, `minutes:seconds`, `h:m:s`, `d-h`, `d-h:m` or `d-h:m:s` to seconds."""
    days, first, second, third = (int(part or 0) for part in parts.groups())
    if parts[1] is not None or parts[4] is not None:
        return ((24 * days + first) * 60 + second) * 60 + third
    return 60 * first + second


def _write_time(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def _find(lines: Iterable[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    return next((found for line in lines if (found := pattern.search(line))), None)
