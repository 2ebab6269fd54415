"""The counts of Xids, each of which is counted exactly once."""

from __future__ import annotations

import time

import pytest

from tests.integration.accelerators.scene import (
    XIDS,
    Scene,
    beside,
    is_whole,
    scrape,
    scrape_each,
    scrape_each_until,
    scrape_until,
    states,
    up,
)

LAST = "accelerator_xid_last_timestamp_seconds"
DELIVERY_SECONDS = 0.3


def test_xids_are_counted_once_each_with_what_they_ask_for(scene):
    """Each Xid is counted once, with its class and action, even before the first scrape."""
    exporters = scene.start_both()
    scene.wait_until_heard(2)
    before = time.time()
    scene.machine.deliver_xid(5, 79)
    scene.machine.deliver_xid(1, 31)
    pages = scrape_each_until(exporters, lambda page: len(page.find(XIDS)) == 2)
    for page in (*pages, *scrape_each(exporters)):
        counts = page.find(XIDS)
        assert {(each.labels["device"], each.labels["xid"]): each.value for each in counts} == {
            ("5", "79"): 1,
            ("1", "31"): 1,
        }
        (bus,) = page.find(LAST, device="5")
        assert (bus.labels["class"], bus.labels["action"]) == ("critical", "reboot of the machine")
        assert before <= bus.value <= time.time()
        (fault,) = page.find(LAST, device="1")
        assert (fault.labels["class"], fault.labels["action"]) == ("app", "restart of the program")
        assert before <= fault.value <= time.time()
    scene.machine.deliver_xid(1, 31)
    scrape_each_until(exporters, lambda page: page.value(XIDS, device="1", xid="31") == 2)


@beside
def test_a_gpu_that_reports_79_and_is_lost_keeps_its_count_and_others_are_heard(scene: Scene):
    """A GPU that is lost after Xid 79 keeps its count, and Xids of other GPUs are still counted."""
    exporters = scene.start_both()
    scrape_each_until(exporters, is_whole)
    scene.wait_until_heard(2)
    scene.machine.deliver_xid(5, 79)
    scene.machine.lose(5)
    time.sleep(DELIVERY_SECONDS)
    scene.machine.deliver_xid(1, 13)
    for page in scrape_each_until(exporters, lambda page: bool(page.find(XIDS, device="1"))):
        assert states(page)["5"] == "lost"
        assert page.value(XIDS, device="5", xid="79") == 1
        assert page.value(XIDS, device="1", xid="13") == 1
    registered = scene.machine.calls("nvmlDeviceRegisterEvents", 5)
    scene.machine.restore(5)
    scrape_each_until(exporters, is_whole)
    # Within seconds, each exporter registers for the events of the GPU again.
    scene.wait_for_calls("nvmlDeviceRegisterEvents", registered + 2, device=5)
    time.sleep(DELIVERY_SECONDS)
    scene.machine.deliver_xid(5, 94)
    for page in scrape_each_until(exporters, lambda page: len(page.find(XIDS, device="5")) > 1):
        assert page.values(XIDS, "xid", device="5") == {"79": 1, "94": 1}


@beside
def test_an_xid_that_goes_with_its_gpu_is_counted_from_the_kernel_log(scene: Scene):
    """An Xid in the kernel log is counted once, whether or not the driver reports it as well."""
    kmsg = scene.directory / "dev/kmsg"
    kmsg.parent.mkdir()
    kmsg.touch()
    exporters = scene.start_both(f"--path.rootfs={scene.directory}")
    scrape_each_until(exporters, is_whole)
    scene.wait_until_heard(2)
    scene.machine.scenario.nvidia.loss_comes = 2
    scene.machine.gpu(5).device.lost = 1  # only the event wakes the waiting calls
    scene.machine.deliver_xid(5, 79)
    scene.machine.deliver_xid(1, 31)
    with kmsg.open("a", encoding="ascii") as log:
        for sequence, (device, code) in enumerate(((5, 79), (1, 31))):
            bus = scene.machine.gpu(device).bus_id.removeprefix("0000")[:-2].lower()
            written = int(time.monotonic() * 1e6)
            log.write(f"4,{sequence},{written},-;NVRM: Xid (PCI:{bus}): {code}, pid=7, x\n")
    for _ in range(2):
        for page in scrape_each_until(exporters, lambda page: len(page.find(XIDS)) == 2):
            assert states(page)["5"] == "lost"
            assert page.values(XIDS, "xid", device="5") == {"79": 1}
            assert page.values(XIDS, "xid", device="1") == {"31": 1}
        time.sleep(DELIVERY_SECONDS)


@beside
def test_xids_are_counted_once_while_a_second_reader_looks_on(scene: Scene):
    """While a second reader runs for a while or takes over, each Xid is counted only once."""
    argument, traces = scene.make_traces()
    exporter = scene.start(argument)
    scrape(exporter)
    scene.wait_until_heard()
    (traces / "0000:e8:00.0").touch()  # no GPU was added
    scrape(exporter)
    time.sleep(5.0)  # the exporter looks for the GPU again
    scrape(exporter)
    time.sleep(DELIVERY_SECONDS)
    scene.machine.deliver_xid(0, 43)
    scrape_until(exporter, lambda page: bool(page.find(XIDS)))
    time.sleep(DELIVERY_SECONDS)
    assert scrape(exporter).values(XIDS, "xid", device="0") == {"43": 1}
    scene.machine.add_gpu()
    while len(exporter.children()) == 0:
        scrape(exporter)
    scene.machine.deliver_xid(0, 45)
    scrape_until(exporter, lambda page: len(up(page)) == 9)
    scrape_until(exporter, lambda page: bool(page.find(XIDS, xid="45")))
    time.sleep(DELIVERY_SECONDS)
    assert scrape(exporter).values(XIDS, "xid", device="0") == {"43": 1, "45": 1}


def test_more_codes_than_the_bound_are_counted_together(scene):
    """Sixteen Xid codes have series of their own, and the others are counted as `other`."""
    exporter = scene.start()
    scene.wait_until_heard()
    for code in range(200, 220):
        scene.machine.deliver_xid(0, code)
    page = scrape_until(exporter, lambda page: page.value(XIDS, xid="other") == 4)
    counts = page.values(XIDS, "xid", device="0")
    assert counts == {**{str(code): 1 for code in range(200, 216)}, "other": 4}
    (other,) = page.find(LAST, xid="other")
    assert other.labels["class"] == "warning"
    assert other.value == pytest.approx(time.time(), abs=60)
