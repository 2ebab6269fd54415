"""Taking secrets out of text: of command lines, log lines, errors and probe outputs.

What is found becomes `***`.
It is found in three ways:

- by its shape: tokens with a prefix of their own, JSON web tokens, private keys, webhook addresses
- by where it stands: `user:password@` in an address, behind `Bearer`, `wandb login` or `mysql -p`
- by its name: `password: x`, `--token x`, `"api_key": "x"`, `-e HF_TOKEN=x`

A name alone is not enough where training logs use the same word for something else:
`max_tokens=512`, `eos_token: </s>`, `tokenizer=bert` and `key: model.layers.0` stay whole.
So do digests of images, IDs of containers, hashes of commits, UUIDs and paths.
In doubt, what a person calls a password is masked and what a model calls a token is not.

The work is linear in the length of the text, masking twice changes nothing more, the number of
lines stays, and the result is at most three times as long.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from enum import Enum

MASK = "***"


def _list(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Each begins where no letter, digit, _ or - stands before, and each has one start in a run of such
# characters, so that nothing is looked at again and again.
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
    (?:hf|api_org|gh[pousr]|github_pat|npm|dckr_(?:pat|oat)|glsa|glc|gsk|rpa|r8|pscale_tkn|shpat
      |tvly|lsv2_[a-z]{2}|dop_v1|doo_v1|wandb_v1|[srp]k_(?:live|test|prod)|whsec|sbp|lin_api|pat)
      _[A-Za-z0-9_]{16,}
    |(?:gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)|nvapi|pypi|xai|tskey-[a-z]+|GOCSPX)
      -[A-Za-z0-9_.-]{16,}
    |sk-(?=[A-Za-z0-9_-]*[0-9])[A-Za-z0-9_-]{16,}
    |xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}
    |xapp-[A-Za-z0-9-]{8,}
    |(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])
    |AIza[A-Za-z0-9_-]{30,}
    |ya29\.[A-Za-z0-9_-]{16,}
    |SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
    |hv[sbr]\.[A-Za-z0-9_-]{16,}
    |(?:bot)?[0-9]{6,12}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])
    |eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)*
    |eyJ[A-Za-z0-9_+/-]{20,}={0,2}
    |AGE-SECRET-KEY-1[A-Z0-9]{16,}
    )""",
    re.VERBOSE,
)
_PASSWORD_HASHES = re.compile(r"\$(?:2[abxy]|[156y]|argon2[a-z]{1,2})\$[^\s:'\"]{20,}")
_PUBLIC_KEYS = re.compile(r"\b((?:ssh|ecdsa|sk)-[a-z0-9@.-]{2,40} )AAAA[A-Za-z0-9+/=]{16,}")
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = re.compile(r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
# What follows a beginning without an end: the rest of its line, then lines of base64 and headers.
_KEY_BODY = re.compile(
    r"[^\n\"']*(?:\n(?:[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]+: [^\n]*|[ \t\r]*)(?=\n|$))*"
)
# A line of a key whose beginning was cut off: base64 alone, in both cases.
_KEY_LINES = re.compile(
    r"^(?=[^\na-z]*[a-z])(?=[^\nA-Z]*[A-Z])(?=[^\n0-9]*[0-9])[A-Za-z0-9+/]{60,76}={0,2}$",
    re.MULTILINE,
)
_WEBHOOKS = re.compile(
    r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/"
    r"|webhook\.office\.com/webhookb2/"
    r"|outlook\.office(?:365)?\.com/webhook/"
    r"|chat\.googleapis\.com/v1/spaces/"
    r"|hc-ping\.com/|oapi\.dingtalk\.com/robot/send\?"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/"
    r"|logic\.azure\.com(?::[0-9]{1,5})?/workflows/)[^\s'\"<>]+",
    re.IGNORECASE,
)
_ADDRESSES = re.compile(
    r"://(?P<user>[^\s/@:'\"<>?#]{0,256})(?::(?P<password>[^\s'\"<>]{0,256}))?@"
)
_PORT_AND_PATH = re.compile(r"[0-9]{1,5}/")
_LONG_USER = 16  # a name that long before the @ of an address is a key
_LONG_BEARER = 24
_MOST_PROGRAMS = 16  # words in which a program's name is looked for
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

# A name, and what stands between it and its value.
_NAMES = re.compile(
    r"(?<![\w.-])(?=(?P<name>[\w.-]+))(?P=name)"  # possessive, so that nothing is tried twice
    r"(?:(?P<sign>(?:\\*[\"'])?\]?[ \t]*(?:=>|:=|==|=|:)[ \t]*)|(?P<space>[ \t]+))",
    re.ASCII,
)
_QUOTED = re.compile(r"[bru]?(?P<mark>[\"'])(?P<value>(?:\\.|(?!(?P=mark))[^\n\\])*)")
_ESCAPED = re.compile(r"[bru]?\\+[\"'](?P<value>[^\"'\n\\]*)")
_WIDE = re.compile(r"(?P<value>[^\s\"'`]+)")
_NARROW = re.compile(r"(?P<value>[^\s\"'`&;,(){}\[\]<>\\|]+)")
_LINE = re.compile(r"(?P<value>[^\n\"']+)")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.ASCII)
_RANDOM = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+/=~%-]{16,}")
# What an operating system says of a file that is called so.
_REFUSAL = re.compile(
    r"(?:permission denied|no such file|file exists|is a directory|not a directory|read-only file"
    r"|operation not permitted|input/output error|no space left)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?[0-9]{1,6}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?%?")
