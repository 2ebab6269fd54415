"""Containers that could not be started because of a GPU, its driver or another device."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.start_error import conclude_error, read_start_error
from trainvitals.verdicts.causes.verdict import Cause, Finding

GPU_TOOLKIT = re.compile(
    r'could not select device driver "[^"]*" with capabilities: \[\[.*gpu'
    r'|nvidia-container-runtime(?:-hook)?"?: (?:executable file not found|no such file)'
    r"|[Uu]nknown runtime specified nvidia|unknown or invalid runtime name: nvidia"
    r'|no runtime for "?nvidia"? is configured|RuntimeHandler "?nvidia"? not supported'
)
_CUDA = re.compile(r"requirement error: unsatisfied condition: (cuda\s*[<>=]+\s*[\d.]+)")
_NVIDIA = re.compile(
    r"nvidia-container-cli: (?:initialization error|detection error|driver (?:rpc )?error)"
    r"|Failed to initialize NVML|failed to initialize NVML"
)
_HOOK = re.compile(
    r"nvidia-container-cli: (?:ldcache error|mount error|container error)|ldconfig\.real: no such file"
)
_IN_IMAGE = re.compile(r"file creation failed: .{1,300}(?:nvidia|cuda).{1,80}: file exists")
_GPU_DEVICE = re.compile(
    r"nvidia-container-cli: device error|unresolvable CDI devices? ([\w./=-]+)|[Ss]etting up CDI devices: "
)
_DEVICE = re.compile(r'error gathering device information while adding custom device "([^"]*)"')


def _detect_gpu_toolkit(case: Case) -> Finding | None:
    return conclude_error(
        case,
        "start-gpu-toolkit",
        GPU_TOOLKIT,
        "The container requests GPUs, and the engine has no GPU runtime.",
        "Install the NVIDIA Container Toolkit (package `nvidia-container-toolkit`).",
        "`sudo nvidia-ctk runtime configure --runtime=docker`, then `sudo systemctl restart docker`.",
        "Check the installation: `docker run --rm --gpus all ubuntu nvidia-smi`.",
        "Check that Docker is not a snap, which cannot use the toolkit: `snap list docker`.",
    )


def _detect_cuda(case: Case) -> Finding | None:
    match = _CUDA.search(read_start_error(case))
    wanted = f" ({match[1].replace(' ', '')})" if match else ""
    return conclude_error(
        case,
        "start-cuda-too-new",
        _CUDA,
        f"The image requires a newer NVIDIA driver than the host has{wanted}.",
        "Read the host's driver version and its highest CUDA version: `nvidia-smi`.",
        "Install a newer driver, or use an image with an older CUDA version.",
        "`NVIDIA_DISABLE_REQUIRE=1` only skips this check; it is sufficient only with CUDA's forward"
        " compatibility package.",
    )


def _detect_nvidia(case: Case) -> Finding | None:
    return conclude_error(
        case,
        "start-nvidia-init",
        _NVIDIA,
        "The NVIDIA driver on the host failed to initialize: it is not loaded, or was upgraded without"
        " a reboot.",
        "Run `nvidia-smi` on the host, where it must work first.",
        "Load the driver (`sudo modprobe nvidia`); after an upgrade reboot.",
        "If it does not load, read why: `sudo dmesg | grep -i nvrm`, `dkms status`.",
    )


def _detect_hook(case: Case) -> Finding | None:
    if _IN_IMAGE.search(read_start_error(case)):
        return conclude_error(
            case,
            "start-nvidia-hook",
            _HOOK,
            "The image has the NVIDIA driver's libraries already, so that the toolkit cannot mount the host's.",
            "Remove them in the Dockerfile: `RUN rm -f /usr/lib/x86_64-linux-gnu/libnvidia-*.so*"
            " /usr/lib/x86_64-linux-gnu/libcuda.so*`.",
            "Or build the image again without `nvidia` as the default runtime of the engine, and without"
            " the driver's packages; `docker commit` of a container with GPUs keeps them too.",
        )
    return conclude_error(
        case,
        "start-nvidia-hook",
        _HOOK,
        "NVIDIA's start hook failed in its own configuration; driver and toolkit are there.",
        'Correct the path of ldconfig in `/etc/nvidia-container-runtime/config.toml`: `ldconfig = "@/sbin/ldconfig"`'
        " (without `.real` outside of Ubuntu).",
        "Install a newer toolkit and configure it again: `sudo nvidia-ctk runtime configure"
        " --runtime=docker`, `sudo systemctl restart docker`.",
        "For `cgroup subsystem devices not found` set `no-cgroups = true` there, or use CDI:"
        " `--device nvidia.com/gpu=all`.",
    )


def _detect_gpu_device(case: Case) -> Finding | None:
    return conclude_error(
        case,
        "start-gpu-device",
        _GPU_DEVICE,
        "The container requests a GPU that the host does not have.",
        "List the GPUs: `nvidia-smi -L`; a missing one fell off the bus or is in MIG mode.",
        "Correct `--gpus device=…`, `NVIDIA_VISIBLE_DEVICES` or `device_ids` in the Compose file.",
        "With CDI, generate the device list again: `sudo nvidia-ctk cdi generate"
        " --output=/etc/cdi/nvidia.yaml`.",
    )


def _detect_device(case: Case) -> Finding | None:
    match = _DEVICE.search(read_start_error(case))
    device = match[1] if match else ""
    return conclude_error(
        case,
        "start-device",
        _DEVICE,
        f"The container requests the device `{device}`, which the host does not have.",
        f"Check it on the host: `ls -l {device}`; its driver may not be loaded (`lsmod`).",
        "Correct `--device`, or `devices` in the Compose file.",
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        "start-gpu-toolkit",
        "No NVIDIA Container Toolkit",
        "Never started, exit code 128, `could not select device driver … with capabilities: [[gpu]]`.",
        "The NVIDIA Container Toolkit is not installed or not configured in the engine; Docker as a"
        " snap cannot use it.",
        (
            "Install `nvidia-container-toolkit`.",
            (
                "`sudo nvidia-ctk runtime configure --runtime=docker`, then"
                " `sudo systemctl restart docker`."
            ),
        ),
        "high",
        _detect_gpu_toolkit,
    ),
    Cause(
        "start-cuda-too-new",
        "The image's CUDA requires a newer driver",
        "Never started, `requirement error: unsatisfied condition: cuda>=…`.",
        "The host's driver is older than the image requires.",
        (
            (
                "Install a newer driver, or use an image with an older CUDA version; `nvidia-smi` shows the"
                " host's."
            ),
        ),
        "high",
        _detect_cuda,
    ),
    Cause(
        "start-nvidia-init",
        "The NVIDIA driver failed to initialize",
        "Never started, `nvidia-container-cli: initialization error`.",
        "The driver is not loaded, or was upgraded while the old module is still in the kernel.",
        ("Run `nvidia-smi` on the host; `sudo modprobe nvidia`, or reboot.",),
        "high",
        _detect_nvidia,
    ),
    Cause(
        "start-nvidia-hook",
        "NVIDIA's start hook is not configured for this system",
        "Never started, `nvidia-container-cli: ldcache error` or `ldconfig.real: no such file`.",
        "The toolkit's configuration names a file of another distribution, or a control group that this"
        " kernel does not have.",
        (
            (
                "Correct `/etc/nvidia-container-runtime/config.toml`, or install a newer toolkit and run"
                " `sudo nvidia-ctk runtime configure --runtime=docker`."
            ),
        ),
        "high",
        _detect_hook,
    ),
    Cause(
        "start-gpu-device",
        "The GPU does not exist",
        "Never started, `nvidia-container-cli: device error` or `unresolvable CDI devices`.",
        "The container requests a GPU by an index or UUID that the host does not have, or no longer"
        " has.",
        ("List the GPUs with `nvidia-smi -L`; correct `--gpus device=…`.",),
        "high",
        _detect_gpu_device,
    ),
    Cause(
        "start-device",
        "The device does not exist",
        "Never started, `error gathering device information while adding custom device`.",
        "A requested device file does not exist: its driver is not loaded, or the name is wrong.",
        ("Check it with `ls -l /dev`, and correct `--device`.",),
        "high",
        _detect_device,
    ),
)
