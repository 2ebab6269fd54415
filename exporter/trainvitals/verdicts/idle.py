"""Determines why an accelerator that processes hold is idle.

The verdict depends on the activity of the processes that hold the accelerator, of related
processes, and of the other ranks in the same run. To add a reason, add an entry to `_RULES` with a
function that returns the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainvitals.runfile import Phase
from trainvitals.sources.accelerators.idleness import IdleDevice, Limits
from trainvitals.sources.accelerators.reading import Idleness, IdleReason
from trainvitals.sources.host.activity import Activity, Surroundings
from trainvitals.sources.runs.reading import RankReading
from trainvitals.units import format_bytes, format_percent
from trainvitals.verdicts.accelerators import name_device
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.waits import classify

# The reasons by priority: if the processes of a device have different reasons, the first reason in
# this order explains why the device is idle.
REASONS: tuple[IdleReason, ...] = (
    "blocked_in_driver",
    "compiles",
    "waits_for_data",
    "waits_for_rank",
    "computes_on_cpu",
    "stopped",
    "ended",
    "sleeps",
    "unseen",
)

_BUSY_CORES, _SHARED_CORES, _BUSY_WORKER_CORES = 0.5, 0.1, 0.3
_READING_BYTES_PER_SECOND = 1 << 20
_PRESSED_RATIO = 0.25
_MOST_NAMED = 3

# The programs that run only while something is compiled.
_COMPILERS = frozenset(
    (
        *("nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "hipcc", "tpc-clang"),
        *("gcc", "g++", "cc", "c++", "cc1", "cc1plus", "collect2", "as", "ld", "ld.lld", "lld"),
        *("clang", "clang++", "llc", "ninja", "cmake", "make"),
    )
)
# The prefixes of thread names in processes that communicate with other ranks, and in notebooks.
_COLLECTIVE_THREADS = ("pt_nccl_", "pt_gloo_", "pt_tcpstore", "NCCL ")
_NOTEBOOK_THREADS = ("ZMQbg", "IPythonHistory")


def read_limits(thresholds: Thresholds) -> Limits:
    """Return the limits that define an idle device, from the alert thresholds."""
    return Limits(
        thresholds["accelerator_held_idle:utilization_percent"],
        thresholds["accelerator_held_idle:reason_seconds"],
        thresholds["accelerator_held_idle:memory_ratio"],
    )


def judge_idle(device: IdleDevice) -> Idleness:
    """Return the reason why a device that processes hold is idle."""
    found = [
        _judge_process(seen, device)
        for one in device.reading.processes
        if (seen := device.surroundings.get(one.pid)) is not None
    ]
    if not found:
        return Idleness("unseen", "its memory is in use, and the driver lists no process")
    return min(found, key=lambda each: REASONS.index(each.reason))


def _judge_process(seen: Surroundings, device: IdleDevice) -> Idleness:
    rank = _find_rank(seen.pid, device)
    reason, evidence = _apply(_RULES, seen, rank)
    if not reason and (peer := next(_list_peers(seen, rank, device), "")):
        reason, evidence = "waits_for_rank", f"waits for {peer}"
    if not reason:
        reason, evidence = _apply(_WAITING_RULES, seen, rank)
    return Idleness(reason or "unseen", f"{_name(seen)} {evidence}", seen.pid)


def _name(seen: Surroundings) -> str:
    return f"PID {seen.pid}" if seen.own is None else f"{seen.own.name} (PID {seen.pid})"


def _apply(
    rules: Sequence[Rule], seen: Surroundings, rank: RankReading | None
) -> tuple[IdleReason | None, str]:
    """Return the reason and evidence of the first rule that applies, or None and an empty text."""
    for reason, find in rules:
        if evidence := find(seen, rank):
            return reason, evidence
    return None, ""


# ---- Reasons that delay a process and the other ranks of its run ----


def _find_end(seen: Surroundings, _: RankReading | None) -> str:
    if seen.own is None:
        is_gone = seen.was_seen or seen.shows_all
        return "has ended, and the driver still lists it" if is_gone else ""
    if seen.own.letter in "ZX":
        return "has ended, and its parent has not waited for it"
    return ""


def _find_stop(seen: Surroundings, _: RankReading | None) -> str:
    letter = seen.own.letter if seen.own else ""
    words = {"T": f"is stopped by a signal; kill -CONT {seen.pid} continues it"}
    return {**words, "t": "is stopped by a debugger"}.get(letter, "")


def _find_compilers(seen: Surroundings, rank: RankReading | None) -> str:
    names = dict.fromkeys(one.name for one in seen.workers if one.name in _COMPILERS)
    busy = [
        one
        for one in seen.workers
        if one.is_compile_worker and (one.cores or 0.0) >= _BUSY_WORKER_CORES
    ]
    if busy:
        return f"waits for {len(busy)} compile workers of torch.compile"
    if names:
        return f"waits for {', '.join([*names][:_MOST_NAMED])}, which it started"
    return "compiles, as its run reports" if _is_in(rank, Phase.COMPILE) else ""


def _find_driver_call(seen: Surroundings, _: RankReading | None) -> str:
    waits = [(classify(function), function) for function in seen.blocked]
    if seen.own is not None and seen.own.waits_on == "device" and seen.own.letter == "D":
        waits.append(("driver", seen.own.wait or ""))
    for wait, function in waits:
        if wait == "driver":
            return f"waits in the driver, in {function or 'a system call'}"
    is_reading = (seen.io_pressure_ratio or 0.0) > _PRESSED_RATIO or _is_reading(seen.own)
    if not is_reading and any(wait in ("other", "unknown") for wait, _ in waits):
        function = next((name for _, name in waits if name), "a system call")
        return f"cannot be interrupted, in {function}, and does not read from a disk"
    return ""


def _find_disk_wait(seen: Surroundings, _: RankReading | None) -> str:
    own = seen.own
    functions = [name for name in seen.blocked if classify(name) in ("disk", "other", "unknown")]
    if own is None or (own.cores or 0.0) >= _BUSY_CORES:
        return ""
    if not functions and not _is_reading(own):
        return ""
    named = next(filter(None, functions), "")
    words = f"waits for a disk or file system{f', in {named}' if named else ''}"
    if _is_reading(own):
        words = (
            f"{'reads files' if not functions else words} at {format_bytes(own.bytes_per_second)}/s"
        )
    pressure = seen.io_pressure_ratio
    is_pressed = pressure is not None and pressure > _PRESSED_RATIO
    return f"{words}, with an I/O pressure of {format_percent(pressure)}" if is_pressed else words


def _find_computation(seen: Surroundings, _: RankReading | None) -> str:
    cores = (seen.own.cores if seen.own else None) or 0.0
    if cores >= _BUSY_CORES or (seen.running and cores >= _SHARED_CORES):
        return f"uses {cores:.1f} CPU cores"
    pressure = seen.cpu_pressure_ratio
    if seen.running and cores > 0 and pressure is not None and pressure > _PRESSED_RATIO:
        return f"competes for a CPU, with a CPU pressure of {format_percent(pressure)}"
    return ""


def _find_busy_workers(seen: Surroundings, _: RankReading | None) -> str:
    cores = sum(one.cores or 0.0 for one in seen.workers)
    if cores >= _BUSY_WORKER_CORES:
        return f"waits for its {_count(seen.workers)}, which use {cores:.1f} CPU cores"
    reading = [one for one in seen.workers if one.letter == "D" or _is_reading(one)]
    if reading:
        return f"waits for its {_count(seen.workers)}, of which {len(reading)} read files"
    alike = [one for one in seen.workers if seen.own and _is_loader(one, seen.own)]
    receiving = [one for one in alike if classify(one.wait, one.waits_on) == "network"]
    if receiving:
        return f"waits for its {_count(alike)}, of which {len(receiving)} wait for the network"
    return ""


def _is_loader(worker: Activity, own: Activity) -> bool:
    return worker.name == own.name or worker.name.startswith("pt_data")


def _count(workers: Sequence[Activity]) -> str:
    return f"{len(workers)} child processes" if len(workers) > 1 else "child process"


def _is_reading(one: Activity | None) -> bool:
    return one is not None and (one.bytes_per_second or 0.0) >= _READING_BYTES_PER_SECOND


# ---- The other ranks ----


def _find_rank(pid: int, device: IdleDevice) -> RankReading | None:
    ranks = device.runs.ranks if device.runs else ()
    return next((rank for rank in ranks if _find_pid(rank) == pid), None)


def _find_pid(rank: RankReading) -> int | None:
    return rank.liveness.host_pid if rank.liveness and rank.liveness.is_alive else None


def _list_peers(seen: Surroundings, rank: RankReading | None, device: IdleDevice) -> Iterator[str]:
    """Yield a description of each rank that the process may be waiting for.

    The description states the rank's current activity, or that the rank has ended. A rank whose
    activity is not known is omitted.
    """
    named = dict(_list_ranks(rank, device))
    siblings = {one.pid: Surroundings(one.pid, one) for one in seen.siblings}
    if seen.world or any(name.startswith(_COLLECTIVE_THREADS) for name in seen.threads):
        named = {pid: f"process {pid} of the same launch" for pid in siblings} | named
    for pid, name in named.items():
        if (busy := device.busy.get(pid)) is not None:
            yield f"{name}, whose {name_device(busy.identity)} is busy"
            continue
        peer = device.surroundings.get(pid) or siblings.get(pid) or Surroundings(pid)
        if peer.own is not None and (evidence := _apply(_RULES, peer, None)[1]):
            yield f"{name}, which {evidence}"
    if rank is not None and device.runs is not None:
        for other in device.runs.ranks:
            if other.run == rank.run and other.rank != rank.rank and other.ending is not None:
                yield f"rank {other.rank} of its run, which has ended"


def _list_ranks(rank: RankReading | None, device: IdleDevice) -> Iterator[tuple[int, str]]:
    for other in device.runs.ranks if device.runs and rank else ():
        pid = _find_pid(other)
        if rank is not None and other.run == rank.run and pid is not None and other is not rank:
            yield pid, f"rank {other.rank} of its run"


# ---- Waits that do not delay other processes ----


def _find_data_phase(seen: Surroundings, rank: RankReading | None) -> str:  # noqa: ARG001
    return "waits for its data loader, as its run reports" if _is_in(rank, Phase.DATA_WAIT) else ""


def _find_message(seen: Surroundings, _: RankReading | None) -> str:
    wait = classify(seen.own.wait, seen.own.waits_on) if seen.own else "unknown"
    words = {"pipe": "another process, through a pipe", "network": "the network"}
    return f"waits for data from {words[wait]}" if wait in words else ""


def _find_sleep(seen: Surroundings, _: RankReading | None) -> str:
    if seen.own is None:
        return ""
    if any(name.startswith(_NOTEBOOK_THREADS) for name in seen.threads):
        return "is a notebook kernel that runs no cell"
    if classify(seen.own.wait, seen.own.waits_on) == "terminal":
        return "waits for input at a terminal"
    if seen.own.wait is None:
        return ""
    return f"sleeps, in {seen.own.wait}" if seen.own.wait else "sleeps"


def _find_hidden(seen: Surroundings, _: RankReading | None) -> str:
    if seen.own is None:
        return "cannot be seen from here: it is in another PID namespace, or hidden"
    return "uses no CPU time, and this user may not read what it waits for"


def _is_in(rank: RankReading | None, phase: Phase) -> bool:
    return rank is not None and rank.record.live is not None and rank.record.live[1] == phase


Rule = tuple[IdleReason, Callable[[Surroundings, RankReading | None], str]]

_RULES: tuple[Rule, ...] = (
    ("ended", _find_end),
    ("stopped", _find_stop),
    ("compiles", _find_compilers),
    ("blocked_in_driver", _find_driver_call),
    ("waits_for_data", _find_disk_wait),
    ("computes_on_cpu", _find_computation),
    ("waits_for_data", _find_busy_workers),
)
# The rules for a process that does not wait for another rank.
_WAITING_RULES: tuple[Rule, ...] = (
    ("waits_for_data", _find_data_phase),
    ("waits_for_data", _find_message),
    ("sleeps", _find_sleep),
    ("unseen", _find_hidden),
)
