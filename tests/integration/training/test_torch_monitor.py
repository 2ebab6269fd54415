"""A training monitor whose values are PyTorch tensors."""

import threading

import torch

from tests.unit.training.test_monitor import clock, make, read

__all__ = ["clock", "make"]


def test_what_another_thread_logs_keeps_no_graph(make):
    """A tensor that another thread logs does not keep its autograd graph alive."""
    monitor = make()
    loss = torch.tensor(0.5, requires_grad=True) * 2
    thread = threading.Thread(target=monitor.log, kwargs={"teacher": loss})
    thread.start()
    thread.join()
    ((values, _),) = monitor._inbox
    assert not values["teacher"].requires_grad


def test_values_on_the_host_are_read_from_tensors(make):
    """A tensor in host memory is read at once, and its autograd graph is not changed."""
    monitor = make()
    loss = torch.tensor(0.5, requires_grad=True) * 2
    monitor.update_batch(torch.tensor(4), loss=loss, gradient_norm=torch.tensor(3.0))
    monitor.log_validation(loss=torch.tensor(0.25))
    words = read(monitor)
    assert (words["loss"], words["gradient_norm"], words["samples"]) == (1.0, 3.0, 4.0)
    assert words["validation_loss"] == 0.25
    assert loss.requires_grad


def test_what_waits_to_be_read_is_bounded(make):
    """Of 100 named tensors on a device, 64 are kept, and 36 are counted as dropped."""
    monitor = make()
    monitor.log({f"m{index}": torch.empty((), device="meta") for index in range(100)})
    monitor.finish()
    assert read(monitor)["dropped_names"] == 36
