"""A machine with eight GPUs, the exporters that read them, and helpers for the exporters' pages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, MutableMapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

from tests.fakes.machine import FakeMachine
from tests.support.exporter_process import ExporterProcess, Page

LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
MIB = 1 << 20
REUSE_SECONDS = 0.2
ISOLATED = "--accelerators.isolate"
EVERYONE = ["0", "1", "2", "3", "4", "5", "6", "7"]
UUID_OF_3 = "GPU-00000003-5e1f-4d3a-9c07-0000a0000003"
LAST_SEEN = "accelerator_last_seen_timestamp_seconds"
XIDS = "accelerator_xid_errors_total"
BUSY = "accelerator_busy_seconds_total"

# The only series of a GPU that cannot be read.
ABSENT_SERIES = {"accelerator_info", "accelerator_up", "accelerator_state", LAST_SEEN}


class Scene:
    """Eight H100 GPUs and the exporters that read them.

    Args:
        directory: The directory for the files of the scene.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.machine = FakeMachine(directory)
        self._stack = ExitStack()

    def __enter__(self) -> Scene:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.close()
        self._stack.close()

    def start(self, *arguments: str) -> ExporterProcess:
        """Start an exporter, which ends with the scene."""
        exporter = ExporterProcess(self.directory, self.machine, arguments=arguments)
        return self._stack.enter_context(exporter)

    def start_both(self, *arguments: str) -> list[ExporterProcess]:
        """Start an exporter with a reader thread and an exporter with a reader process."""
        return [self.start(*arguments), self.start(ISOLATED, *arguments)]

    def make_traces(self) -> tuple[str, Path]:
        """Create the driver's directory in a `/sys`; return a flag for `/sys` and the directory."""
        traces = self.directory / "sys/bus/pci/drivers/nvidia"
        traces.mkdir(parents=True)
        return f"--path.sysfs={self.directory / 'sys'}", traces

    def wait_until_heard(self, exporters: int = 1) -> None:
        """Wait until a number of exporters wait for the Xid events of every GPU."""
        self.wait_for_calls("nvmlEventSetWait_v2", exporters * len(EVERYONE))

    def wait_for_calls(self, function: str, count: int = 1, device: int | None = None) -> None:
        """Wait until a function of the driver was called `count` times.

        Raises:
            AssertionError: The function was not called as often within 10 s.
        """
        until = time.monotonic() + 10
        while self.machine.calls(function, device) < count:
            assert time.monotonic() < until, f"{function} was not called {count} times"
            time.sleep(0.01)


BESIDE: dict[str, Callable[[Scene], None]] = {}


def beside(body: Callable[[Scene], None]) -> Callable[..., None]:
    """Run a test that waits for seconds in parallel with all others, from the first test on.

    A repeated test runs alone.
    """
    BESIDE[body.__name__] = body

    def test(begun: MutableMapping[str, Future[None]], scene: Scene) -> None:
        future = begun.pop(body.__name__, None)
        if future is None:
            body(scene)
        else:
            future.result()

    test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
    return test


def scrape(exporter: ExporterProcess, timeout: float | None = None) -> Page:
    """Return a page for which the exporter has read the accelerators again."""
    return scrape_each([exporter], timeout)[0]


def scrape_each(exporters: list[ExporterProcess], timeout: float | None = None) -> list[Page]:
    """Return a page of each exporter, for which it has read the accelerators again."""
    time.sleep(1.25 * REUSE_SECONDS)
    return [exporter.scrape("accelerator", timeout=timeout) for exporter in exporters]


def scrape_until(
    exporter: ExporterProcess, is_enough: Callable[[Page], bool], seconds: float = 15.0
) -> Page:
    """Scrape the accelerators until a page satisfies a condition, and return the page."""
    time.sleep(1.25 * REUSE_SECONDS)
    return exporter.scrape_until(is_enough, "accelerator", seconds=seconds)


def scrape_each_until(
    exporters: list[ExporterProcess], is_enough: Callable[[Page], bool], seconds: float = 15.0
) -> list[Page]:
    """Scrape each exporter until its page satisfies a condition, and return the pages."""
    return [scrape_until(exporter, is_enough, seconds) for exporter in exporters]


def up(page: Page) -> list[str]:
    """Return the numbers of the GPUs that are up."""
    values = page.values("accelerator_up", "device")
    return [device for device in sorted(values) if values[device] == 1]


def is_whole(page: Page) -> bool:
    """Return whether all eight GPUs are up."""
    return up(page) == EVERYONE


def states(page: Page) -> dict[str, str]:
    """Return the state of each GPU."""
    return {
        sample.labels["device"]: sample.labels["state"]
        for sample in page.find("accelerator_state")
        if sample.value == 1
    }


def names_of(page: Page, device: str) -> set[str]:
    """Return the names of all series of a GPU."""
    return {
        sample.name
        for sample in page.find(device=device)
        if sample.name.startswith(("accelerator_", "gpu_"))
    }


def success(page: Page) -> float | None:
    """Return `trainvitals_collector_success` of the accelerator collector."""
    return page.value("trainvitals_collector_success", collector="accelerator")


def reason(page: Page) -> str:
    """Return the reason for which the accelerator collector failed; empty if it succeeded."""
    found = page.find("trainvitals_collector_failure_info", collector="accelerator")
    return found[0].labels["reason"] if found else ""
