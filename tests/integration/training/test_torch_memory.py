"""The accelerator memory that a real PyTorch reports."""

import pytest
import torch

from trainvitals.training.memory import read_memory


def test_the_real_torch_without_a_gpu_has_nothing_to_tell():
    """Without a GPU, `read_memory` returns None and does not initialise CUDA."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert read_memory(torch) is None
    assert not torch.cuda.is_initialized()
