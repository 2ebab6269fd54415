r"""A machine with fake accelerators, for tests and benchmarks.

Fake vendor libraries, written in C, are loaded through the real bindings (pynvml, pyhlml) by any
number of processes. Their answers are in one memory-mapped file: after a test has changed the file,
the next driver call of any process returns the new value.

    machine = FakeMachine(tmp_path, gpus=8)
    exporter = subprocess.Popen([...], env={**os.environ, **machine.environment()})
    machine.gpu(3).temperature = 91
    machine.lose(5)
    machine.hang("nvmlDeviceGetTemperature", device=2)

From a shell, at the root of the repository, for as long as COMMAND runs:

    python -m tests.fakes.machine --gpus 8 --hpus 0 --delay-us 50 -- COMMAND ...

and, while it runs, from another shell (the command prints its directory):

    python -c 'from tests.fakes.machine import FakeMachine; FakeMachine.open("DIR").lose(3)'

Function names are those of the C library, such as "nvmlDeviceGetTemperature" or
"hlml_device_get_name". NVML's suffix `_v2` may be omitted, "nvml*" and "hlml*" mean every function,
and "hl-smi" means the command, whose calls are counted and can be made to hang.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.fakes.accelerators import COUNTERS, Accelerator, Gpu, Hpu
from tests.fakes.libraries import library_path
from tests.fakes.models import gpu_values, hpu_values
from tests.fakes.scenario import CONSTANTS, FUNCTIONS, create_scenario, open_scenario, wake

Kind = Literal["gpu", "hpu"]
FOREVER = -1
NVML_DRIVER = "570.124.06"
NVML_UPGRADE = "580.65.06"
HLML_DRIVER = "1.22.1-97ec1a4"

_ENDING = {signal.SIGTERM}
_VENDORS = {"gpu": "nvidia", "hpu": "habana"}
_HERE = Path(__file__).resolve().parent


def function_row(name: str) -> int:
    """Return a function's row in the scenario's tables.

    Raises:
        KeyError: The fakes have no such function.
    """
    own = name.replace("*", "_any").replace("-", "_")
    candidates = (own, f"{name}_v2", f"{name}_v3", f"{name}WithFlags")
    for candidate in candidates if name != "nvmlInit" else ("nvmlInitWithFlags",):
        if candidate in FUNCTIONS:
            return FUNCTIONS[candidate]
    raise KeyError(f"no function {name} in tests/fakes/functions.h")


class FakeMachine:
    """A fake machine, whose state is a file that its methods change.

    Args:
        directory: The existing directory in which the scenario file is created.
        gpus: The number of NVIDIA GPUs, at most 16.
        hpus: The number of Gaudi cards, at most 16.
        model: The GPUs' name; H100, A100 and RTX 4090 have limits of their own.
    """

    def __init__(
        self, directory: Path, gpus: int = 8, hpus: int = 0, model: str = "NVIDIA H100 80GB HBM3"
    ) -> None:
        self.path = Path(directory) / "accelerators"
        self.model = model
        self.scenario: Any = create_scenario(self.path)
        self._vendors = ("nvidia",) * bool(gpus) + ("habana",) * bool(hpus)
        self._added = {"gpu": 0, "hpu": 0}
        for driver, version, cuda in (
            (self.scenario.nvidia, NVML_DRIVER, 12080),
            (self.scenario.habana, HLML_DRIVER, 0),
        ):
            driver.loaded = driver.epoch = driver.kernel_version = driver.library_version = 1
            driver.version = version.encode()
            driver.library_version_text = f"12.{version}".encode() if cuda else version.encode()
            driver.cuda_version = cuda
            driver.unloaded_code = 1
        for _ in range(gpus):
            self.add_gpu()
        for _ in range(hpus):
            self.add_hpu()

    @classmethod
    def open(cls, directory: Path | str) -> FakeMachine:
        """Return the machine that another process created in a directory."""
        machine = cls.__new__(cls)
        machine.path = Path(directory) / "accelerators"
        machine.scenario = open_scenario(machine.path)
        counts = {kind: sum(d.present for d in machine._devices(kind)) for kind in _VENDORS}
        machine.model = machine.gpu(0).name
        machine._vendors = tuple(_VENDORS[kind] for kind in _VENDORS if counts[kind])
        machine._added = dict.fromkeys(_VENDORS, CONSTANTS["DEVICE_LIMIT"])
        return machine

    def __enter__(self) -> FakeMachine:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End hung calls; processes that still use the machine continue with its last state."""
        self.heal()

    # -- for processes ---------------------------------------------------------------------------

    def environment(self, vendors: Iterable[str] | None = None) -> dict[str, str]:
        """Return the variables with which a process finds the fake libraries.

        Args:
            vendors: The libraries that are installed: "nvidia", "habana", both or none; by
                default those of the machine's initial devices.
        """
        chosen = tuple(self._vendors if vendors is None else vendors)
        paths = {vendor: library_path(vendor) for vendor in chosen}
        directories = [str(path.parent) for path in paths.values()]
        inherited = os.environ.get("LD_LIBRARY_PATH")
        variables = {
            "FAKE_ACCELERATORS": str(self.path),
            "LD_LIBRARY_PATH": ":".join([*directories, *([inherited] if inherited else [])]),
        }
        if "habana" in paths:
            variables["LD_PRELOAD"] = str(paths["habana"])
        return variables

    def attach(self) -> None:
        """Make this process use the machine, as if it had just loaded the libraries.

        pynvml and pyhlml must be initialised again afterwards.
        """
        os.environ["FAKE_ACCELERATORS"] = str(self.path)
        for vendor in self._vendors:
            library = ctypes.CDLL(str(library_path(vendor)))
            library.fake_attach(str(self.path).encode())

    def hl_smi_directory(self) -> Path:
        """Return a directory for PATH with an `hl-smi` that reads this machine."""
        directory = self.path.parent / "bin"
        directory.mkdir(exist_ok=True)
        command = directory / "hl-smi"
        command.write_text(
            f"#!/bin/sh\nFAKE_ACCELERATORS='{self.path}' exec '{sys.executable}' -S"
            f" '{_HERE / 'hl-smi'}' \"$@\"\n"
        )
        command.chmod(0o755)
        return directory

    # -- devices ---------------------------------------------------------------------------------

    def gpu(self, slot: int) -> Gpu:
        """Return the GPU in a slot."""
        return Gpu(self.scenario, "nvidia", slot)

    def hpu(self, slot: int) -> Hpu:
        """Return the Gaudi card in a slot."""
        return Hpu(self.scenario, "habana", slot)

    def device(self, slot: int, kind: Kind = "gpu") -> Accelerator:
        """Return the device of either kind in a slot."""
        return self.gpu(slot) if kind == "gpu" else self.hpu(slot)

    def add_gpu(self) -> Gpu:
        """Add a GPU in the first free slot.

        Running processes count the GPU after they have initialised the library again, or at once if
        `see_added_at_once` was called.
        """
        gpu = self.gpu(self._free_slot("gpu"))
        self._plug_in(gpu, gpu_values(self.model, self._number("gpu")))
        return gpu

    def add_hpu(self) -> Hpu:
        """Add a Gaudi card in the first free slot."""
        hpu = self.hpu(self._free_slot("hpu"))
        self._plug_in(hpu, hpu_values(self._number("hpu")))
        return hpu

    def see_added_at_once(self, kind: Kind = "gpu", *, seen: bool = True) -> None:
        """Set whether running processes see added and removed devices at once."""
        self._driver(kind).added_seen_at_once = seen

    def remove_gpu(self, slot: int) -> None:
        """Remove a GPU; see `Accelerator.remove`."""
        self.gpu(slot).remove()

    def lose(self, slot: int, kind: Kind = "gpu", *, hidden: bool = False) -> None:
        """Make a device fall off the bus; see `Accelerator.lose`."""
        self.device(slot, kind).lose(hidden=hidden)

    def restore(self, slot: int, kind: Kind = "gpu") -> None:
        """Return a lost device to the bus."""
        self.device(slot, kind).restore()

    def delay(
        self, microseconds: int, slot: int | None = None, kind: Kind = "gpu", *, spin: bool = False
    ) -> None:
        """Make every call about one device, or about all devices of a kind, take longer."""
        for place in range(CONSTANTS["DEVICE_LIMIT"]) if slot is None else (slot,):
            self.device(place, kind).delay(microseconds, spin=spin)

    def deliver_xid(self, slot: int, code: int) -> None:
        """Deliver the event of a GPU's critical Xid."""
        self.gpu(slot).deliver_xid(code)

    def square_wave(self, slot: int, duty: float = 0.25, period_seconds: float = 2.0) -> None:
        """Set a GPU's load to a square wave, also for the past."""
        self.gpu(slot).square_wave(duty, period_seconds)

    def constant_load(self, slot: int, percent: int) -> None:
        """Set a GPU's load to a constant percentage, also for the past."""
        self.gpu(slot).constant_load(percent)

    def idle(self, slot: int) -> None:
        """Make a GPU produce no samples."""
        self.gpu(slot).idle()

    def processes(self, slot: int, processes: Iterable[tuple[int, int]]) -> None:
        """Replace the processes on a GPU by pairs of process ID and bytes."""
        self.gpu(slot).set_processes(processes)

    # -- faults ----------------------------------------------------------------------------------

    def hang(self, function: str, device: int | None = None, milliseconds: int = FOREVER) -> None:
        """Make calls of a function block, each for a duration or until `unhang`.

        Args:
            function: The function's name in the C library.
            device: The slot; None for every device and for functions without one.
            milliseconds: FOREVER or a number above 0.
        """
        self._fault(function, device).hang_milliseconds = milliseconds
        self.scenario.faults_used = 1

    def unhang(self, function: str, device: int | None = None) -> None:
        """End a hang; blocked calls continue at once."""
        self._fault(function, device).hang_milliseconds = 0

    def fail(self, function: str, device: int | None, code: int) -> None:
        """Make a function return an error code; 0 ends the failure."""
        self._fault(function, device).code = code
        self.scenario.faults_used = 1

    def fail_field(self, field: int, device: int | None, code: int) -> None:
        """Make one field of nvmlDeviceGetFieldValues return an error code; 0 ends the failure."""
        faults = self.scenario.field_faults
        wanted = (field, -1 if device is None else device)
        count = self.scenario.field_fault_count
        place = next(
            (p for p in range(count) if (faults[p].field, faults[p].device) == wanted), count
        )
        faults[place].field, faults[place].device, faults[place].code = *wanted, code
        self.scenario.field_fault_count = max(count, place + 1)

    def heal(self) -> None:
        """End all hangs, failures and delays."""
        self.scenario.field_fault_count = 0
        ctypes.memset(
            ctypes.addressof(self.scenario.faults), 0, ctypes.sizeof(self.scenario.faults)
        )
        for kind in _VENDORS:
            self.delay(0, kind=kind)

    # -- drivers ---------------------------------------------------------------------------------

    def unload_driver(self, kind: Kind = "gpu", code: int = 1) -> None:
        """Unload the kernel driver.

        Args:
            kind: The kind of the vendor's devices.
            code: The error of running processes; a new initialisation returns DRIVER_NOT_LOADED.
        """
        self._driver(kind).unloaded_code = code
        self._driver(kind).loaded = 0
        wake(self.scenario)

    def load_driver(self, kind: Kind = "gpu", *, reset: bool = True) -> None:
        """Load the driver that matches the library on disk.

        Processes that initialised the library before must initialise it again.

        Args:
            kind: The kind of the vendor's devices.
            reset: Whether counters and volatile errors start at zero, as with a real driver.
        """
        driver = self._driver(kind)
        driver.kernel_version = driver.library_version
        driver.epoch += 1
        if reset:
            for accelerator in self._accelerators(kind):
                accelerator.forget()
        driver.loaded = 1
        wake(self.scenario)

    def mismatch(
        self, version: str = NVML_UPGRADE, *, library_on_disk: bool = True, kind: Kind = "gpu"
    ) -> None:
        """Upgrade the driver while processes use it.

        Processes that have loaded the library get LIB_RM_VERSION_MISMATCH from then on.

        Args:
            version: The driver's new version.
            library_on_disk: Whether the library is upgraded too, so that processes which load it
                from now on work. If not, they get the error as well, until `load_driver`.
            kind: The kind of the vendor's devices.
        """
        driver = self._driver(kind)
        driver.epoch += 1
        driver.version = version.encode()
        fresh = max(driver.kernel_version, driver.library_version) + 1
        if library_on_disk:
            driver.library_version = fresh
            driver.library_version_text = f"13.{version}".encode()
        driver.kernel_version = fresh
        wake(self.scenario)

    # -- time ------------------------------------------------------------------------------------

    def stop_clock(self, realtime_seconds: float | None = None) -> None:
        """Stop the devices' clocks, so that counters and samples do not change.

        Args:
            realtime_seconds: The time of the wall clock, in seconds since 1970; None for now.
        """
        any_device = self.gpu(0)
        monotonic = any_device._monotonic_nanoseconds()
        realtime = any_device._sample_clock_microseconds()
        if realtime_seconds is not None:
            realtime = round(realtime_seconds * 1e6)
        self.scenario.stopped_monotonic_nanoseconds = monotonic
        self.scenario.stopped_realtime_microseconds = realtime
        self.scenario.clock_stopped = 1

    def advance(self, seconds: float) -> None:
        """Advance the stopped clocks."""
        self.scenario.stopped_realtime_microseconds += round(seconds * 1e6)
        self.scenario.stopped_monotonic_nanoseconds += round(seconds * 1e9)

    def start_clock(self) -> None:
        """Start the clocks again; counters continue from their values."""
        everyone = [a for kind in _VENDORS for a in self._accelerators(kind)]
        stood = [{name: a.counter_value(name) for name in COUNTERS} for a in everyone]
        self.scenario.clock_stopped = 0
        for accelerator, values in zip(everyone, stood, strict=True):
            accelerator.rebase(values)

    # -- calls -----------------------------------------------------------------------------------

    def calls(self, function: str, device: int | None = None) -> int:
        """Return how often all processes called a function, about one device or in total."""
        row = self.scenario.calls[function_row(function)]
        return sum(row) if device is None else row[1 + device]

    def calls_by_function(self) -> dict[str, int]:
        """Return the number of calls of each function that was called."""
        counts = {name: sum(self.scenario.calls[row]) for name, row in FUNCTIONS.items()}
        return {name: count for name, count in counts.items() if count}

    def reset_calls(self) -> None:
        """Reset the numbers of calls to zero."""
        ctypes.memset(ctypes.addressof(self.scenario.calls), 0, ctypes.sizeof(self.scenario.calls))

    # -- inside ----------------------------------------------------------------------------------

    def _driver(self, kind: str) -> Any:
        return getattr(self.scenario, _VENDORS[kind])

    def _devices(self, kind: str) -> Sequence[Any]:
        return self._driver(kind).devices

    def _accelerators(self, kind: Kind) -> list[Accelerator]:
        return [self.device(slot, kind) for slot in range(CONSTANTS["DEVICE_LIMIT"])]

    def _free_slot(self, kind: str) -> int:
        return next(slot for slot, device in enumerate(self._devices(kind)) if not device.present)

    def _number(self, kind: str) -> int:
        self._added[kind] += 1
        return self._added[kind] - 1

    def _plug_in(self, accelerator: Accelerator, values: dict[str, Any]) -> None:
        device = accelerator.device
        generation = device.generation + 1
        ctypes.memset(ctypes.addressof(device), 0, ctypes.sizeof(device))
        accelerator.configure(values)
        device.generation = generation
        device.present = 1

    def _fault(self, function: str, device: int | None) -> Any:
        return self.scenario.faults[function_row(function)][0 if device is None else 1 + device]


