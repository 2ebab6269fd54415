"""A recorded machine: a real exporter that reads fake files and devices.

The `with` block starts the machine. The recording calls `move` twice a second, which advances the
machine's counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from tests.fakes.machine import FakeMachine
from tests.integration.dashboards.live.moving_host import MovingHost
from tests.support.exporter_process import ExporterProcess

Moment = tuple[float, Callable[[], None]]


class Machine:
    """A host and its exporter, from which the recorded machines are derived.

    Args:
        directory: The directory for the machine's files, which is created.

    Attributes:
        name: The name, which is the label `instance`.
        gpus: The number of GPUs.
        hpus: The number of Gaudi cards.
        host: The host's files.
        fake: The accelerators; None without accelerators.
        exporter: The exporter.
    """

    name: ClassVar[str]
    gpus: ClassVar[int] = 0
    hpus: ClassVar[int] = 0
    model: ClassVar[str] = "NVIDIA H100 80GB HBM3"

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.host = MovingHost(directory)
        has_any = self.gpus or self.hpus
        self.fake = FakeMachine(directory, self.gpus, self.hpus, self.model) if has_any else None
        self.exporter: ExporterProcess
        self._stack = ExitStack()
        self._begun: float | None = None
        self._plan: list[Moment] = []

    def __enter__(self) -> Machine:  # noqa: PYI034 - Self is not in Python 3.10
        with ExitStack() as stack:
            if self.fake is not None:
                stack.enter_context(self.fake)
            self.prepare(stack)
            self.exporter = stack.enter_context(
                ExporterProcess(
                    self.directory,
                    self.fake,
                    arguments=(*self.host.arguments, *self.list_arguments()),
                )
            )
            self._stack = stack.pop_all()
        self._plan = sorted(self.plan(), key=lambda moment: moment[0])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def prepare(self, stack: ExitStack) -> None:
        """Start the parts of the machine that the exporter needs; the exit stack ends them."""

    def list_arguments(self) -> Sequence[str]:
        """Return the flags of the exporter in addition to those of the host."""
        expected = {"gpu": self.gpus, "hpu": self.hpus}
        return [f"--accelerators.expected={kind}={n}" for kind, n in expected.items() if n]

    def plan(self) -> Sequence[Moment]:
        """Return the events, each with its time in seconds after the first `move`."""
        return ()

    def move(self) -> None:
        """Advance the host's counters, and run the planned events that are due."""
        self.host.move()
        self._begun = time.monotonic() if self._begun is None else self._begun
        while self._plan and time.monotonic() - self._begun >= self._plan[0][0]:
            self._plan.pop(0)[1]()
