"""Formats evidence as rows of a label and a text: timeline, configuration, memory, machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import tzinfo

from trainvitals.foreign_text import clean_text
from trainvitals.sources.containers.evidence import (
    Disk,
    EngineEvent,
    Evidence,
    Host,
    OomKill,
    Sample,
    Settings,
)
from trainvitals.sources.host.kernel_text import is_since_boot
from trainvitals.sources.signals import describe_code, describe_signal, name_signal
from trainvitals.units import (
    format_bytes,
    format_clock,
    format_duration,
    format_percent,
    format_time,
)

Row = tuple[str, str]

_MOST_EVENTS = 30
_MOST_EARLIER = 5
_MOST_COMMAND = 400
_PROBE_OUTPUT = 200
_LIMITS = {
    "CONSTRAINT_MEMCG": "at its memory limit",
    "CONSTRAINT_NONE": "because the host ran out of memory",
    "CONSTRAINT_CPUSET": "because its NUMA nodes ran out of memory",
    "CONSTRAINT_MEMORY_POLICY": "because its NUMA nodes ran out of memory",
}


def list_timeline(evidence: Evidence, zone: tzinfo | None) -> list[Row]:
    """Return rows for the events of the engine, kernel and health check, the oldest first."""
    moments: list[tuple[float, str]] = [
        (event.time, _write_event(event)) for event in (evidence.events or ())[-_MOST_EVENTS:]
    ]
    moments += [(kill.time, _write_kill(kill, evidence)) for kill in evidence.oom_kills or ()]
    moments += [
        (xid.time, f"GPU {xid.bus_id}: Xid {xid.code}{f', {xid.text}' if xid.text else ''}")
        for xid in evidence.xids or ()
    ]
    moments += [(time, "died before") for time in evidence.earlier_deaths[-_MOST_EARLIER:]]
    if evidence.state is not None:
        moments += [
            (
                probe.time,
                f"health check: exit code {probe.exit_code}, {probe.output[:_PROBE_OUTPUT]!r}",
            )
            for probe in evidence.state.probes
            if probe.time is not None
        ]
    if not any(event.action == "start" for event in evidence.events or ()) and evidence.started:
        moments.append((evidence.started, "started"))
    if not any(event.action == "die" for event in evidence.events or ()) and evidence.ended:
        is_failed = evidence.state is not None and evidence.state.status == "created"
        moments.append((evidence.ended, "could not be started" if is_failed else "ended"))
    return [(_write_moment(time, evidence.ended, zone), text) for time, text in sorted(moments)]


def list_setup(evidence: Evidence, zone: tzinfo | None) -> Iterator[Row]:
    """Yield rows about a container's image, command, end, state and settings."""
    yield from _list_identity(evidence)
    yield from _list_end(evidence, zone)
    yield from _list_state(evidence)
    if evidence.settings is not None:
        yield from _list_settings(evidence.settings)
    if evidence.engine:
        yield "engine", evidence.engine


def list_memory(sample: Sample | None, settings: Settings | None) -> Iterator[Row]:
    """Yield rows about a container's limits and last usage; unknown values are left out."""
    limit = None if settings is None else settings.memory_limit_bytes
    if sample is not None:
        limit = sample.memory_limit_bytes or limit
    if sample is not None or settings is not None:
        yield "memory limit", "none" if limit is None else format_bytes(limit)
    if settings is not None and settings.shm_size_bytes is not None:
        yield "shared memory", f"{format_bytes(settings.shm_size_bytes)} in /dev/shm"
    if sample is not None:
        yield from _list_amounts(sample, limit)
        yield from _list_counts(sample)


def _list_identity(evidence: Evidence) -> Iterator[Row]:
    if evidence.id:
        yield "ID", evidence.id[:12]
    if evidence.image:
        yield "image", evidence.image
    if evidence.compose_service:
        yield "compose", f"service {evidence.compose_service} of {evidence.compose_project or '?'}"
    if evidence.settings is not None and evidence.settings.command:
        yield "command", clean_text(shlex.join(evidence.settings.command), most=_MOST_COMMAND)


def _list_end(evidence: Evidence, zone: tzinfo | None) -> Iterator[Row]:
    if evidence.started is not None and evidence.ended is not None:
        lasted = max(0.0, evidence.ended - evidence.started)
        yield "ran for", f"{format_duration(lasted)}, from {format_time(evidence.started, zone)}"
    elif evidence.started is not None:
        yield "started", format_time(evidence.started, zone)
    if evidence.exit_code is not None:
        yield "exit code", _write_exit(evidence)
    elif evidence.signal is not None:
        yield "signal", f"{evidence.signal} ({name_signal(evidence.signal)})"
    if evidence.exception:
        yield "exception", evidence.exception