def main() -> int:
    """Run a command on a fake machine and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fakes.machine", description="Run COMMAND on a fake machine."
    )
    parser.add_argument("--gpus", type=int, default=8, help="NVIDIA GPUs (8)")
    parser.add_argument("--hpus", type=int, default=0, help="Gaudi cards (0)")
    parser.add_argument("--model", default="NVIDIA H100 80GB HBM3", help="the GPUs' name")
    parser.add_argument("--delay-us", type=int, default=0, help="added to each call about a device")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    options = parser.parse_args()
    # After SIGTERM, the machine's directory is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="fake-machine-") as directory:
        machine = FakeMachine(Path(directory), options.gpus, options.hpus, options.model)
        for kind in _VENDORS:
            machine.delay(options.delay_us, kind=kind)
        variables = {**os.environ, **machine.environment()}
        if options.hpus:
            variables["PATH"] = f"{machine.hl_smi_directory()}:{os.environ['PATH']}"
        print(f"fake machine in {directory}", file=sys.stderr)
        return _run(options.command, variables)


def _take_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


def _run(command: list[str], variables: dict[str, str]) -> int:
    # A SIGTERM during the start of the command would leave the command running.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    with subprocess.Popen(command, env=variables, preexec_fn=_take_signals) as process:  # noqa: PLW1509 - no thread runs here
        try:
            _take_signals()
            return process.wait()
        except KeyboardInterrupt:
            return process.wait()
        finally:
            if process.poll() is None:
                process.terminate()


if __name__ == "__main__":
    raise SystemExit(main())
