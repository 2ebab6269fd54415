"""Memory of the accelerators, with the real PyTorch."""

import pytest
import torch

from trainvitals.training.memory import read_memory


def test_the_real_torch_without_a_gpu_has_nothing_to_tell():
    """Neither is a device initialised by asking."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert read_memory(torch) is None
    assert not torch.cuda.is_initialized()
