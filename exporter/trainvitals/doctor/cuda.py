"""Checks whether the installed PyTorch works with the GPUs and the driver of this machine.

A driver with at least the version listed below runs programs that were built with any minor version
of the CUDA release (docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility).
"""

from __future__ import annotations

import re
from pathlib import Path

from trainvitals.doctor.driver import read_module_version
from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, fail, ok, skip, warn
from trainvitals.doctor.interpreter import normalize_name
from trainvitals.doctor.requirements import find_unmet, list_unmet
from trainvitals.doctor.torchwheel import can_run
from trainvitals.foreign_numbers import read_digits

# The oldest driver version for each major version of CUDA.
OLDEST_DRIVERS = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
_OLDEST_TORCH = (2, 6)
# The last driver branch that supports GPUs older than Turing. This branch is new enough for every
# CUDA version listed above.
_NEWER_DRIVER = "sudo apt-get install -y nvidia-driver-580-server && sudo reboot"
_NVCC = re.compile(r"release (\d{1,9})\.(\d{1,9})")
_NO_TORCH = "this Python has no PyTorch"
_NO_GPU = "no NVIDIA GPU here"


def _parse(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d{1,9}", text.partition("+")[0]))


def _name_index(facts: Facts) -> str:
    """Return the name of the PyTorch wheel index that fits this machine's driver."""
    driver = _parse(_find_driver(facts))
    if driver >= OLDEST_DRIVERS[13]:
        return "cu130"
    return "cu126" if driver >= OLDEST_DRIVERS[12] or not driver else "cu118"


def _install(facts: Facts, packages: str = "torch torchvision torchaudio") -> str:
    return facts.write_install_command(
        f"--force-reinstall {packages}"
        f" --index-url https://download.pytorch.org/whl/{_name_index(facts)}"
    )


def _find_driver(facts: Facts) -> str:
    return read_module_version(facts) or facts.settings().driver


def _check_torch(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None:
        return skip(f"{_NO_TORCH}: {facts.interpreter().executable}")
    what = f"PyTorch {torch.version}"
    if facts.has_gpus and torch.cuda is None and "habana-torch-plugin" not in facts.distributions():
        built = f"built for ROCm {torch.hip}" if torch.hip else "not compiled with CUDA"
        return fail(f"{what} is {built}, but there is an NVIDIA GPU", _install(facts))
    if _parse(torch.version)[:2] < _OLDEST_TORCH:
        return fail(
            f"{what} is older than 2.6",
            facts.write_install_command("--upgrade torch"),
            advice="its torch.load can run code from a file (CVE-2025-32434), and transformers "
            "refuses to load files with it",
        )
    return ok(what + (f", CUDA {torch.cuda}" if torch.cuda else ""))


def _check_driver(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None or torch.cuda is None:
        return skip(_NO_TORCH if torch is None else "PyTorch is built without CUDA")
    driver = _find_driver(facts)
    if not driver:
        return skip("no NVIDIA driver is loaded" if facts.has_gpus else _NO_GPU)
    needed = _parse(torch.cuda)
    oldest = OLDEST_DRIVERS.get(needed[0])
    runs = _runs_programs_of(needed, driver, facts)
    if runs is None:
        return skip(f"unknown which driver CUDA {torch.cuda} needs")
    what = f"driver {driver}, PyTorch {torch.version} with CUDA {torch.cuda}"
    if not runs:
        wanted = ".".join(map(str, oldest)) if oldest else f"one for CUDA {torch.cuda}"
        return fail(
            f"{what}: the driver is too old, it needs {wanted}",
            _NEWER_DRIVER,
            advice=f"or a PyTorch for this driver: `{_install(facts)}`",
        )
    return ok(what)


def _runs_programs_of(cuda: tuple[int, ...], driver: str, facts: Facts) -> bool | None:
    """Return whether a driver can run programs built with a CUDA version; None if unknown."""
    known, oldest = facts.settings().cuda, OLDEST_DRIVERS.get(cuda[0])
    if oldest is not None:
        return _parse(driver) >= oldest
    return None if known is None else known >= cuda


def _check_kernels(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None or torch.cuda is None:
        return skip(_NO_TORCH if torch is None else "PyTorch is built without CUDA")
    gpus = [gpu for gpu in facts.settings().gpus if gpu.capability is not None]
    if not gpus:
        return skip("no NVIDIA GPU reports its compute capability")
    if not torch.architectures:
        return skip("unknown which GPUs this PyTorch was built for")
    built = " ".join(torch.architectures)
    without = [
        gpu for gpu in gpus if gpu.capability and not can_run(torch.architectures, gpu.capability)
    ]
    if without:
        gpu = without[0]
        major, minor = gpu.capability or (0, 0)
        return fail(
            f"GPU {', '.join(str(each.index) for each in without)} ({gpu.model}) has compute "
            f"capability {major}.{minor}, but PyTorch {torch.version} has kernels for {built}",
            _install_for(facts, (major, minor)),
        )
    capabilities = sorted({gpu.capability for gpu in gpus if gpu.capability})
    present = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
    return ok(f"compute capability {present} is among {built}")


def _install_for(facts: Facts, capability: tuple[int, int]) -> str:
    # Wheels for CUDA 12.6 support compute capability 5.0 and higher; wheels for 12.8 and later
    # support Blackwell.
    index = "cu128" if capability >= (10, 0) else "cu126"
    return _install(facts).rpartition("/")[0] + f"/{index}"


def _check_libraries(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None or torch.cuda is None:
        return skip(_NO_TORCH if torch is None else "PyTorch is built without CUDA")
    distributions = facts.distributions()
    own = distributions.get("torch")
    wanted = () if own is None else tuple(filter(_is_of_nvidia, own.requires))
    unmet = find_unmet(wanted, distributions, facts.interpreter())
    if unmet:
        needs = " ".join(f"'{each.requirement}'" for each in unmet)
        return fail(
            f"PyTorch {torch.version}: " + list_unmet(unmet),
            facts.write_install_command(needs),
        )
    if foreign := _find_foreign_cudnn(facts):
        return warn(
            foreign,
            "unset LD_LIBRARY_PATH",
            advice="or remove that directory from it: PyTorch has its own",
        )
    if not wanted:
        return ok(f"PyTorch {torch.version} contains its own")
    return ok(f"{len(wanted)} NVIDIA packages match PyTorch {torch.version}")


def _is_of_nvidia(requirement: str) -> bool:
    return normalize_name(re.split(r"[\s(=<>!~;\[]", requirement, maxsplit=1)[0]).startswith(
        "nvidia-"
    )


def _find_foreign_cudnn(facts: Facts) -> str:
    """Return a warning if a different cuDNN would be loaded instead of PyTorch's own; else ""."""
    own = next(
        (each for name, each in facts.distributions().items() if name.startswith("nvidia-cudnn-")),
        None,
    )
    folders = filter(None, facts.machine.environ.get("LD_LIBRARY_PATH", "").split(":"))
    for file in (file for folder in folders for file in Path(folder).glob("libcudnn.so.*")):
        version = file.resolve().name.partition(".so.")[2]
        if own is not None and version and not f"{own.version}.".startswith(f"{version}."):
            return f"LD_LIBRARY_PATH has cuDNN {version} ({file}), but PyTorch's is {own.version}"
    return ""


def _check_toolkit(facts: Facts) -> Finding:
    toolkit = _find_toolkit(facts)
    if toolkit is None:
        return skip("no CUDA toolkit, which only building extensions needs")
    return _compare_with_driver(toolkit, facts) or _compare_with_torch(toolkit, facts)


def _find_toolkit(facts: Facts) -> tuple[int, int] | None:
    """Return the version of the CUDA toolkit; None if the toolkit is not installed."""
    printed = facts.run("nvcc", "--version")
    home = facts.machine.environ.get("CUDA_HOME") or "/usr/local/cuda"
    if printed is None and (facts.machine.roots.rootfs / home.lstrip("/") / "bin/nvcc").exists():
        printed = facts.run(
            str(facts.machine.roots.rootfs / home.lstrip("/") / "bin/nvcc"), "--version"
        )
    found = _NVCC.search(printed[1]) if printed is not None else None
    return None if found is None else (int(found[1]), int(found[2]))


def _compare_with_driver(toolkit: tuple[int, int], facts: Facts) -> Finding | None:
    """Return a finding if the CUDA toolkit is newer than the driver allows; otherwise None."""
    driver, known = _find_driver(facts), facts.settings().cuda
    if not driver:
        return None
    runs = _runs_programs_of(toolkit, driver, facts)
    most = f"CUDA {_join(known)}" if known else "an older CUDA"
    what = (
        f"CUDA toolkit {_join(toolkit)} is newer than driver {driver} allows, which is for {most}"
    )
    newer_driver = f"or a newer driver: `{_NEWER_DRIVER}`"
    if runs is False:
        advice = "programs that it builds do not start; "
        if known is None:
            return fail(what, _NEWER_DRIVER, advice=advice + "or install an older toolkit")
        return fail(what, _install_toolkit(known), advice=advice + newer_driver)
    if runs and known and known < toolkit:
        advice = (
            "by minor version compatibility programs with kernels for this GPU run, those with PTX "
            "alone do not; "
        )
        return warn(what, _install_toolkit(known), advice=advice + newer_driver)
    return None


def _install_toolkit(version: tuple[int, ...]) -> str:
    return f"sudo apt-get install -y cuda-toolkit-{version[0]}-{version[1]}"


def _join(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _compare_with_torch(toolkit: tuple[int, int], facts: Facts) -> Finding:
    torch, what = facts.torch(), f"CUDA toolkit {_join(toolkit)}"
    if torch is None or torch.cuda is None:
        return ok(what)
    needed = _parse(torch.cuda)[:2]
    if toolkit[0] != needed[0]:
        return warn(
            f"{what}, but PyTorch is built with CUDA {torch.cuda}",
            _install_toolkit(needed),
            advice=f"then `export CUDA_HOME=/usr/local/cuda-{_join(needed)}` to build extensions",
        )
    if toolkit != needed:
        return ok(f"{what}, the same major version as PyTorch's {torch.cuda}")
    return ok(f"{what}, like PyTorch's")


def _check_visible(facts: Facts) -> Finding:
    text = facts.machine.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return skip("CUDA_VISIBLE_DEVICES is not set: a run sees every GPU")
    gpus = facts.settings().gpus
    if not gpus:
        return skip(f"CUDA_VISIBLE_DEVICES={text}, but no NVIDIA GPU can be read")
    command = "unset CUDA_VISIBLE_DEVICES"
    if not text.strip() or text.strip() == "-1":
        return fail(f"CUDA_VISIBLE_DEVICES={text!r} hides every GPU", command)
    for entry in text.split(","):
        if not _names_gpu(entry.strip(), facts):
            return fail(
                f"CUDA_VISIBLE_DEVICES={text}: there is no GPU {entry.strip()!r}, so CUDA "
                "hides it and all after it",
                command,
            )
    return ok(f"CUDA_VISIBLE_DEVICES={text}")


def _names_gpu(entry: str, facts: Facts) -> bool:
    gpus = facts.settings().gpus
    if entry.isdecimal():
        return read_digits(entry, len(gpus) - 1) is not None
    return entry.startswith("MIG-") or any(gpu.uuid.startswith(entry) for gpu in gpus if entry)


_SUBJECT = "PyTorch and CUDA"
CHECKS = (
    Check(
        "pytorch",
        _SUBJECT,
        "a PyTorch without CUDA although there is an NVIDIA GPU; one older than 2.6",
        'it trains on the CPU, or says "Torch not compiled with CUDA enabled"',
        _check_torch,
    ),
    Check(
        "pytorch-driver",
        _SUBJECT,
        "a driver that is too old for the CUDA that PyTorch was built with",
        'CUDA says "The NVIDIA driver on your system is too old", and PyTorch sees no GPU',
        _check_driver,
    ),
    Check(
        "pytorch-kernels",
        _SUBJECT,
        "a GPU whose compute capability PyTorch was not built for",
        'the first kernel says "no kernel image is available for execution on the device"',
        _check_kernels,
    ),
    Check(
        "cuda-libraries",
        _SUBJECT,
        "packages `nvidia-*` that are missing or have another version than PyTorch pins",
        'importing torch says "undefined symbol" or "cannot open shared object file", or cuDNN '
        "and NCCL fail in the middle of a step",
        _check_libraries,
    ),
    Check(
        "cuda-toolkit",
        _SUBJECT,
        "an nvcc of a newer major version than the driver allows; a warning for a newer minor "
        "version, with which most programs run by NVIDIA's minor version compatibility, or another "
        "major version than PyTorch's CUDA",
        "extensions such as flash-attn, apex and DeepSpeed's cannot be built, or do not run",
        _check_toolkit,
    ),
    Check(
        "visible-devices",
        _SUBJECT,
        "a `CUDA_VISIBLE_DEVICES` that names a GPU that does not exist, or no GPU",
        "a run uses fewer GPUs than intended, without an error",
        _check_visible,
    ),
)
