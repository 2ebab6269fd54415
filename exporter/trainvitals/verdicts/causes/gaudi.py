"""Failures of programs on Intel Gaudi accelerators."""

from __future__ import annotations

import re

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.advice import advise_smaller_batch
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.notices import describe_kernel
from trainvitals.verdicts.causes.signs import contains
from trainvitals.verdicts.causes.verdict import Cause, Finding

_HPU = re.compile(r"Allocation failed for size::(\d{1,20})")

_HPU_OOM = contains("PT_DEVMEM Allocation failed", "synDeviceMalloc failed", "HPU out of memory")
_HPU_ACQUIRE = contains("Device acquire failed")
_NOT_USABLE = contains("Device is NOT usable", "CPU-CP timeout", "failed to initialize the H/W")
_RELOAD = (
    (
        "Reload the driver on the host, without a program on the cards:"
        " `sudo modprobe -r habanalabs && sudo modprobe habanalabs`, then `hl-smi`."
    ),
    (
        "If the kernel logs it again, turn the host off and on; a warm restart does not reset the card's"
        " own processor."
    ),
    "Compare the releases of driver and firmware: `hl-smi -L`, `hl-fw-loader`; they need to be the same.",
    "Until then run on the cards that are left: set `HABANA_VISIBLE_DEVICES`.",
)
_HPU_COMPILE = contains("Graph compile failed", "synNodeCreateWithId failed")


def detect_hpu_oom(case: Case) -> Finding | None:
    """Detect a Gaudi card that ran out of memory."""
    match = find_match(case, _HPU_OOM)
    if match is None:
        return None
    found = _HPU.search(match.text)
    size = f": an allocation of {format_bytes(int(found[1]))} failed" if found else ""
    return match.conclude(
        "hpu-oom",
        f"A Gaudi card ran out of memory{size}.",
        (
            advise_smaller_batch(case),
            "Watch each card's memory while it runs: `hl-smi` or `accelerator_memory_used_bytes`.",
            (
                "Save memory: `bf16=True`, `gradient_checkpointing=True`, fewer distinct shapes"
                " (bucket or pad the sequences), or more cards with DeepSpeed ZeRO."
            ),
        ),
    )


def detect_hpu_acquire(case: Case) -> Finding | None:
    """Detect a Gaudi card that the program could not acquire."""
    match = find_match(case, _HPU_ACQUIRE)
    if match is None:
        return None
    is_taken = "already acquired" in match.text
    faults = describe_kernel(case, _NOT_USABLE)
    if faults:
        return match.conclude(
            "hpu-acquire",
            "A Gaudi card cannot be used: the driver could not initialize it.",
            _RELOAD,
            speaks_for=faults,
        )
    return match.conclude(
        "hpu-acquire",
        "The Gaudi card is in use by another process."
        if is_taken
        else "No Gaudi card could be acquired: none is free, or none is visible.",
        (
            (
                "Find the processes that use them: `hl-smi` and `sudo lsof /dev/accel/accel*` on the host;"
                " a dead run may have left one behind."
            ),
            (
                "Start it with the cards: `docker run --runtime=habana -e HABANA_VISIBLE_DEVICES=all"
                " -e OMPI_MCA_btl_vader_single_copy_mechanism=none --cap-add=sys_nice --ipc=host`."
            ),
            "Give concurrent jobs different cards: set `HABANA_VISIBLE_MODULES`.",
            "Compare versions: `hl-smi` shows the driver's; the image needs the same release.",
        ),
    )


def detect_hpu_compile(case: Case) -> Finding | None:
    """Detect a model graph that the Gaudi compiler could not compile."""
    match = find_match(case, _HPU_COMPILE)
    if match is None:
        return None
    return match.conclude(
        "hpu-compile",
        "The Gaudi compiler could not compile the model's graph.",
        (
            (
                "Find the operation: run it with `LOG_LEVEL_ALL=3 ENABLE_CONSOLE=true`, or read"
                " `$HABANA_LOGS` (`~/.habana_logs`)."
            ),
            "Check whether lazy mode or HPU graphs cause it: run it with `PT_HPU_LAZY_MODE=0`.",
            (
                "Compare versions: `hl-smi` shows the driver's; image, driver and firmware need the same"
                " release."
            ),
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="hpu-oom",
        title="A Gaudi card ran out of memory",
        signs="The log contains `PT_DEVMEM Allocation failed for size::...`.",
        meaning="The batch or the model's state needs more memory than the card has.",
        steps=(
            "Reduce the batch size; use `bf16` and gradient checkpointing.",
            "Watch `hl-smi`, and pad sequences to few distinct shapes.",
        ),
        confidence="high",
        detect=detect_hpu_oom,
    ),
    Cause(
        reason="hpu-acquire",
        title="No Gaudi card could be acquired",
        signs="The log contains `Device acquire failed`, with `synStatus=8`, `20` or `26`.",
        meaning="Another process uses the card, the container has none, or the releases of driver and"
        " image differ.",
        steps=(
            "Find the processes that use them with `hl-smi` and `sudo lsof /dev/accel/accel*`.",
            "Run the container with `--runtime=habana -e HABANA_VISIBLE_DEVICES=all`.",
        ),
        confidence="high",
        detect=detect_hpu_acquire,
    ),
    Cause(
        reason="hpu-compile",
        title="The Gaudi compiler failed",
        signs="The log contains `Graph compile failed` or `synNodeCreateWithId failed`.",
        meaning="This release cannot compile an operation or a shape, or the releases of image and"
        " driver differ.",
        steps=(
            "Find the operation with `LOG_LEVEL_ALL=3 ENABLE_CONSOLE=true`.",
            "Compare the releases of driver (`hl-smi`) and image.",
        ),
        confidence="high",
        detect=detect_hpu_compile,
    ),
)
