"""What the system lets a run have: shared memory, open files, locked memory, processes."""

from __future__ import annotations

import resource
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.doctor.quantities import write_bytes
from trainvitals.sources.files import read_small

_GIB = 1 << 30
_SHARED = "dev/shm"
_LEAST_SHARED_BYTES, _GOOD_SHARED_BYTES = _GIB, 4 * _GIB
_FULL_RATIO = 0.1
_LEAST_FILES, _GOOD_FILES = 1024, 4096
_LEAST_PROCESSES, _GOOD_PROCESSES = 1024, 4096
_UNLIMITED = resource.RLIM_INFINITY


def _examine_shared_memory(facts: Facts) -> Finding:
    place = facts.world.roots.rootfs / _SHARED
    try:
        answer = facts.world.statvfs(place)
    except OSError as error:
        return complain(
            f"/{_SHARED}: {(error.strerror or 'cannot be asked').lower()}",
            "sudo mount -t tmpfs -o rw,nosuid,nodev,mode=1777 tmpfs /dev/shm",
        )
    size, free = answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize
    what = f"/{_SHARED} has {write_bytes(size)}, {write_bytes(free)} of it free"
    if facts.is_in_container:
        mend, advice = "docker run --shm-size=16g …", "or `--ipc=host`; `shm_size: 16g` in Compose"
    else:
        mend, advice = (
            "sudo mount -o remount,size=16G /dev/shm",
            "to keep it, write it in /etc/fstab",
        )
    if size < _LEAST_SHARED_BYTES:
        return complain(what, mend, advice=advice)
    if free < size * _FULL_RATIO:
        return complain(what, "ls -lhS /dev/shm", advice="remove what earlier runs left there")
    if size < _GOOD_SHARED_BYTES:
        return warn(what, mend, advice=advice)
    return approve(what)


def _write_limit(limit: int) -> str:
    return "no limit" if limit in {_UNLIMITED, -1} else str(limit)


def _is_below(limit: int, bound: int) -> bool:
    return limit not in {_UNLIMITED, -1} and limit < bound


def _raise(flag: str, name: str, wanted: int | str, hard: int, bound: int) -> tuple[str, str]:
    """Tell how a limit is raised, in this shell where the hard limit lets it, and for good."""
    lasting = (
        f'echo "$USER - {name} {wanted}" | sudo tee -a /etc/security/limits.d/90-training.conf'
    )
    if _is_below(hard, bound):
        return lasting, f"and log in anew; in a container: `docker run --ulimit {name}={wanted} …`"
    most = hard if isinstance(wanted, int) and _is_below(hard, wanted) else wanted
    return f"ulimit -{flag} {most}", f"in the shell that starts the run; for good: `{lasting}`"


def _examine_files(facts: Facts) -> Finding:
    soft, hard = facts.world.get_limit(resource.RLIMIT_NOFILE)
    what = f"{_write_limit(soft)} open files (hard limit {_write_limit(hard)})"
    mend, advice = _raise("n", "nofile", 65536, hard, _GOOD_FILES)
    if _is_below(soft, _LEAST_FILES):
        return complain(what, mend, advice=advice)
    if _is_below(soft, _GOOD_FILES):
        return warn(what, mend, advice=advice)
    return approve(what)


def _examine_locked(facts: Facts) -> Finding:
    has_rdma = any(_list(facts.world.roots.sysfs / "class/infiniband"))
    if not has_rdma and not facts.has_hpus:
        return pass_over("neither InfiniBand nor Gaudi here")
    soft, hard = facts.world.get_limit(resource.RLIMIT_MEMLOCK)
    if not _is_below(soft, 64 * _GIB):
        return approve("no limit" if soft in {_UNLIMITED, -1} else write_bytes(soft))
    mend, advice = _raise("l", "memlock", "unlimited", hard, 64 * _GIB)
    return complain(
        f"{write_bytes(soft)} (hard limit {'none' if hard in {_UNLIMITED, -1} else write_bytes(hard)})",
        mend,
        advice=advice,
    )


def _list(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _examine_processes(facts: Facts) -> Finding:
    soft, hard = facts.world.get_limit(resource.RLIMIT_NPROC)
    left = _find_pids_left(facts)
    if left is not None and left < _LEAST_PROCESSES:
        return complain(
            f"the control group lets this shell start {left} more processes and threads",
            "docker run --pids-limit=-1 …"
            if facts.is_in_container
            else 'sudo systemctl set-property "user-$(id -u).slice" TasksMax=infinity',
        )
    if facts.world.user == 0:
        return approve("no limit for root")
    what = f"{_write_limit(soft)} processes and threads (hard limit {_write_limit(hard)})"
    mend, advice = _raise("u", "nproc", 65536, hard, _GOOD_PROCESSES)
    if _is_below(soft, _LEAST_PROCESSES):
        return complain(what, mend, advice=advice)
    if _is_below(soft, _GOOD_PROCESSES):
        return warn(what, mend, advice=advice)
    return approve(what)


def _find_pids_left(facts: Facts) -> int | None:
    """Give how many processes the nearest control groups with a bound still allow."""
    base = facts.world.roots.sysfs / "fs/cgroup"
    left = []
    for line in (read_small(facts.world.roots.procfs / "self/cgroup") or "").splitlines():
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
    return int(text) if text.isascii() and text.isdecimal() else None


_SUBJECT = "limits"
CHECKS = (
    Check(
        "shared-memory",
        _SUBJECT,
        "a `/dev/shm` that is missing, below 1 GiB (Docker's is 64 MB), or full; a warning below "
        "4 GiB",
        "workers of a DataLoader die with a bus error, and NCCL cannot start",
        _examine_shared_memory,
    ),
    Check(
        "open-files",
        _SUBJECT,
        "a limit below 1024; a warning below 4096",
        'workers fail with "Too many open files", or "received 0 items of ancdata"',
        _examine_files,
    ),
    Check(
        "locked-memory",
        _SUBJECT,
        "a limit below 64 GiB where there is InfiniBand or Gaudi",
        "memory for RDMA cannot be pinned: NCCL falls back to slow sockets or fails",
        _examine_locked,
    ),
    Check(
        "processes",
        _SUBJECT,
        "a limit of the user or the control group below 1024; a warning below 4096",
        '"Resource temporarily unavailable" when workers and their threads start',
        _examine_processes,
    ),
)
