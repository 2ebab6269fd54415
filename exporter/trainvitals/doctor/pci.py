"""The accelerators that are plugged in, whether or not a driver knows them, from `/sys/bus/pci`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NVIDIA = 0x10DE
HABANA = 0x1DA3
_DISPLAYS = frozenset({0x0300, 0x0302})  # a VGA and a 3D controller
_PROCESSOR = 0x1200
_BRIDGE = 0x0680


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One device.

    Attributes:
        address: Its PCI address.
        vendor: Its vendor's number.
        category: Class and subclass.
        driver: The kernel driver that holds it; empty for none.
    """

    address: str
    vendor: int
    category: int
    driver: str

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU of NVIDIA's that is not lent to a virtual machine."""
        is_one = self.vendor == NVIDIA and self.category in _DISPLAYS
        return is_one and self.driver != "vfio-pci"

    @property
    def is_hpu(self) -> bool:
        """Whether it is a Gaudi card that is not lent to a virtual machine."""
        is_one = self.vendor == HABANA and self.category == _PROCESSOR
        return is_one and self.driver != "vfio-pci"

    @property
    def is_switch(self) -> bool:
        """Whether it is an NVSwitch."""
        return self.vendor == NVIDIA and self.category == _BRIDGE


def list_pci(sysfs: Path) -> tuple[PciDevice, ...]:
    """List the devices; nothing where there is no PCI bus to see."""
    try:
        folders = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return ()
    return tuple(device for folder in folders if (device := _read(folder)) is not None)


def _read(folder: Path) -> PciDevice | None:
    try:
        vendor = int((folder / "vendor").read_text(encoding="ascii"), 16)
        category = int((folder / "class").read_text(encoding="ascii"), 16) >> 8
    except (OSError, ValueError):  # it was pulled, or is no device
        return None
    driver = folder / "driver"
    return PciDevice(
        folder.name, vendor, category, driver.resolve().name if driver.exists() else ""
    )
