"""The live page as HTML: the fragment that is replaced every second, and the document around it.

`templates/fragment.html` and the templates that it includes show the fields of a `Picture`. Values
that are difficult to derive in a template are computed in `gauges.py` and `subjects.py`. Every text
that a template writes is cleaned by `clean_text` and then escaped by Jinja2.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals import units
from trainvitals.foreign_text import clean_text
from trainvitals.views.machine import headline
from trainvitals.views.machine.faulty import draw_runs
from trainvitals.views.machine.picture import Picture
from trainvitals.views.page import gauges, subjects

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_MOST_CHARACTERS = 160
_TEMPLATES = Path(__file__).parent / "templates"


class PageWriter:
    """A writer of the machine state as HTML; Jinja2 is imported when the first page is written."""

    def write_fragment(self, picture: Picture) -> bytes:
        """Return the refreshed part of the page as HTML: the head and all sections."""
        return draw_runs(self._write, picture).encode(errors="replace")

    def _write(self, picture: Picture) -> str:
        template = self._environment.get_template("fragment.html")
        return template.render(picture=picture, title=_write_title(picture))

    def write_page(self, picture: Picture, fragment: bytes) -> bytes:
        """Return the whole page as HTML.

        Args:
            picture: The machine state to show.
            fragment: The refreshed part of the page, as returned by `write_fragment`.
        """
        template = self._environment.get_template("page.html")
        text = template.render(
            version=picture.version, title=_write_title(picture), fragment=fragment.decode()
        )
        return text.encode(errors="replace")

    @cached_property
    def _environment(self) -> Environment:
        return make_environment()


def make_environment() -> Environment:
    """Return the Jinja2 environment for the page's templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - `serve` starts faster

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        age=units.format_age,
        amount=_mark_amount,
        byte_rate=units.format_byte_rate,
        bytes=units.format_bytes,
        count=units.format_count,
        duration=units.format_duration,
        iso=units.format_iso,
        percent=units.format_percent,
        rate=units.format_rate,
        time=units.format_time,
        value=units.format_value,
    )
    environment.globals.update(
        bytes_of=units.format_bytes_of,
        gauges=gauges,
        headline=headline,
        subjects=subjects,
    )
    # A page contains the same few chips many times, and a macro is slower than a cache lookup.
    parts = environment.get_template("parts.html").module
    environment.globals["chip"] = lru_cache(maxsize=1024)(vars(parts)["chip"])
    return environment


def _clean(value: object) -> object:
    """Return a template value, cleaned by `clean_text` if it is text; Jinja2 escapes the result."""
    return _clean_text(value) if type(value) is str else value


@lru_cache(maxsize=4096)
def _clean_text(text: str) -> str:
    return clean_text(text, most=_MOST_CHARACTERS)


@lru_cache(maxsize=4096)
def _mark_amount(text: str) -> Markup:
    """Return an amount as HTML.

    An unknown amount is a grey `-`; the total in `66.0 / 80.0 GiB` has a smaller font.
    """
    from markupsafe import Markup, escape  # noqa: PLC0415 - see make_environment

    if text == units.UNKNOWN:
        return Markup('<span class="none">-</span>')
    part, slash, whole = text.partition(" / ")
    return Markup("{}<small> / {}</small>").format(part, whole) if slash else escape(text)


def _write_title(picture: Picture) -> str:
    count = headline.make_headline(picture).count
    trouble = f"({count}) " if count else ""
    return f"{trouble}{clean_text(picture.hostname, most=100)} \N{MIDDLE DOT} trainvitals"
