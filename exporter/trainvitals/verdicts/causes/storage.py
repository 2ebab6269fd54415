"""Deaths by file systems: full, read-only or not permitted; and broken checkpoints."""

from __future__ import annotations

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
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.tracebacks import Traceback
from trainvitals.verdicts.causes.verdict import Cause, Finding

_FULL_BELOW_RATIO = 0.05
_FEW_INODES = 1000
_NO_ROOM = contains(
    "No space left on device",
    "no space left on device",
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
)
_UNEXPECTED_END = matches(r"unexpected pos \d{1,20} vs \d{1,20}")
_SHARED_MEMORY = (
    "multiprocessing/synchronize.py",
    "multiprocessing/heap.py",
    "multiprocessing/shared_memory.py",
    "multiprocessing/reductions.py",
)
_IO_ERROR = matches(
    r"\[Errno (?:5|6|19|61|70|74|107|108|112|116|117|121|123)\]|Input/output error|[Ss]tale (?:NFS )?file handle|Remote I/O error"
    r"|Transport endpoint is not connected|Cannot send after transport endpoint shutdown|\(os error (?:5|107|116)\)"
    r"|Software caused connection abort: '/|Structure needs cleaning|errno ?= ?(?:5|116|121),|No such device or address: '/"
    r"|[Cc]ommunication error on send: '/|Host is down: '/|\[Errno 110\] Connection timed out: '/"
    r"|Bad (?:file descriptor|address): '/|mdb_\w{1,20}: Input/output"
)
_DISK_ERRORS = ("EXT4-fs error", "XFS (", "I/O error", "emounting filesystem read-only")
_KERNEL_DISK = matches(
    r"EXT4-fs error|XFS \(|I/O error|emounting filesystem read-only|critical (?:medium|target) error",
    r"nfs: server \S{1,200} not responding|nvme\S{0,20} .{0,40}(?:timeout|controller is down)|LustreError",
    r"BTRFS (?:error|critical)|ceph: .{0,80}(?:hung|lost)",
)
_READ_ONLY = contains("Read-only file system", "[Errno 30]", "(os error 30)", "errno = 30")
_DENIED = contains(
    "Permission denied",
    "[Errno 13]",
    "[Errno 1] Operation not permitted",
    "PermissionError: ",
    "(os error 13)",
    without=("(publickey", "storage.objects"),
)


def detect_disk_full(case: Case) -> Finding | None:
    """Detect a write to a full file system, other than /dev/shm and one without free inodes."""
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
        (*_advise_df(place), *_advise_room(place)),
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
    """Return whether the log has the output of `df -i` with a full file system."""
    is_table = False
    for line in case.lines:
        if "IUse%" in line:
            is_table = True
        elif is_table and " 100% /" in line:
            return True
        elif "Use%" in line or not line.strip():
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
    """Return whether writing broke off because of an exception before, which names the cause."""
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


def _advise_room(place: Place) -> Sequence[str]:
    return (
        (
            "Keep fewer checkpoints: `save_total_limit=3` (Transformers), `save_top_k=3` (Lightning),"
            f" and delete old ones{f' in `{place.folder}`' if place.host_path else ''}."
        ),
        (
            "Delete unused images and build caches: `docker image prune -a` and `docker builder prune`."
            " Avoid `docker system prune -af`: it also deletes dead containers and thereby the evidence."
        ),
        "Check that the newest checkpoint can be loaded before you resume from it; it may be truncated.",
    )


def detect_read_only(case: Case) -> Finding | None:
    """Detect a write to a file system that is mounted read-only."""
    match = find_match(case, _READ_ONLY)
    if match is None:
        return None
    place = find_place(case, match.text, match.line)
    named = f"`{place.path}`" if place.path else "A file"
    errors = [
        line for line in case.evidence.kernel_lines if any(text in line for text in _DISK_ERRORS)
    ]
    if errors:
        return match.conclude(
            "read-only",
            f"{named} could not be written: the kernel remounted the file system read-only after disk"
            " errors.",
            (
                (
                    f"Check the disk: `dmesg | grep -iE 'I/O error|EXT4-fs|XFS'` and `smartctl -a`;"
                    f" `findmnt -T {place.folder}` names it."
                ),
                "Save its data, unmount it and run `fsck` before it is written to again.",
            ),
            speaks_for=(f"The kernel logged `{errors[-1].strip()[:200]}`.",),
        )
    settings = case.evidence.settings
    is_root = settings is not None and settings.is_read_only and place.host_path is None
    where = "the container's root file system" if is_root else "its file system"
    return match.conclude(
        "read-only",
        f"{named} could not be written: {where} is mounted read-only.",
        _advise_writable(place, is_root=is_root),
        speaks_for=("The container runs with a read-only root file system.",) * is_root,
    )


