"""Masking of secrets in command lines, log lines, error messages and probe output.

A secret is replaced by `***`. Secrets are recognized in three ways:

- by form (`forms`): tokens with a known prefix, JSON web tokens, private keys, webhook URLs
- by position: `user:password@` in a URL, after `Bearer`, `wandb login`, `mysql -p` or `api key`
- by name (`names`): `password: x`, `--token x`, `"api_key": "x"`, `<password>x</password>`,
  `-e HF_TOKEN=x`; if the name only mentions a service or a word such as `access`, the value must
  also look random

Each kind of secret is also recognized if the secret is percent-encoded once or twice (`percent`).

Image digests, container IDs, commit hashes, UUIDs and paths are masked only if their names denote
secrets. A value that may be a password is masked. A value that may be a token of a language model
is not masked.

Masking takes linear time, is idempotent, preserves the number of lines, and makes a text at most
three times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from trainvitals.foreign_text import strip_escape_codes
from trainvitals.masking.forms import (
    KEY_BEGINS,
    KEY_ENDS,
    KEY_FIRST_LINE,
    KEY_LINE,
    KEY_LINES,
    PASSWORD_HASHES,
    PUBLIC_KEYS,
    TOKENS,
    WEBHOOKS,
)
from trainvitals.masking.names import Rule, find_rule, hides, is_pair, is_random, is_random_word
from trainvitals.masking.percent import mask_encoded
from trainvitals.masking.values import MASK, mask_values

__all__ = ["MASK", "mask_command", "mask_lines", "mask_text"]

_ADDRESSES = re.compile(
    r"://(?P<user>[^\s/@:'\"<>?#]{0,256})(?::(?P<password>(?:(?!://)[^\s'\"<>]){0,256}))?@"
)
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}/")
_LONG_USER = 16  # a user name of this length in a URL is considered a key
_LONG_BEARER = 24
_MOST_PROGRAMS = 16  # the number of words searched for a program name
_WEAK = frozenset({None, Rule.VAGUE, Rule.NEAR, Rule.SERVICE})
_PASSWORD_PROGRAMS = frozenset(
    ("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mariadb", "mariadb-dump", "sshpass")
)
_WORD_BREAKS = re.compile(r"[^\w.-]", re.ASCII)
_BEARERS = re.compile(r"\b(Bearer[ \t]+)([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_BASICS = re.compile(r"\b(Basic[ \t]+)([A-Za-z0-9+/_-]{4,}={0,2})", re.IGNORECASE)
_LOGINS = (
    re.compile(r"\b(wandb[ \t]+login[ \t]+(?:--[a-z-]+[ \t]+){0,4})([^\s'\"-][^\s'\"]{7,})"),
    re.compile(r"\b(login\s{1,40}[^\s]{1,128}\s{1,40}password[ \t]+)([^\s]+)"),  # as in ~/.netrc
    re.compile(r"^([ \t]*password[ \t]+)([^\s]+)(?=[ \t\r]*$)", re.MULTILINE),
    re.compile(r"\b(Secret(?:Str|Bytes)\([ \t]*b?)('[^'\n]*'|\"[^\"\n]*\")"),
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

_NO_WORDS = re.compile(r"(?:[0-9][^0-9]*){3}|[a-z][A-Z]|[A-Z]{2}[a-z]")
_PORTS = re.compile(r"[0-9.:-]+(?:/[a-z]+)?")
# A name and a value in an XML element, in two attributes or fields, or after a command.
_ELEMENTS = re.compile(r"<([A-Za-z][\w:.-]{0,60})(?:[ \t][^<>\n]{0,200})?>([^<>\n]+)(?=</)")
_FIELDS = re.compile(
    r"\b((?:name|key)[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?)([\w.-]{1,80})"
    r"([\"']?,?\s{1,40}[\"']?value[\"']?[ \t]{0,4}[=:][ \t]{0,4})([\"']?)([^\s\"'<>]+)"
)
_SETTINGS = re.compile(
    r"\b((?:config|configure)[ \t]{1,4}(?:--?[a-z]{1,20}[ \t]{1,4}){0,4}(?:set[ \t]{1,4})?|(?:ENV|setenv)[ \t]{1,4})([\w.-]{1,80})([ \t]{1,4})"
    r"([\"']?)([^\s\"']+)"
)
# A name and a value in a sentence: `api key 0123456789abcdef`, `the access token is "..."`.
_SENTENCES = re.compile(
    r"\b((?:api|access|auth|secret|private|service|bearer|account)[ _-]?(?:key|token|secret)\b"
    r"[\"']?[ \t]{0,4}(?:is|was|of|for|[:=])?[ \t]{0,4}[\"'(<]?)(?!-----)([A-Za-z0-9_+/=~.-]{16,})",
    re.IGNORECASE,
)


def mask_text(text: str) -> str:
    """Return a text with its secrets masked and terminal escape codes removed.

    Pass consecutive lines in one call: a private key that spans several lines is recognized
    reliably only together with its first line.
    """
    masked = _mask_plain(strip_escape_codes(text))
    decoded = mask_encoded(masked, _mask_plain)
    return masked if decoded == masked else _mask_plain(decoded)


def _mask_plain(text: str) -> str:
    masked = _mask_private_keys(text)
    masked = WEBHOOKS.sub(rf"\1{MASK}", masked)
    masked = _ADDRESSES.sub(_mask_address, masked)
    masked = TOKENS.sub(_mask_token, masked)
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
    return mask_values(masked)


def mask_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the same number of lines, with their secrets masked.

    Args:
        lines: Consecutive lines of a text, without line breaks.
    """
    if not lines:
        return ()
    return tuple(mask_text("\n".join(line.replace("\n", " ") for line in lines)).split("\n"))


