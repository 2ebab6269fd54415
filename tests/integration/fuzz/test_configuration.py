"""Damaged files of the administrator, truncated or mistyped: web configuration and `.env`."""

from tests.integration.fuzz.fuzzing import CANARY, TIMEOUT, fuzz, refusal
from tests.support.certificates import make_certificate
from tests.support.mutations import Mutations
from tests.support.run_files import ROOT
from trainvitals.alerting.configuration import read_links, render, render_links
from trainvitals.alerting.receivers import find_destinations, read_receivers
from trainvitals.errors import ConfigurationError
from trainvitals.http.web_config import WebConfigFile, find_opening, read_web_config
from trainvitals.stack.settings import exposes_secrets, read_dotenv, read_settings

pytestmark = TIMEOUT
LONGEST = 1 << 14  # PyYAML is slow, and only the administrator writes this file
HASH = "$2y$10$" + "a" * 53
WEB = (
    f"basic_auth_users: {{ann: {HASH}, bob: {HASH}}}\n",
    (
        "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  min_version: TLS12\n"
        "  max_version: TLS13\n  client_auth_type: RequireAndVerifyClientCert\n"
        "  client_ca_file: cert.pem\n  client_allowed_sans: [a.example, b.example]\n"
        "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n  curve_preferences: [X25519]\n"
        "  prefer_server_cipher_suites: true\n"
    ),
    (
        "http_server_config:\n  http2: true\n  headers:\n    X-Frame-Options: deny\n"
        f"    Strict-Transport-Security: max-age=31536000\nbasic_auth_users:\n  ann: {HASH}\n"
    ),
    "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b, !!int 7, !!binary x, 2001-01-01, 1:2:3, 0b1]\n{}\n",
)
SIGNS = (
    *(b"!!python/object:os.system", b"!!int ", b"!!timestamp ", b"!!binary ", b"&a ", b"*a", b"<<: ", b"? "),
    *(b"- ", b"---\n", b"...\n", b"%YAML 9.9\n", b"../outside", b"|\n", b">-\n", b"=", b"@", b"2001-99-99"),
)  # fmt: skip


def test_no_web_configuration_costs_more_than_a_refusal(tmp_path):
    """A damaged web configuration is read or refused in one line, and disables no passwords."""
    make_certificate(tmp_path)
    (tmp_path / "outside").write_text(CANARY)
    path, kept = tmp_path / "web.yml", tmp_path / "kept.yml"
    kept.write_text(WEB[0])
    now = iter(range(1 << 40))
    served = WebConfigFile(kept, clock=lambda: float(2 * next(now)))

    def take(data):
        path.write_bytes(data)
        kept.write_bytes(data)
        served.refresh()
        assert served.config.users
        assert served.config.tls is None
        try:
            config = read_web_config(path)
        except ConfigurationError as error:
            return refusal(error)
        return f"{config} {find_opening(served.config, config)} {served.complaint}"

    corpus = [text.encode() for text in WEB]
    fuzz("web configuration", Mutations(corpus, SIGNS, longest=LONGEST), take)


def run(read):
    """Return the reason why a file is refused, or an empty string if it is accepted."""
    try:
        read()
    except ConfigurationError as error:
        return refusal(error)
    return ""


def test_no_dotenv_costs_more_than_a_refusal(tmp_path):
    """A damaged `.env` is read, or refused in one line that contains no secret."""
    path = tmp_path / ".env"
    environ = {"HOME": str(tmp_path)}
    base = ROOT / "alertmanager/alertmanager.yml"

    def take(data):
        path.write_bytes(data)
        reads = (
            lambda: read_settings(environ, path),
            lambda: exposes_secrets(path),
            lambda: render_links(read_links(read_dotenv(path))),
            lambda: find_destinations(read_receivers(read_dotenv(path)), None).describe(),
            lambda: render(read_receivers(read_dotenv(path)), base=base),
        )
        return "".join(map(run, reads))

    lines = (ROOT / ".env.example").read_text().splitlines()
    set_ = "\n".join(line[1:] for line in lines if line.startswith("#") and "=" in line[:40])
    texts = (
        b"export ",
        b"_TEAM_A",
        b"STACK_WAY=",
        b"=",
        b"http://[",
        b"https://a:b@c:99999/",
        b"~nobody/",
    )
    fuzz(".env", Mutations([set_.encode(), "\n".join(lines).encode(), SECRETS], texts), take)


SECRETS = f"""SLACK_WEBHOOK_URL=https://hooks.slack.example/{CANARY}
SLACK_CHANNEL=#training
SMTP_SMARTHOST=smtp.example.org:587
SMTP_FROM=a@example.org
SMTP_TO=b@example.org
SMTP_USERNAME=ann
SMTP_PASSWORD="{CANARY}"
TELEGRAM_BOT_TOKEN={CANARY}
TELEGRAM_CHAT_ID=-1001234567890
WEBHOOK_URL=https://example.org/x
WEBHOOK_TOKEN='{CANARY}' # mine
EXPORTER_PORT=9200
""".encode()
