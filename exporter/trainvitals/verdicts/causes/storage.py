"""Deaths because a file system had no free bytes, no free inodes or no quota left."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    find_match,
)
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.paths import Place, find_place
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.tracebacks import Traceback
from trainvitals.verdicts.causes.verdict import Cause, Finding

_FULL_BELOW_RATIO = 0.05
_FEW_INODES = 1000
# The heading of the usage column in `df -i`, in several languages: `IUse%`, `IUti%`, `IBen%`,
# `IUso%`.
_OF_INODES = re.compile(r"I[A-Z][A-Za-z]{1,8}%$").match
_OF_USE = re.compile(r"[A-Za-z]{2,12}%$").match
_NO_ROOM = contains(
    "No space left on device",
    "not enough space on the disk",
    "Disk quota exceeded",
    "iostream error",
    "PytorchStreamWriter failed",
    "StorageFull",
    "errno = 28",
    "[Errno 27]",
    "[Errno 122]",
    "(os error 122)",
    "errno=28",
    "[Errno 28]",
    "ot enough disk space",
    "nsufficient disk space",
    "not enough free disk space",
    "OutOfDiskError",
    "Local disk is full",
    "Out of disk space",
    "(os error 28)",
    "Disk full",
    "disk is full",
    "QuotaExceeded",
    "No usable temporary directory found",
    without=(
        "shared memory",
        "/dev/shm",  # noqa: S108 - text of a log
        "</torch_",
        "shm_open",
        "posix_fallocate",
        "NCCL WARN",
        "inotify",
    ),
    ignore_case=True,  # TensorFlow writes the error text of an errno in lower case
)
_UNEXPECTED_END = matches(r"unexpected pos \d{1,20} vs \d{1,20}")
_SHARED_MEMORY = (
    "multiprocessing/synchronize.py",
    "multiprocessing/heap.py",
    "multiprocessing/shared_memory.py",
    "multiprocessing/reductions.py",
)


def detect_disk_full(case: Case) -> Finding | None:
    """Detect a write that failed because a file system other than /dev/shm had no free space.

    Exhausted inodes are a separate cause.
    """
    match = _find_no_room(case)
    if match is None:
        return None
    place = find_place(case, match.text, match.line)
    if _has_no_inodes(place) or _shows_no_inodes(case):
        return None
    sentences: list[str] = []
    if place.disk is not None:
        disk = place.disk
        free = f"{format_bytes(disk.free_bytes)} of {format_bytes(disk.total_bytes)}"
        if disk.free_bytes > _FULL_BELOW_RATIO * disk.total_bytes:
            why = f"{disk.path} had {free} free when it was sampled; a quota may have been reached."
            match = match.cap("medium", why)
        else:
            sentences.append(f"{disk.path} had {free} free.")
    subject = f"`{place.path}`" if place.path else "a file"
    return match.conclude(
        "disk-full",
        f"The disk is full: {subject} could not be written.",
        (*_advise_quota(match.text), *_advise_df(place), *_advise_room(case, place)),
        speaks_for=sentences,
    )


def detect_inodes_full(case: Case) -> Finding | None:
    """Detect a write to a file system that has free bytes but no free inodes."""
    match = _find_no_room(case)
    if match is None:
        return None
    place = find_place(case, match.text, match.line)
    if _shows_no_inodes(case):
        return match.conclude(
            "inodes-full",
            "The file system has no free inodes for another file; `df -i` in the log shows 100 %.",
            _advise_inodes("/PATH"),
        )
    disk = place.disk
    if disk is None or not _has_no_inodes(place):
        return None
    return match.conclude(
        "inodes-full",
        f"{disk.path} has no free inodes for another file, though {format_bytes(disk.free_bytes)} are"
        " free.",
        _advise_inodes(disk.path),
        speaks_for=(f"{disk.path} had {disk.free_inodes} free inodes.",),
    )


def _advise_inodes(path: str) -> tuple[str, ...]:
    return (
        (
            "Find the directory with the most files:"
            f" `du --inodes -xd2 {path} | sort -n | tail`; `df -i {path}` shows the number of inodes."
        ),
        (
            "Pack small samples into shards (WebDataset, Parquet, LMDB), and delete old caches such"
            " as `~/.cache/huggingface/datasets`."
        ),
        "Or move the data to a file system with more inodes (XFS, or `mkfs.ext4 -i 4096`).",
    )


def _shows_no_inodes(case: Case) -> bool:
    """Return whether the log contains output of `df -i` that shows no free inodes."""
    is_table = False
    for line in case.lines:
        columns = line.split()
        if any(map(_OF_INODES, columns)):
            is_table = True
        elif is_table and " 100% /" in line:
            return True
        elif not columns or any(map(_OF_USE, columns)):
            is_table = False
    return False


def _find_no_room(case: Case) -> LogMatch | None:
    match = find_match(case, _NO_ROOM) or find_match(case, _UNEXPECTED_END)
    if match is None:
        return None
    fatal = parse_log(case).fatal
    if _UNEXPECTED_END(match.text) and fatal is not None and _has_other_origin(fatal):
        return None
    if fatal is not None and fatal.start <= match.line <= fatal.end:
        frames = case.lines[fatal.start : fatal.end]
        if any(module in line for line in frames for module in _SHARED_MEMORY):
            return None
    return match


def _has_other_origin(fatal: Traceback) -> bool:
    """Return whether a MemoryError or a KeyboardInterrupt, which is the cause, ended a write."""
    return any(error.name in {"MemoryError", "KeyboardInterrupt"} for error in fatal.errors)


def _has_no_inodes(place: Place) -> bool:
    disk = place.disk
    return (
        disk is not None
        and disk.free_inodes is not None
        and disk.free_inodes < _FEW_INODES
        and disk.free_bytes > _FULL_BELOW_RATIO * disk.total_bytes
    )


def _advise_df(place: Place) -> tuple[str, ...]:
    folder = place.folder
    named = f", where `{place.path}` is" if place.path and place.path != folder else ""
    step = f"Check the file system on the host: `df -h {folder}` and `df -i {folder}`{named}."
    if place.host_path is None and place.path:
        return (
            step,
            (
                f"Mount a volume for `{place.path}`, which is in the container's writable layer:"
                " `-v /data/checkpoints:/checkpoints`."
            ),
        )
    return (step,)


def _advise_quota(text: str) -> tuple[str, ...]:
    is_quota = _QUOTA.search(text) is not None
    return (_QUOTA_STEP,) if is_quota else ()


_QUOTA = re.compile(r"quota|Errno 122|os error 122", re.IGNORECASE)
_QUOTA_STEP = (
    "Read your quota, which is used up though the disk has room: `quota -s`; `lfs quota -hu $USER PATH`"
    " on Lustre."
)
_PRUNE = (
    "Delete unused images and build caches: `docker image prune -a` and `docker builder prune`."
    " Avoid `docker system prune -af`: it also deletes dead containers and thereby the evidence."
)


def _advise_room(case: Case, place: Place) -> Sequence[str]:
    return (
        (
            "Keep fewer checkpoints: `save_total_limit=3` (Transformers), `save_top_k=3` (Lightning),"
            f" and delete old ones{f' in `{place.folder}`' if place.host_path else ''}."
        ),
        *((_PRUNE,) if case.is_container else ()),
        "Check that the newest checkpoint can be loaded before you resume from it; it may be truncated.",
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="disk-full",
        title="The disk is full",
        signs="The log contains `No space left on device` outside /dev/shm, `Disk quota exceeded`, or"
        " torch.save's `iostream error` or `unexpected pos 576 vs 534`, which do not name the cause.",
        meaning="A volume or the container's writable layer is full, usually while a checkpoint is"
        " written.",
        steps=(
            "Check the file system of the path in the error: `df -h`.",
            "Keep fewer checkpoints (`save_total_limit`, `save_top_k`).",
            (
                "Delete unused images and build caches with `docker image prune -a` and `docker builder"
                " prune`; `docker system prune -af` also deletes dead containers and thereby the evidence."
            ),
        ),
        confidence="high",
        detect=detect_disk_full,
    ),
    Cause(
        reason="inodes-full",
        title="The file system has no free inodes",
        signs="The log contains `No space left on device`, and the disk has free bytes but no free"
        " inodes.",
        meaning="Too many small files: unpacked samples, or caches.",
        steps=(
            "Confirm it with `df -i` and find the directory with `du --inodes -xd2`.",
            "Pack samples into shards, or use a file system with more inodes.",
        ),
        confidence="high",
        detect=detect_inodes_full,
    ),
)
