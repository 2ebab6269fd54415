"""What Docker complains about, in one line for a person."""

from __future__ import annotations

import re

from trainvitals.listen import find_port_holder

_PORT = re.compile(
    r"(?:Bind for|listen tcp[46]?|exposing port \S+) \S*?:(\d+)\S*.*?"
    r"(?:port is already allocated|address already in use)"
)
_UNREACHABLE = re.compile(
    r"no such host|dial tcp|i/o timeout|TLS handshake|failed to (?:do request|resolve|authorize)"
    r"|pull access denied|manifest unknown|not found: manifest|toomanyrequests"
    r"|Client\.Timeout|connection refused|server misbehaving|failed to fetch",
    re.IGNORECASE,
)
_NATIVE = "run `trainvitals up --way native`"


def explain(complaint: str, *, doing: str) -> str:
    """Say in one line what went wrong and what to do.

    Args:
        complaint: What Docker wrote, a line or many.
        doing: What it was to do, as `pull prom/prometheus:v3`.
    """
    if "no space left on device" in complaint:
        return f"cannot {doing}: Docker's disk is full; look with `docker system df`, make room"
    if taken := _PORT.search(complaint):
        return (
            f"cannot {doing}: port {taken[1]} is taken by {_describe_holder(int(taken[1]))}; "
            "stop that, or choose another port in .env"
        )
    if "could not select device driver" in complaint or "unknown or invalid runtime" in complaint:
        return (
            f"cannot {doing}: Docker cannot hand the accelerators over; install the vendor's "
            f"container toolkit again, or {_NATIVE}"
        )
    reason = _find_reason(complaint)
    if _UNREACHABLE.search(complaint):
        return (
            f"cannot {doing}: {reason}; where no registry can be reached, name images that are "
            f"here in .env (PROMETHEUS_IMAGE, …), or {_NATIVE}"
        )
    return f"cannot {doing}: {reason}"


def _find_reason(complaint: str) -> str:
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"Error|ERROR|failed|.* is unhealthy", line)]
    reason = (told or lines or ["no reason given"])[-1]
    return re.sub(r"^(?:Error response from daemon|ERROR|Error)[: ]+", "", reason)[:300]


def _describe_holder(port: int) -> str:
    holder = find_port_holder(port)
    return f"{holder[1]} (pid {holder[0]})" if holder else "another program"
