"""The status of the stack as it is shown."""

import json
from pathlib import Path

import pytest

from trainvitals.stack.status import (
    ProgramStatus,
    StackStatus,
    TargetStatus,
    format_json,
    format_table,
    list_targets,
)

EXPORTER = ProgramStatus("exporter", "running", 71, "http://127.0.0.1:9200", answers=True)
SILENT = ProgramStatus("prometheus", "starting", 72, "http://127.0.0.1:9090", answers=False)
PROMETHEUS = ProgramStatus("prometheus", "running", 72, "http://127.0.0.1:9090", answers=True)
STOPPED = ProgramStatus("prometheus", "stopped", None, "http://127.0.0.1:9090", answers=False)
UP = TargetStatus("trainvitals", "http://127.0.0.1:9200/metrics", "up", None)
DOWN = TargetStatus("trainvitals", "http://127.0.0.1:9200/metrics", "down", "connection refused")


def stack(*programs, targets=(), way="native"):
    """Put a status together."""
    return StackStatus(way, Path("/state"), programs, targets)


@pytest.mark.parametrize(
    ("status", "fine"),
    [
        (stack(EXPORTER, PROMETHEUS, targets=(UP,)), True),
        (stack(EXPORTER, PROMETHEUS, targets=(UP, DOWN)), False),
        (stack(EXPORTER, PROMETHEUS), False),
        (stack(EXPORTER, SILENT, targets=(UP,)), False),
        (stack(EXPORTER, STOPPED), False),
        (stack(EXPORTER, way="exporter alone"), True),
    ],
)
def test_fine(status, fine):
    """A stack is fine when all of it runs and answers and every target is up."""
    assert status.fine is fine


def test_table():
    """A person sees each program and each target, and why a target is down."""
    assert format_table(stack(EXPORTER, SILENT, targets=(DOWN,))) == (
        "PROGRAM     STATE                      PID  ADDRESS\n"
        "exporter    running                    71   http://127.0.0.1:9200\n"
        "prometheus  starting, does not answer  72   http://127.0.0.1:9090\n"
        "\n"
        "TARGET       HEALTH  URL\n"
        "trainvitals  down    http://127.0.0.1:9200/metrics\n"
        "http://127.0.0.1:9200/metrics: connection refused"
    )


def test_table_of_a_stopped_stack():
    """What does not run has no pid."""
    assert format_table(stack(STOPPED)) == (
        "PROGRAM     STATE    PID  ADDRESS\nprometheus  stopped  -    http://127.0.0.1:9090"
    )


def test_json():
    """A program reads the same fields, and whether all is fine."""
    assert json.loads(format_json(stack(STOPPED))) == {
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
    }


def test_no_prometheus_has_no_targets(free_ports):
    """Where nothing listens, there are no targets."""
    assert list_targets(free_ports()[0]) == ()
