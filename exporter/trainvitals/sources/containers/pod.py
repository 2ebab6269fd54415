"""Parse the output of `kubectl describe pod` and, with `pod_listing`, of `kubectl get pod`.

In the output of kubectl, the continuation lines of a multi-line message can have any indentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from trainvitals.foreign_numbers import read_count
from trainvitals.masking import mask_text
from trainvitals.sources.containers.evidence import Evidence, Settings, State
from trainvitals.sources.containers.pod_listing import describe_listing, is_listing

_KEY = re.compile(r"( *)([^:\s][^:]{0,60}):(?:\s+(\S.*)?)?$")
_SECTIONS = frozenset({"Init Containers", "Containers", "Ephemeral Containers"})
# The lines that end a message in `kubectl describe`; any other line continues the message.
_AFTER_MESSAGE = re.compile(
    r" *(?:Exit Code|Signal|Started|Finished|Ready|Restart Count|State|Last State): "
    r"|(?:SeccompProfile|IPs?|Controlled By|Created By|NominatedNodeName|(?:Init |Ephemeral )?Containers"
    r"|Conditions|Volumes|QoS Class|Node-Selectors|Tolerations|Events):(?:\s|$)"
)
_MESSAGE = re.compile(r" *Message: ")
_EVENT = re.compile(
    r" {2}(?:-{3,}|(?:Type|FirstSeen|Normal|Warning)\s|\S{1,12}\s.*\s(?:Normal|Warning)\s)"
)
_PENDING = re.compile(r"Status: +Pending$")
_NUMBER = re.compile(r"[0-9]{1,10}")
_LONG_AGO = re.compile(r"(?<![+-])\b0[0-9]{3}\b")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|[kKMGTP]i?)?$")
_MOST_CHARACTERS = 1 << 20
_UNITS = {"m": 1e-3, "": 1.0, "K": 1000.0}
_UNITS |= {unit: 1000.0**power for power, unit in enumerate("kMGTP", 1)}
_UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}
# A repeated event in the last hour; older events are not retained.
_RESTARTED = re.compile(
    r"\s{1,8}\w{1,20} {1,8}(?:Started|Created|BackOff) {1,20}(?:[0-9]{1,3}m)?(?:[0-9]{1,3}s)? \(x[0-9]"
)
# The event that explains why a container was not created or started; the state does not.
_REFUSED = re.compile(r"\s{1,8}Warning {1,8}Failed {1,20}[^\n]{1,80}? Error: (\S+ \S.*)")
# The reasons why a pod fails as a whole.
_ENDED = frozenset({"Evicted", "NodeLost", "Shutdown", "NodeShutdown", "DeadlineExceeded"})
_ACCELERATOR = re.compile(r"\.com/(?:gpu|mig-|tpu)|habana\.ai/|/(?:gaudi|neuron|npu)")
_SIDECAR = re.compile(
    r"(?:^|-)(?:istio|linkerd|envoy|proxy|sidecar|fluent|fluentd|fluentbit|log|logs|logger|shipper|filebeat|promtail|vector"
    r"|exporter|metrics|monitor|monitoring|agent|otel|collector|sync|syncer|git|gcsfuse|cloudsql|vault|tensorboard|debug)(?:-|$)"
)
# The reasons why the container runtime could not start the command.
_NOT_STARTED = frozenset(
    {"StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError"}
)


@dataclass(slots=True)
class _Container:
    """One container of a Kubernetes pod.

    Attributes:
        name: The container's name.
        values: The values in the container's description by path, such as `Last State/Exit Code`.
        was_restarted_lately: Whether a recent event shows that a container of the pod was started
            repeatedly.
        is_init: Whether the container is an init container.
    """

    name: str
    values: dict[str, str] = field(default_factory=dict)
    was_restarted_lately: bool = False
    is_init: bool = False

    def get(self, path: str) -> str:
        return self.values.get(path, "")

    @property
    def is_ready(self) -> bool:
        """Whether the container is running, is ready and was not restarted recently.

        The last exit of such a container is no longer relevant.
        """
        runs = self.get("State") == "Running" and self.get("Ready") == "True"
        return runs and not self.was_restarted_lately

    @property
    def has_accelerator(self) -> bool:
        keys = (path for path in self.values if path.startswith(("Limits/", "Requests/")))
        return any(_ACCELERATOR.search(key) for key in keys)

    @property
    def ending(self) -> str:
        """The name of the state that describes the container's exit: `State` or `Last State`.

        The name is empty if neither state describes an exit. `Last State` is considered only if
        `is_ready` is False.
        """
        states = ("State",) if self.is_ready else ("State", "Last State")
        return next((name for name in states if self.get(name) == "Terminated"), "")

    @property
    def has_failed(self) -> bool:
        return bool(self.ending) and self.get(f"{self.ending}/Exit Code") not in {"", "0"}

    @property
    def is_waiting(self) -> bool:
        """Whether the container is waiting, but not for the init containers."""
        return self.get("State") == "Waiting" and self.get("State/Reason") != "PodInitializing"

    @property
    def is_over(self) -> bool:
        """Whether the container is an init container that ended successfully."""
        return self.is_init and self.ending == "State" and not self.has_failed


def is_pod(text: str) -> bool:
    """Return whether a text is the output of `kubectl describe pod` or `kubectl get pod`."""
    return _is_description(text) or is_listing(text)


def _is_description(text: str) -> bool:
    heads = {line.partition(":")[0] for line in text.split("\n", 400)[:400] if line[:1].isalpha()}
    return {"Name", "Namespace"} <= heads and bool({"Containers", "Node", "Status"} & heads)


def parse_pod(text: str) -> Evidence:
    """Return the evidence about a pod's failed container.

    If no container has failed, the evidence describes the first container that is waiting or has
    ended, otherwise the first container that was restarted, otherwise the first container. Sidecars
    are considered only if no other container has a problem.

    Raises:
        ValueError: The text is not a pod description.
    """
    if not _is_description(text):
        if not is_listing(text):
            raise ValueError("it is no output of `kubectl describe pod` or `kubectl get pod`")
        text = describe_listing(text)
    lines = list(_join(mask_text(text[:_MOST_CHARACTERS]).split("\n")))
    heads, containers = _read_heads(lines)
    chosen = _choose(containers)
    ending = chosen.ending
    reason, code = chosen.get(f"{ending}/Reason"), chosen.get(f"{ending}/Exit Code")
    waiting = chosen.get("State/Reason") if chosen.get("State") == "Waiting" else ""
    ended = _parse_time(chosen.get(f"{ending}/Finished"))
    before = None if ending else _parse_time(chosen.get("Last State/Finished"))
    is_ended = heads.get("Reason") in _ENDED or (bool(ending) and not code)
    return Evidence(
        subject="container",
        name=heads.get("Name", ""),
        image=chosen.get("Image"),
        started=_parse_time(chosen.get(f"{ending or 'State'}/Started")),
        ended=ended,
        exit_code=_read_number(code) if reason not in _NOT_STARTED else None,
        state=_read_state(chosen, waiting, lines),
        settings=_read_settings(chosen),
        restarts=_read_number(chosen.get("Restart Count")),
        earlier_deaths=() if before is None else (before,),
        is_ended=True if is_ended else None,
        pod=tuple(lines),
    )


def is_pending(evidence: Evidence) -> bool:
    """Return whether the evidence describes a pod in the phase `Pending`."""
    return any(_PENDING.match(line) for line in evidence.pod or ())


def _join(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, with each multi-line message or event joined into one line."""
    held, is_open, has_events = "", False, False
    for line in map(str.rstrip, lines):
        if has_events:
            goes_on = bool(line) and _EVENT.match(line) is None and not line.startswith("Name:")
        else:
            goes_on = is_open and _AFTER_MESSAGE.match(line) is None
        if goes_on and held:
            held = f"{held} {line.strip()}".rstrip()
            continue
        if held:
            yield held
        is_open = _MESSAGE.match(line) is not None
        has_events = line.startswith("Events:") or (has_events and not line.startswith("Name:"))
        held = line
    if held:
        yield held


