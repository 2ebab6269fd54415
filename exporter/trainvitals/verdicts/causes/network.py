"""Deaths caused by the network: failed name resolution, and errors of the Hugging Face Hub."""

from __future__ import annotations

import re

from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.log_matches import (
    LogMatch,
    find_match,
)
from trainvitals.verdicts.causes.parsed_log import parse_log
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_REPOSITORY = re.compile(
    r"Access to (?:model|dataset|space) ([\w./-]{1,120}) is restricted"
    r"|(?<![\w.-])(?:models/|datasets/)?([\w.-]{1,96}/[\w.-]{1,96})/(?:resolve|tree|revision|blob)/"
    r"|/api/(?:models|datasets)/([\w.-]{1,96}(?:/[\w.-]{1,96})?)"
    r"|^(?:OSError: )?([\w.-]{1,96}(?:/[\w.-]{1,96})?) is not a local folder and is not a valid"
)
_TOKEN_NAMES = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN"})
_GATED = contains(
    "GatedRepoError",
    "Cannot access gated repo",
    "You are trying to access a gated repo",
    "is gated. You must be authenticated",
    "is restricted. You must have access to it",
    "Token is required (`token=True`), but no token found",
    "Token is required (`use_auth_token=True`)",
    "Forbidden for url: https://huggingface.co",
    "Please enable access to public gated repositories",
    "Your request to access model",
    "is awaiting a review from the repo authors",
)
_BAD_TOKEN = contains(
    "Invalid credentials in Authorization header",
    "401 Client Error: Unauthorized",
    "Invalid token passed",
    "Invalid user token",
)
_NOT_FOUND = contains(
    "RepositoryNotFoundError",
    "Repository Not Found for url",
    "is not a local folder and is not a valid model identifier",
    "EntryNotFoundError: 404",
    "RevisionNotFoundError",
    "DatasetNotFoundError",
    "doesn't exist on the Hub or cannot be accessed",
    "HFValidationError: Repo id must",
    "does not appear to have a file named",
    "Can't load the configuration of '",
    "Can't load tokenizer for '",
    "Can't load config for '",
    "Can't load the model for '",
    "Error no file named ",
    "is not a valid git identifier",
    "404 Client Error: Not Found for url: https://huggingface.co",
    "Repo id must be in the form",
)
# A message that names a path is not about the Hub.
LOCAL_MODEL = matches(
    r"Error no file named .{1,200} in directory|Can't load .{1,40} '[./~]"
    r"|(?:^|: )'?[./~][^' ]{0,200}'? is not a local folder and is not a valid"
)
_RATE = contains(
    "429 Too Many Requests",
    "HTTP Error 429",
    "429 Client Error",
    "RateLimitError",
    "rate limited. We had to rate limit",
)
_LOGIN = (
    "Pass a token as `HF_TOKEN` (`docker run --env-file hf.env`), not in the image or the command."
)
_WHOAMI = "Check the token's account: `hf auth whoami`."
_HOST = re.compile(
    r"host='([\w.-]{1,200})'|[Cc]ould not resolve host:? ([\w.-]{1,200})"
    r"|Failed to resolve '([\w.-]{1,200})'|https?://([\w.-]{1,200})"
)

_NET_DNS = contains(
    "Temporary failure in name resolution",
    "Name or service not known",
    "No address associated with hostname",
    "NameResolutionError",
    "ould not resolve host",
    "gaierror",
    "nodename nor servname provided",
    "Name does not resolve",
    "No such host is known",
    "no such host",
)


