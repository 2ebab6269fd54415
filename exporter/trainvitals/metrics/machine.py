"""The collectors of the machine, and the runner that calls the collectors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainvitals.errors import ConfigurationError
from trainvitals.metrics.collectors import COLLECTORS, Parts
from trainvitals.metrics.runner import Runner
from trainvitals.sources.accelerators.reading import Kind
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.source import ContainerOptions
from trainvitals.sources.files import Roots
from trainvitals.sources.runs.source import TrainingOptions


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """The options that determine what is read from a machine, and from which paths.

    Attributes:
        roots: The root directories of the file systems to read.
        disabled: The names of the collectors that are turned off.
        expected: The expected number of accelerators of each kind.
        is_isolated: Whether accelerator drivers are opened in child processes from the start.
        memory_limit_bytes: The memory limit for each accelerator, in bytes; None if no limit is
            configured.
        temperature_limit_celsius: The temperature limit for each accelerator, in degrees Celsius;
            None if no limit is configured.
        training: The directories and files in which training runs are found.
        containers: The container engine and the settings for watching containers.
        complain: A function that returns why the web configuration file's content is not in force;
            None if the content is in force.
        thresholds: The path of the thresholds file; None if the file in force is used.
    """

    roots: Roots = field(default_factory=Roots)
    disabled: Collection[str] = ()
    expected: Mapping[Kind, int] = field(default_factory=dict)
    is_isolated: bool = False
    memory_limit_bytes: int | None = None
    temperature_limit_celsius: float | None = None
    training: TrainingOptions = field(default_factory=TrainingOptions)
    containers: ContainerOptions = field(default_factory=ContainerOptions)
    complain: Callable[[], str | None] = lambda: None
    thresholds: Path | None = None


class Machine:
    """The machine's collectors and the runner that calls the collectors.

    The constructor starts to open the accelerator drivers, without waiting until they are open.

    Args:
        options: The options of the machine; None means the default options.

    Attributes:
        runner: The runner that calls the collectors.
        expected: The expected number of accelerators of each kind.

    Raises:
        ConfigurationError: A disabled collector does not exist, or the pattern file for training
            logs is invalid.
    """

    def __init__(self, options: MachineOptions | None = None) -> None:
        options = options or MachineOptions()
        names = [entry.name for entry in COLLECTORS]
        for name in options.disabled:
            if name not in names:
                raise ConfigurationError(f"no collector {name}; there are {', '.join(names)}")
        vendors_off = "accelerator" in options.disabled
        self._reloads = 0
        self.expected = dict(options.expected)
        self._accelerators = (
            AcceleratorSource(vendors=(), roots=options.roots)
            if vendors_off
            else AcceleratorSource(
                expected=options.expected,
                memory_limit_bytes=options.memory_limit_bytes,
                temperature_limit_celsius=options.temperature_limit_celsius,
                roots=options.roots,
                is_isolated=options.is_isolated,
            )
        )
        parts = Parts(
            options.roots,
            self._accelerators,
            options.training,
            options.containers,
            options.complain,
            lambda: self._reloads,
            options.thresholds,
        )
        try:
            self.runner = Runner(
                [entry.build(parts) for entry in COLLECTORS if entry.name not in options.disabled]
            )
        except ConfigurationError:
            self._accelerators.close()
            raise

    def release(self) -> None:
        """Release the accelerator drivers for one minute, or reopen released drivers."""
        self._accelerators.release()

    def reload(self) -> None:
        """Make the collectors reload their pattern and baseline files."""
        self._reloads += 1

    def close(self) -> None:
        """Stop the runner, and terminate the child processes that use the accelerator drivers."""
        self.runner.close()
        self._accelerators.close()
