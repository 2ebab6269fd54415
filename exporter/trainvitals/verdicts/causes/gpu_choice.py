"""GPUs that a program requests but that do not exist or that another process holds."""

from __future__ import annotations

from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "gpu-busy",
        "The GPU is held by another process",
        "The log contains `all CUDA-capable devices are busy or unavailable`.",
        "The GPU is in exclusive mode and another process has it; sometimes a process that hangs.",
        (
            "Find the process: `nvidia-smi`, `sudo fuser -v /dev/nvidia*`.",
            "Allow several: `sudo nvidia-smi -c DEFAULT`; `nvidia-smi -q -d COMPUTE` shows the mode.",
            "Give each process its own GPU: `CUDA_VISIBLE_DEVICES`, `LOCAL_RANK`.",
        ),
        summary="Another process holds the GPU, which is in exclusive mode or unavailable.",
        lines=contains(
            "CUDA-capable devices are busy or unavailable",
            "CUDA-capable device(s) is/are busy or unavailable",
            "cudaErrorDeviceAlreadyInUse",
            "CUDA_ERROR_DEVICE_ALREADY",
            "CUDA_ERROR_DEVICE_UNAVAILABLE",
            "cudaErrorDevicesUnavailable",
            "cudaErrorDeviceUnavailable",
            "exclusive-thread device already in use",
        ),
    ),
    text_cause(
        "cuda-ordinal",
        "A GPU with this number does not exist",
        "The log contains `invalid device ordinal`, `Invalid device id` or `your machine only has`.",
        "More ranks than visible GPUs, or a fixed number such as `cuda:1` on a machine with one GPU.",
        (
            "Compare the ranks with the GPUs: `nvidia-smi -L | wc -l`, `echo $CUDA_VISIBLE_DEVICES`.",
            (
                "Start as many as there are: `torchrun --nproc-per-node=gpu`, `accelerate launch"
                " --num_processes N`."
            ),
            "Use `LOCAL_RANK`, not `RANK`, for the device, and no fixed `cuda:1`.",
        ),
        summary="A rank asks for a GPU by a number that does not exist, mostly because there are more"
        " ranks than visible GPUs.",
        lines=matches(
            r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE|hipErrorInvalidDevice|Invalid device id|Invalid CUDA 'device="
            r"|exceeds the number of visible GPUs|Invalid device argument|than total desired GPUs|than the number of available GPUs"
            r"|Attempting to deserialize object on CUDA device|device >= 0 && device < num_gpus"
            r"|There are not enough slots available in the system|No slot '"
            r"|(?:requested|Requested) (?:[0-9]{1,5} )?(?:gpu|GPU|device)s?\b.{0,80}\b(?:but|only)\b|MisconfigurationException: You requested (?:gpu|GPU|device)"
            r"|[Bb]ut (?:your|the|this) (?:machine|node|host|cluster|system) (?:only )?has:? .{0,40}(?:\[|GPU)"
            r"|(?:No available node types can fulfill|Insufficient cluster resources|[Rr]esources? demands? .{0,20}infeasible).{0,160}GPU"
        ),
    ),
)
