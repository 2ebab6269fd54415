"""A mail server that keeps what it is given."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
import time
from email.message import EmailMessage
from types import TracebackType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from typing_extensions import Self


class Mailbox:
    """A server on 127.0.0.1 that speaks as much SMTP as one mail needs.

    Attributes:
        address: `HOST:PORT`.
        mails: What came, oldest first.
    """

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        mails = self.mails

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 ready")
                while line := self.rfile.readline().decode().strip().upper():
                    if line == "DATA":
                        self._say("354 go on")
                        mails.append(self._read_mail())
                    self._say("221 bye" if line == "QUIT" else "250 ok")

            def _say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

            def _read_mail(self) -> EmailMessage:
                lines = iter(self.rfile.readline, b".\r\n")
                text = b"".join(line[1:] if line.startswith(b"..") else line for line in lines)
                parsed = email.message_from_bytes(text, policy=email.policy.default)
                return cast("EmailMessage", parsed)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def wait_for(self, words: str, seconds: float = 10.0) -> EmailMessage:
        """Wait for a mail with these words in its subject."""
        deadline = time.monotonic() + seconds
        while True:
            for mail in list(self.mails):
                if words in mail["Subject"]:
                    return mail
            assert time.monotonic() < deadline, [mail["Subject"] for mail in self.mails]
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
