"""The web configuration file: what it may say, and what follows from its changes."""

import logging
import shutil
import ssl
import subprocess
from base64 import b64encode
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.certificates import make_certificate
from trainvitals.errors import ConfigurationError
from trainvitals.passwords import Passwords, Verdict, parse_credentials
from trainvitals.tls import build_context
from trainvitals.webconfig import WebConfigFile, read_web_config

# The hash of "let me in" at the lowest cost.
HASH = "$2b$04$LBVsXEKDRFpjRUty3BxIDuVJkT6tvOYM4NeDnxHEANLH.OTMj72AW"
TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A folder with a self-signed certificate, cert.pem, and its key, key.pem."""
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def folder(certificate, tmp_path):
    """A folder of one's own with the certificate and its key."""
    return shutil.copytree(certificate, tmp_path / "web")


def write(folder, text):
    """Write a web configuration file and give its path."""
    path = folder / "web.yml"
    path.write_text(text)
    return path


def test_empty_file(tmp_path):
    """An empty file asks for nothing."""
    config = read_web_config(write(tmp_path, ""))
    assert config.tls is None
    assert config.headers == ()
    assert config.users == {}


def test_whole_file(folder):
    """Everything that the format has is read; paths are relative to the file."""
    text = (
        TLS
        + CLIENTS
        + (
            "  client_allowed_sans: [node1.example, '::1']\n"
            "  min_version: TLS12\n"
            "  max_version: TLS13\n"
            "  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n"
            "  curve_preferences: [CurveP256]\n"
            "  prefer_server_cipher_suites: false\n"
            "http_server_config:\n"
            "  http2: true\n"
            "  headers:\n"
            "    X-Frame-Options: deny\n"
            "    X-XSS-Protection: ''\n"
            "    Strict-Transport-Security: max-age=600\n"
            "basic_auth_users:\n"
            f"  prometheus: {HASH}\n"
        )
    )
    config = read_web_config(write(folder, text))
    assert config.tls.cert_file == folder / "cert.pem"
    assert config.tls.key_file == folder / "key.pem"
    assert config.tls.client_ca_file == folder / "cert.pem"
    assert config.tls.client_auth_type == "RequireAndVerifyClientCert"
    assert config.tls.client_allowed_sans == {"node1.example", "::1"}
    assert config.tls.ciphers == ("ECDHE-ECDSA-AES128-GCM-SHA256",)
    assert config.tls.curve == "CurveP256"
    assert config.tls.prefer_server_cipher_suites is False
    assert config.headers == (
        ("X-Frame-Options", "deny"),
        ("Strict-Transport-Security", "max-age=600"),
    )
    assert config.users == {"prometheus": HASH}
    context = build_context(config.tls)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    older = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-ECDSA-AES128-GCM-SHA256"]


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("- a\n", "", "no mapping"),
        ("tls_server_config: [a]\n", ": tls_server_config", "no mapping"),
        ("unknown: 1\n", ".unknown", "not known"),
        ("rate_limit: {burst: 1}\n", ".rate_limit", "not known"),
        (TLS + "  certificate: a\n", ": tls_server_config.certificate", "not known"),
        (TLS + TLS, ": line 4", "tls_server_config is given twice"),
        ("a: [\n", ": line 2", ""),
        ("a: \x01\n", "", "not YAML"),
        ("tls_server_config: {cert_file: a}\n", ": tls_server_config.key_file", "missing"),
        ("tls_server_config: {key_file: a}\n", ": tls_server_config.cert_file", "missing"),
        ("tls_server_config: {cert: a}\n", ": tls_server_config.cert", "taken from files"),
        ("tls_server_config: {cert_file: 1}\n", ": tls_server_config.cert_file", "not a path"),
        (TLS + "  min_version: TLS9\n", ".min_version", "TLS9 is none of TLS10, TLS11"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12\n", ".max_version", "older than"),
        (TLS + "  cipher_suites: [RC4]\n", ".cipher_suites", "RC4 is not known"),
        (TLS + "  cipher_suites: RC4\n", ".cipher_suites", "not a list of strings"),
        (TLS + "  cipher_suites: [1]\n", ".cipher_suites", "not a list of strings"),
        (TLS + "  curve_preferences: [P1]\n", ".curve_preferences", "P1 is none of"),
        (TLS + "  curve_preferences: [X25519, CurveP256]\n", ".curve_preferences", "one curve"),
        (TLS + "  client_auth_type: RequestClientCert\n", ".client_auth_type", "without verifying"),
        (TLS + "  client_auth_type: RequireAnyClientCert\n", ".client_auth_type", "without verify"),
        (TLS + "  client_auth_type: Maybe\n", ".client_auth_type", "Maybe is none of"),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven\n", ".client_ca_file", "missing"),
        (TLS + "  client_ca_file: cert.pem\n", ".client_ca_file", "no effect"),
        (TLS + "  client_allowed_sans: [a]\n", ".client_allowed_sans", "it needs client_auth_type"),
        (TLS + CLIENTS + "  client_allowed_sans: []\n", ".client_allowed_sans", "nobody could"),
        (TLS + "  prefer_server_cipher_suites: 1\n", ".prefer_server_cipher_suites", "true or"),
        ("http_server_config: {headers: {Server: a}}\n", ".headers.Server", "cannot be set"),
        (
            "http_server_config: {headers: {X-Frame-Options: allow}}\n",
            ".headers.X-Frame-Options",
            "allow is none of deny, sameorigin",
        ),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\nb"}}\n',
            ".headers.X-XSS-Protection",
            "line breaks",
        ),
        ("http_server_config: {http2: maybe}\n", ".http2", "true or false"),
        ("basic_auth_users: {ann: secret}\n", ": basic_auth_users.ann", "no bcrypt hash"),
        ("basic_auth_users: {1: secret}\n", ": basic_auth_users.1", "must be strings"),
        (f"basic_auth_users: {{'a:b': {HASH}}}\n", ": basic_auth_users.a:b", "colon"),
    ],
)
def test_refused(tmp_path, text, where, what):
    """What is wrong or cannot be done is refused in one line with the file, the key and why."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as refused:
        read_web_config(path)
    message = str(refused.value)
    assert message.startswith(str(path))
    assert where in message
    assert what in message
    assert "\n" not in message
    assert "secret" not in message


def test_missing_file(tmp_path):
    """A file that is not there is refused with its name and the flag."""
    with pytest.raises(ConfigurationError) as refused:
        read_web_config(tmp_path / "web.yml")
    assert str(refused.value) == (
        f"cannot read {tmp_path}/web.yml: No such file or directory; correct --web.config.file"
    )


@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path_factory, content):
    """No content of the file does anything but be read or be refused."""
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_bytes(content)
    message = ""
    try:
        read_web_config(path)
    except ConfigurationError as refused:
        message = str(refused)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("damage", "where", "what"),
    [
        ("rm cert.pem", "cert_file", "cannot read"),
        ("rm key.pem", "key_file", "cannot read"),
        ("echo no > cert.pem", "tls_server_config", "not PEM"),
        ("openssl ecparam -name prime256v1 -genkey -noout -out key.pem", "key_file", "not belong"),
        ("openssl ec -in key.pem -aes128 -passout pass:abcd -out k && mv k key.pem", "key", "pass"),
    ],
)
def test_useless_certificate(folder, damage, where, what):
    """A certificate or key that cannot be used is refused with its name and the reason."""
    subprocess.run(damage, shell=True, cwd=folder, check=True, capture_output=True)
    with pytest.raises(ConfigurationError) as refused:
        WebConfigFile(write(folder, TLS))
    assert where in str(refused.value)
    assert what in str(refused.value)
    assert "\n" not in str(refused.value)


def test_useless_client_authority(folder):
    """A client_ca_file without a certificate is refused."""
    (folder / "ca.pem").write_text("nothing\n")
    path = write(folder, TLS + CLIENTS.replace("cert.pem", "ca.pem"))
    with pytest.raises(ConfigurationError, match=r"ca\.pem holds no certificate"):
        WebConfigFile(path)


@pytest.mark.parametrize("version", ["TLS10", "TLS11"])
def test_old_versions(folder, version):
    """Old versions of TLS are spoken where the file says so, without a warning."""
    context = WebConfigFile(write(folder, f"{TLS}  min_version: {version}\n")).context
    assert context.minimum_version.name == {"TLS10": "TLSv1", "TLS11": "TLSv1_1"}[version]


def test_new_ciphers_alone(folder):
    """With cipher suites of TLS 1.3 alone, nothing older is spoken."""
    path = write(folder, TLS + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n")
    assert WebConfigFile(path).context.minimum_version is ssl.TLSVersion.TLSv1_3


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self):
        """Give the time."""
        return self.now


def test_changed_users(tmp_path):
    """A user who is added counts from the next look on, and one look a second is enough."""
    clock = Clock()
    path = write(tmp_path, f"basic_auth_users: {{ann: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    write(tmp_path, f"basic_auth_users: {{ann: {HASH}, bob: {HASH}}}\n")
    clock.now = 0.5
    file.refresh()
    assert set(file.config.users) == {"ann"}
    clock.now = 1.5
    file.refresh()
    assert set(file.config.users) == {"ann", "bob"}


def test_broken_change(tmp_path, caplog):
    """A change that is wrong is logged once, changes nothing, and can be put right."""
    clock = Clock()
    path = write(tmp_path, f"basic_auth_users: {{ann: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    write(tmp_path, "basic_auth_users: {ann: wrong}\n")
    with caplog.at_level(logging.ERROR):
        for clock.now in (2.0, 4.0, 6.0):
            file.refresh()
    assert len(caplog.records) == 1
    assert "basic_auth_users.ann: this is no bcrypt hash" in caplog.text
    assert set(file.config.users) == {"ann"}
    write(tmp_path, "")
    clock.now = 8.0
    file.refresh()
    assert file.config.users == {}


def test_renewed_certificate(folder, certificate):
    """A renewed certificate is used, but not before its key has come along."""
    clock = Clock()
    file = WebConfigFile(write(folder, TLS), clock=clock)
    first = file.context
    new = make_certificate(folder, name="renewed", stem="new-")
    (new / "new-cert.pem").replace(folder / "cert.pem")
    clock.now = 2.0
    file.refresh()
    assert file.context is first
    (new / "new-key.pem").replace(folder / "key.pem")
    clock.now = 4.0
    file.refresh()
    assert file.context is not first


def test_tls_stays(folder, caplog):
    """TLS that is taken out of the file while the server runs stays on."""
    clock = Clock()
    file = WebConfigFile(write(folder, TLS), clock=clock)
    write(folder, "")
    clock.now = 2.0
    file.refresh()
    assert file.context is not None
    assert "TLS is switched on and off at a start alone" in caplog.text


# Passwords.


@pytest.mark.parametrize(
    ("header", "credentials"),
    [
        ("Basic YW5uOmxldCBtZSBpbg==", ("ann", b"let me in")),
        ("basic YW5uOmE6Yg==", ("ann", b"a:b")),
        ("Basic YW5uOg==", ("ann", b"")),
        ("Basic YW5u", None),
        ("Basic /w==", None),
        ("Basic !", None),
        ("Basic", None),
        ("Bearer YW5uOmxldCBtZSBpbg==", None),
        ("Basic \xe9", None),
        ("", None),
        (None, None),
    ],
)
def test_credentials(header, credentials):
    """A name and a password are read from the header, or nothing is."""
    assert parse_credentials(header) == credentials


ANN = "Basic YW5uOmxldCBtZSBpbg=="  # ann:let me in
ANN_WRONG = "Basic YW5uOndyb25n"  # ann:wrong
EVE = "Basic ZXZlOmxldCBtZSBpbg=="  # eve:let me in
USERS = {"ann": HASH}


class Calls:
    """A loop that a test turns by hand; it counts the slow comparisons."""

    def __init__(self):
        self.compared = []
        self.verdicts = []
        self._calls = SimpleQueue()
        self.passwords = Passwords(self._calls.put, compare=self.compare)

    def compare(self, password, hashed):
        """Compare quickly and take note."""
        self.compared.append((password, hashed))
        return password == b"let me in"

    def check(self, header, users=USERS):
        """Take note of the verdict on a header."""
        self.passwords.check(header, users, self.verdicts.append)

    def turn(self, times=1):
        """Make the next calls that are due."""
        for _ in range(times):
            self._calls.get(timeout=5)()


def test_password_remembered():
    """A right and a wrong password are each compared once, then remembered."""
    calls = Calls()
    for header in (ANN, ANN_WRONG):
        calls.check(header)
        calls.turn()
        calls.check(header)
    assert calls.verdicts == [Verdict.ADMITTED] * 2 + [Verdict.DENIED] * 2
    assert len(calls.compared) == 2


def test_same_password_at_once():
    """Requests with the same password that come at once share one comparison."""
    calls = Calls()
    for _ in range(200):
        calls.check(ANN)
    calls.turn()
    assert calls.verdicts == [Verdict.ADMITTED] * 200
    assert len(calls.compared) == 1


def test_unknown_user_costs_the_same():
    """An unknown user is compared with a known one's hash, and denied whatever the password."""
    calls = Calls()
    calls.check(EVE)
    calls.turn()
    assert calls.verdicts == [Verdict.DENIED]
    assert calls.compared == [(b"let me in", HASH.encode())]


