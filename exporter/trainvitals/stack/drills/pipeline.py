"""Runs a drill's Prometheus and Alertmanager, with the stack's rules and routes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import yaml

from trainvitals.alerting.alertmanager import check_configuration
from trainvitals.alerting.configfile import write_configuration
from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped
from trainvitals.sources import external_program
from trainvitals.sources.http_client import fetch_page
from trainvitals.sources.prometheus import Prometheus, PrometheusError
from trainvitals.stack.configuration import find_amtool
from trainvitals.stack.debian import prefix_command
from trainvitals.stack.drills.speed import Document, divide_routes, divide_rules, write_duration
from trainvitals.stack.programs import HOST, find_free_ports, last_lines
from trainvitals.stack.settings import Settings
from trainvitals.stack.writing import require_readable

SPEED = 60.0
"""The default factor by which a drill divides durations."""
INSTANCE = "drill"
JOB = "trainvitals"
_STOP_SECONDS = 10.0
_START_SECONDS = 30.0
_STEP_SECONDS = 0.05
# The scrape interval in the shipped prometheus.yml. It is short enough for the shortest range in a
# rule.
SCRAPE_SECONDS, _EVALUATION_SECONDS = 5.0, 15.0
LEAST_SCRAPE_SECONDS = 0.5
"""The minimum interval between scrapes, in seconds, at any speed."""
_RESEND_SECONDS = 60.0
_PAST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The programs and files of a drill's pipeline.

    Attributes:
        speed: The factor by which all durations are divided.
        rules: The parsed rule files by file name.
        routes: Alertmanager's parsed configuration.
        prometheus: The path of the Prometheus program.
        alertmanager: Alertmanager's command, with the prefix that `prefix_command` returns.
        directory: The working directory for the drill's files.
    """

    speed: float
    rules: Mapping[str, Document]
    routes: Document
    prometheus: Path
    alertmanager: tuple[str, ...]
    directory: Path


def make_plan(
    settings: Settings,
    directory: Path,
    *,
    speed: float,
    find: Callable[[str], Path],
    shipped: Callable[[str], Path] = find_shipped,
) -> Plan:
    """Return a plan with the rules and routes of the running stack, or of a newly started stack.

    Args:
        settings: The stack's settings.
        directory: An empty directory for the drill's files.
        speed: The factor by which all durations are divided.
        find: Returns the path of a program from its name, or raises StackError.
        shipped: Returns the path of a shipped file or directory, or raises StackError.

    Raises:
        StackError: A program or a file is missing, a rule file cannot be read, or the state
            directory belongs to another user.
        ConfigurationError: A variable in `.env` is invalid, or amtool rejects the routes.
    """
    require_readable(settings.state_dir)
    alertmanager = find("prometheus-alertmanager")
    present = settings.state_dir / "config/alertmanager/alertmanager.yml"
    if not present.exists() or settings.variables.get("ALERTMANAGER_CONFIG"):
        present = write_configuration(
            settings.variables,
            directory / "routes",
            shipped=shipped("alertmanager"),
            version=external_program.read_version(alertmanager),
        ).path
    routes = _read(present)
    # amtool's message contains the reason for an error. Without amtool, the message below contains
    # only the name of the file.
    if amtool := find_amtool(find):
        check_configuration(present, amtool=amtool)
    if not _has_receivers(routes):
        raise StackError(f"{present} has no list of receivers: correct it")
    return Plan(
        speed=speed,
        rules=_read_rules(settings.state_dir / "config/prometheus", shipped("prometheus")),
        routes=routes,
        prometheus=find("prometheus"),
        alertmanager=(*prefix_command(alertmanager, directory / "usr-share"), str(alertmanager)),
        directory=directory,
    )


def _read_rules(configured: Path, shipped: Path) -> dict[str, Document]:
    """Read the rule files of this machine's stack, which a user may have edited."""
    place = configured if (configured / "rules").is_dir() else shipped
    rules = {path.name: _read(path) for path in sorted(place.glob("rules/*.yml"))}
    for name, document in rules.items():
        if not _has_rules(document):
            raise StackError(f"{place}/rules/{name} has no groups of rules: correct it")
    return rules


def _has_rules(document: object) -> bool:
    groups = document.get("groups") if isinstance(document, dict) else None
    return isinstance(groups, list) and all(
        isinstance(group, dict)
        and isinstance(group.get("rules"), list)
        and all(isinstance(rule, dict) and "expr" in rule for rule in group["rules"])
        for group in groups
    )


def _has_receivers(routes: object) -> bool:
    return isinstance(routes, dict) and isinstance(routes.get("receivers"), list)


