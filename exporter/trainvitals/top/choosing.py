"""What is chosen by flags and by what is there: whom to ask, how to draw, how to sort."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal, TextIO

from rich.color import ColorSystem

from trainvitals.errors import ConfigurationError
from trainvitals.overview.picture import Picture
from trainvitals.top.address import Address
from trainvitals.top.frame import list_sections
from trainvitals.top.table import Sorting

HERE = Address(is_tls=False, host="127.0.0.1", port=9200)
COLORS = ("auto", "always", "never")
ColorChoice = Literal["auto", "always", "never"]
_QUICK_SECONDS = 0.5
_DUMB = {"", "dumb", "unknown"}


def listens(address: Address, *, seconds: float = _QUICK_SECONDS) -> bool:
    """Tell whether somebody listens there, without waiting long."""
    with suppress(OSError), socket.create_connection((address.host, address.port), seconds):
        return True
    return False


def choose_colors(
    choice: ColorChoice, stream: TextIO, environ: Mapping[str, str]
) -> ColorSystem | None:
    """Give the colours to draw with; None for none, and no escape codes where lines are printed.

    Args:
        choice: `--color`.
        stream: Where to draw.
        environ: Where `NO_COLOR` and `TERM` may be.
    """
    if choice == "never":
        return None
    if choice == "auto":
        is_plain = environ.get("NO_COLOR") or is_dumb(environ) or not stream.isatty()
        return None if is_plain else ColorSystem.STANDARD
    return ColorSystem.STANDARD


def is_dumb(environ: Mapping[str, str]) -> bool:
    """Tell whether the terminal can only print lines."""
    return environ.get("TERM", "") in _DUMB


def is_ascii(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Tell whether what is not ASCII would not be understood."""
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        return True
    # Python itself puts C.UTF-8 into LC_CTYPE where the locale is C or unset.
    own = environ.get("LC_CTYPE", "")
    names = (environ.get("LC_ALL"), "" if own == "C.UTF-8" else own, environ.get("LANG"))
    chosen = next((name for name in names if name), "UTF-8")
    return "utf8" not in chosen.lower().replace("-", "")


def choose_sorting(name: str | None, *, is_reversed: bool) -> dict[int, Sorting]:
    """Sort each section that has such a column by it.

    Args:
        name: `--sort`: the title of a column, in any case, with blanks or `-`; None for none.
        is_reversed: The other way round.

    Raises:
        ConfigurationError: No section has such a column.
    """
    if name is None:
        return {}
    sections = list_sections(Picture(0.0, "", ""), lists_all=True)
    wanted = _simplify(name)
    found = {
        section.number: Sorting(title, is_reversed)
        for section in sections
        for title in section.sortable
        if _simplify(title) == wanted
    }
    if not found:
        titles = dict.fromkeys(_simplify(title) for one in sections for title in one.sortable)
        raise ConfigurationError(f"--sort {name}: there is {', '.join(titles)}")
    return found


def _simplify(title: str) -> str:
    return title.lower().replace(" ", "-")
