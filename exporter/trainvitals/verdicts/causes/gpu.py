"""Failures caused by a GPU fault, or by a program error that the GPU detected."""

from __future__ import annotations

import re
from dataclasses import replace

from trainvitals.sources.containers.evidence import XidError
from trainvitals.units import format_duration
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import is_cdna, is_rocm
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match
from trainvitals.verdicts.causes.notices import add_kernel_line, describe_kernel, find_kernel_line
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_XID_ECC = frozenset({48, 63, 64, 94, 95, 140, 156, 171, 172})
_XID_LOST = frozenset({79})
_XID_PROGRAM = frozenset({13, 31, 32, 43, 68, 69})
# The kernel log counts seconds since boot, but the engine uses the wall clock. Either time may be
# late.
_XID_LATE_SECONDS = 5.0
_XID_NEAR_SECONDS = 120.0
_MOST_QUOTED = 3
_ILLEGAL = matches(
    r"illegal memory access was encountered|misaligned address|unspecified launch failure",
    r"an illegal instruction was encountered|(?:CUDA|cuda|hip)_?(?:ERROR|Error)_?(?:ILLEGAL|Illegal)_?"
    r"(?:ADDRESS|Address|INSTRUCTION|Instruction)",
    r"CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure|hipErrorLaunchFailure|CUDA_ERROR_MISALIGNED_ADDRESS",
    r"(?:CUDA|HIP) error: (?:invalid program counter|hardware stack error|invalid address space)"
    r"|(?:CUDA_ERROR|cudaError|hipError)_?(?:INVALID_PC|InvalidPc|HARDWARE_STACK_ERROR|HardwareStackError|INVALID_ADDRESS_SPACE|InvalidAddressSpace)\b"
    r"|cudaErrorMisalignedAddress|\bWarp (?:Illegal|Misaligned|Out-of-range|Hardware) ",
    r"Memory access fault by GPU node|HSA_STATUS_ERROR_(?:MEMORY_FAULT|EXCEPTION|MEMORY_APERTURE_VIOLATION)",
    r"cuda runtime error \((?:77|700|4|719)\)|(?:cuda|hip)Success \((?:77|700|4|719) vs\. 0\)|operation not supported on global/shared address space",
)
_PAGE_FAULT = matches(
    r"amdgpu\b.{0,80}(?:page fault|VM_L2_PROTECTION_FAULT|for process)", ignore_case=True
)
_OF_PYTHON = matches(r"for process (?:python|torchrun|pt_main_thread|train)")
ANY_GPU_ERROR = contains(
    "CUDA error",
    "CUDA driver",
    "CUDA_ERROR_",
    "NVML",
    "No CUDA GPUs",
    "cudaError",
    "NCCL",
    "CUDNN_STATUS",
    "CUBLAS_STATUS",
    "HIP error",
    "hipError",
    "HSA_STATUS",
)
_NO_GPU = contains(
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "CUDA_ERROR_NO_DEVICE",
    "cudaErrorNoDevice",
    "Found no NVIDIA driver",
    "No visible GPU devices",
    "communicate with the NVIDIA driver",
    "No devices were found",
)
_PROBE_FAILED = matches(r"NVRM: The NVIDIA probe routine failed for")
# The driver rejects the card, or another driver or module uses it.
_UNSUPPORTED = matches(r"NVRM: .{0,120}(?=[nLlAa])(?:not supported|[Ll]egacy|API mismatch|already)")
_PROBED = re.compile(r"nvidia: probe of ([0-9a-fA-F:.]{7,16}) failed")
_LOST = contains(
    "fallen off the bus",
    "Unable to determine the device handle",
    "CUDA error: unknown error",
    "CUDA error 999",
    "CUDA_ERROR_UNKNOWN",
    "GPU is lost",
    "GPU_IS_LOST",
    "hipErrorDeviceLost",
    "NVMLError_GpuIsLost",
    "cudaErrorDeviceLost",
    "Xid 79",
)
# A failed assertion in a CUDA kernel; the message names the block and the thread.
_ASSERT = matches(
    r"device-side assert triggered|n_classes` failed|index out of bounds\"` failed|srcSelectDimSize` failed",
    r"block: \[[0-9]{1,9},[0-9]{1,9},[0-9]{1,9}\], thread: \[|device-side assertion fail|cudaErrorAssert",
    r"cuda runtime error \((?:59|710)\)|CUDA_ERROR_ASSERT|hipErrorAssert",
)


