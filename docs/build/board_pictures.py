"""Take screenshots of the five dashboards in a Grafana and write them to docs/pictures.

    GRAFANA_URL=http://127.0.0.1:13000 GRAFANA_USER=admin GRAFANA_PASSWORD=… make pictures

The Grafana must show the data of `make demo` (docs/demo.md); the browser is the system's Chromium.
Annotations of alerts, deaths and OOM kills are switched off, because the demo's many alerts would
cover the curves. If GRAFANA_URL is unset, or Grafana or Chromium does not answer, no picture is
changed and the exit code is 2.
"""
# ruff: noqa: INP001 - a script

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser, BrowserContext, Error, ViewportSize, sync_playwright

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
SIZE = ViewportSize(width=1600, height=2200)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTLE_MS = 5000  # tables and heat maps are drawn after their data has arrived
SWITCHES = ("Alerts", "Deaths", "OOM kills")
# The variables of each dashboard: machines and runs of the demo.
BOARDS: Mapping[str, Mapping[str, str]] = {
    "fleet": {},
    "run": {"var-run": "bert-large"},
    "accelerators": {"var-instance": "atlas"},
    "host": {"var-instance": "orion"},
    "containers": {"var-instance": "orion"},
}


def main() -> int:
    """Take every picture and return the exit code."""
    url, browser = os.environ.get("GRAFANA_URL", "").rstrip("/"), find_browser()
    if not url or browser is None:
        missing = "Chromium is not installed" if url else "GRAFANA_URL names no Grafana"
        return refuse(missing)
    try:
        with (
            sync_playwright() as driver,
            driver.chromium.launch(executable_path=browser, args=["--no-sandbox"]) as chromium,
        ):
            pictures = take_pictures(chromium, url)
    except Error as error:
        return refuse(f"no picture of {url}: {error.message.splitlines()[0]}")
    for name, picture in pictures.items():
        (FOLDER / f"{name}.png").write_bytes(picture)
        sys.stdout.write(f"docs/pictures/{name}.png\n")
    return 0


def find_browser() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def refuse(reason: str) -> int:
    """Write why no picture is taken and return the exit code of a command that cannot run."""
    sys.stderr.write(f"pictures: {reason}; docs/pictures stays as it is\n")
    return 2


def take_pictures(chromium: Browser, url: str) -> dict[str, bytes]:
    """Return the PNG file of each dashboard, by name.

    Raises:
        Error: Grafana does not answer, or lacks a dashboard.
    """
    context = chromium.new_context(viewport=SIZE, color_scheme="dark")
    log_in(context, url)
    return {name: take_picture(context, url, name) for name in BOARDS}


def log_in(context: BrowserContext, url: str) -> None:
    """Log in if GRAFANA_USER is set; a Grafana with anonymous access needs no account."""
    user, password = (os.environ.get(f"GRAFANA_{name}", "") for name in ("USER", "PASSWORD"))
    if user:
        answer = context.request.post(f"{url}/login", data={"user": user, "password": password})
        if not answer.ok:
            raise Error(f"login as {user}: HTTP {answer.status}")


def take_picture(context: BrowserContext, url: str, name: str) -> bytes:
    """Return the PNG file of the last hour of a dashboard."""
    page = context.new_page()
    words = urlencode({"from": "now-1h", "to": "now", "theme": "dark", **BOARDS[name]})
    answer = page.goto(f"{url}/d/trainvitals-{name}?{words}&kiosk", wait_until="networkidle")
    if answer is None or not answer.ok:
        raise Error(f"board {name}: HTTP {answer.status if answer else 'without an answer'}")
    for switch in SWITCHES:
        control = page.get_by_role("switch", name=switch, exact=True)
        if control.count() and control.is_checked():
            control.uncheck(force=True)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(SETTLE_MS)
    picture = page.screenshot()
    page.close()
    return picture


if __name__ == "__main__":
    sys.exit(main())
