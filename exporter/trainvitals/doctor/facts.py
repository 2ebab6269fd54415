"""The facts about a machine that checks use; a fact is read on first use, and only once."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from trainvitals.doctor.interpreter import (
    Distribution,
    Interpreter,
    choose_python,
    inspect_python,
    list_distributions,
)
from trainvitals.doctor.lastrun import LastRun, find_last_run
from trainvitals.doctor.machine import Machine, Options
from trainvitals.doctor.torchwheel import Torch, find_torch
from trainvitals.sources.accelerators.limits import (
    TEMPERATURE_LIMIT_VARIABLE,
    parse_temperature_limit,
)
from trainvitals.sources.accelerators.pci import PciDevice, list_pci
from trainvitals.sources.accelerators.reading import AcceleratorReading, AcceleratorsReading
from trainvitals.sources.accelerators.settings import NvidiaSettings, read_settings
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.address import find_engine
from trainvitals.sources.containers.documents import Document
from trainvitals.sources.containers.engine import EngineClient
from trainvitals.sources.host.filesystem import FilesystemReading, FilesystemSource
from trainvitals.sources.host.kernel import KernelReading, KernelSource
from trainvitals.sources.host.memory import MemoryReading, read_memory
from trainvitals.verdicts.accelerators import Work
from trainvitals.verdicts.machine import Alerts, Past, judge_machine
from trainvitals.verdicts.thresholds import Thresholds, find_thresholds, read_thresholds
from trainvitals.verdicts.trouble import Trouble
from trainvitals.workers import Outcome, attempt

# The time in seconds that a check needs after a reading.
_MARGIN_SECONDS = 0.3
_PYTHON_SECONDS = 2.5
_ENGINE_SECONDS = 1.0
_FILESYSTEM_SECONDS = 0.5

Fact = TypeVar("Fact")


class Once(Generic[Fact]):
    """A thread-safe lazy value: the first call reads the value while concurrent callers wait.

    Args:
        read: Returns the value; if this function raises an exception, every call raises the
            exception.
    """

    def __init__(self, read: Callable[[], Fact]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._outcome: Outcome[Fact] | None = None

    def __call__(self) -> Fact:
        """Return the value; the first call reads the value."""
        with self._lock:
            if self._outcome is None:
                self._outcome = attempt("", self._read)
        if self._outcome.error is not None:
            raise self._outcome.error
        return self._outcome.value  # type: ignore[return-value]  # without an error, a value exists


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a machine that checks use.

    Attributes:
        options: The user's options for the checks.
        machine: The machine that is checked.
        deadline: The time at which all checks must have finished, on the clock `time.monotonic`.
        pci: The accelerators on the PCI bus.
        accelerators: The accelerator readings, from the exporter's readers.
        device_troubles: The accelerators' troubles, the worst first, judged as if all accelerators
            were busy.
        settings: The NVIDIA GPU settings.
        filesystems: The file systems that contain data.
        memory: The state of the machine's memory.
        kernel: The state of the machine's clock according to the kernel.
        last_run: The training run that was last seen; None if no run was seen.
        interpreter: The run's Python interpreter.
        distributions: The packages that are installed for the run's interpreter, by normalized
            name.
        torch: The PyTorch that the run's interpreter would import; None if PyTorch is not
            installed.
        engine: The container engine; None if no engine was found.
        engine_info: The container engine's response to `/info`; None if no engine was found.
        thresholds: The thresholds of the alert rules.
    """

    options: Options
    machine: Machine
    deadline: float
    pci: Once[tuple[PciDevice, ...]]
    accelerators: Once[AcceleratorsReading]
    device_troubles: Once[tuple[Trouble, ...]]
    settings: Once[NvidiaSettings]
    filesystems: Once[FilesystemReading]
    memory: Once[MemoryReading]
    kernel: Once[KernelReading]
    last_run: Once[LastRun | None]
    interpreter: Once[Interpreter]
    distributions: Once[dict[str, Distribution]]
    torch: Once[Torch | None]
    engine: Once[EngineClient | None]
    engine_info: Once[Document | None]
    thresholds: Once[Thresholds]

    @property
    def seconds_left(self) -> float:
        """The time until the deadline of the checks, in seconds."""
        return max(self.deadline - time.monotonic() - _MARGIN_SECONDS, 0.1)

    @property
    def has_gpus(self) -> bool:
        """Whether an NVIDIA GPU is present, with or without a driver."""
        settings = self.settings()
        return bool(settings.driver or settings.trouble) or any(
            device.is_gpu for device in self.pci()
        )

    @property
    def has_hpus(self) -> bool:
        """Whether a Gaudi card is present, with or without a driver."""
        return any(device.is_hpu for device in self.pci()) or bool(self.list_accelerators("hpu"))

    @property
    def is_in_container(self) -> bool:
        """Whether this process is in a container, where only part of the machine is visible."""
        root = self.machine.roots.rootfs
        markers = (root / ".dockerenv", root / "run/.containerenv")
        return any(marker.exists() for marker in markers) or (
            "KUBERNETES_SERVICE_HOST" in self.machine.environ
        )

    def write_install_command(self, packages: str) -> str:
        """Return the command that installs packages for the run's interpreter."""
        python = shlex.quote(str(self.interpreter().executable))
        if "pip" in self.distributions():
            return f"{python} -m pip install {packages}"
        return f"uv pip install --python {python} {packages}"

    def write_service_command(self, action: str, unit: str) -> str:
        """Return the command that performs an action such as `restart` on a system service."""
        has_systemd = (self.machine.roots.rootfs / "run/systemd/system").exists()
        return f"sudo systemctl {action} {unit}" if has_systemd else f"sudo service {unit} {action}"

    def list_accelerators(self, kind: str) -> list[AcceleratorReading]:
        """Return the readings of all accelerators of one kind."""
        return [each for each in self.accelerators().devices if each.identity.kind == kind]

    def find_troubles(self, alerts: Sequence[str]) -> tuple[Trouble, ...]:
        """Return the accelerator troubles that the specified alerts report, the worst first."""
        return tuple(each for each in self.device_troubles() if each.alert in alerts)

    def run(self, *command: str) -> tuple[int, str] | None:
        """Run a read-only program; return None if it does not start or does not finish in time."""
        return self.machine.run(command, self.seconds_left, self.machine.environ)


