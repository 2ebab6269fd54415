"""The history of a device is kept when its driver is reloaded or its reader is replaced."""

from __future__ import annotations

import dataclasses

import pytest

from trainvitals.sources.accelerators.devices import DeviceHistory
from trainvitals.sources.accelerators.reading import Identity, Measurements, ProcessMemory
from trainvitals.sources.accelerators.row import EMPTY_ROW, ROW_FIELDS, SLOT

GPU = Identity("gpu", 0, "uuid-0", "model", "bus", "1.0")


@pytest.fixture
def history() -> DeviceHistory:
    """The history of a device that has not been read yet."""
    return DeviceHistory(GPU)


def row(**values: object) -> list[object]:
    """Return an otherwise empty row with the given values."""
    numbers = list(EMPTY_ROW)
    for name, value in values.items():
        numbers[SLOT[name]] = value
    return numbers


def enter(history: DeviceHistory, **values: object) -> Measurements:
    """Record a row with the given values, and return the resulting measurements."""
    history.enter(row(**values), None, [], 1000.0)
    return history.read().measurements


def test_a_row_is_in_the_order_of_the_fields():
    """The columns of a row and their defaults match the fields of `Measurements`."""
    fields = dataclasses.fields(Measurements)
    assert tuple(field.name for field in fields) == ROW_FIELDS
    assert tuple(field.default for field in fields) == EMPTY_ROW


@pytest.mark.parametrize(
    ("state", "total"), [("no_driver", 150), ("lost", 150), ("resetting", 150), ("hung", 100)]
)
def test_counters_may_start_anew_while_a_device_is_away(history, state, total):
    """A lower counter counts as a restart at once, or only when repeated if the device was hung."""
    enter(history, energy_joules_total=100)
    history.miss(state)
    assert enter(history, energy_joules_total=50).energy_joules_total == total
    assert enter(history, energy_joules_total=60).energy_joules_total == 160


def test_gauges_are_as_they_are(history):
    """A gauge is exported as it was read, even if its value fell."""
    enter(history, power_watts=300.0, recovery_action=1)
    after = enter(history, power_watts=100.0, recovery_action=0)
    assert (after.power_watts, after.recovery_action) == (100.0, 0)


def test_busy_time_adds_up_and_says_from_where_to_go_on(history):
    """Busy time accumulates from the newest counted sample, and is None without a sample buffer."""
    assert enter(history).busy_seconds_total is None
    history.enter(row(), (500, 0.0, 0.0), [], 1.0)
    history.enter(row(), (900, 1.5, 0.25), [], 2.0)
    history.enter(row(), (990, 1.0, 0.5), [], 3.0)
    numbers = history.read().measurements
    assert numbers.busy_seconds_total == 2.5
    assert numbers.busy_unobserved_seconds_total == 0.75
    assert history.since == 990


def test_a_device_that_is_missed_says_nothing_but_its_state(history):
    """A device that was not read keeps its state and the time of the last successful reading.

    If the driver is gone, the device's sample buffer is read from the beginning.
    """
    history.enter(row(power_watts=1.0), (500, 1.0, 0.0), [(1, 10)], 1000.0)
    history.miss("hung")
    reading = history.read()
    assert (reading.state, reading.measurements, reading.processes) == ("hung", None, ())
    assert reading.last_seen_timestamp_seconds == 1000.0
    assert history.since == 500
    history.miss("no_driver")
    assert history.since is None
    history.enter(row(), (20, 0.0, 0.0), [], 1001.0)
    assert history.read().measurements.busy_seconds_total == 1.0


def test_the_most_links_ever_up_are_expected(history):
    """The expected number of links is the highest number of links that were ever active."""
    assert enter(history, links_active=12).links_expected == 12
    assert enter(history, links_active=18).links_expected == 18
    assert enter(history, links_active=17).links_expected == 18
    assert enter(history, links_active=None).links_expected is None


def test_processes_are_bounded_and_those_left_out_counted(history):
    """At most eight processes are listed and the omitted processes are counted.

    A process whose memory use is unknown is listed as well.
    """
    holders = [(pid, 100 - pid, 0.5) for pid in range(11)] + [(99, None, None)]
    history.enter(row(), None, holders, 1.0)
    assert [holder.pid for holder in history.read().processes] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert history.omitted_processes == 4
    history.enter(row(), None, holders[-1:], 2.0)
    assert history.read().processes == (ProcessMemory(99, None, None),)
    history.miss("lost")
    assert history.omitted_processes == 0