def detect_hf_gated(case: Case) -> Finding | None:
    """Detect a gated repository to which the Hub denied access, or a token that it rejected."""
    match = find_match(case, _GATED)
    if match is None:
        return _detect_bad_token(case)
    text = _read_context(case, match)
    name = _find_repository(text)
    page = f"https://huggingface.co/{name}" if name else "the model's page"
    named = f"`{name}`" if name else "The repository"
    accept = f"Accept its terms on {page} with the token's account."
    if "403" in text or "not in the authorized list" in text:
        return match.conclude(
            "hf-gated",
            f"{named} is gated, and the token's account has not accepted its terms.",
            (
                accept,
                (
                    "Give a fine-grained token the permission to read gated repositories:"
                    " https://huggingface.co/settings/tokens."
                ),
                _WHOAMI,
            ),
        )
    problem = "the Hub rejected the token" if _has_token(case) else "the request had no token"
    return match.conclude(
        "hf-gated",
        f"{named} is gated, and {problem}.",
        (_LOGIN, accept, "Check the token: `hf auth whoami` in the container."),
        speaks_for=_describe_token(case),
    )


def _detect_bad_token(case: Case) -> Finding | None:
    match = find_match(case, _BAD_TOKEN)
    if match is None or "huggingface" not in _read_context(case, match) + match.text:
        return None
    return match.conclude(
        "hf-gated",
        "The Hugging Face Hub rejected the token: it is invalid or expired.",
        (
            (
                "Create a new one at https://huggingface.co/settings/tokens, and check it:"
                " `HF_TOKEN=... hf auth whoami`."
            ),
            _LOGIN,
            "Remove an old token in `~/.cache/huggingface/token`: `hf auth logout`.",
        ),
        speaks_for=_describe_token(case),
    )


def detect_hf_notfound(case: Case) -> Finding | None:
    """Detect a Hub repository that does not exist, or that is private and cannot be read.

    A private repository can be read only with a token that has access to it.
    """
    match = find_match(case, _NOT_FOUND)
    if match is None or any(map(LOCAL_MODEL, match.text.split("\n"))):
        return None
    text = _read_context(case, match)
    name = _find_repository(text)
    named = f"`{name}`" if name else "The repository"
    check = f"Check the name: https://huggingface.co/{name or 'ORG/NAME'}; a local directory must exist:"
    check += f" `ls {name or 'DIRECTORY'}`."
    is_hidden = "401 Client Error" in text or "If this is a private repository" in text
    return match.conclude(
        "hf-notfound",
        f"The Hub did not find {named}: the name is wrong, or it is private and the token is missing."
        if is_hidden and name
        else f"{named} does not exist on the Hub.",
        (check, _LOGIN, _WHOAMI),
        speaks_for=(
            *_describe_token(case),
            *(
                ("The Hub also returns `Not Found` for a private repository without access to it.",)
                * is_hidden
            ),
        ),
    )


def detect_hf_rate(case: Case) -> Finding | None:
    """Detect that the Hub's rate limit was reached, even if the log ends with a network error."""
    match = find_match(case, _RATE)
    if match is None:
        return None
    return match.conclude(
        "hf-rate",
        "The Hugging Face Hub's rate limit was reached (HTTP 429).",
        (
            "Pass a token, which raises the limit: `HF_TOKEN`.",
            (
                "Download once and read from disk: `hf download ORG/NAME`, then `HF_HUB_OFFLINE=1`, with"
                " the cache on a volume (`-v hf-cache:/root/.cache/huggingface`)."
            ),
            "Download on one rank before the others start, and wait five minutes before a retry.",
        ),
        speaks_for=("The last log line blames the network, which is not the cause.",)
        if _ends_with_cache_error(case)
        else (),
    )


def _ends_with_cache_error(case: Case) -> bool:
    fatal = parse_log(case).fatal
    return fatal is not None and fatal.errors[-1].name.endswith("LocalEntryNotFoundError")


def _has_token(case: Case) -> bool:
    settings = case.evidence.settings
    return settings is not None and bool(_TOKEN_NAMES & set(settings.variables))


def _describe_token(case: Case) -> tuple[str, ...]:
    settings = case.evidence.settings
    if settings is None:
        return ()
    names = sorted(_TOKEN_NAMES & set(settings.variables))
    if names:
        return (f"`{names[0]}` is set in the container.",)
    return ("`HF_TOKEN` is not set in the container.",)


