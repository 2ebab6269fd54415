"""The runbooks as web pages: a list at `/runbooks/`, and a runbook at `/runbooks/<Alert>`.

The runbooks are read on each request, from the installed package or from `docs/runbooks` in a
checkout.

The supported Markdown elements are headings, paragraphs, lists, fenced code, `code`, **strong** and
links. All other text is shown verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from trainvitals.errors import StackError
from trainvitals.http.messages import GUARDS, POLICY
from trainvitals.shipped import find_shipped

_PATH = "/runbooks/"
# The hash of the <style> element below, which is the only style in a page.
_STYLE_DIGEST = "'sha256-fpnLyoxdhXSfJx7lGcAUZeh/sRYdA+gjxLRwpeH9Pc0='"
_POLICY = POLICY.replace("style-src 'self'", f"style-src 'self' {_STYLE_DIGEST}")
HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    *((name, _POLICY if value == POLICY else value) for name, value in GUARDS),
)
"""The HTTP headers of each page."""

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
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\[\]]+)\]\(([^()\s]+)\)")
_BLOCKS = re.compile(
    r"^```[^\n]*\n(?P<code>.*?)^```[^\n]*$"
    r"|^(?P<level>#{1,3}) (?P<heading>[^\n]+)$"
    r"|^(?P<table>(?:\|[^\n]*\n?)+)"
    r"|^(?P<list>(?:(?:- |\d+\. )[^\n]*\n?(?:  [^\n]*\n?)*)+)"
    r"|^(?P<paragraph>(?:(?!```|#{1,3} |\||- |\d+\. )[^\n]+\n?)+)",
    re.MULTILINE | re.DOTALL,
)


class Handbook:
    """The runbooks in a directory, rendered as web pages.

    Args:
        directory: The directory that contains the runbooks; None for the directory that is part of
            the package. If the directory does not exist, the list of runbooks is empty.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    def write_list(self) -> bytes:
        """Return the page that contains a link to each runbook."""
        return _write_page("Runbooks", _write_list(self._find()))

    def write_runbook(self, name: str) -> bytes | None:
        """Return the page with an alert's runbook; None if the alert has no runbook."""
        path = self._find().get(name)
        if path is None:
            return None
        back = f'<footer><a href="{_PATH}">all runbooks</a></footer>'
        body = "\n".join([*_write_blocks(path.read_text(encoding="utf-8")), back])
        return _write_page(name, body)

    def write_missing(self, name: str) -> bytes:
        """Return the page for an unknown runbook, with a notice and the list of runbooks."""
        words = f"<p>There is no runbook {escape(name)}; there are these.</p>\n"
        return _write_page("Runbooks", words + _write_list(self._find()))

    def _find(self) -> dict[str, Path]:
        try:
            directory = self._directory or find_shipped("docs/runbooks")
        except StackError:
            return {}
        paths = sorted(directory.glob("[A-Z]*.md"))
        return {path.stem: path for path in paths}


def _write_page(title: str, body: str) -> bytes:
    return _PAGE.format(title=escape(title), body=body).encode()


def _write_list(paths: dict[str, Path]) -> str:
    rows = (_write_row(name, path.read_text(encoding="utf-8")) for name, path in paths.items())
    head = "<h1>Runbooks</h1>\n<p>What to do about each alert.</p>"
    return "\n".join([head, '<ul class="links">', *rows, "</ul>"])


def _write_row(name: str, text: str) -> str:
    """Return a link to a runbook, followed by the runbook's first paragraph."""
    about = "".join(text.split("\n\n")[1:2]).replace("`", "")
    return f'<li><a href="{escape(_PATH + name)}">{escape(name)}</a> {escape(about)}</li>'


def _write_blocks(text: str) -> Iterator[str]:
    for block in _BLOCKS.finditer(text):
        if block["code"] is not None:
            yield f"<pre>{escape(block['code'].rstrip())}</pre>"
        elif block["heading"]:
            level = len(block["level"])
            yield f"<h{level}>{_write_inline(block['heading'])}</h{level}>"
        elif block["table"]:
            yield f"<pre>{escape(block['table'].rstrip())}</pre>"
        elif block["list"]:
            yield _write_items(block["list"])
        else:
            yield f"<p>{_write_inline(block['paragraph'].strip())}</p>"


def _write_items(text: str) -> str:
    tag = "ul" if text.startswith("- ") else "ol"
    items = re.split(r"^(?:- |\d+\. )", text, flags=re.MULTILINE)[1:]
    rows = (f"<li>{_write_inline(item.strip())}</li>" for item in items)
    return "\n".join([f"<{tag}>", *rows, f"</{tag}>"])


def _write_inline(text: str) -> str:
    """Return a line of text as HTML, with all special characters escaped."""
    written, end = [], 0
    for found in _INLINE.finditer(text):
        written += [escape(text[end : found.start()]), _write_mark(found)]
        end = found.end()
    return "".join([*written, escape(text[end:])])


def _write_mark(found: re.Match[str]) -> str:
    code, strong, label, target = found.groups()
    if code:
        return f"<code>{escape(code)}</code>"
    if strong:
        return f"<strong>{escape(strong)}</strong>"
    if runbook := re.fullmatch(r"(\w+)\.md(?:#.*)?", target):
        return f'<a href="{_PATH}{runbook[1]}">{escape(label)}</a>'
    if re.match(r"https?://", target):
        return f'<a href="{escape(target)}">{escape(label)}</a>'
    return escape(label)  # a link to a document that the exporter does not serve
