"""Servers that are unreachable, have an untrusted certificate or refuse the credentials."""

from __future__ import annotations

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.network import find_host
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_UNREACHED = matches(
    r"Max retries exceeded with url|NewConnectionError|ConnectTimeoutError|ConnectTimeout\b|ProxyError"
    r"|Tunnel connection failed|Network is unreachable|No route to host"
    r"|We couldn't connect to '?https?://|Check(?:out)? your internet connection"
    r"|[Pp]lease check your (?:internet )?connection and try again"
    r"|Cannot send a request as the client is offline|outgoing traffic has been disabled"
    r"|ConnectionError: Couldn't reach |Couldn't reach https?://|URLError: <urlopen error"
    r"|HTTPS?ConnectionPool\(.{1,200}(?:[Tt]imed out|refused)|(?:Connect|Read)TimeoutError"
    r"|requests\.exceptions\.(?:Connection|Connect|Read)[A-Za-z]{0,20}(?:Error|Timeout)"
    r"|aiohttp\.client_exceptions\.ClientConnect|EndpointConnectionError|Could not connect to the endpoint URL"
    r"|wandb\.errors\.[\w.]{0,30}CommError(?!.{0,80}[Pp]ermission)|503 Server Error|502 Server Error|504 Server Error"
    r"|curl: \(\d{1,2}\) (?:Failed to connect|Connection timed out|Could not connect)"
    r"|cannot find the requested files in the (?:local|disk) cache|LocalEntryNotFoundError|ReadTimeout(?:Error)?: "
    r"|HTTP Error 50[0234]: |socket\.timeout: |APIConnectionError|Server(?:Selection)?TimeoutError|Error 111 connecting to"
    r"|Network is down|TransportError: .{0,80}(?:timed out|refused)|httpx\.(?:Connect|Read|Write|Pool|Remote)\w{0,20}(?:Error|Timeout)"
    r"|OfflineModeIsEnabled|ServerDisconnectedError|RemoteDisconnected|ProtocolError: \('Connection (?:aborted|broken)"
    r"|IncompleteRead\(|50[0234] Server Error|Server Error .{0,40}for url|No address associated with hostname"
    r"|Failed to connect to (?:GCS|Redis|the Ray cluster)|Unable to connect to (?:GCS|the proxy|the server)"
    r"|TimeoutError: \[Errno 110\]|(?<!aborted by: )failed to connect to all addresses|Connection was closed before we received a valid response|ConnectionClosedError\b"
    r"|Connection to \S{1,200} timed out|ClientConnectorError|All connection attempts failed"
    r"|kex_exchange_identification|ConnectionRefusedError: |Errno 111\] Connection refused|Errno 101\]|Errno 113\]",
    without=(
        "coordination service",  # with which JAX reports that a task has ended
        "coordination_service",
        "Failed to pick subchannel",  # in gRPC's error about a connection that a peer ended
    ),
)

_NO_CREDENTIALS = matches(
    r"api_key not configured|NoCredentialsError|Unable to locate credentials|DefaultCredentialsError",
    r"Could not find kaggle\.json|PartialCredentialsError|ExpiredToken(?:Exception)?\b|InvalidAccessKeyId",
    r"SignatureDoesNotMatch|could not automatically determine credentials|AuthenticationFailed\b.{0,80}storage",
    r"wandb: ERROR .{0,60}(?:permission|login|API key)|CommError: .{0,80}(?:[Pp]ermission|\b40[13]\b)",
    r"[Aa]pi[ _]?[Kk]ey (?:is )?(?:not (?:set|found|configured|provided)|missing|invalid)|Invalid API key",
    r"Access ?Denied\b.{0,80}(?:operation|bucket|s3|PutObject|GetObject)|when calling the \w{1,40} operation: (?:Access Denied|Forbidden)",
    r"(?<!Client)AuthenticationError: |ClientAuthenticationError|[Ii]ncorrect API key|InvalidAPIKey|Missing(?:Api|API)(?:Token|Key)",
    r"auth\.exceptions\.\w{1,40}Error|invalid_grant|API key (?:is missing|must have)|InvalidClientTokenId|AuthorizationHeaderMalformed",
    r"does not have storage\.\w{1,40}\.\w{1,20} access|Permission denied \(publickey",
)

_OFFLINE = contains(
    "OfflineModeIsEnabled",
    "the client is offline",
    "outgoing traffic has been disabled",
    "offline mode is enabled",
)
_OFFLINE_STEPS = (
    (
        "Fill the cache on a machine with a way out: `hf download ORG/NAME` (`--repo-type dataset`), and point"
        " `HF_HOME` to it, which needs to be the same directory in the job."
    ),
    (
        "Or let it download: unset `HF_HUB_OFFLINE`, `HF_DATASETS_OFFLINE` and `TRANSFORMERS_OFFLINE`"
        " (`env | grep OFFLINE`)."
    ),
)


