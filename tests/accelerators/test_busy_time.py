"""Busy time is summed up from the driver's sample buffer, whoever asks and however often."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.accelerators.scene import BUSY, LONG, Scene, beside, scrape, success

UNOBSERVED = "accelerator_busy_unobserved_seconds_total"


@pytest.mark.long
@beside
def test_busy_time_is_exact_for_several_scrapers_at_once(scene: Scene):
    """A wave that is high for a quarter of every 2 s has a rate of 25 %, whoever asks how often."""
    scene.machine.square_wave(0, duty=0.25, period_seconds=2.0)
    exporter = scene.start()
    scrape(exporter)
    # Seconds between scrapes and how many of them: a whole number of periods each.
    plans = [(1, 120), (5, 24), (15, 8)] if LONG else [(1, 24), (3, 8), (6, 4)]

    def measure(plan: tuple[float, int]) -> float:
        interval, count = plan
        begin = time.monotonic()
        first = exporter.scrape("accelerator")
        for number in range(1, count + 1):
            time.sleep(max(0.0, begin + number * interval - time.monotonic()))
            last = exporter.scrape("accelerator")
        return (last.value(BUSY, device="0") - first.value(BUSY, device="0")) / (interval * count)

    with ThreadPoolExecutor(2 * len(plans)) as pool:
        rates = list(pool.map(measure, [plan for plan in plans for _ in range(2)]))
    assert rates == pytest.approx([0.25] * 6, abs=0.01)


def test_busy_time_stands_still_on_an_idle_gpu_and_goes_on_when_it_works(scene):
    """No samples are no error; neither is a gap in them, which counts as idle."""
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
    """Of 60 s the buffer holds the last 16.67 s; the rest takes their mean and is counted."""
    scene.machine.stop_clock()
    scene.machine.gpu(0).constant_load(40)
    exporter = scene.start()
    scrape(exporter)
    scene.machine.advance(60.0)
    page = scrape(exporter)
    assert page.value(BUSY, device="0") == pytest.approx(24, abs=0.1)
    assert page.value(UNOBSERVED, device="0") == pytest.approx(43.33, abs=0.4)


def test_busy_time_goes_on_when_the_clock_is_set_back(scene):
    """Samples that seem older than those that were counted do not stop the counter for an hour."""
    scene.machine.stop_clock()
    scene.machine.gpu(0).constant_load(50)
    exporter = scene.start()
    before = scrape(exporter).value(BUSY, device="0")
    scene.machine.advance(-3600.0)
    assert scrape(exporter).value(BUSY, device="0") == before
    scene.machine.advance(10.0)
    assert scrape(exporter).value(BUSY, device="0") - before == pytest.approx(5.0, abs=0.2)
