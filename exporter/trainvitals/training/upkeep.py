"""What the client does about once a second, on the training thread, after a step."""

from __future__ import annotations

import sys
from types import ModuleType

from trainvitals.training.flops import find_peak_flops
from trainvitals.training.journal import Journal
from trainvitals.training.memory import read_memory

_MEMORY_SECONDS = 5.0


class Upkeep:
    """Reads the allocator's counters every five seconds and finds the device's peak once.

    Args:
        journal: Where they are kept.
        needs_peak: The user gave FLOPs per sample or token, but not the device's peak.
    """

    __slots__ = ("_journal", "_memory_due", "_needs_peak")

    def __init__(self, journal: Journal, *, needs_peak: bool) -> None:
        self._journal = journal
        self._needs_peak = needs_peak
        self._memory_due = 0.0

    def do(self, now: float) -> None:
        """Do what is due.

        Args:
            now: The monotonic clock, seconds.
        """
        torch = sys.modules.get("torch")
        if torch is None or now < self._memory_due:
            return
        self._memory_due = now + _MEMORY_SECONDS
        memory = read_memory(torch)
        if memory is None:
            return
        journal = self._journal
        before = journal.get("memory_ooms") or 0.0
        journal.set("memory_allocated_bytes", memory.allocated_bytes)
        journal.set("memory_reserved_bytes", memory.reserved_bytes)
        journal.set("memory_peak_bytes", memory.peak_bytes)
        journal.set("memory_alloc_retries", memory.alloc_retries)
        journal.set("memory_ooms", memory.ooms)
        if (memory.ooms or 0) > before:
            journal.note_oom()
        if self._needs_peak:
            self._needs_peak = False
            journal.set("peak_flops", _find_peak(torch))


def _find_peak(torch: ModuleType) -> float | None:
    """Give the peak of the current device in the best half precision that it has."""
    for kind in ("cuda", "hpu"):
        device = getattr(torch, kind, None)
        if device is not None and device.is_initialized():
            name = str(device.get_device_name())
            return find_peak_flops(name) or find_peak_flops(name, "float16")
    return None
