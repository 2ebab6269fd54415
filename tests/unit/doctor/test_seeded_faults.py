"""Tests that `trainvitals doctor` finds the faults of a troubleshooting guide."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.doctor.cases import TOKEN
from tests.unit.doctor.patient import Patient

BUILT = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"


def look(patient: Patient, *names: str) -> dict[str, tuple[str, str, str]]:
    """Return the status, the text and the command of each check."""
    return {
        result.check.name: (result.finding.status, result.finding.what, result.finding.command)
        for result in patient.look(*names).results
    }


def test_versions_and_packages_that_do_not_fit(patient: Patient):
    """An old Python, an old PyTorch, a missing package and conflicting versions are found."""
    patient.install_torch("2.4.1+cu118", "11.8", "sympy (==1.13.1)", built=BUILT)
    patient.install("sympy", "1.12")
    patient.wish(requirements=(patient.write("req.txt", "torch>=2.6.0\ntransformers\n"),))
    found = look(patient, "pytorch", "requirements", "package-conflicts")
    assert found["pytorch"][0] == "problem"
    assert "torch 2.4.1 is not >=2.6.0" in found["requirements"][1]
    assert "transformers is not installed" in found["requirements"][1]
    assert "sympy 1.12 is not ==1.13.1" in found["package-conflicts"][1]
    patient.put_python('((3, 9, 18), True, [], "cpython")')
    assert look(patient, "python")["python"][0] == "problem"


def test_no_driver(patient: Patient):
    """A GPU without an NVIDIA driver is a problem."""
    patient.plug("0x10de", "0x030200")
    assert look(patient, "nvidia-driver")["nvidia-driver"][0] == "problem"


def test_no_kernel_image(patient: Patient):
    """A GPU for which PyTorch has no kernels, because it is too new, is a problem."""
    patient.add_gpus().gpu(0).compute_capability_major = 12
    patient.install_torch("2.6.0+cu124", "12.4", built=BUILT)
    status, what, mend = look(patient, "pytorch-kernels")["pytorch-kernels"]
    assert status == "problem"
    assert "GPU 0 (NVIDIA H100 80GB HBM3) has compute capability 12.0" in what
    assert "torch" in mend


def test_not_compiled_with_cuda(patient: Patient):
    """A PyTorch without CUDA on a machine with a GPU is a problem with an install command."""
    patient.add_gpus()
    patient.install_torch("2.6.0+cpu", None)
    patient.install("pip", "25.1")
    status, what, mend = look(patient, "pytorch")["pytorch"]
    assert (status, what) == (
        "problem",
        "PyTorch 2.6.0+cpu is not compiled with CUDA, but there is an NVIDIA GPU",
    )
    assert mend == (
        f"{patient.folder}/venv/bin/python -m pip install --force-reinstall torch torchvision "
        "torchaudio --index-url https://download.pytorch.org/whl/cu126"
    )


def test_a_port_that_is_taken(patient: Patient):
    """The process that holds a required port is named, and the next free port is suggested."""
    port = patient.listen()
    patient.hold(port + 1)
    patient.wish(ports=(port,))
    (result,) = patient.look("ports").results
    assert f"{port} is in use by " in result.finding.what
    assert f"(pid {os.getpid()})" in result.finding.what
    assert result.finding.advice == f"or use {port + 2}, the next free port"


def test_a_token_that_is_missing_or_expired(patient: Patient):
    """A variable that is not set and a token that is rejected are problems."""
    patient.wish(needed=("HF_TOKEN",))
    assert look(patient, "needed-variables")["needed-variables"][1] == "not set: HF_TOKEN"
    with patient.issuer((401, {"error": "Invalid username or password."})) as issuer:
        patient.environ |= {"HF_TOKEN": TOKEN, "HF_ENDPOINT": issuer.address}
        found = look(patient, "huggingface-token", "needed-variables")
    assert found["needed-variables"][0] == "ok"
    assert found["huggingface-token"] == (
        "problem",
        "127.0.0.1 does not accept HF_TOKEN (status 401)",
        "hf auth login",
    )


def test_a_cudnn_of_another_version(patient: Patient):
    """A version of cuDNN that PyTorch does not accept is a problem."""
    pin = 'nvidia-cudnn-cu12 (==9.1.0.70) ; platform_system == "Linux"'
    patient.install_torch("2.6.0+cu124", "12.4", pin, built=BUILT)
    patient.install("nvidia-cudnn-cu12", "9.5.1.17")
    assert look(patient, "cuda-libraries")["cuda-libraries"][0] == "problem"


def test_nothing_is_left_behind(patient: Patient):
    """The checks leave no file in the checkpoint directory."""
    folder = patient.folder / "runs"
    folder.mkdir()
    patient.wish(checkpoints=folder)
    patient.look("checkpoint-access", "checkpoint-space")
    assert list(Path(folder).iterdir()) == []
