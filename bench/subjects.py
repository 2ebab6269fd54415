"""The measured exporters: trainvitals and its peers, each started on the same fake machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.client import HOST, Client
from bench.processes import Tree
from tests.fakes.machine import FakeMachine
from tests.support.certificates import make_certificate

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 20.0
# A reading is reused for 0.2 s; scrapes at shorter intervals would measure the reuse.
GAP_SECONDS = 0.27


class Subject:
    """A running exporter.

    Args:
        name: The exporter's name in tables.
        process: The exporter's process.
        port: The port on which it listens.
        tls: Whether it uses TLS.
    """

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], port: int, *, tls: bool = False
    ) -> None:
        self.name = name
        self.process = process
        self.port = port
        self.tree = Tree(process.pid)
        self.tls = tls

    def client(
        self,
        path: str = "/metrics",
        *,
        packed: bool = True,
        keep_alive: bool = False,
        headers: tuple[str, ...] = (),
    ) -> Client:
        """Return a client for the exporter."""
        return Client(
            self.port, path, packed=packed, keep_alive=keep_alive, tls=self.tls, headers=headers
        )


@contextmanager
def fake_machine(gpus: int = 8, *, delay_microseconds: int = 0) -> Iterator[FakeMachine]:
    """Yield a fake machine with GPUs at 80 % load and one process on each."""
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as directory:
        sleepers = [subprocess.Popen(["sleep", "86400"]) for _ in range(gpus)]
        try:
            with FakeMachine(Path(directory), gpus) as machine:
                for slot, sleeper in enumerate(sleepers):
                    machine.constant_load(slot, 80)
                    machine.processes(slot, [(sleeper.pid, 30 << 30)])
                if delay_microseconds:
                    machine.delay(delay_microseconds)
                yield machine
        finally:
            for sleeper in sleepers:
                sleeper.kill()
                sleeper.wait()


@contextmanager
def our_exporter(
    machine: FakeMachine,
    *flags: str,
    name: str = "trainvitals",
    tls: bool = False,
    reuse: bool = True,
) -> Iterator[Subject]:
    """Start trainvitals.

    Args:
        machine: The fake machine that it observes.
        *flags: Additional flags.
        name: Its name in tables.
        tls: Enable TLS.
        reuse: Reuse a reading for a short time, as in production.
    """
    with tempfile.TemporaryDirectory(prefix="trainvitals-bench-") as directory:
        if tls:
            make_certificate(Path(directory))
            config = Path(directory) / "web.yml"
            config.write_text("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
            flags = (*flags, f"--web.config.file={config}")
        port = find_port()
        command = our_command(port, *flags, reuse=reuse)
        with run_subject(name, command, port, machine, tls=tls) as subject:
            yield subject


def our_command(port: int, *flags: str, reuse: bool = True) -> list[str]:
    """Return the command that starts trainvitals in the same way as its installed script."""
    source = "import sys; from trainvitals.cli import main; sys.exit(main())"
    python = [sys.executable, "-c", source] if reuse else [sys.executable, "-m", "bench.unreused"]
    return [*python, "serve", f"--web.listen-address={HOST}:{port}", *flags]


@contextmanager
def node_exporter() -> Iterator[Subject]:
    """Start Debian's node_exporter with its defaults."""
    port = find_port()
    with run_subject("node_exporter", node_command(port), port) as subject:
        yield subject


def node_command(port: int) -> list[str]:
    """Return the command that starts node_exporter."""
    return [find_program("prometheus-node-exporter"), f"--web.listen-address={HOST}:{port}"]


@contextmanager
def nvitop_exporter(machine: FakeMachine) -> Iterator[Subject]:
    """Start nvitop-exporter with its defaults, by which it polls every second."""
    port = find_port()
    program = find_program("nvitop-exporter")
    command = [sys.executable, program, "--bind-address", HOST, "--port", str(port)]
    with run_subject("nvitop-exporter", command, port, machine) as subject:
        yield subject


@contextmanager
def floor(machine: FakeMachine) -> Iterator[Subject]:
    """Start the lower bound; see `bench.floor`."""
    port = find_port()
    command = [sys.executable, "-m", "bench.floor", str(port)]
    with run_subject("floor", command, port, machine) as subject:
        yield subject


@contextmanager
def run_subject(
    name: str,
    command: Sequence[str],
    port: int,
    machine: FakeMachine | None = None,
    *,
    tls: bool = False,
) -> Iterator[Subject]:
    """Start an exporter, wait until it answers, and terminate it at the end."""
    process = start(command, machine)
    try:
        subject = Subject(name, process, port, tls=tls)
        wait_until_answered(subject)
        yield subject
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def start(command: Sequence[str], machine: FakeMachine | None = None) -> subprocess.Popen[bytes]:
    """Start a process in the environment of a fake machine."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(machine),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def environment(machine: FakeMachine | None) -> Mapping[str, str]:
    """Return this process' environment, adapted to our sources and to a fake machine.

    Settings of Python are removed, so that it may write compiled modules, which an installed
    package also has.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    own["PYTHONPATH"] = str(ROOT / "exporter")
    if machine is None:
        return own
    # Without this setting, the fake driver's wait for events wakes every second, unlike a real one.
    return own | machine.environment() | {"FAKE_ACCELERATORS_SLEEP": "sound"}


def wait_until_answered(subject: Subject) -> None:
    """Wait for the first answer with status 200.

    Raises:
        RuntimeError: The process ended, or did not answer in time.
    """
    client = subject.client()
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if subject.process.poll() is not None:
            raise RuntimeError(f"{subject.name} ended with {subject.process.returncode}")
        try:
            if client.get().status == 200:
                return
        except OSError:
            client.close()
        time.sleep(0.002)
    raise RuntimeError(f"{subject.name} did not answer within {START_SECONDS:.0f} s")


def scrape_in_turn(clients: Sequence[Client], rounds: int) -> list[list[float]]:
    """Scrape all exporters once per round, in alternating order; return the seconds of each.

    The pause between rounds is long enough that no exporter reuses a reading.
    """
    seconds: list[list[float]] = [[] for _ in clients]
    order = list(range(len(clients)))
    for _ in range(rounds):
        for place in order:
            seconds[place].append(clients[place].get().seconds)
        order.reverse()
        time.sleep(GAP_SECONDS)
    return seconds


def find_port() -> int:
    """Return a free port."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def find_program(name: str) -> str:
    """Return the path of a program on PATH or beside this interpreter.

    Raises:
        SystemExit: The program is not installed.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed; bench/README.md says where to get it")
    return found
