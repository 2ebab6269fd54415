"""TLS for the HTTP server: the TLS context and the transport of a connection.

This module is imported only if TLS is configured, because it imports `ssl`, which needs several MiB
of memory.
"""

from __future__ import annotations

import socket
import ssl
import warnings
from contextlib import suppress
from ipaddress import ip_address
from selectors import EVENT_READ, EVENT_WRITE
from typing import TYPE_CHECKING

from trainvitals.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from trainvitals.http.tls_settings import TLSSettings

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_CERTIFICATE = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
_ANSWER_TO_PLAIN_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 27\r\nConnection: close\r\n\r\nonly HTTPS is spoken here.\n"
)


def build_context(settings: TLSSettings) -> ssl.SSLContext:
    """Return the TLS context for the settings in `tls_server_config`.

    Raises:
        ConfigurationError: A file cannot be used, or OpenSSL does not support a setting.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    _set_curve(context, settings)
    if settings.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    # One session ticket is sufficient, because a client of the exporter resumes at most one session
    # at a time.
    context.num_tickets = 1
    _load_certificate(context, settings)
    _load_client_authority(context, settings)
    return context


def _set_versions(context: ssl.SSLContext, settings: TLSSettings) -> None:
    with warnings.catch_warnings():
        # Python warns about TLS 1.0 and 1.1, which the file enables intentionally.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = _VERSIONS[settings.min_version]
        context.maximum_version = _VERSIONS[settings.max_version]


def _set_ciphers(context: ssl.SSLContext, settings: TLSSettings) -> None:
    old = settings.min_version in ("TLS10", "TLS11")
    if not (settings.ciphers or old):
        return
    names = ":".join(settings.ciphers) or "DEFAULT:!aNULL:!eNULL"
    try:
        # OpenSSL 3 supports TLS 1.0 and 1.1 only at security level 0.
        context.set_ciphers(f"{names}:@SECLEVEL=0" if old else names)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{settings.where}.cipher_suites: this OpenSSL has none of them;"
            " remove the key to use its own choice"
        ) from error


def _set_curve(context: ssl.SSLContext, settings: TLSSettings) -> None:
    """Restrict the key exchange to the configured curve."""
    if settings.curve is None:
        return
    try:
        context.set_ecdh_curve(_CURVES[settings.curve])
    except (ValueError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"{settings.where}.curve_preferences: this Python cannot restrict TLS to"
            f" {settings.curve}; give another curve or remove the key"
        ) from error


def _load_certificate(context: ssl.SSLContext, settings: TLSSettings) -> None:
    _check_readable(settings.cert_file, f"{settings.where}.cert_file")
    _check_readable(settings.key_file, f"{settings.where}.key_file")
    try:
        # If no password is given, OpenSSL prompts for a passphrase on the terminal.
        context.load_cert_chain(settings.cert_file, settings.key_file, password=b"")
    except ssl.SSLError as error:
        reason = (
            "the key is not that of the certificate"
            if error.reason == "KEY_VALUES_MISMATCH"
            else "one of the two is not PEM, or the key has a passphrase"
        )
        raise ConfigurationError(
            f"{settings.where}: cannot use cert_file {settings.cert_file} with key_file"
            f" {settings.key_file}: {reason}; give a certificate and its key without a passphrase"
        ) from error


def _load_client_authority(context: ssl.SSLContext, settings: TLSSettings) -> None:
    context.verify_mode = _CLIENT_CERTIFICATE[settings.client_auth_type]
    if settings.client_ca_file is None:
        return
    where = f"{settings.where}.client_ca_file"
    _check_readable(settings.client_ca_file, where)
    try:
        context.load_verify_locations(settings.client_ca_file)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{where}: {settings.client_ca_file} holds no certificate; give a PEM file"
        ) from error


def _check_readable(path: Path, where: str) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"{where}: cannot read {path}: {error.strerror}; correct the path or its permissions"
        ) from error


class TLSTransport:
    """A TCP connection with TLS.

    OpenSSL's objects are created when the client's first byte arrives, so that a silent client uses
    no more memory than a client without TLS.

    Args:
        client: The accepted socket of the client.
        context: The TLS context of the server.
        allowed_sans: The accepted subject alternative names; the client's certificate must contain
            one of these names. None if any name is accepted.
    """

    __slots__ = ("_allowed_sans", "_client", "_context", "_said_goodbye", "_tls", "blocked_on")

    def __init__(
        self,
        client: socket.socket,
        context: ssl.SSLContext,
        allowed_sans: frozenset[str] | None = None,
    ) -> None:
        self._client = client
        self._context = context
        self._allowed_sans = allowed_sans
        self._tls: ssl.SSLSocket | None = None  # after the handshake
        self._said_goodbye = False
        self.blocked_on = EVENT_READ

    def receive(self, size: int) -> bytes | None:
        """Continue the TLS handshake, and then receive bytes from the client."""
        try:
            if self._tls is None:
                self._tls = self._shake()
            return self._tls.recv(size)
        except (ssl.SSLWantReadError, BlockingIOError):  # the latter occurs after the TLS session
            self.blocked_on = EVENT_READ
        except ssl.SSLWantWriteError:
            self.blocked_on = EVENT_WRITE
        return None

    def send(self, parts: list[memoryview]) -> int | None:
        """Send the first part, or one TLS record of this part, to the client."""
        try:
            return self._client.send(parts[0])
        except ssl.SSLWantWriteError:
            self.blocked_on = EVENT_WRITE
        except ssl.SSLWantReadError:
            self.blocked_on = EVENT_READ
        return None

    def finish(self) -> None:
        """End the TLS session and shut down the sending side."""
        self._say_goodbye()
        self._client.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the TLS session, if one was established, and close the socket."""
        self._say_goodbye()
        self._client.close()

    def _shake(self) -> ssl.SSLSocket:
        if not isinstance(self._client, ssl.SSLSocket):
            self._client = self._context.wrap_socket(
                self._client, server_side=True, do_handshake_on_connect=False
            )
        try:
            self._client.do_handshake()
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                _answer_in_the_clear(self._client)
            raise
        if self._allowed_sans is not None:
            _check_sans(self._client, self._allowed_sans)
        return self._client

    def _say_goodbye(self) -> None:
        if self._tls is None or self._said_goodbye:
            return
        self._said_goodbye = True
        # Send close_notify if possible, without waiting for the client's close_notify.
        with suppress(OSError, ValueError):
            self._tls.unwrap()


def _check_sans(client: ssl.SSLSocket, allowed: frozenset[str]) -> None:
    for entry in (client.getpeercert() or {}).get("subjectAltName", ()):
        kind, value = map(str, entry)
        if (str(ip_address(value)) if kind == "IP Address" else value) in allowed:
            return
    raise PermissionError("the client's certificate has none of client_allowed_sans")


def _answer_in_the_clear(client: socket.socket) -> None:
    with suppress(OSError):
        # The methods of the base class bypass TLS. The client's bytes are read, because closing the
        # socket with unread bytes could discard the response.
        socket.socket.send(client, _ANSWER_TO_PLAIN_HTTP)
        socket.socket.recv(client, 1 << 16)
