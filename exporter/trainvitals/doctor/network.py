"""Whether there is a way out, names are found, and what the run needs is reached."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from trainvitals.crew import Crew, Outcome
from trainvitals.doctor.facts import Facts
from trainvitals.doctor.finding import Check, Finding, approve, complain, pass_over, warn
from trainvitals.listen import Address
from trainvitals.sources.files import read_small

_PATIENCE_SECONDS = 2.0
_GRACE_SECONDS = 0.2
_UNKNOWN = "nobody knows the name"
_ANYWHERE, _ANYWHERE_6 = "0" * 8, "0" * 32
_COLUMNS = 10  # of ipv6_route; the last is the interface


def _find_route(procfs: Path) -> str:
    """Give the interface of a default route; empty where there is none."""
    for line in (read_small(procfs / "net/route") or "").splitlines()[1:]:
        name, destination, *_ = (*line.split(), "", "")
        if destination == _ANYWHERE:
            return name
    for line in (read_small(procfs / "net/ipv6_route") or "").splitlines():
        destination, length, *_, name = (*line.split(), "", "", "")[:_COLUMNS]
        if (destination, length) == (_ANYWHERE_6, "00") and name not in {"", "lo"}:
            return name
    return ""


def _examine_route(facts: Facts) -> Finding:
    interface = _find_route(facts.world.roots.procfs)
    if interface:
        return approve(f"default route by {interface}")
    return warn(
        "there is no default route: nothing outside is reached",
        "ip route; ip -brief address",
        advice="fine where the machine is meant to be alone",
    )


def _list_names(facts: Facts) -> list[str]:
    names = [address.host for address in facts.wishes.reach]
    if master := facts.world.environ.get("MASTER_ADDR"):
        names.append(master)
    return list(dict.fromkeys([facts.world.hostname, *names]))


def _examine_names(facts: Facts) -> Finding:
    names = _list_names(facts)
    tasks = {name: partial(facts.world.resolve, name, None) for name in names}
    outcomes = _gather(tasks, facts)
    unknown = [name for name in names if outcomes[name].late or outcomes[name].error]
    if not unknown:
        return approve(f"{', '.join(names)} found")
    own = facts.world.hostname
    if unknown == [own]:
        return warn(
            f"nobody knows {own}, which is this machine",
            f'echo "127.0.1.1 {own}" | sudo tee -a /etc/hosts',
        )
    told, name = ", ".join(unknown), next(name for name in unknown if name != own)
    if outcomes[name].late:
        return complain(
            f"the name server does not answer for {told}",
            "cat /etc/resolv.conf",
            advice="it is down, or there is no way to it",
        )
    return complain(
        f"nobody knows {told}",
        f"getent ahosts {name} || cat /etc/resolv.conf",
        advice="correct the name, or the name server",
    )


def _examine_reach(facts: Facts) -> Finding:
    wanted = facts.wishes.reach
    if not wanted:
        return pass_over("nothing was named with --reach")
    outcomes = _gather({str(each): partial(_connect, each, facts) for each in wanted}, facts)
    failed = [each for each in wanted if outcomes[str(each)].late or outcomes[str(each)].error]
    if not failed:
        return approve(
            ", ".join(f"{each} in {outcomes[str(each)].seconds * 1000:.0f} ms" for each in wanted)
        )
    reasons = {each: _explain(outcomes[str(each)]) for each in failed}
    first = failed[0]
    return complain(
        ", ".join(f"{each}: {reason}" for each, reason in reasons.items()),
        f"getent ahosts {first.host}"
        if reasons[first] == _UNKNOWN
        else f"nc -vz -w 3 {first.host} {first.port}",
        advice=_advise(reasons[first]),
    )


def _connect(address: Address, facts: Facts) -> None:
    facts.world.connect((address.host, address.port), _PATIENCE_SECONDS).close()


def _gather(tasks: Mapping[str, Callable[[], object]], facts: Facts) -> dict[str, Outcome[object]]:
    """Ask all at the same time: one that does not answer must not keep the others."""
    crew = Crew(name="network", limit=len(tasks))
    try:
        return crew.gather(tasks, min(_PATIENCE_SECONDS + _GRACE_SECONDS, facts.seconds_left))
    finally:
        crew.close()


def _explain(outcome: Outcome[object]) -> str:
    if outcome.late or isinstance(outcome.error, TimeoutError):
        return "no answer"
    if isinstance(outcome.error, socket.gaierror):
        return _UNKNOWN
    reason = getattr(outcome.error, "strerror", None) or str(outcome.error)
    return reason.lower()


def _advise(reason: str) -> str:
    if "refused" in reason:
        return "the host is there, and nothing listens on that port: start it, or correct the port"
    if "no answer" in reason:
        return "a firewall drops it, or the host is down"
    return ""


_SUBJECT = "network"
CHECKS = (
    Check(
        "route",
        _SUBJECT,
        "a machine without a default route",
        "neither data sets nor models can be fetched, and other machines are not reached",
        _examine_route,
        is_quick=True,
    ),
    Check(
        "names",
        _SUBJECT,
        "a `MASTER_ADDR` or a host of `--reach` that nobody knows; a warning for this machine's own "
        "name",
        "torchrun and Gloo look up both ends by name, and give up or wait for minutes",
        _examine_names,
        silence="problem",
    ),
    Check(
        "reach",
        _SUBJECT,
        "a HOST:PORT of `--reach` to which no connection can be made",
        "the run fails when it wants it: at its start, or at the end of the first epoch",
        _examine_reach,
        is_quick=True,
        silence="problem",
    ),
)
