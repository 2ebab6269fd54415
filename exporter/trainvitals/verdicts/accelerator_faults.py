"""Accelerator faults: error codes, faulty memory, required recoveries, and links that are down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
    Measurements,
)
from trainvitals.sources.accelerators.xids import explain_xid
from trainvitals.verdicts.accelerators import NO_WORK, Work, blame
from trainvitals.verdicts.thresholds import Thresholds
from trainvitals.verdicts.trouble import Severity, Trouble

_RECOVERIES = {
    1: "a reset",
    2: "a reboot of the machine",
    3: "its peer-to-peer traffic drained",
    4: "to be drained and reset",
    5: "IMEX to recover",
}
# The alert, its severity and the name of its threshold for each class of Xids.
_XIDS: Mapping[str, tuple[str, Severity, str]] = {
    "critical": ("AcceleratorXidCritical", "critical", "accelerator_xid_critical:window_seconds"),
    "warning": ("AcceleratorXidWarning", "warning", "accelerator_xid_warning:window_seconds"),
    "app": ("AcceleratorXidApplication", "info", "accelerator_xid_application:window_seconds"),
}


def judge_faults(
    reading: AcceleratorsReading, work: Mapping[str, Work], thresholds: Thresholds, now: float
) -> Iterator[Trouble]:
    """Yield a problem for each fault of the machine's accelerators.

    Args:
        reading: The reading of the machine's accelerators.
        work: The recent utilization of each device, by UUID.
        thresholds: The thresholds of the alerts, by name.
        now: The current time in Unix seconds.
    """
    for device in reading.devices:
        yield from _judge_xids(device, thresholds, now)
        identity, measured = device.identity, device.measurements
        if device.state == "ok" and measured is not None:
            yield from judge_repairs(identity, measured)
            known = work.get(identity.uuid, NO_WORK)
            yield from judge_links(identity, measured, known, thresholds)


def has_all_links(measured: Measurements) -> bool:
    """Return whether none of a device's expected links is missing."""
    return not _is_below(measured.links_active, measured.links_expected)


def has_all_lanes(measured: Measurements) -> bool:
    """Return whether the card uses all PCIe lanes that both the card and the slot support."""
    return not _is_below(measured.pcie_link_width, measured.pcie_link_width_max)


def _is_below(count: int | None, expected: int | None) -> bool:
    return count is not None and expected is not None and count < expected


def judge_links(
    identity: Identity, measured: Measurements, work: Work, thresholds: Thresholds
) -> Iterator[Trouble]:
    """Yield a problem if a device uses fewer links or PCIe lanes than expected.

    Some cards use fewer PCIe lanes while idle, so the lanes are checked only on a busy card.
    """
    busy, alert = work.busy_percent, "AcceleratorLinkDegraded"
    if not has_all_links(measured) and not work.had_all_links:
        count = f"{measured.links_active} of {measured.links_expected}"
        yield blame(identity, alert, "lacks links", f"{count} links are up", "warning")
    if has_all_lanes(measured) or work.had_all_lanes or busy is None:
        return
    if busy > thresholds["accelerator_link_degraded:utilization_percent"]:
        count = f"{measured.pcie_link_width} of {measured.pcie_link_width_max}"
        yield blame(identity, alert, "lacks PCIe lanes", f"{count} lanes are used", "warning")


def judge_repairs(identity: Identity, measured: Measurements) -> Iterator[Trouble]:
    """Yield the problems of a device that needs a recovery or a memory repair."""
    action = measured.recovery_action
    if action:
        needed = _RECOVERIES.get(action, f"recovery action {action}")
        yield blame(
            identity,
            "AcceleratorRecoveryActionNeeded",
            "needs recovery",
            f"its driver reports that it needs {needed}",
        )
    if measured.row_remap_failed == 1:
        yield blame(
            identity,
            "AcceleratorRowRemapFailed",
            "memory cannot be repaired",
            "a faulty row of its memory could not be replaced",
        )
    if measured.row_remap_pending == 1 or measured.pages_retired_pending == 1:
        yield blame(
            identity,
            "AcceleratorRowRemapPending",
            "memory repair pending",
            "faulty memory is replaced at its next reset",
            "warning",
        )


def _judge_xids(
    device: AcceleratorReading, thresholds: Thresholds, now: float
) -> Iterator[Trouble]:
    for each in device.xids:
        known = explain_xid(each.xid)
        alert, severity, window = _XIDS.get(known.severity, ("", "info", ""))
        if alert and now - each.last_timestamp_seconds < thresholds[window]:
            yield blame(
                device.identity,
                alert,
                f"Xid {each.xid}",
                f"{known.meaning}: it needs {known.action}",
                severity,
            )
