"""Drivers and GPUs that come and go under a running exporter are taken up without a restart."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.accelerators.scene import (
    ABSENT_SERIES,
    ISOLATED,
    UUID_OF_3,
    Scene,
    beside,
    is_whole,
    names_of,
    reason,
    scrape,
    scrape_each,
    scrape_each_until,
    scrape_until,
    states,
    success,
    up,
)
from tests.exporter_process import ExporterProcess, Page

ENERGY = "accelerator_energy_joules_total"
ECC = "accelerator_ecc_corrected_errors_total"


def has_nine(page: Page) -> bool:
    """Tell whether a ninth GPU answers."""
    return len(up(page)) == 9


# -- the driver ------------------------------------------------------------------------------------


@beside
def test_a_reloaded_driver_is_taken_up_and_counters_go_on(scene: Scene):
    """Unloaded, all GPUs are without a driver; loaded anew, sums continue though it restarts."""
    gpu = scene.machine.gpu(0)
    gpu.energy_millijoules = 5_000_000
    gpu.corrected_volatile_errors = 7
    exporters = scene.start_both()
    before = scrape_each(exporters)
    scene.machine.unload_driver()
    for page in (*scrape_each(exporters), *scrape_each(exporters)):
        assert set(states(page).values()) == {"no_driver"}
        assert names_of(page, "0") == ABSENT_SERIES
        assert success(page) == 0
        assert reason(page).startswith("nvidia: ")
    scene.machine.load_driver()
    assert gpu.energy_millijoules < 5_000_000
    after = scrape_each_until(exporters, is_whole)
    for page, earlier in zip(after, before, strict=True):
        assert earlier.value(ENERGY, device="0") >= 5000
        assert page.value(ENERGY, device="0") >= earlier.value(ENERGY, device="0")
        assert success(page) == 1
    gpu.corrected_volatile_errors = 2
    assert [page.value(ECC, device="0") for page in scrape_each(exporters)] == [9, 9]


def test_an_upgraded_driver_is_taken_up_by_a_fresh_process(scene):
    """The old library is refused for good; the new one is found on disk."""
    exporters = scene.start_both()
    scrape_each(exporters)
    scene.machine.mismatch("580.65.06")
    for page in scrape_each_until(exporters, is_whole):
        drivers = {sample.labels["driver"] for sample in page.find("accelerator_info")}
        assert drivers == {"580.65.06"}
        assert len(page.find("accelerator_up")) == 8


@beside
def test_an_upgraded_driver_without_its_library_is_said_and_waited_for(scene: Scene):
    """Nothing is read until both are of one version."""
    exporter = scene.start()
    scrape(exporter)
    scene.machine.mismatch("580.65.06", library_on_disk=False)
    for _ in range(2):
        page = scrape(exporter)
        assert set(states(page).values()) == {"no_driver"}
        assert "versions differ" in reason(page)
    scene.machine.load_driver()
    scrape_until(exporter, is_whole)


# -- GPUs ------------------------------------------------------------------------------------------


def test_an_added_gpu_is_found_by_the_trace_it_leaves(scene):
    """The driver's list of devices in /sys makes the very next scrapes show the ninth GPU."""
    argument, traces = scene.make_traces()
    exporter = scene.start(argument)
    assert is_whole(scrape(exporter))
    scene.machine.add_gpu()
    assert is_whole(scrape(exporter))
    (traces / "0000:e8:00.0").touch()
    page = scrape_until(exporter, has_nine, seconds=3)
    assert page.value("accelerator_power_watts", device="8") == 70


def test_an_added_gpu_that_the_driver_counts_is_found(scene):
    """A count that changes is enough."""
    scene.machine.see_added_at_once()
    exporters = scene.start_both()
    assert [is_whole(page) for page in scrape_each(exporters)] == [True, True]
    scene.machine.add_gpu()
    scrape_each_until(exporters, has_nine, seconds=3)


@beside
def test_a_removed_gpu_stays_as_lost_and_readers_are_not_started_again_and_again(scene: Scene):
    """The seven others keep their UUIDs; nobody looks for the eighth in every scrape."""
    scene.machine.see_added_at_once()
    exporter = scene.start(ISOLATED)
    before = scrape(exporter)
    scene.machine.remove_gpu(3)
    scrape_until(exporter, lambda page: len(up(page)) == 7)
    pids = set()
    for _ in range(14):
        page = scrape(exporter)
        pids |= {child.pid for child in exporter.children()}
    by_uuid = page.values("accelerator_up", "uuid")
    assert set(by_uuid) == set(before.values("accelerator_up", "uuid"))
    assert [uuid for uuid in by_uuid if not by_uuid[uuid]] == [UUID_OF_3]
    assert len(pids) <= 3


# -- told to let go --------------------------------------------------------------------------------


def maps_library(exporter: ExporterProcess) -> bool:
    """Tell whether the exporter or a child of it has NVML mapped."""
    pids = [exporter.pid, *(child.pid for child in exporter.children())]
    return any("libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)


def test_a_signal_lets_go_of_the_driver_and_another_takes_it_up(scene):
    """No process has the library then, though nobody scrapes; the GPUs are without a driver."""
    exporter = scene.start(ISOLATED)
    scrape(exporter)
    assert maps_library(exporter)
    exporter.signal(signal.SIGUSR1)
    time.sleep(0.3)
    assert exporter.children() == []
    assert not maps_library(exporter)
    for _ in range(2):
        page = scrape(exporter)
        assert set(states(page).values()) == {"no_driver"}
        assert reason(page) == "nvidia: let go of for 60 s as told by SIGUSR1"
    assert not maps_library(exporter)
    exporter.signal(signal.SIGUSR1)
    page = scrape_until(exporter, is_whole, seconds=5)
    assert success(page) == 1


def test_the_readers_thread_lets_go_of_the_driver(scene):
    """It shuts NVML down; taken up again, the driver is read by a process of its own."""
    exporter = scene.start()
    scrape(exporter)
    scene.wait_for_calls("nvmlEventSetWait")
    exporter.signal(signal.SIGUSR1)
    time.sleep(0.1)
    scene.machine.deliver_xid(0, 45)  # it would wait up to 15 s for one
    scene.wait_for_calls("nvmlShutdown")
    assert set(states(scrape(exporter)).values()) == {"no_driver"}
    exporter.signal(signal.SIGUSR1)
    scrape_until(exporter, is_whole, seconds=5)
    assert len(exporter.children()) == 1


def test_a_signal_during_a_hung_reading_neither_blocks_nor_is_lost(scene):
    """The server answers at once all the while, and the driver is let go of."""
    scene.machine.hang("nvmlInit")
    exporters = scene.start_both()
    with ThreadPoolExecutor(2) as pool:
        readings = [pool.submit(each.scrape, "accelerator", timeout=2.0) for each in exporters]
        time.sleep(0.3)
        for exporter in exporters:
            exporter.signal(signal.SIGUSR1)
            assert exporter.get("/-/healthy", timeout=1.0).seconds < 0.3
        assert [reading.result().status for reading in readings] == [200, 200]
    scene.machine.unhang("nvmlInit")
    time.sleep(0.3)
    for exporter, page in zip(exporters, scrape_each(exporters), strict=True):
        assert page.find("accelerator_up") == []
        exporter.signal(signal.SIGUSR1)
    scrape_each_until(exporters, is_whole, seconds=10)