def list_xids(case: Case, codes: frozenset[int]) -> tuple[XidError, ...]:
    """Return the Xid errors with these codes during the subject's run time, the oldest first."""
    started, ended = case.evidence.started, case.evidence.ended
    return tuple(
        xid
        for xid in sorted(case.evidence.xids or (), key=lambda xid: xid.time)
        if xid.code in codes
        and (started is None or xid.time >= started - _XID_LATE_SECONDS)
        and (ended is None or xid.time <= ended + _XID_LATE_SECONDS)
    )


def quotes_xid(codes: frozenset[int]) -> str:
    """Return a pattern for log lines that quote an Xid error with one of these codes."""
    return rf"NVRM: Xid \([^)]{{1,60}}\): (?:{'|'.join(map(str, sorted(codes)))}),"


_ECC = matches(
    r"uncorrectable ECC error|Contained memory error|contained memory error|cudaErrorContained|CUDA_ERROR_CONTAINED|ECC_UNCORRECTABLE|ErrorECCUncorrectable|"
    + quotes_xid(_XID_ECC)
)


def _describe_xids(case: Case, xids: tuple[XidError, ...]) -> tuple[str, ...]:
    sentences = []
    for xid in _select(xids):
        before = case.seconds_before_end(xid.time)
        when = "" if before is None else f" {format_duration(before)} before the end"
        text = f": `{xid.text[:160]}`" if xid.text else ""
        sentences.append(f"The kernel logged Xid {xid.code} of GPU {xid.bus_id}{when}{text}.")
    return tuple(sentences)


def _select(xids: tuple[XidError, ...]) -> list[XidError]:
    """Return at most three Xid errors to quote, which are the first errors with each code.

    If all errors have the same code, the last three errors are returned.
    """
    first = {xid.code: xid for xid in reversed(xids)}
    if len(first) == 1:
        return list(xids[-_MOST_QUOTED:])
    return sorted(first.values(), key=lambda xid: xid.time)[:_MOST_QUOTED]


def detect_gpu_lost(case: Case) -> Finding | None:
    """Detect a GPU that fell off the bus or that the driver could not initialize.

    The evidence is Xid 79, an error message of the program, or a failed probe in the kernel log.
    """
    xids = list_xids(case, _XID_LOST)
    match = find_match(case, _LOST)
    bus = xids[-1].bus_id if xids else ""
    summary = "fell off the bus: the host can no longer access it."
    if match is None and not xids:
        match, bus = _find_failed_probe(case)
        summary = "does not answer: the driver could not take it into use."
    if match is None and not xids:
        return None
    which = f"GPU {bus}" if bus else "A GPU"
    steps = (
        "Stop using this GPU and restart the host, because a reset rarely recovers it: `sudo reboot`.",
        (
            "Check its temperature and power before the error: `accelerator_temperature_celsius`,"
            " `accelerator_power_watts`, `nvidia-smi -q -d TEMPERATURE,POWER`."
        ),
        (
            f"If it happens again, reseat the card and its power cables, and set a lower power limit:"
            f" `nvidia-smi -i {bus or 'GPU'} -pl WATTS`."
        ),
    )
    return conclude_hardware(case, "gpu-lost", f"{which} {summary}", xids, match, steps)


def _find_failed_probe(case: Case) -> tuple[LogMatch | None, str]:
    """Return the match for a GPU that the driver could not initialize, and its PCI address.

    The kernel log reports that the initialization failed. The program's log may also report that
    there is no GPU.
    """
    lines = case.evidence.kernel_lines
    if not any(map(_PROBE_FAILED, lines)) or any(map(_UNSUPPORTED, lines)):
        return None, ""
    named = next((found for line in lines if (found := _PROBED.search(line))), None)
    match = find_match(case, _NO_GPU)
    match = (
        find_kernel_line(case, _PROBE_FAILED)
        if match is None
        else add_kernel_line(case, match, _PROBE_FAILED)
    )
    return match, named[1] if named else ""


