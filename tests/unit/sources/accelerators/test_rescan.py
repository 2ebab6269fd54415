"""The schedule decides when devices are searched for again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from trainvitals.sources.accelerators.rescan import RescanSchedule, Traces
from trainvitals.sources.files import Roots


def looks(rescan: RescanSchedule, moments: range, *, is_missing: bool) -> list[int]:
    """Simulate a scrape every second and return the times at which a rescan started."""
    begun = []
    for now in moments:
        rescan.note_missing(now, is_missing=is_missing)
        if rescan.is_due(now):
            rescan.note_rescan(now)
            begun.append(now)
    return begun


def test_without_a_reason_nobody_looks():
    """No rescan starts without a change or a missing device."""
    assert looks(RescanSchedule(), range(1000), is_missing=False) == []


def test_a_change_is_looked_at_at_once_and_for_half_a_minute():
    """A change causes a rescan at once, and then every 5 s until half a minute has passed."""
    rescan = RescanSchedule()
    rescan.note_change(100)
    assert rescan.has_change
    assert looks(rescan, range(100, 200), is_missing=False) == [100, 105, 110, 115, 120, 125]
    assert not rescan.has_change


def test_changes_all_the_time_are_looked_at_every_five_seconds():
    """Continuous changes cause a rescan every 5 s, not at every scrape."""
    rescan = RescanSchedule()
    begun = []
    for now in range(100, 120):
        rescan.note_change(now)
        if rescan.is_due(now):
            rescan.note_rescan(now)
            begun.append(now)
    assert begun == [100, 105, 110, 115]


def test_a_missing_device_is_looked_for_more_and_more_rarely():
    """A missing device causes rescans every 5 s, later every 15 s, and finally every 60 s."""
    begun = looks(RescanSchedule(), range(4000), is_missing=True)
    assert begun[:4] == [5, 10, 15, 20]
    gaps = {now: after - now for now, after in pairwise(begun)}
    assert {gap for now, gap in gaps.items() if 290 < now < 300} <= {15, 16}
    assert {gap for now, gap in gaps.items() if now > 1300} == {60}


def test_a_device_that_returned_is_no_longer_looked_for():
    """Rescans stop when a device returns, and start again with the shortest interval."""
    rescan = RescanSchedule()
    looks(rescan, range(2000), is_missing=True)
    assert looks(rescan, range(2000, 3000), is_missing=False) == []
    assert looks(rescan, range(3000, 3012), is_missing=True) == [3005, 3010]


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Roots whose directories do not exist yet."""
    return Roots(procfs=tmp_path / "proc", sysfs=tmp_path / "sys")


def test_what_comes_and_goes_is_noticed_once(roots):
    """Each loading or unloading of a driver and binding of a device is noticed exactly once."""
    traces = Traces(("proc/driver/nvidia/version", "sys/bus/pci/drivers/nvidia"), roots)
    assert not traces.have_changed()
    version = roots.procfs / "driver/nvidia/version"
    version.parent.mkdir(parents=True)
    assert not traces.have_changed()
    version.write_text("NVRM version: ...\n")
    devices = roots.sysfs / "bus/pci/drivers/nvidia"
    devices.mkdir(parents=True)
    assert traces.have_changed()
    assert not traces.have_changed()
    (devices / "0000:1b:00.0").touch()
    assert traces.have_changed()
    (devices / "0000:1b:00.0").unlink()
    assert traces.have_changed()
    version.unlink()
    assert traces.have_changed()
    assert not traces.have_changed()