def parse_quantity(text: str) -> int | None:
    """Return a quantity such as `8Gi` as a number of bytes; None if the text is not a quantity."""
    found = _QUANTITY.match(text)
    return read_count(float(found[1]) * _UNITS[found[2] or ""]) if found else None


def _read_heads(lines: Sequence[str]) -> tuple[dict[str, str], list[_Container]]:
    """Return a pod's top-level values and its containers from the pod's description."""
    heads: dict[str, str] = {}
    containers: list[_Container] = []
    section, outer = "", ""
    for line in lines:
        found = _KEY.match(line.rstrip())
        if found is None:
            continue
        indent, key, value = len(found[1]), found[2], (found[3] or "").strip()
        if indent == 0:
            section = key
            heads.setdefault(key, value)
        elif section not in _SECTIONS:
            continue
        elif indent == 2:  # noqa: PLR2004 - a container's name
            containers.append(_Container(key, is_init=section == "Init Containers"))
        elif indent == 4 and containers:  # noqa: PLR2004 - the container's keys
            outer = key
            containers[-1].values.setdefault(key, value)
        elif containers:
            containers[-1].values.setdefault(f"{outer}/{key}", value)
    was_restarted = any(map(_RESTARTED.match, lines))
    for container in containers:
        container.was_restarted_lately = was_restarted
    return heads, containers


