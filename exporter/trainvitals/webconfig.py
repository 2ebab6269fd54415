"""The web configuration file: TLS, basic authentication and response headers.

Its format is the one that Prometheus exporters share (exporter-toolkit's web configuration), so
a file written for another exporter serves here too. Whatever Python's TLS cannot do is refused
rather than done by halves.

    tls_server_config:
      cert_file, key_file           PEM; paths are relative to this file
      client_auth_type              NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert
      client_ca_file                PEM; who signs the certificates of clients
      client_allowed_sans           names of which a client's certificate must bear one
      min_version, max_version      TLS10 to TLS13; TLS12 and TLS13 unless given
      cipher_suites                 Go's names; they apply up to TLS 1.2
      curve_preferences             one of CurveP256, CurveP384, CurveP521, X25519
      prefer_server_cipher_suites   true unless given
    http_server_config:
      http2                         taken, and without effect: HTTP/1.1 is spoken
      headers                       some security headers for every response
    basic_auth_users:
      NAME: a bcrypt hash of the password
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError
from trainvitals.tlssettings import TLSSettings, read_tls_settings
from trainvitals.yamlfile import Section, load_yaml

if TYPE_CHECKING:
    import ssl

_LOG = logging.getLogger(__name__)
_CHECK_SECONDS = 1.0
_BCRYPT_HASH = re.compile(r"\$2[aby]?\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_Identity = tuple[int, int, int]
_Identities = tuple[_Identity | None, ...]


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What a web configuration file says.

    Attributes:
        tls: How TLS is spoken; None where it is not.
        headers: What every response carries besides its own headers.
        users: The bcrypt hash of each user's password; empty where nobody has to log in.
    """

    tls: TLSSettings | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)


def read_web_config(path: Path) -> WebConfig:
    """Read a web configuration file.

    Raises:
        ConfigurationError: It cannot be read, or says what cannot be done.
    """
    content = load_yaml(path, flag="--web.config.file")
    if content is None:
        return WebConfig()
    file = Section(str(path), content)
    config = WebConfig(
        tls=read_tls_settings(file.take_section("tls_server_config"), path.parent),
        headers=_read_headers(file.take_section("http_server_config")),
        users=_read_users(file.take_section("basic_auth_users")),
    )
    file.finish()
    return config


def _read_headers(section: Section | None) -> tuple[tuple[str, str], ...]:
    if section is None:
        return ()
    if section.take("http2", bool, "true or false"):
        _LOG.info("%s.http2 has no effect: HTTP/1.1 is spoken", section.where)
    headers = section.take_section("headers")
    section.finish()
    values = headers.take_strings_by_name() if headers else {}
    for name, value in values.items():
        _check_header(section, name, value)
    return tuple((name, value) for name, value in values.items() if value)


def _check_header(section: Section, name: str, value: str) -> None:
    key = f"headers.{name}"
    if name not in _HEADERS:
        raise section.refuse(key, f"this header cannot be set; the choice is {', '.join(_HEADERS)}")
    if _HEADERS[name] and value not in ("", *_HEADERS[name]):
        raise section.refuse(key, f"{value} is none of {', '.join(_HEADERS[name])}")
    if not _HEADER_VALUE.fullmatch(value):
        raise section.refuse(key, "a header cannot carry line breaks or such characters")


def _read_users(section: Section | None) -> dict[str, str]:
    users = section.take_strings_by_name() if section else {}
    for name, hashed in users.items():
        if section and not _BCRYPT_HASH.fullmatch(hashed):
            raise section.refuse(
                name, "this is no bcrypt hash; make one with `htpasswd -nBC 10 NAME`"
            )
        if section and ":" in name:
            raise section.refuse(name, "a user's name cannot have a colon; choose another")
    return users


class WebConfigFile:
    """A web configuration file that is read again when it, or a certificate it names, changes.

    Args:
        path: The file.
        clock: A time in seconds that never goes back.

    Attributes:
        config: What it says, or what it said when it was last right.
        context: How TLS is spoken; None where it is not.

    Raises:
        ConfigurationError: It cannot be read, or says what cannot be done.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._checked = clock()
        self._complaint = ""
        self.config, self.context, self._seen = self._read()

    def refresh(self) -> None:
        """Read again what has changed, looking at most once a second.

        A change that is not right is logged once, and what was said before stays in force.
        """
        now = self._clock()
        if now - self._checked < _CHECK_SECONDS:
            return
        self._checked = now
        if not self._complaint and self._seen == _identify_all(self._path, self.config):
            return
        try:
            config, context, seen = self._read()
        except ConfigurationError as error:
            self._complain(str(error))
            return
        if (context is None) != (self.context is None):
            self._complain(
                f"{self._path}: TLS is switched on and off at a start alone; start again"
            )
            return
        self._complaint = ""
        self.config, self.context, self._seen = config, context, seen

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            _LOG.error("%s (what was said before stays in force)", complaint)

    def _read(self) -> tuple[WebConfig, ssl.SSLContext | None, _Identities]:
        # Looked at before it is read, so that a change in between is seen the next time.
        before = _identify(self._path)
        config = read_web_config(self._path)
        seen = (before, *_identify_all(self._path, config)[1:])
        if config.tls is None:
            return config, None, seen
        from trainvitals.tls import build_context  # noqa: PLC0415 - it imports ssl

        return config, build_context(config.tls), seen


def _identify_all(path: Path, config: WebConfig) -> _Identities:
    tls = config.tls
    certificates = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
    return tuple(_identify(file) for file in (path, *certificates) if file)


def _identify(path: Path) -> _Identity | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
