"""A machine that is recorded: a real exporter on fakes of what it reads.

It is started by its `with` block, and `move` lets it live: the recording calls that twice a
second.
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
    """A host and its exporter; the recorded ones add to it.

    Args:
        directory: Where everything of it is kept; it is made.

    Attributes:
        name: Its name, the label `instance`.
        gpus: How many GPUs it has.
        hpus: How many Gaudi cards it has.
        host: Its files.
        fake: Its accelerators; None: it has none.
        exporter: Its exporter.
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
        """Start what must exist before the exporter; the exit stack stops it."""

    def list_arguments(self) -> Sequence[str]:
        """Return more flags of the exporter."""
        expected = {"gpu": self.gpus, "hpu": self.hpus}
        return [f"--accelerators.expected={kind}={n}" for kind, n in expected.items() if n]

    def plan(self) -> Sequence[Moment]:
        """Return what happens how many seconds after it was first moved."""
        return ()

    def move(self) -> None:
        """Let the host's counters go on, and what is planned happen."""
        self.host.move()
        self._begun = time.monotonic() if self._begun is None else self._begun
        while self._plan and time.monotonic() - self._begun >= self._plan[0][0]:
            self._plan.pop(0)[1]()
