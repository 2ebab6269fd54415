"""Containers that could not be started: the state has an error, and the event `die` is missing."""

from __future__ import annotations

import re

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes import start_device, start_program
from trainvitals.verdicts.causes.advice import format_option
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.start_error import (
    LONGEST_QUOTE,
    conclude_error,
    conclude_start,
    read_start_error,
)
from trainvitals.verdicts.causes.verdict import Cause, Finding

_LEAST_LIMIT_BYTES = 64 * 1024**2

_MOUNT = re.compile(
    r'error mounting "([^"]*)" to rootfs at "([^"]*)"|bind source path does not exist: ([^\s:]+)'
    r"|[Aa]re you trying to mount a directory|invalid mount config"
)
_LIMIT = re.compile(
    r"cannot start a stopped process|cannot start a container that has stopped"
    r"|container init was OOM-killed"
)
_LOG_DRIVER = re.compile(r"failed to initialize logging driver: ?([^\n]*)")
_RLIMIT = re.compile(r"error setting rlimits?(?: type (\d+))?")
_NETWORK = re.compile(
    r"failed to create endpoint|failed to set up container networking|could not find bridge"
    r"|network [\w.-]+ not found|driver failed programming external connectivity"
)
# This cause shares the ID `port-in-use` with a program that finds its port in use.
_PORT = re.compile(r"port is already allocated|address already in use", re.IGNORECASE)


def _detect_mount(case: Case) -> Finding | None:
    match = _MOUNT.search(read_start_error(case))
    source = (match[1] or match[3] or "") if match else ""
    return conclude_error(
        case,
        "start-mount",
        _MOUNT,
        f"The host path{f' `{source}`' if source else ''} could not be mounted: it does not exist, or"
        " is a directory where a file is expected.",
        f"Check it on the host: `ls -ld {source or 'PATH'}`. Docker may have created an empty directory"
        " in its place; remove that.",
        "Create the file or directory before the start. `--mount type=bind,…` fails on a missing"
        " source, where `-v` creates a directory.",
    )


def _detect_limit(case: Case) -> Finding | None:
    is_runc = any(kill.task.startswith("runc:[") for kill in case.list_own_kills())
    error = read_start_error(case)
    if not (_LIMIT.search(error) or (is_runc and (error or case.was_never_started))):
        return None
    limit = case.memory_limit_bytes
    return conclude_start(
        case,
        "start-limit-too-small",
        f"The memory limit{f' of {format_bytes(limit)}' if limit else ''} is too small to start the"
        " container.",
        (
            (
                f"Raise it: at least `--memory {format_option(_LEAST_LIMIT_BYTES)}`, and `--memory 2g`"
                " for Python with PyTorch."
            ),
        ),
        *(("Kernel log: the OOM killer killed `runc:[2:INIT]`, which starts it.",) * is_runc),
    )


def _detect_log_driver(case: Case) -> Finding | None:
    match = _LOG_DRIVER.search(read_start_error(case))
    why = f": {match[1].strip()}" if match and match[1].strip() else ""
    return conclude_error(
        case,
        "start-logdriver",
        _LOG_DRIVER,
        f"The engine could not initialize the log driver{why[:LONGEST_QUOTE]}.",
        "List the invalid options: `trainvitals docker-logging`; `--apply` writes valid ones.",
        "Read the container's options: `docker inspect -f '{{json .HostConfig.LogConfig}}'"
        f" {case.evidence.name}`; recreate it after a change.",
    )


def _detect_rlimit(case: Case) -> Finding | None:
    return conclude_error(
        case,
        "start-rlimit",
        _RLIMIT,
        "The engine is not permitted to raise a resource limit that `--ulimit` requests.",
        "Remove `--ulimit memlock=-1` (`ulimits` in the Compose file), or request less.",
        "For a rootless engine, or one in a container: add CAP_SYS_RESOURCE, or raise its own limit"
        " (`LimitMEMLOCK=infinity` in its unit).",
    )


def _detect_network(case: Case) -> Finding | None:
    if _PORT.search(read_start_error(case)):
        return None
    return conclude_error(
        case,
        "start-network",
        _NETWORK,
        "The engine could not connect the container to its network.",
        "List the networks: `docker network ls`; create a missing one with `docker compose up -d`.",
        "If a reload of the firewall removed the engine's rules, restart it: `sudo systemctl restart"
        " docker`.",
        "Training on a single machine can use `--network host`.",
    )


def _detect_other(case: Case) -> Finding | None:
    error = read_start_error(case)
    if not error or _PORT.search(error) or (not case.was_never_started and case.has_die_event):
        return None
    if any(cause.detect(case) for cause in _KNOWN):
        return None
    return conclude_start(
        case,
        "start-other",
        "The engine could not start the container; the cause of its error is unknown.",
        (
            (
                "Read the engine's error, above, and its log around that time:"
                f" `journalctl -u {case.program} --since -1h`."
            ),
            f"Start it by hand: `{case.program} start -a {case.evidence.name}`.",
        ),
        confidence="medium",
    )


_KNOWN: tuple[Cause, ...] = (
    *start_device.CAUSES,
    *start_program.CAUSES,
    Cause(
        "start-mount",
        "A mount failed",
        "Never started, `error mounting`, `not a directory`, `bind source path does not exist`.",
        "The path does not exist on the host; for `-v` the engine created an empty directory where a"
        " file was expected.",
        ("Create the file or directory first; `--mount type=bind,…` fails on a missing one.",),
        "high",
        _detect_mount,
    ),
    Cause(
        "start-limit-too-small",
        "Memory limit too small to start",
        "Never started, `cannot start a stopped process` or `container init was OOM-killed`; the"
        " kernel log has `task=runc:[2:INIT]`.",
        "The limit is below the memory that the runtime itself needs.",
        ("Raise it: at least `--memory 64m`.",),
        "high",
        _detect_limit,
    ),
    Cause(
        "start-logdriver",
        "Invalid log options",
        "Never started, `failed to initialize logging driver`.",
        "daemon.json, or the container, has log options that contradict each other; the engine"
        " accepts them at its start and fails at the next container's.",
        ("`trainvitals docker-logging` lists the invalid options, `--apply` corrects them.",),
        "high",
        _detect_log_driver,
    ),
    Cause(
        "start-rlimit",
        "A resource limit that may not be raised",
        "Never started, `error setting rlimit`.",
        "`--ulimit memlock=-1` requests more than the engine may grant.",
        ("Remove `--ulimit`, or give the engine CAP_SYS_RESOURCE.",),
        "high",
        _detect_rlimit,
    ),
    Cause(
        "start-network",
        "No connection to its network",
        "Never started, `failed to create endpoint`, `could not find bridge`, `network … not found`.",
        "Its network was removed, or the engine's firewall rules were.",
        ("`docker network ls`, `sudo systemctl restart docker`, or `--network host`.",),
        "high",
        _detect_network,
    ),
)

CAUSES: tuple[Cause, ...] = (
    *_KNOWN,
    Cause(
        "start-other",
        "The engine could not start it",
        "Never started, and an error that no other cause matches.",
        "The cause is unknown; the engine's error describes it.",
        ("`docker start -a NAME`, `journalctl -u docker --since -1h`.",),
        "medium",
        _detect_other,
    ),
)
