"""Deaths of programs on Intel Gaudi cards."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_size
from trainvitals.causes.hints import advise_smaller_batch
from trainvitals.causes.signs import find, has
from trainvitals.causes.verdict import Cause, Finding

_HPU = re.compile(r"Allocation failed for size::(\d{1,20})")


def look_hpu_oom(case: Case) -> Finding | None:
    """Look for a Gaudi card whose memory ran out."""
    sign = find(case, has("PT_DEVMEM Allocation failed", "synDeviceMalloc failed"))
    if sign is None:
        return None
    found = _HPU.search(sign.text)
    size = f": another {write_size(int(found[1]))} did not fit" if found else ""
    return sign.conclude(
        "hpu-oom",
        f"A Gaudi card ran out of memory{size}.",
        (
            advise_smaller_batch(case),
            "See what each card holds while it runs: `hl-smi` or `accelerator_memory_used_bytes`.",
            (
                "Save memory: `bf16=True`, `gradient_checkpointing=True`, fewer different shapes"
                " (bucket or pad the sequences), or more cards with DeepSpeed ZeRO."
            ),
        ),
    )


def look_hpu_acquire(case: Case) -> Finding | None:
    """Look for Gaudi cards that a container did not get."""
    sign = find(case, has("Device acquire failed"))
    if sign is None:
        return None
    is_taken = "already acquired" in sign.text
    return sign.conclude(
        "hpu-acquire",
        "The Gaudi card is taken by another process."
        if is_taken
        else "It did not get a Gaudi card: none is free, or none is there for it.",
        (
            (
                "See who has them: `hl-smi` and `sudo lsof /dev/accel/accel*` on the host; a dead run"
                " may have left a process behind."
            ),
            (
                "Start it with the cards: `docker run --runtime=habana -e HABANA_VISIBLE_DEVICES=all"
                " -e OMPI_MCA_btl_vader_single_copy_mechanism=none --cap-add=sys_nice --ipc=host`."
            ),
            "Use a card once: set `HABANA_VISIBLE_MODULES` for jobs that run side by side.",
            "Compare versions: `hl-smi` names the driver; the image needs the same release.",
        ),
    )


def look_hpu_compile(case: Case) -> Finding | None:
    """Look for a graph that the Gaudi compiler refused."""
    sign = find(case, has("Graph compile failed", "synNodeCreateWithId failed"))
    if sign is None:
        return None
    return sign.conclude(
        "hpu-compile",
        "The Gaudi compiler could not compile the model's graph.",
        (
            (
                "Read which operation it was: run it with `LOG_LEVEL_ALL=3 ENABLE_CONSOLE=true`, or"
                " look into `$HABANA_LOGS` (`~/.habana_logs`)."
            ),
            "Run it with `PT_HPU_LAZY_MODE=0` and without HPU graphs, to see whether it is one of them.",
            "Compare versions: `hl-smi` names the driver; image, driver and firmware need one release.",
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="hpu-oom",
        title="A Gaudi card ran out of memory",
        signs="The log says `PT_DEVMEM Allocation failed for size::...`.",
        meaning="The batch or the model's state needs more than the card has.",
        steps=(
            "Use a smaller batch, `bf16` and gradient checkpointing.",
            "Watch `hl-smi`, and pad sequences to few different shapes.",
        ),
        confidence="high",
        look=look_hpu_oom,
    ),
    Cause(
        reason="hpu-acquire",
        title="No Gaudi card to be had",
        signs="The log says `Device acquire failed`, with `synStatus=8`, `20` or `26`.",
        meaning="Another process has the card, the container was not given one, or driver and image"
        " are of different releases.",
        steps=(
            "See who has them with `hl-smi` and `sudo lsof /dev/accel/accel*`.",
            "Run the container with `--runtime=habana -e HABANA_VISIBLE_DEVICES=all`.",
        ),
        confidence="high",
        look=look_hpu_acquire,
    ),
    Cause(
        reason="hpu-compile",
        title="The Gaudi compiler failed",
        signs="The log says `Graph compile failed` or `synNodeCreateWithId failed`.",
        meaning="An operation or a shape that this release cannot compile, or releases of image and"
        " driver that do not fit.",
        steps=(
            "Find the operation with `LOG_LEVEL_ALL=3 ENABLE_CONSOLE=true`.",
            "Compare the releases of driver (`hl-smi`) and image.",
        ),
        confidence="high",
        look=look_hpu_compile,
    ),
)
