"""Return the evidence about a training run, or about a process outside containers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import replace

import psutil

from trainvitals.foreign_numbers import read_count
from trainvitals.foreign_text import clean_text
from trainvitals.masking import mask_command
from trainvitals.runfile import STATE, State
from trainvitals.sources.containers.cgrouppaths import find_group
from trainvitals.sources.containers.cgroups import GroupFiles, to_sample
from trainvitals.sources.containers.evidence import (
    Evidence,
    Gap,
    Host,
    OomKill,
    Sample,
    Settings,
    Training,
)
from trainvitals.sources.containers.evidence_folder import parse_log
from trainvitals.sources.files import Roots
from trainvitals.sources.host.kernel_log import KernelNews
from trainvitals.sources.host.snapshot import read_host
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.history import RunHistory
from trainvitals.sources.runs.launches import Launch, read_output
from trainvitals.sources.runs.past_runs import LONGEST_TEXT, Run, Start
from trainvitals.sources.runs.stalls import learn_threshold
from trainvitals.sources.signals import describe_signal

_SIGKILL, _SIGTERM = 9, 15
_NEAR_SECONDS = 60.0
_LOG = Gap(
    "its output",
    "what it wrote went to a terminal or file that is not known here",
    "run it in a container or by `trainvitals run --log FILE`, or look at the end of the file that "
    "its launcher wrote",
)


def read_run(run: Run, kernel: KernelNews | None, gaps: tuple[Gap, ...] = ()) -> Evidence:
    """Return the evidence about how a training run ended, from the run's most relevant rank."""
    return read_start(run, run.telling, kernel, gaps)


def read_start(
    run: Run, start: Start, kernel: KernelNews | None, gaps: tuple[Gap, ...] = ()
) -> Evidence:
    """Return the evidence about one start of a rank.

    Args:
        run: The training run.
        start: The start of a rank that is described.
        kernel: The events in the kernel log; None if the kernel log cannot be read.
        gaps: The sources of evidence that could not be read.
    """
    ending = start.ending
    known = Evidence(
        subject="run",
        name=run.name,
        started=start.identity.created_time,
        restarts=run.losses.restarts,
        training=_read_training(run, start),
        gaps=gaps,
    )
    known = _add_output(known, start.launch)
    if ending is None:
        return known
    launch = start.launch
    is_of_command = start is run.telling and _is_end_of_command(ending, launch)
    if launch is not None and (ending.reason == "unknown" or is_of_command):
        ending = _add_exit(ending, launch)
        known = replace(known, training=_read_training(run, start, ending))
    kills = None if kernel is None else find_kills(kernel, (start.liveness.host_pid,), ending.time)
    was_counted = ending.reason == "oom"
    return replace(
        known,
        ended=ending.time,
        exit_code=0 if ending.reason == "finished" else ending.exit_code,
        signal=ending.signal or (_SIGKILL if was_counted else None),
        exception=ending.exception or "",
        oom_kills=kills,
        cgroup=kills[0].task_memcg if kills else "",
        sample=Sample(ending.time, 0, oom_kills=1) if was_counted else None,
        host=_read_machine(start),
    )


def read_launch(launch: Launch, kernel: KernelNews | None, gaps: tuple[Gap, ...] = ()) -> Evidence:
    """Return the evidence about a launch by `trainvitals run` in which no process reported a run.

    Args:
        launch: The launch; the user must have given a run name.
        kernel: The events in the kernel log; None if the kernel log cannot be read.
        gaps: The sources of evidence that could not be read.
    """
    kills = None if kernel is None else find_kills(kernel, launch.pids, launch.ended)
    evidence = Evidence(
        subject="run",
        name=clean_text(launch.name or "", most=LONGEST_TEXT),
        started=launch.started,
        ended=launch.ended,
        exit_code=launch.exit_code,
        signal=launch.signal,
        oom_kills=kills,
        cgroup=kills[0].task_memcg if kills else "",
        gaps=gaps,
    )
    return _add_output(evidence, launch)


def _add_output(evidence: Evidence, launch: Launch | None) -> Evidence:
    """Return evidence with a launch's output added, or the traceback in the launch note."""
    output = None if launch is None else read_output(launch)
    if launch is not None and not output and launch.error:
        output = launch.error
    of_thread = "" if launch is None else launch.thread_error or ""
    evidence = replace(evidence, thread_log=_mask(of_thread))
    if output is None:
        return replace(evidence, gaps=(*evidence.gaps, _LOG))
    return replace(evidence, log=_mask(output))


def _mask(text: str) -> tuple[str, ...]:
    return tuple(line.text for line in parse_log(text))