def gather(options: Options, machine: Machine, deadline: float) -> Facts:
    """Return the facts about a machine; a fact is read when it is first used."""
    last_run = Once(partial(find_last_run, machine))
    interpreter = Once(partial(_inspect_python, options, machine, last_run))
    engine = Once(partial(_find_engine, options, machine))
    accelerators = Once(partial(_read_accelerators, machine, deadline))
    thresholds = Once(lambda: read_thresholds(find_thresholds(machine.environ)))
    return Facts(
        options=options,
        machine=machine,
        deadline=deadline,
        pci=Once(partial(list_pci, machine.roots.sysfs)),
        accelerators=accelerators,
        device_troubles=Once(
            lambda: judge_devices(accelerators(), thresholds(), now=machine.clock())
        ),
        settings=Once(partial(_read_settings, machine, deadline)),
        filesystems=Once(partial(_read_filesystems, machine, deadline)),
        memory=Once(partial(read_memory, machine.roots)),
        kernel=Once(partial(_read_kernel, machine)),
        last_run=last_run,
        interpreter=interpreter,
        distributions=Once(lambda: list_distributions(interpreter().paths)),
        torch=Once(lambda: find_torch(interpreter().paths)),
        engine=engine,
        engine_info=Once(partial(_read_engine_info, engine)),
        thresholds=thresholds,
    )


def judge_devices(
    reading: AcceleratorsReading, thresholds: Thresholds, *, now: float
) -> tuple[Trouble, ...]:
    """Return the problems of the accelerators, the worst first, as if all accelerators were busy.

    The PCIe lanes are checked only on a busy accelerator. Every accelerator counts as busy here, so
    that missing PCIe lanes are found before a run, while the accelerators are still idle.
    """
    past = Past({each.identity.uuid: Work(busy_percent=100.0) for each in reading.devices})
    return judge_machine((), {"accelerator": reading}, past, thresholds, now, Alerts()).troubles


def _read_filesystems(machine: Machine, deadline: float) -> FilesystemReading:
    with closing(FilesystemSource(roots=machine.roots, statvfs=machine.statvfs)) as source:
        return source.read(min(deadline, time.monotonic() + _FILESYSTEM_SECONDS))


def _read_kernel(machine: Machine) -> KernelReading:
    with closing(
        KernelSource(roots=machine.roots, clock=machine.clock, adjtimex=machine.adjtimex)
    ) as source:
        return source.read()


def _inspect_python(
    options: Options, machine: Machine, last_run: Once[LastRun | None]
) -> Interpreter:
    executable, origin = choose_python(options.python, machine.environ, last_run)
    return inspect_python(executable, machine.run, machine.environ, _PYTHON_SECONDS, origin=origin)


def _read_accelerators(machine: Machine, deadline: float) -> AcceleratorsReading:
    source = AcceleratorSource(
        vendors=machine.vendors,
        temperature_limit_celsius=parse_temperature_limit(
            machine.environ.get(TEMPERATURE_LIMIT_VARIABLE, "")
        ),
        roots=machine.roots,
        is_isolated=True,
        environ=machine.environ,
    )
    with closing(source):
        return source.read(deadline - _MARGIN_SECONDS)


def _read_settings(machine: Machine, deadline: float) -> NvidiaSettings:
    nvidia = next((vendor for vendor in machine.vendors if vendor.name == "nvidia"), None)
    if nvidia is None or not nvidia.is_installed():
        return NvidiaSettings(absent="library not found")
    seconds = max(deadline - time.monotonic() - _MARGIN_SECONDS, 0.1)
    return read_settings(timeout_seconds=seconds, environ=machine.environ)


def _find_engine(options: Options, machine: Machine) -> EngineClient | None:
    address = find_engine(options.engine, environ=machine.environ, rootfs=Path("/"))
    if address is None:
        return None
    return EngineClient(address, timeout_seconds=_ENGINE_SECONDS, environ=machine.environ)


def _read_engine_info(engine: Once[EngineClient | None]) -> Document | None:
    client = engine()
    return None if client is None else client.info()