def test_new_hash_forgets():
    """A password remembered for one hash says nothing about another, or about a removed user."""
    calls = Calls()
    calls.check(ANN)
    calls.turn()
    calls.check(ANN, {"ann": HASH[:-1] + "u"})
    calls.check(ANN, {"bob": HASH})
    calls.turn(2)
    assert calls.verdicts == [Verdict.ADMITTED, Verdict.ADMITTED, Verdict.DENIED]
    assert len(calls.compared) == 3


def test_flood_of_guesses():
    """Guesses beyond the backlog are turned away at once, and push out no right password."""
    calls = Calls()
    calls.check(ANN)
    calls.turn()
    for guess in range(200):
        header = b64encode(b"ann:%d" % guess).decode()
        calls.check(f"Basic {header}")
    assert calls.verdicts.count(Verdict.BUSY) == 184
    calls.turn(16)
    assert calls.verdicts.count(Verdict.DENIED) == 16
    for guess in range(1000, 1200):
        header = b64encode(b"ann:%d" % guess).decode()
        calls.check(f"Basic {header}")
        calls.turn()
    calls.check(ANN)
    assert calls.verdicts[-1] is Verdict.ADMITTED


def test_real_bcrypt():
    """The hash of a real password admits it, alone, whatever its length and bytes."""
    queue = SimpleQueue()
    passwords, verdicts = Passwords(queue.put), []
    zero_byte, long = "Basic YW5uOgA=", "Basic " + "YW5u" + "OmFh" + "YWFh" * 100
    for header in (ANN, ANN_WRONG, EVE, zero_byte, long):
        passwords.check(header, USERS, verdicts.append)
        queue.get(timeout=5)()
    assert verdicts == [Verdict.ADMITTED] + [Verdict.DENIED] * 4
