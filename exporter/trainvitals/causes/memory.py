"""Main processes that the kernel's OOM killer ended: whose limit it was, and who noticed."""

from __future__ import annotations

from pathlib import PurePosixPath

from trainvitals.causes.case import Case
from trainvitals.causes.evidence import OomKill
from trainvitals.causes.figures import write_count, write_size
from trainvitals.causes.limits import advise_higher_limit, advise_less_memory, name_limit
from trainvitals.causes.oomkills import (
    Traces,
    tell_lateness,
    tell_level,
    tell_silence,
    tell_traces,
    trace,
)
from trainvitals.causes.requests import read_request
from trainvitals.causes.verdict import Cause, Confidence, Finding

_SIGKILL = 9
_YOUNG_SECONDS = 30.0
_MOST_NAMED = 3
_TASK_CHARACTERS = 15  # the kernel keeps no more of a process' name
_CONSTRAINTS = {
    "CONSTRAINT_CPUSET": "the NUMA nodes that it may use (`--cpuset-mems`)",
    "CONSTRAINT_MEMORY_POLICY": "the NUMA nodes of its memory policy (`numactl`)",
}


def has_died_of_memory(case: Case) -> bool:
    """Tell whether the OOM killer explains the end of the main process."""
    return any(
        look(case) is not None for look in (_look_cgroup, _look_missed, _look_host, _look_parent)
    )


def _was_killed(case: Case) -> bool:
    return case.has_ended and case.signal == _SIGKILL and read_request(case) is None


def _look_cgroup(case: Case) -> Finding | None:
    traces = trace(case)
    if not _was_killed(case) or not traces.are_there:
        return None
    if traces.kills:
        if not case.is_by_own_limit(traces.kills[-1]) or _is_missed(case, traces):
            return None
    elif case.is_without_limit and case.is_container:
        return None
    return Finding(
        "oom-cgroup",
        f"The kernel killed it because it reached {name_limit(case)}.",
        _judge_traces(case, traces),
        (*tell_traces(case), *tell_level(case)),
        (*tell_lateness(case), *tell_silence(case), *_tell_deafness(case, traces)),
        (advise_higher_limit(case), *advise_less_memory(case)),
    )


def _judge_traces(case: Case, traces: Traces) -> Confidence:
    is_doubtful = bool(tell_lateness(case)) or bool(not traces.kills and tell_silence(case))
    return "medium" if is_doubtful else "high"


def _tell_deafness(case: Case, traces: Traces) -> tuple[str, ...]:
    if not case.is_container or case.was_end_watched or traces.kills:
        return ()
    return ("Nobody listened to the engine's events: a `docker kill` cannot be ruled out.",)


def _is_missed(case: Case, traces: Traces) -> bool:
    """Tell whether there is an engine that was asked and did not know of the kill."""
    was_asked = case.evidence.state is not None or case.was_end_watched
    return case.is_container and was_asked and not traces.events and not traces.is_flagged


def _look_missed(case: Case) -> Finding | None:
    traces = trace(case)
    if not _was_killed(case) or not _is_missed(case, traces):
        return None
    if traces.kills:
        is_own = case.is_by_own_limit(traces.kills[-1])
        return _write_missed(case, _judge_traces(case, traces)) if is_own else None
    confidence = _judge_missed_by_unnamed(case) or _judge_missed_by_counts(case)
    return _write_missed(case, confidence) if confidence is not None else None


def _judge_missed_by_unnamed(case: Case) -> Confidence | None:
    """Judge by kills of which the kernel did not write whose they were."""
    kills = case.list_unnamed_kills()
    if not kills or not case.memory_limit_bytes:
        return None
    settings = case.evidence.settings
    command = settings.command if settings is not None else ()
    name = PurePosixPath(command[0]).name[:_TASK_CHARACTERS] if command else ""
    return "medium" if any(kill.task == name for kill in kills) else "low"


