"""Deaths because program, driver and GPU do not fit together, or the container has no GPU."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.signs import find, has, matches
from trainvitals.causes.verdict import Cause, Finding

_ARCHITECTURE = re.compile(r"CUDA capability (sm_\d{2,3})|(sm_\d{2,3}) is not compatible")
_BUILT_FOR = re.compile(r"supports CUDA capabilities ((?:sm_\d{2,3}[a-z]? ?){1,30})")
_NO_KERNEL = re.compile(
    r"no kernel image is available|sm_\d{2,3} is not compatible with the current"
)


def look_nvml_mismatch(case: Case) -> Finding | None:
    """Look for a driver that was upgraded while its old module stayed loaded."""
    sign = find(
        case,
        has(
            "Driver/library version mismatch",
            "LibRmVersionMismatch",
            "unsupported display driver / cuda driver combination",
        ),
    )
    if sign is None:
        return None
    return sign.conclude(
        "nvml-mismatch",
        "The NVIDIA driver was upgraded, and the old module is still loaded.",
        (
            (
                "Restart the host, or stop all that uses the GPUs and reload it:"
                " `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`."
            ),
            "Compare `cat /proc/driver/nvidia/version` with `modinfo -F version nvidia`.",
            "Keep upgrades from coming by themselves: `sudo apt-mark hold 'nvidia-*' 'libnvidia-*'`.",
        ),
    )


def look_nvml_unknown(case: Case) -> Finding | None:
    """Look for a container that lost the right to its devices while it ran."""
    sign = find(case, has("Failed to initialize NVML: Unknown Error", "NVMLError_Unknown"))
    if sign is None:
        return None
    return sign.conclude(
        "nvml-unknown",
        "The container lost its GPUs while it ran: `systemctl daemon-reload` does that.",
        (
            (
                f"Make it anew: `{case.program} rm {case.evidence.name}` and run it again; a restart of the"
                " program alone does not help."
            ),
            (
                "So that it stays: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` and"
                ' `--device nvidia.com/gpu=all`, or `"exec-opts": ["native.cgroupdriver=cgroupfs"]`'
                " in /etc/docker/daemon.json."
            ),
            "See what reloaded systemd then: `journalctl -b | grep -i 'reloading'`.",
        ),
    )


def look_cuda_driver_old(case: Case) -> Finding | None:
    """Look for a driver that is older than the CUDA that the image brings."""
    sign = find(
        case,
        has(
            "CUDA driver version is insufficient for CUDA runtime version",
            "The NVIDIA driver on your system is too old",
        ),
    )
    if sign is None:
        return None
    image = case.evidence.image or "IMAGE"
    return sign.conclude(
        "cuda-driver-old",
        "The host's NVIDIA driver is older than the CUDA in the image.",
        (
            (
                f"See both: `nvidia-smi` on the host, and `docker run --rm {image} python -c"
                " 'import torch; print(torch.version.cuda)'`."
            ),
            "Install a newer driver on the host and restart it.",
            (
                "Or take PyTorch for an older CUDA:"
                " `pip install torch --index-url https://download.pytorch.org/whl/cu118`."
            ),
        ),
    )


def look_cuda_no_kernel(case: Case) -> Finding | None:
    """Look for a GPU for which the program was not built."""
    sign = find(case, matches(_NO_KERNEL))
    if sign is None:
        return None
    text = "\n".join(case.lines)
    architecture, built = _ARCHITECTURE.search(text), _BUILT_FOR.search(text)
    name = (architecture[1] or architecture[2]) if architecture else ""
    told = (f"It was built for {built[1].strip()}.",) if built else ()
    number = name.removeprefix("sm_")
    listed = f"{number[:-1]}.{number[-1]}" if number else "the GPU's compute capability"
    return sign.conclude(
        "cuda-no-kernel",
        f"The program was not built for this GPU{f' ({name})' if name else ''}.",
        (
            (
                "Install a PyTorch that knows it: `pip install --upgrade torch --index-url"
                " https://download.pytorch.org/whl/cu128`;"
                " `python -c 'import torch; print(torch.cuda.get_arch_list())'` shows for which it is."
            ),
            (
                f"Build extensions of your own with `TORCH_CUDA_ARCH_LIST={listed}`."
                if number
                else f"Build extensions of your own with `TORCH_CUDA_ARCH_LIST` set to {listed}."
            ),
        ),
        speaks_for=told,
    )


def look_torch_cpu_build(case: Case) -> Finding | None:
    """Look for a PyTorch without CUDA."""
    sign = find(case, has("Torch not compiled with CUDA enabled"))
    if sign is None:
        return None
    return sign.conclude(
        "torch-cpu-build",
        "The PyTorch in the image was built without CUDA.",
        (
            (
                "Install the CUDA build: `pip install --force-reinstall torch --index-url"
                " https://download.pytorch.org/whl/cu128`."
            ),
            (
                "See which it is: `python -c 'import torch; print(torch.__version__)'`; `+cpu` or a"
                " wheel from conda-forge without `cuda` is the wrong one."
            ),
            "Or train on the CPU on purpose: `device='cpu'`.",
        ),
    )


def look_cuda_no_driver(case: Case) -> Finding | None:
    """Look for a container without GPUs, or a host without a driver."""
    sign = find(
        case,
        has(
            "Found no NVIDIA driver",
            "libcuda.so.1: cannot open shared object file",
            "CUDA driver initialization failed",
            "No CUDA GPUs are available",
            "no CUDA-capable device is detected",
        ),
    )
    if sign is None:
        return None
    settings = case.evidence.settings
    give = (
        "Start it with GPUs: `docker run --gpus all`; in Compose `deploy.resources.reservations."
        "devices` with `driver: nvidia` and `capabilities: [gpu]`."
    )
    host = "Check the driver on the host: `nvidia-smi`, `lsmod | grep nvidia`."
    visible = (
        "See that `CUDA_VISIBLE_DEVICES` and `NVIDIA_VISIBLE_DEVICES` name GPUs that are there."
    )
    if settings is not None and not settings.wants_gpus and case.is_container:
        return sign.conclude(
            "cuda-no-driver",
            "The container was started without GPUs.",
            (give, host, visible),
            speaks_for=("Its settings ask for no GPU.",),
        )
    return sign.conclude(
        "cuda-no-driver",
        "It found no NVIDIA driver, or no GPU.",
        (host, visible) if settings is not None else (give, host, visible),
        speaks_for=("Its settings ask for GPUs.",) if settings is not None else (),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="nvml-mismatch",
        title="Driver and library are of different versions",
        signs="The log says `Driver/library version mismatch`.",
        meaning="The driver's package was upgraded while its old kernel module stayed loaded.",
        steps=(
            "Restart the host, or reload the modules (`sudo rmmod nvidia_uvm ...`).",
            "Hold the packages: `sudo apt-mark hold 'nvidia-*'`.",
        ),
        confidence="high",
        look=look_nvml_mismatch,
    ),
    Cause(
        reason="nvml-unknown",
        title="The container lost its GPUs while it ran",
        signs="The log says `Failed to initialize NVML: Unknown Error` in a container that worked.",
        meaning="`systemctl daemon-reload` made the device rules of its control group anew.",
        steps=(
            "Make the container anew.",
            "Give it devices by CDI (`--device nvidia.com/gpu=all`), or use the cgroupfs driver.",
        ),
        confidence="high",
        look=look_nvml_unknown,
    ),
    Cause(
        reason="cuda-driver-old",
        title="The driver is too old",
        signs="The log says `CUDA driver version is insufficient for CUDA runtime version` or `The"
        " NVIDIA driver on your system is too old`.",
        meaning="The image brings a newer CUDA than the host's driver knows.",
        steps=(
            "Install a newer driver on the host.",
            "Or install PyTorch for an older CUDA (`--index-url .../whl/cu118`).",
        ),
        confidence="high",
        look=look_cuda_driver_old,
    ),
    Cause(
        reason="cuda-no-kernel",
        title="Not built for this GPU",
        signs="The log says `no kernel image is available` or `sm_120 is not compatible with the"
        " current PyTorch installation`.",
        meaning="The GPU is newer, or much older, than the PyTorch or the extension in the image.",
        steps=(
            "Install a PyTorch that lists it in `torch.cuda.get_arch_list()`.",
            "Build extensions with `TORCH_CUDA_ARCH_LIST`.",
        ),
        confidence="high",
        look=look_cuda_no_kernel,
    ),
    Cause(
        reason="torch-cpu-build",
        title="PyTorch without CUDA",
        signs="The log says `Torch not compiled with CUDA enabled`.",
        meaning="The CPU build of PyTorch is in the image.",
        steps=("Install the CUDA build (`--index-url https://download.pytorch.org/whl/cu128`).",),
        confidence="high",
        look=look_torch_cpu_build,
    ),
    Cause(
        reason="cuda-no-driver",
        title="No driver or no GPU",
        signs="The log says `Found no NVIDIA driver`, `libcuda.so.1: cannot open shared object file`,"
        " `CUDA driver initialization failed` or `No CUDA GPUs are available`.",
        meaning="The container was started without GPUs, or the host's driver does not work.",
        steps=(
            "Start it with `--gpus all`, or with `devices` in the Compose file.",
            "Check the host with `nvidia-smi`.",
        ),
        confidence="high",
        look=look_cuda_no_driver,
    ),
)
