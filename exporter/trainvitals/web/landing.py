"""The page at `/`: what this is and where everything else is."""

from __future__ import annotations

from trainvitals.web.page import write_links, write_page

_LINKS = {
    "/metrics": "what Prometheus scrapes",
    "/api/v1/readings": "the same readings as JSON",
    "/health": "is the machine well",
    "/ready": "can a run start",
    "/-/healthy": "does the exporter live",
    "/runbooks/": "what to do about each alert",
}


def write_landing_page(version: str) -> bytes:
    """Write the page."""
    body = f"""\
<h1>trainvitals</h1>
<p>Vital signs of a machine that trains models.</p>
{write_links((path, path, words) for path, words in _LINKS.items())}
<footer>version {version}</footer>"""
    return write_page("trainvitals", body)
