"""The whole machine: its collectors and the runner that asks them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trainvitals.collectors import COLLECTORS, Parts
from trainvitals.errors import ConfigurationError
from trainvitals.scrape import Runner
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.source import ContainerOptions
from trainvitals.sources.files import Roots
from trainvitals.sources.training.source import TrainingOptions


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What to look at, and where.

    Attributes:
        roots: Where the host's file systems are found.
        disabled: Names of collectors that are left out.
        expected: How many accelerators of each kind there should be.
        is_isolated: Have the accelerators' drivers always opened by processes of their own.
        memory_limit_bytes: How much memory of each accelerator may be used; None for all of it.
        training: Where training runs are looked for.
        containers: Which containers are watched, and how.
    """

    roots: Roots = field(default_factory=Roots)
    disabled: Collection[str] = ()
    expected: Mapping[Kind, int] = field(default_factory=dict)
    is_isolated: bool = False
    memory_limit_bytes: int | None = None
    training: TrainingOptions = field(default_factory=TrainingOptions)
    containers: ContainerOptions = field(default_factory=ContainerOptions)


class Machine:
    """The machine, ready to be read.

    Making it starts to open the accelerators' drivers, without waiting for them.

    Args:
        options: What to look at, and where.

    Attributes:
        runner: Asks the collectors.
        expected: How many accelerators of each kind there should be.

    Raises:
        ConfigurationError: A collector to leave out does not exist, or the file of patterns for
            training logs cannot be used.
    """

    def __init__(self, options: MachineOptions | None = None) -> None:
        options = options or MachineOptions()
        names = [entry.name for entry in COLLECTORS]
        for name in options.disabled:
            if name not in names:
                raise ConfigurationError(f"no collector {name}; there are {', '.join(names)}")
        vendors_off = "accelerator" in options.disabled
        self.expected = dict(options.expected)
        self._accelerators = (
            AcceleratorSource(vendors=(), roots=options.roots)
            if vendors_off
            else AcceleratorSource(
                expected=options.expected,
                memory_limit_bytes=options.memory_limit_bytes,
                roots=options.roots,
                is_isolated=options.is_isolated,
            )
        )
        parts = Parts(options.roots, self._accelerators, options.training, options.containers)
        try:
            self.runner = Runner(
                [entry.build(parts) for entry in COLLECTORS if entry.name not in options.disabled]
            )
        except ConfigurationError:
            self._accelerators.close()
            raise

    def let_go(self) -> None:
        """Let go of the accelerators' drivers for a while; a second time, take them up again."""
        self._accelerators.let_go()

    def close(self) -> None:
        """Stop reading and end the processes that hold the drivers open."""
        self.runner.close()
        self._accelerators.close()
