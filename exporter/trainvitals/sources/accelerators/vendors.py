"""The vendors whose devices can be read.

To add a vendor, write a function that opens a `Session` in a new file in the directory of
`nvidia.py`, and add an entry to `VENDORS`.
"""

from __future__ import annotations

import ctypes
import os

from trainvitals.sources.accelerators.hlml import LIBRARIES as HABANA_LIBRARIES
from trainvitals.sources.accelerators.reader import Opener
from trainvitals.sources.accelerators.vendor import Vendor


def can_load(library: str) -> bool:
    """Return whether the loader can load a library, and unload the library again."""
    try:
        handle = ctypes.CDLL(library)._handle  # noqa: SLF001 - ctypes has no public way to unload
    except OSError:
        return False
    from _ctypes import dlclose  # noqa: PLC0415 - imported only where it is used

    dlclose(handle)
    return True


def _is_nvidia_installed() -> bool:
    return can_load("libnvidia-ml.so.1")


def _is_habana_installed() -> bool:
    if any(os.path.exists(f"{folder}/hl-smi") for folder in os.get_exec_path()):  # noqa: PTH110 - once a minute, for each folder of PATH
        return True
    return any(can_load(library) for library in HABANA_LIBRARIES)


VENDORS: tuple[Vendor, ...] = (
    Vendor(
        name="nvidia",
        kind="gpu",
        opener=Opener("trainvitals.sources.accelerators.nvidia", "open_nvidia"),
        is_installed=_is_nvidia_installed,
        traces=("proc/driver/nvidia/version", "sys/bus/pci/drivers/nvidia"),
    ),
    Vendor(
        name="habana",
        kind="hpu",
        opener=Opener("trainvitals.sources.accelerators.habana", "open_habana"),
        is_installed=_is_habana_installed,
        traces=("sys/bus/pci/drivers/habanalabs", "sys/class/accel"),
        is_isolated=True,  # the library prints, and leaks memory with every temperature reading
    ),
)
