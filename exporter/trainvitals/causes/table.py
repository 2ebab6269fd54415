"""The causes of death in the order in which they go before one another."""

from __future__ import annotations

from trainvitals.causes import (
    checkpoints,
    collectives,
    distributed,
    divergence,
    driver,
    endings,
    gaudi,
    gpu,
    gpu_memory,
    hub,
    logs,
    memory,
    network,
    outcomes,
    program,
    resources,
    signals,
    start,
    storage,
    workers,
)
from trainvitals.causes.verdict import Cause

# Told mainly by lines of the log.
TOLD_BY_LOG: tuple[Cause, ...] = (
    *storage.CAUSES,
    *checkpoints.CAUSES,
    *gpu_memory.CAUSES,
    *gpu.CAUSES,
    *driver.CAUSES,
    *gaudi.CAUSES,
    *collectives.CAUSES,
    *distributed.CAUSES,
    *hub.CAUSES,
    *network.CAUSES,
    *divergence.CAUSES,
    *resources.CAUSES,
    *program.CAUSES,
    distributed.CHILD,
    program.FALLBACK,
)

CAUSES: tuple[Cause, ...] = (
    *start.CAUSES,
    *endings.CAUSES,
    *memory.CAUSES,
    *workers.CAUSES,
    *endings.OUTSIDE,
    outcomes.LOST,
    outcomes.FINISHED,
    *signals.CAUSES,
    *TOLD_BY_LOG,
    outcomes.UNHEALTHY,
    outcomes.LOOP,
    *logs.CAUSES,
    outcomes.RUNNING,
    outcomes.UNKNOWN,
)
