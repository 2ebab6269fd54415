"""The runbooks as pages: `/runbooks/` lists them, `/runbooks/<Alert>` is one of them.

They are read when asked for, from the package where it is installed, otherwise from `docs/runbooks`
of the checkout: the same disk that the code comes from.

Of Markdown they use headings, paragraphs, lists, fenced code, `code`, **strong** and links; whatever
else stands in them is shown as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from trainvitals.web.page import write_links, write_page

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "stack/files/docs/runbooks", _PACKAGE.parents[1] / "docs/runbooks")
_PATH = "/runbooks/"
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_BLOCKS = re.compile(
    r"^```[^\n]*\n(?P<code>.*?)^```[^\n]*$"
    r"|^(?P<level>#{1,3}) (?P<heading>[^\n]+)$"
    r"|^(?P<table>(?:\|[^\n]*\n?)+)"
    r"|^(?P<list>(?:(?:- |\d+\. )[^\n]*\n?(?:  [^\n]*\n?)*)+)"
    r"|^(?P<paragraph>(?:(?!```|#{1,3} |\||- |\d+\. )[^\n]+\n?)+)",
    re.MULTILINE | re.DOTALL,
)


class Handbook:
    """The runbooks of a directory.

    Args:
        places: Where they may stand; the first directory that exists is it. None exists: there is
            no runbook.
    """

    def __init__(self, places: tuple[Path, ...] = _PLACES) -> None:
        self._places = places

    def write_list(self) -> bytes:
        """Write the page with a link to each runbook."""
        return write_page("Runbooks", _write_list(self._find()))

    def write_runbook(self, name: str) -> bytes | None:
        """Write the page about one alert; None: there is none of that name."""
        path = self._find().get(name)
        if path is None:
            return None
        back = f'<footer><a href="{_PATH}">all runbooks</a></footer>'
        body = "\n".join([*_write_blocks(path.read_text(encoding="utf-8")), back])
        return write_page(name, body)

    def write_missing(self, name: str) -> bytes:
        """Write the page for a name that there is no runbook of: the list, and a word."""
        words = f"<p>There is no runbook {escape(name)}; there are these.</p>\n"
        return write_page("Runbooks", words + _write_list(self._find()))

    def _find(self) -> dict[str, Path]:
        directory = next((place for place in self._places if place.is_dir()), None)
        paths = sorted(directory.glob("[A-Z]*.md")) if directory else []
        return {path.stem: path for path in paths}


def _write_list(paths: dict[str, Path]) -> str:
    words = (path.read_text(encoding="utf-8").split("\n\n")[1:2] for path in paths.values())
    links = (
        (_PATH + name, name, "".join(about).replace("`", ""))
        for name, about in zip(paths, words, strict=True)
    )
    return f"<h1>Runbooks</h1>\n<p>What to do about each alert.</p>\n{write_links(links)}"


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
    """Write a line of text; everything in it is escaped."""
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
    return escape(label)  # a document that is not served
