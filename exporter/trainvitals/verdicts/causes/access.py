"""Failed reads and writes of files due to permissions, a read-only mount or an I/O error."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.paths import Place, find_place
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_IO_ERROR = matches(
    r"\[Errno (?:5|6|19|61|70|74|107|108|112|116|117|121|123)\]|[Ii]nput/output error|[Ss]tale (?:NFS )?file handle|Remote I/O error"
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
_READ_ONLY = contains(
    "Read-only file system", "[Errno 30]", "(os error 30)", "errno = 30", ignore_case=True
)
_DENIED = matches(
    r"Permission denied|[:;] permission denied(?! for)|\[Errno 13\]|\[Errno 1\] Operation not permitted|PermissionError: "
    r"|\(os error 13\)",
    without=("(publickey", "storage.objects"),
)
_REMOVED = contains("Removing after probe failure", "controller is down; will reset")
_HINT = matches(r"Try \"(nvme_core\.[^\"]{1,200})\"")
_APPTAINER = matches(r"\b(?:apptainer|singularity)\b|\.sif\b|\bSIF\b", ignore_case=True)


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
            _advise_removed(case) or _advise_disk(place),
            speaks_for=tuple(
                f"The kernel logged `{line.strip()[:200]}`."
                for line in dict.fromkeys(
                    (*filter(_REMOVED, case.evidence.kernel_lines), errors[-1])
                )
            ),
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


def _advise_disk(place: Place) -> tuple[str, ...]:
    return (
        (
            f"Check the disk: `dmesg | grep -iE 'I/O error|EXT4-fs|XFS'` and `smartctl -a`;"
            f" `findmnt -T {place.folder}` names it."
        ),
        "Save its data, unmount it and run `fsck` before it is written to again.",
    )


def _advise_removed(case: Case) -> tuple[str, ...]:
    """Return the advice for an NVMe disk that the kernel removed; empty if it removed none."""
    lines = case.evidence.kernel_lines
    if not any(map(_REMOVED, lines)):
        return ()
    hint = next((found[1] for line in lines if (found := _HINT.search(line))), _NVME_OPTIONS)
    return (
        (
            "The disk is gone until the host is restarted: `sudo reboot`, then `nvme list` and"
            " `sudo smartctl -a /dev/nvme0`."
        ),
        f"If it comes back, start the kernel with what it advises: `{hint}`; update the disk's firmware.",
        "If it does not, reseat or replace it.",
    )


_NVME_OPTIONS = "nvme_core.default_ps_max_latency_us=0 pcie_aspm=off"


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
    """Detect a file that the container's user is not allowed to access."""
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
    is_apptainer = case.search(_APPTAINER) is not None
    steps.append(_BIND if is_apptainer else _RUN_AS_OWNER)
    return match.conclude(
        "permission",
        f"Access to {named} was denied" + (f" for the user {user}." if settings else "."),
        steps,
    )


_RUN_AS_OWNER = (
    "Or run the container as the owner: `--user $(id -u):$(id -g)` (`user:` in Compose);"
    " with SELinux add `:z` to the mount."
)
_BIND = (
    "Apptainer runs as you, and its image is read-only: bind a folder that you may write, `apptainer"
    " exec --bind /scratch/$USER/out:/models …`, or write to one that it has bound already (`$HOME`, `/tmp`)."
)


CAUSES: tuple[Cause, ...] = (
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
