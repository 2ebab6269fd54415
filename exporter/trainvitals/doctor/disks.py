"""Checks disk space, in particular for checkpoints."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, report, skip
from trainvitals.sources.host.filesystem import (
    Filesystem,
    measure_space,
)
from trainvitals.units import format_bytes
from trainvitals.verdicts.host import judge_filesystem, judge_inodes, judge_space
from trainvitals.verdicts.trouble import drop_explained, sort_troubles

_GIB = 1 << 30
_LEAST_BYTES = 2 * _GIB  # the free space required if the size of checkpoints is unknown
_KEPT = 2  # the checkpoint that is being written, and the previous checkpoint
_TRIAL_BYTES = 4096


def _find_folder(facts: Facts) -> Path:
    """Return the checkpoint directory, or the nearest existing parent directory."""
    folder = facts.options.checkpoints.expanduser().absolute()
    # A directory that the run has no permission to access counts as missing.
    while not os.path.exists(folder) and folder != folder.parent:  # noqa: PTH110 - never raises
        folder = folder.parent
    return folder


def _check_space(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    space = measure_space(facts.machine.statvfs(folder))
    size, free = space.size_bytes, space.avail_bytes
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
    troubles = tuple(judge_space(str(folder), space, facts.thresholds()))
    return report(what, troubles, command, "set --checkpoint-size for an exact answer")


def _check_inodes(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    space = measure_space(facts.machine.statvfs(folder))
    if not space.files:
        return skip("this file system does not report inodes")
    what = f"{space.files_free:,} of {space.files:,} inodes free in {folder}"
    command = f"du -x --inodes --max-depth=2 {shlex.quote(str(folder))} | sort -rn | head -20"
    troubles = tuple(judge_inodes(str(folder), space, facts.thresholds()))
    return report(what, troubles, command, "remove directories with many small files")


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
        # Only an actual write reveals quotas and root squashing on file servers.
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
    found = facts.filesystems().filesystems
    thresholds = facts.thresholds()
    judged = (trouble for each in found for trouble in judge_filesystem(each, thresholds))
    troubles = sort_troubles(drop_explained(judged))
    if troubles:
        what = "; ".join(each.words for each in troubles)
        where = shlex.quote(troubles[0].subject)
        if any(each.mountpoint == troubles[0].subject and each.trouble for each in found):
            advice = "its server does not respond"
            return report(what, troubles, f"sudo umount -f -l {where}", advice)
        return report(what, troubles, f"du -xh --max-depth=2 {where} | sort -rh | head -20")
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
        alerts=(
            "HostDiskFull",
            "HostDiskSpaceLow",
            "HostInodesLow",
            "HostSharedMemoryLow",
            "HostFilesystemNotResponding",
        ),
        is_quick=True,
    ),
    Check(
        "checkpoint-space",
        _SUBJECT,
        "less than 2 GiB free for checkpoints, or no room for two of `--checkpoint-size`; a warning "
        "if disk space is low",
        "a checkpoint is truncated, often without an error of torch.save",
        _check_space,
        alerts=("HostDiskFull", "HostDiskSpaceLow"),
    ),
    Check(
        "checkpoint-inodes",
        _SUBJECT,
        "a warning if inodes are low where checkpoints are saved",
        '"No space left on device" although there is space',
        _check_inodes,
        alerts=("HostInodesLow",),
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
