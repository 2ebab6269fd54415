"""Deaths of Ray tasks, actors and workers."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.advice import advise_fewer_workers
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.notices import find_notice
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_USED = re.compile(r"was ([0-9.]{1,12})GB / ([0-9.]{1,12})GB|([0-9.]{1,12}) / ([0-9.]{1,12}) GB")
_KILLED = contains(
    "killed due to memory pressure (OOM)",
    "due to the node running low on memory",
    "ray.exceptions.OutOfMemoryError",
    "RayOutOfMemoryError",
    "NODE_OUT_OF_MEMORY",
)


def _detect_oom(case: Case) -> Finding | None:
    """Detect a task or an actor that Ray's memory monitor killed."""
    match = find_match(case, _KILLED)
    if match is None or match.confidence == "low":
        match = find_notice(case, _KILLED) or match
    if match is None:
        return None
    used = next((found for line in case.lines if (found := _USED.search(line))), None)
    amount = f" ({used[1] or used[3]} of {used[2] or used[4]} GB)" if used else ""
    return match.conclude(
        "ray-oom",
        f"Ray killed a worker because the memory of its node was nearly used up{amount}.",
        (
            "Run fewer tasks at once: `@ray.remote(num_cpus=4)`, or `memory=` for each task.",
            (
                "See what held the memory: `ray memory --group-by NODE_ADDRESS`, and the ten largest"
                " processes in Ray's message."
            ),
            advise_fewer_workers(case),
            (
                "Move the threshold only with a limit below the node's memory:"
                " `RAY_memory_usage_threshold=0.98`."
            ),
        ),
    )


_NODE_LOST = matches(
    r"missed too many heartbeats|NodeDiedError|[Nn]ode .{0,120}(?:has been marked dead|was marked dead)",
    r"[Rr]aylet (?:process )?.{0,80}(?:died|exited|terminated)|NODE_DIED|node .{0,80}died unexpectedly|owner's node has crashed",
    r"because its node has died|actor's node was preempted|ObjectLostError.{0,200}node failure",
    r"due to (?:the )?(?:loss|death|failure) of (?:its|the) node|ray\.exceptions\.RaySystemError: .{0,80}raylet",
)
_WORKER_DIED = matches(
    r"(?:Ray)?Actor(?:Died)?Error\b|The actor .{0,60}died unexpectedly|WorkerCrashedError|[Ww]orker unexpectedly exits",
    r"A worker died or was killed while executing|The worker died unexpectedly|Worker exit type: SYSTEM_ERROR",
    r"WORKER_DIED|Worker crashed",
)


def _detect_worker(case: Case) -> Finding | None:
    """Detect a Ray worker that died without a reported reason."""
    match = find_match(case, _WORKER_DIED)
    if match is None:
        return None
    return match.cap("medium").conclude(
        "ray-worker-died",
        "A Ray worker died, and the log does not say why; most often the OOM killer or a crash in native code.",
        (
            "Read the worker's own log: `/tmp/ray/session_latest/logs/worker-*-PID.err`, or `ray logs`.",
            "Check for an OOM kill on its node: `sudo dmesg -T | grep -i 'killed process'`.",
            "Set `PYTHONFAULTHANDLER=1` in `runtime_env` for a traceback of a crash.",
        ),
    )


CHILD = Cause(
    "ray-worker-died",
    "A Ray worker died",
    "The log contains `The actor died unexpectedly` or `Worker unexpectedly exits`.",
    "Ray only reports that the process is gone; its own log, or the kernel log of its node, has the cause.",
    ("Read `/tmp/ray/session_latest/logs/worker-*.err` on its node, and `dmesg -T`.",),
    "medium",
    _detect_worker,
)

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "ray-node-lost",
        "Ray lost a node",
        "The log contains `missed too many heartbeats`, `NodeDiedError` or `Raylet … died`.",
        "The node was shut down or taken back, its raylet was killed for memory, or the network failed.",
        (
            "Ask for the nodes: `ray status`, `ray list nodes`; read `raylet.out` and `dmesg -T` on that node.",
            "Let the run go on without it: checkpoints, `max_failures` of the trainer, `max_restarts` of actors.",
        ),
        summary="Ray lost a node of the cluster: it stopped answering.",
        lines=_NODE_LOST,
        confidence="medium",
    ),
    Cause(
        "ray-oom",
        "Ray killed a worker for memory",
        "The log contains `killed due to memory pressure (OOM)`, `ray.exceptions.OutOfMemoryError` or"
        " `NODE_OUT_OF_MEMORY`.",
        "The host's memory, not the GPU's, was used above Ray's threshold of 95 %.",
        (
            "Run fewer tasks at once: `@ray.remote(num_cpus=4)`.",
            "See what held the memory: `ray memory --group-by NODE_ADDRESS`.",
        ),
        "high",
        _detect_oom,
    ),
)
