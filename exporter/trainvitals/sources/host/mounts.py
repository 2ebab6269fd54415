"""Mounted file systems, read from `/proc/PID/mountinfo`, and the choice of the mounts to report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

# Types whose free space is irrelevant: kernel interfaces, and images, which are always full.
PSEUDO_TYPES = frozenset(
    {
        "autofs",
        "binder",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "cramfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "erofs",
        "fuse.gvfsd-fuse",
        "fuse.lxcfs",
        "fuse.portal",
        "fusectl",
        "hugetlbfs",
        "iso9660",
        "mqueue",
        "nfsd",
        "nsfs",
        "nullfs",
        "pipefs",
        "proc",
        "pstore",
        "resctrl",
        "rootfs",
        "rpc_pipefs",
        "securityfs",
        "selinuxfs",
        "smackfs",
        "sockfs",
        "squashfs",
        "sysfs",
        "tracefs",
        "xenfs",
    }
)

# Types that the kernel serves. All other types depend on a server or process that may hang.
LOCAL_TYPES = frozenset(
    {
        "bcachefs",
        "btrfs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "hfs",
        "hfsplus",
        "jfs",
        "msdos",
        "nilfs2",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "tmpfs",
        "udf",
        "vfat",
        "xfs",
        "zfs",
    }
)

# The mounts of container engines, Kubernetes and login sessions. They are removed when the program
# stops, and the disk that contains such a mount is listed separately.
_EXCLUDED_PLACES = re.compile(
    r"/(?:proc|sys|dev(?!/shm$)"
    r"|etc/(?:hosts|hostname|resolv\.conf)$"
    r"|run/(?!media/|mount/).+"
    r"|var/lib/(?:docker|containers|containerd|kubelet|rancher|lxcfs|snapd)/.+"
    r"|snap/.+"
    # The same mounts of an engine with another data directory.
    r"|.*/?overlay2?/[^/]+/merged$"
    r"|.*/?containers/[0-9a-f]{64}/mounts/shm$"
    r"|.*/io\.containerd\.[^/]+/.+)(?:/|$)"
)
# A volume on a server is not on the host's disk, and the container hangs if the server hangs.
_VOLUME = re.compile(r"/var/lib/[^/]+/(?:.+/)?(?:volumes|volume-subpaths|globalmount)(?:/|$)")
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_COLUMNS_BEFORE_DASH = 6
_NUMBER = 2
_MOUNTPOINT = 4
_OPTIONS = 5


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system.

    Attributes:
        mountpoint: The mount point as text for display.
        path: The mount point as bytes, which need not be valid UTF-8.
        device: The mounted block device, or the server and the path on the server.
        fstype: The file system type, such as `ext4` or `nfs4`.
        number: The kernel's device number, which is the same for all mounts of a file system.
        remote: Whether the file system is served by a server or another process.
        guarded: Whether reading the file system may hang, because the file system is remote or is
            mounted below a remote file system.
        readonly: Whether the file system is read-only because of its mount options or an error.
    """

    mountpoint: str
    path: bytes
    device: str
    fstype: str
    number: str
    remote: bool
    guarded: bool
    readonly: bool = False


def parse_mountinfo(data: bytes) -> tuple[tuple[Mount, ...], int]:
    """Parse the mounts, and choose one mount for each file system that contains data.

    Returns:
        The mounts, and the number of lines that could not be parsed. The order of the mounts is:
        the root, shared memory, other mounts by mount point, mounts of containers.

    Raises:
        ValueError: None of the lines can be parsed, so the data is not a `mountinfo` file.
    """
    lines = [_parse_line(line) for line in data.split(b"\n") if line]
    known = [mount for mount in lines if mount is not None]
    if lines and not known:
        raise ValueError(data)
    # The last mount at a mount point hides the earlier mounts.
    mounts = {mount.mountpoint: mount for mount in known}
    remote_places = [
        mount.mountpoint.rstrip("/") + "/" for mount in mounts.values() if mount.remote
    ]
    chosen: dict[str, Mount] = {}
    for mount in sorted(mounts.values(), key=_importance):
        if matters(mount):
            chosen.setdefault(mount.number, _guard(mount, remote_places))
    return tuple(sorted(chosen.values(), key=_order)), len(lines) - len(known)


def matters(mount: Mount) -> bool:
    """Return whether a mount contains data that can grow; a container volume on a server does."""
    if mount.mountpoint == "/":
        return True
    if mount.fstype in PSEUDO_TYPES:
        return False
    return not _EXCLUDED_PLACES.match(mount.mountpoint) or (
        mount.remote and _VOLUME.match(mount.mountpoint) is not None
    )


def _guard(mount: Mount, remote_places: Sequence[str]) -> Mount:
    below = mount.mountpoint.startswith(tuple(remote_places))
    return replace(mount, guarded=True) if below else mount


def _importance(mount: Mount) -> tuple[int, str]:
    return len(mount.mountpoint), mount.mountpoint


def _order(mount: Mount) -> tuple[bool, bool, bool, str]:
    place = mount.mountpoint
    is_of_container = _EXCLUDED_PLACES.match(place) is not None
    return place != "/", place != "/dev/shm", is_of_container, place  # noqa: S108 - a mount point


def _parse_line(line: bytes) -> Mount | None:
    before, _, after = line.partition(b" - ")
    columns = before.split(b" ")
    fstype, *source = map(_unescape, after.split(b" "))
    if not source or len(columns) < _COLUMNS_BEFORE_DASH:
        return None
    device, *others = source
    path = _unescape(columns[_MOUNTPOINT])
    if not path.startswith(b"/") or b"\0" in path:
        return None
    kind = _text(fstype)
    remote = kind not in LOCAL_TYPES and kind not in PSEUDO_TYPES
    return Mount(
        mountpoint=_text(path),
        path=path,
        device=_text(device),
        fstype=kind,
        number=_text(columns[_NUMBER]),
        remote=remote,
        guarded=remote,
        readonly=any(b"ro" in column.split(b",") for column in (columns[_OPTIONS], *others)),
    )


def _unescape(column: bytes) -> bytes:
    # The kernel writes spaces in names as octal numbers.
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), column)


def _text(column: bytes) -> str:
    return column.decode(errors="replace")
