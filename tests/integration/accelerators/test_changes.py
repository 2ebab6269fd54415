"""Changes of drivers and GPUs, which a running exporter detects without a restart."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.integration.accelerators.scene import (
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
from tests.support.exporter_process import ExporterProcess, Page
from tests.support.waiting import wait_until

ENERGY = "accelerator_energy_joules_total"
ECC = "accelerator_ecc_corrected_errors_total"


def has_nine(page: Page) -> bool:
    """Return whether nine GPUs are up."""
    return len(up(page)) == 9


def has_no_driver(page: Page) -> bool:
    """Return whether the state of every GPU is `no_driver`."""
    return set(states(page).values()) == {"no_driver"}


# -- the driver ------------------------------------------------------------------------------------


@beside
def test_a_reloaded_driver_is_taken_up_and_counters_go_on(scene: Scene):
    """All GPUs of an unloaded driver have state `no_driver`; after a reload, counters continue."""
    gpu = scene.machine.gpu(0)
    gpu.energy_millijoules = 5_000_000
    gpu.corrected_volatile_errors = 7
    exporters = scene.start_both()
    before = scrape_each_until(exporters, is_whole)
    scene.machine.unload_driver()
    for page in scrape_each_until(exporters, has_no_driver):
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
    scrape_each_until(exporters, lambda page: page.value(ECC, device="0") == 9)


def test_an_upgraded_driver_is_taken_up_by_a_fresh_process(scene):
    """After an upgrade of the driver, a new reader process loads the new library from disk."""
    exporters = scene.start_both()
    scrape_each(exporters)
    scene.machine.mismatch("580.65.06")
    for page in scrape_each_until(exporters, is_whole):
        drivers = {sample.labels["driver"] for sample in page.find("accelerator_info")}
        assert drivers == {"580.65.06"}
        assert len(page.find("accelerator_up")) == 8


@beside
def test_an_upgraded_driver_without_its_library_is_said_and_waited_for(scene: Scene):
    """All GPUs have state `no_driver` until the driver and its library have the same version."""
    exporter = scene.start()
    scrape(exporter)
    scene.machine.mismatch("580.65.06", library_on_disk=False)
    page = scrape_until(exporter, has_no_driver)
    assert "versions differ" in reason(page)
    scene.machine.load_driver()
    scrape_until(exporter, is_whole)


# -- GPUs ------------------------------------------------------------------------------------------


def test_an_added_gpu_is_found_by_the_trace_it_leaves(scene):
    """A ninth GPU is shown after it has appeared in the driver's list of devices in `/sys`."""
    argument, traces = scene.make_traces()
    exporter = scene.start(argument)
    scrape_until(exporter, is_whole)
    scene.machine.add_gpu()
    scrape_until(exporter, is_whole)
    (traces / "0000:e8:00.0").touch()
    page = scrape_until(exporter, has_nine)
    assert page.value("accelerator_power_watts", device="8") == 70


def test_an_added_gpu_that_the_driver_counts_is_found(scene):
    """A ninth GPU is shown after the driver's device count has changed."""
    scene.machine.see_added_at_once()
    exporters = scene.start_both()
    scrape_each_until(exporters, is_whole)
    scene.machine.add_gpu()
    scrape_each_until(exporters, has_nine)


@beside
def test_a_removed_gpu_stays_as_lost_and_readers_are_not_started_again_and_again(scene: Scene):
    """A removed GPU keeps its UUID, and the search for it starts a reader every 4 s at most."""
    scene.machine.see_added_at_once()
    exporter = scene.start(ISOLATED)
    before = scrape_until(exporter, is_whole)
    scene.machine.remove_gpu(3)
    scrape_until(exporter, lambda page: len(up(page)) == 7)
    begin = time.monotonic()
    pids = set()
    for _ in range(14):
        scrape(exporter)
        pids |= {child.pid for child in exporter.children()}
    passed = time.monotonic() - begin
    page = scrape_until(exporter, lambda page: len(up(page)) == 7)
    by_uuid = page.values("accelerator_up", "uuid")
    assert set(by_uuid) == set(before.values("accelerator_up", "uuid"))
    assert [uuid for uuid in by_uuid if not by_uuid[uuid]] == [UUID_OF_3]
    assert len(pids) <= 2 + passed / 4


# -- the driver is released ------------------------------------------------------------------------


def maps_library(exporter: ExporterProcess) -> bool:
    """Return whether the exporter or a child of it has NVML mapped."""
    pids = [exporter.pid, *(child.pid for child in exporter.children())]
    return any("libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)


def test_a_signal_lets_go_of_the_driver_and_another_takes_it_up(scene):
    """SIGUSR1 makes the exporter release NVML, even without scrapes, until the next SIGUSR1."""
    exporter = scene.start(ISOLATED)
    scrape_until(exporter, is_whole)
    assert maps_library(exporter)
    exporter.signal(signal.SIGUSR1)
    wait_until(lambda: not exporter.children())
    assert not maps_library(exporter)
    for _ in range(2):
        page = scrape(exporter)
        assert has_no_driver(page)
        assert reason(page) == "nvidia: released for 60 s by SIGUSR1"
    assert not maps_library(exporter)
    exporter.signal(signal.SIGUSR1)
    page = scrape_until(exporter, is_whole)
    assert success(page) == 1


def test_the_readers_thread_lets_go_of_the_driver(scene):
    """SIGUSR1 makes a reader thread shut NVML down; the next SIGUSR1 starts a reader process."""
    exporter = scene.start()
    scrape(exporter)
    scene.wait_until_heard()
    exporter.signal(signal.SIGUSR1)

    def is_shut_down() -> bool:
        scene.machine.deliver_xid(0, 45)  # the reader waits up to 15 s for one
        return scene.machine.calls("nvmlShutdown") > 0

    wait_until(is_shut_down, pause=0.1)
    assert has_no_driver(scrape(exporter))
    exporter.signal(signal.SIGUSR1)
    scrape_until(exporter, is_whole)
    assert len(exporter.children()) == 1


def test_a_signal_during_a_hung_reading_neither_blocks_nor_is_lost(scene):
    """SIGUSR1 during a hung `nvmlInit` does not block the server, and the driver is released."""
    scene.machine.hang("nvmlInit")
    exporters = scene.start_both()
    with ThreadPoolExecutor(2) as pool:
        readings = [pool.submit(each.scrape, "accelerator", timeout=4.0) for each in exporters]
        time.sleep(0.3)
        for exporter in exporters:
            exporter.signal(signal.SIGUSR1)
            assert exporter.get("/-/healthy", timeout=30.0).status == 200
        assert [reading.result().status for reading in readings] == [200, 200]
    scene.machine.unhang("nvmlInit")
    time.sleep(0.3)
    for exporter, page in zip(exporters, scrape_each(exporters), strict=True):
        assert page.find("accelerator_up") == []
        exporter.signal(signal.SIGUSR1)
    scrape_each_until(exporters, is_whole)
