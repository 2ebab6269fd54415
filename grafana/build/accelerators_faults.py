"""Rows of the board of accelerators that tell what is broken: states, Xids, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from grafana.build.accelerators_panels import (
    BY,
    STATE,
    by_device,
    states_by_device,
)
from grafana.build.layout import Row
from grafana.build.limits import limit
from grafana.build.palette import (
    COUNT,
    CRITICAL,
    DEVICE_STATES,
    INFORMATION,
    OK,
    SINCE,
    UNKNOWN,
    WARNING,
    State,
)
from grafana.build.panels import About, Column, Json, Key, Panel, table, timeseries
from grafana.build.queries import over_time
from trainvitals.sources.accelerators.xids import XIDS

# Who has to act, by the class of an Xid, the worst first; and the alert whose window counts.
_CLASSES: Final[Mapping[str, tuple[State, str]]] = MappingProxyType(
    {
        "critical": (State(4, "critical", CRITICAL), "critical"),
        "warning": (State(3, "warning", WARNING), "warning"),
        "app": (State(2, "fault of a program", INFORMATION), "application"),
        "info": (State(1, "follows from another", UNKNOWN), "application"),
    }
)
_ACTIONS: Final = (
    State(0, "nothing", OK),
    State(1, "reset", CRITICAL),
    State(2, "reboot of the machine", CRITICAL),
    State(3, "drain peer-to-peer traffic", CRITICAL),
    State(4, "drain and reset", CRITICAL),
    State(5, "recover IMEX", CRITICAL),
)
_REPAIRS: Final = (
    State(1, "nothing to repair", OK),
    State(2, "waits for a reset", WARNING),
    State(3, "cannot be repaired", CRITICAL),
)
_NO_XID: Final = "No Xid in this range"


def write_faults() -> Row:
    """Give the row that is open: states and Xids."""
    return Row("Faults", (_show_states(), _show_xids(), _draw_xids(), _list_xids()))


def write_memory_faults() -> Row:
    """Give the row of memory errors and their repair."""
    panels = (
        _show_actions(),
        _show_repairs(),
        _draw_uncorrected(),
        _draw_corrected(),
        _draw_replaced(),
    )
    return Row("Memory errors and repairs", panels, is_collapsed=True)


def _show_states() -> Panel:
    return states_by_device(
        "State",
        About(
            "Whether each device answers, and if not, why.",
            "ok.",
            "lost: reboot; hung: end its processes, then reset it; no driver: load it again.",
            alerts=("AcceleratorLost",),
        ),
        STATE,
        tuple(DEVICE_STATES.values()),
    )


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
            "the table below says what each code means and what the GPU needs.",
            alerts=("AcceleratorXidCritical", "AcceleratorXidWarning", "AcceleratorXidApplication"),
        ),
        " or ".join(parts),
        tuple(state for state, _ in _CLASSES.values()),
        empty=_NO_XID,
    )


def _draw_xids() -> Panel:
    return timeseries(
        "Xids by code",
        About(
            "How many errors of each code all devices reported around each moment.",
            "empty.",
            "many codes within a minute have one cause: the first of them in the kernel log.",
        ),
        # The first error of a code brings its counter, of which there is no increase yet.
        over_time(
            """
            sum by (xid) (increase(accelerator_xid_errors_total{@device}[$__rate_interval])) > 0
            or count by (xid) (
              accelerator_xid_last_timestamp_seconds{@device}
              unless on (job, instance, uuid, xid)
              accelerator_xid_last_timestamp_seconds{@device} offset $__rate_interval
            )
            """,
            "Xid {{xid}}",
        ),
        unit=COUNT,
        least=0,
        empty=_NO_XID,
        width=12,
        is_bars=True,
        calcs=("lastNotNull", "max"),
    )


def _list_xids() -> Panel:
    keys = "kind, device, uuid, xid, class, action"
    panel = table(
        "Last Xid of each device",
        About(
            "The latest error of each GPU: what it means, who has to act and what the GPU needs.",
            "empty.",
            "critical: take the GPU out of use, then do what it needs; app: look at the program.",
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
            Key("uuid", "UUID", width=120),
        ),
        columns=(
            Column(
                "When",
                "topk by (kind, device, uuid) (1, 1000 *"
                f" max by ({keys}) (accelerator_xid_last_timestamp_seconds{{@device}}))",
                SINCE,
                width=110,
            ),
        ),
        sort_by="When",
        empty="No GPU reported an Xid",
        width=12,
    )
    return replace(panel, overrides=(*panel.overrides, _explain_codes("Xid")))


def _explain_codes(title: str) -> Json:
    """Give the cells of a column that hold codes the meaning of each."""
    texts = {
        str(xid.code): {"index": at, "text": f"{xid.code}: {xid.meaning}"}
        for at, xid in enumerate(XIDS)
    }
    mappings = [{"options": texts, "type": "value"}]
    return {
        "matcher": {"id": "byName", "options": title},
        "properties": [{"id": "mappings", "value": mappings}],
    }


def _show_actions() -> Panel:
    return states_by_device(
        "What the driver asks for",
        About(
            "What each GPU needs before it can be trusted again, as its driver says.",
            "nothing.",
            "move the work away, then do it.",
            alerts=("AcceleratorRecoveryActionNeeded",),
        ),
        "accelerator_recovery_action{@device}",
        _ACTIONS,
        empty="No driver here tells",
    )


def _show_repairs() -> Panel:
    states = {state.text: state.number for state in _REPAIRS}
    return states_by_device(
        "Repair of memory",
        About(
            "Whether faulty memory waits to be replaced by spare rows or to be given up.",
            "nothing to repair.",
            "reset the device between two runs; have one replaced that cannot be repaired.",
            alerts=("AcceleratorRowRemapFailed", "AcceleratorRowRemapPending"),
        ),
        f"""
        {states["cannot be repaired"]} * max by ({BY}) (accelerator_row_remap_failed{{@device}} == 1)
        or {states["waits for a reset"]} * max by ({BY}) (
          accelerator_row_remap_pending{{@device}} == 1
          or accelerator_retired_pages_pending{{@device}} == 1)
        or {states["nothing to repair"]} + max by ({BY}) (
          accelerator_row_remap_pending{{@device}} == 0
          or accelerator_retired_pages_pending{{@device}} == 0)
        """,
        _REPAIRS,
        empty="No driver here tells",
    )


def _draw_uncorrected() -> Panel:
    return by_device(
        "Memory errors, uncorrected",
        About(
            "Errors around each moment after which what was computed with that memory may be wrong.",
            "none.",
            "stop the run, go back to a checkpoint from before, and reset the device.",
            alerts=("AcceleratorUncorrectedEcc",),
        ),
        "increase(accelerator_ecc_uncorrected_errors_total{@device}[$__rate_interval])",
        is_bars=True,
        empty="No device here counts them",
    )


def _draw_corrected() -> Panel:
    return by_device(
        "Memory errors, corrected",
        About(
            "Errors around each moment that the hardware mended by itself.",
            "none, or a single one now and then.",
            "a device with many more than its neighbours will have uncorrected ones: plan its exchange.",
        ),
        "increase(accelerator_ecc_corrected_errors_total{@device}[$__rate_interval])",
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
