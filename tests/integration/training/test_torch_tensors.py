"""Values read from real PyTorch tensors."""

import torch

from trainvitals.training.tensors import Values


def test_tensors_in_host_memory_are_read_at_once():
    """A tensor of one value in host memory is read with any float type, shape or gradient."""
    values = Values()
    assert values.read(torch.tensor(1.5, requires_grad=True)) == 1.5
    assert values.read(torch.tensor(1.5, dtype=torch.bfloat16)) == 1.5
    assert values.read(torch.tensor(1.5, dtype=torch.float16)) == 1.5
    assert values.read(torch.tensor([2.5])) == 2.5
    assert values.read(torch.tensor([[4]])) == 4.0
    assert values.read(torch.nn.Parameter(torch.tensor(0.5))) == 0.5
    assert values.unreadable is None


def test_reading_a_tensor_leaves_its_graph_alone():
    """Reading a tensor does not change the gradient of a later backward pass."""
    weight = torch.tensor(3.0, requires_grad=True)
    loss = weight * weight
    assert Values().read(loss) == 9.0
    loss.backward()
    assert weight.grad.item() == 6.0


def test_tensors_that_are_no_single_number_are_unknown():
    """A tensor with several values, no value or a complex value is read as None."""
    values = Values()
    assert values.read(torch.tensor([1.0, 2.0])) is None
    assert values.read(torch.empty(0)) is None
    assert values.read(torch.tensor(1j)) is None


def test_a_tensor_without_values_is_never_read():
    """A meta tensor is read as None, and the reason is kept in `unreadable`."""
    values = Values()
    assert values.read(torch.empty((), device="meta")) is None
    assert values.unreadable == (
        "cannot read a tensor on meta without waiting for the device: it has no events to query; "
        "pass numbers, such as loss.item(), where the loop has them anyway"
    )