def _is_end_of_command(ending: Ending, launch: Launch | None) -> bool:
    """Return whether a command failed with an exception that is not from its ranks.

    After an exception in a cell, a program that executes a notebook terminates the notebook's
    kernel. If the command itself received SIGTERM before, the command's exception says so.
    """
    if launch is None or not launch.exit_code or launch.error is None:
        return False
    is_only = len(launch.runs) == 1
    return ending.signal == _SIGTERM or (ending.reason == "finished" and is_only)


def _add_exit(ending: Ending, launch: Launch) -> Ending:
    """Return an ending to which the exit of the rank's command is added."""
    if launch.signal is not None:
        how = f"{describe_signal(launch.signal)} killed the command of `trainvitals run`"
    elif launch.exit_code is not None:
        how = f"the command of `trainvitals run` ended with exit code {launch.exit_code}"
    else:
        return ending
    evidence = f"{ending.evidence.removesuffix('.')}; {how}."
    if ending.reason == "unknown":
        return replace(ending, evidence=evidence)
    return replace(
        ending, reason="exception", exit_code=launch.exit_code, signal=None, evidence=evidence
    )


def _read_training(run: Run, start: Start, ending: Ending | None = None) -> Training:
    loss = start.value("loss")
    ending = ending or start.ending
    return Training(
        source="" if ending is None else ending.evidence,
        pid=start.liveness.host_pid,
        phase=start.phase,
        phase_seconds=start.phase_seconds,
        idle_seconds=start.progress_age_seconds,
        idle_limit_seconds=learn_threshold(start.record),
        slowest_step_seconds=start.seconds("slowest_step_seconds"),
        stall=start.stall,
        steps=start.count("steps"),
        nonfinite_losses=start.count("nonfinite_losses"),
        is_loss_finite=None if loss is None else math.isfinite(loss),
        is_switched_off=start.record.state[STATE["state"]] == State.SWITCHED_OFF,
        is_end_seen=start.is_end_seen,
        world_size=run.world_size,
        ranks_here=len({each.rank for each in run.current}),
    )


def find_run(history: RunHistory, pid: int) -> Run | None:
    """Return the run in which a process is or was a rank; None if the process was in no run."""
    for run in history.runs:
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
    """Return the evidence about a process: its current state, or how the kernel killed it.

    Args:
        pid: The PID of the process.
        kernel: The events in the kernel log; None if the kernel log cannot be read.
        gaps: The sources of evidence that could not be read.
        roots: The paths of `/proc` and `/sys`.
        clock: A function that returns the current time, in Unix seconds.

    Returns:
        The evidence; None if nothing is known about the process.
    """
    kills = [kill for kill in (kernel.oom_kills if kernel is not None else ()) if kill.pid == pid]
    try:
        process = psutil.Process(pid)
        name, started = process.name(), process.create_time()
        is_over = process.status() == psutil.STATUS_ZOMBIE
        command = [] if is_over else process.cmdline()
    except (psutil.Error, OSError):
        return read_killed(kills[-1], kernel, gaps) if kills else None
    kills = [kill for kill in kills if kill.time > started]  # the PID was reused
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


def read_killed(kill: OomKill, kernel: KernelNews | None, gaps: tuple[Gap, ...] = ()) -> Evidence:
    """Return the evidence about a killed process that was not in a container.

    Args:
        kill: The OOM kill that ended the process, from the kernel log.
        kernel: The events in the kernel log; None if the kernel log cannot be read.
        gaps: The sources of evidence that could not be read.
    """
    xids = kernel.xids if kernel is not None else ()
    return Evidence(
        subject="process",
        name=f"{kill.task} ({kill.pid})",
        ended=kill.time,
        signal=_SIGKILL,
        cgroup=kill.task_memcg,
        oom_kills=(kill,),
        xids=tuple(xid for xid in xids if abs(xid.time - kill.time) <= _NEAR_SECONDS),
        gaps=(*gaps, _LOG),
    )


def find_kills(
    kernel: KernelNews, pids: Collection[int | None], ended: float | None
) -> tuple[OomKill, ...]:
    """Return the OOM kills of processes at about the time when they ended."""
    return tuple(
        kill
        for kill in kernel.oom_kills
        if kill.pid in pids and ended is not None and abs(kill.time - ended) <= _NEAR_SECONDS
    )


def _read_machine(start: Start) -> Host | None:
    if start.ending is None or not start.ending.machine:
        return None
    numbers = start.ending.machine
    total, available = (numbers.get(f"memory_{name}_bytes") for name in ("total", "available"))
    return Host(
        start.ending.time,
        memory_total_bytes=read_count(total),
        memory_available_bytes=read_count(available),
    )
