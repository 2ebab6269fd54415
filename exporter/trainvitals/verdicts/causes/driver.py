"""Failures due to a missing GPU, an incompatible GPU or an incompatible driver."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import Framework, find_framework, is_cdna, is_rocm
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.notices import find_kernel_line
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_ARCHITECTURE = re.compile(r"CUDA capability (sm_\d{2,3})|(sm_\d{2,3}) is not compatible")
_BUILT_FOR = re.compile(r"supports CUDA capabilities ((?:sm_\d{2,3}[a-z]? ?){1,30})")
_NO_KERNEL = matches(
    r"no kernel image is available|sm_\d{2,3} is not compatible with the current"
    r"|hipErrorNoBinaryForGpu|Unable to find code object for all current devices|invalid device function"
    r"|not (?:built|compiled) for (?:this|your) GPU|Cannot read .{0,120}TensileLibrary|no kernel found to launch"
    r"|FlashAttention only supports (?:Ampere|Hopper)|is only supported on (?:CUDA )?devices with compute capability"
    r"|Bfloat16 is only supported on GPUs with compute capability|Unsupported (?:GPU|gpu) arch(?!itecture .{0,10}compute_)"
    r"|CUDA_ERROR_NO_BINARY_FOR_GPU|hipErrorInvalidDeviceFunction|cudaErrorNoKernelImageForDevice"
    r"|(?:cuda|hip)Success \((?:98|200|209|218) vs\. 0\)|kernel image is invalid"
)

_NVML_MISMATCH = contains(
    "Driver/library version mismatch",
    "LibRmVersionMismatch",
    "unsupported display driver / cuda driver combination",
    "Failed to initialize NVML: Driver/library",
    "does not match DSO version",
    "NVRM: API mismatch",
)
_NVML_MISMATCH_KERNEL = contains("NVRM: API mismatch")
_NVML_UNKNOWN = contains("Failed to initialize NVML: Unknown Error", "NVMLError_Unknown")
_CUDA_DRIVER_OLD = contains(
    "CUDA driver version is insufficient for CUDA runtime version",
    "The NVIDIA driver on your system is too old",
    "provided PTX was compiled with an unsupported toolchain",
    "forward compatibility was attempted on non supported HW",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "cudaErrorInsufficientDriver",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "driver version is too old",
    "requires a newer NVIDIA driver",
    "cudaErrorUnsupportedPtxVersion",
    "ptxas was not found to be compatible",
)
_TORCH_CPU_BUILD = contains("Torch not compiled with CUDA enabled")
_CUDA_NO_DRIVER = contains(
    "Found no NVIDIA driver",
    "libcuda.so.1: cannot open shared object file",
    "CUDA driver initialization failed",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "CUDA_ERROR_NO_DEVICE",
    "cudaErrorNoDevice",
    "No HIP GPUs are available",
    "No supported gpu backend found",
    "CUDA is not available",
    "No GPU found",
    "no GPU is available",
    "no NVIDIA GPU",
    "Unable to open /dev/kfd",
    "Cannot open /dev/kfd",
    "Failed to infer device type",
    "CUDA_ERROR_NOT_INITIALIZED",
    "Your setup doesn't support bf16/gpu",
    "but CUDA is not available",
    "No GPUs found",
    "cuda is not available",
    "No accelerator found",
    "Can't initialize NVML",
    "no ROCm-capable device is detected",
    "CUDA unknown error - this may be due to",
    "on a CUDA device but torch.cuda.is_available() is False",
)


def detect_nvml_mismatch(case: Case) -> Finding | None:
    """Detect a driver that was upgraded while the old kernel module remained loaded."""
    match = find_match(case, _NVML_MISMATCH)
    if match is None:
        match = find_kernel_line(case, _NVML_MISMATCH_KERNEL)
    if match is None:
        return None
    return match.conclude(
        "nvml-mismatch",
        "The NVIDIA driver was upgraded while its old kernel module is still loaded.",
        (
            (
                "Restart the host, or stop all programs that use the GPUs and reload the modules:"
                " `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia`."
            ),
            "Compare `cat /proc/driver/nvidia/version` with `modinfo -F version nvidia`.",
            "Prevent unattended upgrades: `sudo apt-mark hold 'nvidia-*' 'libnvidia-*'`.",
        ),
    )


def detect_nvml_unknown(case: Case) -> Finding | None:
    """Detect a running container that lost access to its GPUs."""
    match = find_match(case, _NVML_UNKNOWN)
    if match is None:
        return None
    return match.conclude(
        "nvml-unknown",
        "The container lost access to its GPUs while it ran, as after `systemctl daemon-reload`.",
        (
            (
                f"Recreate it: `{case.program} rm {case.evidence.name}`, then run it again; a restart of"
                " the program alone is not sufficient."
            ),
            (
                "Prevent it: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` and"
                ' `--device nvidia.com/gpu=all`, or `"exec-opts": ["native.cgroupdriver=cgroupfs"]`'
                " in /etc/docker/daemon.json."
            ),
            "Find what reloaded systemd: `journalctl -b | grep -i 'reloading'`.",
        ),
    )


def detect_cuda_driver_old(case: Case) -> Finding | None:
    """Detect a GPU driver that is older than the image's CUDA version requires."""
    match = find_match(case, _CUDA_DRIVER_OLD)
    if match is None:
        return None
    is_torch = find_framework(case, match.text) == "torch"
    image = case.evidence.image
    python = f"docker run --rm {image} python" if image else "python"
    version = "import torch; print(torch.version.cuda)"
    compare = (
        f"Compare both: `nvidia-smi` on the host, and `{python} -c '{version}'`."
        if is_torch
        else "Compare the CUDA version in `nvidia-smi` with the one that your framework was built for."
    )
    older = (
        "Or install PyTorch for an older CUDA version:"
        " `pip install torch --index-url https://download.pytorch.org/whl/cu118`."
        if is_torch
        else "Or install a release of your framework for an older CUDA version: `pip install NAME==VERSION`."
    )
    newer = "Install a newer driver on the host and restart it: `nvidia-smi` shows its version."
    return match.conclude(
        "cuda-driver-old",
        "The host's NVIDIA driver is older than the program's CUDA version requires.",
        (compare, newer, older),
    )


