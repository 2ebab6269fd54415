"""Tests for reading the web configuration file and of reloading changes."""

import logging
import os
import shutil
import ssl
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.certificates import make_certificate
from trainvitals.errors import ConfigurationError
from trainvitals.http.tls import build_context
from trainvitals.http.web_config import WebConfigFile, read_web_config

# The bcrypt hash of "let me in" with the lowest cost factor.
HASH = "$2b$04$LBVsXEKDRFpjRUty3BxIDuVJkT6tvOYM4NeDnxHEANLH.OTMj72AW"
TLS = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n"


@pytest.fixture
def folder(certificate, tmp_path):
    """Return a copy of the directory with the certificate and its key."""
    return shutil.copytree(certificate, tmp_path / "web")


def write(folder, text):
    """Write a web configuration file and return its path."""
    path = folder / "web.yml"
    path.write_text(text)
    return path


def test_empty_file(tmp_path):
    """An empty file configures neither TLS nor headers nor users."""
    config = read_web_config(write(tmp_path, ""))
    assert config.tls is None
    assert config.headers == ()
    assert config.users == {}


def test_whole_file(folder):
    """All settings of the file are read, and paths are relative to the file."""
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
        ("a: !!timestamp x\n", "", "not YAML"),
        ("a: " + "[" * 3000, ": line 1", "nested more than 32 levels deep"),
        ("- " * 3000, ": line 1", "nested more than 32 levels deep"),
        ("tls_server_config: {cert_file: a}\n", ": tls_server_config.key_file", "missing"),
        ("tls_server_config: {key_file: a}\n", ": tls_server_config.cert_file", "missing"),
        ("tls_server_config: {cert: a}\n", ": tls_server_config.cert", "read from files"),
        ("tls_server_config: {cert_file: 1}\n", ": tls_server_config.cert_file", "not a path"),
        (TLS + "  min_version: TLS9\n", ".min_version", "TLS9 is not one of TLS10, TLS11"),
        (TLS + "  min_version: TLS13\n  max_version: TLS12\n", ".max_version", "older than"),
        (TLS + "  cipher_suites: [RC4]\n", ".cipher_suites", "RC4 is unknown"),
        (TLS + "  cipher_suites: RC4\n", ".cipher_suites", "not a list of strings"),
        (TLS + "  cipher_suites: [1]\n", ".cipher_suites", "not a list of strings"),
        (TLS + "  curve_preferences: [P1]\n", ".curve_preferences", "P1 is not one of"),
        (TLS + "  curve_preferences: [X25519, CurveP256]\n", ".curve_preferences", "one curve"),
        (TLS + "  client_auth_type: RequestClientCert\n", ".client_auth_type", "without verifying"),
        (TLS + "  client_auth_type: RequireAnyClientCert\n", ".client_auth_type", "without verify"),
        (TLS + "  client_auth_type: Maybe\n", ".client_auth_type", "Maybe is not one of"),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven\n", ".client_ca_file", "missing"),
        (TLS + "  client_ca_file: cert.pem\n", ".client_ca_file", "no effect"),
        (TLS + "  client_allowed_sans: [a]\n", ".client_allowed_sans", "it needs client_auth_type"),
        (TLS + CLIENTS + "  client_allowed_sans: []\n", ".client_allowed_sans", "no client could"),
        (TLS + "  prefer_server_cipher_suites: 1\n", ".prefer_server_cipher_suites", "true or"),
        ("http_server_config: {headers: {Server: a}}\n", ".headers.Server", "cannot be set"),
        (
            "http_server_config: {headers: {X-Frame-Options: allow}}\n",
            ".headers.X-Frame-Options",
            "allow is not one of deny, sameorigin",
        ),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\nb"}}\n',
            ".headers.X-XSS-Protection",
            "line breaks",
        ),
        ("http_server_config: {http2: maybe}\n", ".http2", "true or false"),
        ("basic_auth_users: {ann: secret}\n", ": basic_auth_users.ann", "not a bcrypt hash"),
        ("basic_auth_users: {1: secret}\n", ": basic_auth_users.1", "must be strings"),
        (f"basic_auth_users: {{'a:b': {HASH}}}\n", ": basic_auth_users.a:b", "colon"),
    ],
)
def test_refused(tmp_path, text, where, what):
    """An invalid setting is refused in one line with the file, the key and the reason."""
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
    """A missing file is refused with its name and the flag."""
    with pytest.raises(ConfigurationError) as refused:
        read_web_config(tmp_path / "web.yml")
    assert str(refused.value) == (
        f"cannot read {tmp_path}/web.yml: No such file or directory; correct --web.config.file"
    )


@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path_factory, content):
    """Any content of the file is either read or refused in one line."""
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
        (
            "openssl ecparam -name prime256v1 -genkey -noout -out key.pem",
            "key_file",
            "not that of the certificate",
        ),
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
    """Old versions of TLS are enabled if the file says so, without a warning."""
    context = WebConfigFile(write(folder, f"{TLS}  min_version: {version}\n")).context
    assert context.minimum_version.name == {"TLS10": "TLSv1", "TLS11": "TLSv1_1"}[version]


