"""The metrics of processes that hold accelerators, and of the reasons why accelerators are idle."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.metrics.collectors.tables import gauge, table_block
from trainvitals.metrics.families import Block, Family, Labels
from trainvitals.sources.accelerators.holders import Place, Places
from trainvitals.sources.accelerators.reading import AcceleratorReading, Identity, Owner

_METRICS = (
    gauge(
        "accelerator_process_memory_used_bytes",
        "used_bytes",
        "Memory that a process holds. Source: nvmlDeviceGetComputeRunningProcesses_v3.",
    ),
    gauge(
        "accelerator_process_utilization_ratio",
        "utilization_ratio",
        "Share of the last sample period in which it ran something. Source: nvmlDeviceGetProcessUtilization.",
    ),
)


def label_device(identity: Identity) -> Labels:
    """Return the labels that all metrics of a device have in common."""
    return (
        ("kind", identity.kind),
        ("device", str(identity.index)),
        ("uuid", identity.uuid),
    )


def express_processes(devices: Sequence[AcceleratorReading], places: Places) -> tuple[Block, Block]:
    """Return the metrics of processes that hold devices: owner, memory and utilization."""
    holders = [(device.identity, process) for device in devices for process in device.processes]
    shape = tuple(
        (who, process.pid, process.owner or Owner(), places.find(process))
        for who, process in holders
    )
    subjects = tuple((*label_device(who), ("pid", str(process.pid))) for who, process in holders)
    rows = [(process.used_bytes, process.utilization_ratio) for _, process in holders]

    def describe() -> tuple[Family, ...]:
        return (
            Family(
                "accelerator_process_info",
                "info",
                "What a process that holds a device is. Source: /proc/PID/stat, /proc/PID/cgroup.",
                tuple(("", _describe_process(*one)) for one in shape),
            ),
        )

    return (
        Block(("accelerator", "holders", shape), describe, [1] * len(shape)),
        table_block(("accelerator", "processes"), _METRICS, subjects, rows),
    )


def _describe_process(who: Identity, pid: int, owner: Owner, place: Place) -> Labels:
    return (
        *label_device(who),
        ("pid", str(pid)),
        ("program", owner.name or ""),
        ("user", owner.user or ""),
        ("container", place.container or ""),
        ("compose_service", place.compose_service or ""),
        ("slurm_job", owner.slurm_job or ""),
        ("pod", owner.pod or ""),
        ("run", place.run or ""),
    )


def express_idleness(devices: Sequence[AcceleratorReading]) -> Block:
    """Return the metric with the reason why each idle device is idle."""
    shape = tuple((each.identity, each.idle.reason) for each in devices if each.idle is not None)

    def describe() -> tuple[Family, ...]:
        return (
            Family(
                "accelerator_idle_reason",
                "gauge",
                "1 for the reason why a device that is held does nothing. Source: /proc/PID.",
                tuple(("", (*label_device(who), ("reason", reason))) for who, reason in shape),
            ),
        )

    return Block(("accelerator", "idleness", shape), describe, [1] * len(shape))
