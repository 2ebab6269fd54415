"""A real browser: the system's Chromium, without a window."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

WAIT_SECONDS = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str:
    """Return the path of Chromium; skip the test without one, or fail in CI."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        words = "needs Chromium: install the package chromium"
        if os.environ.get("CI"):
            raise FileNotFoundError(words)
        pytest.skip(words)
    return found


@contextmanager
def open_browser(home: Path) -> Iterator[Any]:
    """Start Chromium and yield Playwright's handle to it.

    Args:
        home: The home directory of Chromium, without the settings of the user who runs the tests.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_chromium()
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path,
            # As root, Chromium cannot use its sandbox; it must not send requests of its own.
            args=["--no-sandbox", "--disable-background-networking", "--disable-sync"],
            env={**os.environ, "HOME": str(home)},
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """An open page, with its errors and requests.

    Attributes:
        page: Playwright's handle to the page.
        complaints: Warnings and errors of the console, and exceptions of the page's script.
        requests: The addresses of all requests.
    """

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """Return the text of the first element that matches a selector, with plain spaces."""
        words: str = self.page.locator(selector).first.inner_text()
        return " ".join(words.replace("\u202f", " ").split())

    def wait_for(self, expression: str, argument: object = None) -> None:
        """Wait until a JavaScript expression or function is true of the page.

        The expression is polled from outside, because the page's policy forbids evaluation inside.
        """
        until = time.monotonic() + WAIT_SECONDS
        while not self.page.evaluate(expression, argument):
            assert time.monotonic() < until, f"never: {expression}\n{self.page.content()}"
            self.page.wait_for_timeout(50)


@contextmanager
def visit(browser: Any, url: str, **context: Any) -> Iterator[Visit]:
    """Open a page in a window of its own.

    Args:
        browser: The browser.
        url: The address of the page.
        context: Playwright's options for the window.
    """
    window = browser.new_context(**context)
    try:
        page = window.new_page()
        seen = Visit(page)
        page.on("console", lambda said: _note(seen, said.type, said.text))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(url)
        yield seen
    finally:
        window.close()


def _note(seen: Visit, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        seen.complaints.append(text)
