"""OOM kills of the main process, by the limit that was reached and the engine's report."""

from __future__ import annotations

from pathlib import PurePosixPath

from trainvitals.sources.containers.evidence import OomKill
from trainvitals.units import count_noun, format_bytes
from trainvitals.verdicts.causes import pods, schedulers, slurm
from trainvitals.verdicts.causes.advice import advise_higher_limit, advise_less_memory, name_limit
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.oom_evidence import (
    OomEvidence,
    collect_oom_evidence,
    describe_late_kill,
    describe_memory_use,
    describe_missing_kernel_line,
    describe_oom_kills,
)
from trainvitals.verdicts.causes.requests import read_request
from trainvitals.verdicts.causes.verdict import Cause, Confidence, Finding
from trainvitals.verdicts.causes.workers import find_killed_worker

_SIGKILL = 9
_YOUNG_SECONDS = 30.0
_PROMPT_SECONDS = 1.0  # The main process ends within half a second of the OOM kill.
_MOST_NAMED = 3
_TASK_BYTES = 15  # The kernel truncates task names to TASK_COMM_LEN, 16 bytes with the NUL.
_LIMIT = "CONSTRAINT_MEMCG"
_CONSTRAINTS = {
    "CONSTRAINT_CPUSET": "The NUMA nodes of its cpuset (`--cpuset-mems`)",
    "CONSTRAINT_MEMORY_POLICY": "The NUMA nodes of its memory policy (`numactl`)",
}


def was_oom_killed(case: Case) -> bool:
    """Return whether the OOM killer ended the main process."""
    return any(
        detect(case) is not None
        for detect in (_detect_cgroup, _detect_missed, _detect_host, _detect_parent)
    )


def _was_killed(case: Case) -> bool:
    # Exit code 137 means SIGKILL from any sender. `docker kill` sends SIGKILL too, as does a stop
    # that reached its timeout.
    if not case.has_ended or read_request(case) is not None:
        return False
    return case.signal == _SIGKILL or _is_seen_by_kernel_alone(case)


def _is_seen_by_kernel_alone(case: Case) -> bool:
    """Return whether an OOM kill in the kernel log is the only evidence of the subject's end."""
    is_open = case.exit_code is None and case.signal is None and not case.evidence.exception
    if case.success:  # the kernel may have killed another program on the host
        return False
    return is_open and bool(case.list_own_kills()) and find_killed_worker(case) is None


def _detect_cgroup(case: Case) -> Finding | None:
    oom = collect_oom_evidence(case)
    reported = _find_report(case)
    if reported is not None and (not oom.kills or case.is_by_own_limit(oom.kills[-1])):
        return reported
    if not _was_killed(case) or not oom.is_found:
        return None
    if oom.kills:
        if not case.is_by_own_limit(oom.kills[-1]) or _is_missed(case, oom):
            return None
    elif case.is_unlimited and case.is_container:
        return None
    return Finding(
        "oom-cgroup",
        f"The kernel killed {case.subject} because it reached {name_limit(case)}.",
        _grade(case, oom),
        (*describe_oom_kills(case), *describe_memory_use(case)),
        (
            *describe_late_kill(case),
            *describe_missing_kernel_line(case),
            *_describe_unknown_process(case),
            *_describe_unwatched(case, oom),
        ),
        (advise_higher_limit(case), *advise_less_memory(case)),
    )


def _find_report(case: Case) -> Finding | None:
    """Return the finding if a scheduler reports that the memory limit was reached; else None."""
    return slurm.detect_oom(case) or pods.detect_oom(case) or schedulers.detect_oom(case)


def _grade(case: Case, oom: OomEvidence) -> Confidence:
    is_doubtful = bool(
        describe_late_kill(case)
        or _describe_unknown_process(case)
        or _describe_unwatched(case, oom)
        or (not oom.kills and describe_missing_kernel_line(case))
        # An `oom` event alone does not show whose limit was reached.
        or (case.is_container and not oom.kills and case.memory_limit_bytes is None)
    )
    return "medium" if is_doubtful else "high"


