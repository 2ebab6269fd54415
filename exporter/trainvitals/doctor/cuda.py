"""Whether the PyTorch that is installed can run on the GPUs and the driver that are here.

NVIDIA runs programs that were built with any CUDA of a major version on every driver from the one
below on (docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility).
"""

from __future__ import annotations

import re
from pathlib import Path

from trainvitals.doctor.driver import read_module_version
from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.doctor.interpreter import canonical
from trainvitals.doctor.requirements import find_unmet, list_unmet
from trainvitals.doctor.torchwheel import can_run

# The oldest driver for each major version of CUDA.
OLDEST_DRIVERS = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
_OLDEST_TORCH = (2, 6)
# The last branch for GPUs from before Turing, and new enough for every CUDA above.
_NEWER_DRIVER = "sudo apt-get install -y nvidia-driver-580-server && sudo reboot"
_NVCC = re.compile(r"release (\d+)\.(\d+)")
_NO_TORCH = "this Python has no PyTorch"
_NO_GPU = "no NVIDIA GPU here"


def _parse(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0]))


def _name_index(facts: Facts) -> str:
    """Choose PyTorch's index that has wheels for this driver."""
    driver = _parse(_find_driver(facts))
    if driver >= OLDEST_DRIVERS[13]:
        return "cu130"
    return "cu126" if driver >= OLDEST_DRIVERS[12] or not driver else "cu118"


def _install(facts: Facts, packages: str = "torch torchvision torchaudio") -> str:
    return facts.write_install(
        f"--force-reinstall {packages}"
        f" --index-url https://download.pytorch.org/whl/{_name_index(facts)}"
    )


def _find_driver(facts: Facts) -> str:
    return read_module_version(facts) or facts.settings().driver