def _list_amounts(sample: Sample, limit: int | None) -> Iterator[Row]:
    amounts = (
        ("usage", sample.memory_usage_bytes),
        ("unreclaimable", sample.memory_unreclaimable_bytes),
        ("peak", sample.memory_peak_bytes),
    )
    for label, amount in amounts:
        if amount is not None:
            yield label, format_bytes(amount) + _write_share(amount, limit)
    if sample.memory_pressure_ratio is not None:
        yield (
            "pressure",
            f"all tasks waited in {format_percent(sample.memory_pressure_ratio)} of the last 10 s",
        )


def _list_counts(sample: Sample) -> Iterator[Row]:
    if sample.oom_kills is not None:
        yield "OOM kills", str(sample.oom_kills)
    if sample.processes is not None:
        most = "no limit" if sample.processes_limit is None else f"limit {sample.processes_limit}"
        refused = f", {sample.processes_refused} refused" if sample.processes_refused else ""
        yield "processes", f"{sample.processes}, {most}{refused}"
    if sample.cpu_throttled_seconds:
        yield "CPU throttled", format_duration(sample.cpu_throttled_seconds)


def list_host(host: Host) -> Iterator[Row]:
    """Yield rows about a machine's free memory and disk space; unknown values are left out."""
    available, total = host.memory_available_bytes, host.memory_total_bytes
    if available is not None and total:
        yield "memory", f"{format_bytes(available)} available of {format_bytes(total)}"
    if host.swap_free_bytes is not None:
        yield "swap", f"{format_bytes(host.swap_free_bytes)} free"
    seen: dict[tuple[int, int], list[Disk]] = {}
    for disk in host.disks:
        seen.setdefault((disk.free_bytes, disk.total_bytes), []).append(disk)
    for disks in seen.values():
        yield "disk", _write_disks(disks)
    if host.biggest:
        biggest = ", ".join(f"{name} {format_bytes(size)}" for name, size in host.biggest)
        yield "largest", biggest


def _write_disks(disks: list[Disk]) -> str:
    disk = disks[0]
    text = f"{', '.join(each.path for each in disks)}: {format_bytes(disk.free_bytes)} free of "
    text += format_bytes(disk.total_bytes)
    return text if disk.free_inodes is None else f"{text}, {disk.free_inodes:,} inodes free"


def _write_event(event: EngineEvent) -> str:
    if event.exit_code is not None:
        return f"{event.action}, exit code {event.exit_code}"
    if event.signal is not None:
        return f"{event.action} with {describe_signal(event.signal)}"
    return event.action


def _write_kill(kill: OomKill, evidence: Evidence) -> str:
    rss = kill.anon_rss_bytes
    held = "" if rss is None else f", anon-rss {format_bytes(rss)},"
    where = "" if not evidence.id or evidence.id in kill.task_memcg else f" in {kill.task_memcg}"
    why = _LIMITS.get(kill.constraint, kill.constraint)
    if kill.oom_memcg is not None and kill.oom_memcg != kill.task_memcg:
        why = f"at the limit of {kill.oom_memcg}"
    return f"kernel: killed {kill.task} (pid {kill.pid}){held}{where} {why}"


def _write_exit(evidence: Evidence) -> str:
    code = evidence.exit_code or 0
    shown = describe_code(code) or str(code)
    source = "" if evidence.is_exit_code_witnessed or evidence.state is None else ", by its state"
    return f"{shown}{source}"


def _list_state(evidence: Evidence) -> Iterator[Row]:
    state = evidence.state
    if state is None:
        return
    yield "state", f"{state.status}, OOMKilled {str(state.is_oom_killed).lower()}"
    if state.error:
        yield "error", state.error
    if state.health:
        streak = f", {state.failing_streak} probes failed in a row" if state.failing_streak else ""
        yield "health", f"{state.health}{streak}"
    if evidence.restarts:
        yield "restarts", str(evidence.restarts)


def _list_settings(settings: Settings) -> Iterator[Row]:
    flags = [
        words
        for words, holds in (
            ("init", settings.has_init),
            ("removed after its end (--rm)", settings.is_removed_at_end),
            ("read-only", settings.is_read_only),
            ("requests GPUs", settings.wants_gpus),
            ("TTY", settings.has_tty),
        )
        if holds
    ]
    if settings.restart_policy != "no":
        flags.append(f"restart policy {settings.restart_policy}")
    if settings.log_driver:
        options = ", ".join(f"{name}={value}" for name, value in settings.log_options)
        flags.append(f"log driver {settings.log_driver}{f' ({options})' if options else ''}")
    if settings.user:
        flags.append(f"user {settings.user}")
    if flags:
        yield "settings", ", ".join(flags)


def _write_share(amount: int, limit: int | None) -> str:
    return f", {format_percent(amount / limit)} of the limit" if limit else ""


def _write_moment(time: float, near: float | None, zone: tzinfo | None) -> str:
    """Format a time with milliseconds, or as the time since boot if the date is unknown."""
    if is_since_boot(time):
        return f"{format_duration(time)} after boot" if time else "time unknown"
    return format_clock(time, near, zone, is_exact=True)
