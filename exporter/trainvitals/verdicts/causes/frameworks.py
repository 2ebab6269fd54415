"""The framework whose messages a log has, so that advice names its settings."""

from __future__ import annotations

from typing import Literal

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.signs import Sign, matches

Framework = Literal["torch", "jax", "tensorflow", "paddle"]

_JAX = matches(r"\bjax(?:lib)?[._/]|XlaRuntimeError|\bxla_bridge\b|XLA_PYTHON_CLIENT")
_TENSORFLOW = matches(r"\btensorflow[._/]|\bkeras[._/]|ResourceExhaustedError|bfc_allocator")
_PADDLE = matches(r"\bpaddle[._/]|ppdet\.|FLAGS_fraction_of_gpu_memory")
_TORCH = matches(r"\btorch[._/]|PyTorch")
_ROCM = matches(
    r"\bhip(?:Error|blas|BLAS)|\bHIP (?:out of memory|error)|\bHSA_STATUS|\+rocm[0-9]|PYTORCH_HIP|\bROCm\b"
    r"|by GPU node-"
)


def find_framework(case: Case, text: str) -> Framework:
    """Return the framework of an error, by its text or else by the whole log.

    Args:
        case: The death.
        text: The error.
    """
    own = (name for name, sign in _NAMES if sign(text))
    logged = (name for name, sign in _NAMES if case.search(sign) is not None)
    return next(own, next(logged, "torch"))


def is_rocm(case: Case) -> bool:
    """Return whether the log is of a build for AMD's GPUs."""
    return case.search(_ROCM) is not None


_NAMES: tuple[tuple[Framework, Sign], ...] = (
    ("jax", _JAX),
    ("paddle", _PADDLE),
    ("torch", _TORCH),
    ("tensorflow", _TENSORFLOW),
)
