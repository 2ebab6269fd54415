"""Real container engines for tests: the machine's own engine, and others that a test may break.

    def test_it(engine):  # the environment of a `docker` whose engine answers
    def test_it(second_engine):
        with second_engine({"live-restore": True}) as second:
            second.docker("run", "-d", "busybox", "sleep", "9")
            second.stop_daemon()

All tests of a session share the machine's own engine. An engine that already answers is used
unchanged; otherwise the first test that needs an engine starts it. No test may stop, suspend or
configure this engine.
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
    """The machine cannot run a container engine; the message gives the reason."""


@contextlib.contextmanager
def running_engine() -> Iterator[Environment]:
    """Use the machine's running engine, or start an engine and stop it after the block.

    Yields:
        The environment for a Docker client of this engine.

    Raises:
        NoEngineError: The machine cannot run an engine.
    """
    # pytest's own folders have long names, and a Unix socket's path may have at most 107 bytes.
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
    """Yield the environment for a Docker client of the machine's own engine."""
    with contextlib.ExitStack() as stack:
        try:
            environment = stack.enter_context(running_engine())
        except NoEngineError as error:
            pytest.skip(str(error))
        yield environment


@pytest.fixture(scope="session")
def python_image(engine: Environment) -> str:
    """Return the name of an image with Python for the machine's own engine."""
    return engine.get("PYTHON_IMAGE", "python:3-slim")


@pytest.fixture(scope="session")
def newer_programs(engine: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the programs of an engine newer than the machine's own."""
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
    """Return an engine that a test may break; skip the test if the machine cannot run it.

    The arguments are those of `SecondEngine`.
    """
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("a second engine needs root and dockerd")
    return SecondEngine(
        first, daemon_json, has_own_containerd=has_own_containerd, programs=programs
    )


@pytest.fixture
def second_engine(engine: Environment) -> Callable[..., SecondEngine]:
    """Return `make_second_engine` with its first argument bound to the machine's own engine."""
    return functools.partial(make_second_engine, engine)


class SecondEngine:
    """A second container engine with its own network, data and socket.

    Without a separate network namespace, the second engine would remove the first engine's bridge
    at its start.

    Args:
        first: The environment for a client of the machine's own engine, which provides images.
        daemon_json: The configuration of the daemon.
        has_own_containerd: Whether containerd is started separately and outlives the daemon, as
            it does if systemd starts both.
        programs: The folder that `.ci/engine newer` filled; None for the machine's own programs.

    Attributes:
        directory: The folder of all files of the engine, which is removed with the block.
        socket: The daemon's socket.
        config: The daemon.json that the daemon reads at its start.
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
        """The address of the engine, in the form of `DOCKER_HOST`."""
        return f"unix://{self.socket}"

    @property
    def environment(self) -> Environment:
        """The environment for a client of this engine."""
        return {**self._first, "DOCKER_HOST": self.address}

    @property
    def pid(self) -> int:
        """The process ID of the daemon."""
        assert self._daemon is not None
        return self._daemon.pid

    @property
    def log(self) -> str:
        """The log of the daemon so far, over all its starts."""
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
        """Run `docker` and return its output.

        Raises:
            AssertionError: The command failed; the message quotes its standard error.
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
        """Return the output of `docker inspect` for a container."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", name))
        return found[0]

    def load(self, image: str) -> None:
        """Copy an image from the machine's own engine to this engine."""
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
            AssertionError: The daemon ended or did not answer in time; the message quotes its log.
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
        """Stop the daemon with a signal and wait until it has ended."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGCONT)
        self._daemon.send_signal(number)
        self._daemon.wait(_END_SECONDS)

    def restart_daemon(self) -> None:
        """Stop the daemon and start it again with its current daemon.json."""
        self.stop_daemon()
        self.start_daemon()

    def signal_daemon(self, number: signal.Signals) -> None:
        """Send a signal to the daemon: SIGSTOP suspends, SIGCONT continues, SIGHUP reloads."""
        os.kill(self.pid, number)

    def run_in_network(self, *words: str) -> None:
        """Run a command in the engine's network namespace, which contains its bridge."""
        assert self._network is not None
        subprocess.run((*_enter(self._network), *words), check=True)

    def end(self) -> None:
        """Stop all processes of the engine, whatever their state, and remove its folder."""
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
        """Kill the containers, because the daemon waits 10 s for those that ignore SIGTERM."""
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
        """Kill the shims, which outlive the daemon, and the processes in their containers."""
        mine = str(self.directory)
        for process in psutil.process_iter(["cmdline"]):
            if any(mine in word for word in process.info["cmdline"] or ()):
                with contextlib.suppress(psutil.NoSuchProcess):
                    _kill_all(process, *process.children(recursive=True))


def _enter(process: subprocess.Popen[bytes]) -> tuple[str, ...]:
    # `ip netns exec` would remount /sys, and the engine would find no control groups.
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