def detect_gpu_ecc(case: Case) -> Finding | None:
    """Detect uncorrectable GPU memory errors.

    The evidence is Xid 48, 63, 64, 94, 95, 140, 156, 171 or 172, or an error message of CUDA.
    """
    xids = list_xids(case, _XID_ECC)
    match = find_match(case, _ECC)
    if match is None and not xids:
        return None
    bus = xids[-1].bus_id if xids else ""
    is_bad = any(xid.code == 64 for xid in xids)  # noqa: PLR2004 - the row could not be remapped
    steps = (
        (
            "Drain this GPU and reset it:"
            f" `sudo nvidia-smi --gpu-reset -i {bus or 'GPU'}`, or restart the host."
        ),
        f"Read its counters: `nvidia-smi -q -d ECC,ROW_REMAPPER{f' -i {bus}' if bus else ''}`.",
        (
            "Replace the card: Xid 64 means that a memory row could not be remapped."
            if is_bad
            else "Replace the card if the error returns, or on Xid 64."
        ),
    )
    which = f"GPU {bus}" if bus else "A GPU"
    summary = f"{which} has an uncorrectable memory error (ECC)."
    return conclude_hardware(case, "gpu-ecc", summary, xids, match, steps)


def conclude_hardware(
    case: Case,
    reason: str,
    summary: str,
    xids: tuple[XidError, ...],
    match: LogMatch | None,
    steps: tuple[str, ...],
) -> Finding:
    """Return the finding about a GPU fault, based on the Xid errors and the log.

    Args:
        case: The evidence of the death that is diagnosed.
        reason: The cause, such as `gpu-lost`.
        summary: A sentence that describes the fault.
        xids: The Xid errors that indicate the fault.
        match: The log line that indicates the fault; None if no line indicates it.
        steps: The steps that the finding recommends.
    """
    sentences = _describe_xids(case, xids)
    if match is None:
        return _conclude_xids(case, Finding(reason, summary, "low", sentences, (), steps), xids)
    if not xids and "unknown error" in match.text:
        is_read = case.evidence.xids is not None
        why = "The kernel log has no Xid 79." if is_read else "The kernel log could not be read."
        match = match.cap("medium", why)
    if xids and match.confidence == "medium" and case.exit_code != 0 and case.has_ended:
        match = replace(match, confidence="high")  # two independent signs
    return match.conclude(reason, summary, steps, speaks_for=sentences)


def _conclude_xids(case: Case, finding: Finding, xids: tuple[XidError, ...]) -> Finding:
    """Return the finding with the confidence for Xid errors that no log line confirms.

    The confidence is limited because another container may have used the GPU.
    """
    before = case.seconds_before_end(xids[-1].time)
    is_near = before is None or before <= _XID_NEAR_SECONDS
    settings = case.evidence.settings
    doubts = ("Whether the container used this GPU is unknown.",) if case.is_container else ()
    if not is_near or case.exit_code == 0 or (settings is not None and not settings.wants_gpus):
        return replace(finding, speaks_against=doubts)
    error = find_match(case, ANY_GPU_ERROR)
    if error is None:
        return replace(finding, confidence="medium", speaks_against=doubts)
    sentences = (*finding.speaks_for, *error.speaks_for)
    return replace(finding, confidence="high", speaks_for=sentences)


def detect_cuda_assert(case: Case) -> Finding | None:
    """Detect a failed assertion on the GPU, which indicates an index or a label out of range."""
    match = find_match(case, _ASSERT)
    if match is None:
        return None
    asserted = [line.strip() for line in case.lines if "Assertion `" in line]
    error = find_match(case, ANY_GPU_ERROR)
    if asserted and error is not None and error.confidence == "high":
        match = error  # because every later CUDA call fails
    return match.conclude(
        "cuda-assert",
        "An assertion failed on the GPU: an index or a label was out of range.",
        (
            # Kernels run asynchronously, so a later call raises the error.
            (
                "Run the same batch with `CUDA_LAUNCH_BLOCKING=1`, or on the CPU (`device='cpu'`), so"
                " that the traceback ends at the failing line."
            ),
            (
                "Compare labels with the number of classes and token IDs with the vocabulary:"
                " `print(labels.min(), labels.max(), model.config.vocab_size)`."
            ),
            "Do not catch the error and retry: the process's CUDA context is unusable after it.",
        ),
        speaks_for=(f"The CUDA kernel reported `{asserted[0][:240]}`.",) if asserted else (),
    )


