"""Masking of secrets that are percent-encoded once or twice, such as `%73%6b...` in a URL."""

from __future__ import annotations

import re
from collections.abc import Callable

# The escapes of printable ASCII characters, tabs and line breaks; no other escape is part of a
# secret.
_ESCAPES = re.compile(r"%(0[9AaDd]|2[0-9A-Fa-f]|[3-6][0-9A-Fa-f]|7[0-9A-Ea-e])")
# The rest of a token that was recognized only up to an escaped character such as `+`, `/` or `=`.
_RESTS = re.compile(r"(\*\*\*)(?:%(?:25)?(?:2[BbDdEeFf]|3[AaDd]|5[Ff]|7[Ee])[A-Za-z0-9_.~+/=-]*)+")
_SIGNS = re.compile(r"%(?=[0-9A-Fa-f]{2})")
_TIMES = 2


def mask_encoded(text: str, mask: Callable[[str], str]) -> str:
    """Return a text in which each line with percent-encoded secrets is decoded and masked.

    Percent signs in such a line are encoded again, so that masking the line again changes nothing.
    Other lines are not changed.

    Args:
        text: The text, in which unencoded secrets have already been masked.
        mask: A function that masks the secrets in an unencoded text.
    """
    if not _ESCAPES.search(text):
        return text
    return "\n".join(_mask_line(line, mask) for line in text.split("\n"))


def _mask_line(line: str, mask: Callable[[str], str]) -> str:
    shown = decoded = _RESTS.sub(r"\1", line)
    for times in range(1, _TIMES + 1):
        before, decoded = decoded, _ESCAPES.sub(_decode, decoded)
        if decoded == before:
            break
        masked = _RESTS.sub(r"\1", mask(decoded))
        if masked != decoded:
            shown, decoded = _encode(masked, times), masked
    return shown


def _decode(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def _encode(text: str, times: int) -> str:
    """Encode line breaks, and the percent signs that a decoder would otherwise decode again."""
    for _ in range(times):
        text = _SIGNS.sub("%25", text)
    return text.replace("\n", "%0A").replace("\r", "%0D")
