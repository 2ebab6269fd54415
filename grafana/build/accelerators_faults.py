"""Rows of the accelerators dashboard on faults: alerts, Xids, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from grafana.build.accelerators_panels import BY, by_device, states_by_device
from grafana.build.fields import Json
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    COUNT,
    CRITICAL,
    INFORMATION,
    SINCE,
    UNKNOWN,
    WARNING,
    State,
)
from grafana.build.panels import About, Panel
from grafana.build.parts import list_alerts
from grafana.build.queries import find_rise
from grafana.build.tables import Column, Key, table
from trainvitals.sources.accelerators.xids import XIDS

# The required action by the class of an Xid, most severe first, with the alert whose window
# applies.
_CLASSES: Final[Mapping[str, tuple[State, str]]] = MappingProxyType(
    {
        "critical": (State(4, "critical", CRITICAL), "critical"),
        "warning": (State(3, "warning", WARNING), "warning"),
        "app": (State(2, "fault of a program", INFORMATION), "application"),
        "info": (State(1, "follows from another", UNKNOWN), "application"),
    }
)
_REPAIR_PENDING: Final = State(1, "memory: waits for a reset", WARNING)
# By the driver's number of the action plus one.
_ACTIONS: Final = tuple(
    State(number, text, CRITICAL)
    for number, text in enumerate(
        (
            "reset",
            "reboot of the machine",
            "drain peer-to-peer traffic",
            "drain and reset",
            "recover IMEX",
        ),
        2,
    )
)
_REPAIR_FAILED: Final = State(7, "memory: cannot be repaired", CRITICAL)
_NO_XID: Final = "No Xid in this range"
_MOST_XIDS: Final = 20


def write_faults(whose: str) -> Row:
    """Return the row on alerts, Xids and required actions; `whose` selects the alerts."""
    panels = (
        list_alerts(whose, width=24),
        _show_needs(),
        _show_xids(),
        _list_xids(),
        _list_kernel(),
    )
    return Row("Faults: alerts, Xids, recovery", panels, is_collapsed=True)


def write_memory_faults() -> Row:
    """Return the row on memory errors and repairs."""
    panels = (_draw_uncorrected(), _draw_corrected(), _draw_replaced())
    return Row("Memory errors", panels, is_collapsed=True)


def _show_xids() -> Panel:
    minutes = limit("accelerator_xid_critical:window_seconds") / 60
    parts = (
        f"{state.number} + 0 * max by ({BY}) (time()"
        f' - accelerator_xid_last_timestamp_seconds{{@device, class="{name}"}}'
        f" < scalar(threshold:accelerator_xid_{alert}:window_seconds{{}}))"
        for name, (state, alert) in _CLASSES.items()
    )
    return states_by_device(
        f"Xids of the last {minutes:g} minutes",
        About(
            "Who has to act on the worst error that each GPU reported in the minutes before.",
            "empty.",
            "the table below has the meaning of each code and what the GPU needs.",
            alerts=("AcceleratorXidCritical", "AcceleratorXidWarning", "AcceleratorXidApplication"),
        ),
        " or ".join(parts),
        tuple(state for state, _ in _CLASSES.values()),
        empty=_NO_XID,
    )


def _list_xids() -> Panel:
    keys = "kind, device, uuid, xid, class, action"
    panel = table(
        "Xids",
        About(
            f"The last {_MOST_XIDS} errors, each code of a GPU once: what it means, who has to act and "
            "what the GPU needs.",
            "empty.",
            "critical: take the GPU out of use, then do what it needs; app: look at the program; many "
            "codes within a minute have one cause, the first of them.",
        ),
        keys=(
            Key("kind", "Kind", width=60),
            Key("device", "Device", width=70),
            Key("xid", "Xid"),
            Key(
                "class",
                "Class",
                width=90,
                colours={name: state.colour for name, (state, _) in _CLASSES.items()},
            ),
            Key("action", "It needs"),
        ),
        hidden=("uuid",),
        columns=(
            Column(
                "When",
                f"topk({_MOST_XIDS}, 1000 *"
                f" max by ({keys}) (accelerator_xid_last_timestamp_seconds{{@device}}))",
                SINCE,
                width=110,
            ),
        ),
        sort_by="When",
        empty="No GPU reported an Xid",
        width=12,
        height=11,
    )
    return replace(panel, overrides=(*panel.overrides, _explain_codes("Xid")))


def _explain_codes(title: str) -> Json:
    """Return an override that shows the meaning of each code in a column."""
    texts = {
        str(xid.code): {"index": at, "text": f"{xid.code}: {xid.meaning}"}
        for at, xid in enumerate(XIDS)
    }
    mappings = [{"options": texts, "type": "value"}]
    return {
        "matcher": {"id": "byName", "options": title},
        "properties": [{"id": "mappings", "value": mappings}],
    }


def _show_needs() -> Panel:
    failed, asked, pending = _REPAIR_FAILED.number, _ACTIONS[0].number, _REPAIR_PENDING.number
    return states_by_device(
        "What devices need",
        About(
            "What each device needs before it can be used again or be trusted, by its driver.",
            "empty.",
            "move the work away, then do it; reset between two runs what only waits for a reset.",
            alerts=(
                "AcceleratorRecoveryActionNeeded",
                "AcceleratorRowRemapFailed",
                "AcceleratorRowRemapPending",
            ),
        ),
        f"""
        {failed} * max by ({BY}) (accelerator_row_remap_failed{{@device}} == 1)
        or {asked - 1} + max by ({BY}) (accelerator_recovery_action{{@device}} > 0)
        or {pending} * max by ({BY}) (
          accelerator_row_remap_pending{{@device}} == 1
          or accelerator_retired_pages_pending{{@device}} == 1)
        """,
        (_REPAIR_FAILED, *_ACTIONS, _REPAIR_PENDING),
        empty="No driver here asks for anything",
    )


def _draw_uncorrected() -> Panel:
    return by_device(
        "Memory errors, uncorrected",
        About(
            "Errors in each step of the graph after which what was computed with that memory may be wrong.",
            "none.",
            "stop the run, go back to a checkpoint from before, and reset the device.",
            alerts=("AcceleratorUncorrectedEcc",),
        ),
        find_rise("accelerator_ecc_uncorrected_errors_total{@device}"),
        is_bars=True,
        empty="No device here counts them",
    )


def _draw_corrected() -> Panel:
    return by_device(
        "Memory errors, corrected",
        About(
            "Errors in each step of the graph that the hardware mended by itself.",
            "none, or a single one now and then.",
            "a device with many more than its neighbours will have uncorrected ones: plan its exchange.",
        ),
        find_rise("accelerator_ecc_corrected_errors_total{@device}"),
        is_bars=True,
        empty="No device here counts them",
    )


def _draw_replaced() -> Panel:
    return by_device(
        "Memory rows and pages replaced",
        About(
            "How many rows were replaced by spare ones, or pages given up on older cards, for errors "
            "of either kind, since the card was made.",
            "flat; a few are no reason to worry.",
            "a number that rises from week to week is a reason to have the card replaced.",
        ),
        "sum without (cause) (accelerator_remapped_rows{@device} or accelerator_retired_pages{@device})",
        empty="No device here counts them",
    )


def _list_kernel() -> Panel:
    return table(
        "Xids in the kernel's log",
        About(
            "The kernel's own word on errors of NVIDIA GPUs, also of those that no longer answer, by "
            "their bus address; counted since the exporter started.",
            "empty.",
            "match the address with the table of cards; the runbook of AcceleratorXidCritical has "
            "what to do.",
        ),
        keys=(Key("bus_id", "Bus"), Key("xid", "Xid")),
        columns=(
            Column(
                "Last",
                "1000 * max by (bus_id, xid) (host_xid_last_timestamp_seconds{@host})",
                SINCE,
            ),
            Column(
                "In 24 h",
                "max by (bus_id, xid) (increase(host_xid_errors_total{@host}[24h]))",
                COUNT,
                decimals=0,
            ),
        ),
        sort_by="Last",
        empty="No Xid in the kernel's log, or no right to read it",
        width=12,
        height=11,
    )
