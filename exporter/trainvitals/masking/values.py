"""Masking of values whose names identify secrets: `password: x`, `passwords: [x, y]`.

A value follows its name after a separator or a space, on the following lines, in brackets or in a
call.
"""

from __future__ import annotations

import re

from trainvitals.masking.names import Rule, find_rule, hides, is_random_word

MASK = "***"

# A name, and the separator between the name and the value.
_NAMES = re.compile(
    r"(?<![\w.-])(?=(?P<name>[\w.-]+))(?P=name)"  # possessive, to avoid backtracking
    r"(?:(?P<sign>(?:\\*[\"'])?\]?[ \t]*(?:=>|:=|==|=|:)[ \t]*)|(?P<comma>[\"'][ \t]*,[ \t]*)"
    r"|(?P<space>[ \t]+))",
    re.ASCII,
)
# The rest of an escape sequence that directly precedes a name, by the character before the rest:
# `\npassword`, `%0Apassword` or `\u001b[1mpassword`.
_ESCAPE_ENDS = {
    "\\": re.compile(r"x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[abefnrtv0]"),
    "%": re.compile(r"[0-9A-Fa-f]{2}"),
    "[": re.compile(r"[0-9]{0,3}m"),
    ";": re.compile(r"[0-9]{0,3}m"),
}
_CALL = re.compile(r"[A-Za-z_][\w.]{0,60}\([ \t]*(?=[bru]?[\"'])")  # such as `SecretStr('x')`
# The lines or the brackets that follow a name in YAML.
_BLOCK = re.compile(r"(?:[|>][0-9+-]{0,2})?[ \t]*\r?\n")
_ITEM = re.compile(r"[ \t]*(?:-[ \t]+)?(?P<value>[^\s#][^\n]*)")
_BRACKETS = re.compile(r"\[(?P<value>[^\]]{0,4096})\]")
_LIST_ITEM = re.compile(r"(?P<value>[^\s\"',]+)")
_SPACES = re.compile(r"\s")
_PAIR = re.compile(r"[\"']?[\w.-]{1,80}[\"']?:(?:\s|$)")
_QUOTED = re.compile(r"[bru]?(?P<mark>[\"'])(?P<value>(?:\\.|(?!(?P=mark))[^\n\\])*)")
_ESCAPED = re.compile(r"[bru]?\\+[\"'](?P<value>[^\"'\n\\]*)")
_WIDE = re.compile(r"(?P<value>[^\s\"'`]+)")
_NARROW = re.compile(r"(?P<value>[^\s\"'`&;,(){}\[\]<>\\|]+)")
_LINE = re.compile(r"(?P<value>[^\n\"']+)")
# Error messages of the operating system, which follow the name of a file.
_REFUSAL = re.compile(
    r"(?:permission denied|no such file|file exists|is a directory|not a directory|read-only file"
    r"|operation not permitted|input/output error|no space left)",
    re.IGNORECASE,
)
_STRONG = frozenset({Rule.PASSWORD, Rule.TOKEN})
_BARE = {
    Rule.LINE: _LINE,
    Rule.PASSWORD: _WIDE,
    Rule.TOKEN: _NARROW,
    Rule.VAGUE: _NARROW,
    Rule.NEAR: _NARROW,
    Rule.SERVICE: _NARROW,
}


def mask_values(text: str) -> str:
    """Return a text in which secret values are masked according to their names."""
    parts: list[str] = []
    done = 0
    match = _NAMES.search(text)
    while match:
        rule = _find_rule(match)
        found = _find_values(text, match, rule, done) if rule else _find_plural(text, match)
        for value in found:
            parts += (text[done : value.start("value")], MASK)
            done = value.end("value")
        match = _NAMES.search(text, done if found else match.end())
    return "".join(parts) + text[done:]


def _find_rule(match: re.Match[str]) -> Rule | None:
    before = match.string[match.start() - 1 : match.start()]
    escape = before in _ESCAPE_ENDS and _ESCAPE_ENDS[before].match(match["name"])
    return find_rule(match["name"]) or (
        find_rule(match["name"][escape.end() :]) if escape else None
    )


