"""Reads PyTorch's CUDA version and GPU architectures from the installed files.

`torch/version.py` contains the versions of PyTorch, CUDA and HIP. The GPU architectures for which
PyTorch contains kernels are compiled into `torch/lib/libtorch_python.so` as one string, such as
`sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90`. `torch.cuda.get_arch_list()` splits this string.
Importing torch instead would take seconds and open the driver.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from pathlib import Path

from trainvitals.foreign_files import open_named, read_regular

_VERSION = re.compile(r"^__version__\s*=\s*'([^']+)'", re.MULTILINE)
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*'([^']+)'", re.MULTILINE)
_HIP = re.compile(r"^hip\b[^=\n]*=\s*'([^']+)'", re.MULTILINE)
_NAME = rb"(?:sm|compute)_[0-9]{2,3}[a-z]?"
_NAMES = re.compile(rb"\0(" + _NAME + rb"(?: " + _NAME + rb")*)\0")
_ARCHITECTURE = re.compile(r"(sm|compute)_([0-9]{1,9})([0-9])([a-z]?)")
_MOST_BYTES = 1 << 16
_BEFORE_BYTES, _BEHIND_BYTES = 64, 1024


@dataclass(frozen=True, slots=True)
class Torch:
    """An installation of PyTorch.

    Attributes:
        folder: The directory of the package `torch`.
        version: The PyTorch version, such as `2.6.0+cu124`.
        cuda: The CUDA version with which PyTorch was built, such as `12.4`; None for a build
            without CUDA.
        hip: The HIP version with which PyTorch was built; None for a build without HIP.
        architectures: The GPU architectures for which PyTorch contains kernels, such as `sm_90`;
            empty if the architectures are unknown.
    """

    folder: Path
    version: str
    cuda: str | None
    hip: str | None
    architectures: tuple[str, ...]


def find_torch(paths: tuple[Path, ...]) -> Torch | None:
    """Return the PyTorch that would be imported; None if PyTorch is not installed."""
    for path in paths:
        try:
            text = read_regular(path / "torch/version.py", _MOST_BYTES).decode(errors="replace")
        except OSError:
            continue
        cuda = _CUDA.search(text)
        hip = _HIP.search(text)
        version = _VERSION.search(text)
        return Torch(
            folder=path / "torch",
            version=version[1] if version else "",
            cuda=cuda[1] if cuda else None,
            hip=hip[1] if hip else None,
            architectures=_find_architectures(path / "torch") if cuda else (),
        )
    return None


def _find_architectures(folder: Path) -> tuple[str, ...]:
    try:
        with (
            open_named(folder / "lib/libtorch_python.so") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _search(data)
    except (OSError, ValueError):  # ValueError: the file is empty
        return ()


def _search(data: mmap.mmap) -> tuple[str, ...]:
    at = data.find(b"sm_")
    while at >= 0:
        found = _NAMES.search(data, max(at - _BEFORE_BYTES, 0), at + _BEHIND_BYTES)
        if found is not None:
            return tuple(found[1].decode("ascii").split())
        at = data.find(b"sm_", at + _BEHIND_BYTES // 2)
    return ()


def can_run(architectures: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Return whether a GPU with a compute capability can run kernels for one of the architectures.

    A kernel for compute capability 8.0 runs on 8.6 but not on 9.0. PTX (`compute_90`) is compiled
    at load time and therefore runs on every newer GPU. A kernel for an architecture with the suffix
    `a` runs only on that architecture. A kernel for an architecture with the suffix `f` runs only
    on the family of that architecture.
    """
    return any(_fits(architecture, capability) for architecture in architectures)


def _fits(architecture: str, capability: tuple[int, int]) -> bool:
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None:
        return False
    built = (int(found[2]), int(found[3]))
    if found[4] == "a":
        return built == capability
    if found[1] == "compute" and not found[4]:
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]
