"""Tests for the accelerator collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from trainvitals.metrics.collectors.accelerator import AcceleratorCollector
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Idleness,
    Measurements,
    Owner,
    ProcessMemory,
    State,
    XidCount,
)
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.accelerators.vendors import VENDORS

GPU = Identity("gpu", 0, "G", "H100", "0:1b", "570", "96.0")
HPU = Identity("hpu", 0, "H", "HL-325L", "0:43", "1.22")
Samples = dict[str, float]


@pytest.fixture
def collector() -> Iterator[AcceleratorCollector]:
    """Yield a collector of GPUs and HPUs on a machine without either."""
    vendors = [replace(vendor, is_installed=lambda: False) for vendor in VENDORS]
    collector = AcceleratorCollector(AcceleratorSource(vendors=vendors))
    yield collector
    collector.close()


@pytest.fixture
def express(collector, samples) -> Callable[..., Samples]:
    """Return a function that returns the samples of a reading of devices."""

    def express(devices: Sequence[AcceleratorReading], **others: object) -> Samples:
        return samples(collector.express(AcceleratorsReading(tuple(devices), **others)))

    return express


def read(
    identity: Identity,
    *,
    state: State = "ok",
    last_seen: float | None = 1000.0,
    xids: tuple[XidCount, ...] = (),
    processes: tuple[ProcessMemory, ...] = (),
    **numbers: object,
) -> AcceleratorReading:
    """Return the reading of a device; only a device in state ok has measurements."""
    measurements = Measurements(**numbers) if state == "ok" else None
    return AcceleratorReading(identity, state, last_seen, measurements, processes, xids)


def test_without_devices_only_their_number_is_reported(express):
    """Without devices, the only metric is their number, 0 for each kind."""
    assert express([]) == {
        'accelerator_devices{kind="gpu"}': 0,
        'accelerator_devices{kind="hpu"}': 0,
    }


def test_a_machine_without_devices_reads_as_such(collector):
    """A machine without devices results in no complaint and no omitted samples."""
    reading = collector.read(float("inf"))
    assert reading == AcceleratorsReading(devices=())
    assert collector.complaint(reading) is None
    assert collector.omitted(reading) == 0


def test_what_was_left_out_and_what_hangs_is_told(collector):
    """The complaint and the number of omitted processes are those of the reading."""
    reading = AcceleratorsReading((), complaint="a driver call hangs", omitted_processes=3)
    assert collector.complaint(reading) == "a driver call hangs"
    assert collector.omitted(reading) == 3


def test_expected_devices_are_reported_beside_those_that_respond(express):
    """The expected number of devices is reported only for kinds that have one."""
    found = express([read(GPU), read(HPU, state="lost")], expected=(("hpu", 2),))
    assert found['accelerator_devices{kind="gpu"}'] == 1
    assert found['accelerator_devices{kind="hpu"}'] == 0
    assert found['accelerator_devices_expected{kind="hpu"}'] == 2
    assert 'accelerator_devices_expected{kind="gpu"}' not in found


@pytest.mark.parametrize(
    ("limit", "value"),
    [("memory_limit_bytes", 7_500_000_000), ("temperature_limit_celsius", 80.0)],
)
def test_a_limit_is_reported_if_there_is_one(express, limit, value):
    """A configured limit is one metric for all devices; without a limit, the metric is absent."""
    found = express([read(GPU), read(HPU)], **{limit: value})
    assert found[f"accelerator_{limit}"] == value
    assert f"accelerator_{limit}" not in express([read(GPU)])


@pytest.mark.parametrize("state", ["lost", "hung", "resetting", "no_driver", "unsupported"])
def test_a_device_that_cannot_be_read_has_its_state_alone(express, state):
    """A device that cannot be read has only its identity, state and time of the last reading."""
    labels = 'kind="gpu",device="0",uuid="G"'
    described = f'{labels},model="H100",driver="570",bus_id="0:1b",firmware="96.0"'
    found = express([read(GPU, state=state)])
    expected = {
        'accelerator_devices{kind="gpu"}': 0,
        'accelerator_devices{kind="hpu"}': 0,
        f"accelerator_info{{{described}}}": 1,
        f"accelerator_up{{{labels}}}": 0,
        f'accelerator_state{{{labels},state="{state}"}}': 1,
        f"accelerator_last_seen_timestamp_seconds{{{labels}}}": 1000,
    }
    assert found == expected
    never = express([read(GPU, state=state, last_seen=None)])
    assert expected.keys() - never.keys() == {
        f"accelerator_last_seen_timestamp_seconds{{{labels}}}"
    }


def test_what_a_device_does_not_report_is_absent(express):
    """A value that a device does not report is absent, even if another device reports it."""
    other = replace(GPU, index=1, uuid="O")
    found = express([read(GPU, power_watts=70.5), read(other, links_active=3, power_watts=None)])
    assert found['accelerator_power_watts{kind="gpu",device="0",uuid="G"}'] == 70.5
    assert found['accelerator_links_active{kind="gpu",device="1",uuid="O"}'] == 3
    assert 'accelerator_power_watts{kind="gpu",device="1",uuid="O"}' not in found
    assert 'accelerator_links_active{kind="gpu",device="0",uuid="G"}' not in found


def test_tuples_have_a_series_for_each_member_that_is_reported(express):
    """Throttle reasons that a card does not report are absent, not zero."""
    throttled = (1.5, None, 0.0, None, None, 2.0, None, None)
    found = express([read(GPU, throttle_seconds_total=throttled)])
    name = 'accelerator_throttle_seconds_total{kind="gpu",device="0",uuid="G",reason='
    assert {key: value for key, value in found.items() if key.startswith(name)} == {
        f'{name}"sw_power_cap"}}': 1.5,
        f'{name}"board_limit"}}': 0,
        f'{name}"hw_thermal"}}': 2,
    }


@pytest.mark.parametrize(("identity", "kind"), [(GPU, "gpu"), (HPU, "hpu")])
def test_five_names_are_the_kinds_own(express, identity, kind):
    """Each kind has five metrics of its own, with the utilization in whole percent."""
    found = express(
        [
            read(
                identity,
                utilization_ratio=0.29,
                memory_used_bytes=5,
                memory_total_bytes=8,
                temperature_core_celsius=61,
                power_watts=350.25,
            )
        ]
    )
    labels = f'{{device="0",uuid="{identity.uuid}"}}'
    own = {key: value for key, value in found.items() if key.startswith(("gpu_", "hpu_"))}
    assert own == {
        f"{kind}_utilization_percent{labels}": 29,
        f"{kind}_memory_used_bytes{labels}": 5,
        f"{kind}_memory_total_bytes{labels}": 8,
        f"{kind}_temperature_celsius{labels}": 61,
        f"{kind}_power_watts{labels}": 350.25,
    }
    common = f'{{kind="{kind}",device="0",uuid="{identity.uuid}"}}'
    assert found[f"accelerator_utilization_ratio{common}"] == 0.29


def test_processes_have_their_id_as_a_label(express):
    """The memory of each process is reported with the process id as a label."""
    found = express([read(GPU, processes=(ProcessMemory(42, 7), ProcessMemory(43, 0)))])
    name = 'accelerator_process_memory_used_bytes{kind="gpu",device="0",uuid="G",pid='
    assert (found[f'{name}"42"}}'], found[f'{name}"43"}}']) == (7, 0)


def test_a_process_has_one_info_with_what_is_known(express):
    """Unknown labels of a process are empty, and unknown memory or utilization has no sample."""
    processes = (
        ProcessMemory(42, None, 0.5, Owner("python3", "ada", "9c" * 32, "12", "0a1b")),
        ProcessMemory(43, 7),
    )
    found = express([read(GPU, processes=processes)])
    device = 'kind="gpu",device="0",uuid="G"'
    assert {key: value for key, value in found.items() if "process_" in key} == {
        f'accelerator_process_info{{{device},pid="42",program="python3",user="ada",'
        'container="9c9c9c9c9c9c",compose_service="",slurm_job="12",pod="0a1b",run=""}': 1,
        f'accelerator_process_info{{{device},pid="43",program="",user="",'
        'container="",compose_service="",slurm_job="",pod="",run=""}': 1,
        f'accelerator_process_memory_used_bytes{{{device},pid="43"}}': 7,
        f'accelerator_process_utilization_ratio{{{device},pid="42"}}': 0.5,
    }


def test_an_idle_device_has_one_reason(express):
    """An idle device has a sample for its reason only."""
    idle = replace(read(GPU), idle=Idleness("compiles", "python (PID 7) waits for nvcc", 7))
    found = express([idle, read(HPU)])
    assert {key: value for key, value in found.items() if "idle" in key} == {
        'accelerator_idle_reason{kind="gpu",device="0",uuid="G",reason="compiles"}': 1
    }


def test_a_lost_device_keeps_its_errors(express):
    """A lost device keeps its Xid errors, with their class and action on the time stamp."""
    xids = (XidCount(-1, 4, 900.0), XidCount(79, 1, 950.5))
    found = express([read(GPU, state="lost", xids=xids)])
    labels = 'kind="gpu",device="0",uuid="G"'
    assert {key: value for key, value in found.items() if "xid" in key} == {
        f'accelerator_xid_errors_total{{{labels},xid="other"}}': 4,
        f'accelerator_xid_errors_total{{{labels},xid="79"}}': 1,
        f'accelerator_xid_last_timestamp_seconds{{{labels},xid="other",class="warning"'
        ',action="a look at the kernel log"}': 900.0,
        f'accelerator_xid_last_timestamp_seconds{{{labels},xid="79",class="critical"'
        ',action="reboot of the machine"}': 950.5,
    }


def test_a_shape_changes_when_anything_but_a_value_does(collector):
    """The shape of a block changes with its labels and metrics, but not with its values."""

    def shapes(*devices: AcceleratorReading) -> list[object]:
        return [block.shape for block in collector.express(AcceleratorsReading(devices))]

    before = shapes(read(GPU, power_watts=70.0))
    assert shapes(read(GPU, power_watts=90.0)) == before
    assert shapes(read(replace(GPU, index=1), power_watts=70.0)) != before
    assert shapes(read(replace(GPU, driver="580"), power_watts=70.0)) != before
    assert shapes(read(GPU, state="hung")) != before
    assert shapes(read(GPU, power_watts=None)) != before
    assert shapes(read(GPU, power_watts=70.0, xids=(XidCount(31, 1, 1.0),))) != before
