"""Handles to the fake devices, whose attributes are the values that the driver returns.

If a number is None, the device does not support it, and its call returns NOT_SUPPORTED. Counters
(energy, throttling, traffic) grow over time; setting a counter fixes its value at that moment and
keeps its rate.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tests.fakes.scenario import CONSTANTS, UNSUPPORTED, UNSUPPORTED_LONG, wake

MIB = 1 << 20
THROTTLE_REASONS = {
    "sw_power_cap": "power_cap_nanoseconds",
    "thermal": "thermal_nanoseconds",
    "sync_boost": "sync_boost_nanoseconds",
    "board_limit": "board_limit_nanoseconds",
    "low_utilization": "low_utilization_nanoseconds",
    "reliability": "reliability_nanoseconds",
    "sw_thermal": "software_thermal_nanoseconds",
    "hw_thermal": "hardware_thermal_nanoseconds",
    "hw_power_brake": "power_brake_nanoseconds",
}
COUNTERS = (
    "energy_millijoules",
    *THROTTLE_REASONS.values(),
    "pcie_transmit_bytes",
    "pcie_receive_bytes",
    "nvlink_transmit_kib",
    "nvlink_receive_kib",
)
VOLATILE_ERRORS = ("corrected_volatile_errors", "uncorrected_volatile_errors")


class Number:
    """A number of the device; None if the device does not support it."""

    def __init__(self, unsupported: int = UNSUPPORTED) -> None:
        self._unsupported = unsupported

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, accelerator: Accelerator, owner: type) -> int | None:
        value = getattr(accelerator.device, self._name)
        return None if value == self._unsupported else value

    def __set__(self, accelerator: Accelerator, value: int | None) -> None:
        setattr(accelerator.device, self._name, self._unsupported if value is None else value)


class Text:
    """A string of the device, set as text or as arbitrary bytes; an empty string is unsupported."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, accelerator: Accelerator, owner: type) -> str:
        return getattr(accelerator.device, self._name).decode(errors="replace")

    def __set__(self, accelerator: Accelerator, value: str | bytes) -> None:
        setattr(accelerator.device, self._name, value.encode() if isinstance(value, str) else value)


