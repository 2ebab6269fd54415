"""What the pages for people have in common."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem; }}
h1 {{ margin: 0; font-weight: 600; letter-spacing: -.02em; }}
h2 {{ margin: 2rem 0 .5rem; font-size: 1.1rem; }}
h1 + p {{ margin: .25rem 0 2rem; opacity: .7; }}
ul.links {{ padding: 0; }}
ul.links li {{ list-style: none; padding: .6rem 0; border-top: 1px solid #8884; }}
ul.links a {{ font-family: ui-monospace, monospace; display: inline-block; min-width: 12rem; }}
a {{ text-decoration: none; }}
code, pre {{ font: .875em/1.5 ui-monospace, monospace; background: #8882; border-radius: 4px; }}
code {{ padding: .1em .3em; overflow-wrap: anywhere; }}
pre {{ padding: .75rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }}
footer {{ margin-top: 2rem; opacity: .5; font-size: 14px; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_page(title: str, body: str) -> bytes:
    """Write a whole page.

    Args:
        title: What the browser shows, as plain text.
        body: HTML.
    """
    return _PAGE.format(title=escape(title), body=body).encode()


def write_links(links: Iterable[tuple[str, str, str]]) -> str:
    """Write a list of links as HTML.

    Args:
        links: Path, name and what is behind it, as plain text.
    """
    rows = (
        f'<li><a href="{escape(path)}">{escape(name)}</a> {escape(words)}</li>'
        for path, name, words in links
    )
    return "\n".join(['<ul class="links">', *rows, "</ul>"])
