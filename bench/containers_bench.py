"""The overhead of observing 100 containers: scrapes, periodic reads and 1000 deaths (goal 22).

The containers run on an engine that the benchmark starts itself, which needs root and Docker.
The peer is the usual way: Docker's own Python package requests the list and the statistics of each
container from the engine, in threads, because each answer takes the engine a second or two.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import docker

from bench.figures import Figures, is_quick, pair_ratio, spread
from bench.subjects import GAP_SECONDS, Subject, fake_machine, our_exporter
from tests.support.engines import NoEngineError, SecondEngine, running_engine
from trainvitals.sources.containers.cgrouppaths import find_groups
from trainvitals.sources.containers.cgroups import GroupFiles

CONTAINERS = 100
SCRAPES = 100
QUICK_SCRAPES = 20
LOOKS = 5
QUICK_LOOKS = 2
REST_SECONDS = 120.0
QUICK_REST_SECONDS = 30.0
BIRTHS = 1000
QUICK_BIRTHS = 100
WARM_UP = 50
STREAMS_AT_ONCE = 16


@contextmanager
def engine_with_image() -> Iterator[tuple[SecondEngine, str]]:
    """Start an engine that has only one small image; yield the engine and the image's name."""
    with running_engine() as first:
        image = first.get("PYTHON_IMAGE", "python:3-slim")
        with SecondEngine(first) as engine:
            engine.load(image)
            yield engine, image


def run_many(client: docker.DockerClient, image: str, number: int) -> None:
    """Start containers that sleep."""

    def start(place: int) -> None:
        client.containers.run(
            image, ["sleep", "86400"], name=f"many-{place}", detach=True, network_mode="none"
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(number)))


def live_and_die(client: docker.DockerClient, image: str, number: int) -> None:
    """Run short-lived containers with reused names, four at a time, and remove each at its end."""

    def live(place: int) -> None:
        for turn in range(number // 4):
            client.containers.run(
                image,
                ["sh", "-c", f"echo last words; exit {turn % 3}"],
                name=f"life-{place}-{turn % 3}",
                detach=True,
                network_mode="none",
            ).wait()
            client.api.remove_container(f"life-{place}-{turn % 3}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(live, range(4)))


def time_looks(client: docker.DockerClient, looks: int) -> tuple[list[float], list[float]]:
    """Return the seconds in which trainvitals and Docker's package read all containers, in turn."""
    ours, theirs = [], []
    groups = [GroupFiles(paths) for paths in find_groups().values()]
    for _ in range(looks):
        began = time.perf_counter()
        for group in groups:
            group.read()
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        containers = client.containers.list(sparse=True)
        with ThreadPoolExecutor(STREAMS_AT_ONCE) as pool:
            list(pool.map(lambda container: container.stats(stream=False), containers))
        theirs.append(time.perf_counter() - began)
    return ours, theirs


def time_share(subject: Subject, scrapes: int) -> list[float]:
    """Return the milliseconds that the container collector took in each scrape."""
    client = subject.client(packed=False)
    shares = []
    for _ in range(scrapes):
        time.sleep(GAP_SECONDS)
        for line in client.get().text.splitlines():
            name, _, value = line.rpartition(" ")
            if name == 'trainvitals_collector_duration_seconds{collector="container"}':
                shares.append(float(value) * 1e3)
    return shares


def wait_for(subject: Subject, part: str, number: int) -> None:
    """Wait until the page has at least the given number of samples that contain the given text."""
    client = subject.client()
    until = time.monotonic() + 60
    while sum(part in sample for sample in client.get().samples) < number:
        if time.monotonic() > until:
            raise RuntimeError(f"{number} samples of {part} are not there after a minute")
        time.sleep(GAP_SECONDS)


def measure_many(figures: Figures, engine: SecondEngine, image: str, *, quick: bool) -> None:
    """Measure scrapes and CPU use while 100 containers run."""
    client = docker.DockerClient(engine.address)
    run_many(client, image, CONTAINERS)
    with (
        fake_machine() as machine,
        our_exporter(machine, f"--containers.engine={engine.address}") as subject,
    ):
        wait_for(subject, "container_memory_working_set_bytes", CONTAINERS)
        share = spread(time_share(subject, QUICK_SCRAPES if quick else SCRAPES))
        series = sum('name="many-' in sample for sample in subject.client().get().samples)
        figures.reach("22a", share, note=f"{series} series of {CONTAINERS} containers")
        seconds = QUICK_REST_SECONDS if quick else REST_SECONDS
        before = subject.tree.cpu_seconds()
        time.sleep(seconds)
        figures.reach("22b", 100 * (subject.tree.cpu_seconds() - before) / seconds)
    ours, theirs = time_looks(client, QUICK_LOOKS if quick else LOOKS)
    figures.reach(
        "22c",
        pair_ratio(ours, theirs),
        ours=f"{statistics.median(ours) * 1e3:.1f} ms",
        peer=f"{statistics.median(theirs) * 1e3:.0f} ms",
        note=f"the peer with {STREAMS_AT_ONCE} threads",
    )
    client.close()


def measure_deaths(figures: Figures, engine: SecondEngine, image: str, *, quick: bool) -> None:
    """Measure memory and series before and after many containers started and ended."""
    births = QUICK_BIRTHS if quick else BIRTHS
    client = docker.DockerClient(engine.address)
    with (
        fake_machine() as machine,
        our_exporter(machine, f"--containers.engine={engine.address}") as subject,
    ):
        wait_for(subject, "trainvitals_containers_events_connected", 1)
        live_and_die(client, image, WARM_UP)
        wait_for(subject, "container_last_death_info{confidence", 1)
        time.sleep(2)
        page = subject.client()
        series, memory = len(page.get().samples), subject.tree.memory().once
        live_and_die(client, image, births)
        time.sleep(2)
        drift = subject.tree.memory().once - memory
        more = len(page.get().samples) - series
    figures.reach("22d", drift, ours=f"{memory:.1f} MiB before", note=f"{births} births and deaths")
    figures.reach("22e", max(0, more))
    client.close()


def main() -> None:
    """Run the benchmark and write its results."""
    quick = is_quick("containers")
    figures = Figures("containers", quick=quick)
    try:
        with engine_with_image() as (engine, image):
            figures.tell("engine", engine.docker("version", "--format={{.Server.Version}}"))
            measure_many(figures, engine, image, quick=quick)
        with engine_with_image() as (engine, image):
            measure_deaths(figures, engine, image, quick=quick)
    except NoEngineError as error:
        print(f"  not measured: {error}")
        return
    figures.write()


if __name__ == "__main__":
    main()