def _describe_unknown_process(case: Case) -> tuple[str, ...]:
    """Return a sentence if the kernel may have killed a process other than the main process."""
    if not _is_seen_by_kernel_alone(case) or not (case.is_container or case.evidence.log):
        return ()
    return (f"The exit code is unknown; another process of {case.subject} may have been killed.",)


def _describe_unwatched(case: Case, oom: OomEvidence) -> tuple[str, ...]:
    if not case.is_container or case.has_die_event:
        return ()
    if oom.kills:
        before = case.seconds_before_end(oom.kills[-1].time)
        if before is None or before <= _PROMPT_SECONDS:
            return ()
    return (
        f"The engine's events were not followed, so `{case.program} kill` cannot be ruled out.",
    )


def _is_missed(case: Case, oom: OomEvidence) -> bool:
    """Return whether the container's engine was queried but has no record of an OOM kill."""
    was_asked = case.evidence.state is not None or case.has_die_event
    return case.is_container and was_asked and not oom.events and not oom.is_flagged


def _detect_missed(case: Case) -> Finding | None:
    oom = collect_oom_evidence(case)
    if not _was_killed(case) or not _is_missed(case, oom):
        return None
    if oom.kills:
        is_own = case.is_by_own_limit(oom.kills[-1])
        return _write_missed(case, _grade(case, oom)) if is_own else None
    confidence = _grade_by_unnamed_kills(case) or _grade_by_counts(case)
    return _write_missed(case, confidence) if confidence is not None else None


def _grade_by_unnamed_kills(case: Case) -> Confidence | None:
    """Return the confidence based on lines of the kernel log that name no control group.

    The result is None if the lines do not indicate a kill at the subject's memory limit.
    """
    kills = [kill for kill in case.list_unnamed_kills() if kill.constraint == _LIMIT]
    if not kills or not case.memory_limit_bytes:
        return None
    settings = case.evidence.settings
    command = settings.command if settings is not None else ()
    name = PurePosixPath(command[0]).name[:_TASK_BYTES] if command else ""
    return "medium" if any(kill.task == name for kill in kills) else "low"


def _grade_by_counts(case: Case) -> Confidence | None:
    """Return the confidence based on the host's OOM kill count and the container's memory usage.

    The result is None if a kernel log is available, or if the counts do not indicate an OOM kill.
    """
    evidence = case.evidence
    if evidence.oom_kills is not None or not evidence.host_oom_kills:
        return None
    if not case.memory_limit_bytes:
        return None
    if case.was_near_limit:
        return "medium"
    lasted = case.duration_seconds
    was_unseen = evidence.sample is None and lasted is not None and lasted < _YOUNG_SECONDS
    return "low" if was_unseen else None


def _write_missed(case: Case, confidence: Confidence) -> Finding:
    risen, has_line = case.evidence.host_oom_kills, bool(case.list_own_kills())
    sentences, against = (
        [*describe_oom_kills(case), *describe_memory_use(case)],
        [*describe_late_kill(case)],
    )
    if risen:
        kills = count_noun(risen, "OOM kill")
        sentences.append(f"The host counted {kills} around its end (`oom_kill` in /proc/vmstat).")
    sentences.append("The engine reported no `kill` event.")
    against.append(
        "The engine reported no `oom` event and its state has `OOMKilled` false; engines miss OOM"
        " kills, most often soon after the start."
    )
    if case.evidence.oom_kills is None:
        against.append("The kernel log could not be read; it names the killed process.")
    elif not has_line:
        sentences += [_describe_unnamed(kill) for kill in case.list_unnamed_kills()[-1:]]
        against.append(
            "The kernel log has no control group for this kill, because the kernel limits the rate"
            " of these lines."
        )
    return Finding(
        "oom-missed",
        f"SIGKILL ended {case.subject}, probably by the kernel at {name_limit(case)}."
        if confidence == "low"
        else f"The kernel killed {case.subject} at {name_limit(case)}; the engine did not report it.",
        confidence,
        tuple(sentences),
        tuple(against),
        (advise_higher_limit(case), *advise_less_memory(case)),
    )