class Counter:
    """A counter of the device; None if the device does not support it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, accelerator: Accelerator, owner: type) -> int | None:
        counter = getattr(accelerator.device, self._name)
        return int(accelerator.counter_value(self._name)) if counter.supported else None

    def __set__(self, accelerator: Accelerator, value: float | None) -> None:
        accelerator.set_counter(self._name, value)


class Accelerator:
    """The attributes and methods that GPUs and Gaudi cards share.

    Args:
        scenario: The shared memory.
        vendor: "nvidia" or "habana".
        slot: The device's slot, 0 to 15, which other devices that are added or removed do not change.
    """

    name = Text()
    uuid = Text()
    serial = Text()
    bus_id = Text()
    minor_number = Number()
    module_id = Number()
    memory_total_bytes = Number(UNSUPPORTED_LONG)
    memory_used_bytes = Number(UNSUPPORTED_LONG)
    sample_period_microseconds = Number(UNSUPPORTED_LONG)
    temperature = Number()
    shutdown_threshold = Number()
    slowdown_threshold = Number()
    memory_maximum_threshold = Number()
    maximum_operating_threshold = Number()
    power_limit_milliwatts = Number()
    default_power_limit_milliwatts = Number()
    minimum_power_limit_milliwatts = Number()
    maximum_power_limit_milliwatts = Number()
    energy_millijoules = Counter()
    power_cap_nanoseconds = Counter()
    thermal_nanoseconds = Counter()
    pcie_transmit_bytes = Counter()
    pcie_receive_bytes = Counter()
    performance_state = Number()
    throttle_reasons = Number(UNSUPPORTED_LONG)
    pcie_generation = Number()
    maximum_pcie_generation = Number()
    pcie_width = Number()
    maximum_pcie_width = Number()
    pcie_replays = Number()
    ecc_enabled = Number()
    ecc_pending = Number()
    corrected_volatile_errors = Number(UNSUPPORTED_LONG)
    uncorrected_volatile_errors = Number(UNSUPPORTED_LONG)
    corrected_aggregate_errors = Number(UNSUPPORTED_LONG)
    uncorrected_aggregate_errors = Number(UNSUPPORTED_LONG)
    corrected_remapped_rows = Number()
    uncorrected_remapped_rows = Number()
    remapping_pending = Number()

    def __init__(self, scenario: Any, vendor: str, slot: int) -> None:
        self._scenario = scenario
        self.vendor = vendor
        self.slot = slot
        self.device = getattr(scenario, vendor).devices[slot]

    # -- counters ------------------------------------------------------------------------------

    def counter_value(self, name: str) -> float:
        """Return a counter's exact value at this moment, without rounding."""
        return _value_at(getattr(self.device, name), self._monotonic_nanoseconds())

    def set_counter(
        self, name: str, value: float | None = None, per_second: float | None = None
    ) -> None:
        """Set a counter's value, its rate, or both; without either, the counter is unsupported."""
        counter = getattr(self.device, name)
        # The sequence is odd while the counter is being changed; see counter_value in engine.c.
        counter.sequence += 1
        now = self._monotonic_nanoseconds()
        if value is None and per_second is not None:
            value = _value_at(counter, now)
        counter.supported = value is not None
        counter.base = value or 0.0
        counter.since_nanoseconds = now
        if per_second is not None:
            counter.per_second = per_second
        counter.sequence += 1

    def grow(self, name: str, per_second: float) -> None:
        """Set the rate at which a counter grows from now on."""
        self.set_counter(name, per_second=per_second)

    def throttle(self, reason: str, fraction: float) -> None:
        """Set the share of the time in which the device is throttled; keep `throttle_reasons`.

        Args:
            reason: A key of THROTTLE_REASONS; Gaudi has sw_power_cap and thermal.
            fraction: The share of the time, 0 to 1.
        """
        self.grow(THROTTLE_REASONS[reason], fraction * 1e9)

    @property
    def power_milliwatts(self) -> int | None:
        """The average and instant power, which is also the rate of the energy counter."""
        power = self.device.power_milliwatts
        return None if power == UNSUPPORTED else power

    @power_milliwatts.setter
    def power_milliwatts(self, milliwatts: int | None) -> None:
        stored = UNSUPPORTED if milliwatts is None else milliwatts
        if self.device.energy_millijoules.supported:
            self.grow("energy_millijoules", milliwatts or 0)
        self.device.power_milliwatts = self.device.instant_power_milliwatts = stored

    # -- load ----------------------------------------------------------------------------------

    @property
    def utilization(self) -> int:
        """The high load in percent; setting it makes the load constant, also for the past."""
        return self.device.load.high_percent

    @utilization.setter
    def utilization(self, percent: int) -> None:
        self.constant_load(percent)

    @property
    def memory_utilization(self) -> int:
        """The memory's load in percent; setting it makes the load constant, also for the past."""
        return self.device.memory_load.high_percent

    @memory_utilization.setter
    def memory_utilization(self, percent: int) -> None:
        self._set_load("memory_load", high_percent=percent, duty=1.0, period_microseconds=1)

    def constant_load(self, percent: int, *, from_now: bool = False) -> None:
        """Set a constant load in percent, from now on if `from_now`, else for the past as well."""
        self._set_load(
            "load", from_now=from_now, high_percent=percent, duty=1.0, period_microseconds=1
        )

    def square_wave(
        self,
        duty: float = 0.25,
        period_seconds: float = 2.0,
        *,
        high_percent: int = 100,
        low_percent: int = 0,
        from_now: bool = False,
    ) -> None:
        """Set a load that is high in the first part of every period and low in the rest.

        Periods begin at multiples of the period. The share of the high part is `duty`.
        """
        self._set_load(
            "load",
            from_now=from_now,
            high_percent=high_percent,
            low_percent=low_percent,
            duty=duty,
            period_microseconds=round(period_seconds * 1e6),
        )

    def idle(self, *, from_now: bool = False) -> None:
        """Produce no samples, so that the sample buffer returns NOT_FOUND once it has drained."""
        self._set_load("load", from_now=from_now, idle=1, duty=1.0, period_microseconds=1)

    def _set_load(self, member: str, *, from_now: bool = False, **values: float) -> None:
        load = getattr(self.device, member)
        before = getattr(self.device, f"{member}_before")
        now = self._sample_clock_microseconds() if from_now else 0
        if from_now:
            ctypes.pointer(before)[0] = load
        for name in ("idle", "high_percent", "low_percent", "duty", "period_microseconds"):
            setattr(load, name, values.get(name, 0))
        if not from_now:
            ctypes.pointer(before)[0] = load
        setattr(self.device, f"{member}_since_microseconds", now)

    # -- presence ------------------------------------------------------------------------------

    def lose(self, *, hidden: bool = False) -> None:
        """Make the device fall off the bus, so that every call about it returns that it is lost.

        Args:
            hidden: Also exclude the device from the count in processes that initialise from now on.
        """
        self.device.hidden = hidden
        self.device.lost = 1
        wake(self._scenario)

    def restore(self) -> None:
        """Return the lost device to the bus, as after a reset."""
        self.device.lost = self.device.hidden = 0
        wake(self._scenario)

    def remove(self) -> None:
        """Remove the device: running processes find it lost, and exclude it after a restart."""
        self.device.present = 0
        wake(self._scenario)

    def delay(self, microseconds: int, *, spin: bool = False) -> None:
        """Make every call about this device take longer.

        Args:
            microseconds: The added time; 0 for none. A sleep adds the timer slack of about 60 us.
            spin: Burn the processor instead of sleeping.
        """
        self.device.delay_spins = spin
        self.device.delay_microseconds = microseconds

    def deliver_event(self, event_type: int, data: int = 0) -> None:
        """Append an event to the ring; each process that registered for it receives it once."""
        count = self._scenario.event_count
        event = self._scenario.events[count % CONSTANTS["EVENT_LIMIT"]]
        event.vendor = 0 if self.vendor == "nvidia" else 1
        event.device, event.generation = self.slot, self.device.generation
        event.type, event.data = event_type, data
        self._scenario.event_count = count + 1
        wake(self._scenario)

    # -- the machine's side --------------------------------------------------------------------

    def configure(self, values: Mapping[str, Any]) -> None:
        """Set several attributes; counters become supported and start at the given value."""
        for name, value in values.items():
            setattr(self, name, value)

    def forget(self) -> None:
        """Reset all counters and volatile errors to zero, as a newly loaded driver does."""
        for name in COUNTERS:
            if getattr(self.device, name).supported:
                self.set_counter(name, 0.0)
        for name in VOLATILE_ERRORS:
            if getattr(self.device, name) != UNSUPPORTED_LONG:
                setattr(self.device, name, 0)

    def rebase(self, values: Mapping[str, float]) -> None:
        """Set the given counters, except for unsupported ones, to these values at this moment."""
        for name, value in values.items():
            if getattr(self.device, name).supported:
                self.set_counter(name, value)

    def _monotonic_nanoseconds(self) -> int:
        if self._scenario.clock_stopped:
            return self._scenario.stopped_monotonic_nanoseconds
        return time.monotonic_ns()

    def _sample_clock_microseconds(self) -> int:
        if self._scenario.clock_stopped:
            return self._scenario.stopped_realtime_microseconds
        if self.device.sample_clock_is_boottime:
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        return time.time_ns() // 1000


