"""Deaths of ranks that waited for one another, or could not reach one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_option, write_size, write_span
from trainvitals.causes.ranks import split_rank
from trainvitals.causes.signs import find, has
from trainvitals.causes.verdict import Cause, Finding

_WATCHDOG = "Watchdog caught collective operation timeout"
_WORK = re.compile(r"SeqNum=(\d{1,12}), OpType=(\w{1,40})")
_RANK = re.compile(r"\[(?:PG [^\]\n]{1,60} )?[Rr]ank ?(\d{1,6})\]")
_TIMEOUT = re.compile(r"Timeout\(ms\)=(\d{1,12})")
_GLOO = re.compile(r"Timed out waiting (\d{1,12})ms for (?:recv|send) operation")
_RANKS = re.compile(r"--?(?:nproc[-_]per[-_]node|num[-_]processes)[= ](\d{1,4})\b")
_MOST_NAMED = 8
_LEAST_SHM_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Wait:
    """A collective operation that a rank waited for in vain.

    Attributes:
        rank: The rank that waited; None where the line does not name it.
        number: Which operation since the start.
        operation: What it was, such as `ALLREDUCE`; empty where it is not said.
        timeout_seconds: How long it waited; None where it is not said.
    """

    rank: int | None
    number: int | None
    operation: str
    timeout_seconds: float | None


def list_waits(lines: Sequence[str]) -> tuple[Wait, ...]:
    """Read who waited for what by the lines of NCCL's watchdog, each rank once."""
    waits: dict[int | None, Wait] = {}
    for line in lines:
        if _WATCHDOG not in line:
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


def look_nccl_timeout(case: Case) -> Finding | None:
    """Look for ranks that waited for another one until NCCL's watchdog ended them."""
    sign = find(case, has(_WATCHDOG))
    if sign is None:
        return None
    waits = list_waits(case.lines)
    missing = _list_missing(case, waits)
    named = [str(wait.rank) for wait in waits if wait.rank is not None]
    who = f"Rank{'s' * (len(named) != 1)} {_join(named)}" if named else "A rank"
    what = f" for {waits[0].operation} {waits[0].number}" if waits and waits[0].operation else ""
    seconds = waits[0].timeout_seconds if waits else None
    long = f" {write_span(seconds)}" if seconds else ""
    absent = _join([str(rank) for rank in missing])
    where = f"rank {absent}" if missing else "the rank that does not say this, or is behind"
    return sign.conclude(
        "nccl-timeout",
        "The ranks are out of step: they waited in vain for different operations."
        if not missing and _are_apart(waits)
        else f"{who} waited{long}{what} in vain: the rank that failed first is another one.",
        (
            (
                f"Look at {where}: its last lines, its host's kernel log (`dmesg -T`), and what it"
                " did then (`py-spy dump --pid PID` while it hangs)."
            ),
            (
                "Run it with `TORCH_NCCL_TRACE_BUFFER_SIZE=2000`, `TORCH_NCCL_DUMP_ON_TIMEOUT=1` and"
                " `NCCL_DEBUG=INFO`: each rank then writes what it was in."
            ),
            (
                "See that all ranks take the same number of steps: `drop_last=True`,"
                " `DistributedSampler`, no collective operation under `if rank == 0:`."
            ),
            (
                "Only where one rank is slow on purpose (evaluation, a checkpoint), wait longer:"
                " `init_process_group(timeout=timedelta(hours=1))`."
            ),
        ),
        speaks_for=_tell_waits(waits, missing),
    )


def _list_missing(case: Case, waits: Sequence[Wait]) -> list[int]:
    """List the ranks that should have waited too and did not."""
    waiting = {wait.rank for wait in waits if wait.rank is not None}
    if not waiting:
        return []
    command = " ".join(case.evidence.settings.command) if case.evidence.settings else ""
    counted = _RANKS.search(command)
    seen = {rank for line in case.lines if (rank := split_rank(line)[0]) is not None}
    everyone = set(range(int(counted[1]))) if counted else seen
    return sorted(everyone - waiting)


def _are_apart(waits: Sequence[Wait]) -> bool:
    return len({wait.number for wait in waits if wait.number is not None}) > 1


def _tell_waits(waits: Sequence[Wait], missing: Sequence[int]) -> tuple[str, ...]:
    told = []
    if missing:
        absent = _join([str(rank) for rank in missing])
        told.append(f"Of rank {absent} there is no such line.")
    if _are_apart(waits):
        behind = min(
            (wait for wait in waits if wait.number is not None), key=lambda w: w.number or 0
        )
        told.append(
            f"They waited for different operations; rank {behind.rank} is the furthest behind"
            f" ({behind.operation} {behind.number}), so the ranks did not do the same."
        )
    return tuple(told)


