"""The machine around a rank: the accelerators that its process holds, and how it all looked."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.files import Roots, read_small

_KIB = 1024


class Surroundings:
    """What the latest reading of the accelerators and a glance at memory tell.

    Args:
        accelerators: Reads the accelerators, for somebody else; None where nobody does.
        roots: Where `/proc` is.
    """

    def __init__(
        self,
        accelerators: AcceleratorSource | None = None,
        *,
        roots: Roots = Roots(),  # noqa: B008 - immutable
    ) -> None:
        self._accelerators = accelerators
        self._roots = roots

    def holders(self) -> Mapping[int, tuple[str, ...]]:
        """Give the accelerators that each process holds, by PID, as UUIDs."""
        held: dict[int, tuple[str, ...]] = {}
        if self._accelerators is None or self._accelerators.latest is None:
            return held
        for device in self._accelerators.latest.devices:
            for process in device.processes:
                held[process.pid] = (*held.get(process.pid, ()), device.identity.uuid)
        return held

    def describe(self, gpu_uuids: Collection[str]) -> Mapping[str, float]:
        """Give what the machine looks like, numbers by name in base units.

        Args:
            gpu_uuids: The accelerators to tell of.
        """
        numbers = self._describe_memory()
        if self._accelerators is None or self._accelerators.latest is None:
            return numbers
        for device in self._accelerators.latest.devices:
            measured = device.measurements
            if device.identity.uuid not in gpu_uuids or measured is None:
                continue
            name = f"{device.identity.kind}{device.identity.index}"
            found: dict[str, float | None] = {
                f"{name}_utilization_ratio": measured.utilization_ratio,
                f"{name}_memory_used_bytes": measured.memory_used_bytes,
                f"{name}_temperature_celsius": measured.temperature_core_celsius,
                f"{name}_power_watts": measured.power_watts,
            }
            numbers |= {key: value for key, value in found.items() if value is not None}
        return numbers

    def _describe_memory(self) -> dict[str, float]:
        text = read_small(self._roots.procfs / "meminfo") or ""
        words = {line.partition(":")[0]: line.split() for line in text.splitlines()}
        numbers: dict[str, float] = {}
        for word, name in (
            ("MemAvailable", "memory_available_bytes"),
            ("MemTotal", "memory_total_bytes"),
        ):
            columns = words.get(word, [])
            if len(columns) > 1 and columns[1].isdecimal():
                numbers[name] = float(columns[1]) * _KIB
        return numbers
