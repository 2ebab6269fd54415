"""The data types of accelerator readings, which are in base units and the same for all vendors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainvitals.sources.accelerators.row import LINK_ERRORS, THROTTLE_REASONS

Kind = Literal["gpu", "hpu"]
IdleReason = Literal[
    "waits_for_data",
    "computes_on_cpu",
    "stopped",
    "sleeps",
    "blocked_in_driver",
    "compiles",
    "waits_for_rank",
    "ended",
    "unseen",
]
State = Literal["ok", "lost", "hung", "resetting", "no_driver", "unsupported"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The properties that identify a device.

    Attributes:
        kind: The kind of the device, `gpu` or `hpu`.
        index: The driver's index for the device, which `nvidia-smi` and `hl-smi` show.
        uuid: The device's UUID, which stays the same if the index changes.
        model: The device's product name.
        bus_id: The device's PCI address.
        driver: The version of the device's driver.
        firmware: The VBIOS or firmware version; None if the driver does not report the version.
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
    """The measured values of one device at one time; a value that is not reported is None.

    A field whose name ends in `_total` never decreases, even if the driver's own counter restarts.

    Attributes:
        utilization_ratio: The share of the driver's last sample period (1/6 s to 1 s) in which a
            kernel ran, 0 to 1.
        memory_utilization_ratio: The share of the last sample period in which memory was read or
            written, 0 to 1.
        busy_seconds_total: The time in which a kernel ran, in seconds, integrated from every sample
            in the driver's buffer.
        busy_unobserved_seconds_total: The time, in seconds, for which the driver's buffer no longer
            contained samples when it was read. `busy_seconds_total` counts this time at the mean
            utilization of the remaining samples.
        memory_total_bytes: The size of the device memory, in bytes.
        memory_used_bytes: The device memory that programs use, in bytes; the driver's reserved
            memory is excluded if the driver reports it.
        memory_reserved_bytes: The device memory that the driver reserves for itself, in bytes.
        memory_free_bytes: The free device memory, in bytes.
        temperature_core_celsius: The temperature of the chip.
        temperature_memory_celsius: The temperature of the device memory.
        temperature_slowdown_celsius: The temperature at which the hardware slows the chip down.
        temperature_headroom_celsius: The slowdown temperature minus the chip's temperature.
        power_watts: The power draw reported by the driver (on newer cards, a mean over 1 s).
        power_limit_watts: The power limit that is currently enforced.
        energy_joules_total: The energy that the device has used since the driver was loaded, as
            counted by the driver.
        clock_core_hertz: The SM (GPU) or SoC (HPU) clock frequency.
        clock_memory_hertz: The memory clock frequency.
        clock_core_max_hertz: The maximum SM or SoC clock frequency.
        clock_memory_max_hertz: The maximum memory clock frequency.
        throttle_active: For each of `THROTTLE_REASONS`, 1 if the reason slows the device down now,
            else 0.
        throttle_seconds_total: For each of `THROTTLE_REASONS`, the time in which the reason slowed
            the device down, in seconds.
        ecc_corrected_errors_total: The number of corrected memory errors.
        ecc_uncorrected_errors_total: The number of uncorrected memory errors.
        row_remap_pending: 1 if a memory repair requires a reset to take effect, else 0.
        row_remap_failed: 1 if the device memory can no longer be repaired, else 0.
        rows_remapped_corrected: The number of rows remapped because of corrected errors.
        rows_remapped_uncorrected: The number of rows remapped because of uncorrected errors.
        pages_retired_corrected: The number of pages retired because of corrected errors (before
            Ampere).
        pages_retired_uncorrected: The number of pages retired because of uncorrected errors (before
            Ampere).
        pages_retired_pending: 1 if the retirement of a page requires a reset, else 0.
        recovery_action: The recovery action that the driver requests: 0 none, 1 reset, 2 reboot,
            3 drain P2P, 4 drain and reset, 5 recover IMEX.
        pcie_link_generation: The current PCIe generation.
        pcie_link_generation_max: The highest PCIe generation that both the card and the slot
            support.
        pcie_link_width: The current number of PCIe lanes.
        pcie_link_width_max: The maximum number of PCIe lanes that both the card and the slot
            support.
        pcie_replays_total: The number of retransmitted PCIe packets.
        links_active: The number of NVLinks that are up.
        links_expected: The maximum number of NVLinks that have been up at the same time.
        link_receive_bytes_total: The payload received over all NVLinks, in bytes.
        link_transmit_bytes_total: The payload sent over all NVLinks, in bytes.
        link_errors_total: The number of NVLink errors for each of `LINK_ERRORS`.
        encoder_utilization_ratio: The utilization of the video encoder, 0 to 1.
        decoder_utilization_ratio: The utilization of the video decoder, 0 to 1.
        fan_speed_ratio: The fan speed as a share of the full speed; the share can exceed 1.
        performance_state: The performance state, 0 (fastest) to 15.
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
class Owner:
    """The known facts about a process that holds a device; an unknown fact is None.

    Attributes:
        name: The process name, which the kernel truncates to 15 characters; None if `/proc` does
            not show the process.
        user: The name of the process's user, or the user ID if the user has no name.
        container: The full ID of the process's container.
        slurm_job: The ID of the Slurm job to which the process's control group belongs.
        pod: The UID of the Kubernetes pod to which the process's control group belongs.
    """

    name: str | None = None
    user: str | None = None
    container: str | None = None
    slurm_job: str | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The use of a device by one process.

    Attributes:
        pid: The process's PID in the driver's PID namespace.
        used_bytes: The device memory that the process uses, in bytes; None if the driver does not
            report this size.
        utilization_ratio: The share of the driver's last sample period in which a kernel of the
            process ran, 0 to 1; None if the driver does not report this share.
        owner: The known facts about the process; None if no facts were looked up.
    """

    pid: int
    used_bytes: int | None
    utilization_ratio: float | None = None
    owner: Owner | None = None


@dataclass(frozen=True, slots=True)
class Idleness:
    """The reason why a device that processes hold is idle.

    Attributes:
        reason: The kind of reason.
        summary: The evidence for the reason, as text that names the process.
        pid: The PID of the process that the reason concerns; None if no process is known.
    """

    reason: IdleReason
    summary: str
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class XidCount:
    """The number of a device's errors with one Xid code.

    Attributes:
        xid: The Xid code of the errors.
        count: The number of errors with this code since the exporter started.
        last_timestamp_seconds: The Unix time of the latest error with this code.
    """

    xid: int
    count: int
    last_timestamp_seconds: float


@dataclass(frozen=True, slots=True)
class AcceleratorReading:
    """The reading of one device.

    Attributes:
        identity: The identity of the device.
        state: The device's state: `ok`; `lost` (the device fell off the bus or vanished); `hung` (a
            driver call does not return); `resetting` (the device requires or undergoes a reset);
            `no_driver` (the driver is unloaded, replaced or released); `unsupported` (the driver
            refuses to read the device).
        last_seen_timestamp_seconds: The Unix time of the latest complete reading; None before the
            first complete reading.
        measurements: The device's measured values; None unless the state is `ok`.
        processes: The processes that hold the most device memory, at most 8, sorted by descending
            memory.
        xids: The device's error counts, sorted by Xid code.
        idle: The reason why the device is idle although processes hold it; None if the device is in
            use or not held, or if the reason was not determined.
    """

    identity: Identity
    state: State
    last_seen_timestamp_seconds: float | None
    measurements: Measurements | None
    processes: tuple[ProcessMemory, ...] = ()
    xids: tuple[XidCount, ...] = ()
    idle: Idleness | None = None


@dataclass(frozen=True, slots=True)
class AcceleratorsReading:
    """The reading of all accelerators of the machine.

    Attributes:
        devices: Every device seen since the exporter started, sorted by kind and index.
        expected: The configured number of devices of each kind.
        complaint: The reason why the reading is incomplete; None if the reading is complete.
        omitted_processes: The number of processes that the readings omit because of the limit per
            device.
        memory_limit_bytes: The memory limit for each device, in bytes; None if no limit is set.
        temperature_limit_celsius: The temperature limit for each chip; None if no limit is set.
    """

    devices: tuple[AcceleratorReading, ...]
    expected: tuple[tuple[Kind, int], ...] = ()
    complaint: str | None = None
    omitted_processes: int = 0
    memory_limit_bytes: int | None = None
    temperature_limit_celsius: float | None = None
