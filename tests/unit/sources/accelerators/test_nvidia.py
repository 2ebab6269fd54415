"""The NVIDIA reader runs in the test process with the real binding and a fake library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.nvidia import NvidiaSession, open_nvidia
from trainvitals.sources.accelerators.nvml import Library
from trainvitals.sources.accelerators.row import (
    SLOT,
    DeviceError,
    DriverAbsentError,
    DriverGoneError,
)

POWER, TEMPERATURE = "power_watts", "temperature_core_celsius"
MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[FakeMachine]:
    """A machine with two GPUs whose fake library is loaded into the test process."""
    with FakeMachine(tmp_path, gpus=2) as machine:
        machine.attach()
        yield machine


@pytest.fixture
def session(machine) -> Iterator[NvidiaSession]:
    """An open session of the NVIDIA driver."""
    session = open_nvidia()
    yield session
    session.stop_watching()
    machine.heal()


def read(session: NvidiaSession, index: int = 0, since: int | None = None) -> dict[str, object]:
    """Read a device and return the reported values of its row by name."""
    row, busy, holders = session.devices[index].read(since)
    values = {name: row[slot] for name, slot in SLOT.items() if row[slot] is not None}
    return {**values, "busy": busy, "holders": holders}


def test_a_session_shows_its_devices(session):
    """A session lists the fixed properties of each GPU."""
    assert [device.identity for device in session.devices] == [
        (
            "gpu",
            index,
            f"GPU-0000000{index}-5e1f-4d3a-9c07-0000a000000{index}",
            "NVIDIA H100 80GB HBM3",
            f"00000000:{bus}:00.0",
            "570.124.06",
            "96.00.99.00.01",
        )
        for index, bus in enumerate(("1B", "43"))
    ]
    assert session.unreadable == []
    assert session.is_current()


def test_hostile_names_are_read_as_far_as_they_go(machine):
    """Invalid UTF-8 bytes of a name are replaced, and an empty VBIOS version is unknown."""
    machine.gpu(0).name = b"GPU \xff\xfe"
    machine.gpu(1).vbios_version = ""
    session = open_nvidia()
    assert session.devices[0].identity[3] == "GPU \ufffd\ufffd"
    assert session.devices[1].identity[6] is None


def test_a_missing_driver_is_absent_and_a_refusing_one_gone(machine):
    """A driver that is not loaded is absent, and any other error is a failure with its reason."""
    machine.unload_driver()
    with pytest.raises(DriverAbsentError, match="driver not loaded"):
        open_nvidia()
    machine.load_driver()
    machine.fail("nvmlInit", None, 18)
    with pytest.raises(DriverGoneError, match="versions differ"):
        open_nvidia()
    machine.fail("nvmlInit", None, 999)
    with pytest.raises(DriverGoneError, match="nvmlInit failed: Unknown Error"):
        open_nvidia()


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (16, "resetting"), (4, "unsupported")])
def test_a_gpu_that_will_not_open_has_a_state(machine, code, state):
    """A GPU that cannot be opened is listed with its state and a placeholder for its UUID."""
    machine.fail("nvmlDeviceGetHandleByIndex", 1, code)
    session = open_nvidia()
    assert [device.identity[1] for device in session.devices] == [0]
    ((identity, found),) = session.unreadable
    assert (identity[1], identity[2], found) == (1, "unknown-1", state)


def test_a_gpu_that_is_lost_when_it_should_say_its_uuid_is_lost(machine):
    """A GPU that is lost when its UUID is read is listed as lost."""
    machine.fail("nvmlDeviceGetUUID", 1, 15)
    assert open_nvidia().unreadable[0][1] == "lost"


@pytest.mark.parametrize("code", [3, 4, 999])
def test_a_gpu_that_does_not_say_its_uuid_is_named_by_its_address(machine, code):
    """A GPU without a readable UUID is identified by its bus address.

    A GPU without a readable UUID and address is unsupported.
    """
    machine.fail("nvmlDeviceGetUUID", 1, code)
    session = open_nvidia()
    assert session.devices[1].identity[2] == "00000000:43:00.0"
    assert read(session, 1)[POWER] == 70
    machine.fail("nvmlDeviceGetPciInfo", 1, code)
    assert open_nvidia().unreadable[0][1] == "unsupported"


def test_one_gpu_that_says_that_the_driver_is_gone_costs_only_itself(machine):
    """A GPU that reports a missing driver is skipped if the driver still counts its GPUs."""
    machine.fail("nvmlDeviceGetHandleByIndex", 1, 1)
    session = open_nvidia()
    assert [device.identity[1] for device in session.devices] == [0]
    assert [(identity[1], state) for identity, state in session.unreadable] == [(1, "unsupported")]
    machine.fail("nvmlDeviceGetCount", None, 1)
    with pytest.raises(DriverGoneError, match="unloaded or restarted"):
        open_nvidia()


@pytest.mark.parametrize("code", [3, 10, 999])
def test_a_count_that_fails_for_the_moment_says_nothing(machine, session, code):
    """If counting the GPUs fails, a session stays current, but a new session cannot open."""
    machine.fail("nvmlDeviceGetCount", None, code)
    assert session.is_current()
    with pytest.raises(DriverGoneError, match=f"nvmlDeviceGetCount failed with code {code}"):
        open_nvidia()


class Boastful:
    """A library that counts more GPUs than any machine has."""

    def __init__(self, library: object) -> None:
        self._library = library

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def nvmlDeviceGetCount_v2(self, count: object) -> int:  # noqa: N802 - the driver's name
        """Return the highest possible count."""
        count._obj.value = 2**32 - 1
        return 0


def test_a_count_that_no_machine_has_is_not_believed(session):
    """The number of GPUs is limited to 64, so an absurd count cannot fill the memory."""
    boastful = NvidiaSession(Library(Boastful(session._library)))
    assert len(boastful.devices) == 2
    assert len(boastful.unreadable) == 62
    assert boastful.is_current()


MEMORY = {f"memory_{part}_bytes" for part in ("total", "used", "free", "reserved")}
HEADROOM = "temperature_headroom_celsius"
STRANGE = [
    ("temperature", -1, {TEMPERATURE, HEADROOM}),
    ("temperature", -5, {TEMPERATURE, HEADROOM}),
    ("slowdown_threshold", 0, {"temperature_slowdown_celsius", HEADROOM}),
    ("memory_temperature", -1, {"temperature_memory_celsius"}),
    ("performance_state", 32, {"performance_state"}),
    ("sm_clock", -1, {"clock_core_hertz"}),
    ("maximum_sm_clock", -1, {"clock_core_max_hertz"}),
    ("pcie_width", -1, {"pcie_link_width"}),
    ("pcie_replays", -1, {"pcie_replays_total"}),
    ("corrected_volatile_errors", -1, {"ecc_corrected_errors_total"}),
    ("memory_total_bytes", -1, MEMORY),
    ("memory_used_bytes", 1 << 40, {"memory_used_bytes", "memory_free_bytes"}),
    ("encoder_utilization", 255, {"encoder_utilization_ratio"}),
    ("utilization", 160, {"utilization_ratio"}),
    ("memory_utilization", -1, {"memory_utilization_ratio"}),
]


@pytest.mark.parametrize(("attribute", "value", "names"), STRANGE)
def test_a_number_that_is_none_costs_itself(machine, session, attribute, value, names):
    """An impossible value removes only its own metric and the metrics calculated from it."""
    machine.gpu(0).target_temperature = None  # so that the headroom is calculated
    whole = read(session)
    setattr(machine.gpu(0), attribute, value)
    session.devices[0]._bound_until = 0.0  # five minutes later
    assert whole.keys() - read(session).keys() == names


def test_a_limit_that_fails_for_the_moment_is_read_again_soon(machine, session, monkeypatch):
    """A temperature limit that could not be read is read again soon, not after five minutes."""
    machine.gpu(0).target_temperature = None
    machine.fail("nvmlDeviceGetTemperatureThreshold", 0, 999)
    assert "temperature_headroom_celsius" not in read(session)
    machine.heal()
    session.devices[0]._bound_until -= 15.0
    assert "temperature_headroom_celsius" in read(session)
    machine.reset_calls()
    session.devices[0]._bound_until -= 15.0
    read(session)
    assert machine.calls("nvmlDeviceGetTemperatureThreshold") == 0


def test_a_gpu_that_says_its_uuid_and_nothing_more_is_lost_when_it_is_read(machine):
    """A GPU that is lost after its UUID was read does not prevent the opening of other GPUs."""
    for function in ("nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetUtilizationRates"):
        machine.fail(function, 1, 15)
    session = open_nvidia()
    assert len(session.devices) == 2
    assert read(session, 0)[POWER] == 70
    with pytest.raises(DeviceError) as error:
        read(session, 1)
    assert error.value.state == "lost"


def test_a_gpu_that_returns_half_way_is_whole_again(machine, session):
    """A GPU that is lost during a reading reports all values again when it recovers."""
    whole = set(read(session))
    session.devices[0]._bound_until = 0.0  # five minutes later
    machine.fail("nvmlDeviceGetFieldValues", 0, 15)
    with pytest.raises(DeviceError):
        read(session)
    machine.heal()
    assert set(read(session)) == whole


def test_a_driver_that_goes_is_gone_for_every_call(machine, session):
    """An unloaded driver is detected when devices are read, counted or watched for errors."""
    machine.unload_driver()
    with pytest.raises(DriverGoneError, match="unloaded or restarted"):
        read(session)
    with pytest.raises(DriverGoneError, match="unloaded or restarted"):
        session.is_current()
    session.watch(lambda *_: None)


def test_what_is_not_supported_is_asked_again_after_five_minutes_only(machine, session):
    """An unsupported value is queried again only after five minutes; other values stay."""
    gpu = machine.gpu(0)
    gpu.power_milliwatts = gpu.encoder_utilization = gpu.memory_temperature = None
    first = read(session)
    assert not {POWER, "encoder_utilization_ratio", "temperature_memory_celsius"} & first.keys()
    machine.reset_calls()
    assert read(session)[TEMPERATURE] == 34
    assert machine.calls("nvmlDeviceGetPowerUsage") == 0
    assert machine.calls("nvmlDeviceGetEncoderUtilization") == 0
    assert machine.calls("nvmlDeviceGetTemperature") == 1
    gpu.power_milliwatts, gpu.encoder_utilization, gpu.memory_temperature = 90_000, 5, 60
    assert POWER not in read(session)
    session.devices[0]._bound_until = 0.0  # five minutes later
    values = read(session)
    assert (values[POWER], values["encoder_utilization_ratio"]) == (90, 0.05)
    assert values["temperature_memory_celsius"] == 60


@pytest.mark.parametrize(
    ("function", "names"),
    [
        ("nvmlDeviceGetPowerUsage", {POWER}),
        ("nvmlDeviceGetUtilizationRates", {"utilization_ratio", "memory_utilization_ratio"}),
        ("nvmlDeviceGetSamples", {"busy"}),
        ("nvmlDeviceGetMarginTemperature", set()),
        ("nvmlDeviceGetComputeRunningProcesses_v3", {"processes"}),
    ],
)
@pytest.mark.parametrize("code", [10, 999])
def test_an_error_of_the_moment_costs_its_values_once(machine, session, function, names, code):
    """A timeout or an unknown error removes the values of one reading only."""
    whole = {key for key, value in read(session).items() if value is not None}
    machine.fail(function, 0, code)
    failing = {key for key, value in read(session).items() if value is not None}
    assert whole - failing == names
    machine.fail(function, 0, 0)
    assert {key for key, value in read(session).items() if value is not None} == whole


def test_one_field_that_fails_costs_one_value(machine, session):
    """An error of one field in a successful call removes only that field's metric."""
    machine.fail_field(94, 0, 999)
    assert "pcie_replays_total" not in read(session)
    machine.fail_field(94, 0, 0)
    assert read(session)["pcie_replays_total"] == 0