def _describe_unnamed(kill: OomKill) -> str:
    return f"Kernel log: the OOM killer killed `{kill.task}` (PID {kill.pid}) around its end."


def _detect_host(case: Case) -> Finding | None:
    oom = collect_oom_evidence(case)
    if not _was_killed(case):
        return None
    if oom.kills:
        kill = oom.kills[-1]
        is_doubtful = _describe_unknown_process(case) or not kill.constraint
        confidence: Confidence = "medium" if is_doubtful else "high"
        is_host = kill.oom_memcg is None and kill.constraint != _LIMIT
        return _write_host(case, kill, confidence) if is_host else None
    unnamed = [kill for kill in case.list_unnamed_kills() if kill.constraint != _LIMIT]
    if unnamed:
        return _write_host(case, unnamed[-1], "medium")
    has_counted = bool(case.evidence.host_oom_kills) and case.evidence.oom_kills is None
    if not case.is_unlimited or not (oom.is_found or has_counted) or oom.is_sibling_killed:
        return None
    return _write_host(case, None, "medium")


def _write_host(case: Case, kill: OomKill | None, confidence: Confidence) -> Finding:
    sentences, against = (
        [*describe_oom_kills(case), *describe_memory_use(case)],
        [*describe_late_kill(case)],
    )
    if case.is_unlimited:
        sentences.append(f"{case.subject.capitalize()} had no memory limit.")
    risen = case.evidence.host_oom_kills
    if risen:
        kills = count_noun(risen, "OOM kill")
        sentences.append(f"The host counted {kills} around its end (`oom_kill` in /proc/vmstat).")
    sentences += _describe_host(case)
    against += _describe_unknown_process(case)
    if kill is not None and not kill.constraint:
        against.append("The kernel log does not say whether a limit was reached.")
    if kill is not None and not case.list_own_kills():
        sentences.append(_describe_unnamed(kill))
    if kill is None:
        against.append(
            f"No kernel log line names {case.subject}; the limit of a parent group may be the cause."
        )
    where = _CONSTRAINTS.get(kill.constraint) if kill is not None else None
    return Finding(
        "oom-host",
        f"{where or 'The host'} ran out of memory, and the kernel killed {case.subject}.",
        confidence,
        tuple(sentences),
        tuple(against),
        (*_advise_host(case), *advise_less_memory(case)),
    )


def _describe_host(case: Case) -> tuple[str, ...]:
    host = case.evidence.host
    if host is None or host.memory_total_bytes is None:
        return ()
    free = host.memory_available_bytes
    rest = "" if free is None else f", with {format_bytes(free)} available when it was sampled"
    return (f"The host has {format_bytes(host.memory_total_bytes)} of memory{rest}.",)


def _advise_host(case: Case) -> tuple[str, ...]:
    host = case.evidence.host
    biggest = host.biggest[:_MOST_NAMED] if host is not None else ()
    named = ", ".join(f"`{name}` {format_bytes(size)}" for name, size in biggest)
    most = f" The largest processes at that time were {named}." if named else ""
    return (
        (
            "Set a memory limit for every job on this host (`docker run --memory 16g --memory-swap"
            f" 16g`), so that one job cannot exhaust the host.{most}"
        ),
        "Run fewer jobs at once, or add swap (`swapon`) or memory.",
        (
            "Install `earlyoom` or `systemd-oomd`, which kill the largest process before the host"
            " becomes unresponsive."
        ),
    )


def _detect_parent(case: Case) -> Finding | None:
    oom = collect_oom_evidence(case)
    if not _was_killed(case) or not oom.kills:
        return None
    kill = oom.kills[-1]
    if kill.oom_memcg is None or case.is_by_own_limit(kill):
        return None
    is_unnamed = case.is_container and not case.evidence.id
    is_doubtful = is_unnamed or describe_late_kill(case) or _describe_unknown_process(case)
    return Finding(
        "oom-parent",
        f"The kernel killed {case.subject} at the memory limit of its parent group `{kill.oom_memcg}`.",
        "medium" if is_doubtful else "high",
        (*describe_oom_kills(case), *describe_memory_use(case)),
        (*describe_late_kill(case), *_describe_unknown_process(case)),
        (_advise_parent(case, kill.oom_memcg), *advise_less_memory(case)),
    )


