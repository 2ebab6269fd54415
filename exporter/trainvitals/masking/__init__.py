"""Masks secrets in text: in command lines, log lines, errors and the output of probes.

A secret is replaced by `***`. It is recognized in three ways:

- by its form (`forms`): tokens with a known prefix, JSON web tokens, private keys, URLs of
  webhooks
- by its position: `user:password@` in a URL, after `Bearer`, `wandb login`, `mysql -p` or `api key`
- by its name (`names`): `password: x`, `--token x`, `"api_key": "x"`, `<password>x</password>`,
  `-e HF_TOKEN=x`; with the name of a service or a word such as `access`, a value that is random

Digests of images, IDs of containers, hashes of commits, UUIDs and paths are not masked without such a
name. In doubt, a password is masked and a token of a model is not.

Masking takes linear time, is idempotent, keeps the number of lines, and makes a text at most three
times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainvitals.masking.forms import (
    KEY_BEGINS,
    KEY_BODY,
    KEY_ENDS,
    KEY_LINES,
    PASSWORD_HASHES,
    PUBLIC_KEYS,
    TOKENS,
    WEBHOOKS,
)
from trainvitals.masking.names import Rule, find_rule, hides, is_pair, is_random, is_random_word

MASK = "***"

_ADDRESSES = re.compile(
    r"://(?P<user>[^\s/@:'\"<>?#]{0,256})(?::(?P<password>(?:(?!://)[^\s'\"<>]){0,256}))?@"
)
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}/")
_LONG_USER = 16  # a user name of this length in a URL is a key
_LONG_BEARER = 24
_MOST_PROGRAMS = 16  # the words of a command line in which the name of a program is searched
_PASSWORD_PROGRAMS = frozenset(
    ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump", "sshpass")
)
_WORD_BREAKS = re.compile(r"[^\w.-]", re.ASCII)
_BEARERS = re.compile(r"\b(Bearer[ \t]+)([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_BASICS = re.compile(r"\b(Basic[ \t]+)([A-Za-z0-9+/]{4,}={0,2})", re.IGNORECASE)
_LOGINS = (
    re.compile(r"\b(wandb[ \t]+login[ \t]+(?:--[a-z-]+[ \t]+){0,4})([^\s'\"-][^\s'\"]{7,})"),
    re.compile(r"\b(login[ \t]+[^\s]{1,128}[ \t]+password[ \t]+)([^\s]+)"),
    re.compile(
        r"\b((?:mysql|mariadb)[a-z]{0,8}\b[^\n|;&]{0,200}?[ \t]-p(?![ \t]))([^\s'\"]+|'[^'\n]*'|\"[^\"\n]*\")"
    ),
    re.compile(r"\b(sshpass[ \t]+-p[ \t]*)([^\s]+)"),
    re.compile(r"\b(login\b[^\n|;&]{0,200}?[ \t]-p[ \t]+)([^\s]+)"),
    re.compile(r"\b(redis-cli\b[^\n|;&]{0,200}?[ \t]-a[ \t]+)([^\s]+)"),
    re.compile(r"\b(pass(?:in|out)?[ \t=]+pass:)([^\s'\"]+)"),
)
_USERS = re.compile(
    r"((?:^|[ \t])(?:-u|--user|--proxy-user)(?:=|[ \t]+)['\"]?)([^\s:'\"=]+):([^\s'\"]+)"
)

# A name and its separator from the value.
_NAMES = re.compile(
    r"(?<![\w.-])(?=(?P<name>[\w.-]+))(?P=name)"  # possessive, so without backtracking
    r"(?:(?P<sign>(?:\\*[\"'])?\]?[ \t]*(?:=>|:=|==|=|:)[ \t]*)|(?P<space>[ \t]+))",
    re.ASCII,
)
_QUOTED = re.compile(r"[bru]?(?P<mark>[\"'])(?P<value>(?:\\.|(?!(?P=mark))[^\n\\])*)")
_ESCAPED = re.compile(r"[bru]?\\+[\"'](?P<value>[^\"'\n\\]*)")
_WIDE = re.compile(r"(?P<value>[^\s\"'`]+)")
_NARROW = re.compile(r"(?P<value>[^\s\"'`&;,(){}\[\]<>\\|]+)")
_LINE = re.compile(r"(?P<value>[^\n\"']+)")
# Messages of the operating system about a file with such a name.
_REFUSAL = re.compile(
    r"(?:permission denied|no such file|file exists|is a directory|not a directory|read-only file"
    r"|operation not permitted|input/output error|no space left)",
    re.IGNORECASE,
)
_PORTS = re.compile(r"[0-9.:-]+(?:/[a-z]+)?")
# A name and a value that stand in an element, in two attributes or fields, or behind a command.
_ELEMENTS = re.compile(r"<([A-Za-z][\w:.-]{0,60})(?:[ \t][^<>\n]{0,200})?>([^<>\n]+)(?=</)")
_FIELDS = re.compile(
    r"\b((?:name|key)[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?)([\w.-]{1,80})"
    r"([\"']?,?\s{1,40}[\"']?value[\"']?[ \t]{0,4}[=:][ \t]{0,4})([\"']?)([^\s\"'<>]+)"
)
_SETTINGS = re.compile(
    r"\b((?:config|configure)[ \t]{1,4}(?:--?[a-z]{1,20}[ \t]{1,4}){0,4}(?:set[ \t]{1,4})?)([\w.-]{1,80})([ \t]{1,4})()"
    r"([^\s\"']+)"
)
# In a sentence: `api key 0123456789abcdef`, `the access token is "..."`.
_SENTENCES = re.compile(
    r"\b((?:api|access|auth|secret|private|service|bearer|account)[ _-]?(?:key|token|secret)\b"
    r"[\"']?[ \t]{0,4}(?:is|was|of|for|[:=])?[ \t]{0,4}[\"'(<]?)([A-Za-z0-9_+/=~.-]{16,})",
    re.IGNORECASE,
)


def mask_text(text: str) -> str:
    """Return a text with its secrets masked.

    Mask consecutive lines together: a private key of several lines is only recognized reliably with its
    first line.
    """
    masked = _mask_private_keys(text)
    masked = WEBHOOKS.sub(rf"\1{MASK}", masked)
    masked = _ADDRESSES.sub(_mask_address, masked)
    masked = TOKENS.sub(MASK, masked)
    masked = PASSWORD_HASHES.sub(MASK, masked)
    masked = PUBLIC_KEYS.sub(rf"\1{MASK}", masked)
    masked = _BEARERS.sub(_mask_bearer, masked)
    masked = _BASICS.sub(_mask_basic, masked)
    for login in _LOGINS:
        masked = login.sub(rf"\1{MASK}", masked)
    masked = _USERS.sub(_mask_user, masked)
    masked = _ELEMENTS.sub(_mask_element, masked)
    for fields in (_FIELDS, _SETTINGS):
        masked = fields.sub(_mask_field, masked)
    masked = _SENTENCES.sub(_mask_sentence, masked)
    return _mask_named(masked)


def mask_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return consecutive lines with their secrets masked, as many as there were.

    Args:
        lines: Lines without line breaks.
    """
    if not lines:
        return ()
    return tuple(mask_text("\n".join(line.replace("\n", " ") for line in lines)).split("\n"))


