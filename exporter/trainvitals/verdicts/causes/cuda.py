"""GPUs that a program cannot use, and unexplained failures inside the CUDA libraries."""

from __future__ import annotations

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match, quote
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause

# GPUs that do not exist or that another process uses exclusively.
CHOICE: tuple[Cause, ...] = (
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

_CALL = matches(
    r"CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_STATUS_(?!ALLOC_FAILED)[A-Z]|CUFFT_(?:INTERNAL|EXEC|SETUP|ALLOC)",
    r"DNN library (?:initialization failed|is not found)|Failed to get convolution algorithm|Could not create cudnn handle",
    r"cuDNN error: |Unable to find a valid cuDNN algorithm|(?:rocblas|miopen|hipblas)Status\w{1,40}|rocBLAS error: |MIOpen Error: ",
    r"HSA_STATUS_ERROR_OUT_OF_RESOURCES|failed to create cublas handle|cublas(?:Create|Lt)\w{0,20} failed|CURAND_STATUS_|GET was unable to find an engine",
    without=("VERSION_MISMATCH",),
)
# The loader's messages about a library that it could not load, which makes a later call fail.
_NOT_LOADED = matches(
    r"Could not load library lib|symbol lookup error|\.so[\w.]{0,20}: (?:undefined symbol|symbol |cannot open shared object)",
    without=("libcuda.so", "Could not load dynamic library", "dso_loader"),
)


def _find_call(case: Case) -> LogMatch | None:
    match, cause = find_match(case, _CALL), find_match(case, _NOT_LOADED)
    if match is None or cause is None or cause.confidence == "low":
        return match
    return match.cap("low", f"The library could not be loaded: {quote(cause.text)}.")


LIBRARIES: tuple[Cause, ...] = (
    text_cause(
        "cuda-library",
        "A call of a CUDA library failed",
        "The log contains `CUBLAS_STATUS_…`, `CUDNN_STATUS_…`, `CUSOLVER_STATUS_…` or `DNN library"
        " initialization failed`, and nothing that names the cause.",
        "Mostly too little free memory on the GPU for the library's workspace, an index out of range in an"
        " earlier kernel, or releases of the driver and the library that do not fit.",
        (
            "Look at the GPU's memory while it runs: `nvidia-smi`; reduce the batch size once to try.",
            "Run it once with `CUDA_LAUNCH_BLOCKING=1`, or on the CPU, which names an index out of range.",
            (
                "Compare the releases: `python -m torch.utils.collect_env`, `nvidia-smi`; remove other copies of the"
                " library from `LD_LIBRARY_PATH`."
            ),
        ),
        summary="A call of a CUDA library failed without a reason; mostly the GPU has too little free memory.",
        lines=_find_call,
        confidence="medium",
    ),
)