def _examine_torch(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None:
        return pass_over(f"{_NO_TORCH}: {facts.interpreter().executable}")
    what = f"PyTorch {torch.version}"
    if facts.has_gpus and torch.cuda is None and "habana-torch-plugin" not in facts.distributions():
        built = f"built for ROCm {torch.hip}" if torch.hip else "not compiled with CUDA"
        return complain(f"{what} is {built}, and there is an NVIDIA GPU", _install(facts))
    if _parse(torch.version)[:2] < _OLDEST_TORCH:
        return complain(
            f"{what} is older than 2.6",
            facts.write_install("--upgrade torch"),
            advice="torch.load of it runs code that a file brings (CVE-2025-32434), and "
            "transformers refuses to load with it",
        )
    return approve(what + (f", CUDA {torch.cuda}" if torch.cuda else ""))


def _examine_driver(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None or torch.cuda is None:
        return pass_over(_NO_TORCH if torch is None else "PyTorch is built without CUDA")
    driver = _find_driver(facts)
    if not driver:
        return pass_over("no NVIDIA driver is loaded" if facts.has_gpus else _NO_GPU)
    needed = _parse(torch.cuda)
    known = facts.settings().cuda
    oldest = OLDEST_DRIVERS.get(needed[0])
    if oldest is None and known is None:
        return pass_over(f"which driver CUDA {torch.cuda} needs is not known here")
    is_old = _parse(driver) < oldest if oldest is not None else known is not None and known < needed
    what = f"driver {driver}, PyTorch {torch.version} with CUDA {torch.cuda}"
    if is_old:
        wanted = ".".join(map(str, oldest)) if oldest else f"one for CUDA {torch.cuda}"
        return complain(
            f"{what}: the driver is too old, it needs {wanted}",
            _NEWER_DRIVER,
            advice=f"or a PyTorch for this driver: `{_install(facts)}`",
        )
    return approve(what)


def _examine_kernels(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None or torch.cuda is None:
        return pass_over(_NO_TORCH if torch is None else "PyTorch is built without CUDA")
    gpus = [gpu for gpu in facts.settings().gpus if gpu.capability is not None]
    if not gpus:
        return pass_over("no NVIDIA GPU tells its compute capability")
    if not torch.architectures:
        return pass_over("this PyTorch does not tell what it was built for")
    built = " ".join(torch.architectures)
    without = [
        gpu for gpu in gpus if gpu.capability and not can_run(torch.architectures, gpu.capability)
    ]
    if without:
        gpu = without[0]
        major, minor = gpu.capability or (0, 0)
        return complain(
            f"GPU {', '.join(str(each.index) for each in without)} ({gpu.model}) has compute "
            f"capability {major}.{minor}, and PyTorch {torch.version} has kernels for {built}",
            _install_for(facts, (major, minor)),
        )
    capabilities = sorted({gpu.capability for gpu in gpus if gpu.capability})
    told = ", ".join(f"{major}.{minor}" for major, minor in capabilities)
    return approve(f"compute capability {told} is among {built}")


def _install_for(facts: Facts, capability: tuple[int, int]) -> str:
    # Wheels for CUDA 12.6 go back to 5.0, those for 12.8 on have Blackwell.
    index = "cu128" if capability >= (10, 0) else "cu126"
    return _install(facts).rpartition("/")[0] + f"/{index}"


def _examine_libraries(facts: Facts) -> Finding:
    torch = facts.torch()
    if torch is None or torch.cuda is None:
        return pass_over(_NO_TORCH if torch is None else "PyTorch is built without CUDA")
    distributions = facts.distributions()
    own = distributions.get("torch")
    wanted = () if own is None else tuple(filter(_is_of_nvidia, own.requires))
    unmet = find_unmet(wanted, distributions, facts.interpreter())
    if unmet:
        needs = " ".join(f"'{each.requirement}'" for each in unmet)
        return complain(
            f"PyTorch {torch.version}: " + list_unmet(unmet),
            facts.write_install(needs),
        )
    if foreign := _find_foreign_cudnn(facts):
        return warn(
            foreign,
            "unset LD_LIBRARY_PATH",
            advice="or leave that folder out of it: PyTorch brings its own",
        )
    if not wanted:
        return approve(f"PyTorch {torch.version} brings its own")
    return approve(f"{len(wanted)} packages of NVIDIA are those that PyTorch {torch.version} wants")


def _is_of_nvidia(requirement: str) -> bool:
    return canonical(re.split(r"[\s(=<>!~;\[]", requirement, maxsplit=1)[0]).startswith("nvidia-")


def _find_foreign_cudnn(facts: Facts) -> str:
    """Find a cuDNN of another version whose parts would be loaded for those of PyTorch's own."""
    own = next(
        (each for name, each in facts.distributions().items() if name.startswith("nvidia-cudnn-")),
        None,
    )
    folders = filter(None, facts.world.environ.get("LD_LIBRARY_PATH", "").split(":"))
    for file in (file for folder in folders for file in Path(folder).glob("libcudnn.so.*")):
        version = file.resolve().name.partition(".so.")[2]
        if own is not None and version and not f"{own.version}.".startswith(f"{version}."):
            return f"LD_LIBRARY_PATH has cuDNN {version} ({file}), and PyTorch's is {own.version}"
    return ""


def _examine_toolkit(facts: Facts) -> Finding:
    torch = facts.torch()
    said = facts.run("nvcc", "--version")
    home = facts.world.environ.get("CUDA_HOME") or "/usr/local/cuda"
    if said is None and (facts.world.roots.rootfs / home.lstrip("/") / "bin/nvcc").exists():
        said = facts.run(str(facts.world.roots.rootfs / home.lstrip("/") / "bin/nvcc"), "--version")
    found = _NVCC.search(said[1]) if said is not None else None
    if found is None:
        return pass_over("no CUDA toolkit here (PyTorch needs none, but to build extensions)")
    toolkit = (int(found[1]), int(found[2]))
    what = f"CUDA toolkit {toolkit[0]}.{toolkit[1]}"
    if torch is None or torch.cuda is None:
        return approve(what)
    needed = _parse(torch.cuda)[:2]
    if toolkit[0] != needed[0]:
        wanted = f"{needed[0]}.{needed[1]}"
        return warn(
            f"{what}, and PyTorch is built with CUDA {torch.cuda}",
            f"sudo apt-get install -y cuda-toolkit-{wanted.replace('.', '-')}",
            advice=f"and then `export CUDA_HOME=/usr/local/cuda-{wanted}` where extensions are built",
        )
    if toolkit != needed:
        return approve(f"{what}; PyTorch's {torch.cuda} is of the same major version")
    return approve(f"{what}, as PyTorch's")


def _examine_visible(facts: Facts) -> Finding:
    text = facts.world.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return pass_over("CUDA_VISIBLE_DEVICES is not set: a run sees every GPU")
    gpus = facts.settings().gpus
    if not gpus:
        return pass_over(f"CUDA_VISIBLE_DEVICES={text}, and no NVIDIA GPU answers")
    mend = "unset CUDA_VISIBLE_DEVICES"
    if not text.strip() or text.strip() == "-1":
        return complain(f"CUDA_VISIBLE_DEVICES={text!r} hides every GPU", mend)
    for entry in text.split(","):
        if not _names_gpu(entry.strip(), facts):
            return complain(
                f"CUDA_VISIBLE_DEVICES={text}: there is no GPU {entry.strip()!r}, and it and "
                "those behind it are hidden",
                mend,
            )
    return approve(f"CUDA_VISIBLE_DEVICES={text}")


def _names_gpu(entry: str, facts: Facts) -> bool:
    gpus = facts.settings().gpus
    if entry.isdecimal():
        return int(entry) < len(gpus)
    return entry.startswith("MIG-") or any(gpu.uuid.startswith(entry) for gpu in gpus if entry)


_SUBJECT = "PyTorch and CUDA"
CHECKS = (
    Check(
        "pytorch",
        _SUBJECT,
        "one without CUDA where there is an NVIDIA GPU; one before 2.6",
        'it trains on the CPU, or says "Torch not compiled with CUDA enabled"',
        _examine_torch,
    ),
    Check(
        "pytorch-driver",
        _SUBJECT,
        "a driver that is too old for the CUDA that PyTorch was built with",
        'CUDA says "The NVIDIA driver on your system is too old", and PyTorch sees no GPU',
        _examine_driver,
    ),
    Check(
        "pytorch-kernels",
        _SUBJECT,
        "a GPU whose compute capability PyTorch was not built for",
        'the first kernel says "no kernel image is available for execution on the device"',
        _examine_kernels,
    ),
    Check(
        "cuda-libraries",
        _SUBJECT,
        "packages `nvidia-*` that are missing or of another version than PyTorch pins",
        'importing torch says "undefined symbol" or "cannot open shared object file", or cuDNN '
        "and NCCL fail in the middle of a step",
        _examine_libraries,
    ),
    Check(
        "cuda-toolkit",
        _SUBJECT,
        "a warning for an nvcc of another major version than PyTorch's CUDA",
        "extensions such as flash-attn, apex and DeepSpeed's do not build",
        _examine_toolkit,
    ),
    Check(
        "visible-devices",
        _SUBJECT,
        "a `CUDA_VISIBLE_DEVICES` that names a GPU that is not there, or none",
        "a run sees fewer GPUs than it was meant to have, without a word",
        _examine_visible,
    ),
)
