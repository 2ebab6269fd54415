"""Readings of the GPUs of a process, through the real NVML binding from a fake driver."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine

ROOT = Path(__file__).parents[3]
MIB = 1 << 20

PROGRAM = """
import json, logging, sys, threading, time
from types import SimpleNamespace
from tests.fakes.machine import FakeMachine
from trainvitals.training.gpus import GPUSampler
warnings = []
class Keep(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())
logging.getLogger("trainvitals").addHandler(Keep())
machine = FakeMachine.open(sys.argv[1]) if sys.argv[1] else None
sampler = GPUSampler()
answer = {}
exec(sys.argv[2])
print(json.dumps({**answer, "warnings": warnings}))
"""


@pytest.fixture
def machine(tmp_path):
    """A machine with two GPUs, of which the first is busy."""
    with FakeMachine(tmp_path, gpus=2) as machine:
        busy = machine.gpu(0)
        busy.utilization = 85
        busy.memory_total_bytes = 16384 * MIB
        busy.memory_used_bytes = 8192 * MIB
        busy.temperature = 72
        busy.power_milliwatts = 180_500
        yield machine


def run(machine, code, **variables):
    """Run code in a separate process, on the fake machine if one is given."""
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(machine.path.parent) if machine else "", code],
        env={
            **environ,
            "PYTHONPATH": f"{ROOT / 'exporter'}:{ROOT}",
            **(machine.environment() if machine else {}),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_gpu_has_the_values_of_the_published_keys(machine):
    """Utilisation, memory, temperature and power come in percent, MB, degrees and watts."""
    answer = run(machine, "answer = sampler.read()")
    first = {name: value for name, value in answer.items() if name.startswith("gpu_0_")}
    assert first == {
        "gpu_0_util": 85.0,
        "gpu_0_memory_used_mb": 8192.0,
        "gpu_0_memory_total_mb": 16384.0,
        "gpu_0_memory_pct": 50.0,
        "gpu_0_temp_c": 72.0,
        "gpu_0_power_w": 180.5,
    }
    assert answer["gpu_1_temp_c"] == 34.0
    assert answer["warnings"] == []


@pytest.mark.parametrize(
    ("visible", "temperatures"),
    [
        ("1", {"gpu_0_temp_c": 34.0}),
        ("1,0", {"gpu_0_temp_c": 34.0, "gpu_1_temp_c": 72.0}),
        ("{uuid}", {"gpu_0_temp_c": 34.0}),
        ("{uuid:.16},0", {"gpu_0_temp_c": 34.0, "gpu_1_temp_c": 72.0}),
        ("0,7,1", {"gpu_0_temp_c": 72.0}),
        ("-1", {}),
        ("", {}),
    ],
)
def test_the_visible_devices_are_those_of_cuda(machine, visible, temperatures):
    """Indices, UUIDs and UUID prefixes select GPUs in order, and an unknown entry ends the list."""
    machine.gpu(0).uuid = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
    machine.gpu(1).uuid = "GPU-bbbbbbbb-0000-0000-0000-000000000000"
    visible = visible.format(uuid=machine.gpu(1).uuid)
    answer = run(machine, "answer = sampler.read()", CUDA_VISIBLE_DEVICES=visible)
    found = {name: value for name, value in answer.items() if name.endswith("temp_c")}
    assert found == temperatures


def test_cuda_itself_is_believed_about_its_order(machine):
    """If torch has initialised CUDA, the UUIDs from torch decide which GPU is `cuda:0`."""
    uuids = [machine.gpu(1).uuid.removeprefix("GPU-"), machine.gpu(0).uuid.removeprefix("GPU-")]
    code = f"""
sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(
    is_initialized=lambda: True,
    device_count=lambda: 2,
    get_device_properties=lambda ordinal: SimpleNamespace(uuid={uuids!r}[ordinal]),
))
answer = sampler.read()
"""
    answer = run(machine, code)
    assert (answer["gpu_0_temp_c"], answer["gpu_1_temp_c"]) == (34.0, 72.0)


def test_only_the_gpus_that_are_followed_are_read(machine):
    """A rank reads only its own GPU, under the number that CUDA gives that GPU."""
    answer = run(machine, "sampler.follow([1]); answer = sampler.read()")
    assert answer["gpu_1_temp_c"] == 34.0
    assert not [name for name in answer if name.startswith("gpu_0")]
    assert machine.calls("nvmlDeviceGetTemperature", 0) == 0


def test_a_lost_gpu_loses_its_values_and_is_told_once(machine):
    """A lost GPU causes one warning, and the other GPUs are still read."""
    code = """
before = sorted(sampler.read())
machine.lose(1)
after = [sorted(sampler.read()) for _ in range(3)]
answer = {"before": before, "after": after}
"""
    answer = run(machine, code)
    assert len(answer["before"]) == 12
    assert [len(names) for names in answer["after"]] == [6, 6, 6]
    (warning,) = answer["warnings"]
    assert warning.startswith("GPU values are missing: ")
    assert "training goes on" in warning


def test_a_driver_that_hangs_is_waited_for_a_moment(machine):
    """A hanging NVML call delays one of 100 reads, and the values return with the call."""
    code = """
sampler.read()
machine.hang("nvmlDeviceGetTemperature")
began = time.monotonic()
during = [sampler.read() for _ in range(100)]
seconds = time.monotonic() - began
machine.unhang("nvmlDeviceGetTemperature")
until = time.monotonic() + 30
while not (after := sampler.read()) and time.monotonic() < until:
    time.sleep(0.05)
answer = {"during": during, "seconds": seconds, "after": len(after)}
"""
    answer = run(machine, code)
    assert answer["during"] == [{}] * 100
    assert answer["seconds"] < 15  # 100 waits would be 20 s
    assert answer["after"] == 12
    assert len(answer["warnings"]) == 1


def test_a_driver_that_is_not_loaded_is_reported_once(machine):
    """If the driver is not loaded, there are no GPU values and one warning."""
    machine.unload_driver()
    answer = run(machine, "answer = {'values': [sampler.read(), sampler.read()]}")
    assert answer["values"] == [{}, {}]
    assert len(answer["warnings"]) == 1


def test_what_a_card_does_not_have_is_left_out_in_silence(machine):
    """A GPU without a power sensor has no power value, and no warning is logged."""
    machine.gpu(0).power_milliwatts = None
    answer = run(machine, "answer = sampler.read()")
    assert "gpu_0_power_w" not in answer
    assert answer["gpu_0_util"] == 85.0
    assert answer["warnings"] == []


def test_without_a_library_there_is_nothing(machine):
    """Without NVIDIA's library, there are no GPU values, no warnings and no thread."""
    code = """
values = sampler.read()
answer = {"values": values, "threads": threading.active_count(), "pynvml": "pynvml" in sys.modules}
"""
    answer = run(None, code)
    assert answer == {"values": {}, "threads": 1, "pynvml": False, "warnings": []}
