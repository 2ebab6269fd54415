"""Deaths by faults of a GPU, and by faults of programs that the GPU found."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.causes.case import Case
from trainvitals.causes.evidence import XidError
from trainvitals.causes.figures import write_span
from trainvitals.causes.signs import Sign, find, has
from trainvitals.causes.verdict import Cause, Finding

_XID_ECC = frozenset({48, 63, 64, 94, 95})
_XID_LOST = frozenset({79})
_XID_PROGRAM = frozenset({13, 31})
# The kernel counts from the boot and the engine by the wall clock, and both may be late.
_XID_LATE_SECONDS = 5.0
_XID_NEAR_SECONDS = 120.0
_ANY_CUDA_ERROR = has("CUDA error", "CUDA driver", "NVML", "No CUDA GPUs", "cudaError", "NCCL")


def list_xids(case: Case, codes: frozenset[int]) -> tuple[XidError, ...]:
    """Give the driver's errors of some codes while it ran, the oldest first."""
    started, ended = case.evidence.started, case.evidence.ended
    return tuple(
        xid
        for xid in sorted(case.evidence.xids or (), key=lambda xid: xid.time)
        if xid.code in codes
        and (started is None or xid.time >= started - _XID_LATE_SECONDS)
        and (ended is None or xid.time <= ended + _XID_LATE_SECONDS)
    )


def _tell_xids(case: Case, xids: tuple[XidError, ...]) -> tuple[str, ...]:
    told = []
    for xid in xids[-3:]:
        before = case.measure_before_end(xid.time)
        when = "" if before is None else f" {write_span(before)} before the end"
        text = f": `{xid.text[:160]}`" if xid.text else ""
        told.append(f"The kernel logged Xid {xid.code} of GPU {xid.bus_id}{when}{text}.")
    return tuple(told)


def look_gpu_lost(case: Case) -> Finding | None:
    """Look for a GPU that fell off the bus: Xid 79, or what programs say of one."""
    xids = list_xids(case, _XID_LOST)
    sign = find(
        case,
        has(
            "fallen off the bus",
            "Unable to determine the device handle",
            "CUDA error: unknown error",
            "GPU is lost",
            "NVMLError_GpuIsLost",
        ),
    )
    if sign is None and not xids:
        return None
    bus = xids[-1].bus_id if xids else ""
    which = f"GPU {bus}" if bus else "A GPU"
    steps = (
        "Stop using that GPU and restart the host; a reset seldom brings it back: `sudo reboot`.",
        (
            "Look for heat and power before it: `accelerator_temperature_celsius`,"
            " `accelerator_power_watts`, `nvidia-smi -q -d TEMPERATURE,POWER`."
        ),
        (
            f"Where it happens again, reseat the card and its power cables, and try"
            f" `nvidia-smi -i {bus or 'GPU'} -pl WATTS` with a lower limit."
        ),
    )
    return _conclude_hardware(
        case, "gpu-lost", f"{which} fell off the bus: the host cannot reach it.", xids, sign, steps
    )


def look_gpu_ecc(case: Case) -> Finding | None:
    """Look for memory faults of a GPU: Xid 48, 63, 64, 94, 95, or CUDA's error."""
    xids = list_xids(case, _XID_ECC)
    sign = find(case, has("uncorrectable ECC error"))
    if sign is None and not xids:
        return None
    bus = xids[-1].bus_id if xids else ""
    is_bad = any(xid.code == 64 for xid in xids)  # noqa: PLR2004 - the row could not be remapped
    steps = (
        (
            "Drain that GPU and reset it:"
            f" `sudo nvidia-smi --gpu-reset -i {bus or 'GPU'}`, or restart the host."
        ),
        f"See what it counts: `nvidia-smi -q -d ECC,ROW_REMAPPER{f' -i {bus}' if bus else ''}`.",
        (
            "Xid 64 says that its memory cannot be repaired: have the card replaced."
            if is_bad
            else "Where it comes again, or with Xid 64, have the card replaced."
        ),
    )
    which = f"of GPU {bus} " if bus else ""
    summary = f"The memory {which}has an error that could not be corrected."
    return _conclude_hardware(case, "gpu-ecc", summary, xids, sign, steps)


def _conclude_hardware(
    case: Case,
    reason: str,
    summary: str,
    xids: tuple[XidError, ...],
    sign: Sign | None,
    steps: tuple[str, ...],
) -> Finding:
    told = _tell_xids(case, xids)
    if sign is None:
        return _conclude_xids(case, Finding(reason, summary, "low", told, (), steps), xids)
    if not xids and "unknown error" in sign.text:
        sign = sign.cap("medium", "The kernel log shows no Xid 79.")
    return sign.conclude(reason, summary, steps, speaks_for=told)


