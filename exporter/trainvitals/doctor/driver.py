"""Checks the NVIDIA driver: the kernel module, NVML, the device files and the fabric manager."""

from __future__ import annotations

import grp
import os
import platform
import re
import stat
from pathlib import Path

from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip
from trainvitals.sources.accelerators.pci import PciDevice
from trainvitals.sources.files import read_small, read_text

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
    """Return the version of the loaded NVIDIA kernel module; None if no module is loaded."""
    text = read_small(facts.machine.roots.procfs / "driver/nvidia/version")
    found = _VERSION.search(text or "")
    return found[1] if found else None


def _find_library_versions(root: Path) -> list[str]:
    files = [file for folder in _FOLDERS for file in (root / folder).glob("libnvidia-ml.so.*.*")]
    return sorted({file.name.partition(".so.")[2] for file in files})


def _check_module(facts: Facts) -> Finding:
    gpus = [device for device in facts.pci() if device.is_gpu]
    version = read_module_version(facts)
    if version is not None:
        return ok(f"kernel module {version} is loaded")
    settings = facts.settings()
    if settings.driver:  # under WSL, the driver has no kernel module
        return ok(f"driver {settings.driver} responds")
    if not gpus:
        return skip("NVML reports an error" if settings.trouble else _NO_GPU)
    return _explain_absence(gpus, facts)


def _explain_absence(gpus: list[PciDevice], facts: Facts) -> Finding:
    what = f"no driver is loaded for {_count(len(gpus))}"
    if any(device.driver == "nouveau" for device in gpus):
        return fail(
            f"{what}: they use nouveau, which cannot run CUDA",
            "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/nouveau.conf"
            " && sudo update-initramfs -u && sudo reboot",
            advice="install NVIDIA's driver first: `sudo ubuntu-drivers install`",
        )
    if facts.is_in_container:
        return fail(
            f"{what}, as seen from this container", "sudo modprobe nvidia", advice="on the host"
        )
    release = platform.release()
    if "/nvidia.ko" in read_text(facts.machine.roots.rootfs / f"lib/modules/{release}/modules.dep"):
        return fail(
            what, "sudo modprobe nvidia", advice="if that fails: `sudo dmesg | grep -i nvidia`"
        )
    return fail(
        f"{what}: none is built for the running kernel {release}",
        f"sudo apt-get install -y linux-headers-{release} && sudo dkms autoinstall"
        " && sudo modprobe nvidia",
        advice="if no driver was installed before: `sudo ubuntu-drivers install`",
    )


def _count(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"


def _check_library(facts: Facts) -> Finding:
    module = read_module_version(facts)
    settings = facts.settings()
    if settings.driver and not settings.trouble:
        cuda = f", CUDA up to {settings.cuda[0]}.{settings.cuda[1]}" if settings.cuda else ""
        return ok(f"NVML responds: driver {settings.driver}{cuda}")
    if module is None and not settings.trouble:
        return skip("no NVIDIA kernel module is loaded")
    if "NVML_ERROR_LIB_RM_VERSION_MISMATCH" in settings.trouble:
        there = ", ".join(_find_library_versions(facts.machine.roots.rootfs))
        versions = f" (module {module}, library {there})" if module and there else ""
        return fail(
            f"the loaded kernel module and the installed library differ{versions}: the driver was "
            "upgraded and not reloaded",
            "sudo reboot",
            advice="or, if nothing uses a GPU: `sudo rmmod nvidia_uvm nvidia_drm "
            "nvidia_modeset nvidia && sudo modprobe nvidia`",
        )
    if module is not None and settings.absent == "library not found":
        if facts.is_in_container:
            return fail(
                f"the kernel module {module} is loaded, but libnvidia-ml.so.1 is not in this "
                "container",
                "docker run --gpus all …",
                advice="start the container with GPUs",
            )
        major = module.partition(".")[0]
        return fail(
            f"the kernel module {module} is loaded, but there is no libnvidia-ml.so.1",
            f"sudo apt-get install -y libnvidia-compute-{major} nvidia-utils-{major}",
        )
    trouble = settings.trouble or settings.absent
    return fail(
        f"NVML: {trouble}",
        "sudo dmesg | grep -iE 'nvrm|xid' | tail",
        advice="the kernel log has details",
    )


def _check_files(facts: Facts) -> Finding:
    if read_module_version(facts) is None:
        return skip("no NVIDIA kernel module is loaded")
    folder = facts.machine.roots.rootfs / "dev"
    gpus = sorted(file for file in folder.glob("nvidia[0-9]*"))
    files = [folder / "nvidiactl", folder / "nvidia-uvm", *gpus]
    missing = [file.name for file in files if not file.exists()]
    if missing or not gpus:
        names = ", ".join(f"/dev/{name}" for name in missing or ["nvidia0"])
        if facts.is_in_container:
            return fail(f"missing: {names}", "docker run --gpus all …")
        return fail(f"missing: {names}", "sudo nvidia-modprobe -c 0 -u")
    closed = [file for file in files if not _may_use(file, facts.machine.user)]
    if not closed:
        names = ", ".join(file.name for file in files)
        return ok(f"this user may open {names}")
    names = ", ".join(f"/dev/{file.name}" for file in closed)
    return fail(f"this user may not open {names}", _write_access_command(closed[0]))


def _may_use(file: Path, user: int) -> bool:
    return user == 0 or os.access(file, os.R_OK | os.W_OK, effective_ids=True)


def _write_access_command(file: Path) -> str:
    status = file.stat()
    if stat.S_IMODE(status.st_mode) >> 3 & _READ_WRITE == _READ_WRITE and status.st_gid != 0:
        try:
            group = grp.getgrgid(status.st_gid).gr_name
        except KeyError:
            group = str(status.st_gid)
        return f'sudo usermod --append --groups {group} "$USER" && newgrp {group}'
    return "sudo chmod 0666 /dev/nvidia*"


def _check_fabric(facts: Facts) -> Finding:
    if not any(device.is_switch for device in facts.pci()):
        return skip("no NVSwitch here")
    if read_module_version(facts) is None:
        return skip("no NVIDIA kernel module is loaded")
    if facts.is_in_container:
        return skip("the fabric manager runs on the host, which cannot be seen from this container")
    if _runs(facts.machine.roots.procfs, "nv-fabricmanage"):
        return ok("nv-fabricmanager is running")
    return fail(
        "nv-fabricmanager does not run, and there are NVSwitches",
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
        "GPUs without a loaded kernel module, or with nouveau",
        'CUDA says "Found no NVIDIA driver on your system"',
        _check_module,
        on_timeout="problem",
    ),
    Check(
        "nvidia-library",
        _SUBJECT,
        "an NVML that is missing, fails, or has another version than the kernel module",
        'nvidia-smi and CUDA say "Driver/library version mismatch" until both are the same',
        _check_library,
        on_timeout="problem",
    ),
    Check(
        "nvidia-files",
        _SUBJECT,
        "device files in `/dev` that are missing, or that this user may not open",
        'CUDA sees no GPU, or says "unknown error" (999) without nvidia-uvm',
        _check_files,
    ),
    Check(
        "fabric-manager",
        _SUBJECT,
        "NVSwitches without a running fabric manager",
        'CUDA says "system not yet initialized" (802) on every GPU',
        _check_fabric,
    ),
)
