"""Tests for reading the architectures of a PyTorch build and comparing them with a GPU."""

import pytest

from trainvitals.doctor.torchwheel import can_run, find_torch

CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


@pytest.mark.parametrize(
    ("built", "capability", "fits"),
    [
        (CU124, (9, 0), True),
        (CU124, (8, 9), True),
        (CU124, (12, 0), False),
        (CU124, (3, 7), False),
        (CU124, (10, 0), False),
        (("sm_80", "compute_90"), (12, 0), True),
        (("sm_80", "compute_90"), (8, 6), True),
        (("sm_80", "compute_90"), (7, 5), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_100f",), (10, 3), True),
        (("sm_120",), (12, 1), True),
        (("gfx942",), (9, 0), False),
        ((), (9, 0), False),
    ],
)
def test_a_kernel_runs_on_its_own_major_version_and_ptx_on_all_newer(built, capability, fits):
    """The compatibility rules follow NVIDIA's for binaries, PTX, and architecture suffixes."""
    assert can_run(built, capability) is fits


def test_the_first_torch_on_the_path_is_the_one(patient, tmp_path):
    """The PyTorch that is found first on the path is used, as in an import."""
    patient.install_torch("2.6.0+cu124", "12.4", built=" ".join(CU124))
    other = tmp_path / "other/torch"
    other.mkdir(parents=True)
    (other / "version.py").write_text("__version__ = '1.13.1'\ncuda = '11.7'\nhip = None\n")
    first = find_torch((patient.packages, other.parent))
    assert (first.version, first.cuda, first.architectures) == ("2.6.0+cu124", "12.4", CU124)
    second = find_torch((other.parent, patient.packages))
    assert (second.version, second.cuda, second.architectures) == ("1.13.1", "11.7", ())
