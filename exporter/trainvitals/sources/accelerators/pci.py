"""Lists the installed accelerators, with or without a driver, from `/sys/bus/pci`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.sources.files import read_small

NVIDIA = 0x10DE
HABANA = 0x1DA3
_DISPLAYS = frozenset({0x0300, 0x0302})  # a VGA and a 3D controller
_PROCESSOR = 0x1200
_BRIDGE = 0x0680


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A PCI device.

    Attributes:
        address: The device's PCI address.
        vendor: The device's PCI vendor ID.
        category: The device's class and subclass, which are the upper 16 bits of the file `class`.
        driver: The kernel driver that the device is bound to; empty if no driver is bound.
    """

    address: str
    vendor: int
    category: int
    driver: str

    @property
    def is_gpu(self) -> bool:
        """Whether the device is an NVIDIA GPU that is not passed through to a virtual machine."""
        is_one = self.vendor == NVIDIA and self.category in _DISPLAYS
        return is_one and self.driver != "vfio-pci"

    @property
    def is_hpu(self) -> bool:
        """Whether the device is a Gaudi card that is not passed through to a virtual machine."""
        is_one = self.vendor == HABANA and self.category == _PROCESSOR
        return is_one and self.driver != "vfio-pci"

    @property
    def is_switch(self) -> bool:
        """Whether the device is an NVSwitch."""
        return self.vendor == NVIDIA and self.category == _BRIDGE


@dataclass(frozen=True, slots=True)
class Ports:
    """The network ports of an accelerator.

    Attributes:
        count: The number of network ports.
        up: The number of network ports with a link.
    """

    count: int
    up: int


def count_ports(sysfs: Path, address: str) -> Ports | None:
    """Count a PCI device's network ports; return None if the device has no network ports.

    The Gaudi driver creates a network interface for each port. Habana's script
    `manage_network_ifs.sh --status` counts the ports in the same way.
    """
    try:
        folders = list((sysfs / "bus/pci/devices" / address.lower() / "net").iterdir())
    except OSError:
        return None
    states = [(read_small(folder / "operstate") or "").strip() for folder in folders]
    return Ports(len(states), states.count("up")) if states else None


def list_pci(sysfs: Path) -> tuple[PciDevice, ...]:
    """Return the machine's PCI devices; empty if the machine has no PCI bus."""
    try:
        folders = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return ()
    return tuple(device for folder in folders if (device := _read(folder)) is not None)


def _read(folder: Path) -> PciDevice | None:
    try:
        vendor = int((folder / "vendor").read_text(encoding="ascii"), 16)
        category = int((folder / "class").read_text(encoding="ascii"), 16) >> 8
    except (OSError, ValueError):  # the device was just removed
        return None
    driver = folder / "driver"
    return PciDevice(
        folder.name, vendor, category, driver.resolve().name if driver.exists() else ""
    )
