"""Sanitizes untrusted text, such as names, log lines, labels and error messages.

A run name or a log line can contain escape codes that move the cursor, change colours, ring the
bell or set a window's title. It can also contain characters that reverse the writing direction.
Every view passes such text through `clean_text` (one line) or `clean_lines` (several lines), and
then escapes the text for the output format: HTML, Markdown, a terminal or human-readable JSON.
Label values pass through `clean_label`, and file names pass through `clean_file_name`.

This module imports only the standard library, because the training client imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Matching takes linear time: each alternative consumes at least one character, ESC or CSI.
_ESCAPE_CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x9b(?:[0-9;?]*[@-~])?"  # CSI: colours and cursor moves
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC: titles and links, at most one line
    r"|\x1b[@-Z\\-_=>78]?"  # other codes, and a lone ESC
)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~!@&$])")
_CODE = re.compile(r"(`[^`]*`)")
_REPLACEMENT = "?"
_ELLIPSIS = "…"


def strip_escape_codes(text: str) -> str:
    """Return a text without terminal escape codes (ECMA-48: CSI, OSC and others)."""
    return _ESCAPE_CODES.sub("", text) if "\x1b" in text or "\x9b" in text else text


def clean_text(text: str, *, most: int | None = None) -> str:
    """Return a text as one line that is safe to display.

    Escape codes are removed. Tabs and line breaks become spaces. Control characters,
    writing-direction marks and lone surrogates become `?`. Each letter keeps at most one combining
    mark.

    Args:
        text: The text, which may contain any characters.
        most: The maximum number of characters; a longer text is cut and ends with `…`. None for no
            limit.
    """
    if most is not None and len(text) > 8 * most:
        text = text[: 8 * most]  # the rest of the text is never displayed
    if not (text.isascii() and text.isprintable()):
        text = "".join(_keep_printable(strip_escape_codes(text).translate(_SPACES)))
    return text if most is None else cut(text, most)


def cut(text: str, most: int) -> str:
    """Shorten a text to at most `most` characters; a shortened text ends with `…`."""
    return text if len(text) <= most else text[: most - 1] + _ELLIPSIS


def clean_lines(text: str, *, most: int | None = None) -> str:
    """Apply `clean_text` to each line of a text."""
    return "\n".join(clean_text(line, most=most) for line in text.split("\n"))


def clean_label(text: str, *, forbidden: str = "", replacement: str = "_") -> str:
    """Return a text with each non-printable character replaced.

    Lone surrogates are also replaced, so that the result can always be encoded.

    Args:
        text: The text, which may contain any characters.
        forbidden: Printable characters that are also replaced.
        replacement: The text that replaces each of these characters.
    """
    if text.isprintable() and not forbidden:
        return text
    return "".join(c if c.isprintable() and c not in forbidden else replacement for c in text)


def clean_file_name(text: str, *, allowed: str = "-_") -> str:
    """Replace characters with `_`, except ASCII letters, digits and the allowed characters."""
    return "".join(c if c.isascii() and (c.isalnum() or c in allowed) else "_" for c in text)


def join_names(names: Sequence[str], *, most: int) -> str:
    """Return at most `most` names separated by commas, followed by the number of omitted names."""
    shown = ", ".join(names[:most])
    return f"{shown} {name_rest(len(names) - most)}" if len(names) > most else shown


def name_rest(left: int, hint: str = "") -> str:
    """Return `and N more` and a hint, for a number of omitted names; "" if the number is 0."""
    return f"and {left:,} more{hint}" if left > 0 else ""


def escape_markdown(text: str) -> str:
    """Return a text as one line that Markdown renders literally, except code in backticks.

    The rendered text contains no link, image, HTML, heading or mention.
    """
    return "".join(
        part if _CODE.fullmatch(part) else _escape_part(part)
        for part in _CODE.split(clean_text(text))
    )


def _escape_part(text: str) -> str:
    # Renderers turn URLs into links.
    return _MARKDOWN.sub(r"\\\1", text).replace("://", ":\\//").replace("www.", "www\\.")


_SPACES = dict.fromkeys(map(ord, "\t\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029\xa0\u202f"), " ")


def _keep_printable(text: str) -> list[str]:
    import unicodedata  # noqa: PLC0415 - a large extension module that most processes never need

    kept: list[str] = []
    may_combine = False
    for character in unicodedata.normalize("NFC", text):
        if not character.isprintable():
            kept.append(_REPLACEMENT)
            may_combine = False
        elif unicodedata.category(character) in {"Mn", "Me"}:
            if may_combine:
                kept.append(character)
            may_combine = False
        else:
            kept.append(character)
            may_combine = True
    return kept
