"""Real training processes that use the monitor, and restricted environments for them.

with Restless(runs) as trainer:
    trainer.kill()
    assert trainer.read().step[STEP["steps"]] > 0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil
import pytest

from tests.support.processes import ENDS_WITH_PARENT
from tests.support.run_files import decode
from trainvitals.runfile import ABSENT, STATE, STEP, Record

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
SOURCE_ROOT = Path(__file__).parents[2] / "exporter"
_FAKES = Path(__file__).parents[1] / "fakes"
# Python without site packages and without the PYTHON* variables of the environment.
_PYTHON = (sys.executable, "-S", "-E")


class Restless:
    """A process that trains as fast as it can; see `fakes/restless_training.py`.

    Args:
        directory: The run directory.
        run: The run.
        rank: The rank of the process.
        hold_seconds: The time for which `hold` delays the process.

    Attributes:
        process: The process.
    """

    def __init__(
        self, directory: Path, run: str = "restless", rank: int = 0, hold_seconds: float = 0.0
    ) -> None:
        script = _FAKES / "restless_training.py"
        self.process = subprocess.Popen(
            [
                *ENDS_WITH_PARENT,
                *_PYTHON,
                script,
                SOURCE_ROOT,
                directory,
                run,
                str(rank),
                str(hold_seconds),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._path: Path | None = None

    @property
    def pid(self) -> int:
        """The process ID."""
        return self.process.pid

    @property
    def path(self) -> Path:
        """The path of the run file, read once the process has created the file."""
        if self._path is None:
            assert self.process.stdout is not None
            self._path = Path(self.process.stdout.readline().strip())
        return self._path

    def read(self) -> Record:
        """Read the run file of the process."""
        return decode(self.path.read_bytes())

    def hold(self) -> None:
        """Delay the process in the middle of a step."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process and collect its exit status, as a launcher would."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Restless:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class Loop:
    """A process that trains as the documentation shows; see `fakes/instrumented_training.py`.

    Args:
        directory: The run directory.
        first_step: The step from which training continues.
        wrapper: A command that replaces itself with the script.

    Attributes:
        process: The process, or its wrapper.
    """

    def __init__(
        self, directory: Path, first_step: int = 0, *, wrapper: Sequence[str] = ()
    ) -> None:
        environ = {**os.environ, "PYTHONPATH": str(SOURCE_ROOT)}
        environ["TRAINVITALS_RUN_DIR"] = str(directory)
        self.process = subprocess.Popen(
            [
                *wrapper,
                *ENDS_WITH_PARENT,
                sys.executable,
                _FAKES / "instrumented_training.py",
                str(first_step),
            ],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "trains\n"

    def accounts(self) -> dict[str, list[float]]:
        """Stop the training and return the process's own measurements."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("enough\n")
        self.process.stdin.flush()
        accounts: dict[str, list[float]] = json.loads(self.process.stdout.readline())
        return accounts

    def kill(self) -> None:
        """Kill the process and collect its exit status, as a launcher would."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Loop:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def check_record(record: Record) -> int:
    """Check that the numbers of a `Restless` record are consistent, and return its step."""
    step, state = record.step, record.state
    steps = step[STEP["steps"]]
    if steps <= 0:  # killed before the end of the first step, or before the first record
        assert steps in (0, ABSENT)
        assert step[STEP["samples"]] == step[STEP["train_seconds"]] == steps
        return 0
    for word, factor in (
        ("samples", 7),
        ("tokens", 21),
        ("global_step", 1),
        ("epoch_step", 1),
        ("loss", 1),
        ("learning_rate", 2),
        ("gradient_norm", 3),
    ):
        assert step[STEP[word]] == factor * steps, word
    first, last = STEP["step_bucket_0"], STEP["step_bucket_10"]
    assert sum(step[first : last + 1]) == steps
    phases = step[STEP["total_data_wait"] : STEP["total_other"] + 1]
    assert sum(phases) == pytest.approx(step[STEP["train_seconds"]], rel=1e-6, abs=1e-3)
    evaluations = state[STATE["evaluations"]]
    assert 0 <= steps - 100 * evaluations < 200
    if evaluations:
        assert state[STATE["validation_loss"]] == evaluations
        assert [split for _, split in record.metrics] == ["validation"] * 2
        found = {name: state[STATE["metric_0"] + i] for i, (name, _) in enumerate(record.metrics)}
        assert found == {"iou": 2 * evaluations, "dice": 3 * evaluations}
    return int(steps)


def train(
    directory: Path, trouble: str = "none", *, wrapper: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run `fakes/regression_training.py` to completion.

    Args:
        directory: The run directory.
        trouble: The change to the run directory during the training, or `alone` or `none`.
        wrapper: A command that replaces itself with the script.
    """
    return subprocess.run(
        [*wrapper, *_PYTHON, _FAKES / "regression_training.py", SOURCE_ROOT, trouble],
        env={**os.environ, "TRAINVITALS_RUN_DIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def train_with_workers(directory: Path, kind: str) -> subprocess.Popen[str]:
    """Start `fakes/worker_training.py` with workers of the given kind."""
    environ = {name: value for name, value in os.environ.items() if "COV" not in name}
    return subprocess.Popen(
        [*ENDS_WITH_PARENT, sys.executable, _FAKES / "worker_training.py", kind],
        env={**environ, "PYTHONPATH": str(SOURCE_ROOT), "TRAINVITALS_RUN_DIR": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def in_own_mounts(before: str, directory: Path, *, after: str = "true") -> Sequence[str]:
    """Return a wrapper that runs a command in a separate mount namespace.

    Args:
        before: Shell commands to run first.
        directory: The value of `$0` in the shell commands.
        after: Shell commands to run if the command succeeded.
    """
    if not _has_own_mounts():
        pytest.skip("needs user namespaces: unshare --map-root-user --mount fails here")
    script = f'{before} && "$@" && {after}'
    return ("unshare", "--map-root-user", "--mount", "sh", "-c", script, str(directory))


def without_privileges() -> Sequence[str]:
    """Return a wrapper that drops the capabilities of root, so that file modes apply."""
    return _set_privileges("--inh-caps=-all", "--bounding-set=-all") if os.geteuid() == 0 else ()


def as_nobody() -> Sequence[str]:
    """Return a wrapper that runs a command as user 65534, who can read all files like root."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    reading = "-all,+dac_read_search"  # because Python may be readable only by root
    return _set_privileges(
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        f"--inh-caps={reading}",
        f"--ambient-caps={reading}",
    )


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep `count` processes busy until the end of the block."""
    busy = [
        subprocess.Popen([*ENDS_WITH_PARENT, *_PYTHON, "-c", "while True: pass"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def read_footprint(pid: int) -> tuple[int, int, int]:
    """Return the descriptors, the threads and the resident memory in bytes of a process."""
    process = psutil.Process(pid)
    return process.num_fds(), process.num_threads(), process.memory_info().rss


def _set_privileges(*options: str) -> Sequence[str]:
    wrapper = ("setpriv", *options)
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("runs as root and cannot give that up: setpriv fails here")
    return wrapper


@cache
def _has_own_mounts() -> bool:
    try:
        tried = subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"],
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return False
    return tried.returncode == 0
