"""Tests for findings for an unprivileged user, and on a small real file system."""

import grp
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.privileges import as_nobody
from tests.unit.doctor.patient import Patient


@pytest.fixture
def patient() -> Iterator[Patient]:
    """Yield a machine in a directory that every user may read, unlike pytest's `tmp_path`."""
    with tempfile.TemporaryDirectory(prefix="trainvitals-") as folder:
        Path(folder).chmod(0o755)
        patient = Patient(Path(folder))
        with patient.stack:
            yield patient


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@root_only
def test_a_folder_that_is_closed_to_the_user_is_a_problem(patient: Patient):
    """A checkpoint directory in which the user may not write is a problem."""
    closed = patient.folder / "closed"
    closed.mkdir(mode=0o700)
    patient.wish(checkpoints=closed / "runs")
    with as_nobody():
        finding = patient.find("checkpoint-access")
        space = patient.find("checkpoint-space")
    assert finding.status == "problem"
    assert f"cannot write in {closed}: permission denied" in finding.what
    assert finding.command == f'sudo install -d -o "$USER" {closed}/runs'
    assert space.status != "not applicable"
    assert "could not be checked" not in space.what


@root_only
def test_device_files_that_are_closed_to_the_user_are_a_problem(patient: Patient):
    """If a group may open the device files, the command adds the user to this group."""
    patient.load_module()
    patient.make_files(mode=0o600)
    with as_nobody():
        assert patient.find("nvidia-files").command == "sudo chmod 0666 /dev/nvidia*"
    group = next(each for each in grp.getgrall() if each.gr_gid != 0)
    for file in (patient.root / "dev").iterdir():
        os.chown(file, 0, group.gr_gid)
        file.chmod(0o660)
    with as_nobody():
        finding = patient.find("nvidia-files")
    assert finding.status == "problem"
    assert finding.what.startswith("this user may not open /dev/nvidiactl")
    assert finding.command.startswith(f'sudo usermod --append --groups {group.gr_name} "$USER"')


@pytest.fixture
def small_disk(tmp_path):
    """Yield a directory with a real file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a file system can be mounted by root alone: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_small_disk_is_found_small_and_a_full_one_full(patient: Patient, small_disk):
    """A small file system is a problem for its space, and a full one also for its access."""
    patient.wish(checkpoints=small_disk)
    assert patient.find("checkpoint-space").what.startswith("1.0 MiB of 1.0 MiB free")
    assert patient.find("checkpoint-space").status == "problem"
    assert patient.find("checkpoint-access").status == "ok"
    (small_disk / "model.pt").write_bytes(bytes(1 << 20))
    finding = patient.find("checkpoint-access")
    assert finding.status == "problem"
    assert "no space left on device" in finding.what
    assert patient.find("checkpoint-space").what.startswith("0 B of 1.0 MiB free")
