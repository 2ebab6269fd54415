"""The host's sources under a real `/proc` that hides processes from other users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Mounts `/proc` in its own mount namespace, becomes an unprivileged user and reads the sources.
SCRIPT = """
import os, subprocess, sys
from pathlib import Path
from trainvitals.errors import SourceError
from trainvitals.sources.files import Roots
from trainvitals.sources.host.filesystem import FilesystemSource
from trainvitals.sources.host.memory import MemorySource
from trainvitals.sources.host.network import NetworkSource
from trainvitals.sources.host.processes import ProcessesSource

options, procfs = sys.argv[1:]
subprocess.run(["mount", "-t", "proc", "-o", options, "proc", procfs], check=True)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
roots = Roots(procfs=Path(procfs), rootfs=Path("/proc/self/root"))
for read in (
    MemorySource(roots=roots).read,
    NetworkSource(roots=roots).read,
    lambda: FilesystemSource(roots=roots).read(float("inf")),
):
    try:
        read()
    except SourceError as error:
        print(error)
print(ProcessesSource(roots=roots).read().count is None)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")


def read_host(options: str, procfs: Path) -> list[str]:
    """Return the errors of an unprivileged user, and whether the process count is unknown."""
    command = ["unshare", "--mount", sys.executable, "-c", SCRIPT, options, str(procfs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount: " in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def procfs(tmp_path: Path) -> Path:
    """Return a mount point that every user can reach."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.name.startswith(
            ("pytest-", "popen-", "test_")
        ):
            folder.chmod(0o755)
    (tmp_path / "proc").mkdir()
    return tmp_path / "proc"


@pytest.mark.parametrize("hidepid", ["hidepid=2", "hidepid=4"])
def test_hidden_processes_are_named_as_the_reason(procfs: Path, hidepid: str):
    """Errors name `hidepid` as the cause, and files that all users may read are read."""
    network, filesystem, is_unknown = read_host(hidepid, procfs)
    for message, file in ((network, "1/net/dev"), (filesystem, "1/mountinfo")):
        assert message.startswith(f"cannot find {procfs}/{file}; {procfs} is mounted with hidepid,")
    assert is_unknown == "True"


def test_processes_that_may_not_be_read_are_named_as_the_reason(procfs: Path):
    """With hidepid=1 the errors for the unreadable files do not suggest wrong --path flags."""
    network, filesystem, is_unknown = read_host("hidepid=1", procfs)
    for message, file in ((network, "1/net/dev"), (filesystem, "1/mountinfo")):
        assert message.startswith(f"cannot read {procfs}/{file}: Operation not permitted;")
        assert "--path" not in message
    assert is_unknown == "True"


def test_a_proc_of_processes_alone_is_named_as_the_reason(procfs: Path):
    """The error for `/proc` mounted with subset=pid says that it has only processes."""
    memory, is_unknown = read_host("subset=pid", procfs)
    assert memory.startswith(f"cannot find {procfs}/meminfo; {procfs} shows processes alone")
    assert is_unknown == "False"
