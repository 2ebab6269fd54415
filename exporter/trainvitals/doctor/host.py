"""Checks memory, swap, the clock, system limits and the run directory."""

from __future__ import annotations

import os
import resource
from dataclasses import replace
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, report, skip, warn
from trainvitals.foreign_numbers import read_digits
from trainvitals.sources.files import read_small
from trainvitals.sources.host.filesystem import measure_space
from trainvitals.sources.runs.ownership import find_exposure
from trainvitals.units import format_bytes, format_duration
from trainvitals.verdicts.host import SHARED_MEMORY, judge_clock, judge_memory, judge_space

_GIB = 1 << 30
_MOST_NUMBER = (1 << 64) - 1  # the kernel's maximum
_SHARED = "dev/shm"
_LEAST_SHARED_BYTES, _GOOD_SHARED_BYTES = _GIB, 4 * _GIB
_ENOUGH_FILES = _ENOUGH_PROCESSES = (1024, 4096)  # problem below 1024, warning below 4096
_LEAST_BYTES = 2 * _GIB
_UNLIMITED = resource.RLIM_INFINITY
_SWAPPED_RATIO, _FULL_RATIO = 0.25, 0.9
_WRONG_SECONDS = 86_400.0
_MEMORY_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
_MEMORY_USES = ("memory.current", "memory/memory.usage_in_bytes")


def _check_shared_memory(facts: Facts) -> Finding:
    place = facts.machine.roots.rootfs / _SHARED
    try:
        answer = facts.machine.statvfs(place)
    except OSError as error:
        return fail(
            f"/{_SHARED}: {(error.strerror or 'cannot be read').lower()}",
            "sudo mount -t tmpfs -o rw,nosuid,nodev,mode=1777 tmpfs /dev/shm",
        )
    space = measure_space(answer)
    size, free = space.size_bytes, space.avail_bytes
    what = f"/{_SHARED} has {format_bytes(size)}, {format_bytes(free)} of it free"
    if facts.is_in_container:
        command, advice = (
            "docker run --shm-size=16g …",
            "or `--ipc=host`; `shm_size: 16g` in Compose",
        )
    else:
        command, advice = (
            "sudo mount -o remount,size=16G /dev/shm",
            "to keep it after a reboot, add it to /etc/fstab",
        )
    if size < _LEAST_SHARED_BYTES:
        return fail(what, command, advice=advice)
    troubles = tuple(judge_space(SHARED_MEMORY, space, facts.thresholds()))
    if troubles:
        advice = "remove files that earlier runs left there"
        return report(what, troubles, "ls -lhS /dev/shm", advice)
    if size < _GOOD_SHARED_BYTES:
        return warn(what, command, advice=advice)
    return ok(what)


def _write_limit(limit: int) -> str:
    return "no limit" if limit in {_UNLIMITED, -1} else str(limit)


def _is_below(limit: int, bound: int) -> bool:
    return limit not in {_UNLIMITED, -1} and limit < bound


def _raise(flag: str, name: str, wanted: int | str, hard: int, bound: int) -> tuple[str, str]:
    """Return a command that raises a limit, in this shell if possible, and further advice."""
    lasting = (
        f'echo "$USER - {name} {wanted}" | sudo tee -a /etc/security/limits.d/90-training.conf'
    )
    if _is_below(hard, bound):
        return (
            lasting,
            f"then log in again; in a container: `docker run --ulimit {name}={wanted} …`",
        )
    most = hard if isinstance(wanted, int) and _is_below(hard, wanted) else wanted
    return f"ulimit -{flag} {most}", f"in the shell that starts the run; permanently: `{lasting}`"


def _judge_limit(what: str, soft: int, enough: tuple[int, int], remedy: tuple[str, str]) -> Finding:
    """Return a finding about a limit: a problem below `enough[0]`, a warning below `enough[1]`."""
    command, advice = remedy
    if _is_below(soft, enough[0]):
        return fail(what, command, advice=advice)
    return warn(what, command, advice=advice) if _is_below(soft, enough[1]) else ok(what)


