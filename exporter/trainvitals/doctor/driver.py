"""Whether NVIDIA's driver is loaded, whole, and open to this user."""

from __future__ import annotations

import grp
import os
import platform
import re
import stat
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over
from trainvitals.doctor.pci import PciDevice
from trainvitals.sources.files import read_small

_VERSION = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")
_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
)
_NO_GPU = "no NVIDIA GPU here"
_READ_WRITE = 6


def read_module_version(facts: Facts) -> str | None:
    """Give the version of the loaded kernel module; None where none is loaded."""
    text = read_small(facts.world.roots.procfs / "driver/nvidia/version")
    found = _VERSION.search(text or "")
    return found[1] if found else None


def _find_library_versions(root: Path) -> list[str]:
    files = [file for folder in _FOLDERS for file in (root / folder).glob("libnvidia-ml.so.*.*")]
    return sorted({file.name.partition(".so.")[2] for file in files})


def _examine_module(facts: Facts) -> Finding:
    gpus = [device for device in facts.pci() if device.is_gpu]
    version = read_module_version(facts)
    if version is not None:
        return approve(f"kernel module {version} is loaded")
    settings = facts.settings()
    if settings.driver:  # in a virtual machine of Windows there is no module to see
        return approve(f"driver {settings.driver} answers")
    if not gpus:
        return pass_over("the library refuses" if settings.trouble else _NO_GPU)
    return _explain_absence(gpus, facts)


