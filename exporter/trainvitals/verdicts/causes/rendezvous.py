"""Failed starts of distributed runs in which not all ranks joined."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import find_framework
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match, weigh_end, weigh_fatal
from trainvitals.verdicts.causes.log_reading import read_log
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_NOT_MET = matches(
    r"Rendezvous(?:Timeout|Connection|Closed)Error|[Tt]he client socket has timed out after"
    r"|Timed out initializing process group in store based barrier"
    r"|Timed out after [0-9]{1,9} seconds waiting for clients"
    r"|clients joined\.? *$|wait timeout after [0-9]{1,12}ms|Timeout waiting for key"
    r"|connect\(\) timed out\. Original timeout|failed to connect to the (?:rendezvous|store|TCPStore)"
    r"|timed out (?:while|in) joining the rendezvous|Gloo connectFullMesh failed"
    r"|^ *_store_based_barrier\(rank, store|RuntimeError: Socket Timeout|got error: Socket Timeout|DistStoreError|DistNetworkError: (?:The client|Failed to (?:connect|recv))"
    r"|connection to the C10d store has failed|(?:client socket has failed to connect to any network address)"
    r"|A process or daemon was unable to complete a TCP connection|CCOM WARN Timeout waiting for (?:incoming|RX)"
    r"|[Ff]ailed to connect to (?:the )?coordination service|coordination service.{0,80}DEADLINE_EXCEEDED"
    r"|DEADLINE_EXCEEDED: Barrier timed out|Barrier timed out.{0,40}PjRT|[Bb]arrier timed out. .{0,20}Id:"
    r"|Horovod.{0,60}timed? ?out waiting|Timed out waiting for tasks to start"
    r"|rendezvous.{0,60}(?:timed out|timeout)|Failed to connect to GCS within|[Tt]imed out (?:while )?connecting to (?:the )?(?:master|server|scheduler)"
    r"|Timed out after [0-9]{1,9} seconds waiting for|not enough (?:nodes|workers) (?:joined|registered)|wait_for_workers timeout"
    r"|The server socket has failed to listen on any local network address(?!.{0,200}(?:in use|EADDRINUSE))",
    without=("Failed to disconnect",),  # a program that disconnects at its end writes this line
)

# Collective libraries connect two ranks when they first exchange data.
_NOT_CONNECTED = matches(r"Getting socket times out")
_NOT_STARTED = matches(r"ORTE was unable to reliably start one or more daemons")
_FAILED_BY_TIME = matches(r"\bHccl\w{1,40}, error code is [69]\b")
_FEW_STEPS = 2

# The frames of a program that waits for other ranks, and the errors that the program reports if
# another rank has exited.
_MEETING = matches(
    r"\b(?:_store_based_barrier|TCPStore|init_process_group|rendezvous)\("
    r"|, in (?:init_process_group|_store_based_barrier|_create_c10d_store|_env_rendezvous_handler|next_rendezvous)$"
)
_GONE = matches(r"Connection reset by peer|Broken pipe|Connection closed|Connection refused")


def find_not_met(case: Case) -> LogMatch | None:
    """Return the log line which shows that not all ranks joined; None without such a line."""
    match = find_match(case, _NOT_MET) or _find_gone(case)
    if match is None and (match := find_match(case, _NOT_STARTED)) is not None:
        match = match.cap("medium", "Open MPI names five possible causes.")
    return match if match or _has_trained(case) else _find_not_connected(case)


def _has_trained(case: Case) -> bool:
    """Return whether the log contains training progress, which requires that all ranks joined."""
    return sum(read_log(case.lines).steps) > _FEW_STEPS


def find_not_connected(case: Case) -> LogMatch | None:
    """Return the log line which shows that a rank waited for another rank during training.

    The result is None if the log contains no such line or no training progress.
    """
    return _find_not_connected(case) if _has_trained(case) else None


def _find_not_connected(case: Case) -> LogMatch | None:
    match = find_match(case, _NOT_CONNECTED) or find_match(case, _FAILED_BY_TIME)
    return match and match.cap("medium", "The other rank may have ended, or may only be slow.")


def _find_gone(case: Case) -> LogMatch | None:
    """Return the error about a lost connection that ended a program while it waited for ranks."""
    fatal = parse_log(case).fatal
    if fatal is None or not _GONE(fatal.errors[-1].text):
        return None
    if not any(map(_MEETING, case.lines[fatal.start : fatal.end + 1])):
        return None
    return weigh_end(case, weigh_fatal(case, fatal.errors[-1]))


def _detect(case: Case) -> Finding | None:
    match = find_not_met(case)
    if match is None:
        return None
    missing = tuple(dict.fromkeys(_TASK.findall(match.text)))
    steps: tuple[str, ...] = _STEPS
    if missing or find_framework(case, match.text) == "jax":
        steps = (_ADDRESS_OF_JAX, *_STEPS[3:])
    named = f"These tasks never came: {', '.join(missing[:_MOST_NAMED])}."
    return match.conclude(
        "rendezvous-timeout", _SUMMARY, steps, speaks_for=(named,) if missing else ()
    )


_SUMMARY = (
    "The ranks did not all meet: a node could not reach the rendezvous, or other ranks never came."
)
_STEPS = (
    (
        "Try the port from each node: `nc -vz MASTER_ADDR MASTER_PORT`; a firewall or a wrong address"
        " is the usual cause."
    ),
    (
        "Compare the start on all nodes: the same `--nnodes`, `--rdzv-id`, `MASTER_ADDR` and"
        " `MASTER_PORT`, and a different `--node-rank`."
    ),
    "Choose the interface: `NCCL_SOCKET_IFNAME=eth0`, `GLOO_SOCKET_IFNAME=eth0`.",
    "Read the log of the rank that is missing, which may have failed before.",
)

_ADDRESS_OF_JAX = (
    "Try the coordinator's port from each host: `nc -vz HOST PORT`; all need the same"
    " `coordinator_address` and `num_processes`, and each its own `process_id`"
    " (`jax.distributed.initialize`)."
)
_TASK = re.compile(r"/job:\w{1,40}/replica:[0-9]{1,6}/task:[0-9]{1,6}(?=\s|$)")
_MOST_NAMED = 16

CAUSES: tuple[Cause, ...] = (
    Cause(
        "rendezvous-timeout",
        "The ranks did not all meet",
        "The log contains `RendezvousTimeoutError`, `The client socket has timed out`, `Timed out"
        " initializing process group` or `waiting for clients`.",
        "A node cannot reach the address and port of the rendezvous, or other ranks never came or ended"
        " before.",
        _STEPS,
        "high",
        _detect,
    ),
)
