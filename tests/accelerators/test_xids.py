"""Every Xid that a GPU reports is counted, and counted once."""

from __future__ import annotations

import time

import pytest

from tests.accelerators.scene import (
    EVERYONE,
    XIDS,
    Scene,
    beside,
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
    """Also those delivered before the first scrape."""
    exporters = scene.start_both()
    scene.wait_for_calls("nvmlEventSetWait", 2)
    before = time.time()
    scene.machine.deliver_xid(5, 79)
    scene.machine.deliver_xid(1, 31)
    time.sleep(DELIVERY_SECONDS)
    for page in (*scrape_each(exporters), *scrape_each(exporters)):
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
    time.sleep(DELIVERY_SECONDS)
    assert [page.value(XIDS, device="1", xid="31") for page in scrape_each(exporters)] == [2, 2]


@beside
def test_a_gpu_that_reports_79_and_is_lost_keeps_its_count_and_others_are_heard(scene: Scene):
    """The loss spoils the wait for errors of all GPUs for no more than a moment."""
    exporters = scene.start_both()
    assert [up(page) for page in scrape_each(exporters)] == [EVERYONE, EVERYONE]
    scene.wait_for_calls("nvmlEventSetWait", 2)
    scene.machine.deliver_xid(5, 79)
    scene.machine.lose(5)
    time.sleep(DELIVERY_SECONDS)
    scene.machine.deliver_xid(1, 13)
    time.sleep(DELIVERY_SECONDS)
    for page in scrape_each(exporters):
        assert states(page)["5"] == "lost"
        assert page.value(XIDS, device="5", xid="79") == 1
        assert page.value(XIDS, device="1", xid="13") == 1
    registered = scene.machine.calls("nvmlDeviceRegisterEvents", 5)
    scene.machine.restore(5)
    assert [up(page) for page in scrape_each(exporters)] == [EVERYONE, EVERYONE]
    # It is heard again, too: within seconds each has registered it anew.
    scene.wait_for_calls("nvmlDeviceRegisterEvents", registered + 2, device=5)
    time.sleep(DELIVERY_SECONDS)
    scene.machine.deliver_xid(5, 94)
    for page in scrape_each_until(exporters, lambda page: len(page.find(XIDS, device="5")) > 1):
        assert page.values(XIDS, "xid", device="5") == {"79": 1, "94": 1}


@beside
def test_xids_are_counted_once_while_a_second_reader_looks_on(scene: Scene):
    """A reader that is compared, and sent away or kept, has heard the same errors."""
    argument, traces = scene.make_traces()
    exporter = scene.start(argument)
    scrape(exporter)
    scene.wait_for_calls("nvmlEventSetWait")
    (traces / "0000:e8:00.0").touch()  # nothing came with it
    scrape(exporter)
    time.sleep(5.0)  # it is looked for again
    scrape(exporter)
    time.sleep(DELIVERY_SECONDS)
    scene.machine.deliver_xid(0, 43)
    time.sleep(DELIVERY_SECONDS)
    for _ in range(2):
        page = scrape(exporter)
    assert page.values(XIDS, "xid", device="0") == {"43": 1}
    scene.machine.add_gpu()
    while len(exporter.children()) == 0:
        scrape(exporter)
    scene.machine.deliver_xid(0, 45)
    page = scrape_until(exporter, lambda page: len(up(page)) == 9)
    time.sleep(DELIVERY_SECONDS)
    assert scrape(exporter).values(XIDS, "xid", device="0") == {"43": 1, "45": 1}


def test_more_codes_than_the_bound_are_counted_together(scene):
    """Sixteen codes have series of their own, the rest are `other`."""
    exporter = scene.start()
    scene.wait_for_calls("nvmlEventSetWait")
    for code in range(200, 220):
        scene.machine.deliver_xid(0, code)
    time.sleep(DELIVERY_SECONDS)
    page = scrape(exporter)
    counts = page.values(XIDS, "xid", device="0")
    assert counts == {**{str(code): 1 for code in range(200, 216)}, "other": 4}
    (other,) = page.find(LAST, xid="other")
    assert other.labels["class"] == "warning"
    assert other.value == pytest.approx(time.time(), abs=5)
