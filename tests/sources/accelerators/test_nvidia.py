"""The NVIDIA reader in this very process, on the fake library through the real binding."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.machine import FakeMachine
from trainvitals.sources.accelerators.nvidia import NvidiaSession, open_nvidia
from trainvitals.sources.accelerators.nvml import decode_field
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
    """Two GPUs of which this process has just loaded the library."""
    with FakeMachine(tmp_path, gpus=2) as machine:
        machine.attach()
        yield machine


@pytest.fixture
def session(machine) -> Iterator[NvidiaSession]:
    """The open driver."""
    session = open_nvidia()
    yield session
    session.stop_watching()
    machine.heal()


def read(session: NvidiaSession, index: int = 0, since: int | None = None) -> dict[str, object]:
    """Read a device; give its row by name, without what is not reported."""
    row, busy, holders = session.devices[index].read(since)
    values = {name: row[slot] for name, slot in SLOT.items() if row[slot] is not None}
    return {**values, "busy": busy, "holders": holders}


def test_a_session_shows_its_devices(session):
    """With what does not change."""
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
    """A byte that is no UTF-8 costs only itself."""
    machine.gpu(0).name = b"GPU \xff\xfe"
    machine.gpu(1).vbios_version = ""
    session = open_nvidia()
    assert session.devices[0].identity[3] == "GPU \ufffd\ufffd"
    assert session.devices[1].identity[6] is None


def test_a_missing_driver_is_absent_and_a_refusing_one_gone(machine):
    """Both say why."""
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
    """And no name."""
    machine.fail("nvmlDeviceGetHandleByIndex", 1, code)
    session = open_nvidia()
    assert [device.identity[1] for device in session.devices] == [0]
    ((identity, found),) = session.unreadable
    assert (identity[1], identity[2], found) == (1, "unknown-1", state)


def test_a_gpu_that_does_not_say_its_uuid_is_lost(machine):
    """Nothing else could name it."""
    machine.fail("nvmlDeviceGetUUID", 1, 15)
    assert open_nvidia().unreadable[0][1] == "lost"


def test_a_gpu_that_says_its_uuid_and_nothing_more_is_lost_when_it_is_read(machine):
    """Opening the others is not kept by it."""
    for function in ("nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetUtilizationRates"):
        machine.fail(function, 1, 15)
    session = open_nvidia()
    assert len(session.devices) == 2
    assert read(session, 0)[POWER] == 70
    with pytest.raises(DeviceError) as error:
        read(session, 1)
    assert error.value.state == "lost"


def test_a_gpu_that_returns_half_way_is_whole_again(machine, session):
    """What was made ready while it was lost is made ready anew."""
    whole = set(read(session))
    session.devices[0]._bound_until = 0.0  # five minutes later
    machine.fail("nvmlDeviceGetFieldValues", 0, 15)
    with pytest.raises(DeviceError):
        read(session)
    machine.heal()
    assert set(read(session)) == whole


def test_a_driver_that_goes_is_gone_for_every_call(machine, session):
    """Reading, counting and waiting for errors."""
    machine.unload_driver()
    with pytest.raises(DriverGoneError, match="unloaded or restarted"):
        read(session)
    with pytest.raises(DriverGoneError, match="unloaded or restarted"):
        session.is_current()
    session.watch(lambda *_: None)


def test_what_is_not_supported_is_asked_again_after_five_minutes_only(machine, session):
    """Each such call is left out from then on, the others stay."""
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
        ("nvmlDeviceGetComputeRunningProcesses", {"processes"}),
    ],
)
@pytest.mark.parametrize("code", [10, 999])
def test_an_error_of_the_moment_costs_its_values_once(machine, session, function, names, code):
    """A timeout or an unknown error is not "not supported"."""
    whole = {key for key, value in read(session).items() if value is not None}
    machine.fail(function, 0, code)
    failing = {key for key, value in read(session).items() if value is not None}
    assert whole - failing == names
    machine.fail(function, 0, 0)
    assert {key for key, value in read(session).items() if value is not None} == whole


def test_one_field_that_fails_costs_one_value(machine, session):
    """The call as a whole succeeds."""
    machine.fail_field(94, 0, 999)
    assert "pcie_replays_total" not in read(session)
    machine.fail_field(94, 0, 0)
    assert read(session)["pcie_replays_total"] == 0


def test_memory_falls_back_to_the_first_version(machine, session):
    """An older driver does not tell its reserve, which is then within what is used."""
    machine.fail("nvmlDeviceGetMemoryInfo_v2", 0, 13)
    values = read(session)
    assert values["memory_used_bytes"] == 555 * MIB
    assert "memory_reserved_bytes" not in values


def test_throttle_reasons_fall_back_to_their_old_name(machine, session):
    """Drivers before 535 have only that."""
    machine.gpu(0).throttle_reasons = 0x20
    machine.fail("nvmlDeviceGetCurrentClocksEventReasons", 0, 13)
    assert read(session)["throttle_active"] == (0, None, None, None, 1, 0, 0, 0)


def test_links_that_fall_are_seen_within_five_seconds(machine, session):
    """They are not counted in every scrape, since each takes a call."""
    assert read(session)["links_active"] == 18
    machine.gpu(0).nvlink_down_mask = 0b11
    assert read(session)["links_active"] == 18
    session.devices[0]._links_read_at -= 5.1
    assert read(session)["links_active"] == 16


def test_more_processes_than_there_was_room_for_are_read_at_once(machine, session):
    """The buffer grows within the same reading."""
    machine.processes(0, [(pid, pid * MIB) for pid in range(1, 33)])
    device = session.devices[0]
    read(session)
    device._processes = type(device._processes)._type_.__mul__(24 * 4)()
    values = read(session)
    assert values["processes"] == 32
    assert values["holders"][:2] == [(32, 32 * MIB), (31, 31 * MIB)]


def test_busy_time_begins_where_it_was_left(machine, session):
    """Once counted, no sample is counted again."""
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
    """An idle one says zero, and what it does then is counted whole."""
    machine.stop_clock(1_000_000.0)
    machine.gpu(0).idle()
    assert read(session)["busy"] == (0, 0.0, 0.0)
    machine.gpu(0).constant_load(100, from_now=True)
    machine.advance(1.0)
    assert read(session, since=0)["busy"][1] == pytest.approx(1.0, abs=0.17)


def test_xids_are_reported_and_a_gpu_that_returns_is_heard_again(machine, session, monkeypatch):
    """Also those that a lost GPU still had to tell."""
    monkeypatch.setattr("trainvitals.sources.accelerators.nvidia._DEAF_WAIT_MS", 100)
    found: list[tuple[str, int]] = []
    watcher = threading.Thread(target=session.watch, args=(lambda *event: found.append(event),))
    watcher.start()
    uuids = [device.identity[2] for device in session.devices]

    def wait_for(count: int) -> None:
        until = time.monotonic() + 5
        while len(found) < count:
            assert time.monotonic() < until
            time.sleep(0.01)

    while machine.calls("nvmlEventSetWait") == 0:
        time.sleep(0.01)
    machine.deliver_xid(0, 79)
    machine.lose(0)
    wait_for(1)
    time.sleep(0.1)
    machine.deliver_xid(1, 31)
    wait_for(2)
    machine.restore(0)
    registered = machine.calls("nvmlDeviceRegisterEvents", 0)
    while machine.calls("nvmlDeviceRegisterEvents", 0) == registered:
        time.sleep(0.01)
    time.sleep(0.05)
    machine.deliver_xid(0, 94)
    wait_for(3)
    assert found == [(uuids[0], 79), (uuids[1], 31), (uuids[0], 94)]
    session.stop_watching()
    machine.deliver_xid(0, 13)
    watcher.join(5)
    assert not watcher.is_alive()


def test_gpus_without_events_are_not_waited_for(machine, session):
    """There is nothing to wait for then."""
    for index in (0, 1):
        machine.gpu(index).supported_event_types = 0
    session.watch(lambda *_: None)


def test_an_error_of_the_wait_does_not_spin(machine, session):
    """It is tried again after a while."""
    machine.fail("nvmlEventSetWait", None, 999)
    machine.reset_calls()
    watcher = threading.Thread(target=session.watch, args=(lambda *_: None,))
    watcher.start()
    time.sleep(0.3)
    assert machine.calls("nvmlEventSetWait") <= 2
    session.stop_watching()
    watcher.join(6)
    assert not watcher.is_alive()


def test_a_session_is_closed_by_a_shutdown(machine, session):
    """So that the driver can be unloaded."""
    session.close()
    assert machine.calls("nvmlShutdown") == 1


@given(st.integers(0, 2**64 - 1))
def test_a_fields_value_is_read_by_its_type(value):
    """As the C union would, whatever the upper bytes hold."""
    packed = struct.pack("<Q", value)
    assert decode_field(1, value) == struct.unpack("<I", packed[:4])[0]
    assert decode_field(2, value) == value
    assert decode_field(3, value) == value
    assert decode_field(4, value) == struct.unpack("<q", packed)[0]
    assert decode_field(5, value) == struct.unpack("<i", packed[:4])[0]
    assert decode_field(6, value) == struct.unpack("<H", packed[:2])[0]
    assert struct.pack("<d", decode_field(0, value)) == packed or value % 2**63 > 0x7FF << 52