def _conclude_xids(case: Case, finding: Finding, xids: tuple[XidError, ...]) -> Finding:
    """Judge Xids without a line of the log that fits: the GPU may have been another's."""
    before = case.measure_before_end(xids[-1].time)
    is_near = before is None or before <= _XID_NEAR_SECONDS
    settings = case.evidence.settings
    doubts = ("Nothing says that this GPU was the container's.",) if case.is_container else ()
    if not is_near or case.exit_code == 0 or (settings is not None and not settings.wants_gpus):
        return replace(finding, speaks_against=doubts)
    error = find(case, _ANY_CUDA_ERROR)
    if error is None:
        return replace(finding, confidence="medium", speaks_against=doubts)
    told = (*finding.speaks_for, *error.speaks_for)
    return replace(finding, confidence="high", speaks_for=told)


def look_cuda_assert(case: Case) -> Finding | None:
    """Look for an assertion on the GPU: an index or a label out of range."""
    sign = find(case, has("device-side assert triggered"))
    if sign is None:
        return None
    asserted = [line.strip() for line in case.lines if "Assertion `" in line]
    return sign.conclude(
        "cuda-assert",
        "An index or a label was out of range on the GPU.",
        (
            (
                "Run the same batch with `CUDA_LAUNCH_BLOCKING=1`, or on the CPU (`device='cpu'`):"
                " the traceback then ends at the real line."
            ),
            (
                "Compare labels with the number of classes and token ids with the vocabulary:"
                " `print(labels.min(), labels.max(), model.config.vocab_size)`."
            ),
            "The process cannot go on after it; do not catch it and retry.",
        ),
        speaks_for=(f"A kernel says `{asserted[0][:240]}`.",) if asserted else (),
    )


def look_cuda_illegal(case: Case) -> Finding | None:
    """Look for a kernel that read or wrote where it must not."""
    sign = find(
        case,
        has(
            "illegal memory access was encountered",
            "CUDA error: misaligned address",
            "CUDA error: unspecified launch failure",
            "CUDA error: an illegal instruction",
        ),
    )
    if sign is None:
        return None
    return sign.cap("medium").conclude(
        "cuda-illegal",
        "A kernel read or wrote GPU memory that is not its own.",
        (
            (
                "Find the kernel: run it with `CUDA_LAUNCH_BLOCKING=1`, or under"
                " `compute-sanitizer --tool memcheck python ...`."
            ),
            (
                "Go back to the versions that worked, first of extensions with kernels of their own"
                " (flash-attn, xformers, apex, Triton): `pip list` beside that of the old image."
            ),
            "Where only one GPU of many has it, suspect the GPU: `nvidia-smi -q -d ECC,ROW_REMAPPER`.",
        ),
        speaks_for=_tell_xids(case, list_xids(case, _XID_PROGRAM)),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="gpu-lost",
        title="A GPU fell off the bus",
        signs="The kernel logged Xid 79 or `fallen off the bus`; the log says `Unable to determine the"
        " device handle` or `CUDA error: unknown error`.",
        meaning="The PCIe link, the power or the temperature of the card.",
        steps=(
            "Restart the host; reseat the card and its power cables where it happens again.",
            "Look at its power and temperature before it: `nvidia-smi -q -d TEMPERATURE,POWER`.",
        ),
        confidence="high",
        look=look_gpu_lost,
    ),
    Cause(
        reason="gpu-ecc",
        title="A GPU's memory has errors",
        signs="The kernel logged Xid 48, 63, 64, 94 or 95; the log says `uncorrectable ECC error"
        " encountered`.",
        meaning="A cell of the GPU's memory is bad.",
        steps=(
            "Drain it and reset it: `sudo nvidia-smi --gpu-reset -i GPU`.",
            "Xid 64, or the same again: have the card replaced.",
        ),
        confidence="high",
        look=look_gpu_ecc,
    ),
    Cause(
        reason="cuda-assert",
        title="An assertion failed on the GPU",
        signs="The log says `device-side assert triggered`.",
        meaning="An index, a label or a token id is out of range.",
        steps=(
            "Run it with `CUDA_LAUNCH_BLOCKING=1` or on the CPU to get the real line.",
            "Check labels against the number of classes, and token ids against the vocabulary.",
        ),
        confidence="high",
        look=look_cuda_assert,
    ),
    Cause(
        reason="cuda-illegal",
        title="A kernel used GPU memory that is not its own",
        signs="The log says `an illegal memory access was encountered`, `misaligned address` or"
        " `unspecified launch failure`; Xid 13 or 31 beside it.",
        meaning="A defect of a kernel, mostly of an extension; seldom the hardware.",
        steps=(
            "Find the kernel with `compute-sanitizer` or `CUDA_LAUNCH_BLOCKING=1`.",
            "Go back to the versions that worked.",
        ),
        confidence="medium",
        look=look_cuda_illegal,
    ),
)
