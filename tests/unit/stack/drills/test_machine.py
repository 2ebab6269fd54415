"""Tests for the simulated machine and its HTTP server."""

import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.rulebook import read_rulebook
from trainvitals.stack.drills.fault import constant, duration, instant, rate, recent, slope
from trainvitals.stack.drills.faults import find_fault
from trainvitals.stack.drills.machine import SimulatedCollector, SimulatedMachine
from trainvitals.stack.drills.speed import read_duration
from trainvitals.stack.programs import find_free_ports


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def read(collector):
    """Return the values by the names of their series."""
    return {series.name: value for series, value in collector.read(0.0)}


def test_what_a_series_is_worth_as_time_passes():
    """At a speed of 60, simulated times are divided by 60 and slopes are multiplied by 60."""
    clock = Clock()
    collector = SimulatedCollector(speed=60, now=clock)
    collector.enter(
        [
            constant("a", 5),
            rate("b_total", 2),
            instant("c", 120),
            recent("d", 60),
            duration("e", 300),
            slope("f", 7000, -2),
        ]
    )
    clock.now = 1010.0
    assert read(collector) == {"a": 5, "b_total": 20, "c": 998, "d": 1009, "e": 5, "f": 5800}


@pytest.mark.parametrize("speed", [1, 15, 60])
def test_a_disk_that_fills_is_not_full_before_its_alert_fires(speed):
    """The simulated disk is not full before its alert fires, because a full disk ends the alert."""
    rule = next(each for each in read_rulebook().alerts if each.name == "HostDiskWillFill")
    clock = Clock()
    collector = SimulatedCollector(speed=speed, now=clock)
    collector.enter(find_fault(rule.name).faulty)
    clock.now += 2 * read_duration(rule.for_) / speed
    assert read(collector)["host_filesystem_avail_bytes"] > 50e9


def test_counter_goes_on_in_the_next_phase_and_never_back():
    """A counter continues from its total in the next phase, even after a phase without it."""
    clock = Clock()
    collector = SimulatedCollector(speed=1, now=clock)
    collector.enter([rate("b_total", 10)])
    clock.now = 1010.0
    collector.enter([])
    clock.now = 1020.0
    collector.enter([rate("b_total", 1)])
    clock.now = 1025.0
    assert read(collector) == {"b_total": 105}


@pytest.fixture
def collector():
    """Return a collector of simulated series."""
    return SimulatedCollector(speed=60)


@pytest.fixture
def machine(collector):
    """Return a simulated machine on a free port."""
    machine = SimulatedMachine([collector], f"127.0.0.1:{find_free_ports(1)[0]}")
    yield machine
    machine.close()


def test_page_is_the_exporters_own(machine, collector):
    """The page has the simulated series with their types, and the exporter's own metrics."""
    collector.enter([constant("x", 1, device="0"), constant("x", 2, device="1")])
    machine.listen()
    with urllib.request.urlopen(f"http://{machine.address}/metrics") as answer:
        families = {
            family.name: family for family in text_string_to_metric_families(answer.read().decode())
        }
    assert [(s.labels, s.value) for s in families["x"].samples] == [
        ({"device": "0"}, 1),
        ({"device": "1"}, 2),
    ]
    assert families["x"].type == "gauge"
    assert "trainvitals_collector_success" in families


def test_silent_machine_refuses_and_answers_again(machine):
    """A silent machine does not listen on its port, and later listens again."""
    machine.listen()
    machine.fall_silent()
    with socket.socket() as probe:
        assert probe.connect_ex((machine.address.host, machine.address.port)) != 0
    machine.listen()
    with urllib.request.urlopen(f"http://{machine.address}/-/healthy") as answer:
        assert answer.status == 200
