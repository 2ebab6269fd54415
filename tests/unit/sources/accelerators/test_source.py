"""The source reads the accelerators of all vendors in parallel."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.waiting import wait_until
from tests.unit.sources.accelerators import scripted
from tests.unit.sources.accelerators.scripted import ScriptedDevice, ScriptedSession
from trainvitals.sources.accelerators.driver import Driver
from trainvitals.sources.accelerators.reader import Opener
from trainvitals.sources.accelerators.reading import AcceleratorsReading
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.accelerators.vendor import Vendor
from trainvitals.sources.files import Roots

Make = Callable[..., AcceleratorSource]


@pytest.fixture
def make() -> Iterator[Make]:
    """A function that creates a source from named openers; sources are closed after the test."""
    sources = []

    def make(*openers: str, is_installed: bool = True, **options: object) -> AcceleratorSource:
        vendors = [
            Vendor(opener, "gpu", Opener(scripted.__name__, opener), lambda: is_installed, ())
            for opener in openers
        ]
        source = AcceleratorSource(vendors=vendors, **options)
        sources.append(source)
        return source

    yield make
    for source in sources:
        source.close()


def read(source: AcceleratorSource, seconds: float = 5.0) -> AcceleratorsReading:
    """Read the accelerators of all vendors."""
    return source.read(time.monotonic() + seconds)


def test_two_vendors_are_read_beside_each_other(make, monkeypatch):
    """A reading contains the devices of all vendors and the expected number of devices."""
    source = make("open_two", "open_absent", expected={"gpu": 3})
    read(source)
    reading = read(source)
    assert [device.identity.uuid for device in reading.devices] == ["uuid-0", "uuid-1"]
    assert reading.expected == (("gpu", 3),)
    assert reading.complaint is None
    assert source.kinds == ("gpu", "gpu")
    assert source.pids == ()


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # load only adds time
def test_a_vendor_that_hangs_does_not_keep_the_other(make, monkeypatch):
    """A hanging driver is reported as a complaint and does not delay the other devices."""
    source = make("open_two", "open_never")
    begin = time.monotonic()
    reading = read(source, 1.0)
    assert time.monotonic() - begin < 15
    assert [device.state for device in reading.devices] == ["ok", "ok"]
    assert reading.complaint == "opening the open_never driver takes long"


def test_a_bug_with_one_vendor_does_not_keep_the_other(make, monkeypatch):
    """An exception from one vendor is reported, and the other vendor's devices are read."""
    monkeypatch.setattr(
        scripted, "open_one", lambda: ScriptedSession(ScriptedDevice(7)), raising=False
    )
    source = make("open_two", "open_one")
    whole = Driver.read

    def fail(driver: Driver, deadline: float) -> object:
        if driver.vendor.name == "open_one":
            raise RuntimeError("a bug")
        return whole(driver, deadline)

    monkeypatch.setattr(Driver, "read", fail)
    reading = read(source)
    assert [device.identity.uuid for device in reading.devices] == ["uuid-0", "uuid-1"]
    assert reading.complaint == "open_one: RuntimeError: a bug"


@pytest.mark.parametrize("is_installed", [False, True])
def test_that_there_is_nothing_is_said_once(make, caplog, is_installed):
    """The absence of a library or a driver is logged only once."""
    caplog.set_level(logging.INFO, logger="trainvitals")
    source = make("open_absent", is_installed=is_installed)
    for _ in range(3):
        assert read(source) == AcceleratorsReading(devices=())
    assert [record.getMessage() for record in caplog.records] == [
        "no accelerator driver found; it is looked for again every minute"
    ]


def test_without_vendors_nothing_is_said(make, caplog):
    """A source that was configured without vendors logs no message."""
    caplog.set_level(logging.INFO, logger="trainvitals")
    assert read(make()) == AcceleratorsReading(devices=())
    assert caplog.records == []


def test_all_drivers_are_let_go_of_and_taken_up(make):
    """The first release closes all drivers, and the second release reopens them."""
    source = make("open_two")
    read(source)
    source.release()
    reading = read(source)
    assert [device.state for device in reading.devices] == ["no_driver", "no_driver"]
    source.release()
    wait_until(lambda: {device.state for device in read(source).devices} == {"ok"})
    assert len(source.pids) == 1


LINE = "4,{0},{1},-;NVRM: Xid (PCI:{2}): {3}, pid=7, x\n"


def test_an_error_that_only_the_kernel_log_has_is_counted_once(make, tmp_path, monkeypatch):
    """An Xid that only the kernel log contains is counted once for the GPU at that address.

    Lines from before the creation of the source are ignored.
    """
    gpus = [ScriptedDevice(index) for index in (0, 1)]
    for gpu, bus in zip(gpus, ("1B", "43"), strict=True):
        gpu.identity = (*gpu.identity[:4], f"00000000:{bus}:00.0", *gpu.identity[5:])

    def watch(report: Callable[[str, int], None]) -> None:
        report("uuid-1", 31)

    session = ScriptedSession(*gpus, watch=watch)
    monkeypatch.setattr(scripted, "open_logged", lambda: session, raising=False)
    kmsg = tmp_path / "dev/kmsg"
    kmsg.parent.mkdir()
    kmsg.write_text(LINE.format(1, int(time.monotonic() * 1e6), "0000:1b:00", 48))
    source = make("open_logged", roots=Roots(rootfs=tmp_path))
    read(source)
    now = int(time.monotonic() * 1e6)
    with kmsg.open("a") as log:
        log.write(LINE.format(2, now, "0000:1b:00", 79))
        log.write(LINE.format(3, now, "0000:43:00.0", 31))
        log.write(LINE.format(4, now, "0000:e5:00", 79))
    for _ in range(2):
        reading = read(source)
        assert [[(xid.xid, xid.count) for xid in device.xids] for device in reading.devices] == [
            [(79, 1)],
            [(31, 1)],
        ]
