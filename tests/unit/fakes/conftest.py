"""Fixtures of a fake machine and of processes that use it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.fakes.console import Console
from tests.fakes.machine import FakeMachine


@pytest.fixture
def machine(tmp_path) -> Iterator[FakeMachine]:
    """Yield a fake machine with two GPUs and two Gaudi cards."""
    with FakeMachine(tmp_path, gpus=2, hpus=2) as machine:
        yield machine


@pytest.fixture
def open_console(machine) -> Iterator[Callable[[], Console]]:
    """Yield a function that starts a process with an initialised library and a device `gpu`."""
    with ExitStack() as stack:

        def start(library: str = "nvml") -> Console:
            console = stack.enter_context(Console(machine))
            console(f"{library}.{library}Init()")
            console(f"gpu = {library}.{library}DeviceGetHandleByIndex(0)")
            return console

        yield start


@pytest.fixture
def console(open_console) -> Console:
    """Return a process that has initialised NVML."""
    return open_console()
