"""Simulated accelerators: a driver's readings of a card that is in use, hot, idle or lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fleet.course import Course, Total, constant, ripple
from fleet.models import Model
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    Identity,
    Idleness,
    Measurements,
    Owner,
    ProcessMemory,
    XidCount,
)
from trainvitals.sources.accelerators.row import LINK_ERRORS, THROTTLE_REASONS

_IDLE_SHARE, _FULL_SHARE = 0.12, 0.97  # of the power limit
_CAPPED_FROM, _CAPPED_SHARE = 0.9, 0.7
_HOT_CLOCK, _IDLE_CLOCK = 0.72, 0.25
_WARM_MARGIN = 2.0
_DRIVER_BYTES = 600 << 20
_IDLE_MEMORY = 0.006
_IDLE_LOAD = 0.01
_FIELDS_WITHOUT_COUNTER = ("hw_slowdown",)
_REASONS_WITHOUT_FLAG = ("sync_boost", "board_limit", "reliability")


@dataclass(frozen=True, slots=True)
class Use:
    """The use of a card.

    Attributes:
        load: The share of the time in which the card is busy.
        held_bytes: The memory held by processes, in bytes.
        pids: The IDs of the processes that use the card.
        hotter_by: The difference in °C from the temperature of the card's model at this load.
        lost_at: The time at which the card fell off the bus, in Unix seconds; None for never.
        xids: Xid errors: each code with the times at which the error occurred.
    """

    load: Course = field(default=constant(0.0))
    held_bytes: Course = field(default=constant(0.0))
    pids: Callable[[float], tuple[int, ...]] = lambda _: ()
    hotter_by: Course = field(default=constant(0.0))
    lost_at: float | None = None
    xids: tuple[tuple[int, tuple[float, ...]], ...] = ()


class Card:
    """A card of a machine.

    Args:
        index: The number of the card.
        uuid: The UUID of the card.
        model: The model of the card.
        use: The use of the card.
        start: The time at which the card's counters start, in Unix seconds.

    Attributes:
        identity: The constant properties of the card.
    """

    def __init__(self, index: int, uuid: str, model: Model, use: Use, start: float) -> None:
        domain = "0000" if model.kind == "hpu" else "00000000"
        self.identity = Identity(
            model.kind,
            index,
            uuid,
            model.name,
            f"{domain}:{0x1B + 0x11 * index:02X}:00.0",
            model.driver,
            model.firmware,
        )
        self._model, self._use = model, use
        rates: dict[str, Course] = {
            "busy": self._load,
            "energy": self._watts,
            "capped": lambda now: _CAPPED_SHARE * (self._load(now) > _CAPPED_FROM),
            "slowed": self.slowed_by_heat,
            "warm": lambda now: model.warm_share * (self._load(now) > _CAPPED_FROM),
            "link_bytes": lambda now: model.link_bytes * self._load(now) ** 2,
            "corrected": constant(1 / 7200),
            "replays": constant(1 / 18_000),
        }
        self._totals = {name: Total(rate, start) for name, rate in rates.items()}

    def read(self, now: float) -> AcceleratorReading:
        """Return a driver's reading of the card."""
        use = self._use
        xids = tuple(
            XidCount(code, len(past), past[-1])
            for code, moments in use.xids
            if (past := [moment for moment in moments if moment <= now])
        )
        if use.lost_at is not None and now >= use.lost_at:
            return AcceleratorReading(self.identity, "lost", use.lost_at, None, (), xids)
        pids = use.pids(now) if self._is_gpu else ()  # HLML does not list processes
        share = round(self._load(now) / max(1, len(pids)), 2)
        holders = tuple(
            ProcessMemory(pid, int(use.held_bytes(now) / len(pids)), share, Owner("python3"))
            for pid in pids
        )
        idle = None
        if holders and self._load(now) < _IDLE_LOAD:
            summary = f"python3 (PID {pids[0]}) is a notebook kernel that runs no cell"
            idle = Idleness("sleeps", summary, pids[0])
        measured = self._measure(now)
        return AcceleratorReading(self.identity, "ok", now, measured, holders, xids, idle)

    def slowed_by_heat(self, now: float) -> float:
        """Return the share of the time in which the card is slowed down by heat."""
        beyond = self._celsius(now) - (self._model.slowdown_celsius - _WARM_MARGIN)
        return min(0.85, max(0.0, 0.3 * beyond))

    @property
    def _is_gpu(self) -> bool:
        return self._model.kind == "gpu"

    def _load(self, now: float) -> float:
        return min(1.0, max(0.0, self._use.load(now)))

    def _celsius(self, now: float) -> float:
        """Return the chip temperature in °C, which is limited because a hot chip slows down."""
        model = self._model
        warmth = model.idle_celsius + (model.full_celsius - model.idle_celsius) * self._load(now)
        warmth += self._use.hotter_by(now)
        warmth += 1.2 * ripple(self.identity.index + 3, now, seconds=240)
        return round(min(warmth, model.slowdown_celsius + 1))

    def _watts(self, now: float) -> float:
        share = _IDLE_SHARE + (_FULL_SHARE - _IDLE_SHARE) * self._load(now)
        return self._model.watts * share * (1 - 0.2 * self.slowed_by_heat(now))

    def _count(self, name: str, now: float) -> int:
        return int(self._totals[name].at(now))

    def _measure(self, now: float) -> Measurements:
        model, load = self._model, self._load(now)
        measured: dict[str, Any] = {
            "utilization_ratio": round(load, 2),
            **self._measure_memory(now),
            **self._measure_heat(now),
            **self._measure_clocks(now),
            **self._measure_links(now),
        }
        if model.has_fan:
            measured["fan_speed_ratio"] = round(min(1.0, (self._celsius(now) - 15) / 70), 2)
        if model.links:
            measured |= self._measure_nvlink(now)
        if model.counts_ecc:
            measured |= self._measure_ecc(now)
        if self._is_gpu:
            measured |= {
                "memory_utilization_ratio": round(0.6 * load, 2),
                "busy_seconds_total": self._totals["busy"].at(now),
                "busy_unobserved_seconds_total": 0.0,
                "encoder_utilization_ratio": 0.0,
                "decoder_utilization_ratio": 0.0,
                "performance_state": 0 if load else 8,
                "recovery_action": 0,
                "processes": len(self._use.pids(now)),
                **({} if model.counts_ecc else self._measure_retired_pages()),
            }
        return Measurements(**measured, **self._measure_throttle(now))

    def _measure_memory(self, now: float) -> dict[str, int | None]:
        reserved = _DRIVER_BYTES if self._is_gpu else None
        total = self._model.memory_bytes
        used = int(max(self._use.held_bytes(now), _IDLE_MEMORY * total))
        return {
            "memory_total_bytes": total,
            "memory_used_bytes": used,
            "memory_reserved_bytes": reserved,
            "memory_free_bytes": max(0, total - used - (reserved or 0)),
        }

    def _measure_heat(self, now: float) -> dict[str, float | None]:
        model, celsius = self._model, self._celsius(now)
        slowdown = model.slowdown_celsius
        return {
            "temperature_core_celsius": celsius,
            "temperature_memory_celsius": None if model.has_fan else celsius + 8,
            "temperature_slowdown_celsius": slowdown if model.tells_slowdown else None,
            "temperature_headroom_celsius": slowdown - celsius,
            "power_watts": round(self._watts(now), 1),
            "power_limit_watts": model.watts,
            "energy_joules_total": self._totals["energy"].at(now),
        }

    def _measure_clocks(self, now: float) -> dict[str, int | None]:
        model = self._model
        share = 1.0 if self._load(now) else _IDLE_CLOCK
        share *= _HOT_CLOCK if self.slowed_by_heat(now) else 1.0
        return {
            "clock_core_hertz": int(share * model.core_hertz),
            "clock_core_max_hertz": model.core_hertz,
            "clock_memory_hertz": model.memory_hertz,
            "clock_memory_max_hertz": model.memory_hertz,
        }

    def _measure_throttle(self, now: float) -> dict[str, Any]:
        """Return the seconds and flags of every throttle reason; Gaudi cards report only two."""
        seconds: dict[str, float | None] = dict.fromkeys(THROTTLE_REASONS)
        flags: dict[str, int | None] = dict.fromkeys(THROTTLE_REASONS)
        if self._is_gpu:
            for reason in THROTTLE_REASONS:
                seconds[reason] = None if reason in _FIELDS_WITHOUT_COUNTER else 0.0
                flags[reason] = None if reason in _REASONS_WITHOUT_FLAG else 0
            flags["hw_slowdown"] = int(self.slowed_by_heat(now) > 0)
        if self._is_gpu:
            seconds["sw_thermal"] = self._totals["warm"].at(now)
        seconds["hw_thermal"] = self._totals["slowed"].at(now)
        seconds["sw_power_cap"] = self._totals["capped"].at(now)
        flags["hw_thermal"] = int(self.slowed_by_heat(now) > 0)
        flags["sw_power_cap"] = int(self._load(now) > _CAPPED_FROM)
        return {
            "throttle_seconds_total": tuple(seconds.values()),
            "throttle_active": tuple(flags.values()),
        }

    def _measure_ecc(self, now: float) -> dict[str, int | None]:
        return {
            "ecc_corrected_errors_total": self._count("corrected", now),
            "ecc_uncorrected_errors_total": 0,
            "row_remap_pending": 0,
            "row_remap_failed": 0 if self._is_gpu else None,
            "rows_remapped_corrected": self.identity.index % 2,
            "rows_remapped_uncorrected": 0,
        }

    def _measure_retired_pages(self) -> dict[str, int]:
        return {
            "pages_retired_corrected": 1,
            "pages_retired_uncorrected": 0,
            "pages_retired_pending": 0,
        }

    def _measure_links(self, now: float) -> dict[str, int]:
        rests = self._is_gpu and not self._load(now)
        return {
            "pcie_link_generation": 1 if rests else 4,
            "pcie_link_generation_max": 4,
            "pcie_link_width": 16,
            "pcie_link_width_max": 16,
            "pcie_replays_total": self._count("replays", now),
        }

    def _measure_nvlink(self, now: float) -> dict[str, Any]:
        carried, corrected = self._count("link_bytes", now), self._count("corrected", now)
        errors = {**dict.fromkeys(LINK_ERRORS, 0), "crc_flit": corrected // 2, "crc": None}
        return {
            "links_active": self._model.links,
            "links_expected": self._model.links,
            "link_receive_bytes_total": carried,
            "link_transmit_bytes_total": carried,
            "link_errors_total": tuple(errors.values()),
        }
