"""Detection of the framework that wrote a log, so that advice can name its settings."""

from __future__ import annotations

from typing import Literal

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.signs import Sign, matches

Framework = Literal["torch", "jax", "tensorflow", "paddle", "mxnet", "chainer", "xpu", "native"]

_JAX = matches(
    r"\bjax(?:lib)?[._/]|XlaRuntimeError|\bxla_bridge\b|XLA_PYTHON_CLIENT|encountered in (?:p?jit|pmap|vmap|shard_map)\b|\b(?:flax|optax|orbax|equinox)[._/]"
)
_TENSORFLOW = matches(
    r"\btensorflow[._/]|\bkeras[._/]|ResourceExhaustedError|bfc_allocator"
    r"|Batch [0-9]{1,9}: Invalid loss, terminating training|[0-9]{1,7}/[0-9]{1,7} (?:\[[=>. ]{4,40}\] - |━{3,40}[^━\n]{0,40}s/(?:step|epoch)\b)"
)
_MXNET = matches(r"\bmxnet[._/]|MXNetError|\bpooled_storage_manager")
_CHAINER = matches(r"\bchainer[._/]|\bcupy[._/]")
_XPU = matches(r"\bXPU\b|\bxpu:[0-9]|UR_RESULT_|level_zero|\bsycl\b")
# Signs of C and C++ programs that use no Python framework.
_NATIVE = matches(
    r"\bdarknet\b|\bcaffe\b|syncedmem|\[LightGBM\]|\bxgboost\b|\bC[Uu][Dd][Aa] (?:Error: out|malloc failed)"
)
_CDNA = matches(r"\bgfx9(?:08|0a|4[0-9a]|50)\b|\bMI(?:100|2[0-9]{2}X?|3[0-9]{2}[AX]?)\b")
_PADDLE = matches(r"\bpaddle[._/]|ppdet\.|FLAGS_fraction_of_gpu_memory")
_TORCH = matches(r"\btorch[._/]|PyTorch")
_ROCM = matches(
    r"\bhip(?:Error|blas|BLAS)|\bHIP (?:out of memory|error)|\bHSA_STATUS|\+rocm[0-9]|PYTORCH_HIP|\bROCm\b"
    r"|by GPU node-"
)


def find_framework(case: Case, text: str) -> Framework:
    """Return the framework that raised an error, according to the error or else to the log.

    The result is `torch` if neither names a framework.

    Args:
        case: The evidence of the death that is diagnosed.
        text: The text of the error message.
    """
    own = (name for name, sign in _NAMES if sign(text))
    logged = (name for name, sign in _NAMES if case.search(sign) is not None)
    return next(own, next(logged, "torch"))


def is_rocm(case: Case) -> bool:
    """Return whether the log was written by a build for AMD GPUs."""
    return case.search(_ROCM) is not None


def is_cdna(case: Case) -> bool:
    """Return whether the log names an AMD data centre card.

    `HSA_OVERRIDE_GFX_VERSION` cannot make a program treat such a card as another model.
    """
    return case.search(_CDNA) is not None


_NAMES: tuple[tuple[Framework, Sign], ...] = (
    ("jax", _JAX),
    ("paddle", _PADDLE),
    ("mxnet", _MXNET),
    ("chainer", _CHAINER),
    ("xpu", _XPU),
    ("torch", _TORCH),
    ("tensorflow", _TENSORFLOW),
    ("native", _NATIVE),
)
