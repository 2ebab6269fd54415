"""The reading of one accelerator, the same for every vendor, in base units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.accelerators.row import LINK_ERRORS, THROTTLE_REASONS

Kind = Literal["gpu", "hpu"]
State = Literal["ok", "lost", "hung", "resetting", "no_driver", "unsupported"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The properties of a device that do not change while it is in the machine.

    Attributes:
        kind: `gpu` or `hpu`.
        index: The driver's index, as `nvidia-smi` and `hl-smi` show it.
        uuid: The device's own name; it stays when the index changes.
        model: The product name.
        bus_id: The PCI address.
        driver: The driver's version.
        firmware: The VBIOS or firmware version; None if it is not reported.
    """

    kind: Kind
    index: int
    uuid: str
    model: str
    bus_id: str
    driver: str
    firmware: str | None = None


@dataclass(frozen=True, slots=True)
class Measurements:
    """The numbers of one device at one time; None is "not reported".

    Fields that end in `_total` never decrease: when the driver's own counter starts again, the sum
    continues.

    Attributes:
        utilization_ratio: Share of the driver's last sample period (1/6 s to 1 s) in which a kernel
            ran, 0 to 1.
        memory_utilization_ratio: Share of that period in which memory was read or written.
        busy_seconds_total: Seconds in which a kernel ran, integrated from every sample of the
            driver's buffer.
        busy_unobserved_seconds_total: Seconds between two readings that the buffer no longer
            covered; `busy_seconds_total` counts them with the mean of the remaining samples.
        memory_total_bytes: Device memory.
        memory_used_bytes: Device memory that programs use, without the driver's reserve.
        memory_reserved_bytes: Device memory that the driver reserves for itself.
        memory_free_bytes: Memory that is free.
        temperature_core_celsius: The chip.
        temperature_memory_celsius: The memory.
        temperature_slowdown_celsius: The temperature at which the hardware slows down, for cards
            that report it.
        temperature_headroom_celsius: The difference to that temperature.
        power_watts: The power draw as reported by the driver (on newer cards a mean over 1 s).
        power_limit_watts: The limit in force.
        energy_joules_total: Energy used, from the driver's own count since it was loaded.
        clock_core_hertz: The SM (GPU) or SoC (HPU) clock.
        clock_memory_hertz: The memory clock.
        clock_core_max_hertz: The highest SM or SoC clock.
        clock_memory_max_hertz: The highest memory clock.
        throttle_active: 1 or 0 for each of `THROTTLE_REASONS`.
        throttle_seconds_total: Seconds slowed down, for each of `THROTTLE_REASONS`.
        ecc_corrected_errors_total: Corrected memory errors.
        ecc_uncorrected_errors_total: Uncorrected memory errors.
        row_remap_pending: 1 when a memory repair waits for a reset.
        row_remap_failed: 1 when memory can no longer be repaired.
        rows_remapped_corrected: Rows replaced because of corrected errors.
        rows_remapped_uncorrected: Rows replaced because of uncorrected errors.
        pages_retired_corrected: Pages retired because of corrected errors (before Ampere).
        pages_retired_uncorrected: Pages retired because of uncorrected errors (before Ampere).
        pages_retired_pending: 1 when a page waits for a reset to be retired.
        recovery_action: The recovery that the driver requests: 0 none, 1 reset, 2 reboot, 3 drain
            P2P, 4 drain and reset, 5 recover IMEX.
        pcie_link_generation: The current PCIe generation.
        pcie_link_generation_max: The highest generation that card and slot support.
        pcie_link_width: The current number of PCIe lanes.
        pcie_link_width_max: The highest number of lanes that card and slot support.
        pcie_replays_total: PCIe packets sent again.
        links_active: NVLink links that are up.
        links_expected: The highest number of links that were ever up.
        link_receive_bytes_total: Payload received over NVLink, all links.
        link_transmit_bytes_total: Payload sent over NVLink, all links.
        link_errors_total: NVLink errors, for each of `LINK_ERRORS`.
        encoder_utilization_ratio: Use of the video encoder.
        decoder_utilization_ratio: Use of the video decoder.
        fan_speed_ratio: The share of the fan's full speed; may exceed 1.
        performance_state: 0 (fastest) to 15.
        processes: The number of processes that compute on the device.
    """

    utilization_ratio: float | None = None
    memory_utilization_ratio: float | None = None
    busy_seconds_total: float | None = None
    busy_unobserved_seconds_total: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_core_celsius: float | None = None
    temperature_memory_celsius: float | None = None
    temperature_slowdown_celsius: float | None = None
    temperature_headroom_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules_total: float | None = None
    clock_core_hertz: int | None = None
    clock_memory_hertz: int | None = None
    clock_core_max_hertz: int | None = None
    clock_memory_max_hertz: int | None = None
    throttle_active: tuple[int | None, ...] = (None,) * len(THROTTLE_REASONS)
    throttle_seconds_total: tuple[float | None, ...] = (None,) * len(THROTTLE_REASONS)
    ecc_corrected_errors_total: int | None = None
    ecc_uncorrected_errors_total: int | None = None
    row_remap_pending: int | None = None
    row_remap_failed: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    pages_retired_corrected: int | None = None
    pages_retired_uncorrected: int | None = None
    pages_retired_pending: int | None = None
    recovery_action: int | None = None
    pcie_link_generation: int | None = None
    pcie_link_generation_max: int | None = None
    pcie_link_width: int | None = None
    pcie_link_width_max: int | None = None
    pcie_replays_total: int | None = None
    links_active: int | None = None
    links_expected: int | None = None
    link_receive_bytes_total: int | None = None
    link_transmit_bytes_total: int | None = None
    link_errors_total: tuple[int | None, ...] = (None,) * len(LINK_ERRORS)
    encoder_utilization_ratio: float | None = None
    decoder_utilization_ratio: float | None = None
    fan_speed_ratio: float | None = None
    performance_state: int | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The device memory that one process holds.

    Attributes:
        pid: The process, as the driver's PID namespace numbers it.
        used_bytes: Device memory that it uses, in bytes.
    """

    pid: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class XidCount:
    """The number of errors of one code that a device reported.

    Attributes:
        xid: The driver's number for the error.
        count: The number of errors since the exporter started.
        last_timestamp_seconds: Unix time of the latest.
    """

    xid: int
    count: int
    last_timestamp_seconds: float


@dataclass(frozen=True, slots=True)
class AcceleratorReading:
    """The reading of one device.

    Attributes:
        identity: Which device.
        state: `ok`; `lost` (fell off the bus or vanished); `hung` (a call does not return);
            `resetting` (it needs or undergoes a reset); `no_driver` (the driver is unloaded,
            replaced or released); `unsupported` (the driver refuses to read it).
        last_seen_timestamp_seconds: Unix time of the latest complete reading; None before the
            first.
        measurements: The numbers; None unless the state is `ok`.
        processes: The processes that hold device memory, largest first, bounded.
        xids: The errors it reported, by code.
    """

    identity: Identity
    state: State
    last_seen_timestamp_seconds: float | None
    measurements: Measurements | None
    processes: tuple[ProcessMemory, ...] = ()
    xids: tuple[XidCount, ...] = ()


@dataclass(frozen=True, slots=True)
class AcceleratorsReading:
    """All accelerators of the machine.

    Attributes:
        devices: Every device known since the exporter started, by kind and index.
        expected: The configured number of devices of each kind.
        complaint: The reason why the reading is incomplete; None if it is complete.
        omitted_processes: The number of processes that the bound left out.
        memory_limit_bytes: The limit on the memory of each device; None if not set.
        temperature_limit_celsius: The limit on the temperature of each chip; None if not set.
    """

    devices: tuple[AcceleratorReading, ...]
    expected: tuple[tuple[Kind, int], ...] = ()
    complaint: str | None = None
    omitted_processes: int = 0
    memory_limit_bytes: int | None = None
    temperature_limit_celsius: float | None = None
