"""Who gets an answer: everybody, or those who log in where the web configuration names users."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trainvitals.http1 import plain_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainvitals.passwords import Passwords, Verdict
    from trainvitals.web.messages import Answer, Reply, Request
    from trainvitals.webconfig import WebConfigFile

_LOG_IN = ("WWW-Authenticate", 'Basic realm="trainvitals", charset="UTF-8"')


class Admission:
    """Passes requests on to those who answer them, once their sender is known.

    Args:
        answer: Answers the requests.
        web_config: Names the users; None where nobody has to log in.
        call_soon: Has a function called in the server's loop.
    """

    def __init__(
        self,
        answer: Answer,
        web_config: WebConfigFile | None,
        call_soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._answer = answer
        self._web_config = web_config
        self._call_soon = call_soon
        self._passwords: Passwords | None = None

    def admit(self, request: Request, reply: Reply) -> None:
        """Have a request answered, or refuse it."""
        if self._web_config is not None:
            self._web_config.refresh()
            if users := self._web_config.config.users:
                authorization = request.headers.get("authorization")
                self._judges().check(authorization, users, partial(self._judge, request, reply))
                return
        self._answer(request, reply)

    def _judges(self) -> Passwords:
        if self._passwords is None:
            from trainvitals.passwords import Passwords  # noqa: PLC0415 - it imports hashlib

            self._passwords = Passwords(self._call_soon)
        return self._passwords

    def _judge(self, request: Request, reply: Reply, verdict: Verdict) -> None:
        if verdict.name == "ADMITTED":
            self._answer(request, reply)
        elif verdict.name == "DENIED":
            reply(plain_response(401, "log in with a user's name and password", _LOG_IN))
        else:
            reply(plain_response(503, "too many passwords wait for their check; try again"))