def _value_at(counter: Any, nanoseconds: int) -> float:
    elapsed = max(0, nanoseconds - counter.since_nanoseconds)
    return counter.base + elapsed * 1e-9 * counter.per_second


class Gpu(Accelerator):
    """An NVIDIA GPU."""

    vbios_version = Text()
    brand = Number()
    architecture = Number()
    compute_capability_major = Number()
    compute_capability_minor = Number()
    pci_device_id = Number()
    pci_subsystem_id = Number()
    sample_depth = Number()
    sample_clock_is_boottime = Number()
    encoder_utilization = Number()
    decoder_utilization = Number()
    memory_reserved_bytes = Number(UNSUPPORTED_LONG)
    bar1_total_bytes = Number(UNSUPPORTED_LONG)
    bar1_used_bytes = Number(UNSUPPORTED_LONG)
    memory_temperature = Number()
    target_temperature = Number()
    shutdown_margin = Number()
    slowdown_margin = Number()
    memory_maximum_margin = Number()
    maximum_operating_margin = Number()
    instant_power_milliwatts = Number()
    graphics_clock = Number()
    sm_clock = Number()
    memory_clock = Number()
    video_clock = Number()
    maximum_graphics_clock = Number()
    maximum_sm_clock = Number()
    maximum_memory_clock = Number()
    maximum_video_clock = Number()
    persistence_mode = Number()
    supported_throttle_reasons = Number(UNSUPPORTED_LONG)
    sync_boost_nanoseconds = Counter()
    board_limit_nanoseconds = Counter()
    low_utilization_nanoseconds = Counter()
    reliability_nanoseconds = Counter()
    software_thermal_nanoseconds = Counter()
    hardware_thermal_nanoseconds = Counter()
    power_brake_nanoseconds = Counter()
    pcie_counter_bits = Number()
    remapping_failed = Number()
    full_spare_banks = Number()
    high_spare_banks = Number()
    partial_spare_banks = Number()
    low_spare_banks = Number()
    no_spare_banks = Number()
    corrected_retired_pages = Number()
    uncorrected_retired_pages = Number()
    retirement_pending = Number()
    nvlink_count = Number()
    nvlink_version = Number()
    nvlink_down_mask = Number()
    nvlink_crc_flit_errors = Number(UNSUPPORTED_LONG)
    nvlink_crc_data_errors = Number(UNSUPPORTED_LONG)
    nvlink_replay_errors = Number(UNSUPPORTED_LONG)
    nvlink_recovery_errors = Number(UNSUPPORTED_LONG)
    nvlink_error_fields = Number()
    nvlink_sleep_mask = Number()
    nvlink_transmit_kib = Counter()
    nvlink_receive_kib = Counter()
    recovery_action = Number()
    fan_count = Number()
    fan_percent = Number()
    compute_mode = Number()
    display_active = Number()
    display_mode = Number()
    mig_mode = Number()
    accounting_mode = Number()
    supported_event_types = Number(UNSUPPORTED_LONG)

    def deliver_xid(self, code: int) -> None:
        """Deliver the event of a critical Xid."""
        self.deliver_event(0x8, code)

    def set_processes(
        self, processes: Iterable[tuple[int, int]], *, kind: int = 0, sm_percent: int = 0
    ) -> None:
        """Replace the processes on the GPU.

        Args:
            processes: Pairs of process ID and bytes of memory; -1 if the bytes are unknown.
            kind: 0 compute, 1 graphics, 2 MPS.
            sm_percent: The utilization of the multiprocessors by each process.
        """
        listed = list(processes)
        self.device.process_count = 0
        for place, (pid, memory_bytes) in enumerate(listed):
            entry = self.device.processes[place]
            entry.pid, entry.memory_bytes, entry.kind = pid, memory_bytes, kind
            entry.sm_percent, entry.memory_percent = sm_percent, 0
            entry.encoder_percent = entry.decoder_percent = 0
        self.device.process_count = len(listed)


class Hpu(Accelerator):
    """A Gaudi card."""

    operation_status = Text()
    board_temperature = Number()
    soc_clock = Number()
    maximum_soc_clock = Number()
    port_count = Number()
    external_port_mask = Number()
    port_down_mask = Number()
