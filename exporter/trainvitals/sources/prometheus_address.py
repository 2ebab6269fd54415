"""The address and credentials of a Prometheus server.

An address has the form `http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]`. Every user of a machine can
read the command lines of the machine's processes, so it is safer to set credentials in the
environment or in a file:

=================================== ============================================================
`TRAINVITALS_PROMETHEUS_URL`        the server's address, including `USER:PASSWORD@`
`TRAINVITALS_PROMETHEUS_LOGIN_FILE` a file that contains `USER:PASSWORD`
`TRAINVITALS_PROMETHEUS_TOKEN_FILE` a file that contains a bearer token
=================================== ============================================================

The error messages of this module do not contain credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from trainvitals.errors import ConfigurationError
from trainvitals.sources.http_client import encode_basic, read_secret_file

URL_VARIABLE = "TRAINVITALS_PROMETHEUS_URL"
LOGIN_FILE_VARIABLE = "TRAINVITALS_PROMETHEUS_LOGIN_FILE"
TOKEN_FILE_VARIABLE = "TRAINVITALS_PROMETHEUS_TOKEN_FILE"  # noqa: S105 - the name of a variable


def split_address(url: str, flag: str) -> SplitResult:
    """Split the address of a Prometheus server into its parts.

    Args:
        url: The server's address, in the form `http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH]`.
        flag: The flag that sets the address, for the error message.

    Raises:
        ConfigurationError: The address is invalid; the message does not contain the password.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_address = urlsplit(""), False
    is_plain = parts.path.isascii() and parts.path.isprintable()
    if not is_address or not is_plain or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{flag} is not the address of a Prometheus; write one such as http://localhost:9090"
        )
    return parts


def find_authorization(
    parts: SplitResult,
    token_file: Path | None,
    login_file: Path | None,
    environ: Mapping[str, str],
) -> str:
    """Return the value of the `Authorization` header, or an empty string without credentials.

    The credentials come from `token_file` or `login_file`, otherwise from the address, otherwise
    from the file that the environment specifies.

    Raises:
        ConfigurationError: Both `token_file` and `login_file` are given, or a file cannot be read
            or is invalid; the message contains no secret.
    """
    if token_file is not None and login_file is not None:
        raise ConfigurationError("--token-file and --login-file: give one of them")
    if token_file is not None:
        return _read_token(token_file, "--token-file")
    if login_file is not None:
        return _read_login(login_file, "--login-file")
    if parts.username is not None:
        return encode_basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    if named := environ.get(TOKEN_FILE_VARIABLE):
        return _read_token(Path(named), TOKEN_FILE_VARIABLE)
    if named := environ.get(LOGIN_FILE_VARIABLE):
        return _read_login(Path(named), LOGIN_FILE_VARIABLE)
    return ""


def _read_token(path: Path, origin: str) -> str:
    return f"Bearer {_read_secret(path, origin)}"


def _read_login(path: Path, origin: str) -> str:
    login = _read_secret(path, origin)
    if ":" not in login:
        raise ConfigurationError(f"{origin}={path}: write USER:PASSWORD into it")
    return encode_basic(login)


def _read_secret(path: Path, origin: str) -> str:
    secret = read_secret_file(path, origin).strip()
    if not secret or not secret.isprintable():
        raise ConfigurationError(f"{origin}={path}: it must hold one line of text")
    return secret