_PORTS = re.compile(r"[0-9.:-]+(?:/[a-z]+)?")
_SPECIAL = re.compile(r"<.*>|\[.*\]")
_NO_VALUE = _list("none null nil true false undefined str string optional bytes not missing")
_ALWAYS = _list("password passwd passphrase passwort pwd secret secrets pgpassword sshpass apikey")
_HARMLESS_ENDS = _list(
    "file files path dir directory length len policy name arn count type prompt field reset "
    "required env enabled manager store expiry age url uri version min max mode class"
)
_TOKENS = re.compile(
    "(?:access|auth|refresh|id|identity|api|bearer|session|bot|hf|csrf|xsrf|oauth|user)?token|jwt"
)
_MODEL_TOKENS = _list(
    "pad eos bos unk sep cls mask special next image video audio start end stop first last prev "
    "previous per begin each current new prompt max min added additional control fim prefix suffix "
    "middle boi eoi eot sot blank space padding unknown separator class tool think word text "
    "decoder encoder input output generated predicted target num total nl newline"
)
_KEYS = re.compile("(?:access|secret|private|account|auth|master|shared|encryption|license)key")
_SECRET_KEYS = _list(
    "api access secret private account auth encryption encrypt signing sign shared master license "
    "licence ssh storage session deploy service client subscription wandb kaggle openai hf "
    "anthropic comet neptune admin app application function user registration consumer webhook "
    "gpg pgp rsa tls ssl jwt hmac aes fernet django flask"
)
_HARMLESS_KEYS = _list(
    "public primary sort partition foreign cache group order metric config dict state"
)
_PASSES = _list("db user smtp mysql pg redis admin root ftp mail http proxy ssh")
_VAGUE = _list("key auth sig creds credential credentials signature")


class _Manner(Enum):
    """How the value behind a name is looked at."""

    LINE = "the rest of the line"
    PASSWORD = "whatever it is"  # noqa: S105 - no password
    TOKEN = "unless it is a number, a word of a model or prose"  # noqa: S105 - no password
    VAGUE = "only where it looks random"


def mask_text(text: str) -> str:
    """Mask the secrets in a text of one line or many.

    Lines that belong together are better masked together: a private key over several lines is
    found surely only with its first line.
    """
    masked = _mask_private_keys(text)
    masked = _WEBHOOKS.sub(rf"\1{MASK}", masked)
    masked = _ADDRESSES.sub(_mask_address, masked)
    masked = _SHAPES.sub(MASK, masked)
    masked = _PASSWORD_HASHES.sub(MASK, masked)
    masked = _PUBLIC_KEYS.sub(rf"\1{MASK}", masked)
    masked = _BEARERS.sub(_mask_bearer, masked)
    masked = _BASICS.sub(_mask_basic, masked)
    for login in _LOGINS:
        masked = login.sub(rf"\1{MASK}", masked)
    masked = _USERS.sub(_mask_user, masked)
    return _mask_named(masked)


def mask_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Mask the secrets in lines that follow on each other, and give as many.

    Args:
        lines: Lines without their ends.
    """
    if not lines:
        return ()
    return tuple(mask_text("\n".join(line.replace("\n", " ") for line in lines)).split("\n"))


def mask_command(words: Sequence[str]) -> tuple[str, ...]:
    """Mask the secrets in the words of a command line, and give as many.

    `--password x`, `--token=x`, `-e HF_TOKEN=x`, `mysql -px` and `sh -c "KEY=x python train.py"`
    are understood.
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
        return f"{name}={MASK}"
    if previous in {"-u", "--user", "--proxy-user"}:
        return mask_text(f"-u {word}")[len("-u ") :]
    if word.startswith("-p") and _PASSWORD_PROGRAMS & programs and word not in {"-p", "-p=***"}:
        return word if _PORTS.fullmatch(word[2:]) and ":" in word else f"-p{MASK}"
    if {"wandb", "login"} <= programs and _RANDOM.fullmatch(word):
        return MASK
    return mask_text(word)


def _wants_secret(flag: str, programs: frozenset[str]) -> bool:
    if flag == "-p":
        return "sshpass" in programs or "login" in programs
    if flag == "-a":
        return "redis-cli" in programs
    if not flag.startswith("-") or "=" in flag or _WORD_BREAKS.search(flag):
        return False
    return _find_manner(flag) not in {None, _Manner.VAGUE}