def _read(path: Path) -> Document:
    try:
        return cast("Document", yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise StackError(f"cannot read {path}: {reason}; correct it") from error


class Pipeline:
    """A drill's Prometheus and Alertmanager, on ports of 127.0.0.1.

    Args:
        plan: The programs and files of the pipeline.
        target_port: The port of the simulated machine.
        webhook_url: The URL to which every notification is posted.
        machines: The number of targets at which the simulated machine is scraped.
    """

    def __init__(
        self, plan: Plan, *, target_port: int, webhook_url: str, machines: int = 1
    ) -> None:
        self._plan = plan
        self._target_port = target_port
        self._instances = (INSTANCE, *(f"{INSTANCE}-{at}" for at in range(2, machines + 1)))
        self._webhook_url = webhook_url
        self._prometheus_port, self._alertmanager_port = find_free_ports(2)
        self._prometheus = Prometheus(f"http://{HOST}:{self._prometheus_port}")
        self._scrape_seconds = max(SCRAPE_SECONDS / plan.speed, LEAST_SCRAPE_SECONDS)
        self._ready_at = time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start Prometheus and Alertmanager, wait for a scrape and the rules; stop both on exit.

        The rules are loaded only after the first scrape, which takes place seconds after the start.
        Rules that are evaluated before this scrape would find no machine.

        Raises:
            StackError: A program does not start, or does not respond in time.
        """
        with ExitStack() as undo:
            self._start(undo, "alertmanager", self._write_alertmanager(), self._alertmanager_port)
            command = self._write_prometheus()
            prometheus = self._start(undo, "prometheus", command, self._prometheus_port)
            self._wait_until(self.count_scrapes, "does not scrape the simulated machine")
            self._ready_at = time.monotonic()
            self._write_rules()
            prometheus.send_signal(signal.SIGHUP)
            self._wait_until(self._count_groups, "does not load the rules")
            yield

    def list_alerts(self, name: str) -> tuple[str, ...]:
        """Return the state, `pending` or `firing`, of each alert with the given name."""
        try:
            alerts = self._prometheus.list_alerts()
        except PrometheusError:
            return ()
        return tuple(each.state for each in alerts if each.labels.get("alertname") == name)

    def count_scrapes(self) -> int:
        """Return the number of scrapes of the simulated machine in the last 5 minutes.

        If there are several targets, the scrapes of the target with the fewest scrapes are counted.
        """
        return self._count("min(count_over_time(up[5m]))")

    def count_missed_scrapes(self) -> int:
        """Return the number of scrapes in the last 5 minutes that failed or did not take place.

        If the machine has no idle CPU time, the simulated machine responds late or Prometheus
        scrapes late.
        """
        passed = min(time.monotonic() - self._ready_at, _PAST_SECONDS)
        # Prometheus distributes the first scrapes of its targets over one interval.
        due = int(passed / self._scrape_seconds) - 1
        failed = self._count("max(count_over_time(up[5m]) - sum_over_time(up[5m]))")
        return failed + max(0, due - self.count_scrapes())

    def _count_groups(self) -> int:
        try:
            return len(self._prometheus.list_rules())
        except PrometheusError:
            return 0

    def _wait_until(self, count: Callable[[], int], fault: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not count():
            if time.monotonic() > deadline:
                raise StackError(f"the drill's prometheus {fault}")
            time.sleep(_STEP_SECONDS)

    def _count(self, query: str) -> int:
        try:
            found = self._prometheus.query(query)
        except PrometheusError:
            return 0
        return int(found[0].last) if found else 0

    def _write_prometheus(self) -> tuple[str, ...]:
        directory, speed = self._plan.directory / "prometheus", self._plan.speed
        directory.mkdir(parents=True)
        scrape = write_duration(self._scrape_seconds)
        config = {
            "global": {
                "scrape_interval": scrape,
                "scrape_timeout": scrape,
                "evaluation_interval": write_duration(_EVALUATION_SECONDS / speed),
            },
            "rule_files": ["rules/*.yml"],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [f"{HOST}:{self._alertmanager_port}"]}]}
                ]
            },
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "static_configs": [
                        {
                            "targets": [f"{HOST}:{self._target_port}"],
                            "labels": {"instance": instance},
                        }
                        for instance in self._instances
                    ],
                }
            ],
        }
        _write_yaml(directory / "prometheus.yml", config)
        return (
            str(self._plan.prometheus),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={HOST}:{self._prometheus_port}",
            f"--rules.alert.resend-delay={write_duration(_RESEND_SECONDS / speed)}",
        )

    def _write_rules(self) -> None:
        directory = self._plan.directory / "prometheus/rules"
        directory.mkdir()
        for name, document in self._plan.rules.items():
            _write_yaml(directory / name, divide_rules(document, self._plan.speed))

    def _write_alertmanager(self) -> tuple[str, ...]:
        directory = self._plan.directory / "alertmanager"
        directory.mkdir(parents=True)
        routes = divide_routes(self._plan.routes, self._plan.speed, self._webhook_url)
        _write_yaml(directory / "alertmanager.yml", routes)
        return (
            *self._plan.alertmanager,
            f"--config.file={directory / 'alertmanager.yml'}",
            f"--storage.path={directory / 'data'}",
            f"--web.listen-address={HOST}:{self._alertmanager_port}",
            "--cluster.listen-address=",
        )

    def _start(
        self, undo: ExitStack, name: str, command: tuple[str, ...], port: int
    ) -> subprocess.Popen[bytes]:
        path = self._plan.directory / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        undo.callback(external_program.stop, process, timeout_seconds=_STOP_SECONDS)
        deadline = time.monotonic() + _START_SECONDS
        while fetch_page(port, "/-/ready") is None:
            if process.poll() is not None or time.monotonic() > deadline:
                words = last_lines(path, 1) or ["its log is empty"]
                raise StackError(f"cannot start the drill's {name}: {words[0]}")
            time.sleep(_STEP_SECONDS)
        return process


def _write_yaml(path: Path, document: Mapping[str, object]) -> None:
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")