def _check_files(facts: Facts) -> Finding:
    soft, hard = facts.machine.get_limit(resource.RLIMIT_NOFILE)
    what = f"{_write_limit(soft)} open files (hard limit {_write_limit(hard)})"
    return _judge_limit(
        what, soft, _ENOUGH_FILES, _raise("n", "nofile", 65536, hard, _ENOUGH_FILES[1])
    )


def _check_locked(facts: Facts) -> Finding:
    has_rdma = any(_list(facts.machine.roots.sysfs / "class/infiniband"))
    if not has_rdma and not facts.has_hpus:
        return skip("neither InfiniBand nor Gaudi")
    soft, hard = facts.machine.get_limit(resource.RLIMIT_MEMLOCK)
    if not _is_below(soft, 64 * _GIB):
        return ok("no limit" if soft in {_UNLIMITED, -1} else format_bytes(soft))
    command, advice = _raise("l", "memlock", "unlimited", hard, 64 * _GIB)
    return fail(
        f"{format_bytes(soft)} (hard limit {'none' if hard in {_UNLIMITED, -1} else format_bytes(hard)})",
        command,
        advice=advice,
    )


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _check_processes(facts: Facts) -> Finding:
    soft, hard = facts.machine.get_limit(resource.RLIMIT_NPROC)
    left = _find_pids_left(facts)
    if left is not None and left < _ENOUGH_PROCESSES[0]:
        return fail(
            f"the control group of this shell allows only {left} more processes and threads",
            "docker run --pids-limit=-1 …"
            if facts.is_in_container
            else 'sudo systemctl set-property "user-$(id -u).slice" TasksMax=infinity',
        )
    if facts.machine.user == 0:
        return ok("no limit for root")
    what = f"{_write_limit(soft)} processes and threads (hard limit {_write_limit(hard)})"
    return _judge_limit(
        what, soft, _ENOUGH_PROCESSES, _raise("u", "nproc", 65536, hard, _ENOUGH_PROCESSES[1])
    )