def test_memory_falls_back_to_the_first_version(machine, session):
    """On older drivers, the reserved memory is unknown and included in the used memory."""
    machine.fail("nvmlDeviceGetMemoryInfo_v2", 0, 13)
    values = read(session)
    assert values["memory_used_bytes"] == 555 * MIB
    assert "memory_reserved_bytes" not in values


def test_memory_that_fails_for_the_moment_does_not_fall_back(machine, session):
    """A temporary error does not select the old call, which counts reserved memory as used."""
    machine.fail("nvmlDeviceGetMemoryInfo_v2", 0, 999)
    assert "memory_used_bytes" not in read(session)


def test_throttle_reasons_fall_back_to_their_old_name(machine, session):
    """On drivers before 535, the throttle reasons are read by the function's older name."""
    machine.gpu(0).throttle_reasons = 0x20
    machine.fail("nvmlDeviceGetCurrentClocksEventReasons", 0, 13)
    assert read(session)["throttle_active"] == (0, None, None, None, 1, 0, 0, 0)


def test_more_processes_than_there_was_room_for_are_read_at_once(machine, session):
    """The process buffer grows within one reading if it is too small."""
    machine.processes(0, [(pid, pid * MIB) for pid in range(1, 33)])
    read(session)
    session.devices[0]._processes._buffer._make_room(4)
    values = read(session)
    assert values["processes"] == 32
    assert values["holders"][:2] == [(32, 32 * MIB, 0.0), (31, 31 * MIB, 0.0)]


