"""What is remembered of a device outlives its driver and its reader."""

from __future__ import annotations

import dataclasses

import pytest

from trainvitals.sources.accelerators.ledger import Account
from trainvitals.sources.accelerators.reader import XidEvent
from trainvitals.sources.accelerators.reading import Identity, Measurements, XidCount
from trainvitals.sources.accelerators.row import EMPTY_ROW, ROW_FIELDS, SLOT

GPU = Identity("gpu", 0, "uuid-0", "model", "bus", "1.0")


@pytest.fixture
def account() -> Account:
    """A device that was not read yet."""
    return Account(GPU)


def row(**values: object) -> list[object]:
    """Give a row with these values."""
    numbers = list(EMPTY_ROW)
    for name, value in values.items():
        numbers[SLOT[name]] = value
    return numbers


def enter(account: Account, **values: object) -> Measurements:
    """Enter such a row, and give what the account says then."""
    account.enter(row(**values), None, [], 1000.0)
    return account.read().measurements


def test_a_row_is_in_the_order_of_the_fields():
    """A row becomes measurements by position, with the same value for what is not reported."""
    fields = dataclasses.fields(Measurements)
    assert tuple(field.name for field in fields) == ROW_FIELDS
    assert tuple(field.default for field in fields) == EMPTY_ROW


def test_a_counter_that_starts_anew_goes_on(account):
    """Each time it falls, what it had reached is added."""
    raw = [100.0, 150.0, 20.0, 30.0, 0.0, 5.0]
    sums = [enter(account, energy_joules_total=value).energy_joules_total for value in raw]
    assert sums == [100.0, 150.0, 170.0, 180.0, 180.0, 185.0]


def test_each_counter_of_a_tuple_goes_on_by_itself(account):
    """One that starts anew does not raise the others."""
    enter(account, link_errors_total=(10, 20, None, 40), energy_joules_total=7.0)
    after = enter(account, link_errors_total=(3, 21, None, 40), energy_joules_total=8.0)
    assert after.link_errors_total == (13, 21, None, 40)
    assert after.energy_joules_total == 8.0


def test_a_counter_that_was_not_reported_for_a_while_goes_on(account):
    """It is absent meanwhile, and remembered."""
    enter(account, pcie_replays_total=9)
    assert enter(account, pcie_replays_total=None).pcie_replays_total is None
    assert enter(account, pcie_replays_total=2).pcie_replays_total == 11
    assert enter(account, pcie_replays_total=3).pcie_replays_total == 12


def test_gauges_are_as_they_are(account):
    """They may fall."""
    enter(account, power_watts=300.0, recovery_action=1)
    after = enter(account, power_watts=100.0, recovery_action=0)
    assert (after.power_watts, after.recovery_action) == (100.0, 0)


def test_busy_time_adds_up_and_says_from_where_to_go_on(account):
    """A device without a sample buffer has none."""
    assert enter(account).busy_seconds_total is None
    account.enter(row(), (500, 0.0, 0.0), [], 1.0)
    account.enter(row(), (900, 1.5, 0.25), [], 2.0)
    account.enter(row(), (990, 1.0, 0.5), [], 3.0)
    numbers = account.read().measurements
    assert numbers.busy_seconds_total == 2.5
    assert numbers.busy_unobserved_seconds_total == 0.75
    assert account.since == 990


def test_a_device_that_is_missed_says_nothing_but_its_state(account):
    """When it was last seen stays; without a driver, its samples start anew."""
    account.enter(row(power_watts=1.0), (500, 1.0, 0.0), [(1, 10)], 1000.0)
    account.miss("hung")
    reading = account.read()
    assert (reading.state, reading.measurements, reading.processes) == ("hung", None, ())
    assert reading.last_seen_timestamp_seconds == 1000.0
    assert account.since == 500
    account.miss("no_driver")
    assert account.since is None
    account.enter(row(), (20, 0.0, 0.0), [], 1001.0)
    assert account.read().measurements.busy_seconds_total == 1.0


def test_the_most_links_ever_up_are_expected(account):
    """One that falls is missed."""
    assert enter(account, links_active=12).links_expected == 12
    assert enter(account, links_active=18).links_expected == 18
    assert enter(account, links_active=17).links_expected == 18
    assert enter(account, links_active=None).links_expected is None


def test_processes_are_bounded_and_those_left_out_counted(account):
    """Those that do not say what they hold are neither shown nor left out."""
    holders = [(pid, 100 - pid) for pid in range(11)] + [(99, None)]
    account.enter(row(), None, holders, 1.0)
    assert [holder.pid for holder in account.read().processes] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert account.omitted_processes == 3
    account.miss("lost")
    assert account.omitted_processes == 0


def test_errors_are_counted_by_code_up_to_a_bound(account):
    """Of 18 codes the last two are counted together, and a known one still by itself."""
    for number, code in enumerate([*range(1, 19), 1]):
        account.count(XidEvent("uuid-0", code, float(number)))
    counts = {xid.xid: xid for xid in account.read().xids}
    assert len(counts) == 17
    assert counts[1] == XidCount(1, 2, 18.0)
    assert counts[16] == XidCount(16, 1, 15.0)
    assert counts[-1] == XidCount(-1, 2, 17.0)
