"""A run directory that another user of the machine fills with run files."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.exporter_process import ExporterProcess
from tests.unit.sources.runs.trainer import Trainer, compose_run_file, holding

MALLORY = 54321
OMITTED = "training_ranks_omitted"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a run directory that all users may write to, below folders that they may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    path = tmp_path / "runs"
    path.mkdir()
    path.chmod(0o1777)
    return path


def leave_files(runs: Path, count: int, *, first: float) -> list[Path]:
    """Write run files of another user with a claimed creation time and a time in the future."""
    paths = []
    for number in range(count):
        path = runs / f"mallory{number:03}.0.1.00000000.tv"
        data = compose_run_file(f"mallory{number:03}", created_time=first, wall_time=time.time())
        path.write_bytes(data)
        os.chown(path, MALLORY, -1)
        os.utime(path, (time.time() + 1e8, time.time() + 1e8))
        paths.append(path)
    return paths


@pytest.mark.parametrize(("count", "are_held"), [(16, True), (300, True), (300, False)])
def test_no_user_hides_the_run_of_another(tmp_path: Path, runs: Path, count: int, are_held: bool):  # noqa: FBT001
    """Another user's many run files, held open or from the future, do not displace a run."""
    paths = leave_files(runs, count, first=1.0)
    with (
        holding(*paths if are_held else (), user=MALLORY),
        Trainer(runs, run="mine") as trainer,
        ExporterProcess(tmp_path, arguments=(f"--run-dir={runs}",)) as exporter,
    ):
        for _ in range(3):
            trainer.do("step 0.25")
            time.sleep(0.25)  # a cached page is served for 0.2 s
            page = exporter.scrape("training")
            assert page.value("training_process_up", run="mine", rank="0") == 1
            assert page.value("training_loss", run="mine", rank="0") == 0.25
        shown = {sample.labels["run"] for sample in page.find("training_process_up")}
        assert len(shown) == 16
        assert page.value(OMITTED) == (count - 15 if are_held else 0)


def test_a_directory_that_another_user_made_first_is_said_aloud(tmp_path: Path, runs: Path):
    """A run directory owned by another user is logged once, and the runs in it are shown."""
    os.chown(runs, MALLORY, -1)
    with (
        Trainer(runs, run="mine"),
        ExporterProcess(tmp_path, arguments=(f"--run-dir={runs}",)) as exporter,
    ):
        for _ in range(3):
            page = exporter.scrape("training")
            time.sleep(0.25)  # a cached page is served for 0.2 s
        assert page.value("training_process_up", run="mine") == 1
        assert page.value("trainvitals_collector_success", collector="training") == 1
        assert exporter.log.count(f"{runs} belongs to user {MALLORY}, who may remove") == 1


def test_the_usual_directory_that_another_user_closed_fails_the_collector(tmp_path: Path):
    """If another user made the default directory unwritable, the failure reason names a remedy."""
    script = (
        "mount -t tmpfs none /dev/shm && mkdir -m 755 /dev/shm/trainvitals && "
        f'chown {MALLORY} /dev/shm/trainvitals && exec "$@"'
    )
    wrapper = ("unshare", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs mounts of its own: unshare --mount fails here")
    environ = {"TRAINVITALS_RUN_DIR": ""}
    with ExporterProcess(tmp_path, environ=environ, wrapper=wrapper) as exporter:
        page = exporter.scrape("training")
    assert page.value("trainvitals_collector_success", collector="training") == 0
    (failure,) = page.find("trainvitals_collector_failure_info")
    reason = failure.labels["reason"]
    assert f"belongs to user {MALLORY}, and other users cannot have runs there" in reason
    assert "sudo mkdir -m 1777 /dev/shm/trainvitals" in reason


def test_a_later_run_is_shown_too(tmp_path: Path, runs: Path):
    """A run that starts after another user filled the directory is shown at the next scrape."""
    paths = leave_files(runs, 300, first=1.0)
    with (
        holding(*paths, user=MALLORY),
        ExporterProcess(tmp_path, arguments=(f"--run-dir={runs}",)) as exporter,
    ):
        exporter.scrape("training")
        with Trainer(runs, run="mine"):
            page = exporter.scrape_until(
                lambda page: page.value("training_process_up", run="mine") == 1, "training"
            )
    assert page.value(OMITTED) == 300 - 15


@pytest.mark.parametrize("users", ["root", f"0-{MALLORY - 1},{MALLORY + 1}"])
def test_the_administrator_says_who_counts(tmp_path: Path, runs: Path, users: str):
    """Run files of users outside TRAINVITALS_RUN_DIR_USERS are neither read nor counted."""
    paths = leave_files(runs, 20, first=1.0)
    environ = {"TRAINVITALS_RUN_DIR_USERS": users}
    with holding(*paths, user=MALLORY), Trainer(runs, run="mine"):
        arguments = (f"--run-dir={runs}",)
        with ExporterProcess(tmp_path, arguments=arguments, environ=environ) as exporter:
            page = exporter.scrape("training")
    assert {sample.labels["run"] for sample in page.find("training_process_up")} == {"mine"}
    assert page.value(OMITTED) == 0
    assert page.value("training_client_incompatible_files") == 0