def find_failing_sidecar(pod: Iterable[str]) -> str:
    """Return the name of a sidecar that fails repeatedly while the main container is running.

    The result is an empty string if there is no such sidecar.
    """
    failing = _list_sidecars(_read_heads(list(pod))[1])
    looping = (each for each in failing if each.get("State/Reason") == "CrashLoopBackOff")
    return next((each.name for each in looping), "")


def _list_sidecars(containers: Sequence[_Container]) -> list[_Container]:
    """Return the sidecars that are not running while the main container is running."""
    own = [each for each in containers if not each.is_init]
    running = [each for each in own if each.is_ready and not _SIDECAR.search(each.name)]
    has_accelerator = any(each.has_accelerator for each in running)
    return [
        each
        for each in own
        if running
        and each.get("State") != "Running"
        and (_SIDECAR.search(each.name) or (has_accelerator and not each.has_accelerator))
    ]


def _choose(containers: Sequence[_Container]) -> _Container:
    sidecars = _list_sidecars(containers)
    containers = [each for each in containers if each not in sidecars and not each.is_over]
    own = [each for each in containers if not each.is_init]
    if any(each.get("State") in {"Running", "Terminated"} or each.ending for each in own):
        containers = own
    main = [each for each in containers if not _SIDECAR.search(each.name)]
    return next(
        iter([*_list_troubled(main), *_list_troubled(containers), *containers]), _Container("")
    )


def _list_troubled(containers: Sequence[_Container]) -> list[_Container]:
    """Return the failed containers, then the waiting or ended, then the restarted containers."""
    failed = [each for each in containers if each.has_failed]
    waiting = [each for each in containers if each.is_waiting or each.ending == "State"]
    restarted = [each for each in containers if each.get("Last State")]
    return [*failed, *waiting, *restarted]


def _read_settings(container: _Container) -> Settings | None:
    """Return a container's settings; None if the text was a table of pods without settings."""
    if not container.get("Image"):
        return None
    return Settings(memory_limit_bytes=parse_quantity(container.get("Limits/memory")))


def _read_state(container: _Container, waiting: str, lines: Sequence[str]) -> State | None:
    ending = container.ending
    reason, message = container.get(f"{ending}/Reason"), container.get(f"{ending}/Message")
    if reason in _NOT_STARTED:
        return State("created", 128, error=message)
    if waiting in _NOT_STARTED:
        events = (found[1] for line in reversed(lines) if (found := _REFUSED.match(line)))
        return State("created", 128, error=container.get("State/Message") or next(events, waiting))
    if ending:
        code = _read_number(container.get(f"{ending}/Exit Code"))
        is_oom = reason == "OOMKilled"
        return None if code is None else State("exited", code, is_oom_killed=is_oom)
    return State("running", 0) if container.get("State") == "Running" else None


def _read_number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _parse_time(text: str) -> float | None:
    """Return a time in Unix seconds; None if the text is not a time or its year is 1.

    Kubernetes writes a time in the year 1 for an event that has never happened.
    """
    if _LONG_AGO.search(text):  # the parser would read the year 1 as a year of this century
        return None
    try:
        time = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return time if time > 0 else None
