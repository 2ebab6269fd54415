"""Writes docs/pictures/live-*.png: the live pages of the demo's machines in a real browser.

    python docs/build/live_pictures.py

The machines are those of `make demo`, with the pages of the real exporter, after a quarter of an
hour of scrapes. The firing alerts are given in the form in which Prometheus would report them, with
the texts of the shipped rules. The script needs Chromium and the package playwright.
"""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, NamedTuple

import yaml
from playwright.sync_api import Browser, ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fleet.exporter import observe, replay  # noqa: E402 - imported from this checkout
from fleet.machine import Machine  # noqa: E402
from fleet.machines import build_machines  # noqa: E402
from trainvitals.sources.alerts import FiringAlerts  # noqa: E402
from trainvitals.sources.prometheus import ActiveAlert  # noqa: E402
from trainvitals.stack.programs import HOST, find_free_ports  # noqa: E402
from trainvitals.views.machine.observer import Observer  # noqa: E402

FOLDER = ROOT / "docs/pictures"
PAST_SECONDS, STEP_SECONDS, STAGE_SECONDS = 900, 5, 15
SETTLE_MS = 2500
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# The alerts of each machine: name, labels, and the minutes for which the alert has been firing.
FIRING: dict[str, tuple[tuple[str, dict[str, str], int], ...]] = {
    "atlas": (
        ("AcceleratorLost", {"kind": "gpu", "device": "5"}, 70),
        ("GPUHighTemperature", {"kind": "gpu", "device": "3"}, 24),
        ("AcceleratorThermalThrottling", {"kind": "gpu", "device": "3"}, 21),
        ("TrainingStragglerRank", {"run": "llama-7b", "rank": "3"}, 14),
    ),
    "orion": (
        ("TrainingStalled", {"run": "bert-large"}, 4),
        ("ContainerOOMKilled", {"name": "sweep-worker-1"}, 1),
        ("ContainerUnhealthy", {"name": "jupyter-1"}, 190),
        ("ContainerMemoryNearLimit", {"name": "dataprep-1"}, 35),
    ),
}


class Shot(NamedTuple):
    """A picture to take.

    Attributes:
        name: The name of the file without its extension.
        machine: The name of the machine in the demo.
        scheme: `light` or `dark`.
        width: The width of the window.
        height: The height of the window; None for the full height of the page.
        scale: The number of picture pixels per page pixel.
    """

    name: str
    machine: str
    scheme: Literal["light", "dark"]
    width: int
    height: int | None = None
    scale: float = 1


SHOTS = (
    Shot("live-light", "atlas", "light", 1360),
    Shot("live-dark", "orion", "dark", 1360),
    Shot("live-phone", "orion", "light", 390, height=1500, scale=1.5),
)


def list_alerts(machine: str) -> list[ActiveAlert]:
    """Return the alerts of a machine in the form in which Prometheus reports them."""
    rules = {
        rule["alert"]: rule
        for path in (ROOT / "prometheus/rules").glob("*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    return [
        ActiveAlert(
            {"alertname": name, "instance": machine, **rules[name]["labels"], **labels},
            {"summary": rules[name]["annotations"]["summary"]},
            "firing",
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60 * minutes)),
        )
        for name, labels, minutes in FIRING[machine]
    ]


def watch(machine: Machine, begin: float) -> Observer:
    """Return an observer with a quarter of an hour of readings of a machine."""
    observer = observe(machine)
    reports = [SimpleNamespace(collector=name) for name in machine.readers]
    for back in range(PAST_SECONDS, 0, -STEP_SECONDS):
        moment = begin - back
        readings = {name: read(moment) for name, read in machine.readers.items()}
        observer.note(SimpleNamespace(readings=readings, reports=reports), moment)
    return observer


@contextmanager
def serve(machine: Machine, begin: float) -> Iterator[str]:
    """Serve the pages of a machine and yield their address."""
    alerts = FiringAlerts(lambda: list_alerts(machine.name), machine.name)
    address = f"{HOST}:{find_free_ports(1)[0]}"
    served = replay(machine, address, observer=watch(machine, begin), alerts=alerts)
    served.listen()
    try:
        yield f"http://{address}/"
    finally:
        served.close()


def draw(browser: Browser, shot: Shot, url: str) -> None:
    """Take one picture after the page has been updated a few times."""
    size = ViewportSize(width=shot.width, height=shot.height or 900)
    window = browser.new_context(
        viewport=size, color_scheme=shot.scheme, device_scale_factor=shot.scale
    )
    page = window.new_page()
    page.goto(url)
    page.wait_for_timeout(SETTLE_MS)
    path = FOLDER / f"{shot.name}.png"
    page.screenshot(path=path, full_page=shot.height is None)
    window.close()
    sys.stdout.write(f"{path.relative_to(ROOT)}\n")


def main() -> None:
    """Take all pictures."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        sys.exit("there is no Chromium: install the package chromium")
    begin = time.time() // STAGE_SECONDS * STAGE_SECONDS
    machines = {machine.name: machine for machine in build_machines(begin)}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for shot in SHOTS:
            with serve(machines[shot.machine], begin) as url:
                draw(browser, shot, url)
        browser.close()


if __name__ == "__main__":
    main()