def detect_cuda_illegal(case: Case) -> Finding | None:
    """Detect a CUDA kernel that accessed invalid GPU memory."""
    match = find_match(case, _ILLEGAL) or find_kernel_line(case, _PAGE_FAULT, named=_OF_PYTHON)
    xids = list_xids(case, _XID_PROGRAM)
    sentences = _describe_xids(case, xids)
    if match is not None:
        steps = _advise_illegal(
            is_amd="by GPU node" in match.text or _PAGE_FAULT(match.text) or is_rocm(case),
            is_cdna=is_cdna(case),
        )
        summary = "A kernel of the program accessed invalid GPU memory."
        faults = describe_kernel(case, _PAGE_FAULT)
        match = match if faults else match.cap("medium")
        faults = tuple(each for each in faults if each not in match.speaks_for)
        return match.conclude("cuda-illegal", summary, steps, speaks_for=(*sentences, *faults))
    if not xids:
        return None
    summary = f"A kernel of the program accessed invalid memory of GPU {xids[-1].bus_id}."
    finding = Finding("cuda-illegal", summary, "low", sentences, (), _advise_illegal(is_amd=False))
    is_silent = case.evidence.log is not None and find_match(case, ANY_GPU_ERROR) is None
    return finding if is_silent else _conclude_xids(case, finding, xids)


def _advise_illegal(*, is_amd: bool, is_cdna: bool = False) -> tuple[str, ...]:
    back = (
        "Return to the last working versions, first of extensions with custom kernels"
        " (flash-attn, xformers, apex, Triton): compare `pip list` with the old image's."
    )
    if is_amd:
        return (
            "Find the kernel: run it with `AMD_SERIALIZE_KERNEL=3 HIP_LAUNCH_BLOCKING=1`.",
            back,
            "Check that the build supports the card: `rocminfo | grep gfx`"
            + ("." if is_cdna else "; a wrong `HSA_OVERRIDE_GFX_VERSION` has this effect too."),
        )
    return (
        (
            "Find the kernel: run it with `CUDA_LAUNCH_BLOCKING=1`, or under"
            " `compute-sanitizer --tool memcheck python ...`."
        ),
        back,
        "If only one GPU has this error, check its memory: `nvidia-smi -q -d ECC,ROW_REMAPPER`.",
    )


LOST = Cause(
    reason="gpu-lost",
    title="A GPU fell off the bus",
    signs="The kernel logged Xid 79 or `fallen off the bus`; the log contains `Unable to determine"
    " the device handle` or `CUDA error: unknown error`.",
    meaning="A fault of the card's PCIe link, power supply or cooling.",
    steps=(
        "Restart the host; reseat the card and its power cables if it happens again.",
        "Check its power and temperature: `nvidia-smi -q -d TEMPERATURE,POWER`.",
    ),
    confidence="high",
    detect=detect_gpu_lost,
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="gpu-ecc",
        title="Uncorrectable GPU memory error",
        signs="The kernel logged Xid 48, 63, 64, 94 or 95; the log contains `uncorrectable ECC error"
        " encountered`.",
        meaning="A part of the GPU's memory is faulty.",
        steps=(
            "Drain the GPU and reset it: `sudo nvidia-smi --gpu-reset -i GPU`.",
            "Replace the card on Xid 64, or if the error returns.",
        ),
        confidence="high",
        detect=detect_gpu_ecc,
    ),
    Cause(
        reason="cuda-assert",
        title="An assertion failed on the GPU",
        signs="The log contains `device-side assert triggered`.",
        meaning="An index, a label or a token ID is out of range.",
        steps=(
            "Run it with `CUDA_LAUNCH_BLOCKING=1` or on the CPU to find the failing line.",
            "Check labels against the number of classes, and token IDs against the vocabulary.",
        ),
        confidence="high",
        detect=detect_cuda_assert,
    ),
    Cause(
        reason="cuda-illegal",
        title="A CUDA kernel accessed invalid memory",
        signs="The log contains `an illegal memory access was encountered`, `misaligned address` or"
        " `unspecified launch failure`, or `Memory access fault by GPU node` on ROCm; or the kernel logged"
        " Xid 13, 31, 32, 43, 68 or 69.",
        meaning="A defect in a kernel, usually of an extension; rarely the hardware.",
        steps=(
            "Find the kernel with `compute-sanitizer` or `CUDA_LAUNCH_BLOCKING=1`.",
            "Return to the last working versions.",
        ),
        confidence="medium",
        detect=detect_cuda_illegal,
    ),
)