def _find_pids_left(facts: Facts) -> int | None:
    """Return how many more processes the control groups allow; None if there is no limit."""
    base = facts.machine.roots.sysfs / "fs/cgroup"
    left = []
    for line in (read_small(facts.machine.roots.procfs / "self/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers and "pids" not in controllers.split(","):
            continue
        folder = base / "pids" if controllers else base
        for place in [folder / path.lstrip("/"), *(folder / path.lstrip("/")).parents]:
            bound = _read_number(place / "pids.max")
            used = _read_number(place / "pids.current")
            if bound is not None and used is not None:
                left.append(max(bound - used, 0))
            if place == folder:
                break
    return min(left, default=None)


def _read_number(path: Path) -> int | None:
    text = (read_small(path) or "").strip()
    return read_digits(text, _MOST_NUMBER)


def _check_memory(facts: Facts) -> Finding:
    reading = facts.memory()
    free, total = reading.available_bytes, reading.total_bytes
    where = ""
    limit = _read_group(facts, _MEMORY_LIMITS)
    if facts.is_in_container and limit is not None and limit < total:
        total, where = limit, " of this container"
        left = max(limit - (_read_group(facts, _MEMORY_USES) or 0), 0)
        free = left if free is None else min(free, left)
    if free is None:
        return skip("the kernel does not report how much memory is available")
    what = f"{format_bytes(free)} of {format_bytes(total)}{where} available"
    command = "ps -eo pid,user,rss,comm --sort=-rss | head"
    if where and free < _LEAST_BYTES:
        return fail(what, command, advice="raise the limit of the container")
    judged = replace(reading, available_bytes=free, total_bytes=total)
    troubles = tuple(judge_memory(judged, facts.thresholds()))
    return report(what, troubles, command, "end programs that are not needed")


def _read_group(facts: Facts, names: tuple[str, ...]) -> int | None:
    base = facts.machine.roots.sysfs / "fs/cgroup"
    found = (_read_number(base / name) for name in names)
    return next((number for number in found if number is not None), None)


def _check_swap(facts: Facts) -> Finding:
    reading = facts.memory()
    total, used = reading.swap_total_bytes, reading.swap_used_bytes
    if total == 0:
        return ok("none, so a run that needs more memory than there is is killed at once")
    if total is None or used is None:
        return skip("the kernel does not report how much swap is used")
    what = f"{format_bytes(used)} of {format_bytes(total)} used"
    command = "sudo swapoff -a && sudo swapon -a"
    advice = "if enough memory is free for what is swapped out"
    if used > total * _FULL_RATIO:
        return fail(what, command, advice=advice)
    if used > total * _SWAPPED_RATIO:
        return warn(what, command, advice=advice)
    return ok(what)


def _check_clock(facts: Facts) -> Finding:
    reading = facts.kernel()
    has_systemd = (facts.machine.roots.rootfs / "run/systemd/system").exists()
    start = "sudo timedatectl set-ntp true"
    command = (
        start if has_systemd else "sudo apt-get install -y chrony && sudo service chrony start"
    )
    installed = Path(__file__).stat().st_mtime
    if reading.time_seconds < installed - _WRONG_SECONDS:
        return fail("the clock shows a time before this program was installed", command)
    if reading.clock is None:
        return skip("this user may not read the state of the kernel's clock")
    offset = reading.clock.offset_seconds
    if not reading.clock.synchronized:
        return warn(
            "the clock is not synchronized",
            command,
            advice="ignore this in a virtual machine or container that gets its time from a synchronized host",
        )
    troubles = tuple(judge_clock(offset, facts.thresholds()))
    what = f"synchronized, {format_duration(abs(offset))} off"
    return report(what, troubles, "sudo chronyc makestep")


def _check_ownership(facts: Facts) -> Finding:
    path = facts.machine.run_directory
    if not os.path.lexists(path):
        return skip(f"there is no {path} yet; the first run makes it")
    exposure = find_exposure(path, user=facts.machine.user)
    if exposure is None:
        return ok(f"{path} belongs to root or to this user")
    return warn(
        exposure.words,
        exposure.command,
        advice="between two runs; have root make it at each boot, see docs/deployment.md",
    )


CHECKS = (
    Check(
        "shared-memory",
        "limits",
        "a `/dev/shm` that is missing or below 1 GiB (Docker's is 64 MB); a warning below 4 GiB, or "
        "if it is nearly full",
        "workers of a DataLoader die with a bus error, and NCCL cannot start",
        _check_shared_memory,
        alerts=("HostSharedMemoryLow",),
    ),
    Check(
        "open-files",
        "limits",
        "a limit below 1024; a warning below 4096",
        'workers fail with "Too many open files", or "received 0 items of ancdata"',
        _check_files,
    ),
    Check(
        "locked-memory",
        "limits",
        "a limit below 64 GiB on a machine with InfiniBand or Gaudi",
        "memory for RDMA cannot be pinned: NCCL falls back to slow sockets or fails",
        _check_locked,
    ),
    Check(
        "processes",
        "limits",
        "a limit of the user or the control group below 1024; a warning below 4096",
        '"Resource temporarily unavailable" when workers and their threads start',
        _check_processes,
    ),
    Check(
        "memory",
        "host",
        "less than 2 GiB left of the limit of a container; a warning if memory is nearly full",
        "the kernel kills the run, or its DataLoader workers one by one",
        _check_memory,
        alerts=("HostHighMemoryUsage",),
    ),
    Check(
        "swap",
        "host",
        "more than 90 % used; a warning above 25 %",
        "steps stall while swapped memory is read back",
        _check_swap,
    ),
    Check(
        "clock",
        "host",
        "a clock that is earlier than the installation of this program; a warning if it is not "
        "synchronized, or wrong by the kernel's estimate",
        "certificates and tokens are rejected, and the logs of several machines cannot be compared",
        _check_clock,
        alerts=("HostClockSkew",),
    ),
    Check(
        "run-directory",
        "host",
        "a warning if the run directory belongs to another user, only one user may write there, or "
        "every user may remove the files of others",
        "the metrics lack runs, or runs vanish from them",
        _check_ownership,
    ),
)
