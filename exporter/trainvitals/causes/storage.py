"""Deaths of files: no room for them, or no right to them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.causes.account import read_account
from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_size
from trainvitals.causes.paths import Place, find_place
from trainvitals.causes.signs import Sign, find, has, matches
from trainvitals.causes.verdict import Cause, Finding

_FULL_BELOW_RATIO = 0.05
_FEW_INODES = 1000
_NO_ROOM = has(
    "No space left on device",
    "Disk quota exceeded",
    "iostream error",
    "PytorchStreamWriter failed",
    without=("shared memory", "/dev/shm", "</torch_", "shm_open"),  # noqa: S108 - text of a log
)
_UNEXPECTED_END = matches(re.compile(r"unexpected pos \d{1,20} vs \d{1,20}"))
_SHARED_MEMORY = (
    "multiprocessing/synchronize.py",
    "multiprocessing/heap.py",
    "multiprocessing/shared_memory.py",
    "multiprocessing/reductions.py",
)
_BROKEN_DISK = ("EXT4-fs error", "XFS (", "I/O error", "emounting filesystem read-only")


def look_disk_full(case: Case) -> Finding | None:
    """Look for a write that found no room, other than in /dev/shm or in the table of inodes."""
    sign = _find_no_room(case)
    if sign is None:
        return None
    place = find_place(case, sign.text, sign.line)
    if _has_no_inodes(place):
        return None
    told: list[str] = []
    if place.disk is not None:
        disk = place.disk
        told.append(
            f"{disk.path} had {write_size(disk.free_bytes)} of {write_size(disk.total_bytes)} free."
        )
        if disk.free_bytes > _FULL_BELOW_RATIO * disk.total_bytes:
            why = f"{told.pop()[:-1]} when it was looked at; a quota may have been hit."
            sign = sign.cap("medium", why)
    subject = (
        f"`{place.path}` could not be written" if place.path else "A file could not be written"
    )
    return sign.conclude(
        "disk-full",
        f"The disk is full: {subject}.",
        (*_advise_df(place), *_advise_room(place)),
        speaks_for=told,
    )


def look_inodes_full(case: Case) -> Finding | None:
    """Look for the same on a file system that has bytes, but no inodes, left."""
    sign = _find_no_room(case)
    if sign is None:
        return None
    place = find_place(case, sign.text, sign.line)
    disk = place.disk
    if disk is None or not _has_no_inodes(place):
        return None
    return sign.conclude(
        "inodes-full",
        f"{disk.path} has no room for another file, though {write_size(disk.free_bytes)} are free.",
        (
            (
                f"See which folder has the many files: `du --inodes -xd2 {disk.path} | sort -n | tail`;"
                f" `df -i {disk.path}` shows how many there may be."
            ),
            (
                "Pack small samples into shards (WebDataset, Parquet, LMDB), and delete old caches such"
                " as `~/.cache/huggingface/datasets`."
            ),
            "Or move the data to a file system with more inodes (XFS, or `mkfs.ext4 -i 4096`).",
        ),
        speaks_for=(f"It had {disk.free_inodes} inodes left.",),
    )


def _find_no_room(case: Case) -> Sign | None:
    sign = find(case, _NO_ROOM) or find(case, _UNEXPECTED_END)
    if sign is None:
        return None
    fatal = read_account(case).fatal
    if fatal is not None and fatal.start <= sign.line <= fatal.end:
        frames = case.lines[fatal.start : fatal.end]
        if any(module in line for line in frames for module in _SHARED_MEMORY):
            return None
    return sign


def _has_no_inodes(place: Place) -> bool:
    disk = place.disk
    return (
        disk is not None
        and disk.free_inodes is not None
        and disk.free_inodes < _FEW_INODES
        and disk.free_bytes > _FULL_BELOW_RATIO * disk.total_bytes
    )


def _advise_df(place: Place) -> tuple[str, ...]:
    asked = place.folder
    named = f", which holds `{place.path}`" if place.path and place.path != asked else ""
    step = f"See what is full on the host: `df -h {asked}` and `df -i {asked}`{named}."
    if place.host_path is None and place.path:
        return (
            step,
            (
                f"`{place.path}` is on no volume but in the container's own layer: mount one there,"
                " such as `-v /data/checkpoints:/checkpoints`."
            ),
        )
    return (step,)


def _advise_room(place: Place) -> Sequence[str]:
    return (
        (
            "Keep fewer checkpoints: `save_total_limit=3` (Transformers), `save_top_k=3` (Lightning),"
            f" and delete old ones{f' in `{place.folder}`' if place.host_path else ''}."
        ),
        (
            "Free what Docker keeps: `docker image prune -a` and `docker builder prune`. Leave"
            " `docker system prune -af` for later: it deletes dead containers, which are the evidence."
        ),
        "Do not resume from the newest checkpoint before you have read it once: it may be cut off.",
    )


def look_read_only(case: Case) -> Finding | None:
    """Look for a write to a file system that is mounted read-only."""
    sign = find(case, has("Read-only file system", "[Errno 30]"))
    if sign is None:
        return None
    place = find_place(case, sign.text, sign.line)
    named = f" `{place.path}`" if place.path else " a file"
    broken = [
        line for line in case.evidence.kernel_lines if any(bad in line for bad in _BROKEN_DISK)
    ]
    settings = case.evidence.settings
    is_read_only = settings is not None and settings.is_read_only and place.host_path is None
    if broken:
        return sign.conclude(
            "read-only",
            f"The kernel made the file system of{named} read-only after errors of the disk.",
            (
                (
                    f"Check the disk: `dmesg | grep -iE 'I/O error|EXT4-fs|XFS'` and `smartctl -a`;"
                    f" `findmnt -T {place.folder}` names it."
                ),
                "Save what is on it, unmount it and run `fsck`, before anything writes to it again.",
            ),
            speaks_for=(f"The kernel logged `{broken[-1].strip()[:200]}`.",),
        )
    if is_read_only:
        summary = f"It tried to write{named}, and its root file system is read-only."
    else:
        summary = f"It tried to write{named} on a file system that is mounted read-only."
    return sign.conclude(
        "read-only",
        summary,
        (
            (
                "Mount a volume where it writes: `-v /data/out:/out`, or `--tmpfs /tmp` for what need"
                " not stay."
            ),
            *(("Or run it without `--read-only` (`read_only: true` in Compose).",) * is_read_only),
            *(
                ()
                if is_read_only
                else (
                    (
                        "Where the mount should be writable, look for `:ro` in its options and run"
                        f" `findmnt -T {place.folder}` on the host."
                    ),
                )
            ),
            "Point caches to it: `HF_HOME`, `TORCH_HOME`, `TRITON_CACHE_DIR`, `MPLCONFIGDIR`.",
        ),
        speaks_for=("It runs with a read-only root file system.",) * is_read_only,
    )


def look_permission(case: Case) -> Finding | None:
    """Look for a file that the container's user may not use."""
    sign = find(case, has("Permission denied", "[Errno 13]", without=("(publickey",)))
    if sign is None or (case.was_never_started and not case.lines):
        return None
    place = find_place(case, sign.text, sign.line)
    settings = case.evidence.settings
    user = "not known" if settings is None else settings.user or "root"
    named = f"`{place.path}`" if place.path else "a file"
    steps = [
        (
            f"See whose it is: `ls -ln {place.host_path or place.path or 'PATH'}`"
            f"{' on the host' if place.host_path else ''}, and compare with the container's user"
            f" ({user})."
        )
    ]
    if place.host_path is not None and settings is not None and settings.user:
        owner = settings.user if ":" in settings.user else f"{settings.user}:"
        steps.append(f"Give it to that user: `sudo chown -R {owner} {place.host_path}`.")
    steps.append(
        "Or run the container as the owner: `--user $(id -u):$(id -g)` (`user:` in Compose);"
        " with SELinux add `:z` to the mount."
    )
    return sign.conclude(
        "permission",
        f"It may not use {named} as the user {user}."
        if user != "not known"
        else f"It may not use {named}.",
        steps,
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="disk-full",
        title="The disk is full",
        signs="The log says `No space left on device` outside /dev/shm, `Disk quota exceeded`, or"
        " torch.save's `iostream error` and `unexpected pos 576 vs 534`, which do not name it.",
        meaning="The volume or the container's own layer has no room, mostly for a checkpoint.",
        steps=(
            "Find the full one with `df -h` of the path in the error.",
            "Keep fewer checkpoints (`save_total_limit`, `save_top_k`).",
            (
                "Free images and build caches with `docker image prune -a` and `docker builder prune`;"
                " `docker system prune -af` also deletes the dead containers, which are the evidence."
            ),
        ),
        confidence="high",
        look=look_disk_full,
    ),
    Cause(
        reason="inodes-full",
        title="The file system has no inodes left",
        signs="The log says `No space left on device`, and the disk has bytes but no inodes free.",
        meaning="Too many small files: samples unpacked one by one, or caches.",
        steps=(
            "Confirm it with `df -i` and find the folder with `du --inodes -xd2`.",
            "Pack samples into shards, or use a file system with more inodes.",
        ),
        confidence="high",
        look=look_inodes_full,
    ),
    Cause(
        reason="read-only",
        title="The file system is read-only",
        signs="The log says `Read-only file system` (`Errno 30`).",
        meaning="The container runs with `--read-only`, a mount has `:ro`, or the kernel went"
        " read-only after errors of the disk.",
        steps=(
            "Mount a volume or a `--tmpfs` where it writes.",
            (
                "Look for `EXT4-fs error` and `I/O error` in `dmesg`; if there are any, save the data"
                " and check the disk with `smartctl -a`."
            ),
        ),
        confidence="high",
        look=look_read_only,
    ),
    Cause(
        reason="permission",
        title="The user may not use a file",
        signs="The log says `Permission denied` (`Errno 13`).",
        meaning="The container's user is not the owner of what is mounted into it.",
        steps=(
            "Compare `ls -ln` on the host with the container's user.",
            "Run it with `--user $(id -u):$(id -g)`, or `chown` the folder.",
        ),
        confidence="high",
        look=look_permission,
    ),
)
