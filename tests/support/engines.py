"""Real container engines for tests: the machine's own, and second ones that a test may break.

    def test_it(engine):  # the environment of a `docker` whose engine answers
    def test_it(second_engine):
        with second_engine({"live-restore": True}) as second:
            second.docker("run", "-d", "busybox", "sleep", "9")
            second.stop_daemon()

The machine's own engine is for all tests of a session: it is started when the first test asks,
taken as it is where one answers already, and never stopped, hung or configured by a test.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import ENDS_WITH_PARENT
from tests.support.waiting import wait_until

_SCRIPT = Path(__file__).parents[2] / ".ci/engine"
_CANNOT = 3
_START_SECONDS = 90.0
_END_SECONDS = 30.0

Environment = dict[str, str]


class NoEngineError(Exception):
    """This machine cannot have an engine; the message says why."""


@contextlib.contextmanager
def running_engine() -> Iterator[Environment]:
    """Bring the machine's own engine up, or take the one that answers; end what was started.

    Gives:
        The environment of a Docker client whose engine answers.

    Raises:
        NoEngineError: There cannot be one.
    """
    # Not below pytest's own folders: a Unix socket's path may have 107 bytes.
    directory = tempfile.mkdtemp(prefix="trainvitals-engine-")
    try:
        began = time.monotonic()
        said = subprocess.run(
            (_SCRIPT, "start", directory), stderr=subprocess.PIPE, text=True, check=False
        )
        print(f"{said.stderr}engine: there after {time.monotonic() - began:.0f} s")
        if said.returncode == _CANNOT:
            raise NoEngineError(said.stderr.strip().splitlines()[-1])
        assert said.returncode == 0, said.stderr
        lines = (Path(directory) / "env").read_text(encoding="utf-8").splitlines()
        yield {**os.environ, **dict(line.split("=", 1) for line in lines)}
    finally:
        subprocess.run((_SCRIPT, "stop", directory), check=True)
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def engine() -> Iterator[Environment]:
    """Return the environment of a Docker client whose engine answers; end what was started."""
    with contextlib.ExitStack() as stack:
        try:
            environment = stack.enter_context(running_engine())
        except NoEngineError as error:
            pytest.skip(str(error))
        yield environment


@pytest.fixture(scope="session")
def python_image(engine: Environment) -> str:
    """Return the name of an image with Python on the machine's own engine."""
    return engine.get("PYTHON_IMAGE", "python:3-slim")