def _find_values(text: str, match: re.Match[str], rule: Rule, done: int) -> list[re.Match[str]]:
    """Return matches for a name's secret values: one value, or the values in a list or block."""
    if rule in _STRONG and (several := _find_several(text, match)) is not None:
        return [value for value in several if _hides_item(rule, value["value"].strip("\"' \t\r"))]
    value = _find_value(text, match, rule, done)
    return [] if value is None else [value]


def _find_plural(text: str, match: re.Match[str]) -> list[re.Match[str]]:
    """Return matches for the secrets in a list or block with a plural name such as `api_keys`."""
    name = match["name"]
    rule = find_rule(name[:-1]) if name[-1] in "sS" else None
    if rule not in _STRONG:
        return []
    rule = rule if rule is Rule.PASSWORD else Rule.VAGUE  # the values of `tokens` may be words
    items = _find_several(text, match) or []
    return [item for item in items if hides(rule, item["value"].strip("\"' \t\r"))]


def _hides_item(rule: Rule, value: str) -> bool:
    return hides(rule, value) and (rule is Rule.PASSWORD or not _SPACES.search(value))


def _find_several(text: str, match: re.Match[str]) -> list[re.Match[str]] | None:
    """Return matches for the block lines or list items after a name; None if neither follows."""
    if match["sign"] is None:
        return None
    if inside := _BRACKETS.match(text, match.end()):
        return list(_LIST_ITEM.finditer(text, inside.start("value"), inside.end("value")))
    begin = _BLOCK.match(text, match.end()) if ":" in match["sign"] else None
    if begin is None:
        return None
    indent = match.start() - text.rfind("\n", 0, match.start()) - 1
    found = []
    place = begin.end()
    while line := _ITEM.match(text, place):
        is_item = text[line.start() : line.start("value")].strip() == "-"
        if line.start("value") - place <= indent or (not is_item and _PAIR.match(line["value"])):
            break
        found.append(line)
        place = line.end() + 1
    return found


def _find_value(text: str, match: re.Match[str], rule: Rule, done: int) -> re.Match[str] | None:
    """Return a match for the secret value of a name; None if the name has no secret value.

    The value follows a separator or a flag, or is quoted.
    """
    start = match.end()
    if ":" in (match["sign"] or "") and _REFUSAL.match(text, start):
        return None
    if call := _CALL.match(text, start):
        start = call.end()
    quoted = _QUOTED.match(text, start) or _ESCAPED.match(text, start)
    if match["sign"] is None and not _needs_no_sign(text, match, rule, quoted):
        return None
    value = quoted or _BARE[rule].match(text, start)
    if value is None or not hides(rule, value["value"]):
        return None
    if rule is Rule.TOKEN and not quoted:
        if text.startswith(("(", "["), value.end()):  # the value is a call in source code
            return None
        is_prose = ":" in (match["sign"] or "") and _follows_word(text, match.start(), done)
        if is_prose and not is_random_word(value["value"]):
            return None
    return value


def _needs_no_sign(
    text: str, match: re.Match[str], rule: Rule, quoted: re.Match[str] | None
) -> bool:
    """Return whether a value can follow the name without a separator such as `=` or `:`.

    This is the case for a flag, for a quoted password, and for a pair of strings.
    """
    start = match.start()
    if match["comma"]:
        return quoted is not None and text[max(0, start - 2) : start] in {"('", '("'}
    is_flag = match["name"].startswith("-") and not text.startswith("-", match.end())
    return is_flag or (quoted is not None and rule is Rule.PASSWORD)


def _follows_word(text: str, start: int, done: int) -> bool:
    """Return whether an unmasked word precedes the name on the same line."""
    place = start - 1
    while place >= done and text[place] in " \t":
        place -= 1
    return done <= place < start - 1 and text[place].isalpha()
