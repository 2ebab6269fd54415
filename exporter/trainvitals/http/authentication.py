"""Basic authentication for the users in the web configuration file.

A bcrypt check intentionally takes a tenth of a second. A single thread makes all checks, one at a
time. Therefore the server's loop never waits, and password guesses use at most one core. Client
networks take turns (see `turns`), and the number of waiting checks per connection is limited.
Therefore a correct password is checked soon even while other clients guess passwords. Correct and
wrong passwords are cached separately, so that guesses cannot evict a scraper's password from the
cache.

This module is imported only if a web configuration file is used, because it imports `hashlib`,
which loads OpenSSL.
"""

from __future__ import annotations

import binascii
import hashlib
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from trainvitals.http.connection import Client
from trainvitals.http.failed_logins import FailedLogins
from trainvitals.http.messages import plain_response
from trainvitals.http.turns import Turns

if TYPE_CHECKING:
    from trainvitals.http.messages import Request, Response
    from trainvitals.http.web_config import WebConfigFile

_LOG_IN = ("WWW-Authenticate", 'Basic realm="trainvitals", charset="UTF-8"')
_BACKLOG = 16
_REMEMBERED = 100
_BCRYPT_BYTES = 72


class Authentication:
    """Basic authentication; all requests are admitted if the configuration defines no users.

    Args:
        web_config: The web configuration file that defines the users.
        call_soon: A function that schedules a call in the server's loop. It is called from another
            thread.
        call_later: A function that schedules a call in the server's loop after a number of seconds.
    """

    def __init__(
        self,
        web_config: WebConfigFile,
        call_soon: Callable[[Callable[[], None]], None],
        call_later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._web_config = web_config
        self._passwords = Passwords(call_soon)
        self._failed_logins = FailedLogins(call_later)

    def check(
        self, request: Request, client: Client, then: Callable[[Response | None], None]
    ) -> None:
        """Check a request's password, either immediately or in another thread.

        Args:
            request: The request whose password is checked.
            client: The client that sent the request.
            then: A function that is called in the server's loop. Its argument is None if the
                request is admitted, and otherwise a response with status code 401 or 503.
        """
        self._web_config.refresh()
        users = self._web_config.config.users
        if not users:
            then(None)
            return
        authorization = request.headers.get("authorization")
        decide = partial(self._decide, authorization, client, then)
        self._passwords.check(authorization, users, decide, client)

    def forget(self, client: Client) -> None:
        """Drop the waiting password checks of a closed connection."""
        self._passwords.forget(client)

    def _decide(
        self,
        authorization: str | None,
        client: Client,
        then: Callable[[Response | None], None],
        verdict: Verdict,
    ) -> None:
        if verdict is Verdict.ADMITTED:
            then(None)
        elif verdict is Verdict.BUSY:
            then(plain_response(503, "too many passwords are waiting to be checked; try again"))
        else:
            if credentials := parse_credentials(authorization):
                is_known = credentials[0] in self._web_config.config.users
                self._failed_logins.note(client.host, credentials[0] if is_known else None)
            then(plain_response(401, "log in with a user's name and password", _LOG_IN))


class Verdict(Enum):
    """The result of a password check."""

    ADMITTED = "the password is right"
    DENIED = "there is no password, or a wrong one"
    BUSY = "too many passwords are waiting to be checked"


@dataclass(frozen=True, slots=True)
class _Check:
    fingerprint: bytes
    hashed: bytes
    password: bytes
    known: bool
    client: Client


class Passwords:
    """A queue of passwords that are checked against bcrypt hashes.

    Args:
        call_soon: A function that schedules a call in the server's loop. It is called from the
            thread that checks passwords.
        compare: A slow function that returns whether a password matches a hash; None for
            `bcrypt.checkpw`.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], None],
        *,
        compare: Callable[[bytes, bytes], bool] | None = None,
    ) -> None:
        self._call_soon = call_soon
        self._compare = compare or _compare
        self._secret = secrets.token_bytes(32)
        self._remembered = {True: OrderedDict[bytes, None](), False: OrderedDict[bytes, None]()}
        self._waiting: dict[bytes, list[tuple[Client, Callable[[Verdict], None]]]] = {}
        self._turns: Turns[_Check] = Turns()
        self._pending: Counter[Client] = Counter()
        self._is_checking = False
        self._checks: SimpleQueue[_Check] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def check(
        self,
        authorization: str | None,
        users: Mapping[str, str],
        then: Callable[[Verdict], None],
        client: Client = Client(),  # noqa: B008 - immutable
    ) -> None:
        """Check the password in a request, immediately or later.

        This method must be called in the server's loop.

        Args:
            authorization: The request's `Authorization` header; None if the request has no such
                header.
            users: The bcrypt hash of each user's password; at least one user must be defined.
            then: A function that is called in the server's loop with the result.
            client: The client that sent the request.
        """
        credentials = parse_credentials(authorization)
        if credentials is None:
            then(Verdict.DENIED)
            return
        name, password = credentials
        hashed = users.get(name)
        # For an unknown name, the password is compared with another user's hash, so that the check
        # takes the same time as for a known name.
        some_hash = next(iter(users.values())) if hashed is None else hashed
        check = _Check(
            self._fingerprint(name, hashed or "", password),
            some_hash.encode(),
            password[:_BCRYPT_BYTES],
            known=hashed is not None,
            client=client,
        )
        self._find_out(check, then)

    def forget(self, client: Client) -> None:
        """Drop a connection's waiting password checks; must be called in the server's loop."""
        self._pending.pop(client, None)
        for fingerprint, waiting in list(self._waiting.items()):
            waiting[:] = [(each, then) for each, then in waiting if each != client]
            if not waiting:
                del self._waiting[fingerprint]

    def _find_out(self, check: _Check, then: Callable[[Verdict], None]) -> None:
        for right, remembered in self._remembered.items():
            if check.fingerprint in remembered:
                remembered.move_to_end(check.fingerprint)
                then(Verdict.ADMITTED if right else Verdict.DENIED)
                return
        if check.fingerprint in self._waiting:
            self._waiting[check.fingerprint].append((check.client, then))
        elif self._pending[check.client] >= _BACKLOG:
            then(Verdict.BUSY)
        else:
            self._waiting[check.fingerprint] = [(check.client, then)]
            self._pending[check.client] += 1
            self._turns.add(check.client.network, check)
            self._check_next()

    def _check_next(self) -> None:
        """Pass the next password check to the thread; skip checks for which no request waits."""
        while not self._is_checking and (check := self._turns.take()):
            if check.fingerprint in self._waiting:
                self._is_checking = True
                self._start_thread()
                self._checks.put(check)

    def _fingerprint(self, name: str, hashed: str, password: bytes) -> bytes:
        # The hash is keyed with a secret of this process, so no client can guess a fingerprint byte
        # by byte. For this reason, a lookup needs no constant-time comparison, and no password
        # stays in memory.
        digest = hashlib.blake2b(key=self._secret, digest_size=32)
        for part in (name.encode(), hashed.encode(), password):
            digest.update(len(part).to_bytes(4, "big") + part)
        return digest.digest()

    def _start_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="passwords", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            check = self._checks.get()
            right = self._compare(check.password, check.hashed) and check.known
            self._call_soon(partial(self._decide, check, right=right))

    def _decide(self, check: _Check, *, right: bool) -> None:
        remembered = self._remembered[right]
        remembered[check.fingerprint] = None
        if len(remembered) > _REMEMBERED:
            remembered.popitem(last=False)
        if not right:
            self._turns.note_failure(check.client.network)
        self._is_checking = False
        self._pending -= Counter([check.client])
        for _, then in self._waiting.pop(check.fingerprint, ()):
            then(Verdict.ADMITTED if right else Verdict.DENIED)
        self._check_next()


def parse_credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """Return the name and the password in an `Authorization` header.

    The result is None if the header is missing, is malformed or uses another scheme.
    """
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = binascii.a2b_base64(encoded.strip().encode("ascii"))
        name, colon, password = decoded.partition(b":")
        return (name.decode(), password) if colon else None
    except ValueError:  # the text is not ASCII, base64 or UTF-8
        return None


def _compare(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # noqa: PLC0415 - only the first check needs it

    try:
        # bcrypt uses 72 bytes of a password; some versions of the package reject longer passwords,
        # others truncate these passwords.
        return bcrypt.checkpw(password, hashed)
    except ValueError:  # the password contains a zero byte, which no hash matches
        return False
