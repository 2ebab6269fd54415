"""Evidence of what is no container: a training run, or a process by its number."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from trainvitals.causes.evidence import Evidence, Gap, Host, OomKill, Sample, Settings
from trainvitals.diagnosis.host import read_host
from trainvitals.masking import mask_command
from trainvitals.postmortem.cases import Run, Start
from trainvitals.postmortem.findings import Findings
from trainvitals.sources.containers.cgroups import GroupFiles, find_group, to_sample
from trainvitals.sources.files import Roots
from trainvitals.sources.kernel_log import KernelNews

_SIGKILL = 9
_NEAR_SECONDS = 60.0
_LOG = Gap(
    "its output",
    "what it wrote went to a terminal or file that is not known here",
    "run it in a container, or look at the end of the file that its launcher wrote",
)


def read_run(run: Run, kernel: KernelNews | None, gaps: tuple[Gap, ...] = ()) -> Evidence:
    """Give what is known of a training run's end, by the rank that tells the most."""
    start = run.telling
    ending = start.ending
    if ending is None:
        return Evidence(
            subject="run", name=run.name, started=start.identity.created_time, gaps=(*gaps, _LOG)
        )
    kills = None if kernel is None else _find_kills(kernel, start, ending.time)
    was_counted = ending.reason == "oom"
    return Evidence(
        subject="run",
        name=run.name,
        started=start.identity.created_time,
        ended=ending.time,
        exit_code=0 if ending.reason == "finished" else ending.exit_code,
        signal=ending.signal or (_SIGKILL if was_counted else None),
        exception=ending.exception or "",
        oom_kills=kills,
        cgroup=kills[0].task_memcg if kills else "",
        sample=Sample(ending.time, 0, oom_kills=1) if was_counted else None,
        host=_read_machine(start),
        restarts=run.losses.restarts,
        gaps=(*gaps, _LOG),
    )


def find_run(findings: Findings, pid: int) -> Run | None:
    """Find the run one of whose ranks is or was a process of this machine; None for none."""
    for run in findings.runs:
        if any(start.liveness.host_pid == pid for start in run.starts):
            return run
    return None


def read_process(
    pid: int,
    kernel: KernelNews | None,
    gaps: tuple[Gap, ...] = (),
    *,
    roots: Roots = Roots(),  # noqa: B008 - immutable
    clock: Callable[[], float] = time.time,
) -> Evidence | None:
    """Give what is known of a process: its present trouble, or how the kernel ended it.

    Args:
        pid: Its number.
        kernel: What the kernel log has; None where it cannot be read.
        gaps: What could not be read.
        roots: Where `/proc` and `/sys` are.
        clock: Tells the time.

    Returns:
        None where nothing is known of it.
    """
    kills = [kill for kill in (kernel.oom_kills if kernel is not None else ()) if kill.pid == pid]
    try:
        process = psutil.Process(pid)
        name, started = process.name(), process.create_time()
        is_over = process.status() == psutil.STATUS_ZOMBIE
        command = [] if is_over else process.cmdline()
    except (psutil.Error, OSError):
        return _read_killed(kills[-1], kernel, (*gaps, _LOG)) if kills else None
    group = find_group(pid, roots)
    usage = None if group is None else GroupFiles(group, roots=roots).read()
    return Evidence(
        subject="process",
        name=f"{name} ({pid})",
        started=started,
        ended=clock() if is_over else None,
        settings=Settings(command=mask_command(command)),
        cgroup="" if group is None else group.cgroup,
        oom_kills=None if kernel is None else tuple(kills),
        sample=None if usage is None else to_sample(usage),
        xids=None if kernel is None else tuple(x for x in kernel.xids if x.pid == pid),
        host=read_host(roots=roots),
        gaps=(*gaps, _LOG),
    )


def _read_killed(kill: OomKill, kernel: KernelNews | None, gaps: tuple[Gap, ...]) -> Evidence:
    xids = kernel.xids if kernel is not None else ()
    return Evidence(
        subject="process",
        name=f"{kill.task} ({kill.pid})",
        ended=kill.time,
        signal=_SIGKILL,
        cgroup=kill.task_memcg,
        oom_kills=(kill,),
        xids=tuple(xid for xid in xids if abs(xid.time - kill.time) <= _NEAR_SECONDS),
        gaps=gaps,
    )


def _find_kills(kernel: KernelNews, start: Start, ended: float) -> tuple[OomKill, ...]:
    return tuple(
        kill
        for kill in kernel.oom_kills
        if kill.pid == start.liveness.host_pid and abs(kill.time - ended) <= _NEAR_SECONDS
    )


def _read_machine(start: Start) -> Host | None:
    if start.ending is None or not start.ending.machine:
        return None
    numbers = start.ending.machine
    total, available = (numbers.get(f"memory_{name}_bytes") for name in ("total", "available"))
    return Host(
        start.ending.time,
        memory_total_bytes=None if total is None else int(total),
        memory_available_bytes=None if available is None else int(available),
    )