def detect_net_connect(case: Case) -> Finding | None:
    """Detect an unreachable server, or a file that is missing from the cache in offline mode."""
    match = find_match(case, _UNREACHED)
    if match is None:
        return None
    if any(map(_OFFLINE, match.text.split("\n"))):
        summary = "Offline mode is set, and what the program asks for is not in the cache."
        return match.conclude("net-connect", summary, _OFFLINE_STEPS)
    return match.conclude("net-connect", _UNREACHED_SUMMARY, _advise_connect(match.text))


def _advise_connect(text: str) -> tuple[str, ...]:
    is_tracker = "wandb" in text
    known = "api.wandb.ai" if is_tracker else "huggingface.co" if _HUB(text) else "HOST"
    host = find_host(text)
    host = known if not host or host.startswith("wandb.me") else host
    steps = (
        f"Try it from the same machine: `curl -sSI https://{host}`; behind a proxy set `HTTPS_PROXY`.",
    )
    if is_tracker:
        return (*steps, "Or work offline: `WANDB_MODE=offline`, and `wandb sync` later.")
    return (*steps, _DOWNLOAD) if host == "huggingface.co" or _HUB(text) else steps


_HUB = contains("huggingface", " Hub", "hf.co", "transformers", "datasets")
_UNREACHED_SUMMARY = (
    "A server could not be reached: no route, refused, timed out, or a proxy that refuses."
)
_DOWNLOAD = (
    "Download on a machine with a way out, and work offline: `hf download ORG/NAME`, then"
    " `HF_HUB_OFFLINE=1`, `HF_DATASETS_OFFLINE=1`."
)

CAUSES: tuple[Cause, ...] = (
    text_cause(
        "credentials",
        "A service refused the program's credentials, or there are none",
        "The log contains `api_key not configured`, `NoCredentialsError`, `Unable to locate credentials` or"
        " `Access Denied`.",
        "The key or login of a tracker or of a storage service is missing in the job's environment, expired,"
        " or has no right to what was asked for.",
        (
            (
                "Pass it to the job: `WANDB_API_KEY`, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`,"
                " `GOOGLE_APPLICATION_CREDENTIALS` (`docker run --env-file`), not in the image."
            ),
            (
                "Check it in the same environment: `wandb login --verify`, `aws sts get-caller-identity`, `gcloud"
                " auth list`."
            ),
            "Or work without the service: `WANDB_MODE=offline`.",
        ),
        summary="A service refused the program: its key or login is missing, expired or without the right.",
        lines=_NO_CREDENTIALS,
    ),
    text_cause(
        "net-ssl",
        "A server's certificate is not trusted",
        "The log contains `CERTIFICATE_VERIFY_FAILED` or `self-signed certificate`.",
        "A proxy puts its own certificate in between, the image's certificates are old, or the clock is"
        " wrong.",
        (
            (
                "Trust the proxy's certificate: `REQUESTS_CA_BUNDLE=/path/ca.pem`, `SSL_CERT_FILE`; in the"
                " image copy it to `/usr/local/share/ca-certificates` and run `update-ca-certificates`."
            ),
            (
                "Renew the certificates: `apt-get install --reinstall ca-certificates`, `pip install -U"
                " certifi`; check the clock: `date`."
            ),
            "Or work offline: download before, then set `HF_HUB_OFFLINE=1`.",
        ),
        summary="The certificate of a server, or of a proxy before it, is not trusted.",
        lines=contains(
            "CERTIFICATE_VERIFY_FAILED",
            "certificate verify failed",
            "self-signed certificate",
            "self signed certificate",
            "unable to get local issuer certificate",
            "x509: certificate",
            "SSL certificate problem",
            "SSLCertVerificationError",
        ),
    ),
    Cause(
        "net-connect",
        "A server could not be reached",
        "The log contains `Network is unreachable`, `Max retries exceeded with url`, `Tunnel connection"
        " failed` or `We couldn't connect to`.",
        "The machine has no way to the Internet, as compute nodes of clusters; a proxy refuses; the server"
        " is down; or offline mode is set.",
        (
            (
                "Try it from the same machine: `curl -sSI https://huggingface.co`; behind a proxy set"
                " `HTTPS_PROXY`."
            ),
            (
                "Download on a machine with a way out, and work offline: `hf download ORG/NAME`, then"
                " `HF_HUB_OFFLINE=1`, `HF_DATASETS_OFFLINE=1`, `WANDB_MODE=offline`."
            ),
        ),
        "high",
        detect_net_connect,
    ),
)
