"""Tests for fake machines: their libraries, their memory layout and their processes."""

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.fakes.console import Console
from tests.fakes.libraries import library_path
from tests.fakes.machine import FakeMachine, function_row
from tests.fakes.scenario import DEVICE, FUNCTIONS, SCENARIO

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("vendor", ["nvidia", "habana"])
def test_python_and_c_agree_on_the_layout(vendor):
    """The Python structures have the sizes and offsets that the C compiler chose."""
    library = ctypes.CDLL(str(library_path(vendor)))
    assert ctypes.sizeof(SCENARIO) == library.fake_scenario_size()
    assert ctypes.sizeof(DEVICE) == library.fake_device_size()
    assert SCENARIO.habana.offset == library.fake_offset_of_habana()
    assert SCENARIO.calls.offset == library.fake_offset_of_calls()
    assert DEVICE.processes.offset == library.fake_offset_of_processes()
    assert len(FUNCTIONS) == library.fake_function_count()


def test_every_listed_function_is_there():
    """Each function that is listed in functions.h is a symbol of its vendor's library."""
    libraries = {v: ctypes.CDLL(str(library_path(v))) for v in ("nvidia", "habana")}
    for name in FUNCTIONS.keys() - {"nvml_any", "hlml_any", "hl_smi"}:
        library = libraries["nvidia" if name.startswith("nvml") else "habana"]
        assert hasattr(library, name), name


def test_names_may_be_those_of_the_binding():
    """A function name may omit its version suffix, and an unknown name is an error."""
    assert function_row("nvmlDeviceGetCount") == function_row("nvmlDeviceGetCount_v2")
    assert function_row("nvmlInit") == function_row("nvmlInitWithFlags")
    assert function_row("nvmlDeviceGetMemoryInfo") != function_row("nvmlDeviceGetMemoryInfo_v2")
    with pytest.raises(KeyError, match="nvmlDeviceGetMood"):
        function_row("nvmlDeviceGetMood")


def test_libraries_are_built_once_by_whoever_comes_first(tmp_path):
    """Three processes that build a library at the same time leave one complete file."""
    program = (
        "import sys; from pathlib import Path; from tests.fakes.libraries import library_path;"
        "print(library_path('habana', Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    builders = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    paths = {builder.communicate()[0].strip() for builder in builders}
    built = library_path("habana", tmp_path)
    assert paths == {str(built)}
    assert [path.name for path in built.parent.iterdir()] == ["libhlml.so"]
    changed = built.stat().st_mtime_ns
    assert library_path("habana", tmp_path).stat().st_mtime_ns == changed


def test_a_machine_offers_the_libraries_of_its_devices(tmp_path):
    """Each library is alone in its directory, so that one, both or none can be installed."""
    nvidia, habana = library_path("nvidia").parent, library_path("habana").parent
    gpus = FakeMachine(tmp_path, gpus=1).environment()
    assert gpus["LD_LIBRARY_PATH"].split(":")[0] == str(nvidia)
    assert "LD_PRELOAD" not in gpus
    machine = FakeMachine(tmp_path, gpus=0, hpus=1)
    hpus = machine.environment()
    assert hpus["LD_LIBRARY_PATH"].split(":")[0] == str(habana)
    assert hpus["LD_PRELOAD"] == str(habana / "libhlml.so")
    with Console(machine, {"LD_LIBRARY_PATH": "", **machine.environment(())}) as console:
        assert console.code_of("nvml.nvmlInit()") == 12


def test_a_machine_without_devices_has_a_driver(tmp_path):
    """On a machine without devices, NVML can be initialised and counts 0 devices."""
    machine = FakeMachine(tmp_path, gpus=0)
    with Console(machine, machine.environment(["nvidia"])) as console:
        console("nvml.nvmlInit()")
        assert console("nvml.nvmlDeviceGetCount()") == 0


def test_another_process_can_take_hold_of_a_machine(machine):
    """A change by a process that opened an existing machine is visible to both processes."""
    other = FakeMachine.open(machine.path.parent)
    other.gpu(1).temperature = 77
    assert machine.gpu(1).temperature == 77
    assert other.add_gpu().uuid not in {machine.gpu(0).uuid, machine.gpu(1).uuid}
    assert other.environment() == machine.environment()


def test_a_test_process_can_use_one_machine_after_another(tmp_path):
    """After `attach`, the binding of the process reads the new machine instead of the old."""
    program = (
        "import sys; from pathlib import Path; from tests.fakes.machine import FakeMachine;"
        "import pynvml\n"
        "for count in (3, 1):\n"
        "    FakeMachine(Path(sys.argv[1]), gpus=count).attach()\n"
        "    pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout == "3\n1\n"


def test_a_reader_never_sees_half_a_counter(machine, open_console):
    """The energy counter never decreases while another process changes the power."""
    console = open_console()
    console(
        "def falls(n):\n"
        "    seen = [nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for _ in range(n)]\n"
        "    return sum(b < a for a, b in zip(seen, seen[1:]))"
    )
    console.begin("falls(100000)")
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        machine.gpu(0).power_milliwatts = 700_000
        machine.gpu(0).power_milliwatts = 1
    assert console.end() == 0


def test_the_command_runs_another_on_a_machine():
    """The command runs a program on a fake machine, returns its exit status, and cleans up."""
    program = (
        "import os, pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount());"
        "print(os.environ['FAKE_ACCELERATORS']); raise SystemExit(5)"
    )
    command = [sys.executable, "-m", "tests.fakes.machine", "--gpus", "3", "--delay-us", "50", "--"]
    command += [sys.executable, "-c", program]
    answer = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    count, path = answer.stdout.split()
    assert (answer.returncode, count) == (5, "3")
    assert not Path(path).exists()


def test_the_command_takes_the_other_along_when_it_is_ended():
    """SIGTERM to the command also ends the program that it runs."""
    command = [
        sys.executable,
        "-m",
        "tests.fakes.machine",
        "--",
        "sh",
        "-c",
        "echo $$; exec sleep 60",
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        inner = int(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143
    psutil.wait_procs([psutil.Process(inner)] if psutil.pid_exists(inner) else [], timeout=60)
    assert not psutil.pid_exists(inner) or psutil.Process(inner).status() == psutil.STATUS_ZOMBIE
