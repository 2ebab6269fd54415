"""A stack in containers of a real Docker engine."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.local_http import fetch_json
from tests.support.webhooks import WebhookReceiver
from trainvitals.stack.programs import find_free_ports

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Stack:
    """A stack in containers, with its own Compose project and its own ports.

    Attributes:
        environment: The environment variables of `docker` and `trainvitals`.
        state_dir: The state directory.
        receiver: The receiver to which the stack's Alertmanager sends.
    """

    environment: dict[str, str]
    state_dir: Path
    receiver: WebhookReceiver

    @property
    def project(self):
        """The name of the Compose project."""
        return self.environment["COMPOSE_PROJECT_NAME"]

    def run(self, *words, seconds=150, **variables):
        """Run `trainvitals` with these arguments and variables, and return the finished process."""
        return subprocess.run(
            (sys.executable, "-m", "trainvitals", *words, "--state-dir", self.state_dir),
            cwd=self.state_dir.parent,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def docker(self, *words):
        """Run `docker` and return its output."""
        return subprocess.run(
            ("docker", *words), env=self.environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    def inspect(self, service):
        """Return the engine's description of a service's container."""
        return json.loads(self.docker("inspect", f"{self.project}-{service}-1"))[0]

    def get(self, program, path, **query):
        """Return a JSON page of one of the stack's programs."""
        port = self.environment[f"{program.upper()}_PORT"]
        return fetch_json(f"http://127.0.0.1:{port}{path}", query)

    def query(self, expression, **options):
        """Return the values of a Prometheus query, by the label `instance`."""
        found = self.get("prometheus", "/api/v1/query", query=expression, **options)
        return {
            each["metric"].get("instance", ""): float(each["value"][1])
            for each in found["data"]["result"]
        }


@pytest.fixture(scope="module")
def stack(engine, tmp_path_factory):
    """Yield a stack that does not run yet; its containers and volumes are removed afterwards."""
    directory = tmp_path_factory.mktemp("compose")
    programs = ("EXPORTER", "PROMETHEUS", "ALERTMANAGER", "GRAFANA")
    # A container reaches this machine by the bridge, not by the loopback.
    with WebhookReceiver(host="0.0.0.0") as receiver:
        url = f"http://host.docker.internal:{receiver.port}"
        environment = {
            **engine,
            **{f"{name}_PORT": str(find_free_ports(1)[0]) for name in programs},
            "PYTHONPATH": str(ROOT / "exporter"),
            "COMPOSE_PROJECT_NAME": f"trainvitals-test-{os.getpid()}",
            "EXPORTER_IMAGE": "trainvitals-test/exporter",
            "HEALTH_INTERVAL": "1s",
            "STACK_WAY": "compose",
            "CONTAINER_COLLECTOR": "1",
            "HOST_NAME": "machine-1",
            "WEBHOOK_URL": f"{url}/alerts",
            "DEADMAN_URL": f"{url}/deadman",
            "GRAFANA_ADMIN_PASSWORD": "only for this test",
        }
        stack = Stack(environment, directory / "state", receiver)
        try:
            yield stack
        finally:
            remove = functools.partial(subprocess.run, env=environment, cwd=ROOT, check=True)
            remove(("docker", "compose", "-p", stack.project, "down", "--volumes", "--timeout=1"))
