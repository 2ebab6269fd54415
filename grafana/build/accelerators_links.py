"""The row of the accelerators dashboard on links: PCIe and NVLink."""

from __future__ import annotations

from typing import Final

from grafana.build.accelerators_panels import BY, NONE, by_device
from grafana.build.layout import Row
from grafana.build.palette import (
    BYTES_PER_SECOND,
    RATIO,
)
from grafana.build.panels import About, Panel
from grafana.build.queries import find_rise, name_series
from grafana.build.tables import Column, Key, table

_NO_LINK: Final = "No NVLink on this host"


def write_links() -> Row:
    """Return the row on PCIe and NVLink."""
    panels = (
        _list_links(),
        _draw_share(),
        _draw_traffic(),
        _draw_link_errors(),
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
        height=11,
        empty=NONE,
    )


def _draw_share() -> Panel:
    of_a_card = "on (job, instance, kind, device, uuid)"
    shares = {
        "pcie": f"accelerator_pcie_link_width{{@device}}"
        f" / {of_a_card} (accelerator_pcie_link_width_max{{@device}} > 0)",
        "nvlink": f"accelerator_links_active{{@device}}"
        f" / {of_a_card} (accelerator_links_expected{{@device}} > 0)",
    }
    return by_device(
        "Lanes and links of those there can be",
        About(
            "Share of its PCIe lanes and of its NVLinks that each device uses, whichever is lower.",
            "100 % under load; some cards park lanes while they rest.",
            "the table above shows which; its transfers are slower in proportion: reseat the card at "
            "the next stop, or reset it for NVLink.",
            alerts=("AcceleratorLinkDegraded",),
        ),
        f"min by ({BY}) ({name_series('link', shares)})",
        unit=RATIO,
        most=1,
        width=12,
        extreme="min",
        empty=NONE,
    )


def _draw_link_errors() -> Panel:
    return by_device(
        "NVLink errors",
        About(
            "Damaged packets, repeats and recoveries of all NVLinks of a device, in each step of the graph.",
            "none.",
            "errors on one device alone are its cable, bridge or socket.",
        ),
        f"sum without (type) ({find_rise('accelerator_link_errors_total{@device}')})",
        is_bars=True,
        width=12,
        empty=_NO_LINK,
    )


def _draw_traffic() -> Panel:
    return by_device(
        "NVLink traffic",
        About(
            "What each device sends and receives over all its NVLinks, together.",
            "the same on all devices of a run.",
            "a device far below the others is no part of the ring, or its links are degraded.",
        ),
        "sum without (direction) (rate(accelerator_link_bytes_total{@device}[$__rate_interval]))",
        unit=BYTES_PER_SECOND,
        width=12,
        empty=_NO_LINK,
    )


def _draw_replays() -> Panel:
    return by_device(
        "PCIe packets sent again",
        About(
            "Packets that had to be repeated, in each step of the graph.",
            "none, or a few when the machine starts.",
            "a card with many is badly seated, or its riser cable is bad.",
        ),
        find_rise("accelerator_pcie_replays_total{@device}"),
        is_bars=True,
        width=12,
        empty="No device here counts them",
    )
