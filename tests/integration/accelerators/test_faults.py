"""Lost GPUs, hung driver calls and dead readers, which must not affect anything else."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.integration.accelerators.scene import (
    ABSENT_SERIES,
    BUSY,
    ISOLATED,
    LAST_SEEN,
    LONG,
    MIB,
    XIDS,
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
from tests.support.exporter_process import ExporterProcess
from tests.support.waiting import wait_until

BUT_2 = ["0", "1", "3", "4", "5", "6", "7"]


# -- a GPU is lost ---------------------------------------------------------------------------------


def test_a_lost_gpu_costs_only_itself_and_comes_back(scene):
    """A lost GPU keeps its identity, state and last-seen time, and seven GPUs stay complete."""
    exporters = scene.start_both()
    before = scrape_each_until(exporters, is_whole)
    scene.machine.lose(2)
    after = scrape_each_until(exporters, lambda page: up(page) == BUT_2)
    for page, earlier in zip(after, before, strict=True):
        assert page.status == 200
        assert states(page)["2"] == "lost"
        assert page.value("accelerator_up", device="2") == 0
        assert names_of(page, "2") == ABSENT_SERIES
        assert page.value(LAST_SEEN, device="2") == earlier.value(LAST_SEEN, device="2")
        for device in BUT_2:
            assert names_of(page, device) == names_of(earlier, device)
        assert page.values("accelerator_devices", "kind")["gpu"] == 7
    scene.machine.restore(2)
    scrape_each_until(exporters, is_whole)


@beside
def test_gpus_that_are_lost_or_hang_before_the_start_do_not_keep_the_others(scene: Scene):
    """GPUs that are lost or hang at the start appear once they respond, without duplicates."""
    scene.machine.lose(1)
    scene.machine.hang("nvml*", device=2)
    exporters = scene.start_both()
    for page in scrape_each_until(exporters, lambda page: len(up(page)) == 6):
        assert (states(page)["1"], states(page)["2"]) == ("lost", "hung")
        for device in ("1", "2"):
            assert names_of(page, device) == ABSENT_SERIES - {LAST_SEEN}
        assert success(page) == 0
    scene.machine.heal()
    scene.machine.restore(1)
    for page in scrape_each_until(exporters, is_whole):
        assert len(page.find("accelerator_up")) == 8
        assert len(page.find("accelerator_info")) == 8
        assert success(page) == 1


@beside
def test_a_gpu_that_returns_only_to_a_fresh_start_is_found(scene: Scene):
    """If a GPU's old handle stays lost after a reset, a second reader finds it and takes over."""
    exporter = scene.start()
    scrape_until(exporter, is_whole)
    scene.machine.lose(6, hidden=True)
    scrape_until(exporter, lambda page: states(page)["6"] == "lost")
    gpu = scene.machine.gpu(6)
    gpu.device.generation += 1  # the existing handles of readers stay lost
    gpu.restore()
    page = scrape_until(exporter, is_whole)
    assert len(page.find("accelerator_up")) == 8
    assert len(exporter.children()) == 1


# -- a driver call hangs ---------------------------------------------------------------------------


def test_a_call_that_hangs_on_one_gpu_costs_only_that_gpu(scene):
    """A hung call affects only its GPU, which recovers, and delays no scrape to its deadline."""
    exporters = scene.start_both()
    before = scrape_each_until(exporters, is_whole)[0]
    scene.machine.hang("nvmlDeviceGetPowerUsage", device=2)
    pages = [page for _ in range(4) for page in scrape_each(exporters, timeout=50.0)]
    assert max(page.seconds for page in pages) < 20
    for page in (*pages, *scrape_each_until(exporters, lambda page: up(page) == BUT_2)):
        assert page.status == 200
        assert states(page)["2"] == "hung"
        assert names_of(page, "2") == ABSENT_SERIES
        for device in up(page):
            assert names_of(page, device) == names_of(before, device)
        assert success(page) == 0
    assert reason(page) == "a driver call hangs on gpu 2"
    scene.machine.unhang("nvmlDeviceGetPowerUsage", device=2)
    for page in scrape_each_until(exporters, is_whole):
        assert success(page) == 1


def footprint(exporter: ExporterProcess) -> tuple[int, int, int]:
    """Return the numbers of threads, descriptors and bytes of the exporter and its children."""
    tree = [psutil.Process(exporter.pid), *exporter.children()]
    return (
        sum(process.num_threads() for process in tree),
        sum(process.num_fds() for process in tree),
        sum(process.memory_info().rss for process in tree),
    )


@pytest.mark.long
@beside
def test_a_lasting_hang_costs_nothing_that_grows(scene: Scene):
    """During a hung call, threads, descriptors and memory do not grow, and no scrape waits."""
    exporters = scene.start_both()
    scrape_each_until(exporters, is_whole)
    scene.machine.hang("nvmlDeviceGetPowerUsage", device=2)
    begin, seconds = time.monotonic(), 300 if LONG else 30
    before: list[tuple[int, int, int]] = []
    slowest = 0.0
    while (passed := time.monotonic() - begin) < seconds:
        for page in scrape_each(exporters, timeout=50.0):
            slowest = max(slowest, page.seconds)
            assert "2" not in up(page)
        if not before and passed > seconds / 3:  # until then, memory also grows without a hang
            before = [footprint(exporter) for exporter in exporters]
    assert slowest < 20
    scrape_each_until(exporters, lambda page: up(page) == BUT_2)
    for exporter, (threads, descriptors, resident) in zip(exporters, before, strict=True):
        after = footprint(exporter)
        assert after[0] <= threads + 2  # on a busy machine the pool wakes another worker
        assert after[1] == descriptors
        assert after[2] - resident < MIB
    scene.machine.unhang("nvmlDeviceGetPowerUsage", device=2)
    scrape_each_until(exporters, is_whole)