def _advise_writable(place: Place, *, is_root: bool) -> Sequence[str]:
    return (
        (
            "Mount a volume for the output: `-v /data/out:/out`, or `--tmpfs /tmp` for temporary files."
        ),
        (
            "Or run it without `--read-only` (`read_only: true` in Compose)."
            if is_root
            else "If the mount should be writable, check its options for `:ro` and run"
            f" `findmnt -T {place.folder}` on the host."
        ),
        (
            "Set the cache directories to a writable mount: `HF_HOME`, `TORCH_HOME`,"
            " `TRITON_CACHE_DIR`, `MPLCONFIGDIR`."
        ),
    )


def detect_permission(case: Case) -> Finding | None:
    """Detect a file that the container's user may not access."""
    match = find_match(case, _DENIED)
    if match is None or (case.was_never_started and not case.lines):
        return None
    place = find_place(case, match.text, match.line)
    settings = case.evidence.settings
    user = "unknown" if settings is None else settings.user or "root"
    named = f"`{place.path}`" if place.path else "a file"
    steps = [
        (
            f"Compare the owner, `ls -ln {place.host_path or place.path or 'PATH'}`"
            f"{' on the host' if place.host_path else ''}, with the container's user ({user})."
        )
    ]
    if place.host_path is not None and settings is not None and settings.user:
        owner = settings.user if ":" in settings.user else f"{settings.user}:"
        steps.append(f"Make that user its owner: `sudo chown -R {owner} {place.host_path}`.")
    steps.append(
        "Or run the container as the owner: `--user $(id -u):$(id -g)` (`user:` in Compose);"
        " with SELinux add `:z` to the mount."
    )
    return match.conclude(
        "permission",
        f"Access to {named} was denied" + (f" for the user {user}." if settings else "."),
        steps,
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
    Cause(
        reason="read-only",
        title="The file system is read-only",
        signs="The log contains `Read-only file system` (`Errno 30`).",
        meaning="The container runs with `--read-only`, a mount has `:ro`, or the kernel remounted the"
        " file system read-only after disk errors.",
        steps=(
            "Mount a volume or a `--tmpfs` for its output.",
            (
                "Check `dmesg` for `EXT4-fs error` and `I/O error`; if there are any, save the data and"
                " check the disk with `smartctl -a`."
            ),
        ),
        confidence="high",
        detect=detect_read_only,
    ),
    Cause(
        reason="permission",
        title="Permission denied",
        signs="The log contains `Permission denied` (`Errno 13`).",
        meaning="The container's user may not access a mounted file or directory.",
        steps=(
            "Compare `ls -ln` on the host with the container's user.",
            "Run it with `--user $(id -u):$(id -g)`, or `chown` the directory.",
        ),
        confidence="high",
        detect=detect_permission,
    ),
    text_cause(
        "io-error",
        "Storage failed",
        "The log contains `Input/output error` (`Errno 5`) or `Stale file handle` (`Errno 116`).",
        "The disk fails, a network file system lost its server, or a file on it was replaced by another"
        " machine.",
        (
            (
                "Read the kernel log: `sudo dmesg -T | grep -iE 'I/O error|nfs|nvme|ata[0-9]'`; check a disk"
                " with `sudo smartctl -a /dev/DISK`."
            ),
            (
                "Check the mount: `findmnt -T PATH`, `stat PATH`; mount a stale NFS again: `sudo umount -l"
                " PATH && sudo mount PATH`."
            ),
            "Give each node its own cache on a local disk: `HF_HOME`, `HF_DATASETS_CACHE`.",
        ),
        summary="Storage failed beneath the program: an input/output error, or a stale file handle.",
        lines=_IO_ERROR,
        kernel_lines=_KERNEL_DISK,
    ),
)
