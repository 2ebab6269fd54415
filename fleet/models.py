"""Accelerator models; limits are from the vendors' data sheets, temperatures are invented."""

from __future__ import annotations

from dataclasses import dataclass

from trainvitals.sources.accelerators.reading import Kind

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Model:
    """A card model; a property that the model does not have is None or 0.

    Attributes:
        name: The name reported by the driver.
        kind: `gpu` or `hpu`.
        driver: The driver version.
        firmware: The firmware version of the card.
        memory_bytes: The memory size in bytes.
        idle_celsius: The temperature when the card is idle.
        full_celsius: The temperature at full load.
        slowdown_celsius: The temperature at which the card slows down.
        watts: The power limit.
        core_hertz: The maximum core clock.
        memory_hertz: The memory clock.
        tells_slowdown: Whether the driver reports the slowdown temperature, rather than only the
            difference from it.
        link_bytes: The bytes per second transferred on links to other cards at full load.
        links: The number of links.
        counts_ecc: Whether the memory has ECC error counters.
        has_fan: Whether the card has a fan.
        warm_share: The share of time at full load in which the driver slows the card down because
            of its temperature.
    """

    name: str
    kind: Kind
    driver: str
    firmware: str
    memory_bytes: int
    idle_celsius: float
    full_celsius: float
    slowdown_celsius: float
    watts: float
    core_hertz: int
    memory_hertz: int | None
    tells_slowdown: bool = True
    link_bytes: float = 0.0
    links: int = 0
    counts_ecc: bool = True
    has_fan: bool = False
    warm_share: float = 0.0


H100 = Model(
    "NVIDIA H100 80GB HBM3", "gpu", "580.95.05", "96.00.99.00.01", 80 * GIB,
    31, 66, 87, 700, 1_980_000_000, 2_619_000_000,
    tells_slowdown=False, link_bytes=120e9, links=18,
)  # fmt: skip
A100 = Model(
    "NVIDIA A100-SXM4-80GB", "gpu", "570.124.06", "92.00.36.00.01", 80 * GIB,
    30, 68, 92, 400, 1_410_000_000, 1_593_000_000, link_bytes=80e9, links=12,
)  # fmt: skip
L40S = Model(
    "NVIDIA L40S", "gpu", "580.95.05", "95.02.66.00.02", 48 * GIB,
    33, 74, 92, 350, 2_520_000_000, 9_001_000_000, tells_slowdown=False,
)  # fmt: skip
RTX_2080 = Model(
    "NVIDIA GeForce RTX 2080 SUPER", "gpu", "570.124.06", "90.04.7A.00.41", 8 * GIB,
    41, 78, 93, 250, 2_100_000_000, 7_751_000_000, counts_ecc=False, has_fan=True,
)  # fmt: skip
GAUDI_3 = Model(
    "HL-325L", "hpu", "1.22.0-f7ad7e4", "1.22.0-fw-61.2.2.0", 128 * GIB,
    36, 71, 90, 850, 1_600_000_000, None,
)  # fmt: skip
