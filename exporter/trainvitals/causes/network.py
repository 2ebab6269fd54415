"""Deaths because a name of the network could not be found."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.signs import find, has
from trainvitals.causes.verdict import Cause, Finding

_HOST = re.compile(
    r"host='([\w.-]{1,200})'|[Cc]ould not resolve host:? ([\w.-]{1,200})"
    r"|Failed to resolve '([\w.-]{1,200})'|https?://([\w.-]{1,200})"
)


def look_net_dns(case: Case) -> Finding | None:
    """Look for a name that could not be resolved."""
    sign = find(
        case,
        has(
            "Temporary failure in name resolution",
            "Name or service not known",
            "No address associated with hostname",
            "NameResolutionError",
            "ould not resolve host",
            "gaierror",
        ),
    )
    if sign is None:
        return None
    found = _HOST.search(sign.text)
    host = next((group for group in found.groups() if group), "") if found else ""
    settings = case.evidence.settings
    has_none = settings is not None and settings.network_mode == "none"
    lookup = host or "huggingface.co"
    return sign.conclude(
        "net-dns",
        "The container has no network (`--network none`)."
        if has_none
        else f"The name{f' {host}' if host else ' of a host'} could not be resolved.",
        (
            *(("Run it with a network: `--network bridge`.",) * has_none),
            (
                f"Try it from a container: `docker run --rm busybox nslookup {lookup}`, and on the host:"
                f" `getent hosts {lookup}`."
            ),
            (
                "Where only containers fail, name a server: `docker run --dns 1.1.1.1`, or `dns` in"
                " /etc/docker/daemon.json; behind a proxy set `HTTPS_PROXY`."
            ),
            "Or need none: download before, then `HF_HUB_OFFLINE=1`, `WANDB_MODE=offline`.",
        ),
        speaks_for=("Its settings say `--network none`.",) * has_none,
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="net-dns",
        title="A name could not be resolved",
        signs="The log says `Temporary failure in name resolution`, `Name or service not known` or"
        " `Could not resolve host`.",
        meaning="The container has no network or no name server.",
        steps=(
            "Try it from a container: `docker run --rm busybox nslookup huggingface.co`.",
            "Set the network mode or `--dns`; behind a proxy set `HTTPS_PROXY`.",
        ),
        confidence="high",
        look=look_net_dns,
    ),
)
