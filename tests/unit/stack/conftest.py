"""Fixtures of the tests of the stack."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.webhooks import WebhookReceiver
from trainvitals.errors import StackError
from trainvitals.shipped import find_shipped
from trainvitals.stack.native import bring_up, take_down
from trainvitals.stack.programs import find_free_ports
from trainvitals.stack.settings import Settings

STAND_IN = Path(__file__).parent / "stand_ins/exporter.py"
STAND_IN_GRAFANA = Path(__file__).parent / "stand_ins/grafana.py"
SERVE = (sys.executable, "-m", "trainvitals", "serve")


@pytest.fixture(scope="session")
def new_settings():
    """Return a function that creates settings with free ports and the stand-in exporter."""

    def make(state_dir, **variables):
        exporter, prometheus, alertmanager, grafana = find_free_ports(4)
        return Settings(
            state_dir.resolve(),
            exporter,
            prometheus,
            (sys.executable, str(STAND_IN)),
            alertmanager_port=alertmanager,
            grafana_port=grafana,
            variables={"HOST_NAME": "ada-1", **variables},
        )

    return make


@pytest.fixture(scope="session")
def programs(prometheus, alertmanager, amtool):
    """Return a function that finds the installed programs, and no Grafana."""

    def find(name):
        found = {
            "prometheus": prometheus,
            "prometheus-alertmanager": alertmanager,
            "amtool": amtool,
        }
        if name not in found:
            raise StackError(f"{name} is not installed")
        return found[name]

    return find


@pytest.fixture(scope="session")
def quick_files(tmp_path_factory):
    """Return a function that finds the shipped files, or in short tests a copy of the files.

    The copy has intervals and timeouts of Prometheus and a group wait of Alertmanager of one
    second.
    """
    if os.environ.get("TRAINVITALS_TEST_LONG"):
        return find_shipped
    place = tmp_path_factory.mktemp("shipped")
    for name in ("prometheus", "alertmanager", "grafana"):
        shutil.copytree(find_shipped(name), place / name)
    for path, pattern in (
        (place / "prometheus/prometheus.yml", r"(_interval|_timeout): \d+s"),
        (place / "alertmanager/alertmanager.yml", r"(group_wait): \d+s"),
    ):
        path.write_text(re.sub(pattern, r"\1: 1s", path.read_text()))
    return place.joinpath


@pytest.fixture(scope="session")
def quick_up(programs, quick_files):
    """Return a function that starts a stack with the installed programs."""

    def bring(settings, **changed):
        bring_up(settings, **{"find": programs, "shipped": quick_files, **changed})

    return bring


@dataclass(frozen=True)
class Stack:
    """A running stack.

    Attributes:
        settings: The settings of the stack.
        find: The function that found the programs of the stack.
        told: The lines that `up` reported.
        run_dir: The run directory of the stack's exporter.
        receiver: The receiver of the stack's alerts.
    """

    settings: Settings
    find: Callable[[str], Path]
    told: list[str]
    run_dir: Path
    receiver: WebhookReceiver


@pytest.fixture(scope="module")  # a stack with one evaluation per second slows all later tests
def stack(new_settings, programs, quick_up, tmp_path_factory):
    """Yield a running stack with the real exporter, a stand-in Grafana and a receiver of alerts."""
    place, told = tmp_path_factory.mktemp("whole"), []
    grafana = place / "grafana-server"
    grafana.write_text(f"#!{sys.executable}\n{STAND_IN_GRAFANA.read_text()}")
    grafana.chmod(0o755)

    def find(name):
        return grafana if name == "grafana" else programs(name)

    with WebhookReceiver() as receiver:
        settings = replace(
            new_settings(place / "state", WEBHOOK_URL=receiver.url("/alerts")),
            exporter_command=(*SERVE, f"--run-dir={place / 'runs'}"),
        )
        quick_up(settings, find=find, report=told.append)
        yield Stack(settings, find, told, place / "runs", receiver)
        take_down(settings, report=told.append)


@pytest.fixture
def settings(new_settings, tmp_path):
    """Yield settings whose stack is stopped after the test."""
    settings = new_settings(tmp_path / "state")
    yield settings
    take_down(settings, report=print)
