"""Failures of ranks in collective operations: timeouts and NCCL errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from trainvitals.units import format_bytes, format_duration
from trainvitals.verdicts.causes.advice import format_option
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.collective_waits import (
    WATCHDOG,
    are_apart,
    describe_waits,
    join_names,
    list_missing,
    list_waits,
    summarize_waits,
)
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match, quote
from trainvitals.verdicts.causes.parsed_log import find_first_failure
from trainvitals.verdicts.causes.rendezvous import find_not_connected
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_TIMED_OUT = contains(
    WATCHDOG,
    "Caught collective operation timeout",
    "Some NCCL operations have failed or timed out",
    "Timeout at NCCL work",
    "Heartbeat monitor timed out! Process will be terminated",
    "watchdog got stuck for",
    "watchdog hang",
    "waiting for remainder of ranks for more than",
    "Watchdog timeout (self.watchdog_timeout",
    "hcom communication timeout",
    "of the Notify register times out",
    "Stream synchronize timeout",
    "reason=[task timeout]",
    "reason=[stream sync timeout]",
    "Collective operation timed out",
    "collective operation timed out",
    "due to timeout of collective",
    "due to a collective timeout",
    "due to collective timeout",
)
_HCCL = matches(r"\bHCCL|\bHccl[A-Z]|torch_npu|\bhcom ")
_GLOO = re.compile(r"Timed out waiting (\d{1,12})ms for (?:recv|send) operation")
_GLOO_TIMED_OUT = matches(
    rf"{_GLOO.pattern}|failed to pass monitoredBarrier|successfully reached monitoredBarrier, but"
    r"|gloo/transport/\S{1,80}\] Read timeout"
)
_SYSTEM = contains(
    "ncclSystemError",
    "unhandled system error",
    "ncclRemoteError",
    "ncclInternalError",
    "remote process exited or there was a network error",
    "NCCL WARN NET/IB : Got",
    "NCCL WARN Call to connect",
    "NCCL WARN Call to ibv_",
    "NCCL WARN Connect to",
    "NCCL WARN NET/IB : Async",
    "NCCL WARN NET/OFI",
    "NCCL failure",
    "NCCL WARN Net : Connect to",
    "NCCL WARN socket",
    "NCCL WARN NET/Socket",
    "NCCL WARN Bootstrap",
    "NCCL WARN Message truncated",
    "NCCL WARN Timeout waiting",
    "NCCL WARN Error while creating",
    "NCCL WARN Proxy Call to rank",
    "NCCL WARN [Service thread]",
    "NCCL WARN Mismatched collective",
    "NCCL Error 2",
    "NCCL Error 6",
    "NCCL error",
    "socketProgress",
    "ibv_poll_cq error",
    "ibv_modify_qp failed",
    "ncclUnhandledCudaError",
    "unhandled cuda error",
    "HorovodInternalError",
    "RCCL error",
    "Call to ibv_",
)
# Memory for network transfers that the kernel or the driver did not lock and register.
_UNREGISTERED = matches(
    r"\b(?:ibv_(?:reg_(?:dmabuf_)?mr|create_(?:cq|qp|srq)|alloc_\w{1,8}|open_device)\w{0,12}|fi_mr_reg\w{0,8})\b.{0,120}(?:Cannot allocate memory|\b12\b)"
    r"|NCCL WARN .{0,200}Cannot allocate memory|prov_errno: Cannot allocate memory"
    r"|(?:[Uu]nable to register|[Ff]ailed to register|[Mm]emory registration).{0,120}Cannot allocate memory",
    without=("dev/shm",),
)
_LEAST_SHM_BYTES = 8 << 30
_SAME_STEPS = (
    "Check that all ranks take the same number of steps: `drop_last=True`, `DistributedSampler`, and no"
    " collective operation under `if rank == 0:`."
)


def detect_nccl_timeout(case: Case) -> Finding | None:
    """Detect ranks that NCCL's watchdog ended because a collective operation timed out."""
    match = find_match(case, _TIMED_OUT) or find_not_connected(case)
    if match is None:
        return None
    first = find_first_failure(case, match.line)
    if first is not None and _TIMED_OUT(match.text):
        text = f"A traceback before it ends with {quote(first.errors[-1].headline)}."
        match = match.cap("low", text)
    waits = list_waits(case.lines)
    missing = list_missing(case, waits)
    return match.conclude(
        "nccl-timeout",
        "The ranks are out of step: they waited for different collective operations until the timeout."
        if not missing and are_apart(waits)
        else summarize_waits(waits),
        _advise_hccl(case) or _advise_timeout(missing),
        speaks_for=describe_waits(waits, missing),
    )


