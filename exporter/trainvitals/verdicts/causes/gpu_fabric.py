"""Faults of GPU firmware, NVLinks and the NVSwitch fabric, and GPU resets."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.gpu import ANY_GPU_ERROR, conclude_hardware, list_xids, quotes_xid
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match, quote
from trainvitals.verdicts.causes.notices import find_kernel_line
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_FIRMWARE = frozenset({61, 62, 119, 120, 122, 123, 143})
_NVLINK = frozenset({74, 136, *range(144, 151), 155})
_HUNG = frozenset({8, 46, 109, 158})
_RESET = matches(
    r"amdgpu.{0,80}(?:GPU reset(?:\([0-9]{1,6}\))? (?:begin|succeeded|failed)|VRAM is lost)|MODE[0-9] reset",
    r"amdgpu.{0,80}ring \S{1,40} timeout|ring [a-z0-9_.]{1,40} timeout, signaled seq|VRAM is lost due to GPU reset",
    r"HW Exception by GPU node.{0,80}(?:GPU Hang|reset)|GPU HANG: ecode|GPU_HANG|habanalabs.{0,80}(?:hard|device) reset",
    rf"CP (?:might be|is) in an unrecoverable state|{quotes_xid(_HUNG)}",
    ignore_case=True,
)
_FIRMWARE_LINE = matches(
    rf"waiting for RPC (?:response )?from (?:GPU[0-9]{{1,3}} )?GSP|{quotes_xid(_FIRMWARE)}"
)
_NVLINK_LINE = matches(
    rf"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable|CUDA_ERROR_NVLINK_UNCORRECTABLE|{quotes_xid(_NVLINK)}"
)
_NVLS = matches(r"NVLS|nvls\.cc|NVLink SHARP|[Mm]ulticast")
_NOT_READY = matches(
    r"nvls\.cc:[0-9]{1,6} NCCL WARN|Failed to bind NVLink SHARP"
    r"|NVLS.{0,80}(?:Cuda failure|failed to|error)|multicast.{0,60}system not yet initialized"
    r"|[Ss]ystem not yet initialized|\bError 802\b|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"
    r"|NVSwitch.{0,60}(?:not ready|not configured)|[Ff]abric [Mm]anager.{0,60}not (?:running|started)"
)


def _detect_firmware(case: Case) -> Finding | None:
    xids = list_xids(case, _FIRMWARE)
    match = find_match(case, _FIRMWARE_LINE)
    if match is None and not xids:
        return None
    bus = xids[-1].bus_id if xids else ""
    which = f"GPU {bus}" if bus else "A GPU"
    return conclude_hardware(
        case,
        "gpu-firmware",
        f"The firmware of {which[0].lower() if not bus else which[0]}{which[1:]} no longer answers the"
        " driver.",
        xids,
        match,
        (
            f"Reset the GPU: `sudo nvidia-smi --gpu-reset -i {bus or 'GPU'}`, or restart the host.",
            "Install a newer driver; early 525 drivers had this defect: `nvidia-smi -q | grep -i gsp`.",
            "If it happens again, collect `sudo nvidia-bug-report.sh` and replace the card.",
        ),
    )


def _detect_reset(case: Case) -> Finding | None:
    xids = list_xids(case, _HUNG)
    match = find_match(case, _RESET) or find_kernel_line(case, _RESET)
    if match is None and not xids:
        match = _find_beside(case)
    if match is None and not xids:
        return None
    return conclude_hardware(
        case,
        "gpu-reset",
        "A GPU hung, and the driver reset it: programs that used it lost their memory on it.",
        xids,
        match,
        (
            "Start the run again from its last checkpoint; a program cannot go on with a card that was reset.",
            (
                "Install a newer driver and firmware, and the framework's build for them: `modinfo -F version"
                " amdgpu`, `rocminfo`, `nvidia-smi`."
            ),
            (
                "If it happens again, lower the clocks or the power limit, and check the power supply: `rocm-smi"
                " --setpoweroverdrive WATTS`, `nvidia-smi -pl WATTS`."
            ),
        ),
    )


def _find_beside(case: Case) -> LogMatch | None:
    """Return the match of a GPU error in the log; None unless the kernel logged a GPU reset."""
    line = next((line for line in reversed(case.evidence.kernel_lines) if _RESET(line)), None)
    match = find_match(case, ANY_GPU_ERROR) if line is not None else None
    if line is None or match is None:
        return None
    kernel = f"The kernel logged {quote(line)}."
    return replace(match, speaks_for=(*match.speaks_for, kernel)).cap("medium")


def _detect_nvlink(case: Case) -> Finding | None:
    xids = list_xids(case, _NVLINK)
    match = find_match(case, _NVLINK_LINE)
    if match is None and not xids:
        return None
    bus = xids[-1].bus_id if xids else ""
    return conclude_hardware(
        case,
        "gpu-nvlink",
        f"{f'GPU {bus}' if bus else 'A GPU'} reported an error of its NVLinks.",
        xids,
        match,
        (
            "Read the links' errors: `nvidia-smi nvlink -e`, `nvidia-smi nvlink -s`.",
            "Reset all GPUs of the machine together, or restart it: `sudo nvidia-smi --gpu-reset`.",
            (
                "If it returns on one link, have the bridge, the baseboard or the card replaced:"
                " `dcgmi diag -r 3`."
            ),
        ),
    )


_RESTART_FABRIC = (
    (
        "Start the service, which must have the driver's version: `sudo systemctl enable --now"
        " nvidia-fabricmanager`, `systemctl status nvidia-fabricmanager`."
    ),
    (
        "After a restart of the service reset the GPUs, or restart the host: `sudo nvidia-smi --gpu-reset`;"
        " `nvidia-smi -q | grep -A2 Fabric` must show `Completed`."
    ),
    "To work without it for now: `NCCL_NVLS_ENABLE=0`.",
)


def _advise_fabric(case: Case) -> tuple[str, ...]:
    """Return the advice for the fabric; it contains a setting of NCCL only if NCCL failed."""
    return _RESTART_FABRIC if case.search(_NVLS) is not None else _RESTART_FABRIC[:-1]


CAUSES: tuple[Cause, ...] = (
    Cause(
        "gpu-firmware",
        "A GPU's firmware hangs",
        "The kernel logged Xid 61, 62, 119, 120, 122, 123 or 143, such as `Timeout waiting for RPC from GSP`.",
        "The GPU's own processor (GSP, PMU) no longer answers: a defect of driver or firmware, or the"
        " card's.",
        (
            "Reset the GPU, `sudo nvidia-smi --gpu-reset -i GPU`, or restart the host.",
            "Install a newer driver.",
        ),
        "high",
        _detect_firmware,
    ),
    Cause(
        "gpu-reset",
        "A GPU hung and was reset",
        "The kernel logged `amdgpu: GPU reset begin!`, `ring … timeout`, or Xid 8, 46, 109 or 158; or"
        " `GPU Hang` in the log.",
        "A kernel of a program, or the driver or firmware, kept the card busy until the driver's time limit.",
        (
            "Start again from the last checkpoint; `dmesg -T | grep -iE 'amdgpu|NVRM'` names the process.",
            "Install a newer driver and firmware; check the power supply if it happens again.",
        ),
        "high",
        _detect_reset,
    ),
    Cause(
        "gpu-nvlink",
        "An error of the NVLinks",
        "The kernel logged Xid 74, 136, 144 to 150 or 155.",
        "A link between GPUs, or to an NVSwitch, failed; Xid 45 of other GPUs is its consequence.",
        (
            "Read the links' errors: `nvidia-smi nvlink -e`.",
            "Reset all GPUs together or restart the host.",
        ),
        "high",
        _detect_nvlink,
    ),
    text_cause(
        "fabric-manager",
        "The NVSwitch fabric is not set up",
        "The log contains `Error 802: system not yet initialized`, or NCCL's warning in `nvls.cc`.",
        "The Fabric Manager does not run, has another version than the driver, or was restarted without"
        " a reset of the GPUs.",
        _RESTART_FABRIC,
        summary="The fabric of NVSwitches is not set up: the Fabric Manager does not run, or was"
        " restarted without a reset of the GPUs.",
        lines=_NOT_READY,
        advise=_advise_fabric,
    ),
)
