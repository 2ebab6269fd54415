"""Collective operations that timed out, according to the log of NCCL's watchdog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.units import format_duration
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.ranks import split_rank

WATCHDOG = "Watchdog caught collective operation timeout"
_WORK = re.compile(r"SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_RANK = re.compile(r"\[(?:PG [^\]\n]{1,60} )?[Rr]ank ?(\d{1,6})\]")
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_RANKS = re.compile(r"--?(?:nproc[-_]per[-_]node|num[-_]processes)[= ](\d{1,4})\b")
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective operation that timed out on a rank.

    Attributes:
        rank: The rank on which the operation timed out; None if the log does not name the rank.
        number: The sequence number of the operation; None if the log does not contain the number.
        operation: The type of the operation, such as `ALLREDUCE`; an empty string if the log does
            not name it.
        timeout_seconds: The timeout of the operation in seconds; None if the log does not contain
            it.
    """

    rank: int | None
    number: int | None
    operation: str
    timeout_seconds: float | None


def list_waits(lines: Sequence[str]) -> tuple[Wait, ...]:
    """Return the first timeout that NCCL's watchdog logged for each rank, ordered by rank."""
    waits: dict[int | None, Wait] = {}
    for line in lines:
        if WATCHDOG not in line:
            continue
        rank, work, timeout = _RANK.search(line), _WORK.search(line), _TIMEOUT.search(line)
        number = int(rank[1]) if rank else split_rank(line)[0]
        waits.setdefault(
            number,
            Wait(
                rank=number,
                number=int(work[1]) if work else None,
                operation=work[2] if work else "",
                timeout_seconds=int(timeout[1]) / 1000 if timeout else None,
            ),
        )
    return tuple(sorted(waits.values(), key=lambda wait: -1 if wait.rank is None else wait.rank))


def list_missing(case: Case, waits: Sequence[Wait]) -> list[int]:
    """Return the ranks that logged no timeout although other ranks did.

    The ranks of the job are known from the number in the command, or else from the log.
    """
    waiting = {wait.rank for wait in waits if wait.rank is not None}
    if not waiting:
        return []
    command = " ".join(case.evidence.settings.command) if case.evidence.settings else ""
    counted = _RANKS.search(command)
    seen = {rank for line in case.lines if (rank := split_rank(line)[0]) is not None}
    all_ranks = set(range(int(counted[1]))) if counted else seen
    return sorted(all_ranks - waiting)


def are_apart(waits: Sequence[Wait]) -> bool:
    """Return whether the ranks waited for different operations."""
    return len({wait.number for wait in waits if wait.number is not None}) > 1


def summarize_waits(waits: Sequence[Wait]) -> str:
    """Return a sentence that names the ranks, their operation and its timeout."""
    named = [str(wait.rank) for wait in waits if wait.rank is not None]
    who = f"Rank{'s' * (len(named) != 1)} {join_names(named)}" if named else "A rank"
    what = f" {waits[0].operation} {waits[0].number}" if waits and waits[0].operation else ""
    seconds = waits[0].timeout_seconds if waits else None
    after = f" after {format_duration(seconds)}" if seconds else ""
    return f"{who} timed out{after} in the collective operation{what}; another rank failed first."


def describe_waits(waits: Sequence[Wait], missing: Sequence[int]) -> tuple[str, ...]:
    """Return sentences about the ranks that logged no timeout and the rank that is behind."""
    sentences = []
    if missing:
        absent = join_names([str(rank) for rank in missing])
        sentences.append(f"Rank {absent} logged no timeout.")
    if are_apart(waits):
        behind = min(
            (wait for wait in waits if wait.number is not None), key=lambda w: w.number or 0
        )
        sentences.append(
            f"The ranks waited for different operations; rank {behind.rank} is the furthest behind"
            f" ({behind.operation} {behind.number})."
        )
    return tuple(sentences)


def join_names(names: Sequence[str]) -> str:
    """Return the first eight names, separated by commas and `and`."""
    shown = list(names[:_MOST_NAMED]) + ["…"] * (len(names) > _MOST_NAMED)
    return (
        shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""
    )
