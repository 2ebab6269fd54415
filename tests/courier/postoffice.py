"""A mail server that knows STARTTLS and passwords, and refuses what a test wants refused."""

import base64
import socketserver
import ssl
import threading


class Handler(socketserver.BaseRequestHandler):
    """Speaks as much SMTP as one mail needs."""

    def handle(self):
        """Answer until the other side hangs up."""
        self.office = self.server.office
        self.is_tls = False
        if self.office.tls_at_once:
            self.wrap()
        self.file = self.request.makefile("rb")
        self.say(self.office.refusals.get("CONNECT", "220 ready"))
        while line := self.file.readline().decode().strip():
            refusals = self.office.refusals.items()
            refusal = next((text for start, text in refusals if line.upper().startswith(start)), "")
            if refusal:
                self.say(refusal)
            else:
                command, _, rest = line.partition(" ")
                getattr(self, f"on_{command.lower()}", self.on_others)(rest)

    def finish(self):
        """Hang up."""
        self.file.close()
        self.request.close()

    def on_ehlo(self, _):
        """Tell what there is."""
        offers = ["STARTTLS"] if self.office.context is not None and not self.is_tls else []
        for offer in ("localhost", *offers):
            self.say(f"250-{offer}")
        self.say("250 AUTH PLAIN")

    def on_starttls(self, _):
        """Go on in secret."""
        self.say("220 go on")
        self.file.close()
        self.wrap()
        self.file = self.request.makefile("rb")

    def on_auth(self, rest):
        """Take every password."""
        shown = base64.b64decode(rest.split()[1]).decode().split("\0")[1:]
        self.office.logins.append((*shown, self.is_tls))
        self.say("235 welcome")

    def on_data(self, _):
        """Take the mail."""
        self.say("354 go on")
        text = b"".join(iter(self.file.readline, b".\r\n"))
        self.office.mails.append((self.is_tls, text.decode()))
        self.say("250 ok")

    def on_quit(self, _):
        """Say goodbye."""
        self.say("221 bye")

    def on_others(self, _):
        """Agree."""
        self.say("250 ok")

    def say(self, line):
        """Say a line."""
        self.request.sendall(f"{line}\r\n".encode())

    def wrap(self):
        """Speak TLS from here on."""
        self.request = self.office.context.wrap_socket(self.request, server_side=True)
        self.is_tls = True


class Server(socketserver.ThreadingTCPServer):
    """A server that does not mind who hangs up."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        """Say nothing."""


class PostOffice:
    """A server on 127.0.0.1, while its `with` block lasts.

    Attributes:
        address: `HOST:PORT`.
        mails: What came: whether over TLS, and the text.
        logins: The users and passwords that were shown, and whether over TLS.
        refusals: What is answered to a command that begins so, in capitals.
    """

    def __init__(self, certificate=None, *, tls_at_once=False, refusals=None):
        self.mails, self.logins = [], []
        self.refusals = refusals or {}
        self.tls_at_once = tls_at_once
        self.context = None
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.office = self
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
