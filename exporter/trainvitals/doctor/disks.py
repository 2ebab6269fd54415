"""Checks of disk space, above all for checkpoints."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from contextlib import closing
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.sources.host.filesystem import Filesystem, FilesystemSource
from trainvitals.units import format_bytes
from trainvitals.verdicts.host import judge_filesystem
from trainvitals.verdicts.trouble import drop_explained

_GIB = 1 << 30
_LEAST_BYTES, _GOOD_BYTES = 2 * _GIB, 20 * _GIB
_LEAST_INODES = 10_000
_KEPT = 2  # The checkpoint that is being written and the previous one.
_TRIAL_BYTES = 4096
_TIMEOUT_SECONDS = 0.5


def _find_folder(facts: Facts) -> Path:
    """Return the directory of checkpoints, or the nearest parent that exists."""
    folder = facts.options.checkpoints.expanduser().absolute()
    # A directory without permission does not exist for the run either.
    while not os.path.exists(folder) and folder != folder.parent:  # noqa: PTH110 - never raises
        folder = folder.parent
    return folder


def _check_space(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    answer = facts.machine.statvfs(folder)
    size, free = answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize
    if not size:
        return skip(f"{folder} is on a file system without a size")
    what = f"{format_bytes(free)} of {format_bytes(size)} free in {folder}"
    command = f"du -xh --max-depth=2 {shlex.quote(str(folder))} | sort -rh | head -20"
    each = facts.options.checkpoint_bytes
    if each is not None:
        room = free // max(each, 1)
        what = f"{what}: room for {room} checkpoints of {format_bytes(each)}"
        if room < _KEPT:
            return fail(
                what,
                command,
                advice="remove old checkpoints, or use a larger disk with --checkpoints",
            )
        return ok(what)
    if free < _LEAST_BYTES:
        return fail(
            what, command, advice="remove old checkpoints, or use a larger disk with --checkpoints"
        )
    few = facts.thresholds()["host_disk_space_low:avail_ratio"]
    if free < _GOOD_BYTES or (free < size * few and free < 10 * _GOOD_BYTES):
        return warn(what, command, advice="set --checkpoint-size for an exact answer")
    return ok(what)


def _check_inodes(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    answer = facts.machine.statvfs(folder)
    if not answer.f_files:
        return skip("this file system does not report inodes")
    what = f"{answer.f_favail:,} of {answer.f_files:,} inodes free in {folder}"
    command = f"du -x --inodes --max-depth=2 {shlex.quote(str(folder))} | sort -rn | head -20"
    if answer.f_favail < min(_LEAST_INODES, answer.f_files // 2):
        return fail(what, command, advice="remove directories with many small files")
    if answer.f_favail < answer.f_files * facts.thresholds()["host_inodes_low:free_ratio"]:
        return warn(what, command, advice="remove directories with many small files")
    return ok(what)


def _check_access(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    wanted = facts.options.checkpoints.expanduser().absolute()
    if not folder.is_dir():
        return fail(f"{folder} is a file", advice="use a directory with --checkpoints")
    if facts.machine.statvfs(folder).f_flag & os.ST_RDONLY:
        return fail(
            f"{folder} is read-only",
            "sudo dmesg | grep -iE 'remount|i/o error|ext4|xfs' | tail",
            advice="the kernel remounts a disk with errors read-only; or use another directory with "
            "--checkpoints",
        )
    try:
        # Only a write reveals quotas and root squashing on file servers.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_TRIAL_BYTES))
            file.flush()
    except OSError as error:
        return _explain_refusal(error, folder, wanted)
    if folder != wanted:
        return ok(f"{wanted} can be created in {folder}")
    return ok(f"{folder} is writable")


def _explain_refusal(error: OSError, folder: Path, wanted: Path) -> Finding:
    what = f"cannot write in {folder}: {(error.strerror or str(error)).lower()}"
    if isinstance(error, PermissionError):
        return fail(
            what,
            f'sudo install -d -o "$USER" {shlex.quote(str(wanted))}',
            advice="or use a directory of yours with --checkpoints",
        )
    return fail(
        what, f"df -h {shlex.quote(str(folder))}; df -i {shlex.quote(str(folder))}; quota -s"
    )


def _check_disks(facts: Facts) -> Finding:
    with closing(
        FilesystemSource(roots=facts.machine.roots, statvfs=facts.machine.statvfs)
    ) as source:
        found = source.read(min(facts.deadline, time.monotonic() + _TIMEOUT_SECONDS)).filesystems
    unresponsive = [each for each in found if each.trouble]
    if unresponsive:
        what = ", ".join(
            f"{each.mountpoint} ({each.device}): {each.trouble}" for each in unresponsive
        )
        return fail(
            what,
            f"sudo umount -f -l {shlex.quote(unresponsive[0].mountpoint)}",
            advice="its server does not respond",
        )
    thresholds = facts.thresholds()
    judged = (trouble for each in found for trouble in judge_filesystem(each, thresholds))
    troubles = drop_explained(judged)
    if troubles:
        what = "; ".join(each.words for each in troubles)
        command = f"du -xh --max-depth=2 {shlex.quote(troubles[0].subject)} | sort -rh | head -20"
        is_critical = any(each.severity == "critical" for each in troubles)
        return fail(what, command) if is_critical else warn(what, command)
    if not found:
        return skip("no file system with data is mounted")
    return ok("; ".join(_describe(each) for each in found[:3]))


def _describe(each: Filesystem) -> str:
    if each.space is None:
        return f"{each.mountpoint} unknown"
    free, size = each.space.avail_bytes, each.space.size_bytes
    return f"{each.mountpoint} {format_bytes(free)} of {format_bytes(size)} free"


_SUBJECT = "disks"
CHECKS = (
    Check(
        "disk-space",
        _SUBJECT,
        "a file system that does not respond, or is full; a warning if space or inodes are low: by "
        "the thresholds of the alerts",
        "logs, caches and data sets cannot be written; programs hang on one that does not respond",
        _check_disks,
        is_quick=True,
    ),
    Check(
        "checkpoint-space",
        _SUBJECT,
        "less than 2 GiB free for checkpoints, or no room for two of `--checkpoint-size`; a warning "
        "below 20 GiB, or below both 10 % and 200 GiB",
        "a checkpoint is truncated, often without an error of torch.save",
        _check_space,
    ),
    Check(
        "checkpoint-inodes",
        _SUBJECT,
        "less than 10,000 inodes free for checkpoints; a warning below 5 %",
        '"No space left on device" although there is space',
        _check_inodes,
    ),
    Check(
        "checkpoint-access",
        _SUBJECT,
        "a directory that is read-only, that this user may not write, or with an exhausted quota; "
        "4 KiB are written there and removed",
        "the run fails at its first checkpoint, after hours",
        _check_access,
    ),
)
