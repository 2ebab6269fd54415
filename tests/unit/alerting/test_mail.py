"""Tests for sending mail to a real server, with and without TLS, and of its refusals."""

import socket
from dataclasses import replace

import pytest

from tests.support.mailserver import MailServer
from trainvitals.alerting import transport
from trainvitals.alerting.channels import Email
from trainvitals.alerting.message import make_mail
from trainvitals.alerting.transport import DeliveryError

PASSWORD = "hush-hush-hush"


def address_to(server, **options):
    """Return an e-mail channel that sends to this server."""
    return Email(server.address, "tv@example.org", "ada@example.org, bob@example.org", **options)


def fail(message, channel, timeout_seconds=20.0):
    """Return the error of an attempt that must fail, and check that it omits the password."""
    with pytest.raises(DeliveryError) as caught:
        channel.send(message, timeout_seconds)
    assert PASSWORD not in str(caught.value)
    return caught.value


def test_a_mail_has_no_header_but_its_own(message):
    """A title with a line break adds no header and no recipient."""
    mail = make_mail(message, "tv@example.org", "ada@example.org")
    assert mail["Subject"] == "[warning] bert: GPU hot Bcc: eve@example.org"
    assert mail["Bcc"] is None
    assert mail["Date"] == "Tue, 14 Nov 2023 22:13:20 -0000"
    assert mail.get_content().splitlines()[0] == "GPU 0: 92 °C"
    both = make_mail(replace(message, html="<b>°</b>"), "a@b.c", "d@e.f")
    assert [part.get_content_type() for part in both.iter_parts()] == ["text/plain", "text/html"]


def test_without_tls(message):
    """If TLS is not required, mail is sent to a server without TLS."""
    with MailServer() as server:
        address_to(server, requires_tls=False).send(message, 20.0)
    (mail,) = server.mails
    assert server.tls == [False]
    assert mail["To"] == "ada@example.org, bob@example.org"


def test_starttls_and_a_password(message, certificate, monkeypatch):
    """The password is sent only over TLS and only to a server with a trusted certificate."""
    with MailServer(certificate) as server:
        channel = address_to(server, username="tv", password=PASSWORD)
        assert "CERTIFICATE_VERIFY_FAILED" in str(fail(message, channel))
        assert server.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        channel.send(message, 20.0)
    assert server.logins == [("tv", PASSWORD, True)]
    assert server.tls == [True]


def test_tls_from_the_start(message, certificate, monkeypatch):
    """On the port for implicit TLS, the connection uses TLS from the start."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with MailServer(certificate, tls_at_once=True) as server:
        monkeypatch.setattr(transport, "_TLS_PORT", int(server.address.rpartition(":")[2]))
        address_to(server).send(message, 20.0)
    assert server.tls == [True]


def test_a_server_that_knows_no_tls(message):
    """If TLS is required and the server has no TLS, neither the mail nor the password is sent."""
    with MailServer() as server:
        error = fail(message, address_to(server, username="tv", password=PASSWORD))
    assert not error.is_temporary
    assert "see SMTP_REQUIRE_TLS" in str(error)
    assert (server.logins, server.mails) == ([], [])


@pytest.mark.parametrize(
    ("command", "answer", "is_temporary"),
    [
        ("CONNECT", "421 too busy", True),
        ("CONNECT", "554 go away", False),
        ("AUTH", f"535 wrong password {PASSWORD}", False),
        ("MAIL", "451 later", True),
        ("MAIL", "550 you may not", False),
        ("RCPT", "450 mailbox busy", True),
        ("RCPT", "550 no such user", False),
        ("DATA", "452 full", True),
    ],
)
def test_a_refusal(message, command, answer, is_temporary):
    """A refusal with a 4xx code is temporary, and a refusal with a 5xx code is permanent."""
    with MailServer(refusals={command: answer}) as server:
        channel = address_to(server, requires_tls=False, username="tv", password=PASSWORD)
        error = fail(message, channel)
    assert error.is_temporary is is_temporary
    assert answer[:3] in str(error)


def test_a_refusal_of_one_of_two(message):
    """If one of two recipients is refused, the mail is not sent again to the other recipient."""
    with MailServer(refusals={"RCPT TO:<BOB": "550 no such user"}) as server:
        error = fail(message, address_to(server, requires_tls=False))
    assert not error.is_temporary
    assert "refused bob@example.org: 550 no such user; the other recipients got it" in str(error)
    assert len(server.mails) == 1


def test_a_goodbye_that_fails(message):
    """An error in reply to QUIT is ignored, because the server has accepted the mail."""
    with MailServer(refusals={"QUIT": "421 gone"}) as server:
        address_to(server, requires_tls=False).send(message, 20.0)
    assert len(server.mails) == 1


def test_nobody_there(message):
    """A refused connection is a temporary error."""
    error = fail(message, Email("127.0.0.1:1", "a@b.c", "d@e.f"))
    assert error.is_temporary
    assert "127.0.0.1 cannot be reached: [Errno 111] Connection refused" in str(error)


def test_a_server_that_says_nothing(message):
    """If a server sends no greeting before the timeout, the attempt fails temporarily."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        channel = Email(f"127.0.0.1:{listening.getsockname()[1]}", "a@b.c", "d@e.f")
        error = fail(message, channel, timeout_seconds=0.3)
    assert "timed out" in str(error)
    assert error.is_temporary
