"""What checks look at, read once for all of them when the first one asks."""

from __future__ import annotations

import shlex
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainvitals.doctor.interpreter import (
    Distribution,
    Interpreter,
    ask_python,
    choose_python,
    list_distributions,
)
from trainvitals.doctor.once import Once
from trainvitals.doctor.pci import PciDevice, list_pci
from trainvitals.doctor.surroundings import Surroundings, Wishes
from trainvitals.doctor.torchwheel import Torch, find_torch
from trainvitals.sources.accelerators.reading import AcceleratorReading, AcceleratorsReading
from trainvitals.sources.accelerators.settings import GpuSettings, NvidiaSettings, read_settings
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.containers.documents import Document
from trainvitals.sources.containers.engine import EngineClient, find_engine

# What a check still needs when a reading that it waited for has come.
_MARGIN_SECONDS = 0.3
_PYTHON_SECONDS = 2.5
_ENGINE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts.

    Attributes:
        wishes: What the user said.
        world: What is examined.
        deadline: When everything is to be told, by `time.monotonic`.
        pci: What is plugged in.
        accelerators: What the exporter reads of accelerators.
        settings: How NVIDIA GPUs are set up.
        interpreter: The Python that trains.
        distributions: What is installed for it.
        torch: Its PyTorch.
        engine: The container engine; None where there is none.
        engine_info: What it says of itself; None where there is none.
    """

    wishes: Wishes
    world: Surroundings
    deadline: float
    pci: Once[tuple[PciDevice, ...]]
    accelerators: Once[AcceleratorsReading]
    settings: Once[NvidiaSettings]
    interpreter: Once[Interpreter]
    distributions: Once[dict[str, Distribution]]
    torch: Once[Torch | None]
    engine: Once[EngineClient | None]
    engine_info: Once[Document | None]

    @property
    def seconds_left(self) -> float:
        """How much time a check has."""
        return max(self.deadline - time.monotonic() - _MARGIN_SECONDS, 0.1)

    @property
    def has_gpus(self) -> bool:
        """Whether there is an NVIDIA GPU, with or without a driver."""
        settings = self.settings()
        return bool(settings.driver or settings.trouble) or any(
            device.is_gpu for device in self.pci()
        )

    @property
    def has_hpus(self) -> bool:
        """Whether there is a Gaudi card, with or without a driver."""
        return any(device.is_hpu for device in self.pci()) or bool(self.list_read("hpu"))

    @property
    def is_in_container(self) -> bool:
        """Whether this runs in a container, which sees less than the machine has."""
        root = self.world.roots.rootfs
        marks = (root / ".dockerenv", root / "run/.containerenv")
        return any(mark.exists() for mark in marks) or (
            "KUBERNETES_SERVICE_HOST" in self.world.environ
        )

    def write_install(self, packages: str) -> str:
        """Write the command that installs packages for the Python that trains."""
        python = shlex.quote(str(self.interpreter().executable))
        if "pip" in self.distributions():
            return f"{python} -m pip install {packages}"
        return f"uv pip install --python {python} {packages}"

    def write_control(self, act: str, unit: str) -> str:
        """Write the command that acts on a system service here."""
        has_systemd = (self.world.roots.rootfs / "run/systemd/system").exists()
        return f"sudo systemctl {act} {unit}" if has_systemd else f"sudo service {unit} {act}"

    def list_read(self, kind: str) -> list[AcceleratorReading]:
        """Give the accelerators of a kind that a driver knows."""
        return [each for each in self.accelerators().devices if each.identity.kind == kind]

    def find_settings(self, uuid: str) -> GpuSettings | None:
        """Give how a GPU is set up; None where it did not say."""
        return next((gpu for gpu in self.settings().gpus if gpu.uuid == uuid), None)

    def run(self, *command: str) -> tuple[int, str] | None:
        """Run a program that only tells something, within the time that is left."""
        return self.world.run(command, self.seconds_left, self.world.environ)


def gather(wishes: Wishes, world: Surroundings, deadline: float) -> Facts:
    """Make ready to read; nothing is read yet."""
    interpreter = Once(partial(_ask_python, wishes, world))
    engine = Once(partial(_find_engine, wishes, world))
    return Facts(
        wishes=wishes,
        world=world,
        deadline=deadline,
        pci=Once(partial(list_pci, world.roots.sysfs)),
        accelerators=Once(partial(_read_accelerators, world, deadline)),
        settings=Once(partial(_read_settings, world, deadline)),
        interpreter=interpreter,
        distributions=Once(lambda: list_distributions(interpreter().paths)),
        torch=Once(lambda: find_torch(interpreter().paths)),
        engine=engine,
        engine_info=Once(partial(_ask_engine, engine)),
    )


def _ask_python(wishes: Wishes, world: Surroundings) -> Interpreter:
    executable = choose_python(wishes.python, world.environ)
    return ask_python(executable, world.run, world.environ, _PYTHON_SECONDS)


def _read_accelerators(world: Surroundings, deadline: float) -> AcceleratorsReading:
    source = AcceleratorSource(
        vendors=world.vendors, roots=world.roots, is_isolated=True, environ=world.environ
    )
    with closing(source):
        return source.read(deadline - _MARGIN_SECONDS)


def _read_settings(world: Surroundings, deadline: float) -> NvidiaSettings:
    nvidia = next((vendor for vendor in world.vendors if vendor.name == "nvidia"), None)
    if nvidia is None or not nvidia.is_installed():
        return NvidiaSettings(absent="library not found")
    seconds = max(deadline - time.monotonic() - _MARGIN_SECONDS, 0.1)
    return read_settings(timeout_seconds=seconds, environ=world.environ)


def _find_engine(wishes: Wishes, world: Surroundings) -> EngineClient | None:
    address = find_engine(wishes.engine, environ=world.environ, rootfs=Path("/"))
    if address is None:
        return None
    return EngineClient(address, timeout_seconds=_ENGINE_SECONDS, environ=world.environ)


def _ask_engine(engine: Once[EngineClient | None]) -> Document | None:
    client = engine()
    return None if client is None else client.info()
