"""Names whose values are secrets, such as `password`, `HF_TOKEN` or `client-key-data`.

Training logs use some of these words with another meaning, as in `max_tokens=512`,
`eos_token: </s>` or `key: model.layers.0`. If a name merely contains a word that is related to
secrets, or the name of a service, the value is masked only if it also looks random.
"""

from __future__ import annotations

import base64
import binascii
import re
from enum import Enum
from functools import lru_cache
from operator import ne


def _list(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", re.ASCII)
_RANDOM = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+/=~%-]{16,}")
_NUMBER = re.compile(r"[-+]?[0-9]{1,6}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?%?")
_SPECIAL = re.compile(r"<.*>|\[.*\]")
_STARS_AND_DOTS = "*.…"  # placeholders for a value
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
# If a name contains one of these words or the name of a service, the value is masked only if it is
# very likely random.
_NEAR = _list("access auth api key cred creds credential credentials token session sessionid")
_SERVICES = re.compile(
    "(?<![a-z])(?:adafruit|airtable|algolia|alibaba|aliyun|artifactory|asana|atlassian|beamer|bintray"
    "|bitbucket|bittrex|cloudant|cloudflare|codecov|cohere|coinbase|confluen|contentful|databricks"
    "|datadog|digitalocean|discord|drone_?ci|dropbox|etsy|facebook|fastly|finicity|finnhub|flickr"
    "|freshbooks|gitlab|gitter|gocardless|heroku|hubspot|ibm_?(?:cloud|cos|iam)|intercom|jfrog|jira|kraken"
    "|kucoin|launchdarkly|linked_?in|lob(?![a-z])|mailchimp|mailgun|mapbox|mattermost|meraki"
    "|message_?bird|netlify|new_?relic|newyorktimes|nytimes|okta|plaid|private_?ai|rapidapi|sendbird"
    "|sentry|shopify|snyk|softlayer|sonar|squarespace|stripe|sumo_?logic|telegram|travis|twilio"
    "|twitch|twitter|typeform|yandex|zendesk)"
)
_NO_SECRETS = _HARMLESS_ENDS | _list(
    "id ids hash sha digest checksum fingerprint commit revision event trace span model dataset "
    "image tag host hostname port region bucket public pub user username log logs"
)
_LONGEST_KNOWN = 64  # the number of characters of a name whose rule is kept
_LEAST_RANDOM = 14
_LEAST_DIGITS = 2
_FEW_SWITCHES = 3
_LEAST_SWITCHES = 0.25  # the minimum share of pairs of unlike neighbors; 0.2 for words
_KINDS = str.maketrans(
    {
        **dict.fromkeys("0123456789", "0"),
        **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", "a"),
        **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "A"),
        **dict.fromkeys("-_+/=.~%|", None),
    }
)
_STANDARD = str.maketrans("-_", "+/")  # from the base64 alphabet for URLs
_FIRST_PRINTABLE = 0x20
_LONG_RUN = re.compile(r"[A-Za-z0-9]{12}")
_RUNS = re.compile(r"[A-Za-z0-9]{14,}")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class Rule(Enum):
    """A rule that determines whether the value of a name is masked."""

    LINE = "the rest of the line"
    PASSWORD = "any value"  # noqa: S105 - no password
    TOKEN = "unless it is a number, a token of a model or prose"  # noqa: S105 - no password
    VAGUE = "only if it looks random"
    NEAR = "only if it is hardly anything but random"
    SERVICE = "only if a part of it looks random, or if it is a UUID"


def find_rule(name: str) -> Rule | None:
    """Return the rule for a name's value; None if the name does not denote a secret."""
    return _find_known_rule(name) if len(name) <= _LONGEST_KNOWN else _determine_rule(name)


@lru_cache(maxsize=512)
def _find_known_rule(name: str) -> Rule | None:
    # The same few names occur on most lines of a log. Long names would take too much memory.
    return _determine_rule(name)


def _determine_rule(name: str) -> Rule | None:
    words = [word.lower() for word in _WORDS.findall(name)]
    last = words[-1] if words else ""
    before = words[-2] if len(words) > 1 else ""
    if last in {"authorization", "cookie"}:
        return Rule.LINE
    if _is_password(words, last, before, is_constant=name.isupper()):
        return Rule.PASSWORD
    if _is_token(name, last, before):
        return Rule.TOKEN
    if last in _VAGUE and (not before or last != "key"):
        return Rule.VAGUE
    return None if last in _NO_SECRETS or before in _HARMLESS_KEYS else _find_weak_rule(name, words)


def _find_weak_rule(name: str, words: list[str]) -> Rule | None:
    if _SERVICES.search(name.lower().replace("-", "_")):
        return Rule.SERVICE
    return None if _NEAR.isdisjoint(words) else Rule.NEAR


def _is_password(words: list[str], last: str, before: str, *, is_constant: bool) -> bool:
    if not _ALWAYS.isdisjoint(words) and last not in _HARMLESS_ENDS:
        return True
    if last == "pass" and (before in _PASSES or (before and is_constant)):
        return True
    return "webhook" in words and last in {"webhook", "url"}


def _is_token(name: str, last: str, before: str) -> bool:
    is_constant = name.isupper()
    if last == "key":
        is_other = is_constant and before and before not in _HARMLESS_KEYS
        return before in _SECRET_KEYS or bool(is_other)
    return bool(
        (_TOKENS.fullmatch(last) and before not in _MODEL_TOKENS)
        or _KEYS.fullmatch(last)
        or (last == "data" and before == "key")  # such as in a kubeconfig
        or (last == "pat" and is_constant and before)
        or (last == "signature" and before in {"access", "amz"})
    )


def hides(rule: Rule, value: str) -> bool:
    """Return whether a value must be masked according to a rule."""
    if not value.strip(_STARS_AND_DOTS) or value.lower() in _NO_VALUE:
        return False
    match rule:
        case Rule.VAGUE:
            return is_random_word(value) or is_pair(value)
        case Rule.NEAR:
            return is_random(value) and not _UUID.fullmatch(value)
        case Rule.SERVICE:
            return bool(_UUID.fullmatch(value)) or any(map(_is_random_run, _RUNS.findall(value)))
        case Rule.TOKEN:
            return not _NUMBER.fullmatch(value) and not _SPECIAL.fullmatch(value)
        case _:
            return True


def is_random_word(value: str) -> bool:
    """Return whether a value is a single long word with letters and several digits."""
    return _RANDOM.fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Return whether a value is very likely random: digits, upper and lower case alternate often.

    Model names, file names, versions and times consist of words and numbers, in which they rarely
    alternate. A path is not considered random.
    """
    if value.startswith(("/", "~", ".")) or "://" in value or not _LONG_RUN.search(value):
        return False
    kinds = value.translate(_KINDS)
    if len(kinds) < _LEAST_RANDOM or kinds.strip("0aA") or kinds.count("0") < _LEAST_DIGITS:
        return False
    return _count_switches(kinds) >= _LEAST_SWITCHES * len(kinds)


def _is_random_run(run: str) -> bool:
    kinds = run.translate(_KINDS)
    return "0" in kinds and bool(kinds.strip("0")) and _count_switches(kinds) >= _FEW_SWITCHES


def _count_switches(kinds: str) -> int:
    return sum(map(ne, kinds, kinds[1:]))


def is_pair(text: str) -> bool:
    """Return whether a text is `user:password` in standard or URL-safe base64, padded or not."""
    letters = text.translate(_STANDARD).rstrip("=")
    try:
        data = base64.b64decode(letters + "=" * (-len(letters) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in data and min(data) >= _FIRST_PRINTABLE
