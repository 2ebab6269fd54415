"""The TLS settings in the web configuration file, with the names that Python and OpenSSL use.

This module does not import `ssl`. The module `trainvitals.http.tls` imports `ssl`, and is imported
only if TLS is configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainvitals.yamlfile import Section

VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
_CURVES = ("CurveP256", "CurveP384", "CurveP521", "X25519")
CLIENT_AUTH_TYPES = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
_UNVERIFIED_CLIENT_AUTH_TYPES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_TLS13_CIPHERS = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}


@dataclass(frozen=True, slots=True)
class TLSSettings:
    """The settings in `tls_server_config`.

    Attributes:
        where: The path of the file and the name of the section, for error messages.
        cert_file: The path of the certificate with its chain.
        key_file: The path of the certificate's private key.
        client_ca_file: The path of the certificate authority for client certificates; None if
            clients need no certificate.
        client_auth_type: Whether clients must present a certificate.
        client_allowed_sans: The accepted subject alternative names; a client's certificate must
            contain one of these names. None if any name is accepted.
        min_version: The oldest accepted TLS version.
        max_version: The newest accepted TLS version.
        ciphers: OpenSSL's names of the cipher suites up to TLS 1.2; empty for the default cipher
            suites.
        curve: The only curve for the key exchange; None for the default curves.
        prefer_server_cipher_suites: Whether the server's order of cipher suites has precedence.
    """

    where: str
    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: str = "NoClientCert"
    client_allowed_sans: frozenset[str] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    ciphers: tuple[str, ...] = ()
    curve: str | None = None
    prefer_server_cipher_suites: bool = True


def read_tls_settings(section: Section | None, directory: Path) -> TLSSettings | None:
    """Return the settings in `tls_server_config`; None if TLS is not configured.

    Args:
        section: The section `tls_server_config`; None if the file does not contain the section.
        directory: The directory to which the paths in the section are relative.

    Raises:
        ConfigurationError: A key is missing, invalid or not supported.
    """
    if section is None or section.empty:
        return None
    for inline in ("cert", "key", "client_ca"):
        if section.take(inline, object, ""):
            raise section.refuse(
                inline, f"certificates are read from files; name one with {inline}_file"
            )
    cert_file, key_file, client_ca_file = (
        section.take(f"{name}_file", str, "a path") for name in ("cert", "key", "client_ca")
    )
    if not cert_file:
        raise section.refuse("cert_file", "it is missing; name the certificate's PEM file")
    if not key_file:
        raise section.refuse("key_file", "it is missing; name the certificate's private key")
    prefer = section.take("prefer_server_cipher_suites", bool, "true or false")
    min_version, max_version, ciphers = _read_versions(section)
    auth_type = _read_client_auth_type(section, client_ca_file)
    settings = TLSSettings(
        where=section.where,
        cert_file=directory / cert_file,
        key_file=directory / key_file,
        client_ca_file=directory / client_ca_file if client_ca_file else None,
        client_auth_type=auth_type,
        client_allowed_sans=_read_allowed_sans(section, auth_type),
        min_version=min_version,
        max_version=max_version,
        ciphers=ciphers,
        curve=_read_curve(section),
        prefer_server_cipher_suites=prefer is not False,
    )
    section.finish()
    return settings


def _read_client_auth_type(section: Section, client_ca_file: str | None) -> str:
    key = "client_auth_type"
    wanted = section.take_choice(key, (*CLIENT_AUTH_TYPES, *_UNVERIFIED_CLIENT_AUTH_TYPES))
    if wanted in _UNVERIFIED_CLIENT_AUTH_TYPES:
        raise section.refuse(
            key,
            f"{wanted} accepts certificates without verifying them, which Python's TLS cannot do;"
            " use RequireAndVerifyClientCert with client_ca_file",
        )
    if wanted in (None, "NoClientCert"):
        if client_ca_file:
            raise section.refuse(
                "client_ca_file",
                "it has no effect without client_auth_type: RequireAndVerifyClientCert;"
                " add that or remove this",
            )
        return "NoClientCert"
    if not client_ca_file:
        raise section.refuse(
            "client_ca_file", f"it is missing; {key}: {wanted} needs a certificate authority"
        )
    return str(wanted)


def _read_allowed_sans(section: Section, client_auth_type: str) -> frozenset[str] | None:
    key = "client_allowed_sans"
    names = section.take_strings(key)
    if names is None:
        return None
    if not names:
        raise section.refuse(key, "with an empty list no client could connect; fill or remove it")
    if client_auth_type != "RequireAndVerifyClientCert":
        raise section.refuse(key, "it needs client_auth_type: RequireAndVerifyClientCert; add that")
    return frozenset(names)


def _read_versions(section: Section) -> tuple[str, str, tuple[str, ...]]:
    oldest = section.take_choice("min_version", VERSIONS) or "TLS12"
    newest = section.take_choice("max_version", VERSIONS) or "TLS13"
    if VERSIONS.index(oldest) > VERSIONS.index(newest):
        raise section.refuse(
            "max_version", f"{newest} is older than min_version, which is {oldest}; swap them"
        )
    names = section.take_strings("cipher_suites") or ()
    for name in names:
        if name not in _CIPHERS and name not in _TLS13_CIPHERS:
            raise section.refuse(
                "cipher_suites", f"{name} is unknown; use Go's names, or remove the key"
            )
    ciphers = tuple(_CIPHERS[name] for name in names if name in _CIPHERS)
    if names and not ciphers:
        if newest != "TLS13":
            raise section.refuse("cipher_suites", f"none of these belongs to {newest}; add one")
        oldest = "TLS13"  # if all suites are for TLS 1.3, no suite exists for older versions
    return oldest, newest, ciphers


def _read_curve(section: Section) -> str | None:
    key = "curve_preferences"
    curves = section.take_strings(key)
    if not curves:
        return None
    for curve in curves:
        if curve not in _CURVES:
            raise section.refuse(key, f"{curve} is not one of {', '.join(_CURVES)}")
    if len(curves) > 1:
        raise section.refuse(
            key,
            "Python's TLS supports one curve, not an order of several; give one or remove the key",
        )
    return curves[0]
