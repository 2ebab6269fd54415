"""Busy time, which is summed from the driver's sample buffer for any number of scrapers."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.accelerators.scene import BUSY, LONG, REUSE_SECONDS, Scene, scrape, success

UNOBSERVED = "accelerator_busy_unobserved_seconds_total"


@pytest.mark.long
def test_busy_time_is_exact_for_several_scrapers_at_once(scene: Scene):
    """The busy rate of a load that is high for a quarter of every 2 s is 25 % for each scraper.

    The test advances the driver's clock, so that a slow machine does not change the values.
    """
    scene.machine.stop_clock()
    scene.machine.square_wave(0, duty=0.25, period_seconds=2.0)
    exporter = scene.start()
    # Seconds between scrapes; each divides the total time, which is a whole number of periods.
    intervals, seconds = ((1, 5, 15), 120) if LONG else ((1, 3, 6), 24)
    first = scrape(exporter).value(BUSY, device="0")
    last: dict[int, float] = {}

    def read(interval: int) -> None:
        last[interval] = exporter.scrape("accelerator").value(BUSY, device="0")

    with ThreadPoolExecutor(2 * len(intervals)) as pool:
        for second in range(1, seconds + 1):
            scene.machine.advance(1.0)
            time.sleep(1.25 * REUSE_SECONDS)
            list(pool.map(read, [each for each in intervals if second % each == 0] * 2))
    rates = [(last[each] - first) / seconds for each in intervals]
    assert rates == pytest.approx([0.25] * len(intervals), abs=0.01)


def test_busy_time_stands_still_on_an_idle_gpu_and_goes_on_when_it_works(scene):
    """While a GPU has no samples, busy time stays constant without an error, and then continues."""
    machine = scene.machine
    machine.stop_clock()
    gpu = machine.gpu(0)
    gpu.constant_load(100)
    exporter = scene.start()
    scrape(exporter)
    gpu.idle(from_now=True)
    machine.advance(5.0)
    idle = scrape(exporter)
    assert idle.value(BUSY, device="0") == pytest.approx(0.0, abs=0.17)
    assert success(idle) == 1
    machine.advance(60.0)
    assert scrape(exporter).value(BUSY, device="0") == idle.value(BUSY, device="0")
    gpu.constant_load(100, from_now=True)
    machine.advance(3.0)
    after = scrape(exporter)
    assert after.value(BUSY, device="0") - idle.value(BUSY, device="0") == pytest.approx(3, abs=0.2)
    assert after.value(UNOBSERVED, device="0") == 0


def test_a_buffer_that_was_overrun_is_counted_as_unobserved(scene):
    """Time whose samples the buffer has lost gets the mean load and is counted as unobserved."""
    scene.machine.stop_clock()
    scene.machine.gpu(0).constant_load(40)
    exporter = scene.start()
    scrape(exporter)
    scene.machine.advance(60.0)
    page = scrape(exporter)
    assert page.value(BUSY, device="0") == pytest.approx(24, abs=0.1)
    assert page.value(UNOBSERVED, device="0") == pytest.approx(43.33, abs=0.4)


def test_busy_time_goes_on_when_the_clock_is_set_back(scene):
    """Busy time continues to grow after the clock of the samples was set back by an hour."""
    scene.machine.stop_clock()
    scene.machine.gpu(0).constant_load(50)
    exporter = scene.start()
    before = scrape(exporter).value(BUSY, device="0")
    scene.machine.advance(-3600.0)
    assert scrape(exporter).value(BUSY, device="0") == before
    scene.machine.advance(10.0)
    assert scrape(exporter).value(BUSY, device="0") - before == pytest.approx(5.0, abs=0.2)
