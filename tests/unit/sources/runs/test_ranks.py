"""Tests for runs that the client instruments and that also have event files or a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainvitals.runfile import Identity
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.ranks import leave_out_instrumented
from trainvitals.sources.runs.scalars import FoundRun
from trainvitals.sources.runs.starts import Start

LIVING = Start(
    key=1,
    file=None,  # type: ignore[arg-type]
    identity=Identity("bert", pid=42, created_time=1000.5, static={"hostname": "node-1.example"}),
    run="bert",
    ending=None,
    gpu_uuids=(),
    alerts_seen=0,
)
DEAD = replace(LIVING, ending=Ending("unknown", None, None, None, 2000.0, "It is gone."))


def find(run: str, path: str, last_time: float = 1500.0) -> FoundRun:
    """Return a run that was found in a file."""
    return FoundRun(
        run=run,
        source="tensorboard",
        path=path,
        started_time=None,
        last_time=last_time,
        step=None,
        epoch=None,
        values={},
        metrics={},
        nonfinite={},
        evaluations=0,
        evaluations_since_improvement=None,
        steps_seen=0,
        is_finished=None,
        omitted=0,
    )


@pytest.mark.parametrize(
    ("name", "start", "is_kept"),
    [
        ("1003.node-1.example.42.0", LIVING, False),
        ("1003.node-1.example.42.0.v2", LIVING, False),
        ("1003.node-1.example.42.0.a.suffix", LIVING, False),
        ("1003.node-1.example.421.0", LIVING, True),
        ("1003.node-1.42.0", LIVING, True),
        ("1003.node-1.example.42", LIVING, True),
        ("0999.node-1.example.42.0", LIVING, False),
        ("0998.node-1.example.42.0", LIVING, True),
        ("9999999999.node-1.example.42.0", LIVING, False),
        ("2002.node-1.example.42.0", DEAD, False),
        ("2003.node-1.example.42.0", DEAD, True),
        ("soon.node-1.example.42.0", LIVING, True),
        ("", LIVING, True),
    ],
)
def test_an_event_file_is_its_process_s(name: str, start: Start, is_kept: bool):  # noqa: FBT001
    """The name of an event file shows its host, PID and time, and so the process that wrote it.

    A process that reused the PID at another time is not the writer.
    """
    run = find("version_0", f"/logs/version_0/events.out.tfevents.{name}")
    assert leave_out_instrumented([run], [start]) == [run] * is_kept


@pytest.mark.parametrize("path", ["train.log", "/", "", "a.b.c", "1003.node-1.example.42.0"])
def test_other_files_say_nothing_of_a_process(path: str):
    """The name of any other file does not show which process wrote the file."""
    run = find("version_0", path)
    assert leave_out_instrumented([run], [LIVING]) == [run]


@pytest.mark.parametrize(
    ("last_time", "start", "is_kept"),
    [(1e9, LIVING, False), (2060.0, DEAD, False), (2061.0, DEAD, True)],
)
def test_a_name_belongs_to_the_client_s_run_until_a_minute_after_its_end(
    last_time: float,
    start: Start,
    is_kept: bool,  # noqa: FBT001
):
    """A log that is written to more than a minute after the end of a run is another run's log."""
    run = find("bert", "/logs/bert.log", last_time)
    assert leave_out_instrumented([run], [start]) == [run] * is_kept


def test_a_later_start_keeps_the_name():
    """A run is left out if one of its several starts is still alive."""
    assert leave_out_instrumented([find("bert", "bert.log", 9000.0)], [DEAD, LIVING]) == []
