"""The web configuration file: TLS, basic authentication and response headers.

The file has the format of the exporter-toolkit, which many Prometheus exporters use. Therefore a
file for another exporter can be reused. Settings that Python's `ssl` module does not support are
rejected.

    tls_server_config:
      cert_file, key_file           PEM; paths are relative to this file
      client_auth_type              NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert
      client_ca_file                PEM; the certificate authority of clients
      client_allowed_sans           names; a client's certificate must contain one
      min_version, max_version      TLS10 to TLS13; TLS12 and TLS13 by default
      cipher_suites                 Go's names; for TLS 1.2 and older
      curve_preferences             one of CurveP256, CurveP384, CurveP521, X25519
      prefer_server_cipher_suites   true by default
    http_server_config:
      http2                         accepted but ignored: only HTTP/1.1 is supported
      headers                       some security headers for every response
    basic_auth_users:
      NAME: a bcrypt hash of the password
"""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError
from trainvitals.foreign_files import open_regular, read_named
from trainvitals.http.tls_settings import (
    CLIENT_AUTH_TYPES,
    VERSIONS,
    TLSSettings,
    read_tls_settings,
)
from trainvitals.yamlfile import MOST_BYTES, Section, load_yaml

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
    """The parsed content of a web configuration file.

    Attributes:
        tls: The TLS settings; None if TLS is not configured.
        headers: The headers that are added to every response.
        users: The bcrypt hash of each user's password; empty if authentication is not configured.
    """

    tls: TLSSettings | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, str] = field(default_factory=dict)


def read_web_config(path: Path) -> WebConfig:
    """Read a web configuration file.

    Raises:
        ConfigurationError: The file cannot be read, is invalid or uses an unsupported setting.
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
        _LOG.info("%s.http2 has no effect: only HTTP/1.1 is supported", section.where)
    headers = section.take_section("headers")
    section.finish()
    values = headers.take_strings_by_name() if headers else {}
    for name, value in values.items():
        _check_header(section, name, value)
    return tuple((name, value) for name, value in values.items() if value)


def _check_header(section: Section, name: str, value: str) -> None:
    key = f"headers.{name}"
    if name not in _HEADERS:
        raise section.refuse(key, f"this header cannot be set; supported are {', '.join(_HEADERS)}")
    if _HEADERS[name] and value not in ("", *_HEADERS[name]):
        raise section.refuse(key, f"{value} is not one of {', '.join(_HEADERS[name])}")
    if not _HEADER_VALUE.fullmatch(value):
        raise section.refuse(
            key, "a header cannot have line breaks or characters that are not Latin-1"
        )


def _read_users(section: Section | None) -> dict[str, str]:
    users = section.take_strings_by_name() if section else {}
    for name, hashed in users.items():
        if section and not _BCRYPT_HASH.fullmatch(hashed):
            raise section.refuse(
                name, "this is not a bcrypt hash; create one with `htpasswd -nBC 10 NAME`"
            )
        if section and ":" in name:
            raise section.refuse(name, "a user's name cannot have a colon; choose another")
    return users


def find_opening(before: WebConfig, after: WebConfig) -> str | None:
    """Return why a configuration change requires a restart; None if no restart is required.

    A truncated file is often valid but lacks settings that protect the exporter. A change that
    removes protection therefore requires a restart, so that protection is not removed by accident.
    """
    if (before.tls is None) != (after.tls is None):
        return "TLS can only be turned on or off by a restart"
    if before.users and not after.users:
        return "passwords can only be turned off by a restart"
    if before.tls is None or after.tls is None:
        return None
    if _rank(after.tls) < _rank(before.tls):
        return "less can only be asked of client certificates after a restart"
    if VERSIONS.index(after.tls.min_version) < VERSIONS.index(before.tls.min_version):
        return "older versions of TLS can only be accepted after a restart"
    return None


def _rank(tls: TLSSettings) -> tuple[int, bool]:
    """Return the strictness of the client certificate check; a higher value is a stricter check."""
    return CLIENT_AUTH_TYPES.index(tls.client_auth_type), tls.client_allowed_sans is not None


class WebConfigFile:
    """A web configuration file that is reloaded after the file or a certificate has changed.

    A change is not applied if the new file is invalid, turns TLS on or off, weakens TLS or removes
    all users.

    Args:
        path: The path of the web configuration file.
        clock: A function that returns the time of a monotonic clock, in seconds.

    Attributes:
        config: The configuration that is in force.
        context: The TLS context that is in force; None if TLS is not configured.
        complaint: The reason why the current content of the file is not in force; None if it is in
            force.

    Raises:
        ConfigurationError: The file cannot be read, is invalid or uses an unsupported setting.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._checked = clock()
        self.complaint: str | None = None
        self.config, self.context, self._seen = self._read()
        _require_content(path, self.config)
        if self.context is None and not self.config.users:
            _LOG.warning("%s has neither TLS nor passwords", path)

    def refresh(self) -> None:
        """Reload the file if it or a certificate has changed; check at most once a second.

        A rejected change is logged once, and the previous configuration stays in force.
        """
        now = self._clock()
        if now - self._checked < _CHECK_SECONDS:
            return
        self._checked = now
        if self.complaint is None and self._seen == _identify_all(self._path, self.config):
            return
        try:
            config, context, seen = self._read()
        except ConfigurationError as error:
            self._complain(str(error))
            return
        if opening := find_opening(self.config, config):
            self._complain(f"{self._path}: {opening}")
            return
        if self.complaint is not None:
            _LOG.info("%s is in force again", self._path)
        self.complaint = None
        self.config, self.context, self._seen = config, context, seen

    def reload(self) -> None:
        """Reload the file even if it has not changed.

        If the content is rejected, the reason is logged again.
        """
        self.complaint = None
        self._seen = ()
        self._checked = -math.inf
        self.refresh()
        if self.complaint is None:
            _LOG.info("%s was read again", self._path)

    def _complain(self, complaint: str) -> None:
        kept = f"{complaint} (the previous configuration stays in force)"
        if kept != self.complaint:
            self.complaint = kept
            _LOG.error("%s", kept)

    def _read(self) -> tuple[WebConfig, ssl.SSLContext | None, _Identities]:
        # The state of the file is determined before the file is read, so that the next check
        # detects a change in between.
        before = _identify(self._path)
        config = read_web_config(self._path)
        seen = (before, *_identify_all(self._path, config)[1:])
        if config.tls is None:
            return config, None, seen
        from trainvitals.http.tls import build_context  # noqa: PLC0415 - it imports ssl

        _require_files(config.tls)
        return config, build_context(config.tls), seen


def _require_content(path: Path, config: WebConfig) -> None:
    """Check that a file without settings is intentional, and not the result of a full disk.

    Raises:
        ConfigurationError: The file contains only white space, or cannot be read.
    """
    if config != WebConfig():
        return
    try:
        content = read_named(path, MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    if not content.strip():
        raise ConfigurationError(
            f"{path}: the file is empty; restore it, or write {{}} for neither TLS nor passwords"
        )


def _require_files(tls: TLSSettings) -> None:
    """Check that no certificate or key file is a pipe, because OpenSSL would wait for a writer.

    Raises:
        ConfigurationError: A certificate or key is not a regular file.
    """
    try:
        for file in filter(None, (tls.cert_file, tls.key_file, tls.client_ca_file)):
            os.close(open_regular(str(file)))
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error


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