def test_an_opening_that_hangs_keeps_only_the_accelerators(scene):
    """While `nvmlInit` hangs, the page has host metrics and the reason; GPUs recover later."""
    scene.machine.hang("nvmlInit")
    exporters = scene.start_both()
    for exporter in exporters * 2:
        page = exporter.scrape_until(lambda page: bool(page.find("memory_usage_bytes")))
        assert page.seconds < 30
        assert page.find("accelerator_up") == []
        assert success(page) == 0
    for page in scrape_each_until(exporters, lambda page: "opening" in reason(page)):
        assert reason(page) == "opening the nvidia driver takes long"
    scene.machine.unhang("nvmlInit")
    for page in scrape_each_until(exporters, is_whole):
        assert success(page) == 1


def test_a_count_that_hangs_costs_no_gpu(scene):
    """While `nvmlDeviceGetCount` hangs, all eight GPUs are read, and the page has the reason."""
    exporters = scene.start_both()
    scrape_each(exporters)
    scene.machine.hang("nvmlDeviceGetCount")
    for page in scrape_each_until(exporters, lambda page: is_whole(page) and success(page) == 0):
        assert reason(page) == "the driver call that counts the devices hangs"
    assert max(page.seconds for page in scrape_each(exporters, timeout=50.0)) < 20
    scene.machine.unhang("nvmlDeviceGetCount")
    scrape_each_until(exporters, lambda page: success(page) == 1)


def test_a_short_timeout_does_not_make_gpus_hang(scene):
    """All eight GPUs are up even if the timeout of a scrape is 0.15 s."""
    for exporter in scene.start_both():
        scrape_until(exporter, is_whole)
        wait_until(lambda exporter=exporter: is_whole(scrape(exporter, timeout=0.15)))


def test_the_exporter_ends_at_once_while_calls_hang(scene):
    """While calls hang, SIGTERM ends the exporter within 15 s, and no child process remains."""
    exporters = scene.start_both()
    scrape_each(exporters)
    scene.machine.hang("nvmlDeviceGetPowerUsage", device=2)
    scene.machine.hang("nvmlDeviceGetCount")
    scrape_each(exporters)
    for exporter in exporters:
        children = exporter.children()
        begin = time.monotonic()
        assert exporter.end() == 0
        assert time.monotonic() - begin < 15
        assert psutil.wait_procs(children, timeout=30)[1] == []


# -- the reader process dies -----------------------------------------------------------------------


def test_a_killed_reader_is_replaced_and_counters_go_on(scene):
    """After a reader process was killed, values return, and all counters continue."""
    scene.machine.stop_clock()
    exporter = scene.start(ISOLATED)
    scene.machine.gpu(0).constant_load(50)
    first = scrape_until(exporter, is_whole)
    scene.wait_until_heard()
    scene.machine.deliver_xid(0, 31)
    scrape_until(exporter, lambda page: bool(page.find(XIDS)))
    scene.machine.advance(2.0)
    os.kill(exporter.children()[0].pid, signal.SIGKILL)
    page = scrape_until(exporter, is_whole)
    scene.machine.advance(2.0)
    last = scrape_until(exporter, is_whole)
    busy = last.value(BUSY, device="0") - first.value(BUSY, device="0")
    assert busy == pytest.approx(2.0, abs=0.2)
    energy = [each.value("accelerator_energy_joules_total", device="0") for each in (first, last)]
    assert energy[1] > energy[0]
    for each in (page, last):
        assert each.value(XIDS, device="0", xid="31") == 1
    assert len(exporter.children()) == 1


def test_xids_that_a_killed_reader_had_reported_are_not_lost(scene):
    """Xids between two scrapes are counted even if the reader is killed before the second one."""
    exporter = scene.start(ISOLATED)
    scrape_until(exporter, is_whole)
    scene.wait_until_heard()
    waits = scene.machine.calls("nvmlEventSetWait_v2")
    for number, code in enumerate((48, 63), 1):
        scene.machine.deliver_xid(3, code)
        scene.wait_for_calls("nvmlEventSetWait_v2", waits + number)
    os.kill(exporter.children()[0].pid, signal.SIGKILL)
    page = scrape_until(exporter, is_whole)
    assert page.values(XIDS, "xid", device="3") == {"48": 1, "63": 1}


@beside
def test_a_reader_that_keeps_dying_is_not_started_without_end(scene: Scene):
    """If the reader process keeps dying, a new one is started every four seconds at most."""
    exporter = scene.start(ISOLATED)
    scrape_until(exporter, is_whole)
    begin = time.monotonic()
    pids = set()
    while time.monotonic() - begin < 5.0:
        for child in exporter.children():
            pids.add(child.pid)
            os.kill(child.pid, signal.SIGKILL)
        scrape(exporter)
    passed = time.monotonic() - begin
    assert 2 <= len(pids) <= 2 + passed / 4
    scrape_until(exporter, is_whole)


def test_a_silent_reader_is_waited_for_and_its_late_answer_dropped(scene):
    """While the reader process is stopped, no stale values are shown; fresh values follow later."""
    exporter = scene.start(ISOLATED)
    scrape_until(exporter, is_whole)
    (child,) = exporter.children()
    child.suspend()
    silent = [scrape(exporter, timeout=seconds) for seconds in (1.0, 1.0, 50.0)]
    assert silent[-1].seconds < 20
    for page in silent:
        assert set(states(page).values()) <= {"hung"}
        assert success(page) == 0
    scene.machine.gpu(0).temperature = 77
    child.resume()
    page = scrape_until(exporter, is_whole)
    assert page.value("gpu_temperature_celsius", device="0") == 77