def test_busy_time_begins_where_it_was_left(machine, session):
    """Busy time is counted from the newest counted sample, so no sample is counted twice."""
    machine.stop_clock(1_000_000.0)
    machine.gpu(0).constant_load(100)
    since, busy, _ = read(session)["busy"]
    assert busy == 0
    machine.advance(1.0)
    after, busy, lost = read(session, since=since)["busy"]
    assert busy == pytest.approx(1.0, abs=0.17)
    assert busy == pytest.approx((after - since) / 1e6)
    assert lost == 0
    assert read(session, since=after)["busy"] == (after, 0.0, 0.0)


def test_a_gpu_without_samples_counts_from_its_first(machine, session):
    """A GPU with an empty sample buffer is read as zero, and all later samples are counted."""
    machine.stop_clock(1_000_000.0)
    machine.gpu(0).idle()
    assert read(session)["busy"] == (0, 0.0, 0.0)
    machine.gpu(0).constant_load(100, from_now=True)
    machine.advance(1.0)
    assert read(session, since=0)["busy"][1] == pytest.approx(1.0, abs=0.17)


def test_a_session_is_closed_by_a_shutdown(machine, session):
    """Closing a session calls `nvmlShutdown`, so that the driver can be unloaded."""
    session.close()
    assert machine.calls("nvmlShutdown") == 1