def _advise_parent(case: Case, group: str) -> str:
    last = group.rstrip("/").rpartition("/")[2]
    if "kubepods" in group:
        return "Raise `resources.limits.memory` of the pod: its containers share this limit."
    if last.endswith((".slice", ".service", ".scope")):
        return f"Raise the limit: `systemctl set-property {last} MemoryMax=…`."
    if "slurm" in group:
        return "Request more memory for the job: `sbatch --mem=…`."
    where = "`memory.max` (cgroup v1: `memory.limit_in_bytes`)"
    move = ", or use another `--cgroup-parent`" if case.is_container else ""
    return f"Raise {where} of `{group}`{move}: all processes in the group share this limit."


CAUSES: tuple[Cause, ...] = (
    Cause(
        "oom-cgroup",
        "OOM-killed at its own memory limit",
        "Exit code 137 (SIGKILL), and an event `oom`, `OOMKilled` true, or a kernel log line"
        " `oom-kill:` with its control group as `task_memcg` and `oom_memcg`; no `kill` event.",
        "The container, or the control group of the process, reached its memory limit."
        " Shared memory and tmpfs count towards it; page cache is reclaimed before a kill.",
        (
            (
                "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`, or `mem_limit`"
                " in the Compose file."
            ),
            "Reduce the data loader workers (`num_workers`, `prefetch_factor`).",
            "Reduce the batch size, with `gradient_accumulation_steps`.",
            "Stream the data (`streaming=True`) instead of loading it whole.",
        ),
        "high",
        _detect_cgroup,
    ),
    Cause(
        "oom-missed",
        "OOM-killed, not reported by the engine",
        "Exit code 137, no event `kill`, `OOMKilled` false, and a kernel log line `oom-kill:` that"
        " names it; without a kernel log: 95 % or more of its memory limit in use, and `oom_kill` in"
        " /proc/vmstat increased.",
        "As `oom-cgroup`. Engines miss some OOM kills, most often soon after the start; the state of"
        " `docker inspect` is then wrong.",
        (
            "Raise the limit: `docker update --memory 24g --memory-swap 24g NAME`.",
            "Reduce the data loader workers (`num_workers`, `prefetch_factor`).",
            (
                "Give the exporter access to the kernel log (`--device /dev/kmsg --cap-add SYSLOG`) for"
                " certainty the next time."
            ),
        ),
        "medium",
        _detect_missed,
    ),
    Cause(
        "oom-host",
        "OOM-killed because the host ran out of memory",
        "Exit code 137, and a kernel log line with `global_oom` or `CONSTRAINT_NONE` that names it;"
        " or other evidence of an OOM kill, and no memory limit.",
        "The host ran out of memory and the kernel killed this process; another job may have used"
        " most of the memory. `OOMKilled` may be true or false.",
        (
            "Set a limit for every job: `docker run --memory 16g --memory-swap 16g`.",
            "Run fewer jobs at once, or add swap (`swapon`) or memory.",
            "Install `earlyoom` or `systemd-oomd`.",
        ),
        "high",
        _detect_host,
    ),
    Cause(
        "oom-parent",
        "OOM-killed at the limit of a parent group",
        "Exit code 137, and a kernel log line with another control group than its own as `oom_memcg`.",
        "The processes of a slice, a pod or a scheduler's job together reached its memory limit."
        " Engines may mark other containers in the group as `OOMKilled` too.",
        (
            (
                "Raise that limit: `systemctl set-property NAME.slice MemoryMax=…`,"
                " `resources.limits.memory` of the pod, `sbatch --mem=…`."
            ),
            "Start it in another parent group: `docker run --cgroup-parent`.",
        ),
        "high",
        _detect_parent,
    ),
)