def has_waited_for_failed(case: Case) -> bool:
    """Return whether a rank timed out because another rank had failed earlier."""
    match = find_match(case, _TIMED_OUT)
    return match is not None and find_first_failure(case, match.line) is not None


def _advise_timeout(missing: Sequence[int]) -> tuple[str, ...]:
    absent = join_names([str(rank) for rank in missing])
    where = (
        f"rank {absent}" if missing else "the rank without this line, or the one furthest behind"
    )
    return (
        (
            f"Examine {where}: its last log lines, its host's kernel log (`dmesg -T`), and its stack"
            " while it hangs (`py-spy dump --pid PID`)."
        ),
        (
            "Record each rank's collective operations: `TORCH_NCCL_TRACE_BUFFER_SIZE=2000`,"
            " `TORCH_NCCL_DUMP_ON_TIMEOUT=1` and `NCCL_DEBUG=INFO`."
        ),
        _SAME_STEPS,
        (
            "Raise the timeout only if a rank is expected to be slow (evaluation, a checkpoint):"
            " `init_process_group(timeout=timedelta(hours=1))`."
        ),
    )


def _advise_hccl(case: Case) -> tuple[str, ...]:
    """Return the advice for Ascend's HCCL; an empty tuple if another library failed."""
    return () if case.search(_HCCL) is None else _HCCL_STEPS


_HCCL_STEPS = (
    (
        "Find the rank that stopped first, in the logs of all ranks: `~/ascend/log/run/plog`, or where"
        " `ASCEND_PROCESS_LOG_PATH` points; `npu-smi info` shows the state of its card."
    ),
    _SAME_STEPS,
    (
        "Raise the time limits only if a rank is expected to be slow: `HCCL_EXEC_TIMEOUT=3600` for an"
        " operation, `HCCL_CONNECT_TIMEOUT=1200` for its connections."
    ),
    "Choose the interface between hosts: `HCCL_SOCKET_IFNAME=eth0`.",
)


def detect_gloo_timeout(case: Case) -> Finding | None:
    """Detect a rank on which a Gloo operation (a collective operation on the CPU) timed out."""
    match = find_match(case, _GLOO_TIMED_OUT)
    if match is None:
        return None
    found = _GLOO.search(match.text)
    after = f" after {format_duration(int(found[1]) / 1000)}" if found else ""
    who = "A rank" if match.rank is None else f"Rank {match.rank}"
    return match.conclude(
        "gloo-timeout",
        f"{who} timed out{after} in a Gloo operation; another rank failed first.",
        (
            (
                "Examine the rank without this line: its last log lines, its host's kernel log"
                " (`dmesg -T`), and its stack while it hangs (`py-spy dump --pid PID`)."
            ),
            _SAME_STEPS,
            (
                "Raise the timeout only if a rank is expected to be slow:"
                " `init_process_group(timeout=timedelta(hours=1))`."
            ),
        ),
    )


def detect_nccl_system(case: Case) -> Finding | None:
    """Detect NCCL errors that concern sockets, shared memory, locked memory or peers."""
    unregistered = find_match(case, _UNREGISTERED)
    if unregistered is not None and unregistered.confidence != "low":
        return _conclude_unregistered(unregistered)
    match = find_match(case, _SYSTEM)
    if match is None:
        return None
    warned = [line.strip() for line in case.lines if "NCCL WARN" in line]
    if warned:
        first = f"NCCL first logged {quote(warned[0])}."
        match = replace(match, speaks_for=(first, *match.speaks_for))
    return match.cap("medium").conclude(
        "nccl-system",
        "NCCL failed; the network or the loss of another rank may be the cause.",
        (
            "Run it with `NCCL_DEBUG=INFO`: the line `NCCL WARN` before the error names the failed call.",
            (
                "Set the network interface between the ranks: `NCCL_SOCKET_IFNAME=eth0`, and try"
                " `NCCL_IB_DISABLE=1`; `docker run --network host` avoids Docker's bridge."
            ),
            "Check the InfiniBand port and its errors: `ibstat`, `ibqueryerrors`.",
            "Check whether another rank died first, which the remaining ranks report as `ncclRemoteError`.",
            _advise_shm(case),
        ),
    )


