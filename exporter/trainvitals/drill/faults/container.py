"""Faults of containers."""

from __future__ import annotations

from trainvitals.drill.faults.fault import Fault, turn
from trainvitals.drill.series import Series, constant, instant

_NAME = {"name": "drill"}
_RUNNING = constant("container_state", 1, **_NAME, state="running")


def _death(reason: str, signal: str, exit_code: float) -> tuple[Series, ...]:
    return (
        instant("container_last_death_timestamp_seconds", 0, **_NAME),
        constant(
            "container_last_death_info",
            1,
            **_NAME,
            reason=reason,
            signal=signal,
            confidence="high",
        ),
        constant("container_last_exit_code", exit_code, **_NAME),
    )


FAULTS = (
    Fault(
        "ContainerOOMKilled",
        "a container is killed for want of memory",
        (_RUNNING,),
        _death("oom-cgroup", "SIGKILL", 137),
    ),
    Fault("ContainerDied", "a container crashes", (_RUNNING,), _death("segfault", "SIGSEGV", 139)),
    turn(
        "ContainerRestartLoop",
        "a container has been restarted 5 times",
        "container_restarts_total",
        1,
        6,
        **_NAME,
    ),
    turn(
        "ContainerMemoryNearLimit",
        "a container uses 97 % of its memory",
        "container_memory_working_set_bytes",
        4e9,
        9.7e9,
        constant("container_spec_memory_limit_bytes", 10e9, **_NAME),
        **_NAME,
    ),
    turn(
        "ContainerUnhealthy",
        "a container fails its health check",
        "container_health",
        0,
        1,
        _RUNNING,
        **_NAME,
        status="unhealthy",
    ),
)