def mask_command(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line, each with its secrets masked.

    Recognized forms include `--password x`, `--token=x`, `-e HF_TOKEN=x`, `mysql -px` and `sh -c
    "KEY=x python train.py"`.
    """
    words = [strip_escape_codes(word) for word in words]
    programs = frozenset(word.rpartition("/")[2] for word in words[:_MOST_PROGRAMS])
    masked = []
    previous = ""
    for word in words:
        shown = _mask_word(word, previous, programs)
        if shown != word and "%" in word:  # a secret may follow a percent-encoded name
            shown = _mask_word(shown, previous, programs)
        masked.append(shown)
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
        stop = end.start() if end else limit
        indent = begin.start() - text.rfind("\n", 0, begin.start()) - 1
        mask = _mask_each_line if end else partial(_mask_lines_of_key, indent=indent)
        parts += (text[done : begin.end()], mask(text[begin.end() : stop]))
        done = stop
        begin = following
    return KEY_LINES.sub(MASK, "".join(parts) + text[done:])


def _mask_lines_of_key(rest: str, indent: int) -> str:
    """Mask the lines of a private key that has no end marker.

    Each line may begin with a prefix of `indent` characters, such as the time of a log line.
    """
    first, *lines = rest.split("\n")
    masked = [KEY_FIRST_LINE.sub(_mask_line, first, count=1)]
    while lines:
        is_whole = KEY_LINE.fullmatch(lines[0])
        if not is_whole and not KEY_LINE.fullmatch(lines[0][indent:]):
            break
        masked.append(_mask_line_of_key(lines.pop(0), 0 if is_whole else indent))
    return "\n".join(masked + lines)


def _mask_line_of_key(line: str, indent: int) -> str:
    return line[:indent] + MASK if line[indent:].strip() else line


def _mask_line(match: re.Match[str]) -> str:
    return MASK if match[0].strip() else match[0]


def _mask_each_line(body: str) -> str:
    return "\n".join(MASK if line.strip() else line for line in body.split("\n"))


def _mask_token(match: re.Match[str]) -> str:
    """Mask a token, unless the match is part of a longer name such as `num_ops_per_second`."""
    is_inside = match.string[match.start() - 1 : match.start()] in {"_", "-"}
    return match[0] if is_inside and not _NO_WORDS.search(match[0]) else MASK


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
    are_numbers = user.isdecimal() and password.isdecimal()  # such as in `docker run -u 1000:1000`
    return match[0] if are_numbers else f"{before}{user}:{MASK}"


def _mask_element(match: re.Match[str]) -> str:
    return _mask_end(match, match[1], match[2])


def _mask_field(match: re.Match[str]) -> str:
    return _mask_end(match, match[2], match[5])


def _mask_sentence(match: re.Match[str]) -> str:
    return match[1] + MASK if is_random(match[2]) else match[0]


def _mask_end(match: re.Match[str], name: str, value: str) -> str:
    """Return a match's text, with the value at its end masked if the value is a secret."""
    return match[0][: -len(value)] + MASK if _is_secret(name, value) else match[0]
