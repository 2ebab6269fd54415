"""The real exporter as a separate process, and the pages that it serves.

    with ExporterProcess(tmp_path, machine) as exporter:
        page = exporter.scrape()
        assert page.value("accelerator_power_watts", device="3") == 350.5
        assert page.find("accelerator_up") ...

The end of the block stops all processes of the exporter, whatever their state.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import psutil
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.local_http import get
from tests.support.processes import ENDS_WITH_PARENT

_SOURCE_ROOT = Path(__file__).resolve().parents[2] / "exporter"
_START_SECONDS = 60.0
_END_SECONDS = 30.0
_ANSWER_SECONDS = 60.0


class FindsLibraries(Protocol):
    """A machine, such as `FakeMachine`, whose driver libraries a process finds by environment."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables that name the libraries."""
        ...


@dataclass(frozen=True)
class Page:
    """The response to a scrape.

    Attributes:
        status: The HTTP status code.
        headers: The headers, with names in lower case.
        text: The body.
        seconds: The time that the request took.
    """

    status: int
    headers: Mapping[str, str]
    text: str
    seconds: float

    @cached_property
    def families(self) -> dict[str, Metric]:
        """The families as parsed by prometheus_client, which names counters without `_total`."""
        return {family.name: family for family in text_string_to_metric_families(self.text)}

    @cached_property
    def samples(self) -> list[Sample]:
        """Every sample, in the order of the page."""
        return [sample for family in self.families.values() for sample in family.samples]

    def find(self, name: str | None = None, /, **labels: str) -> list[Sample]:
        """Return the samples with this name (any name if None) and these labels."""
        return [
            sample
            for sample in self.samples
            if name in (None, sample.name) and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the value of the only sample with this name and these labels, or None.

        Raises:
            AssertionError: The page has several such samples.
        """
        found = self.find(name, **labels)
        assert len(found) <= 1, found
        return found[0].value if found else None

    def values(self, name: str, /, by: str, **labels: str) -> dict[str, float]:
        """Return the values of the samples with this name and these labels, keyed by a label."""
        return {sample.labels[by]: sample.value for sample in self.find(name, **labels)}


class ExporterProcess:
    """`python -m trainvitals serve` on a free port of 127.0.0.1.

    Args:
        directory: The folder of the exporter's log.
        machine: The machine whose drivers the exporter finds; None for no fake drivers.
        arguments: More arguments of `trainvitals serve`.
        environ: More environment variables.
        wrapper: A command that replaces itself with the exporter, such as `setpriv`.

    Attributes:
        port: The port on which the exporter listens.
        pid: The process ID of the exporter.
    """

    def __init__(
        self,
        directory: Path,
        machine: FindsLibraries | None = None,
        *,
        arguments: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        self._log = directory / f"exporter-{time.monotonic_ns()}.log"
        variables = {
            **os.environ,
            "PYTHONPATH": str(_SOURCE_ROOT),
            "TRAINVITALS_RUN_DIR": str(directory / "runs"),
            **(machine.environment() if machine is not None else {}),
            **(environ or {}),
        }
        command = [*wrapper, *ENDS_WITH_PARENT, sys.executable, "-m", "trainvitals", "serve"]
        if not any("container" in argument for argument in arguments):
            command.append("--no-collector.container")  # this machine may run a real engine
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--web.listen-address=127.0.0.1:0", *arguments],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.port = self._wait_for_port()

    def __enter__(self) -> ExporterProcess:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def log(self) -> str:
        """The log of the exporter so far."""
        return self._log.read_text(errors="replace")

    def get(self, path: str, *, timeout: float = _ANSWER_SECONDS, **headers: str) -> Page:
        """Request a path.

        Args:
            path: The path with its query.
            timeout: The time to wait for the response, in seconds.
            headers: Headers named as Python words: `x_prometheus_scrape_timeout_seconds="1"`.

        Raises:
            OSError: The exporter did not answer in time, or refused the connection.
        """
        started_at = time.monotonic()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = get(f"http://127.0.0.1:{self.port}{path}", headers=names, timeout=timeout)
        lower = {name.lower(): value for name, value in answer.headers.items()}
        return Page(
            answer.status_code, lower, answer.content.decode(), time.monotonic() - started_at
        )

    def scrape(self, *collectors: str, timeout: float | None = None) -> Page:
        """Request `/metrics`.

        Args:
            collectors: The collectors to query; all if none is named.
            timeout: The scrape timeout to send in the header of Prometheus; None sends none.
        """
        query = "&".join(f"collect[]={name}" for name in collectors)
        headers = {} if timeout is None else {"x_prometheus_scrape_timeout_seconds": str(timeout)}
        return self.get(f"/metrics?{query}", **headers)

    def scrape_until(
        self, is_enough: Callable[[Page], bool], *collectors: str, seconds: float = 60.0
    ) -> Page:
        """Scrape every 0.25 s until a page satisfies a condition.

        Raises:
            AssertionError: No page satisfied the condition within the given seconds.
        """
        until = time.monotonic() + seconds
        while True:
            page = self.scrape(*collectors)
            if is_enough(page):
                return page
            assert time.monotonic() < until, f"not within {seconds} s:\n{page.text}\n{self.log}"
            time.sleep(0.25)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the exporter."""
        self._process.send_signal(number)

    @property
    def is_running(self) -> bool:
        """Whether the exporter is still running."""
        return self._process.poll() is None

    def children(self) -> list[psutil.Process]:
        """Return the running child processes of the exporter, without zombies."""
        return [child for child in psutil.Process(self.pid).children() if _is_alive(child)]

    def end(self) -> int:
        """Stop the exporter, kill its remaining processes, and return its exit code."""
        if self.is_running:
            self._process.terminate()
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            for pid in _members(self.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _wait_for_port(self) -> int:
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and self.is_running:
            for line in self.log.splitlines():
                _, found, address = line.partition(" listens on ")
                if found:
                    return int(address.split('"')[0].rpartition(":")[2])
            time.sleep(0.02)
        log = self.log
        self.end()
        raise AssertionError(f"the exporter does not listen:\n{log}")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _members(session: int) -> list[int]:
    """Return the processes of a session, which the exporter leads."""
    return [pid for pid in psutil.pids() if _session(pid) == session]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
