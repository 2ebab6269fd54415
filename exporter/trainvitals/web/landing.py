"""The page at `/`: what this is and where everything else is."""

from __future__ import annotations

_LINKS = (
    ("/metrics", "what Prometheus scrapes"),
    ("/api/v1/readings", "the same readings as JSON"),
    ("/health", "is the machine well"),
    ("/ready", "can a run start"),
    ("/-/healthy", "does the exporter live"),
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>trainvitals</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }}
h1 {{ margin: 0; font-weight: 600; letter-spacing: -.02em; }}
p {{ margin: .25rem 0 2rem; opacity: .7; }}
li {{ list-style: none; padding: .6rem 0; border-top: 1px solid #8884; }}
ul {{ padding: 0; }}
a {{ font-family: ui-monospace, monospace; text-decoration: none; display: inline-block; min-width: 12rem; }}
footer {{ opacity: .5; font-size: 14px; }}
</style>
</head>
<body>
<h1>trainvitals</h1>
<p>Vital signs of a machine that trains models.</p>
<ul>
{links}
</ul>
<footer>version {version}</footer>
</body>
</html>
"""


def write_landing_page(version: str) -> bytes:
    """Write the page."""
    links = "\n".join(f'<li><a href="{path}">{path}</a> {words}</li>' for path, words in _LINKS)
    return _PAGE.format(links=links, version=version).encode()
