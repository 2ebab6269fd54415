"""A mail server with STARTTLS and passwords that keeps mails and refuses chosen commands."""

import base64
import email
import email.policy
import socketserver
import ssl
import threading


class Handler(socketserver.BaseRequestHandler):
    """A handler for the SMTP commands that one mail needs."""

    def handle(self):
        """Answer commands until the client closes the connection."""
        self.mail_server = self.server.mail_server
        self.is_tls = False
        if self.mail_server.tls_at_once:
            self.wrap()
        self.file = self.request.makefile("rb")
        self.answer(self.mail_server.refusals.get("CONNECT", "220 ready"))
        while line := self.file.readline().decode().strip():
            refusals = self.mail_server.refusals.items()
            refusal = next((text for start, text in refusals if line.upper().startswith(start)), "")
            if refusal:
                self.answer(refusal)
            else:
                command, _, rest = line.partition(" ")
                getattr(self, f"on_{command.lower()}", self.on_others)(rest)

    def finish(self):
        """Close the connection."""
        self.file.close()
        self.request.close()

    def on_ehlo(self, _):
        """List the supported extensions."""
        has_tls = self.mail_server.context is not None and not self.is_tls
        for offer in ("localhost", *(["STARTTLS"] if has_tls else [])):
            self.answer(f"250-{offer}")
        self.answer("250 AUTH PLAIN")

    def on_starttls(self, _):
        """Continue over TLS."""
        self.answer("220 go on")
        self.file.close()
        self.wrap()
        self.file = self.request.makefile("rb")

    def on_auth(self, rest):
        """Accept every password."""
        shown = base64.b64decode(rest.split()[1]).decode().split("\0")[1:]
        self.mail_server.logins.append((*shown, self.is_tls))
        self.answer("235 welcome")

    def on_data(self, _):
        """Accept the mail."""
        self.answer("354 go on")
        lines = iter(self.file.readline, b".\r\n")
        text = b"".join(line[1:] if line.startswith(b"..") else line for line in lines)
        mail = email.message_from_bytes(text, policy=email.policy.default)
        self.mail_server.keep(mail, is_tls=self.is_tls)
        self.answer("250 ok")

    def on_quit(self, _):
        """Answer with a farewell."""
        self.answer("221 bye")

    def on_others(self, _):
        """Accept any other command."""
        self.answer("250 ok")

    def answer(self, line):
        """Send a line."""
        self.request.sendall(f"{line}\r\n".encode())

    def wrap(self):
        """Switch the connection to TLS."""
        self.request = self.mail_server.context.wrap_socket(self.request, server_side=True)
        self.is_tls = True


class Server(socketserver.ThreadingTCPServer):
    """A server that ignores the errors of clients which close their connection early."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        """Print nothing."""


class MailServer:
    """A mail server on 127.0.0.1 that runs during its `with` block.

    Attributes:
        address: `HOST:PORT`.
        mails: The received mails, oldest first.
        tls: Whether each mail came over TLS.
        logins: The users and passwords that were sent, and whether they came over TLS.
        refusals: The answers to refused commands, by the beginning of the command in capitals.
    """

    def __init__(self, certificate=None, *, tls_at_once=False, refusals=None):
        self.mails, self.tls, self.logins = [], [], []
        self.refusals = refusals or {}
        self.tls_at_once = tls_at_once
        self.context = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        self._changed = threading.Condition()
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.mail_server = self
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def keep(self, mail, *, is_tls):
        """Store a received mail."""
        with self._changed:
            self.mails.append(mail)
            self.tls.append(is_tls)
            self._changed.notify_all()

    def wait_for(self, words, seconds=60.0):
        """Wait for a mail whose subject contains these words, and return it."""

        def find():
            return next((each for each in self.mails if words in each["Subject"]), None)

        with self._changed:
            mail = self._changed.wait_for(find, seconds)
            assert mail is not None, [each["Subject"] for each in self.mails]
        return mail

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
