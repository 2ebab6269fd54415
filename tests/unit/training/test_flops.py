"""Tests for the peak FLOP/s of devices and of the FLOPs of a token."""

from __future__ import annotations

import pytest

from trainvitals.training.flops import PEAKS, find_peak_flops, flops_per_token


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA A800-SXM4-80GB", 312e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA A30", 165e12),
        ("NVIDIA A40", 149.7e12),
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756.5e12),
        ("NVIDIA H100 NVL", 835.5e12),
        ("H100", 989.4e12),
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA H200 NVL", 835.5e12),
        ("NVIDIA GH200 480GB", 989.4e12),
        ("NVIDIA H20", 148e12),
        ("NVIDIA B200", 2250e12),
        ("NVIDIA GB200", 2500e12),
        ("NVIDIA B100", 1750e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", 181e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 3090", 71e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12),
        ("NVIDIA GeForce RTX 5090", 209.5e12),
        ("NVIDIA RTX A6000", 154.8e12),
        ("NVIDIA RTX 6000 Ada Generation", 364.2e12),
        ("AMD Instinct MI300X", 1307.4e12),
        ("AMD Instinct MI250", 181e12),
        ("AMD Instinct MI250X / MI250", 191.5e12),
        ("GAUDI2", 432e12),
        ("Intel Gaudi 3", 1835e12),
        ("HL-325L", 1835e12),
    ],
)
def test_the_dense_bfloat16_peak_of_a_device(name: str, peak: float):
    """The name that a driver reports is mapped to the dense BF16 peak in the data sheet."""
    assert find_peak_flops(name) == peak


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A10G",
        "NVIDIA A100X",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "Quadro RTX 6000",
        "Tesla V100-FHHL-16GB",
        "Tesla P100-PCIE-16GB",
        "",
    ],
)
def test_a_device_that_is_not_in_the_table_is_unknown(name: str):
    """A MIG slice, a variant or an unknown device has no peak."""
    assert find_peak_flops(name, "float16") is None


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("Tesla T4", "float16", 65e12),
        ("Tesla T4", "bfloat16", None),
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("Tesla V100-PCIE-32GB", "half", 112e12),
        ("Tesla V100S-PCIE-32GB", "float16", 130e12),
        ("NVIDIA A100-SXM4-40GB", "float32", 19.5e12),
        ("NVIDIA A100-SXM4-40GB", "tf32", 156e12),
        ("NVIDIA A100-SXM4-40GB", "fp8", None),
        ("NVIDIA H100 80GB HBM3", "torch.float8_e4m3fn", 1978.9e12),
        ("NVIDIA H100 80GB HBM3", "torch.bfloat16", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "BF16", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "int4", None),
    ],
)
def test_each_type_has_its_own_peak(name: str, dtype: str, peak: float | None):
    """Each data type has its own peak; an unsupported or unknown data type has none."""
    assert find_peak_flops(name, dtype) == peak


def test_no_peak_is_zero():
    """The table contains no peak of 0, so that no division by 0 occurs."""
    assert all(flops > 0 for peak in PEAKS for flops in peak.flops.values())


def test_flops_of_a_token_without_attention():
    """A token needs 6 FLOPs per parameter: 2 in the forward pass and 4 in the backward pass."""
    assert flops_per_token(7_000_000_000) == 42e9


def test_flops_of_a_token_with_attention():
    """Attention adds 12 FLOPs for each layer, hidden unit and token of the sequence."""
    flops = flops_per_token(124_439_808, layers=12, hidden=768, sequence_length=1024)
    assert flops == 859_885_056


def test_attention_is_described_whole_or_not_at_all():
    """If only some of the sizes of the attention are given, an error is raised."""
    with pytest.raises(ValueError, match="pass all or none"):
        flops_per_token(1000, layers=12, hidden=768)
