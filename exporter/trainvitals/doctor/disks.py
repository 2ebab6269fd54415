"""Whether disks have room, above all where checkpoints go."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from contextlib import closing
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.doctor.quantities import write_bytes
from trainvitals.sources.filesystem import Filesystem, FilesystemSource

_GIB = 1 << 30
_LEAST_BYTES, _GOOD_BYTES = 2 * _GIB, 20 * _GIB
_GOOD_RATIO = 0.1
_LEAST_INODES, _GOOD_INODES_RATIO = 10_000, 0.05
_FULL_RATIO = 0.02
_ROOMY_BYTES = 50 * _GIB
_KEPT = 2  # the one that is written and the one before it
_TRIAL_BYTES = 4096
_PATIENCE_SECONDS = 0.5


def _find_folder(facts: Facts) -> Path:
    """Find the folder of checkpoints, or where it would be made."""
    folder = facts.wishes.checkpoints.expanduser().absolute()
    # What this user may not look at is not there for the run either.
    while not os.path.exists(folder) and folder != folder.parent:  # noqa: PTH110 - never raises
        folder = folder.parent
    return folder


def _examine_space(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    answer = facts.world.statvfs(folder)
    size, free = answer.f_blocks * answer.f_frsize, answer.f_bavail * answer.f_frsize
    if not size:
        return pass_over(f"{folder} is on a file system without a size")
    what = f"{write_bytes(free)} of {write_bytes(size)} free in {folder}"
    mend = f"du -xh --max-depth=2 {shlex.quote(str(folder))} | sort -rh | head -20"
    each = facts.wishes.checkpoint_bytes
    if each is not None:
        room = free // max(each, 1)
        what = f"{what}: room for {room} checkpoints of {write_bytes(each)}"
        if room < _KEPT:
            return complain(what, mend, advice="remove old checkpoints, or name a larger disk")
        return approve(what)
    if free < _LEAST_BYTES:
        return complain(what, mend, advice="remove old checkpoints, or name a larger disk")
    if free < _GOOD_BYTES or (free < size * _GOOD_RATIO and free < 10 * _GOOD_BYTES):
        return warn(what, mend, advice="say how large one is with --checkpoint-size, to be sure")
    return approve(what)


def _examine_inodes(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    answer = facts.world.statvfs(folder)
    if not answer.f_files:
        return pass_over("this file system does not count them")
    what = f"{answer.f_favail:,} of {answer.f_files:,} inodes free in {folder}"
    mend = f"du -x --inodes --max-depth=2 {shlex.quote(str(folder))} | sort -rn | head -20"
    if answer.f_favail < min(_LEAST_INODES, answer.f_files // 2):
        return complain(what, mend, advice="remove folders of many small files")
    if answer.f_favail < answer.f_files * _GOOD_INODES_RATIO:
        return warn(what, mend, advice="remove folders of many small files")
    return approve(what)


def _examine_access(facts: Facts) -> Finding:
    folder = _find_folder(facts)
    wanted = facts.wishes.checkpoints.expanduser().absolute()
    if not folder.is_dir():
        return complain(f"{folder} is a file", advice="name a folder with --checkpoints")
    if facts.world.statvfs(folder).f_flag & os.ST_RDONLY:
        return complain(
            f"{folder} is read-only",
            "sudo dmesg | grep -iE 'remount|i/o error|ext4|xfs' | tail",
            advice="a disk with errors is mounted read-only; if it is meant, name another folder",
        )
    try:
        # Only writing tells of quotas, and of servers that give root no rights.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_TRIAL_BYTES))
            file.flush()
    except OSError as error:
        return _explain_refusal(error, folder, wanted)
    where = f"{wanted} will be made in {folder}" if folder != wanted else f"{folder}"
    return approve(f"{where}: may be written to")


def _explain_refusal(error: OSError, folder: Path, wanted: Path) -> Finding:
    what = f"cannot write in {folder}: {(error.strerror or str(error)).lower()}"
    if isinstance(error, PermissionError):
        return complain(
            what,
            f'sudo install -d -o "$USER" {shlex.quote(str(wanted))}',
            advice="or name a folder of yours with --checkpoints",
        )
    return complain(
        what, f"df -h {shlex.quote(str(folder))}; df -i {shlex.quote(str(folder))}; quota -s"
    )


def _examine_disks(facts: Facts) -> Finding:
    with closing(FilesystemSource(roots=facts.world.roots, statvfs=facts.world.statvfs)) as source:
        found = source.read(min(facts.deadline, time.monotonic() + _PATIENCE_SECONDS)).filesystems
    mute = [each for each in found if each.trouble]
    if mute:
        told = ", ".join(f"{each.mountpoint} ({each.device}): {each.trouble}" for each in mute)
        return complain(
            told,
            f"sudo umount -f -l {shlex.quote(mute[0].mountpoint)}",
            advice="its server is gone",
        )
    full = [each for each in found if _is_full(each)]
    if full:
        told = ", ".join(_tell(each) for each in full)
        return complain(
            told, f"du -xh --max-depth=2 {shlex.quote(full[0].mountpoint)} | sort -rh | head -20"
        )
    near = [each for each in found if _is_nearly_full(each)]
    if near:
        told = ", ".join(_tell(each) for each in near)
        return warn(
            told, f"du -xh --max-depth=2 {shlex.quote(near[0].mountpoint)} | sort -rh | head -20"
        )
    if not found:
        return pass_over("no file system with data is mounted")
    return approve("; ".join(_tell(each) for each in found[:3]))


def _tell(each: Filesystem) -> str:
    if each.space is None:
        return f"{each.mountpoint} unknown"
    free, size = each.space.avail_bytes, each.space.size_bytes
    return f"{each.mountpoint} {write_bytes(free)} of {write_bytes(size)} free"


def _is_full(each: Filesystem) -> bool:
    if each.space is None or each.space.readonly:  # images are full by nature
        return False
    return each.space.avail_bytes < each.space.size_bytes * _FULL_RATIO


def _is_nearly_full(each: Filesystem) -> bool:
    if each.space is None or each.space.readonly:
        return False
    free = each.space.avail_bytes
    return free < each.space.size_bytes * _GOOD_RATIO and free < _ROOMY_BYTES


_SUBJECT = "disks"
CHECKS = (
    Check(
        "disk-space",
        _SUBJECT,
        "a file system that does not answer, or with less than 2 % free; a warning below 10 % and "
        "50 GiB",
        "logs, caches and data sets stop being written; one that does not answer hangs who asks it",
        _examine_disks,
        is_quick=True,
    ),
    Check(
        "checkpoint-space",
        _SUBJECT,
        "less than 2 GiB free where checkpoints go, or no room for two of `--checkpoint-size`; a "
        "warning below 20 GiB, or 10 % and 200 GiB",
        "a checkpoint is cut off, and torch.save often does not say so",
        _examine_space,
    ),
    Check(
        "checkpoint-inodes",
        _SUBJECT,
        "less than 10,000 inodes free where checkpoints go; a warning below 5 %",
        '"No space left on device" while there is space',
        _examine_inodes,
    ),
    Check(
        "checkpoint-access",
        _SUBJECT,
        "a folder that is read-only or closed to this user, or a quota that is used up; 4 KiB are "
        "written there and removed",
        "the run fails at its first checkpoint, after hours",
        _examine_access,
    ),
)
