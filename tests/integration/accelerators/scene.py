"""Eight GPUs, the exporters that watch them, and what their pages say."""

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

# All that is told of a GPU that cannot be read.
ABSENT_SERIES = {"accelerator_info", "accelerator_up", "accelerator_state", LAST_SEEN}


class Scene:
    """Eight H100 and the exporters that watch them.

    Args:
        directory: Where its files are kept.
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
        """Start one whose driver reader is a thread, and one whose reader is a process."""
        return [self.start(*arguments), self.start(ISOLATED, *arguments)]

    def make_traces(self) -> tuple[str, Path]:
        """Make the driver's directory in a `/sys`; give the argument that names it, and it."""
        traces = self.directory / "sys/bus/pci/drivers/nvidia"
        traces.mkdir(parents=True)
        return f"--path.sysfs={self.directory / 'sys'}", traces

    def wait_until_heard(self, exporters: int = 1) -> None:
        """Wait until so many exporters wait for the errors of each GPU."""
        self.wait_for_calls("nvmlEventSetWait_v2", exporters * len(EVERYONE))

    def wait_for_calls(self, function: str, count: int = 1, device: int | None = None) -> None:
        """Wait until a function of the driver was called so often.

        Raises:
            AssertionError: It was not within 10 s.
        """
        until = time.monotonic() + 10
        while self.machine.calls(function, device) < count:
            assert time.monotonic() < until, f"{function} was not called {count} times"
            time.sleep(0.01)


BESIDE: dict[str, Callable[[Scene], None]] = {}


def beside(body: Callable[[Scene], None]) -> Callable[..., None]:
    """Run a test beside all others from when the first begins, since it waits for seconds.

    A test that is tried again runs alone.
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
    """Have the accelerators read again."""
    return scrape_each([exporter], timeout)[0]


def scrape_each(exporters: list[ExporterProcess], timeout: float | None = None) -> list[Page]:
    """Have the accelerators read again by each exporter."""
    time.sleep(1.25 * REUSE_SECONDS)
    return [exporter.scrape("accelerator", timeout=timeout) for exporter in exporters]


def scrape_until(
    exporter: ExporterProcess, is_enough: Callable[[Page], bool], seconds: float = 15.0
) -> Page:
    """Have them read until the page is as wished, within so many seconds."""
    time.sleep(1.25 * REUSE_SECONDS)
    return exporter.scrape_until(is_enough, "accelerator", seconds=seconds)


def scrape_each_until(
    exporters: list[ExporterProcess], is_enough: Callable[[Page], bool], seconds: float = 15.0
) -> list[Page]:
    """Have them read by each exporter until its page is as wished."""
    return [scrape_until(exporter, is_enough, seconds) for exporter in exporters]


def up(page: Page) -> list[str]:
    """Return the GPUs that answer."""
    values = page.values("accelerator_up", "device")
    return [device for device in sorted(values) if values[device] == 1]


def is_whole(page: Page) -> bool:
    """Return whether all eight answer."""
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
    """Return whether the reading was whole."""
    return page.value("trainvitals_collector_success", collector="accelerator")


def reason(page: Page) -> str:
    """Return why the reading was not whole; empty when it was."""
    found = page.find("trainvitals_collector_failure_info", collector="accelerator")
    return found[0].labels["reason"] if found else ""