def detect_cuda_no_kernel(case: Case) -> Finding | None:
    """Detect a GPU architecture for which the program was not built."""
    match = find_match(case, _NO_KERNEL)
    if match is None:
        return None
    text = "\n".join(case.lines)
    architecture, built = _ARCHITECTURE.search(text), _BUILT_FOR.search(text)
    if is_rocm(case):
        steps = (_ROCM_STEPS[0], *_ROCM_STEPS[2:]) if is_cdna(case) else _ROCM_STEPS
        return match.conclude("cuda-no-kernel", "The program was not built for this GPU.", steps)
    name = (architecture[1] or architecture[2]) if architecture else ""
    sentences = (f"PyTorch was built for {built[1].strip()}.",) if built else ()
    number = name.removeprefix("sm_")
    listed = f"{number[:-1]}.{number[-1]}" if number else "the GPU's compute capability"
    return match.conclude(
        "cuda-no-kernel",
        f"The program was not built for this GPU{f' ({name})' if name else ''}.",
        (
            _advise_architecture(find_framework(case, match.text)),
            (
                f"Build your extensions with `TORCH_CUDA_ARCH_LIST={listed}`."
                if number
                else f"Build your extensions with `TORCH_CUDA_ARCH_LIST` set to {listed}."
            ),
        ),
        speaks_for=sentences,
    )


def _advise_architecture(framework: Framework) -> str:
    if framework != "torch":
        return "Install a release of your framework for this GPU: `pip install --upgrade NAME`."
    return (
        "Install a PyTorch that supports it: `pip install --upgrade torch --index-url"
        " https://download.pytorch.org/whl/cu128`;"
        " `python -c 'import torch; print(torch.cuda.get_arch_list())'` lists its architectures."
    )


_ROCM_STEPS = (
    (
        "Read the card's architecture: `rocminfo | grep gfx`, and compare it with"
        " `python -c 'import torch; print(torch.cuda.get_arch_list())'`."
    ),
    (
        "For a card next to a supported one, let it pass for that: `HSA_OVERRIDE_GFX_VERSION=10.3.0` (RDNA 2),"
        " `11.0.0` (RDNA 3)."
    ),
    (
        "Install a PyTorch for a newer ROCm: `pip install torch --index-url"
        " https://download.pytorch.org/whl/rocm6.2`; build extensions with `PYTORCH_ROCM_ARCH` set to the"
        " card's architecture."
    ),
)


def detect_torch_cpu_build(case: Case) -> Finding | None:
    """Detect a PyTorch build without CUDA."""
    match = find_match(case, _TORCH_CPU_BUILD)
    if match is None:
        return None
    return match.conclude(
        "torch-cpu-build",
        "The PyTorch in the image was built without CUDA.",
        (
            (
                "Install the CUDA build: `pip install --force-reinstall torch --index-url"
                " https://download.pytorch.org/whl/cu128`."
            ),
            (
                "Check the build: `python -c 'import torch; print(torch.__version__)'`; `+cpu`, or a"
                " conda-forge package without `cuda`, has no CUDA."
            ),
            "Or train on the CPU: `device='cpu'`.",
        ),
    )