def _judge_missed_by_counts(case: Case) -> Confidence | None:
    """Judge without a kernel log: the host's count rose, and the memory was nearly used up."""
    evidence = case.evidence
    if evidence.oom_kills is not None or not evidence.host_oom_kills:
        return None
    if not case.memory_limit_bytes:
        return None
    if case.was_near_limit:
        return "medium"
    lasted = case.lasted_seconds
    was_unseen = evidence.sample is None and lasted is not None and lasted < _YOUNG_SECONDS
    return "low" if was_unseen else None


def _write_missed(case: Case, confidence: Confidence) -> Finding:
    risen, has_line = case.evidence.host_oom_kills, bool(case.list_own_kills())
    told, against = [*tell_traces(case), *tell_level(case)], [*tell_lateness(case)]
    if risen:
        kills = write_count(risen, "OOM kill")
        told.append(f"The host counted {kills} around its end (`oom_kill` in /proc/vmstat).")
    told.append("Nobody sent it a signal through the engine.")
    against.append(
        "The engine reported no `oom` and its state does not say OOMKilled; after an OOM right"
        " after the start it often forgets."
    )
    if case.evidence.oom_kills is None:
        against.append("The kernel log could not be read; it would name the one that was killed.")
    elif not has_line:
        told += [_tell_unnamed(kill) for kill in case.list_unnamed_kills()[-1:]]
        against.append(
            "The kernel wrote of so many kills in so short a time that it left out whose they were."
        )
    return Finding(
        "oom-missed",
        f"The kernel killed it at {name_limit(case)}, and the engine did not notice.",
        confidence,
        tuple(told),
        tuple(against),
        (advise_higher_limit(case), *advise_less_memory(case)),
    )


def _tell_unnamed(kill: OomKill) -> str:
    return f"Kernel log: the OOM killer ended `{kill.task}` (PID {kill.pid}) around its end."


def _look_host(case: Case) -> Finding | None:
    traces = trace(case)
    if not _was_killed(case):
        return None
    if traces.kills:
        kill = traces.kills[-1]
        return _write_host(case, kill, "high") if kill.oom_memcg is None else None
    has_counted = bool(case.evidence.host_oom_kills) and case.evidence.oom_kills is None
    if not case.is_without_limit or not (traces.are_there or has_counted) or traces.is_spared:
        return None
    return _write_host(case, None, "medium")


def _write_host(case: Case, kill: OomKill | None, confidence: Confidence) -> Finding:
    told, against = [*tell_traces(case), *tell_level(case)], [*tell_lateness(case)]
    if case.is_without_limit:
        told.append("It had no memory limit of its own.")
    risen = case.evidence.host_oom_kills
    if risen:
        told.append(f"The host counted {write_count(risen, 'OOM kill')} around its end.")
    told += _tell_host(case)
    if kill is None:
        against.append(
            "No line of the kernel log names it; the limit of a group above it could be meant."
        )
    where = _CONSTRAINTS.get(kill.constraint) if kill is not None else None
    ran_out = f"Memory ran out on {where}" if where else "The host ran out of memory"
    return Finding(
        "oom-host",
        f"{ran_out}, and the kernel chose {case.thing}.",
        confidence,
        tuple(told),
        tuple(against),
        (*_advise_host(case), *advise_less_memory(case)),
    )


def _tell_host(case: Case) -> tuple[str, ...]:
    host = case.evidence.host
    if host is None or host.memory_total_bytes is None:
        return ()
    free = host.memory_available_bytes
    rest = "" if free is None else f", {write_size(free)} of it available when it was looked at"
    return (f"The host has {write_size(host.memory_total_bytes)} of memory{rest}.",)


def _advise_host(case: Case) -> tuple[str, ...]:
    host = case.evidence.host
    biggest = host.biggest[:_MOST_NAMED] if host is not None else ()
    named = ", ".join(f"`{name}` {write_size(size)}" for name, size in biggest)
    most = f" The biggest at that time: {named}." if named else ""
    return (
        (
            "Give every job on this host a limit (`docker run --memory 16g --memory-swap 16g`), so that"
            f" one that grows ends alone.{most}"
        ),
        "Run fewer jobs at once, or add swap (`swapon`) or memory.",
        "`earlyoom` or `systemd-oomd` end the right process before everything stands still.",
    )


