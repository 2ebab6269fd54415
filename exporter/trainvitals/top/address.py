"""Whom `--url` means, and who asks."""

from __future__ import annotations

import base64
import netrc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainvitals.errors import ConfigurationError

DEFAULT_PORT = 9200
PASSWORD_VARIABLE = "TRAINVITALS_PASSWORD"  # noqa: S105 - the name of a variable
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """An exporter.

    Attributes:
        is_tls: Whether it speaks TLS.
        host: Its name or address.
        port: Its port.
        prefix: What stands before its paths, such as behind a proxy; empty for nothing.
        user: The user in the URL; None for none.
    """

    is_tls: bool
    host: str
    port: int
    prefix: str = ""
    user: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.prefix}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks.

    Attributes:
        user: The user.
        password: The password.
    """

    user: str
    password: str = field(repr=False)

    def write_header(self) -> str:
        """Write the header `Authorization`."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def parse_url(text: str) -> Address:
    """Read `--url`: `http://HOST:PORT`, `https://HOST`, or `HOST` for port 9200.

    Raises:
        ConfigurationError: It is none, or has a password, which others could see.
    """
    is_bare = "://" not in text
    try:
        parts = urlsplit(f"http://{text}" if is_bare else text)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"--url {text}: {error}; write http://HOST:PORT") from error
    if parts.password is not None:
        raise ConfigurationError(
            "--url: every user of this machine can see a password there; put it into a file and name "
            f"it with --password-file, or set ${PASSWORD_VARIABLE}"
        )
    host = parts.hostname or ""
    if parts.scheme not in _PORTS or not host.isprintable() or not host or " " in host:
        raise ConfigurationError(f"--url {text}: write http://HOST:PORT or https://HOST:PORT")
    if parts.query or parts.fragment or not parts.path.isascii() or not parts.path.isprintable():
        raise ConfigurationError(f"--url {text}: leave out what follows the port or path")
    return Address(
        is_tls=parts.scheme == "https",
        host=host,
        port=port or (DEFAULT_PORT if is_bare else _PORTS[parts.scheme]),
        prefix=parts.path.rstrip("/"),
        user=unquote(parts.username) if parts.username else None,
    )


def find_credentials(
    address: Address,
    *,
    user: str | None,
    password_file: Path | None,
    environ: Mapping[str, str],
    netrc_path: Path,
) -> Credentials | None:
    """Give who asks: of the flags and the variable, or of `~/.netrc`; None for nobody.

    Args:
        address: Who is asked.
        user: `--user`.
        password_file: `--password-file`; its first line.
        environ: Where `TRAINVITALS_PASSWORD` may be.
        netrc_path: `~/.netrc`, which need not be there.

    Raises:
        ConfigurationError: There is a user without a password, or a file cannot be read.
    """
    known = _read_netrc(netrc_path, address.host)
    user = user or address.user
    password = environ.get(PASSWORD_VARIABLE) or None
    if password_file is not None:
        password = _read_password(password_file)
    if user is None and password is None:
        return known
    if user is None:
        if password_file is not None:
            raise ConfigurationError("--password-file without a user: name them with --user")
        return known
    if password is not None:
        return Credentials(user, password)
    if known is not None and known.user == user:
        return known
    raise ConfigurationError(
        f"no password for {user}: name a file with --password-file, set ${PASSWORD_VARIABLE}, or add "
        f"a line for {address.host} to ~/.netrc"
    )


def _read_password(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ConfigurationError(f"--password-file {path}: {why}; give a file to read") from error
    return text.partition("\n")[0].rstrip("\r")


def _read_netrc(path: Path, host: str) -> Credentials | None:
    try:
        found = netrc.netrc(str(path)).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, netrc.NetrcParseError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}; mend it or move it away") from error
    return None if found is None else Credentials(found[0], found[2] or "")