def _conclude_unregistered(match: LogMatch) -> Finding:
    return match.cap("medium").conclude(
        "nccl-system",
        "The network between the ranks could not lock and register memory, mostly because of the limit"
        " of locked memory (`memlock`).",
        (
            (
                "Remove the limit: `docker run --ulimit memlock=-1`, `LimitMEMLOCK=infinity` of the unit"
                " (also of Slurm's `slurmd`), or `* - memlock unlimited` in /etc/security/limits.conf."
            ),
            "Check it within the job, on each node: `ulimit -l` must print `unlimited`.",
            "See whether it works over TCP: `NCCL_IB_DISABLE=1`.",
        ),
    )


def _advise_shm(case: Case) -> str:
    settings = case.evidence.settings
    size = settings.shm_size_bytes if settings is not None else None
    if not size:
        return "Enlarge /dev/shm: `docker run --shm-size=8g`, or `--ipc=host`."
    wanted = format_option(max(_LEAST_SHM_BYTES, 2 * size))
    return (
        f"Enlarge /dev/shm, which has {format_bytes(size)}: `docker run --shm-size={wanted}`, or"
        " `--ipc=host`."
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="nccl-timeout",
        title="A collective operation timed out (NCCL)",
        signs="The log contains `Watchdog caught collective operation timeout`.",
        meaning="Another rank died or hangs, or the ranks run different operations. The rank that"
        " failed first is not one that logs this.",
        steps=(
            "Find the rank without this line and the cause of its stop.",
            "Run it with `TORCH_NCCL_TRACE_BUFFER_SIZE=2000` and `NCCL_DEBUG=INFO`.",
            "Raise the timeout only if a rank is expected to be slow.",
        ),
        confidence="high",
        detect=detect_nccl_timeout,
    ),
    Cause(
        reason="gloo-timeout",
        title="A collective operation timed out (Gloo)",
        signs="The log contains `Timed out waiting 1800000ms for recv operation to complete`.",
        meaning="On the CPU: another rank died or hangs, or the ranks run different operations.",
        steps=(
            "Find the rank without this line and the cause of its stop: `py-spy dump --pid PID`.",
            "Check that all ranks take the same number of steps (`drop_last=True`).",
        ),
        confidence="high",
        detect=detect_gloo_timeout,
    ),
    Cause(
        reason="nccl-system",
        title="NCCL system error",
        signs="The log contains `ncclSystemError`, `unhandled system error`, `ncclRemoteError`, or NCCL's warnings"
        " about its network.",
        meaning="The network between the ranks, its limit of locked memory (`memlock`), or the loss of another rank.",
        steps=(
            "Run it with `NCCL_DEBUG=INFO` and read the line `NCCL WARN`.",
            "Set `NCCL_SOCKET_IFNAME`, and use `--shm-size=8g` or `--ipc=host`.",
        ),
        confidence="medium",
        detect=detect_nccl_system,
    ),
    text_cause(
        "nccl-usage",
        "NCCL was called wrongly",
        "The log contains `ncclInvalidUsage`, `invalid usage` or `Duplicate GPU detected`.",
        "Mostly two ranks on one GPU; or ranks that call different operations or sizes.",
        (
            (
                "Give each rank its own GPU: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before"
                " `init_process_group`."
            ),
            (
                "Start no more ranks than GPUs: `--nproc-per-node`, `nvidia-smi -L`; read NCCL's reason with"
                " `NCCL_DEBUG=WARN`."
            ),
        ),
        summary="NCCL was called wrongly, mostly because two ranks use one GPU.",
        lines=contains(
            "ncclInvalidUsage",
            "ncclInvalidArgument",
            "Duplicate GPU detected",
            "cpp, invalid usage",
            "invalid usage (run with NCCL_DEBUG",
            "hpp, invalid usage",
            "invalid usage, NCCL version",
            "NCCL Error 5",
            "NCCL Error 4",
            "no support for mixing",
        ),
    ),
)