@pytest.fixture(scope="session")
def newer_programs(engine: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the programs of a newer engine than this machine's own."""
    directory = tmp_path_factory.mktemp("newer")
    said = subprocess.run(
        (_SCRIPT, "newer", directory), stderr=subprocess.PIPE, text=True, check=False
    )
    if said.returncode == _CANNOT:
        pytest.skip(said.stderr.strip().splitlines()[-1])
    assert said.returncode == 0, said.stderr
    return directory / "root"


def make_second_engine(
    first: Environment,
    daemon_json: Mapping[str, object] | None = None,
    *,
    has_own_containerd: bool = False,
    programs: Path | None = None,
) -> SecondEngine:
    """Make an engine that a test may break; skip where there cannot be one.

    The arguments are those of `SecondEngine`.
    """
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("a second engine needs root and dockerd")
    return SecondEngine(
        first, daemon_json, has_own_containerd=has_own_containerd, programs=programs
    )


@pytest.fixture
def second_engine(engine: Environment) -> Callable[..., SecondEngine]:
    """Return `make_second_engine` without its first argument."""
    return functools.partial(make_second_engine, engine)


class SecondEngine:
    """An engine of its own: own network, own data, own socket.

    Without a network namespace of its own its start would take the first engine's bridge away.

    Args:
        first: The environment of a client of the machine's own engine, for images.
        daemon_json: What the daemon is configured with.
        has_own_containerd: Whether containerd is no child of the daemon and outlives it, as it
            does where systemd starts both.
        programs: What `.ci/engine newer` unpacked; None for this machine's own.

    Attributes:
        directory: Where all of it lies; gone with the block.
        socket: The daemon's socket.
        config: The daemon.json that it is started with.
    """

    def __init__(
        self,
        first: Mapping[str, str],
        daemon_json: Mapping[str, object] | None = None,
        *,
        has_own_containerd: bool = False,
        programs: Path | None = None,
    ) -> None:
        self._first = dict(first)
        self._has_own_containerd = has_own_containerd
        self._path = os.environ["PATH"]
        if programs is not None:
            self._path = f"{programs / 'usr/sbin'}:{programs / 'usr/bin'}:{self._path}"
        self._network: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None
        self._daemon: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="trainvitals-second-"))
        self.socket = self.directory / "docker.sock"
        self.config = self.directory / "daemon.json"
        self.config.write_text(json.dumps(daemon_json or {}))

    def __enter__(self) -> SecondEngine:  # noqa: PYI034 - Self is not in Python 3.10
        try:
            self._network = subprocess.Popen(
                (*ENDS_WITH_PARENT, "unshare", "--net", "sleep", "infinity")
            )
            if self._has_own_containerd:
                self._start_containerd()
            self.start_daemon()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def address(self) -> str:
        """Its address, as `DOCKER_HOST` has it."""
        return f"unix://{self.socket}"

    @property
    def environment(self) -> Environment:
        """The environment of a client of it."""
        return {**self._first, "DOCKER_HOST": self.address}

    @property
    def pid(self) -> int:
        """The daemon's process."""
        assert self._daemon is not None
        return self._daemon.pid

    @property
    def log(self) -> str:
        """What the daemon has logged so far, over all its starts."""
        return (self.directory / "dockerd.log").read_text(errors="replace")

    @property
    def answers(self) -> bool:
        """Whether the daemon answers within 2 s."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2)
            connection.connect(str(self.socket))
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(64)
        return False

    def docker(self, *words: str, seconds: float = 60.0, is_checked: bool = True) -> str:
        """Run `docker` and give its output.

        Raises:
            AssertionError: It failed; what it said is quoted.
        """
        said = subprocess.run(
            ("docker", *words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not is_checked or said.returncode == 0, (
            f"docker {words}: {said.stderr}\n{self.log[-2000:]}"
        )
        return said.stdout.strip()

    def inspect(self, name: str) -> dict[str, Any]:
        """Return what it knows of a container."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", name))
        return found[0]

    def load(self, image: str) -> None:
        """Bring an image over from the machine's own engine."""
        with subprocess.Popen(
            ("docker", "save", image), env=self._first, stdout=subprocess.PIPE
        ) as saved:
            subprocess.run(
                ("docker", "load", "--quiet"),
                env=self.environment,
                stdin=saved.stdout,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        assert saved.returncode == 0

    def start_daemon(self) -> None:
        """Start the daemon and wait until it answers.

        Raises:
            AssertionError: It ended, or does not answer in time; its log is quoted.
        """
        parts: list[str | Path] = [
            *("dockerd", "--config-file", self.config, "--host", self.address),
            *("--data-root", self.directory / "data", "--exec-root", self.directory / "run"),
            *("--pidfile", self.directory / "pid"),
        ]
        if self._has_own_containerd:
            parts += ["--containerd", self.directory / "containerd.sock"]
        self._daemon = self._launch("dockerd.log", *parts)
        self._wait_for_start(self._daemon, "dockerd.log", lambda: self.answers)

    def stop_daemon(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon with a signal and wait until it is gone."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGCONT)
        self._daemon.send_signal(number)
        self._daemon.wait(_END_SECONDS)

    def restart_daemon(self) -> None:
        """End the daemon and start it again, with what its daemon.json says now."""
        self.stop_daemon()
        self.start_daemon()

    def signal_daemon(self, number: signal.Signals) -> None:
        """Send the daemon a signal: SIGSTOP hangs it, SIGCONT has it go on, SIGHUP reloads."""
        os.kill(self.pid, number)

    def run_in_network(self, *words: str) -> None:
        """Run a command in its network, where there is its bridge."""
        assert self._network is not None
        subprocess.run((*_enter(self._network), *words), check=True)

    def end(self) -> None:
        """End everything that it started, whatever state it is in, and remove its folder."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._kill_containers()
                self.stop_daemon()
        for child in (self._daemon, self._containerd, self._network):
            if child is not None:
                child.kill()
                child.wait(_END_SECONDS)
        self._end_shims()
        for mount in reversed(_mounts_below(self.directory)):
            subprocess.run(("umount", "--lazy", mount), check=True)
        shutil.rmtree(self.directory)

    def _kill_containers(self) -> None:
        """Kill what runs, or the daemon waits ten seconds for what heeds no other signal."""
        words = self.docker("ps", "--quiet", seconds=_END_SECONDS, is_checked=False).split()
        if words:
            self.docker("kill", *words, seconds=_END_SECONDS, is_checked=False)

    def _start_containerd(self) -> None:
        config = self.directory / "containerd.toml"
        config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        self._containerd = self._launch(
            "containerd.log",
            *("containerd", "--config", config, "--address", self.directory / "containerd.sock"),
            *("--root", self.directory / "cdata", "--state", self.directory / "crun"),
        )
        socket = self.directory / "containerd.sock"
        self._wait_for_start(self._containerd, "containerd.log", socket.exists)

    def _wait_for_start(
        self, process: subprocess.Popen[bytes], log_name: str, answers: Callable[[], bool]
    ) -> None:
        def read_log() -> str:
            return (self.directory / log_name).read_text(errors="replace")[-2000:]

        def has_started() -> bool:
            assert process.poll() is None, read_log()
            return answers()

        wait_until(has_started, _START_SECONDS, pause=0.1, describe=read_log)

    def _launch(self, log_name: str, *words: str | Path) -> subprocess.Popen[bytes]:
        assert self._network is not None
        with (self.directory / log_name).open("ab") as log:
            return subprocess.Popen(
                (*ENDS_WITH_PARENT, *_enter(self._network), *words),
                env={**os.environ, "PATH": self._path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _end_shims(self) -> None:
        """End what keeps containers after their daemon, with what runs in them."""
        mine = str(self.directory)
        for process in psutil.process_iter(["cmdline"]):
            if any(mine in word for word in process.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    _kill_all(process, *process.children(recursive=True))


def _enter(process: subprocess.Popen[bytes]) -> tuple[str, ...]:
    # Not `ip netns exec`: it mounts /sys again, and the engine finds no control groups.
    return ("nsenter", f"--net=/proc/{process.pid}/ns/net")


def _kill_all(*processes: psutil.Process) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_END_SECONDS)


def _mounts_below(directory: Path) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = (line.split()[4] for line in lines)
    return [point for point in points if point.startswith(f"{directory}/")]
