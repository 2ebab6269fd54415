"""The machine state for a rank: the accelerators that the rank holds, and the host's memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainvitals.errors import SourceError
from trainvitals.sources.accelerators.source import AcceleratorSource
from trainvitals.sources.files import Roots
from trainvitals.sources.host.memory import read_memory


class MachineState:
    """The machine state: the accelerators in the latest reading, and the host's memory.

    Args:
        accelerators: The source that the accelerator collector reads; None if the machine state
            does not include accelerators.
        roots: The path of `/proc`.
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
        """Return the UUIDs of the accelerators that each process holds, by PID."""
        held: dict[int, tuple[str, ...]] = {}
        if self._accelerators is None or self._accelerators.latest is None:
            return held
        for device in self._accelerators.latest.devices:
            for process in device.processes:
                held[process.pid] = (*held.get(process.pid, ()), device.identity.uuid)
        return held

    def describe(self, gpu_uuids: Collection[str]) -> Mapping[str, float]:
        """Return the machine state as numbers in base units, by name.

        Args:
            gpu_uuids: The UUIDs of the accelerators to describe.
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
        try:
            memory = read_memory(self._roots)
        except SourceError:
            return {}
        numbers = {"memory_total_bytes": float(memory.total_bytes)}
        if memory.available_bytes is not None:
            numbers["memory_available_bytes"] = float(memory.available_bytes)
        return numbers
