"""Mail is sent to a real server, over TLS where that is required, and refusals are understood."""

import socket
from dataclasses import replace

import pytest

from tests.courier.postoffice import PostOffice
from trainvitals.courier import mailing
from trainvitals.courier.destinations import Email
from trainvitals.courier.failures import DeliveryError
from trainvitals.courier.mailing import make_mail, send_mail

PASSWORD = "hush-hush-hush"


def address_to(office, **options):
    """Give a destination at this server."""
    return Email(office.address, "tv@example.org", "ada@example.org, bob@example.org", **options)


def fail(message, destination):
    """Send in vain and give the error."""
    with pytest.raises(DeliveryError) as caught:
        send_mail(message, destination, timeout_seconds=3.0)
    assert PASSWORD not in str(caught.value)
    return caught.value


def test_a_mail_has_no_header_but_its_own(message):
    """A title that brings a line of its own adds no recipient."""
    mail = make_mail(message, Email("h:25", "tv@example.org", "ada@example.org"))
    assert mail["Subject"] == "[warning] bert: GPU hot Bcc: eve@example.org"
    assert mail["Bcc"] is None
    assert mail["Date"] == "Tue, 14 Nov 2023 22:13:20 -0000"
    assert mail.get_content().splitlines()[0] == "GPU 0: 92 °C"
    both = make_mail(replace(message, html="<b>°</b>"), Email("h:25", "a@b.c", "d@e.f"))
    assert [part.get_content_type() for part in both.iter_parts()] == ["text/plain", "text/html"]


def test_without_tls(message):
    """Where nobody requires it, mail goes as it is."""
    with PostOffice() as office:
        send_mail(message, address_to(office, requires_tls=False))
    ((is_tls, text),) = office.mails
    assert not is_tls
    assert "To: ada@example.org, bob@example.org" in text


def test_starttls_and_a_password(message, certificate, monkeypatch):
    """The password is shown over TLS alone, to who has the right certificate."""
    with PostOffice(certificate) as office:
        destination = address_to(office, username="tv", password=PASSWORD)
        assert "CERTIFICATE_VERIFY_FAILED" in str(fail(message, destination))
        assert office.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        send_mail(message, destination)
    assert office.logins == [("tv", PASSWORD, True)]
    assert [is_tls for is_tls, _ in office.mails] == [True]


def test_tls_from_the_start(message, certificate, monkeypatch):
    """As on port 465."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with PostOffice(certificate, tls_at_once=True) as office:
        monkeypatch.setattr(mailing, "_TLS_PORT", int(office.address.rpartition(":")[2]))
        send_mail(message, address_to(office))
    assert [is_tls for is_tls, _ in office.mails] == [True]


def test_a_server_that_knows_no_tls(message):
    """Nothing is sent in the clear that was to be sent over TLS."""
    with PostOffice() as office:
        error = fail(message, address_to(office, username="tv", password=PASSWORD))
    assert not error.is_passing
    assert "see SMTP_REQUIRE_TLS" in str(error)
    assert (office.logins, office.mails) == ([], [])


@pytest.mark.parametrize(
    ("command", "answer", "is_passing"),
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
def test_a_refusal(message, command, answer, is_passing):
    """4xx may pass, 5xx does not."""
    with PostOffice(refusals={command: answer}) as office:
        destination = address_to(office, requires_tls=False, username="tv", password=PASSWORD)
        error = fail(message, destination)
    assert error.is_passing is is_passing
    assert answer[:3] in str(error)


def test_a_refusal_of_one_of_two(message):
    """The other has the mail, so it is not sent again."""
    with PostOffice(refusals={"RCPT TO:<BOB": "550 no such user"}) as office:
        error = fail(message, address_to(office, requires_tls=False))
    assert not error.is_passing
    assert "refused bob@example.org: 550 no such user; the others have it" in str(error)
    assert len(office.mails) == 1


def test_a_goodbye_that_fails(message):
    """The mail was taken before, so it is not sent again."""
    with PostOffice(refusals={"QUIT": "421 gone"}) as office:
        send_mail(message, address_to(office, requires_tls=False))
    assert len(office.mails) == 1


def test_nobody_there(message):
    """A server that is away may come back."""
    error = fail(message, Email("127.0.0.1:1", "a@b.c", "d@e.f"))
    assert error.is_passing
    assert "127.0.0.1 cannot be reached: [Errno 111] Connection refused" in str(error)


def test_a_server_that_says_nothing(message):
    """Silence is a failure when the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        destination = Email(f"127.0.0.1:{listening.getsockname()[1]}", "a@b.c", "d@e.f")
        with pytest.raises(DeliveryError, match="timed out") as caught:
            send_mail(message, destination, timeout_seconds=0.3)
    assert caught.value.is_passing
