"""A second Prometheus and a second Alertmanager, with the rules and routes of the first."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from trainvitals.drill.speed import Document, divide_routes, divide_rules, write_duration
from trainvitals.errors import StackError
from trainvitals.stack.logs import last_lines
from trainvitals.stack.programs import fetch

INSTANCE = "drill"
JOB = "trainvitals"
_STOP_SECONDS = 10.0
_START_SECONDS = 30.0
_STEP_SECONDS = 0.05
_HOST = "127.0.0.1"
# As often as in the shipped prometheus.yml, and often enough for the shortest range of a rule.
SCRAPE_SECONDS, _EVALUATION_SECONDS = 5.0, 15.0
_LEAST_SCRAPE_SECONDS = 0.5
_RESEND_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What the second pipeline is made of.

    Attributes:
        speed: What every duration is divided by.
        rules: The rule files as YAML gives them, by file name.
        routes: Alertmanager's configuration as YAML gives it.
        prometheus: The program.
        alertmanager: The program, and what must stand before it.
        directory: Where everything is kept.
    """

    speed: float
    rules: Mapping[str, Document]
    routes: Document
    prometheus: Path
    alertmanager: tuple[str, ...]
    directory: Path


class Pipeline:
    """Prometheus and Alertmanager on ports of 127.0.0.1.

    Args:
        plan: What they are made of.
        target_port: Where the simulated machine listens.
        webhook_url: Where every message goes.
    """

    def __init__(self, plan: Plan, *, target_port: int, webhook_url: str) -> None:
        self._plan = plan
        self._target_port = target_port
        self._webhook_url = webhook_url
        self._prometheus_port = find_free_port()
        self._alertmanager_port = find_free_port()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start both, wait until they answer, and stop them at the end.

        Raises:
            StackError: One does not start, or does not answer in time.
        """
        with ExitStack() as undo:
            self._start(undo, "alertmanager", self._write_alertmanager(), self._alertmanager_port)
            self._start(undo, "prometheus", self._write_prometheus(), self._prometheus_port)
            yield

    def list_alerts(self, name: str) -> tuple[str, ...]:
        """Give the states (`pending`, `firing`) of the alerts with this name."""
        told = self._ask("/api/v1/alerts")
        found = cast("Sequence[dict[str, Any]]", told["data"]["alerts"]) if told else ()
        return tuple(each["state"] for each in found if each["labels"]["alertname"] == name)

    def count_scrapes(self) -> int:
        """Tell how often the simulated machine has been scraped, at most those of 5 minutes."""
        told = self._ask("/api/v1/query?query=count_over_time(up%5B5m%5D)")
        found = told["data"]["result"] if told else []
        return int(found[0]["value"][1]) if found else 0

    def _ask(self, path: str) -> Document | None:
        page = fetch(self._prometheus_port, path)
        return None if page is None else cast("Document", json.loads(page))

    def _write_prometheus(self) -> tuple[str, ...]:
        directory, speed = self._plan.directory / "prometheus", self._plan.speed
        (directory / "rules").mkdir(parents=True)
        for name, document in self._plan.rules.items():
            _write_yaml(directory / "rules" / name, divide_rules(document, speed))
        scrape = write_duration(max(SCRAPE_SECONDS / speed, _LEAST_SCRAPE_SECONDS))
        config = {
            "global": {
                "scrape_interval": scrape,
                "scrape_timeout": scrape,
                "evaluation_interval": write_duration(_EVALUATION_SECONDS / speed),
            },
            "rule_files": ["rules/*.yml"],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [f"{_HOST}:{self._alertmanager_port}"]}]}
                ]
            },
            "scrape_configs": [
                {
                    "job_name": JOB,
                    "static_configs": [
                        {
                            "targets": [f"{_HOST}:{self._target_port}"],
                            "labels": {"instance": INSTANCE},
                        }
                    ],
                }
            ],
        }
        _write_yaml(directory / "prometheus.yml", config)
        return (
            str(self._plan.prometheus),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={_HOST}:{self._prometheus_port}",
            f"--rules.alert.resend-delay={write_duration(_RESEND_SECONDS / speed)}",
        )

    def _write_alertmanager(self) -> tuple[str, ...]:
        directory = self._plan.directory / "alertmanager"
        directory.mkdir(parents=True)
        routes = divide_routes(self._plan.routes, self._plan.speed, self._webhook_url)
        _write_yaml(directory / "alertmanager.yml", routes)
        return (
            *self._plan.alertmanager,
            f"--config.file={directory / 'alertmanager.yml'}",
            f"--storage.path={directory / 'data'}",
            f"--web.listen-address={_HOST}:{self._alertmanager_port}",
            "--cluster.listen-address=",
        )

    def _start(self, undo: ExitStack, name: str, command: tuple[str, ...], port: int) -> None:
        path = self._plan.directory / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        undo.callback(_end, process)
        deadline = time.monotonic() + _START_SECONDS
        while fetch(port, "/-/ready") is None:
            if process.poll() is not None or time.monotonic() > deadline:
                words = last_lines(path, 1) or ["it says nothing"]
                raise StackError(f"the drill's {name} does not start: {words[0]}")
            time.sleep(_STEP_SECONDS)


def find_free_port(make: Callable[[], socket.socket] = socket.socket) -> int:
    """Give a port of 127.0.0.1 that nothing listens on now."""
    with make() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _write_yaml(path: Path, document: Mapping[str, object]) -> None:
    path.write_text(yaml.safe_dump(dict(document), sort_keys=False), encoding="utf-8")
