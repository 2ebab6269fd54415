"""Peak FLOP/s of accelerators and model FLOPs, for model FLOPs utilisation (MFU).

Each value is the vendor's dense peak of one PyTorch device, in FLOP/s. If a data sheet contains
only values for 2:4 sparsity, these values are halved. Sources:

- NVIDIA data sheets: V100, T4, A10, A30, A40, A100, L4, L40, L40S, H100 (SXM, PCIe, NVL), H200,
  HGX B100/B200 and GB200 NVL72, RTX A6000, RTX 6000 Ada.
- NVIDIA architecture papers GA102 (RTX 3090), Ada (RTX 4090) and RTX Blackwell (RTX 5090): the
  16-bit values assume float32 accumulation, as in training. H20: NVIDIA partners' data.
- AMD data sheets: Instinct MI250, MI250X, MI300X. An MI250 card is presented as two devices, so
  the value for one device is half of the value for the card.
- Intel Gaudi 2 and Gaudi 3 white papers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_DTYPES = {
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    "float32": "float32",
    "fp32": "float32",
    "float": "float32",
    "tf32": "tf32",
    "tfloat32": "tf32",
    "fp8": "float8",
    "float8": "float8",
    "float8_e4m3fn": "float8",
    "float8_e5m2": "float8",
}

# A name with one of these words is a slice or a slower or faster variant of a device in the table.
_OTHER_DEVICES = frozenset({"MIG", "GRID", "LAPTOP", "MOBILE", "MAX", "TI", "SUPER", "D"})


@dataclass(frozen=True, slots=True)
class Peak:
    """The dense peaks of one device model.

    Attributes:
        words: Words that the device name must contain, in any order.
        flops: The peak of each dtype in FLOP/s. A dtype is missing if the device does not support
            it or if the vendor has not published its peak.
    """

    words: frozenset[str]
    flops: Mapping[str, float]


def _peak(words: str, **flops: float) -> Peak:
    """Return the peaks of a device model; `half` is the peak for both bfloat16 and float16."""
    half = flops.pop("half", None)
    if half is not None:
        flops |= {"bfloat16": half, "float16": half}
    return Peak(frozenset(words.split()), flops)


_H100_SXM = {"half": 989.4e12, "tf32": 494.7e12, "float32": 66.9e12, "float8": 1978.9e12}
_H100_PCIE = {"half": 756.5e12, "tf32": 378e12, "float32": 51.2e12, "float8": 1513e12}
_H100_NVL = {"half": 835.5e12, "tf32": 417.5e12, "float32": 60e12, "float8": 1670.5e12}
_A100 = {"half": 312e12, "tf32": 156e12, "float32": 19.5e12}
_GAUDI_2 = {"half": 432e12, "float8": 865e12}
_GAUDI_3 = {"half": 1835e12, "float8": 1835e12}

# The first entry whose words all occur in the device name is used, so more specific entries come
# first.
PEAKS = (
    _peak("GB200", half=2500e12, tf32=1250e12, float32=80e12, float8=5000e12),
    _peak("B200", half=2250e12, tf32=1100e12, float32=75e12, float8=4500e12),
    _peak("B100", half=1750e12, float32=60e12, float8=3500e12),
    _peak("GH200", **_H100_SXM),
    _peak("H200 NVL", **_H100_NVL),
    _peak("H200", **_H100_SXM),
    _peak("H100 NVL", **_H100_NVL),
    _peak("H100 PCIE", **_H100_PCIE),
    _peak("H100 HBM2E", **_H100_PCIE),
    _peak("H100", **_H100_SXM),
    _peak("H800 PCIE", **_H100_PCIE),
    _peak("H800", **_H100_SXM),
    _peak("H20", half=148e12, tf32=74e12, float32=44e12, float8=296e12),
    _peak("A100 64GB"),  # a custom variant with more multiprocessors
    _peak("A100", **_A100),
    _peak("A800", **_A100),
    _peak("A40", half=149.7e12, tf32=74.8e12, float32=37.4e12),
    _peak("A30", half=165e12, tf32=82e12, float32=10.3e12),
    _peak("A10", half=125e12, tf32=62.5e12, float32=31.2e12),
    _peak("L40S", half=362e12, tf32=183e12, float32=91.6e12, float8=733e12),
    _peak("L40", half=181e12, tf32=90.5e12, float32=90.5e12, float8=362e12),
    _peak("L4", half=121e12, tf32=60e12, float32=30.3e12, float8=242e12),
    _peak("T4", float16=65e12, float32=8.1e12),
    _peak("V100S", float16=130e12, float32=16.4e12),
    _peak("V100 FHHL"),  # the half-height card runs at a lower clock that is not published
    _peak("V100 PCIE", float16=112e12, float32=14e12),
    _peak("V100", float16=125e12, float32=15.7e12),
    _peak("RTX 5090", half=209.5e12, tf32=104.8e12, float32=104.8e12, float8=419e12),
    _peak("RTX 4090", half=165.2e12, tf32=82.6e12, float32=82.6e12, float8=330.3e12),
    _peak("RTX 3090", half=71e12, tf32=35.6e12, float32=35.6e12),
    _peak("A6000", half=154.8e12, tf32=77.4e12, float32=38.7e12),
    _peak("RTX 6000 ADA", half=364.2e12, tf32=182.1e12, float32=91.1e12, float8=728.5e12),
    _peak("MI300X", half=1307.4e12, tf32=653.7e12, float32=163.4e12, float8=2614.9e12),
    # Before MI250, because some drivers name both cards "MI250X / MI250".
    _peak("MI250X", half=191.5e12, float32=47.85e12),
    _peak("MI250", half=181e12, float32=45.25e12),
    _peak("GAUDI3", **_GAUDI_3),
    _peak("GAUDI 3", **_GAUDI_3),
    _peak("HL 325L", **_GAUDI_3),
    _peak("HL 338", **_GAUDI_3),
    _peak("GAUDI2", **_GAUDI_2),
    _peak("GAUDI 2", **_GAUDI_2),
    _peak("HL 225", **_GAUDI_2),
)


def find_peak_flops(device_name: str, dtype: str = "bfloat16") -> float | None:
    """Return the dense peak FLOP/s of a device for a dtype, from the table in this module.

    A device name that contains "H100" or "V100" without a variant denotes the SXM module.

    Args:
        device_name: The name reported by the driver, such as "NVIDIA H100 80GB HBM3".
        dtype: The dtype of the matrix products: "bfloat16", "float16", "float32" (without TF32),
            "tf32" or "float8"; variants such as "bf16" and "torch.bfloat16" are accepted.

    Returns:
        The peak in FLOP/s; None if the device or the dtype is not in the table, or if the device is
        a slice.
    """
    words = frozenset(re.split(r"[^A-Z0-9]+", device_name.upper()))
    known = _DTYPES.get(dtype.lower().removeprefix("torch."))
    if known is None or words & _OTHER_DEVICES:
        return None
    for peak in PEAKS:
        if peak.words <= words:
            return peak.flops.get(known)
    return None


def flops_per_token(
    parameters: int,
    *,
    layers: int | None = None,
    hidden: int | None = None,
    sequence_length: int | None = None,
) -> float:
    """Return an estimate of the FLOPs, forward and backward, to train a transformer on one token.

    The estimate is 6 N + 12 L H T, as in the PaLM paper (arXiv 2204.02311, appendix B): recomputed
    activations are not counted, and attention is counted as if there were no mask.

    Args:
        parameters: N, the number of parameters in matrix products; for a mixture of experts, only
            the active parameters.
        layers: L, the number of layers. Pass all or none of `layers`, `hidden` and
            `sequence_length`; without these arguments, attention is omitted.
        hidden: H, the width of the model (number of heads times head size).
        sequence_length: T, the sequence length in tokens.

    Returns:
        The number of floating-point operations per token.

    Raises:
        ValueError: Only one or two of `layers`, `hidden` and `sequence_length` are passed.
    """
    if layers is None and hidden is None and sequence_length is None:
        return 6.0 * parameters
    if layers is None or hidden is None or sequence_length is None:
        raise ValueError("attention needs layers, hidden and sequence_length; pass all or none")
    return 6.0 * parameters + 12.0 * layers * hidden * sequence_length