_ROCM_ACCESS = (
    "Start it with the cards: `docker run --device=/dev/kfd --device=/dev/dri --group-add video`.",
    "Check the driver on the host: `rocminfo`, `rocm-smi`, and the user's groups: `id`.",
)


def detect_cuda_no_driver(case: Case) -> Finding | None:
    """Detect a container without GPUs, or a host without a driver."""
    match = find_match(case, _CUDA_NO_DRIVER)
    if match is None:
        return None
    settings = case.evidence.settings
    request = (
        "Start it with GPUs: `docker run --gpus all`; in Compose `deploy.resources.reservations."
        "devices` with `driver: nvidia` and `capabilities: [gpu]`."
    )
    if is_rocm(case):
        return match.conclude("cuda-no-driver", "The program found no AMD GPU.", _ROCM_ACCESS)
    host = "Check the driver on the host: `nvidia-smi`, `lsmod | grep nvidia`."
    visible = "Check that `CUDA_VISIBLE_DEVICES` and `NVIDIA_VISIBLE_DEVICES` name GPUs that exist."
    if settings is not None and not settings.wants_gpus and case.is_container:
        return match.conclude(
            "cuda-no-driver",
            "The container was started without GPUs.",
            (request, host, visible),
            speaks_for=("Its settings request no GPU.",),
        )
    return match.conclude(
        "cuda-no-driver",
        "CUDA found no NVIDIA driver, or no GPU.",
        (host, visible) if settings is not None else (request, host, visible),
        speaks_for=("Its settings request GPUs.",) if settings is not None else (),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="nvml-mismatch",
        title="Driver and library versions differ",
        signs="The log contains `Driver/library version mismatch`.",
        meaning="The driver's package was upgraded while its old kernel module stayed loaded.",
        steps=(
            "Restart the host, or reload the modules (`sudo rmmod nvidia_uvm ...`).",
            "Hold the packages: `sudo apt-mark hold 'nvidia-*'`.",
        ),
        confidence="high",
        detect=detect_nvml_mismatch,
    ),
    Cause(
        reason="nvml-unknown",
        title="The container lost access to its GPUs",
        signs="The log contains `Failed to initialize NVML: Unknown Error` in a container that worked"
        " before.",
        meaning="`systemctl daemon-reload` rewrote the device rules of its control group.",
        steps=(
            "Recreate the container.",
            "Use CDI devices (`--device nvidia.com/gpu=all`), or the cgroupfs driver.",
        ),
        confidence="high",
        detect=detect_nvml_unknown,
    ),
    Cause(
        reason="cuda-driver-old",
        title="The driver is too old",
        signs="The log contains `CUDA driver version is insufficient for CUDA runtime version` or `The"
        " NVIDIA driver on your system is too old`.",
        meaning="The image's CUDA version is newer than the host's driver supports.",
        steps=(
            "Install a newer driver on the host.",
            "Or install PyTorch for an older CUDA version (`--index-url .../whl/cu118`).",
        ),
        confidence="high",
        detect=detect_cuda_driver_old,
    ),
    Cause(
        reason="cuda-no-kernel",
        title="Not built for this GPU",
        signs="The log contains `no kernel image is available` or `sm_120 is not compatible with the"
        " current PyTorch installation`.",
        meaning="The PyTorch or extension in the image does not support the GPU's architecture.",
        steps=(
            "Install a PyTorch that lists the architecture in `torch.cuda.get_arch_list()`.",
            "Build extensions with `TORCH_CUDA_ARCH_LIST`.",
        ),
        confidence="high",
        detect=detect_cuda_no_kernel,
    ),
    Cause(
        reason="torch-cpu-build",
        title="PyTorch without CUDA",
        signs="The log contains `Torch not compiled with CUDA enabled`.",
        meaning="The image has the CPU build of PyTorch.",
        steps=("Install the CUDA build (`--index-url https://download.pytorch.org/whl/cu128`).",),
        confidence="high",
        detect=detect_torch_cpu_build,
    ),
    Cause(
        reason="cuda-no-driver",
        title="No driver or no GPU",
        signs="The log contains `Found no NVIDIA driver`, `libcuda.so.1: cannot open shared object"
        " file`, `CUDA driver initialization failed` or `No CUDA GPUs are available`.",
        meaning="The container was started without GPUs, or the host's driver does not work.",
        steps=(
            "Start it with `--gpus all`, or with `devices` in the Compose file.",
            "Check the host with `nvidia-smi`.",
        ),
        confidence="high",
        detect=detect_cuda_no_driver,
    ),
)
