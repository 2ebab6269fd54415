"""The JSON Lines format, with one snapshot in each line.

Each line is an object. It contains the numbers of `numbers.py` under their names, without unknown
numbers, and the following keys. An unknown value is null; for unknown accelerators, the list is
empty:

timestamp       ISO 8601 with the offset from UTC
hostname        the machine's name
snapshot        the snapshot's number, from 1
seconds         the time that the snapshot took
skipped         number of intervals without a snapshot directly before this snapshot
unwritten       number of snapshots directly before this snapshot that could not be written
accelerators    [{kind, device, uuid, model, state, holders: [{pid, name, container, used_bytes}]}]
runs            a list with an object for each rank: {run, rank, source, alive, stalled,
                samples_per_second, progress_ratio, loss, steps}
top_processes   [{pid, name, user, cpu_percent, resident_bytes}]: the processes with the highest CPU
                or memory usage
container_list  [{name, id, image, status, health, restarts, deaths, oom_kills, cpu_percent,
                memory_bytes, memory_limit_bytes, last_death: {time, exit_code, reason, signal,
                confidence, summary}}]
kernel, engine  new lines of the kernel log and of the engine's log that report problems, with
                secrets masked
not_read        the sources that could not be read, and the reasons
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from trainvitals.record.numbers import list_numbers
from trainvitals.record.snapshot import Holder, Kernel, Snapshot
from trainvitals.runfile import ABSENT, STEP
from trainvitals.sources.containers.reading import ContainerReading, Death
from trainvitals.sources.host.processes import Process
from trainvitals.sources.runs.reading import RankReading

_LOSS, _STEPS = STEP["loss"], STEP["steps"]


def write_json_line(snapshot: Snapshot, timestamp: str) -> str:
    """Return a snapshot as one line of JSON.

    Args:
        snapshot: The snapshot to format.
        timestamp: The time of the snapshot, as text.
    """
    document: dict[str, object] = {
        "timestamp": timestamp,
        "hostname": snapshot.hostname,
        "snapshot": snapshot.number,
        "seconds": round(snapshot.seconds, 3),
        "skipped": snapshot.skipped,
        "unwritten": snapshot.unwritten,
        **{name: round(value, 3) for name, value in list_numbers(snapshot).items()},
        "accelerators": list(_describe_devices(snapshot)),
        "runs": _describe_runs(snapshot),
        "top_processes": _describe_processes(snapshot),
        "container_list": _describe_containers(snapshot),
        "kernel": None if snapshot.kernel is None else list(_describe_kernel(snapshot.kernel)),
        "engine": None if snapshot.engine_errors is None else list(snapshot.engine_errors),
        "not_read": list(snapshot.troubles),
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def _describe_devices(snapshot: Snapshot) -> Iterator[dict[str, object]]:
    for device in snapshot.accelerators.devices if snapshot.accelerators else ():
        identity = device.identity
        yield {
            "kind": identity.kind,
            "device": identity.index,
            "uuid": identity.uuid,
            "model": identity.model,
            "state": device.state,
            "holders": [
                _describe_holder(one) for one in snapshot.holders if one.uuid == identity.uuid
            ],
        }


def _describe_holder(holder: Holder) -> dict[str, object]:
    return {
        "pid": holder.pid,
        "name": holder.name,
        "container": holder.container,
        "used_bytes": holder.used_bytes,
    }


def _describe_runs(snapshot: Snapshot) -> list[dict[str, object]] | None:
    return None if snapshot.runs is None else [_describe_rank(rank) for rank in snapshot.runs.ranks]


def _describe_rank(rank: RankReading) -> dict[str, object]:
    return {
        "run": rank.run,
        "rank": rank.rank,
        "source": rank.source,
        "alive": None if rank.liveness is None else rank.ending is None,
        "stalled": None if rank.stall is None else rank.stall.cause is not None,
        "samples_per_second": rank.rates.samples_per_second,
        "progress_ratio": rank.progress.ratio,
        "loss": _know(rank.record.step[_LOSS]),
        "steps": _know(rank.record.step[_STEPS]),
    }


def _know(value: float) -> float | None:
    return value if value != ABSENT and math.isfinite(value) else None


def _describe_processes(snapshot: Snapshot) -> list[dict[str, object]] | None:
    if snapshot.processes is None:
        return None
    both = (*snapshot.processes.by_cpu, *snapshot.processes.by_memory)
    return [_describe_process(one) for one in {one.pid: one for one in both}.values()]


def _describe_process(one: Process) -> dict[str, object]:
    percent = one.cpu_percent
    return {
        "pid": one.pid,
        "name": one.name,
        "user": one.user,
        "cpu_percent": None if percent is None else round(percent, 1),
        "resident_bytes": one.resident_bytes,
    }


def _describe_containers(snapshot: Snapshot) -> list[dict[str, object]] | None:
    if snapshot.containers is None:
        return None
    shares = dict(snapshot.cpu_percents)
    return [_describe_container(one, shares) for one in snapshot.containers.containers]


def _describe_container(one: ContainerReading, shares: Mapping[str, float]) -> dict[str, object]:
    usage, share = one.usage, shares.get(one.name)
    return {
        "name": one.name,
        "id": one.id,
        "image": one.image,
        "status": one.status,
        "health": one.health,
        "restarts": one.restarts,
        "deaths": sum(one.deaths.values()),
        "oom_kills": max(one.oom_kills.values(), default=0),
        "cpu_percent": None if share is None else round(share, 1),
        "memory_bytes": None if usage is None else usage.memory_working_set_bytes,
        "memory_limit_bytes": None if usage is None else usage.memory_limit_bytes,
        "last_death": None if one.last_death is None else _describe_death(one.last_death),
    }


def _describe_death(death: Death) -> dict[str, object]:
    return {
        "time": death.time,
        "exit_code": death.exit_code,
        "reason": death.reason,
        "signal": death.signal,
        "confidence": death.confidence,
        "summary": death.summary,
    }


def _describe_kernel(kernel: Kernel) -> Iterator[str]:
    for kill in kernel.oom_kills:
        yield f"OOM: killed {kill.task} (pid {kill.pid}): {kill.constraint} {kill.task_memcg}"
    for xid in kernel.xids:
        yield f"Xid {xid.code} of {xid.bus_id} {xid.text}"
    yield from (line.text for line in kernel.lines)
    if kernel.lost:
        yield f"{kernel.lost} lines of the kernel log were overwritten before they were read"
