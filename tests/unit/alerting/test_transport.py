"""Tests for HTTP delivery: the handling of responses, and errors that contain no secret."""

import ssl

import pytest

from trainvitals.alerting.transport import DeliveryError, parse_retry_after, post_json

TOKEN = "hush-hush-hush"


def fail(url, **options):
    """Return the error of a request that must fail, and check that it contains no secret."""
    with pytest.raises(DeliveryError) as caught:
        post_json(url, {"text": "x"}, token=TOKEN, **options)
    assert "SECRETSECRET" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    # A traceback would also show the cause and the context of the error.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


def test_what_is_sent(serve):
    """The request has a JSON body, the token, and a user agent, as Discord refuses Python's."""
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
    """A refusal is temporary or permanent by its status, and the error suggests what to do."""
    error = fail(serve((status, {}, b"no_text")).url())
    assert error.is_temporary is is_temporary
    assert words in str(error)
    assert str(error).startswith("127.0.0.1 ")


def test_an_answer_that_repeats_the_secret(serve):
    """The quoted response is masked, truncated and stripped of control characters."""
    echo = f"\x1b[2J no hook /services/SECRETSECRET for {TOKEN} {'x ' * 900}".encode()
    error = fail(serve((400, {}, echo)).url())
    assert "\x1b" not in str(error)
    assert len(str(error)) < 300


def test_a_redirect_is_not_followed(serve):
    """A redirect is an error, because following it would lose the body and leak the token."""
    other = serve()
    error = fail(serve((302, {"Location": other.url()}, b"")).url())
    assert not error.is_temporary
    assert "it redirects, which is not followed" in str(error)
    assert other.requests == []


def test_nobody_there(serve):
    """A refused connection is a temporary error."""
    server = serve()
    error = fail("http://127.0.0.1:1/services/SECRETSECRET")
    assert error.is_temporary
    assert "cannot be reached: [Errno 111] Connection refused" in str(error)
    assert server.requests == []


def test_nobody_answers(serve):
    """If the server sends no response before the timeout, the error is temporary."""
    error = fail(serve("hang").url(), timeout_seconds=0.3)
    assert error.is_temporary
    assert "timed out" in str(error)


def test_no_name():
    """A host name that cannot be resolved is a temporary error."""
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
    """The error for an invalid URL does not quote the URL."""
    fail(url)


def test_tls_is_checked(serve, certificate, monkeypatch):
    """A certificate of an unknown authority is refused until SSL_CERT_FILE names the authority."""
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
    """Retry-After is parsed as seconds or as a date, and an invalid value is ignored."""
    assert parse_retry_after(text, clock=lambda: 1000.0) == seconds


def test_a_refusal_that_asks_to_wait(serve):
    """The error for a 429 response contains the seconds of its Retry-After header."""
    assert fail(serve((429, {"Retry-After": "12"}, b"")).url()).retry_after_seconds == 12.0