def _look_parent(case: Case) -> Finding | None:
    traces = trace(case)
    if not _was_killed(case) or not traces.kills:
        return None
    kill = traces.kills[-1]
    if kill.oom_memcg is None or case.is_by_own_limit(kill):
        return None
    return Finding(
        "oom-parent",
        f"The kernel killed it at the limit of `{kill.oom_memcg}`, the group that it is in.",
        "medium" if tell_lateness(case) else "high",
        (*tell_traces(case), *tell_level(case)),
        tell_lateness(case),
        (_advise_parent(case, kill.oom_memcg), *advise_less_memory(case)),
    )


def _advise_parent(case: Case, group: str) -> str:
    last = group.rstrip("/").rpartition("/")[2]
    if "kubepods" in group:
        return "Raise `resources.limits.memory` of the pod: its containers share it."
    if last.endswith((".slice", ".service", ".scope")):
        return f"Raise the limit: `systemctl set-property {last} MemoryMax=…`."
    if "slurm" in group:
        return "Ask for more memory for the job: `sbatch --mem=…`."
    where = "`memory.max` (version 1: `memory.limit_in_bytes`)"
    away = ", or start it with another `--cgroup-parent`" if case.is_container else ""
    return f"Raise {where} of `{group}`{away}: all that is in it shares this limit."


CAUSES: tuple[Cause, ...] = (
    Cause(
        "oom-cgroup",
        "OOM-killed at its own memory limit",
        "137 (SIGKILL), and an event `oom`, `OOMKilled`, or a line `oom-kill:` of the kernel log in"
        " which `task_memcg` and `oom_memcg` are its own; nobody killed it through the engine",
        "The container, or the control group of the process, reached its memory limit."
        " Shared memory and tmpfs count too; file cache is dropped before anything is killed.",
        (
            (
                "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`, or `mem_limit`"
                " in the Compose file."
            ),
            "Use fewer data loader workers (`num_workers`, `prefetch_factor`).",
            "Use a smaller batch with `gradient_accumulation_steps`.",
            "Stream the data (`streaming=True`) instead of loading it whole.",
        ),
        "high",
        _look_cgroup,
    ),
    Cause(
        "oom-missed",
        "OOM-killed, and the engine did not notice",
        "137, no event `kill`, `OOMKilled` false, and a line `oom-kill:` of the kernel log names it;"
        " without a kernel log: at 95 % of its limit or more, and `oom_kill` in /proc/vmstat rose",
        "The same as oom-cgroup. Engines miss some OOM kills, most often right after the start, and"
        " then `docker inspect` is wrong.",
        (
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
            "Use fewer data loader workers (`num_workers`, `prefetch_factor`).",
            (
                "Let the exporter read the kernel log (`--device /dev/kmsg --cap-add SYSLOG`) to be sure"
                " the next time."
            ),
        ),
        "medium",
        _look_missed,
    ),
    Cause(
        "oom-host",
        "OOM-killed because the host ran out of memory",
        "137 and a line of the kernel log with `global_oom` or `CONSTRAINT_NONE` that names it;"
        " or signs of an OOM kill and no limit of its own",
        "All memory of the host was used, and the kernel chose this one; another job may have used"
        " most of it. `OOMKilled` may say either.",
        (
            "Give every job a limit: `docker run --memory 16g --memory-swap 16g`.",
            "Run fewer jobs at once, or add swap (`swapon`) or memory.",
            "Install `earlyoom` or `systemd-oomd`.",
        ),
        "high",
        _look_host,
    ),
    Cause(
        "oom-parent",
        "OOM-killed at the limit of a group above it",
        "137 and a line of the kernel log in which `oom_memcg` is not its own control group",
        "The limit of a slice, a pod or a scheduler's job was reached by all that runs in it"
        " together. Engines may mark its innocent neighbours as OOMKilled.",
        (
            (
                "Raise that limit: `systemctl set-property NAME.slice MemoryMax=…`,"
                " `resources.limits.memory` of the pod, `sbatch --mem=…`."
            ),
            "Start it under another parent: `docker run --cgroup-parent`.",
        ),
        "high",
        _look_parent,
    ),
)
