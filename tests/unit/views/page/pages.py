"""Parsing of HTML pages, for queries in tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset(("meta", "link", "br", "hr", "img", "input", "rect", "path"))


@dataclass
class Element:
    """An HTML element.

    Attributes:
        tag: Its name.
        attributes: Its attributes.
        children: Elements and text.
    """

    tag: str
    attributes: dict[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the element and its descendants."""
        return "".join(each if isinstance(each, str) else each.text for each in self.children)

    def find(self, tag: str | None = None, **attributes: str) -> list[Element]:
        """Return the descendants of this name with these attributes, where `css` is the class."""
        found = []
        for each in self.children:
            if isinstance(each, Element):
                if tag in (None, each.tag) and all(
                    each._has("class" if name == "css" else name, value)
                    for name, value in attributes.items()
                ):
                    found.append(each)
                found += each.find(tag, **attributes)
        return found

    def _has(self, name: str, value: str) -> bool:
        own = self.attributes.get(name) or ""
        return value in own.split() if name == "class" else own == value


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read_html(text: str | bytes) -> Element:
    """Return the parsed HTML, in which every opened element must be closed in order."""
    reader = _Reader()
    reader.feed(text if isinstance(text, str) else text.decode())
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is not closed"
    return reader.root