def _explain_absence(gpus: list[PciDevice], facts: Facts) -> Finding:
    what = f"no driver is loaded for {_count(len(gpus))}"
    if any(device.driver == "nouveau" for device in gpus):
        return complain(
            f"{what}: nouveau, which cannot run CUDA, holds it",
            "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/nouveau.conf"
            " && sudo update-initramfs -u && sudo reboot",
            advice="install NVIDIA's driver first: `sudo ubuntu-drivers install`",
        )
    if facts.is_in_container:
        return complain(
            f"{what}, as seen from in this container", "sudo modprobe nvidia", advice="on the host"
        )
    release = platform.release()
    if "/nvidia.ko" in _read(facts.world.roots.rootfs / f"lib/modules/{release}/modules.dep"):
        return complain(
            what, "sudo modprobe nvidia", advice="if that is refused: `sudo dmesg | grep -i nvidia`"
        )
    return complain(
        f"{what}: none is built for the running kernel {release}",
        f"sudo apt-get install -y linux-headers-{release} && sudo dkms autoinstall"
        " && sudo modprobe nvidia",
        advice="where no driver was ever installed: `sudo ubuntu-drivers install`",
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"


def _examine_library(facts: Facts) -> Finding:
    module = read_module_version(facts)
    settings = facts.settings()
    if settings.driver and not settings.trouble:
        cuda = f", CUDA up to {settings.cuda[0]}.{settings.cuda[1]}" if settings.cuda else ""
        return approve(f"NVML answers: driver {settings.driver}{cuda}")
    if module is None and not settings.trouble:
        return pass_over("no NVIDIA kernel module is loaded")
    if "NVML_ERROR_LIB_RM_VERSION_MISMATCH" in settings.trouble:
        there = ", ".join(_find_library_versions(facts.world.roots.rootfs))
        versions = f" (module {module}, library {there})" if module and there else ""
        return complain(
            f"the loaded kernel module and the library on disk differ{versions}: the driver was "
            "upgraded, and not loaded anew",
            "sudo reboot",
            advice="or, where nothing uses a GPU, `sudo rmmod nvidia_uvm nvidia_drm "
            "nvidia_modeset nvidia && sudo modprobe nvidia`",
        )
    if module is not None and settings.absent == "library not found":
        if facts.is_in_container:
            return complain(
                f"the kernel module {module} is loaded, and libnvidia-ml.so.1 is not in this "
                "container",
                "docker run --gpus all …",
                advice="start the container with GPUs",
            )
        major = module.partition(".")[0]
        return complain(
            f"the kernel module {module} is loaded, and there is no libnvidia-ml.so.1",
            f"sudo apt-get install -y libnvidia-compute-{major} nvidia-utils-{major}",
        )
    trouble = settings.trouble or settings.absent
    return complain(
        f"NVML: {trouble}", "sudo dmesg | grep -iE 'nvrm|xid' | tail", advice="it says more"
    )


def _examine_files(facts: Facts) -> Finding:
    if read_module_version(facts) is None:
        return pass_over("no NVIDIA kernel module is loaded")
    folder = facts.world.roots.rootfs / "dev"
    gpus = sorted(file for file in folder.glob("nvidia[0-9]*"))
    files = [folder / "nvidiactl", folder / "nvidia-uvm", *gpus]
    missing = [file.name for file in files if not file.exists()]
    if missing or not gpus:
        names = ", ".join(f"/dev/{name}" for name in missing or ["nvidia0"])
        if facts.is_in_container:
            return complain(f"{names} is missing", "docker run --gpus all …")
        return complain(f"{names} is missing", "sudo nvidia-modprobe -c 0 -u")
    closed = [file for file in files if not _may_use(file, facts.world.user)]
    if not closed:
        names = ", ".join(file.name for file in files)
        return approve(f"{names} may be opened")
    names = ", ".join(f"/dev/{file.name}" for file in closed)
    return complain(f"this user may not open {names}", _let_in(closed[0]))


def _may_use(file: Path, user: int) -> bool:
    return user == 0 or os.access(file, os.R_OK | os.W_OK, effective_ids=True)


def _let_in(file: Path) -> str:
    status = file.stat()
    if stat.S_IMODE(status.st_mode) >> 3 & _READ_WRITE == _READ_WRITE and status.st_gid != 0:
        try:
            group = grp.getgrgid(status.st_gid).gr_name
        except KeyError:
            group = str(status.st_gid)
        return f'sudo usermod --append --groups {group} "$USER" && newgrp {group}'
    return "sudo chmod 0666 /dev/nvidia*"


def _examine_fabric(facts: Facts) -> Finding:
    if not any(device.is_switch for device in facts.pci()):
        return pass_over("no NVSwitch here")
    if read_module_version(facts) is None:
        return pass_over("no NVIDIA kernel module is loaded")
    if facts.is_in_container:
        return pass_over("the fabric manager runs on the host, which this container does not see")
    if _runs(facts.world.roots.procfs, "nv-fabricmanage"):
        return approve("nv-fabricmanager runs")
    return complain(
        "there are NVSwitches, and nv-fabricmanager does not run",
        "sudo systemctl enable --now nvidia-fabricmanager",
        advice="its version must be the driver's: "
        f"`sudo apt-get install nvidia-fabricmanager-{_major(facts)}`",
    )


def _major(facts: Facts) -> str:
    return (read_module_version(facts) or "").partition(".")[0]


def _runs(procfs: Path, name: str) -> bool:
    return any((read_small(file) or "").strip() == name for file in procfs.glob("[0-9]*/comm"))


_SUBJECT = "driver"
CHECKS = (
    Check(
        "nvidia-driver",
        _SUBJECT,
        "GPUs without a loaded kernel module, or held by nouveau",
        'CUDA says "Found no NVIDIA driver on your system"',
        _examine_module,
        silence="problem",
    ),
    Check(
        "nvidia-library",
        _SUBJECT,
        "an NVML that is missing, refuses, or is of another version than the kernel module",
        'nvidia-smi and CUDA say "Driver/library version mismatch" until both are the same',
        _examine_library,
        silence="problem",
    ),
    Check(
        "nvidia-files",
        _SUBJECT,
        "device files in `/dev` that are missing or closed to this user",
        'CUDA sees no GPU, or says "unknown error" (999) without nvidia-uvm',
        _examine_files,
    ),
    Check(
        "fabric-manager",
        _SUBJECT,
        "NVSwitches without a running fabric manager",
        'CUDA says "system not yet initialized" (802) on every GPU',
        _examine_fabric,
    ),
)