def _join(names: Sequence[str]) -> str:
    shown = list(names[:_MOST_NAMED]) + ["…"] * (len(names) > _MOST_NAMED)
    return (
        shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""
    )


def look_gloo_timeout(case: Case) -> Finding | None:
    """Look for a rank on the CPU that waited for another one in vain."""
    sign = find(case, lambda text: _GLOO.search(text) is not None)
    if sign is None:
        return None
    found = _GLOO.search(sign.text)
    long = f" {write_span(int(found[1]) / 1000)}" if found else ""
    who = "A rank" if sign.rank is None else f"Rank {sign.rank}"
    return sign.conclude(
        "gloo-timeout",
        f"{who} waited{long} for another one in vain: the rank that failed first is another one.",
        (
            (
                "Look at the rank without this line: its last lines, its host's kernel log"
                " (`dmesg -T`), and what it did then (`py-spy dump --pid PID` while it hangs)."
            ),
            (
                "See that all ranks take the same number of steps: `drop_last=True`,"
                " `DistributedSampler`, no collective operation under `if rank == 0:`."
            ),
            (
                "Only where one rank is slow on purpose, wait longer:"
                " `init_process_group(timeout=timedelta(hours=1))`."
            ),
        ),
    )


def look_nccl_system(case: Case) -> Finding | None:
    """Look for NCCL's errors of sockets, shared memory and peers."""
    sign = find(case, has("ncclSystemError", "unhandled system error", "ncclRemoteError"))
    if sign is None:
        return None
    warned = [line.strip() for line in case.lines if "NCCL WARN" in line]
    is_shm = any("/dev/shm" in line or "shared memory" in line for line in warned)  # noqa: S108
    shm = _advise_shm(case)
    others = (
        "Run it with `NCCL_DEBUG=INFO`: the line `NCCL WARN` before the error says which call failed.",
        (
            "Name the network between the ranks: `NCCL_SOCKET_IFNAME=eth0`, and try"
            " `NCCL_IB_DISABLE=1`; `docker run --network host` takes Docker's bridge out of the way."
        ),
        "Look whether another rank died first: `ncclRemoteError` is what the others then say.",
    )
    return sign.cap("high" if is_shm else "medium").conclude(
        "nccl-system",
        "NCCL could not make its shared memory: /dev/shm is full."
        if is_shm
        else "NCCL failed in the network, in shared memory, or because another rank is gone.",
        (shm, *others) if is_shm else (*others, shm),
        speaks_for=(f"NCCL warns `{warned[0][:240]}`.",) if warned else (),
    )


def _advise_shm(case: Case) -> str:
    settings = case.evidence.settings
    size = settings.shm_size_bytes if settings is not None else None
    if not size:
        return "Give it more shared memory: `docker run --shm-size=8g`, or `--ipc=host`."
    wanted = write_option(max(_LEAST_SHM_BYTES, 2 * size))
    return (
        f"Give it more shared memory than {write_size(size)}: `docker run --shm-size={wanted}`, or"
        " `--ipc=host`."
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="nccl-timeout",
        title="A rank waited for another one in vain (NCCL)",
        signs="The log says `Watchdog caught collective operation timeout`.",
        meaning="Another rank died or hangs, or the ranks do not do the same. The rank that failed"
        " first is not the one that says this.",
        steps=(
            "Find the rank without this line, and why it stopped.",
            "Run it with `TORCH_NCCL_TRACE_BUFFER_SIZE=2000` and `NCCL_DEBUG=INFO`.",
            "A longer timeout helps only where a rank is slow on purpose.",
        ),
        confidence="high",
        look=look_nccl_timeout,
    ),
    Cause(
        reason="gloo-timeout",
        title="A rank waited for another one in vain (Gloo)",
        signs="The log says `Timed out waiting 1800000ms for recv operation to complete`.",
        meaning="The same on the CPU: another rank died or hangs, or the ranks do not do the same.",
        steps=(
            "Find the rank without this line, and why it stopped: `py-spy dump --pid PID`.",
            "See that all ranks take the same number of steps (`drop_last=True`).",
        ),
        confidence="high",
        look=look_gloo_timeout,
    ),
    Cause(
        reason="nccl-system",
        title="NCCL failed in the system",
        signs="The log says `ncclSystemError`, `unhandled system error` or `ncclRemoteError`.",
        meaning="The network between ranks, a small /dev/shm, or a rank that is gone.",
        steps=(
            "Run it with `NCCL_DEBUG=INFO` and read the line `NCCL WARN`.",
            "Set `NCCL_SOCKET_IFNAME`, and give it `--shm-size=8g` or `--ipc=host`.",
        ),
        confidence="medium",
        look=look_nccl_system,
    ),
)
