"""Tests for the presentation of the stack's status."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from trainvitals.sources.prometheus import Target
from trainvitals.stack.programs import find_free_ports
from trainvitals.stack.prometheus import (
    AlertStatus,
    PrometheusStatus,
    RulesStatus,
    UnhealthyRule,
    read_status,
)
from trainvitals.stack.status import ProgramStatus, StackStatus, format_json, format_table

EXPORTER = ProgramStatus("exporter", "running", 71, "http://127.0.0.1:9200", answers=True)
SILENT = ProgramStatus("prometheus", "starting", 72, "http://127.0.0.1:9090", answers=False)
PROMETHEUS = ProgramStatus("prometheus", "running", 72, "http://127.0.0.1:9090", answers=True)
STOPPED = ProgramStatus("prometheus", "stopped", None, "http://127.0.0.1:9090", answers=False)
ALERTMANAGER = ProgramStatus("alertmanager", "running", 73, "http://127.0.0.1:9093", answers=True)
UP = Target("trainvitals", "http://127.0.0.1:9200/metrics", "up", None)
DOWN = Target("trainvitals", "http://127.0.0.1:9200/metrics", "down", "connection refused")
HEALTHY = RulesStatus(7, 148, ())
BROKEN = RulesStatus(7, 148, (UnhealthyRule("host", "HostOOMKill", "many-to-many matching"),))
WAITING = RulesStatus(7, 148, (UnhealthyRule("host", "HostOOMKill", None),))
CONNECTED = ("http://127.0.0.1:9093/api/v2/alerts",)
HOT = AlertStatus(
    "GPUHighTemperature", "firing", "critical", "ada-1", "2026-11-21T18:00:07.123456Z"
)
SLOW = AlertStatus("SlowBatchProcessing", "pending", "warning", "ada-1", "2026-11-20T17:00:07.1Z")
ALIVE = AlertStatus("Watchdog", "firing", "none", "", "2026-11-01T18:00:07.1Z")
NOW = datetime(2026, 11, 21, 18, 42, 7, tzinfo=timezone.utc)


def stack(*programs, way="native", **told):
    """Return a status of the stack."""
    return StackStatus(way, Path("/state"), programs, **told)


WHOLE = {"targets": (UP,), "rules": HEALTHY, "alertmanagers": CONNECTED}


@pytest.mark.parametrize(
    ("status", "fine"),
    [
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **WHOLE), True),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **WHOLE, alerts=(HOT,)), True),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **{**WHOLE, "targets": (UP, DOWN)}), False),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **{**WHOLE, "targets": ()}), False),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **{**WHOLE, "rules": BROKEN}), False),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **{**WHOLE, "rules": WAITING}), False),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **{**WHOLE, "rules": None}), False),
        (stack(EXPORTER, PROMETHEUS, ALERTMANAGER, **{**WHOLE, "alertmanagers": ()}), False),
        (stack(EXPORTER, PROMETHEUS, **{**WHOLE, "alertmanagers": ()}), True),
        (stack(EXPORTER, SILENT, **WHOLE), False),
        (stack(EXPORTER, STOPPED), False),
        (stack(EXPORTER, way="exporter alone"), True),
    ],
)
def test_fine(status, fine):
    """A stack is fine if all its parts work and are connected, even if alerts fire."""
    assert status.fine is fine


def test_table():
    """The table shows programs, targets, rules, alerts and the destinations of alerts."""
    status = stack(
        EXPORTER,
        PROMETHEUS,
        ALERTMANAGER,
        **WHOLE,
        alerts=(HOT, ALIVE, SLOW),
        notifications=("critical: Slack, PagerDuty", "warning: Slack"),
    )
    assert format_table(status, now=NOW) == (
        "PROGRAM       STATE    PID  ADDRESS\n"
        "exporter      running  71   http://127.0.0.1:9200\n"
        "prometheus    running  72   http://127.0.0.1:9090\n"
        "alertmanager  running  73   http://127.0.0.1:9093\n"
        "\n"
        "TARGET       HEALTH  URL\n"
        "trainvitals  up      http://127.0.0.1:9200/metrics\n"
        "\n"
        "rules          148 in 7 groups, all healthy\n"
        "alerts         1 firing, 1 pending\n"
        "alerts go to   critical: Slack, PagerDuty\n"
        "               warning: Slack\n"
        "\n"
        "ALERT                SEVERITY  INSTANCE  STATE    FOR\n"
        "GPUHighTemperature   critical  ada-1     firing   42m\n"
        "SlowBatchProcessing  warning   ada-1     pending  1d 1h"
    )


def test_table_of_a_stack_in_trouble():
    """The table shows which program, target, rule or connection does not work, and the reason."""
    status = stack(EXPORTER, SILENT, targets=(DOWN,), rules=BROKEN)
    assert format_table(status) == (
        "PROGRAM     STATE                PID  ADDRESS\n"
        "exporter    running              71   http://127.0.0.1:9200\n"
        "prometheus  starting, not ready  72   http://127.0.0.1:9090\n"
        "\n"
        "TARGET       HEALTH  URL\n"
        "trainvitals  down    http://127.0.0.1:9200/metrics\n"
        "http://127.0.0.1:9200/metrics: connection refused\n"
        "\n"
        "rules          148 in 7 groups, 1 not healthy\n"
        "               HostOOMKill: many-to-many matching\n"
        "alertmanager   Prometheus sends alerts to no Alertmanager\n"
        "alerts         0 firing, 0 pending"
    )


def test_table_of_a_stopped_stack():
    """A program that does not run has no PID."""
    assert format_table(stack(STOPPED)) == (
        "PROGRAM     STATE    PID  ADDRESS\n"
        "prometheus  stopped  -    http://127.0.0.1:9090\n\n"
        "nothing is running: start the stack with `trainvitals up`"
    )


def test_rule_that_waits_for_its_first_evaluation():
    """A rule that was not evaluated yet is distinguished from a rule that fails."""
    assert "HostOOMKill: not evaluated yet" in format_table(stack(PROMETHEUS, rules=WAITING))


def test_table_fits_a_terminal():
    """Even long names, ports and host names need at most 80 columns."""
    long = "machine-with-a-long-name.example.org"
    alerts = (
        AlertStatus("AcceleratorRecoveryActionNeededSoon", "firing", "critical", long, "?"),
        AlertStatus("A", "pending", "warning", "", "2026-11-18T18:00:07Z"),
    )
    silent = ProgramStatus(
        "alertmanager", "unsupervised", 4194304, "http://127.0.0.1:65535", answers=False
    )
    nobody = ("nobody: " + "no receiver is set in .env " * 5, "dead man's switch: none")
    shown = format_table(stack(silent, alerts=alerts, notifications=nobody), now=NOW)
    assert "\n               dead man's switch: none\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "machine-with-a-lo…" in shown
    assert shown.splitlines()[-1].split() == ["A", "warning", "-", "pending", "3d"]


def test_files_that_are_not_understood_are_counted():
    """Files that were not understood and flags without files are counted in a line each."""
    shown = format_table(stack(PROMETHEUS, files_not_understood=2, globs_unmatched=1))
    assert "runs           2 files not understood; see `trainvitals top`\n" in shown
    assert "               1 flag without a file; see `trainvitals top`\n" in f"{shown}\n"
    assert "runs  " not in format_table(stack(PROMETHEUS))


def test_many_alerts_are_counted():
    """The 20 most urgent alerts are shown, and the others are counted."""
    shown = format_table(stack(PROMETHEUS, alerts=(HOT,) * 23), now=NOW)
    assert shown.count("GPUHighTemperature") == 20
    assert shown.endswith("\nand 3 more")


def test_json():
    """The JSON output has the fields of the status, and whether the stack is fine."""
    status = stack(STOPPED, rules=BROKEN, alerts=(HOT,), notifications=("nobody",))
    assert json.loads(format_json(status)) == {
        "fine": False,
        "way": "native",
        "state_dir": "/state",
        "programs": [
            {
                "name": "prometheus",
                "state": "stopped",
                "pid": None,
                "address": "http://127.0.0.1:9090",
                "answers": False,
            }
        ],
        "targets": [],
        "rules": {
            "groups": 7,
            "rules": 148,
            "unhealthy": [
                {"group": "host", "name": "HostOOMKill", "error": "many-to-many matching"}
            ],
        },
        "alerts": [
            {
                "name": "GPUHighTemperature",
                "state": "firing",
                "severity": "critical",
                "instance": "ada-1",
                "since": "2026-11-21T18:00:07.123456Z",
            }
        ],
        "alertmanagers": [],
        "notifications": ["nobody"],
        "files_not_understood": 0,
        "globs_unmatched": 0,
    }


def test_no_prometheus_says_nothing():
    """If nothing listens on the port, the status of Prometheus is empty."""
    assert read_status(find_free_ports(1)[0]) == PrometheusStatus((), None, (), ())