def _find_repository(text: str) -> str:
    for line in text.split("\n"):
        found = _REPOSITORY.search(line)
        if found is not None:
            return next(group for group in found.groups() if group)
    return ""


def _read_context(case: Case, match: LogMatch) -> str:
    """Return the errors of the fatal traceback that contains a match, or else the lines near it."""
    fatal = parse_log(case).fatal
    if fatal is not None and fatal.start <= match.line <= fatal.end:
        return "\n".join(error.text for error in fatal.errors)
    return "\n".join(case.lines[max(0, match.line - 4) : match.line + 8])


def find_host(text: str) -> str:
    """Return the host that an error message names, or an empty string if it names none."""
    found = _HOST.search(text)
    return next((group for group in found.groups() if group), "") if found else ""


def detect_net_dns(case: Case) -> Finding | None:
    """Detect a host name that could not be resolved."""
    match = find_match(case, _NET_DNS)
    if match is None:
        return None
    host = find_host(match.text)
    settings = case.evidence.settings
    has_none = settings is not None and settings.network_mode == "none"
    lookup = host or "huggingface.co"
    return match.conclude(
        "net-dns",
        "The container has no network (`--network none`)."
        if has_none
        else f"The host name{f' {host}' if host else ''} could not be resolved.",
        (
            *(("Run it with a network: `--network bridge`.",) * has_none),
            (
                f"Resolve it in a container: `docker run --rm busybox nslookup {lookup}`, and on the host:"
                f" `getent hosts {lookup}`."
            ),
            (
                "If it fails only in containers, set a name server: `docker run --dns 1.1.1.1`, or `dns`"
                " in /etc/docker/daemon.json; behind a proxy set `HTTPS_PROXY`."
            ),
            "Or work offline: download before, then set `HF_HUB_OFFLINE=1`, `WANDB_MODE=offline`.",
        ),
        speaks_for=("Its settings have `--network none`.",) * has_none,
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="hf-gated",
        title="A gated repository, or a rejected token",
        signs="The log contains `GatedRepoError`, `Cannot access gated repo`, or `Invalid credentials in"
        " Authorization header`.",
        meaning="401: no token, or an invalid one. 403: its account has not accepted the terms.",
        steps=(
            "Set `HF_TOKEN` in the container's environment.",
            "Accept the terms on the model's page.",
        ),
        confidence="high",
        detect=detect_hf_gated,
    ),
    Cause(
        reason="hf-notfound",
        title="Repository not found on the Hub",
        signs="The log contains `RepositoryNotFoundError` or `is not a valid model identifier`.",
        meaning="The name is wrong, or the repository is private and the token is missing: the Hub"
        " returns `Not Found` for both.",
        steps=(
            "Check the name on https://huggingface.co.",
            "Set `HF_TOKEN`, and check its account with `hf auth whoami`.",
        ),
        confidence="high",
        detect=detect_hf_notfound,
    ),
    Cause(
        reason="hf-rate",
        title="The Hub's rate limit was reached",
        signs="The log contains `429 Too Many Requests`; its last line may blame the network.",
        meaning="Many ranks or jobs sent requests to the Hub at once, usually without a token.",
        steps=(
            "Set `HF_TOKEN`.",
            "Download once to a volume and set `HF_HUB_OFFLINE=1`.",
        ),
        confidence="high",
        detect=detect_hf_rate,
    ),
    Cause(
        reason="net-dns",
        title="A host name could not be resolved",
        signs="The log contains `Temporary failure in name resolution`, `Name or service not known` or"
        " `Could not resolve host`.",
        meaning="The container has no network or no name server.",
        steps=(
            "Resolve it in a container: `docker run --rm busybox nslookup huggingface.co`.",
            "Set the network mode or `--dns`; behind a proxy set `HTTPS_PROXY`.",
        ),
        confidence="high",
        detect=detect_net_dns,
    ),
)