def mask_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line with their secrets masked, as many as there were.

    Recognizes `--password x`, `--token=x`, `-e HF_TOKEN=x`, `mysql -px` and
    `sh -c "KEY=x python train.py"`.
    """
    programs = frozenset(word.rpartition("/")[2] for word in words[:_MOST_PROGRAMS])
    masked = []
    previous = ""
    for word in words:
        masked.append(_mask_word(word, previous, programs))
        previous = word
    return tuple(masked)


def _mask_word(word: str, previous: str, programs: frozenset[str]) -> str:
    if not word.startswith("--") and _wants_secret(previous, programs):
        return MASK if word else word
    name, equals, value = word.partition("=")
    if equals and not _WORD_BREAKS.search(name) and _is_secret(name, value):
        return f"{mask_text(name)}={MASK}"
    if previous in {"-u", "--user", "--proxy-user"}:
        return mask_text(f"-u {word}")[len("-u ") :]
    if word.startswith("-p") and _PASSWORD_PROGRAMS & programs and word not in {"-p", "-p=***"}:
        return word if _PORTS.fullmatch(word[2:]) and ":" in word else f"-p{MASK}"
    if {"wandb", "login"} <= programs and is_random_word(word):
        return MASK
    return mask_text(word)


def _wants_secret(flag: str, programs: frozenset[str]) -> bool:
    if flag == "-p":
        return "sshpass" in programs or "login" in programs
    if flag == "-a":
        return "redis-cli" in programs
    if not flag.startswith("-") or "=" in flag or _WORD_BREAKS.search(flag):
        return False
    return find_rule(flag) not in _WEAK


def _is_secret(name: str, value: str) -> bool:
    rule = find_rule(name)
    return rule is not None and hides(rule, value)


def _mask_private_keys(text: str) -> str:
    begin = KEY_BEGINS.search(text)
    parts: list[str] = []
    done = 0
    while begin:
        following = KEY_BEGINS.search(text, begin.end())
        limit = following.start() if following else len(text)
        end = KEY_ENDS.search(text, begin.end(), limit)
        stop = end.start() if end else _find_end_of_key(text, begin.end(), limit)
        parts += (text[done : begin.end()], _mask_each_line(text[begin.end() : stop]))
        done = stop
        begin = following
    return KEY_LINES.sub(MASK, "".join(parts) + text[done:])


def _find_end_of_key(text: str, start: int, limit: int) -> int:
    match = KEY_BODY.match(text, start, limit)
    return match.end() if match else start


def _mask_each_line(body: str) -> str:
    return "\n".join(MASK if line.strip() else line for line in body.split("\n"))


def _mask_address(match: re.Match[str]) -> str:
    user, password = match["user"], match["password"]
    if password is None:
        return f"://{MASK}@" if len(user) >= _LONG_USER else match[0]
    if not password or _PORT_AND_PATH.match(password):
        return match[0]
    return f"://{user}:{MASK}@"


def _mask_bearer(match: re.Match[str]) -> str:
    token = match[2]
    is_token = len(token) >= _LONG_BEARER or any(character.isdigit() for character in token)
    return match[1] + MASK if is_token else match[0]


def _mask_basic(match: re.Match[str]) -> str:
    return match[1] + MASK if is_pair(match[2]) else match[0]


def _mask_user(match: re.Match[str]) -> str:
    before, user, password = match.groups()
    are_numbers = user.isdecimal() and password.isdecimal()  # as in `docker run -u 1000:1000`
    return match[0] if are_numbers else f"{before}{user}:{MASK}"


def _mask_element(match: re.Match[str]) -> str:
    return _mask_end(match, match[1], match[2])


def _mask_field(match: re.Match[str]) -> str:
    return _mask_end(match, match[2], match[5])


def _mask_sentence(match: re.Match[str]) -> str:
    return match[1] + MASK if is_random(match[2]) else match[0]


def _mask_end(match: re.Match[str], name: str, value: str) -> str:
    """Return a match with its end masked if that is the secret of a name."""
    return match[0][: -len(value)] + MASK if _is_secret(name, value) else match[0]


def _mask_named(text: str) -> str:
    parts: list[str] = []
    done = 0
    match = _NAMES.search(text)
    while match:
        rule = find_rule(match["name"])
        value = rule and _find_value(text, match, rule, done)
        if value:
            parts += (text[done : value.start("value")], MASK)
            done = value.end("value")
        match = _NAMES.search(text, done if value else match.end())
    return "".join(parts) + text[done:]


def _find_value(text: str, match: re.Match[str], rule: Rule, done: int) -> re.Match[str] | None:
    start = match.end()
    if ":" in (match["sign"] or "") and _REFUSAL.match(text, start):
        return None
    quoted = _QUOTED.match(text, start) or _ESCAPED.match(text, start)
    if match["sign"] is None:
        is_flag = match["name"].startswith("-") and not text.startswith("-", start)
        if not is_flag and not (quoted and rule is Rule.PASSWORD):
            return None
    value = quoted or _BARE[rule].match(text, start)
    if value is None or not hides(rule, value["value"]):
        return None
    if rule is Rule.TOKEN and not quoted:
        if text.startswith(("(", "["), value.end()):  # a call in a line of source
            return None
        is_prose = ":" in (match["sign"] or "") and _follows_word(text, match.start(), done)
        if is_prose and not is_random_word(value["value"]):
            return None
    return value


def _follows_word(text: str, start: int, done: int) -> bool:
    """Return whether a word that was not masked precedes, on the same line."""
    place = start - 1
    while place >= done and text[place] in " \t":
        place -= 1
    return done <= place < start - 1 and text[place].isalpha()


_WEAK = frozenset({None, Rule.VAGUE, Rule.NEAR, Rule.SERVICE})
_BARE = {
    Rule.LINE: _LINE,
    Rule.PASSWORD: _WIDE,
    Rule.TOKEN: _NARROW,
    Rule.VAGUE: _NARROW,
    Rule.NEAR: _NARROW,
    Rule.SERVICE: _NARROW,
}