def _is_secret(name: str, value: str) -> bool:
    manner = _find_manner(name)
    return manner is not None and _hides(manner, value)


def _mask_private_keys(text: str) -> str:
    begin = _KEY_BEGINS.search(text)
    parts: list[str] = []
    done = 0
    while begin:
        following = _KEY_BEGINS.search(text, begin.end())
        limit = following.start() if following else len(text)
        end = _KEY_ENDS.search(text, begin.end(), limit)
        stop = end.start() if end else _find_end_of_key(text, begin.end(), limit)
        parts += (text[done : begin.end()], _mask_each_line(text[begin.end() : stop]))
        done = stop
        begin = following
    return _KEY_LINES.sub(MASK, "".join(parts) + text[done:])


def _find_end_of_key(text: str, start: int, limit: int) -> int:
    match = _KEY_BODY.match(text, start, limit)
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
    return match[1] + MASK if _is_pair(match[2]) else match[0]


def _is_pair(text: str) -> bool:
    """Tell whether a text is `user:password` in base64."""
    try:
        return b":" in base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False


def _mask_user(match: re.Match[str]) -> str:
    before, user, password = match.groups()
    are_numbers = user.isdecimal() and password.isdecimal()  # as in `docker run -u 1000:1000`
    return match[0] if are_numbers else f"{before}{user}:{MASK}"


def _mask_named(text: str) -> str:
    parts: list[str] = []
    done = 0
    match = _NAMES.search(text)
    while match:
        manner = _find_manner(match["name"])
        value = manner and _find_value(text, match, manner, done)
        if value:
            parts += (text[done : value.start("value")], MASK)
            done = value.end("value")
        match = _NAMES.search(text, done if value else match.end())
    return "".join(parts) + text[done:]


def _find_value(
    text: str, match: re.Match[str], manner: _Manner, done: int
) -> re.Match[str] | None:
    start = match.end()
    if ":" in (match["sign"] or "") and _REFUSAL.match(text, start):
        return None
    quoted = _QUOTED.match(text, start) or _ESCAPED.match(text, start)
    if match["sign"] is None:
        is_flag = match["name"].startswith("-") and not text.startswith("-", start)
        if not is_flag and not (quoted and manner is _Manner.PASSWORD):
            return None
    value = quoted or _BARE[manner].match(text, start)
    if value is None or not _hides(manner, value["value"]):
        return None
    if manner is _Manner.TOKEN and not quoted:
        if text.startswith(("(", "["), value.end()):  # a call in a line of source
            return None
        is_prose = ":" in (match["sign"] or "") and _follows_word(text, match.start(), done)
        if is_prose and not _RANDOM.fullmatch(value["value"]):
            return None
    return value


def _follows_word(text: str, start: int, done: int) -> bool:
    """Tell whether a word stands before, on the same line, that was not masked itself."""
    place = start - 1
    while place >= done and text[place] in " \t":
        place -= 1
    return done <= place < start - 1 and text[place].isalpha()


def _hides(manner: _Manner, value: str) -> bool:
    """Tell whether a value is to be masked."""
    if not value or value == MASK or value.lower() in _NO_VALUE:
        return False
    if manner is _Manner.VAGUE:
        return _RANDOM.fullmatch(value) is not None or _is_pair(value)
    if manner is _Manner.TOKEN:
        return not _NUMBER.fullmatch(value) and not _SPECIAL.fullmatch(value)
    return True


def _find_manner(name: str) -> _Manner | None:
    """Tell how the value of a name is looked at; None where the name says nothing of a secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    last = words[-1] if words else ""
    before = words[-2] if len(words) > 1 else ""
    if last in {"authorization", "cookie"}:
        return _Manner.LINE
    if not _ALWAYS.isdisjoint(words) and last not in _HARMLESS_ENDS:
        return _Manner.PASSWORD
    if last == "pass" and (before in _PASSES or (before and name.isupper())):
        return _Manner.PASSWORD
    if "webhook" in words and last in {"webhook", "url"}:
        return _Manner.PASSWORD
    is_token = _TOKENS.fullmatch(last) and before not in _MODEL_TOKENS
    is_key = _KEYS.fullmatch(last) or (last == "key" and _is_secret_key(name, before))
    is_other = (last == "pat" and name.isupper() and before) or (
        last == "signature" and before in {"access", "amz"}
    )
    if is_token or is_key or is_other:
        return _Manner.TOKEN
    return _Manner.VAGUE if last in _VAGUE and (not before or last != "key") else None


def _is_secret_key(name: str, before: str) -> bool:
    return before in _SECRET_KEYS or bool(
        before and name.isupper() and before not in _HARMLESS_KEYS
    )


_BARE = {
    _Manner.LINE: _LINE,
    _Manner.PASSWORD: _WIDE,
    _Manner.TOKEN: _NARROW,
    _Manner.VAGUE: _NARROW,
}
