"""Basic authentication: who a request comes from, without the server's loop waiting for bcrypt.

A bcrypt check takes a tenth of a second on purpose. One lasting thread does them, one after the
other; what it found out is remembered, the right passwords and the wrong ones apart, so that a
flood of guesses cannot push out those who scrape.
"""

from __future__ import annotations

import binascii
import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from queue import SimpleQueue

_BACKLOG = 16
_REMEMBERED = 100
_BCRYPT_BYTES = 72


class Verdict(Enum):
    """What becomes of a request."""

    ADMITTED = "the password is right"
    DENIED = "there is no password, or a wrong one"
    BUSY = "too many passwords are waiting to be checked"


@dataclass(frozen=True, slots=True)
class _Check:
    fingerprint: bytes
    hashed: bytes
    password: bytes
    known: bool


class Passwords:
    """Checks passwords against bcrypt hashes.

    Args:
        call_soon: Has a function called in the server's loop; called from the checking thread.
        compare: Tells whether a password has a hash, slowly; `bcrypt.checkpw` unless given.
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
        self._waiting: dict[bytes, list[Callable[[Verdict], None]]] = {}
        self._checks: SimpleQueue[_Check] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def check(
        self,
        authorization: str | None,
        users: Mapping[str, str],
        then: Callable[[Verdict], None],
    ) -> None:
        """Judge a request, at once or later; to be called in the server's loop.

        Args:
            authorization: The request's header of that name; None where it has none.
            users: The bcrypt hash of each user's password; not empty.
            then: Takes the verdict, in the loop.
        """
        credentials = parse_credentials(authorization)
        if credentials is None:
            then(Verdict.DENIED)
            return
        name, password = credentials
        hashed = users.get(name)
        # An unknown name costs the same time as a known one: it is compared with somebody's hash.
        some_hash = next(iter(users.values())) if hashed is None else hashed
        check = _Check(
            self._fingerprint(name, hashed or "", password),
            some_hash.encode(),
            password,
            known=hashed is not None,
        )
        self._judge(check, then)

    def _judge(self, check: _Check, then: Callable[[Verdict], None]) -> None:
        for right, remembered in self._remembered.items():
            if check.fingerprint in remembered:
                remembered.move_to_end(check.fingerprint)
                then(Verdict.ADMITTED if right else Verdict.DENIED)
                return
        if check.fingerprint in self._waiting:
            self._waiting[check.fingerprint].append(then)
        elif len(self._waiting) >= _BACKLOG:
            then(Verdict.BUSY)
        else:
            self._waiting[check.fingerprint] = [then]
            self._start_thread()
            self._checks.put(check)

    def _fingerprint(self, name: str, hashed: str, password: bytes) -> bytes:
        # Keyed with a secret of this process: nobody can aim at a fingerprint byte by byte, so
        # looking it up needs no comparison in constant time, and no password stays in memory.
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
            self._call_soon(partial(self._decide, check.fingerprint, right=right))

    def _decide(self, fingerprint: bytes, *, right: bool) -> None:
        remembered = self._remembered[right]
        remembered[fingerprint] = None
        if len(remembered) > _REMEMBERED:
            remembered.popitem(last=False)
        for then in self._waiting.pop(fingerprint):
            then(Verdict.ADMITTED if right else Verdict.DENIED)


def parse_credentials(authorization: str | None) -> tuple[str, bytes] | None:
    """Read the name and the password out of an `Authorization` header.

    Returns:
        Both; None where the header is missing, of another scheme or broken.
    """
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        decoded = binascii.a2b_base64(encoded.strip().encode("ascii"))
        name, colon, password = decoded.partition(b":")
        return (name.decode(), password) if colon else None
    except ValueError:  # what is not ASCII, base64 or UTF-8
        return None


def _compare(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # noqa: PLC0415 - only the first password to be checked needs it

    try:
        # bcrypt looks at 72 bytes; some versions of the package refuse more, some cut.
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:  # a password with a zero byte, which no hash has
        return False
