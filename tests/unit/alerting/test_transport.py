"""What a web service answers is understood, and no secret is in what is said of it."""

import ssl

import pytest

from trainvitals.alerting.transport import DeliveryError, parse_retry_after, post_json

TOKEN = "hush-hush-hush"


def fail(url, **options):
    """Post in vain and give the error."""
    with pytest.raises(DeliveryError) as caught:
        post_json(url, {"text": "x"}, token=TOKEN, **options)
    assert "SECRETSECRET" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    # A traceback shows causes too.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


def test_what_is_sent(serve):
    """JSON with the token and a name of our own, for Discord refuses Python's."""
    server = serve()
    post_json(server.url(), {"text": "°"}, token=TOKEN)
    ((path, headers, body),) = server.requests
    assert path == "/services/SECRETSECRET"
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"] == "trainvitals"
    assert body == b'{"text": "\\u00b0"}'


@pytest.mark.parametrize(
    ("status", "is_temporary", "words"),
    [
        (400, False, "answered 400: no_text: it rejects this message"),
        (403, False, "the URL or the token is wrong"),
        (404, False, "revoked: create a new one"),
        (408, True, "answered 408"),
        (429, True, "answered 429"),
        (500, True, "answered 500: no_text"),
        (503, True, "answered 503"),
    ],
)
def test_a_refusal(serve, status, is_temporary, words):
    """Which ones are worth another try, and what to do about the others."""
    error = fail(serve((status, {}, b"no_text")).url())
    assert error.is_temporary is is_temporary
    assert words in str(error)
    assert str(error).startswith("127.0.0.1 ")


def test_an_answer_that_repeats_the_secret(serve):
    """What the other side says is masked, cut, and cleaned of what moves a cursor."""
    echo = f"\x1b[2J no hook /services/SECRETSECRET for {TOKEN} {'x ' * 900}".encode()
    error = fail(serve((400, {}, echo)).url())
    assert "\x1b" not in str(error)
    assert len(str(error)) < 300


def test_a_redirect_is_not_followed(serve):
    """It would lose the message and send the token elsewhere."""
    other = serve()
    error = fail(serve((302, {"Location": other.url()}, b"")).url())
    assert not error.is_temporary
    assert "it redirects, which is not followed" in str(error)
    assert other.requests == []


def test_nobody_there(serve):
    """A port that nothing listens on may be listened on later."""
    server = serve()
    error = fail("http://127.0.0.1:1/services/SECRETSECRET")
    assert error.is_temporary
    assert "cannot be reached: [Errno 111] Connection refused" in str(error)
    assert server.requests == []


def test_nobody_answers(serve):
    """Silence is a failure when the time is over."""
    error = fail(serve("hang").url(), timeout_seconds=0.3)
    assert error.is_temporary
    assert "timed out" in str(error)


def test_no_name():
    """A name that no name server knows may be known later."""
    error = fail("http://nobody.invalid/services/SECRETSECRET")
    assert error.is_temporary
    assert str(error).startswith("nobody.invalid cannot be reached: ")


@pytest.mark.parametrize(
    "url",
    [
        "SECRETSECRET",
        "file:///etc/SECRETSECRET",
        "ftp://example.org/SECRETSECRET",
        "http://[SECRETSECRET",
        "http://127.0.0.1:port/SECRETSECRET",
        "http://127.0.0.1:1/SECRETSECRET with space",
        "http:///SECRETSECRET",
        "http://" + "a" * 64 + ".example/SECRETSECRET",
    ],
)
def test_what_is_no_address(url):
    """It is said without being shown."""
    fail(url)


def test_tls_is_checked(serve, certificate, monkeypatch):
    """A certificate of an unknown authority is refused, and accepted once the authority is known."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = serve(context=context)
    error = fail(server.url(scheme="https"), timeout_seconds=5.0)
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    post_json(server.url(scheme="https"), {})
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.65", 0.65),
        ("-3", 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:16:50 GMT", 10.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_the_header_that_asks_to_wait(text, seconds):
    """Seconds or a date; what makes no sense is not obeyed."""
    assert parse_retry_after(text, clock=lambda: 1000.0) == seconds


def test_a_refusal_that_asks_to_wait(serve):
    """The error carries it."""
    assert fail(serve((429, {"Retry-After": "12"}, b"")).url()).retry_after_seconds == 12.0
