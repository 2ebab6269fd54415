"""What the exporter serves about the cards of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.week.runs import Attempt
from tests.week.series import Page
from tests.week.training import list_holders, name_uuid

_CHUNK_MINUTES = 15
_GPU_THROTTLE = ("sw_power_cap", "sync_boost", "board_limit", "reliability", "sw_thermal")
_HARDWARE_THROTTLE = ("hw_thermal", "hw_power_brake")


@dataclass(frozen=True, slots=True)
class Model:
    """A model of a card.

    Attributes:
        name: As the driver calls it.
        kind: "gpu" or "hpu".
        memory_gib: Its memory.
        idle_celsius: How warm it is when nothing runs.
        full_celsius: How warm it gets at full load.
        slowdown_celsius: Where it slows down, as it says; None for one that only tells a margin.
        limit_celsius: What its margin counts down from, where it only tells that.
        watts: Its power limit.
        links: Its links to other cards; 0 for none.
        counts_ecc: Whether its memory is checked.
        warm_share: Share of full load in which its driver slows it down for warmth.
    """

    name: str
    kind: str
    memory_gib: int
    idle_celsius: float
    full_celsius: float
    slowdown_celsius: float | None
    limit_celsius: float
    watts: float
    links: int = 0
    counts_ecc: bool = True
    warm_share: float = 0.0


@dataclass(frozen=True, slots=True)
class _Use:
    """How a card is used for some minutes."""

    start: int
    end: int
    processes: int = 0
    utilization: float = 0.0
    reserved: float = 0.0
    allocated: float = 0.0
    hotter_by: float = 0.0


@dataclass(frozen=True, slots=True)
class Heat:
    """A card that gets hotter than its model does.

    Attributes:
        device: Its index.
        start: From which minute.
        end: Until which.
        by_celsius: By how much.
    """

    device: int
    start: int
    end: int
    by_celsius: float


def write_accelerators(
    page: Page,
    model: Model,
    cards: int,
    attempts: Sequence[Attempt],
    *,
    minutes: int,
    heat: Sequence[Heat] = (),
) -> None:
    """Write the series of every card of a machine."""
    page.hold("accelerator_devices", 0, minutes, cards, kind=model.kind)
    page.hold("accelerator_devices_expected", 0, minutes, cards, kind=model.kind)
    for device in range(cards):
        card = _Card(page, model, device)
        card.write_what_stays(minutes)
        for use in _list_uses(attempts, device, minutes, heat):
            card.write(use)
        _write_allocator(page, model, attempts, device)


def _list_uses(
    attempts: Sequence[Attempt], device: int, minutes: int, heat: Sequence[Heat]
) -> Iterator[_Use]:
    cursor = 0
    for start, end, job, stage in list_holders(attempts, device):
        if start > cursor:
            yield from _split(_Use(cursor, start))
        usual = job.utilization if stage.utilization is None else stage.utilization
        busy = usual if stage.phase == "train" else job.wait_outside
        busy = 35.0 if stage.phase == "validation" else busy
        held = 0.02 if stage.phase == "init" else job.reserved
        extra = [
            hot.by_celsius for hot in heat if hot.device == device and hot.start <= start < hot.end
        ]
        busy = 100.0 if stage.hung else busy  # kernels that wait for another rank spin
        use = _Use(start, end, 1, busy, held, job.allocated, sum(extra))
        yield from _split(use)
        cursor = end
    yield from _split(_Use(cursor, minutes))


def _split(use: _Use) -> Iterator[_Use]:
    start = use.start
    while start < use.end:
        end = min(use.end, start - start % _CHUNK_MINUTES + _CHUNK_MINUTES)
        yield _Use(
            start, end, use.processes, use.utilization, use.reserved, use.allocated, use.hotter_by
        )
        start = end


def _write_allocator(page: Page, model: Model, attempts: Sequence[Attempt], device: int) -> None:
    total = model.memory_gib * 2**30
    for attempt in attempts:
        for rank, place in attempt.job.ranks:
            if place != device:
                continue
            start, job = attempt.start + attempt.stages[0].minutes, attempt.job
            labels = {"run": job.run, "rank": rank}
            for name, share in (
                ("training_memory_allocated_bytes", job.allocated),
                ("training_memory_reserved_bytes", job.reserved),
                ("training_memory_peak_bytes", job.allocated + 0.05),
            ):
                page.hold(name, start, attempt.end, int(total * share), **labels)


class _Card:
    """Writes what one card shows."""

    def __init__(self, page: Page, model: Model, device: int) -> None:
        self._page, self._model = page, model
        uuid = name_uuid(page.instance, model.kind, device)
        self._labels = {"kind": model.kind, "device": str(device), "uuid": uuid}
        self._short = {"device": str(device), "uuid": uuid}
        self._random = Random(uuid)
        self._total = model.memory_gib * 2**30

    def write_what_stays(self, minutes: int) -> None:
        """Write what is the same all week."""
        model = self._model
        info = {"driver": "580.95.05", "model": model.name, "firmware": "1", "bus_id": "1"}
        steady: dict[str, float] = {
            "accelerator_up": 1,
            "accelerator_memory_total_bytes": self._total,
            "accelerator_power_limit_watts": model.watts,
            "accelerator_pcie_link_generation_max": 5,
            "accelerator_pcie_link_width": 16,
            "accelerator_pcie_link_width_max": 16,
            "accelerator_pcie_replays_total": 0,
        }
        if model.slowdown_celsius is not None:
            steady["accelerator_temperature_slowdown_celsius"] = model.slowdown_celsius
        if model.counts_ecc:
            steady["accelerator_ecc_uncorrected_errors_total"] = 0
            steady["accelerator_row_remap_pending"] = 0
        if model.kind == "gpu":
            steady["accelerator_recovery_action"] = 0
            steady["accelerator_busy_unobserved_seconds_total"] = 0
            if model.counts_ecc:
                steady["accelerator_row_remap_failed"] = 0
            else:
                steady["accelerator_retired_pages_pending"] = 0
        if model.links:
            steady["accelerator_links_active"] = model.links
            steady["accelerator_links_expected"] = model.links
        for name, value in steady.items():
            self._page.hold(name, 0, minutes, value, **self._labels)
        self._page.hold("accelerator_info", 0, minutes, 1, **self._labels, **info)
        self._page.hold("accelerator_state", 0, minutes, 1, **self._labels, state="ok")
        name = f"{model.kind}_memory_total_bytes"
        self._page.hold(name, 0, minutes, self._total, **self._short)
        self._page.climb(
            "accelerator_last_seen_timestamp_seconds", 0, minutes, 0, 60, **self._labels
        )
        for kind in ("crc_flit", "crc_data", "replay", "recovery") if model.links else ():
            per_minute = 0.01 if kind == "crc_flit" else 0.0
            name = "accelerator_link_errors_total"
            self._page.count(name, 0, minutes, per_minute, **self._labels, type=kind)
        for cause in ("corrected", "uncorrected") if model.counts_ecc else ():
            labels = {**self._labels, "cause": cause}
            self._page.hold(
                "accelerator_remapped_rows", 0, minutes, int(cause == "corrected"), **labels
            )

    def write(self, use: _Use) -> None:
        """Write some minutes of use."""
        model = self._model
        noise = self._random.uniform(-2.5, 2.5) if use.utilization else 0.0
        utilization = min(100.0, max(0.0, use.utilization + noise))
        warmer = (model.full_celsius - model.idle_celsius) * utilization / 100
        degrees = model.idle_celsius + warmer + use.hotter_by + self._random.choice((-1, 0, 0, 1))
        degrees = round(degrees)
        used = round(self._total * max(use.reserved, 0.006))
        limit = model.limit_celsius if model.slowdown_celsius is None else model.slowdown_celsius
        watts = model.watts * (0.12 + 0.85 * utilization / 100)
        for name, value in (
            ("accelerator_utilization_ratio", utilization / 100),
            ("accelerator_memory_used_bytes", used),
            ("accelerator_memory_free_bytes", self._total - used),
            ("accelerator_temperature_headroom_celsius", limit - degrees),
            ("accelerator_power_watts", watts),
            ("accelerator_processes", use.processes),
            ("accelerator_pcie_link_generation", 5 if use.processes else 1),
        ):
            if name == "accelerator_processes" and model.kind == "hpu":
                continue
            self._page.hold(name, use.start, use.end, value, **self._labels)
        for sensor, warmth in (("core", degrees), ("memory", degrees + 6)):
            if sensor == "core" or model.kind == "gpu":
                name, labels = "accelerator_temperature_celsius", self._labels
                self._page.hold(name, use.start, use.end, warmth, **labels, sensor=sensor)
        for name, value in (
            ("utilization_percent", utilization),
            ("memory_used_bytes", used),
            ("temperature_celsius", degrees),
            ("power_watts", watts),
        ):
            self._page.hold(f"{model.kind}_{name}", use.start, use.end, value, **self._short)
        self._count(use, utilization, limit - degrees)

    def _count(self, use: _Use, utilization: float, headroom: float) -> None:
        model, full = self._model, utilization / 100
        self._count_one("accelerator_energy_joules_total", use, 60 * model.watts * full)
        if model.kind == "gpu":
            self._count_one("accelerator_busy_seconds_total", use, 60 * full)
        if model.counts_ecc:
            self._count_one("accelerator_ecc_corrected_errors_total", use, 0.0005)
        throttle = dict.fromkeys(_GPU_THROTTLE if model.kind == "gpu" else ("sw_power_cap",), 0.0)
        throttle |= dict.fromkeys(
            _HARDWARE_THROTTLE if model.kind == "gpu" else ("hw_thermal",), 0.0
        )
        throttle["sw_power_cap"] = 45 * full if full > 0.8 else 0.0
        if "sw_thermal" in throttle and full > 0.8:
            throttle["sw_thermal"] = 60 * model.warm_share
        if headroom <= 0:
            throttle["hw_thermal"] = 60.0
        for reason, seconds in throttle.items():
            self._count_one("accelerator_throttle_seconds_total", use, seconds, reason=reason)
            active = float(seconds > 30)
            labels = {**self._labels, "reason": reason}
            self._page.hold("accelerator_throttle_active", use.start, use.end, active, **labels)

    def _count_one(self, name: str, use: _Use, per_minute: float, **labels: str) -> None:
        self._page.count(name, use.start, use.end, per_minute, **self._labels, **labels)