def test_new_ciphers_alone(folder):
    """With only cipher suites of TLS 1.3, older versions of TLS are disabled."""
    path = write(folder, TLS + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n")
    assert WebConfigFile(path).context.minimum_version is ssl.TLSVersion.TLSv1_3


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        """Return the time."""
        return self.now


def test_changed_users(tmp_path):
    """The file is checked for changes at most once a second, and an added user is accepted then."""
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
    """An invalid change is logged once and not applied; a later valid change is applied."""
    clock = Clock()
    path = write(tmp_path, f"basic_auth_users: {{ann: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    write(tmp_path, "basic_auth_users: {ann: wrong}\n")
    with caplog.at_level(logging.ERROR):
        for clock.now in (2.0, 4.0, 6.0):
            file.refresh()
    assert len(caplog.records) == 1
    assert "basic_auth_users.ann: this is not a bcrypt hash" in caplog.text
    assert set(file.config.users) == {"ann"}
    assert file.complaint is not None
    write(tmp_path, f"basic_auth_users: {{bob: {HASH}}}\n")
    clock.now = 8.0
    file.refresh()
    assert set(file.config.users) == {"bob"}
    assert file.complaint is None


CLOSED = f"""\
tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: cert.pem
  client_allowed_sans: [node1]
  min_version: TLS13
basic_auth_users:
  ann: {HASH}
"""


def protections(config):
    """Return the requirements for clients, in the order of the file."""
    return (
        config.tls is not None,
        config.tls and config.tls.client_auth_type,
        config.tls and config.tls.client_allowed_sans,
        config.tls and config.tls.min_version,
        set(config.users),
    )


@pytest.mark.parametrize("size", range(0, len(CLOSED) - 1, 7))
def test_half_a_file_opens_nothing(folder, caplog, size):
    """A truncated file is not applied, and the log says that the previous one stays in force."""
    clock = Clock()
    file = WebConfigFile(write(folder, CLOSED), clock=clock)
    before = protections(file.config)
    write(folder, CLOSED[:size])
    for clock.now in (2.0, 4.0):
        file.refresh()
    assert protections(file.config) == before
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "the previous configuration stays in force" in record.message
    assert file.complaint == record.message


def test_reload_reads_at_once_and_says_what_is_wrong_again(tmp_path, caplog):
    """A reload reads the file at once and logs its success or failure each time."""
    path = write(tmp_path, f"basic_auth_users: {{ann: {HASH}}}\n")
    file = WebConfigFile(path, clock=Clock())
    caplog.set_level(logging.INFO)
    write(tmp_path, f"basic_auth_users: {{bob: {HASH}}}\n")
    file.reload()
    assert set(file.config.users) == {"bob"}
    assert caplog.messages == [f"{path} was read again"]
    write(tmp_path, "nonsense\n")
    for times in (1, 2):
        file.reload()
        assert set(file.config.users) == {"bob"}
        assert sum("stays in force" in message for message in caplog.messages) == times


@pytest.mark.parametrize(
    "kept",
    [
        "",
        " \n \r\n",
        "# nothing\n",
        "{}\n",
        "basic_auth_users:\n",
    ],
)
def test_users_are_not_turned_off_while_it_runs(tmp_path, kept):
    """Removing all users needs a restart, and an empty file is refused even then."""
    clock = Clock()
    path = write(tmp_path, f"basic_auth_users: {{ann: {HASH}}}\n")
    file = WebConfigFile(path, clock=clock)
    write(tmp_path, kept)
    clock.now = 2.0
    file.refresh()
    assert set(file.config.users) == {"ann"}
    assert "passwords can only be turned off by a restart" in file.complaint
    if kept.strip():
        assert WebConfigFile(path).config.users == {}
    else:
        with pytest.raises(ConfigurationError, match="the file is empty; restore it, or write"):
            WebConfigFile(path)


def test_open_door_is_said_aloud(tmp_path, caplog):
    """A file without TLS and passwords is named in a log message at the start."""
    WebConfigFile(write(tmp_path, "{}\n"))
    assert "web.yml has neither TLS nor passwords" in caplog.text


def test_renewed_certificate(folder, certificate):
    """A renewed certificate is used as soon as its key has been replaced too."""
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
    """TLS stays on if it is removed from the file while the server runs."""
    clock = Clock()
    file = WebConfigFile(write(folder, TLS), clock=clock)
    write(folder, "")
    clock.now = 2.0
    file.refresh()
    assert file.context is not None
    assert "TLS can only be turned on or off by a restart" in caplog.text


def test_a_pipe_in_place_of_the_file_does_not_wait(tmp_path):
    """A pipe or a file of 1 TiB is refused, and the previous configuration stays."""
    path = tmp_path / "web.yml"
    path.write_text("basic_auth_users: {ann: $2y$05$" + "a" * 53 + "}")
    now = [0.0]
    file = WebConfigFile(path, clock=lambda: now[0])
    for make in (os.mkfifo, _make_sparse):
        path.unlink()
        make(path)
        now[0] += 10.0
        file.refresh()
        assert "the previous configuration stays in force" in file.complaint
        assert file.config.users
        with pytest.raises(ConfigurationError, match="cannot read"):
            read_web_config(path)


def _make_sparse(path):
    path.touch()
    os.truncate(path, 1 << 40)
