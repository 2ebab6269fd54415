"""A recorded minute of all machines in a Prometheus with the hurried rules and an Alertmanager."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.integration.dashboards.live.hurry import write_hurried_rules
from tests.integration.dashboards.live.machine import Machine
from tests.integration.dashboards.live.machines import MACHINES
from tests.integration.dashboards.live.server import Server
from tests.support.alertmanager_process import AlertmanagerProcess
from tests.support.rulebook import ROOT
from trainvitals.stack.debian import prefix_command

SECONDS = 32.0  # the last event, the end of `vit`, is after 28 s
_MOVE_SECONDS = 0.5
# On a busy machine, the recording may last longer, by at most this time.
_PATIENCE_SECONDS = 90.0
_STEADY = 'sum_over_time(up{job="trainvitals"}[4s]) >= 3'
# The alerts that the recording must have, each of which fires some time after its cause.
TROUBLES = (
    "AcceleratorLost",
    "AcceleratorThermalThrottling",
    "AcceleratorXidCritical",
    "ContainerMemoryNearLimit",
    "ContainerOOMKilled",
    "ContainerUnhealthy",
    "ExporterCollectorFailed",
    "ExporterDown",
    "GPUHighTemperature",
    "HostOOMKill",
    "TrainingOutOfMemory",
    "TrainingRunLost",
)
_SHOWN = (
    "group by (alertname) (last_over_time("
    f'ALERTS{{alertstate="firing",alertname=~"{"|".join(TROUBLES)}"}}[5m]))'
)
_NOBODY = 9  # a port on which no exporter listens
# Nothing listens at this URL, so that the delivery of messages fails.
_ROUTES = """
route: {receiver: nobody, group_wait: 1s, group_interval: 1s}
receivers: [{name: nobody, webhook_configs: [{url: "http://127.0.0.1:9/"}]}]
"""


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs that a recording needs.

    Attributes:
        prometheus: The path of Prometheus.
        alertmanager: The path of Alertmanager.
    """

    prometheus: Path
    alertmanager: Path


@dataclass(frozen=True, slots=True)
class Recording:
    """A finished recording.

    Attributes:
        server: The Prometheus that has the samples.
        begin: The start of the recording, Unix seconds.
        end: The end of the recording, after which the machines are gone.
    """

    server: Server
    begin: float
    end: float


@contextmanager
def record(programs: Programs, directory: Path, *, seconds: float = SECONDS) -> Iterator[Recording]:
    """Run all machines for a while, and yield the recording.

    Args:
        programs: Prometheus and Alertmanager.
        directory: An empty directory.
        seconds: The minimum duration.
    """
    with ExitStack() as lasting:
        with ExitStack() as living:
            alertmanager = living.enter_context(_start_alertmanager(programs, directory))
            remote = living.enter_context(_listen())
            machines = _start_machines(living, directory)
            ports = {machine.name: machine.exporter.port for machine in machines}
            server = lasting.enter_context(
                Server(
                    programs.prometheus,
                    directory / "prometheus",
                    jobs={
                        "trainvitals": {**ports, "gone:9200": _NOBODY},
                        "alertmanager": {"alertmanager": alertmanager.port},
                    },
                    rules=write_hurried_rules(
                        sorted((ROOT / "prometheus/rules").glob("*.yml")), directory / "rules"
                    ),
                    alertmanager=alertmanager.port,
                    remote=remote,
                )
            )
            _wait(server, machines)
            begin = time.time()
            _live(machines, seconds)
            until = time.monotonic() + _PATIENCE_SECONDS
            while time.monotonic() < until and not (
                _is_so(server, _SHOWN, len(TROUBLES)) and _is_so(server, _STEADY, len(machines))
            ):
                _live(machines, _MOVE_SECONDS)
            end = time.time()
        yield Recording(server, begin, end)


def _wait(server: Server, machines: Sequence[Machine]) -> None:
    """Wait until all machines are scraped regularly, before any of the planned events."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until and not _is_so(server, _STEADY, len(machines)):
        for machine in machines:
            machine.host.move()
        time.sleep(_MOVE_SECONDS)


def _is_so(server: Server, query: str, count: int) -> bool:
    return len(server.ask("query", query=query)["data"]["result"]) >= count


def _start_machines(living: ExitStack, directory: Path) -> list[Machine]:
    """Start the machines in parallel, as each takes some seconds to start."""
    made = [make(directory / name.partition(":")[0]) for name, make in MACHINES.items()]
    # The threads last as long as the processes that they start, as these end with their thread.
    pool = living.enter_context(ThreadPoolExecutor(len(made)))
    starts = [pool.submit(living.enter_context, machine) for machine in made]
    machines = [start.result() for start in starts]
    for machine in machines:
        machine.host.move()  # so that the counters do not jump at the first scrape
    return machines


def _live(machines: list[Machine], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for machine in machines:
            machine.move()
        time.sleep(_MOVE_SECONDS)


class _TakesSamples(BaseHTTPRequestHandler):
    """A receiver of the samples of Prometheus's remote write."""

    def do_POST(self) -> None:
        """Respond with an empty body."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
        """Log nothing."""


@contextmanager
def _listen() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _TakesSamples) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _start_alertmanager(programs: Programs, directory: Path) -> AlertmanagerProcess:
    config = directory / "alertmanager.yml"
    config.write_text(_ROUTES, encoding="utf-8")
    process = AlertmanagerProcess(programs.alertmanager, config, directory)
    view = prefix_command(programs.alertmanager, directory / "view")
    process._command = (*view, *process._command)
    return process
