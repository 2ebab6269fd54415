"""The row of the board of accelerators about what connects them: PCIe and NVLink."""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_panels import (
    NONE,
    by_device,
)
from grafana.build.layout import Row
from grafana.build.palette import (
    BYTES_PER_SECOND,
    RATIO,
)
from grafana.build.panels import About, Column, Key, Panel, table

_NO_LINK: Final = "No NVLink on this host"


def write_links() -> Row:
    """Give the row of PCIe and NVLink."""
    panels = (
        _list_links(),
        _draw_lanes(),
        _draw_nvlinks(),
        _draw_link_errors(),
        _draw_traffic("receive", "received"),
        _draw_traffic("transmit", "sent"),
        _draw_replays(),
    )
    return Row("PCIe and NVLink", panels, is_collapsed=True)


def _list_links() -> Panel:
    rows = "kind, device"
    metrics = {
        "PCIe generation": "accelerator_pcie_link_generation",
        "generation at most": "accelerator_pcie_link_generation_max",
        "PCIe lanes": "accelerator_pcie_link_width",
        "lanes at most": "accelerator_pcie_link_width_max",
        "NVLinks up": "accelerator_links_active",
        "NVLinks ever up": "accelerator_links_expected",
    }
    return table(
        "Links now",
        About(
            "The links of each device beside the best that card and slot can do.",
            "as many lanes and links as there can be; the PCIe generation sinks while a card rests.",
            "look for link errors in the kernel log; reseat the card or cable at the next stop.",
        ),
        keys=(Key("kind", "Kind"), Key("device", "Device")),
        columns=tuple(
            Column(title, f"max by ({rows}) ({metric}{{@device}})", decimals=0)
            for title, metric in metrics.items()
        ),
        empty=NONE,
    )


def _draw_lanes() -> Panel:
    return by_device(
        "PCIe lanes of those there can be",
        About(
            "Share of its PCIe lanes that each device uses.",
            "100 % under load; some cards park lanes while they rest.",
            "data from the host is slower by as much: reseat the card at the next stop.",
            alerts=("AcceleratorLinkDegraded",),
        ),
        "accelerator_pcie_link_width{@device}"
        " / on (job, instance, kind, device, uuid) (accelerator_pcie_link_width_max{@device} > 0)",
        unit=RATIO,
        most=1,
        extreme="min",
    )


def _draw_nvlinks() -> Panel:
    return by_device(
        "NVLinks up of those ever up",
        About(
            "Share of its NVLinks that each device has up.",
            "100 %.",
            "gradients between cards are slower by as much: look for NVLink errors, then reset.",
            alerts=("AcceleratorLinkDegraded",),
        ),
        "accelerator_links_active{@device}"
        " / on (job, instance, kind, device, uuid) (accelerator_links_expected{@device} > 0)",
        unit=RATIO,
        most=1,
        empty=_NO_LINK,
        extreme="min",
    )


def _draw_link_errors() -> Panel:
    return by_device(
        "NVLink errors",
        About(
            "Damaged packets, repeats and recoveries of all NVLinks of a device around each moment.",
            "none.",
            "errors on one device alone are its cable, bridge or socket.",
        ),
        "sum without (type) (increase(accelerator_link_errors_total{@device}[$__rate_interval]))",
        is_bars=True,
        empty=_NO_LINK,
    )


def _draw_traffic(direction: str, verb: str) -> Panel:
    return by_device(
        f"NVLink, {verb}",
        About(
            f"What each device {verb} over all its NVLinks.",
            "the same on all devices of a run.",
            "a device far below the others is no part of the ring, or its links are degraded.",
        ),
        f'rate(accelerator_link_bytes_total{{@device, direction="{direction}"}}[$__rate_interval])',
        unit=BYTES_PER_SECOND,
        empty=_NO_LINK,
    )


def _draw_replays() -> Panel:
    return by_device(
        "PCIe packets sent again",
        About(
            "Packets that had to be repeated around each moment.",
            "none, or a few when the machine starts.",
            "a card with many is badly seated, or its riser cable is bad.",
        ),
        "increase(accelerator_pcie_replays_total{@device}[$__rate_interval])",
        is_bars=True,
        empty="No device here counts them",
    )
