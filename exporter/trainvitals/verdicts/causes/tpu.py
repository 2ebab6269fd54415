"""Deaths of programs on TPUs."""

from __future__ import annotations

from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "tpu-busy",
        "The TPU is in use",
        "The log contains `The TPU is already in use` or `libtpu_lockfile`.",
        "Another process holds the TPU, or a dead one left its lock file.",
        (
            "Find the process: `sudo lsof -w /dev/accel* /dev/vfio/*`, and end it.",
            "Where there is none, remove the lock: `sudo rm /tmp/libtpu_lockfile`.",
        ),
        summary="Another process holds the TPU, or a dead one left its lock file.",
        lines=matches(
            r"TPU (?:device )?is already in use|libtpu_lockfile|libtpu\.so (?:is )?already in use",
            r"/dev/(?:accel|vfio/)[0-9]{1,3}\)?: (?:Device or resource busy|Operation not permitted)",
            r"Couldn't open iommu group|TPU.{0,60}is (?:held|in use) by (?:another )?process",
        ),
    ),
    text_cause(
        "tpu-oom",
        "A TPU ran out of memory",
        "The log contains `Ran out of memory in memory space hbm` or `Exceeded hbm capacity`.",
        "The compiled program needs more HBM than a TPU core has.",
        (
            "Reduce the batch size for each device, and accumulate gradients.",
            "Recompute activations: `jax.checkpoint`; use `bfloat16`.",
            "Divide the model over more cores: `jax.sharding.NamedSharding`, FSDP of PyTorch/XLA.",
        ),
        summary="The program needs more memory (HBM) than the TPU has.",
        lines=contains(
            "in memory space hbm",
            "in memory space vmem",
            "hbm capacity",
            "Ran out of memory in HBM",
            "at the bottom of memory. That was not possible",
            "HBM OOM",
            "That was not possible. There are",
            "(0x0x0_HBM0)",
            "TPU: Ran out of memory",
            without=("GPU",),
        ),
    ),
)
