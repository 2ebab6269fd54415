"""Tests for the choice of the mounted file systems that are reported."""

from __future__ import annotations

import pytest

from trainvitals.sources.files import Roots
from trainvitals.sources.host.mounts import Mount, parse_mountinfo


def line(mountpoint: str, *, number: str, fstype: str = "ext4", device: str = "/dev/sda") -> str:
    """Return one line of `mountinfo`."""
    return f"30 1 {number} / {mountpoint} rw,relatime shared:1 - {fstype} {device} rw\n"


def parse(data: bytes) -> tuple[Mount, ...]:
    """Return the mounts in a `mountinfo` in which every line is valid."""
    mounts, not_understood = parse_mountinfo(data)
    assert not_understood == 0
    return mounts


def places(*lines: str) -> list[str]:
    """Return the mount points that are chosen from lines of `mountinfo`."""
    return [mount.mountpoint for mount in parse("".join(lines).encode())]


def test_the_fake_machine_has_five_file_systems_that_matter(roots: Roots):
    """Mounts of the kernel, images, containers and logins are omitted; a bind mount counts once."""
    mounts = parse((roots.procfs / "1/mountinfo").read_bytes())
    assert [(mount.mountpoint, mount.fstype, mount.device) for mount in mounts] == [
        ("/", "ext4", "/dev/nvme0n1p1"),
        ("/dev/shm", "tmpfs", "tmpfs"),
        ("/data", "xfs", "/dev/mapper/vg-data"),
        ("/datasets", "nfs4", "storage:/datasets"),
        ("/run", "tmpfs", "tmpfs"),
    ]
    assert [mount.remote for mount in mounts] == [False, False, False, True, False]


def test_blanks_and_backslashes_are_unescaped():
    """The kernel's octal escapes in mount points are decoded."""
    mounts = parse(line("/my\\040disk\\134a", number="8:1").encode())
    assert mounts == (
        Mount(
            "/my disk\\a", b"/my disk\\a", "/dev/sda", "ext4", "8:1", remote=False, guarded=False
        ),
    )


def test_a_name_that_is_no_text_can_be_shown_and_asked():
    """The path of a mount keeps bytes that are not UTF-8, and the displayed name is valid text."""
    (mount,) = parse(b"30 1 8:1 / /m\xff rw - ext4 /dev/sda rw\n")
    assert mount.path == b"/m\xff"
    assert mount.mountpoint == "/m�"


def test_the_root_of_a_container_matters():
    """In a container the overlay at `/` is kept, and the engine's mounts in `/etc` are left out."""
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
    """Mounts in the folders of container engines, login sessions and the kernel are left out."""
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
    """Mount points whose names only resemble the excluded ones are kept."""
    assert places(line(mountpoint, number="0:9", fstype="tmpfs")) == [mountpoint]


def test_the_last_mount_at_a_place_hides_the_others():
    """Only the last mount at a mount point is listed, as it hides the earlier mounts."""
    (mount,) = parse(
        (line("/mnt", number="8:1") + line("/mnt", number="8:2", device="/dev/sdb")).encode()
    )
    assert mount.device == "/dev/sdb"


def test_what_lies_below_a_remote_mount_may_hang_too():
    """A mount below a remote mount is guarded; a mount whose name only begins alike is not."""
    mounts = parse(
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


POD = "/var/lib/kubelet/pods/0947fe21-6379-11e8-99c3-42010af00019"


@pytest.mark.parametrize(
    ("mountpoint", "fstype"),
    [
        (f"{POD}/volumes/kubernetes.io~nfs/datasets", "nfs4"),
        (f"{POD}/volumes/kubernetes.io~csi/pvc-1/mount", "ceph"),
        (f"{POD}/volumes/kubernetes.io~csi/pvc-2/mount", "fuse.juicefs"),
        (f"{POD}/volume-subpaths/datasets/trainer/2", "nfs"),
        ("/var/lib/kubelet/plugins/kubernetes.io/csi/csi.lustre/1f/globalmount", "lustre"),
        ("/var/lib/rancher/k3s/agent/kubelet/pods/1/volumes/kubernetes.io~nfs/x", "nfs4"),
        ("/var/lib/docker/volumes/datasets/_data", "nfs"),
        ("/var/lib/containers/storage/volumes/datasets/_data", "cifs"),
    ],
)
def test_a_volume_that_a_server_serves_matters_in_a_container_too(mountpoint: str, fstype: str):
    """A container's volume on a server is listed after the host's mounts and is guarded."""
    volume = line(mountpoint, number="0:60", fstype=fstype, device="server:/x")
    assert places(volume, line("/work", number="8:1")) == ["/work", mountpoint]
    (mount,) = parse(volume.encode())
    assert (mount.remote, mount.guarded) == (True, True)


@pytest.mark.parametrize(
    ("mountpoint", "fstype"),
    [
        (f"{POD}/volumes/kubernetes.io~projected/kube-api-access-1", "tmpfs"),
        (f"{POD}/volumes/kubernetes.io~csi/pvc-3/mount", "ext4"),
        ("/var/lib/containers/storage/overlay/1f/merged", "fuse.fuse-overlayfs"),
        ("/var/lib/lxcfs", "fuse.lxcfs"),
        ("/snap/core/1", "fuse.snapfuse"),
        ("/run/user/1000/gvfs", "fuse.gvfsd-fuse"),
    ],
)
def test_other_mounts_of_containers_do_not_matter(mountpoint: str, fstype: str):
    """Local volumes and other local mounts of containers, snaps and logins are left out."""
    assert places(line(mountpoint, number="0:60", fstype=fstype)) == []


def test_a_server_that_serves_many_pods_counts_once():
    """A file system that is mounted in many pods is listed once, preferably at the host's mount."""
    pods = [f"/var/lib/kubelet/pods/{pod}/volumes/kubernetes.io~nfs/data" for pod in range(9)]
    volumes = [line(pod, number="0:60", fstype="nfs4", device="server:/x") for pod in pods]
    assert places(*volumes) == [pods[0]]
    assert places(*volumes, line("/data", number="0:60", fstype="nfs4")) == ["/data"]


BROKEN = [
    "no mount\n",
    "1 2 3 - ext4 d rw\n",
    "1 2 3:4 / relative rw - ext4 d rw\n",
    "1 2 3:4 / /x rw\n",
    "1 2 3:4 / /x rw - ext4\n",
    "1 2 3:4 / /x\\000y rw - ext4 d rw\n",
    " \n",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_line_that_cannot_be_understood_costs_itself_alone(broken: str):
    """An invalid line is skipped and counted, and the other lines are parsed."""
    data = line("/a", number="8:1") + broken + line("/b", number="8:2")
    mounts, not_understood = parse_mountinfo(data.encode())
    assert [mount.mountpoint for mount in mounts] == ["/a", "/b"]
    assert not_understood == 1


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_no_mountinfo_is_refused(broken: str):
    """A text in which no line describes a mount raises an error."""
    with pytest.raises(ValueError):
        parse_mountinfo(2 * broken.encode())


def test_lines_of_unusual_mounts_are_understood():
    """Mounts without a source, with two propagation tags or with blanks in options are parsed."""
    assert places(
        "30 1 0:1 / /a rw - tmpfs  rw\n",
        "31 1 0:2 / /b rw - tmpfs - rw\n",
        "32 1 0:3 / /c rw,relatime shared:409 master:1 - xfs /dev/sda rw,seclabel\n",
        "33 1 0:4 / /d rw - 9p C:\\134Program\\040Files rw,aname=drvfs;path=C:\\Program Files\\x\n",
    ) == ["/a", "/b", "/c", "/d"]
