"""The live page as HTML: the fragment that is drawn anew, and the document around it."""

from __future__ import annotations

from trainvitals.overview.picture import Picture
from trainvitals.web.live import quantities as write
from trainvitals.web.live.accelerators import write_accelerators
from trainvitals.web.live.collectors import write_collectors
from trainvitals.web.live.containers import write_containers
from trainvitals.web.live.headline import find_matters, write_alerts, write_headline
from trainvitals.web.live.host import write_host
from trainvitals.web.live.markup import name, text
from trainvitals.web.live.runs import write_runs

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 9h3l2-6 3 11 2-5h4' fill='none' stroke='%233a7' stroke-width='2'/%3E%3C/svg%3E"
)
# Relative, so that a proxy may serve the page below a path of its own.
_LINKS = {
    "metrics": "what Prometheus scrapes",
    "api/v1/overview": "this page as JSON",
    "api/v1/readings": "all that was read, as JSON",
    "health": "is the machine well",
    "ready": "can a run start",
    "-/healthy": "does the exporter live",
    "runbooks/": "what to do about each alert",
}
_DOCUMENT = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="live.css?{version}">
<script src="live.js?{version}" defer></script>
</head>
<body>
<a class="skip" href="#content">Skip to the machine</a>
<div id="notice" role="status"></div>
<div id="live">
{fragment}
</div>
<footer>
<noscript><p>Without JavaScript this is how it was when the page was loaded; reload it for more.</p></noscript>
<nav aria-label="Other pages"><ul>{links}</ul></nav>
<p>trainvitals {version}</p>
</footer>
</body>
</html>
"""


def write_fragment(picture: Picture) -> bytes:
    """Write what changes: the head with the machine's name, and every section."""
    matters = find_matters(picture)
    sections = (
        write_alerts(picture),
        write_runs(picture),
        write_accelerators(picture),
        write_containers(picture),
        write_host(picture),
        write_collectors(picture),
    )
    body = "\n".join(part for part in sections if part)
    fragment = (
        f'<header id="head" data-title="{_write_title(picture, len(matters))}"'
        f' data-version="{text(picture.version)}"><div><h1>{name(picture.hostname)}</h1>'
        f'<p id="pulse">{write.moment(picture.time)}</p></div>'
        f'<div id="headline" role="status">{write_headline(matters)}</div></header>\n'
        f'<main id="content" tabindex="-1">\n{body}\n</main>'
    )
    return fragment.encode(errors="replace")


def write_page(picture: Picture, fragment: bytes) -> bytes:
    """Write the whole page.

    Args:
        picture: What it shows.
        fragment: The same, as `write_fragment` has it.
    """
    links = (
        f'<li><a href="{path}">/{path}</a> <small>{words}</small></li>'
        for path, words in _LINKS.items()
    )
    page = _DOCUMENT.format(
        title=_write_title(picture, len(find_matters(picture))),
        icon=_ICON,
        version=text(picture.version),
        fragment=fragment.decode(),
        links="".join(links),
    )
    return page.encode()


def _write_title(picture: Picture, count: int) -> str:
    trouble = f"({count}) " if count else ""
    return f"{trouble}{text(picture.hostname)} \N{MIDDLE DOT} trainvitals"
