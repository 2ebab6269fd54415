"""Which file systems are mounted, and which of them matter."""

from __future__ import annotations

import pytest

from trainvitals.sources.files import Roots
from trainvitals.sources.mounts import Mount, parse_mountinfo


def line(mountpoint: str, *, number: str, fstype: str = "ext4", device: str = "/dev/sda") -> str:
    """Write one line of mountinfo."""
    return f"30 1 {number} / {mountpoint} rw,relatime shared:1 - {fstype} {device} rw\n"


def places(*lines: str) -> list[str]:
    """Parse lines of mountinfo and give the mount points that were chosen."""
    return [mount.mountpoint for mount in parse_mountinfo("".join(lines).encode())]


def test_the_fake_machine_has_five_file_systems_that_matter(roots: Roots):
    """Kernel interfaces, images, containers and logins are left out; a bind mount counts once."""
    mounts = parse_mountinfo((roots.procfs / "1/mountinfo").read_bytes())
    assert [(mount.mountpoint, mount.fstype, mount.device) for mount in mounts] == [
        ("/", "ext4", "/dev/nvme0n1p1"),
        ("/dev/shm", "tmpfs", "tmpfs"),
        ("/data", "xfs", "/dev/mapper/vg-data"),
        ("/datasets", "nfs4", "storage:/datasets"),
        ("/run", "tmpfs", "tmpfs"),
    ]
    assert [mount.remote for mount in mounts] == [False, False, False, True, False]


def test_blanks_and_backslashes_are_unescaped():
    """The kernel writes them as octal numbers."""
    mounts = parse_mountinfo(line("/my\\040disk\\134a", number="8:1").encode())
    assert mounts == (
        Mount(
            "/my disk\\a", b"/my disk\\a", "/dev/sda", "ext4", "8:1", remote=False, guarded=False
        ),
    )


def test_a_name_that_is_no_text_can_be_shown_and_asked():
    """The path keeps its bytes, what is shown is valid text."""
    (mount,) = parse_mountinfo(b"30 1 8:1 / /m\xff rw - ext4 /dev/sda rw\n")
    assert mount.path == b"/m\xff"
    assert mount.mountpoint == "/m�"


def test_the_root_of_a_container_matters():
    """An overlay at / is kept, and what the engine binds into /etc is not."""
    assert places(
        line("/", number="0:50", fstype="overlay", device="overlay"),
        line("/dev/shm", number="0:51", fstype="tmpfs", device="shm"),
        line("/etc/resolv.conf", number="8:1"),
        line("/etc/hosts", number="8:1"),
        line("/workspace", number="8:1"),
    ) == ["/", "/dev/shm", "/workspace"]


@pytest.mark.parametrize(
    "mountpoint",
    [
        "/var/lib/docker/overlay2/abc/merged",
        "/data/docker/overlay2/abc/merged",
        f"/data/docker/containers/{'1f' * 32}/mounts/shm",
        "/srv/storage/overlay/abc/merged",
        "/data/k3s/io.containerd.grpc.v1.cri/sandboxes/1f/shm",
        "/var/lib/kubelet/pods/1/volumes/x",
        "/run/credentials/systemd-sysusers.service",
        "/run/user/1000",
        "/dev/hugepages",
        "/sys/fs/cgroup",
        "/proc/acpi",
    ],
)
def test_what_comes_and_goes_with_containers_and_logins_does_not_matter(mountpoint: str):
    """Their disk is listed by itself, and their names would be new ones each time."""
    assert places(line(mountpoint, number="0:9", fstype="tmpfs")) == []


@pytest.mark.parametrize(
    "mountpoint",
    [
        "/run",
        "/tmp",
        "/run/media/me/stick",
        "/var/lib/docker",
        "/devices",
        "/home",
        "/data/overlay2",
        "/data/overlay/set/merged/more",
    ],
)
def test_places_where_data_may_grow_matter(mountpoint: str):
    """Names that only look like the excluded ones are kept."""
    assert places(line(mountpoint, number="0:9", fstype="tmpfs")) == [mountpoint]


def test_the_last_mount_at_a_place_hides_the_others():
    """Only what can be reached there counts."""
    (mount,) = parse_mountinfo(
        (line("/mnt", number="8:1") + line("/mnt", number="8:2", device="/dev/sdb")).encode()
    )
    assert mount.device == "/dev/sdb"


def test_what_lies_below_a_remote_mount_may_hang_too():
    """The way to it leads through the remote one; a name that only begins alike does not."""
    mounts = parse_mountinfo(
        (
            line("/nfs", number="0:60", fstype="nfs", device="server:/x")
            + line("/nfs/local", number="8:1")
            + line("/nfs2", number="8:2")
        ).encode()
    )
    assert [(mount.mountpoint, mount.remote, mount.guarded) for mount in mounts] == [
        ("/nfs", True, True),
        ("/nfs/local", False, True),
        ("/nfs2", False, False),
    ]


@pytest.mark.parametrize(
    "data", [b"no mount\n", b"1 2 3 - ext4 d rw\n", b"1 2 3:4 / relative rw - ext4 d rw\n"]
)
def test_what_is_no_mountinfo_is_refused(data: bytes):
    """A line without the columns is an error."""
    with pytest.raises(ValueError):
        parse_mountinfo(data)
