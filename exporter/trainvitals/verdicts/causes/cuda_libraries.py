"""Failures inside the CUDA libraries with error messages that do not name the cause."""

from __future__ import annotations

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import LogMatch, find_match, quote
from trainvitals.verdicts.causes.signs import matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause

_CALL = matches(
    r"CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_STATUS_(?!ALLOC_FAILED)[A-Z]|CUFFT_(?:INTERNAL|EXEC|SETUP|ALLOC)",
    r"DNN library (?:initialization failed|is not found)|Failed to get convolution algorithm|Could not create cudnn handle",
    r"cuDNN error: |Unable to find a valid cuDNN algorithm|(?:rocblas|miopen|hipblas)Status\w{1,40}|rocBLAS error: |MIOpen Error: ",
    r"HSA_STATUS_ERROR_OUT_OF_RESOURCES|failed to create cublas handle|cublas(?:Create|Lt)\w{0,20} failed|CURAND_STATUS_|GET was unable to find an engine",
    without=("VERSION_MISMATCH",),
)
# Messages from the loader about a library that it could not load, so that a later call fails.
_NOT_LOADED = matches(
    r"Could not load library lib|symbol lookup error|\.so[\w.]{0,20}: (?:undefined symbol|symbol |cannot open shared object)",
    without=("libcuda.so", "Could not load dynamic library", "dso_loader"),
)


def _find_call(case: Case) -> LogMatch | None:
    match, cause = find_match(case, _CALL), find_match(case, _NOT_LOADED)
    if match is None or cause is None or cause.confidence == "low":
        return match
    return match.cap("low", f"The library could not be loaded: {quote(cause.text)}.")


CAUSES: tuple[Cause, ...] = (
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
