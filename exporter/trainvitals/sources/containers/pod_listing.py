"""Convert the output of `kubectl get pod` to the format of `kubectl describe pod`.

The input is a document from `kubectl get pod -o yaml` or `-o json`, or the table from `kubectl get
pods`. If the input contains several pods, the first pod with a problem is converted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import format_datetime
from functools import lru_cache

from trainvitals.sources.containers.documents import (
    Document,
    as_mapping,
    get_list,
    get_mapping,
    get_text,
    parse_json,
)
from trainvitals.sources.timestamps import parse_time
from trainvitals.yamlfile import parse_yaml

_MOST_CHARACTERS = 1 << 18  # YAML is slow to parse
_LONGEST_TEXT = 2000
_KIND = re.compile(r"\"?\bkind\"?: ?\"?(?:Pod|List|PodList)\b")
_START = re.compile(r"\s{0,80}(?:---\s{1,8})?(?:\{|(?:apiVersion|kind|items):)")
_HEAD = re.compile(r"(?:NAMESPACE {2,})?NAME {2,}READY {2,}STATUS {2,}RESTARTS {2,}AGE\b")
_COMMAND = re.compile(r"\S{0,80}[$#%>] ?kubectl ")
_ROW = re.compile(
    r"(?:(?P<namespace>[\w.-]{1,253}) +)?(?P<name>[\w.-]{1,253}) +(?P<ready>[0-9]{1,3})/(?P<all>[0-9]{1,3})"
    r" +(?P<status>\S{1,80}) +(?P<restarts>[0-9]{1,9})(?: \(\S{1,20} ago\))? +\S{1,20}(?:\s|$)"
)
_WELL = frozenset({"Running", "Completed", "Succeeded"})
_EARLY = frozenset({"Pending", "ContainerCreating", "PodInitializing", "Terminating"})
_WAITING = re.compile(
    r"\w*BackOff$|ErrImage\w+|(?:Create|Run)Container\w*Error$|Invalid\w+|ImageInspectError|ContainerCreating|PodInitializing"
)
# The reasons why a pod fails as a whole.
_OF_POD = re.compile(
    r"Evicted|Node\w+|Shutdown|Deadline\w+|OutOf\w+|Unexpected\w+|\w+AffinityError|Preempting"
)
_EXIT_CODES = {"OOMKilled": "137", "Completed": "0", "Succeeded": "0"}


def is_listing(text: str) -> bool:
    """Return whether a text is a document or a table that `kubectl get pod` wrote."""
    return bool(_read_rows(text) or _read_pods(text[:_MOST_CHARACTERS]))


def describe_listing(text: str) -> str:
    """Convert the output of `kubectl get pod` to the format of `kubectl describe pod`."""
    rows = _read_rows(text)
    if rows:
        return "\n".join(_describe_row(min(rows, key=_rank)))
    return "\n".join(_describe_pod(min(_read_pods(text[:_MOST_CHARACTERS]), key=_is_well)))


@lru_cache(maxsize=1)  # `is_listing` and `describe_listing` parse the same text
def _read_pods(text: str) -> tuple[Document, ...]:
    """Return the pods in a YAML or JSON document; empty if the text is not such a document."""
    if not _START.match(text) or not _KIND.search(text) or "status" not in text:
        return ()
    try:
        read = parse_json if text.lstrip()[:1] == "{" else parse_yaml
        content = as_mapping(read(text))
    except ValueError:
        return ()
    pods = [as_mapping(each) for each in get_list(content, "items")] or [content]
    return tuple(pod for pod in pods if get_mapping(pod, "status") and get_mapping(pod, "metadata"))


def _read_rows(text: str) -> list[re.Match[str]]:
    """Return the rows of a table of pods; empty if the text is not such a table."""
    lines = [line for line in text[:_MOST_CHARACTERS].splitlines() if line.strip()]
    lines = lines[1:] if lines and _COMMAND.match(lines[0]) else lines
    if not lines or not _HEAD.match(lines[0]):
        return []
    rows = [_ROW.match(line) for line in lines[1:]]
    return [row for row in rows if row is not None] if all(rows) else []


def _rank(row: re.Match[str]) -> int:
    is_ready = row["ready"] == row["all"] or row["status"] != "Running"
    return (
        (row["status"] in _EARLY)
        + 2 * (row["status"] in _WELL)
        + (is_ready and row["status"] in _WELL)
    )


def _describe_row(row: re.Match[str]) -> Iterator[str]:
    stage, _, status = row["status"].rpartition(":")
    if stage in {"ExitCode", "Signal"}:  # the status contains no reason
        stage, status = "", row["status"]
    is_of_pod = _OF_POD.fullmatch(status) is not None
    yield f"Name:         {row['name']}"
    yield f"Namespace:    {row['namespace'] or 'default'}"
    yield f"Status:       {'Failed' if is_of_pod else 'Pending' if status in _EARLY else 'Running'}"
    if is_of_pod:
        yield f"Reason:       {status}"
        return
    if status == "Pending":
        return
    yield "Init Containers:" if stage == "Init" else "Containers:"
    yield f"  {row['name']}:"
    yield from _describe_status(status)
    yield f"    Ready:          {row['ready'] == row['all']}"
    yield f"    Restart Count:  {row['restarts']}"


def _describe_status(status: str) -> Iterator[str]:
    if status in {"Running", "Terminating"} or "/" in status:  # such as `Init:0/2`
        yield "    State:          Running"
        return
    state = "Waiting" if _WAITING.fullmatch(status) else "Terminated"
    yield f"    State:          {state}"
    yield f"      Reason:       {'Error' if ':' in status else status}"
    kind, _, number = status.partition(":")
    code = number if kind == "ExitCode" else _EXIT_CODES.get(status, "")
    if kind == "Signal" and number.isdecimal():
        code = str(128 + int(number[:3]))
    if code:
        yield f"      Exit Code:    {code}"


def _is_well(pod: Document) -> bool:
    status = get_mapping(pod, "status")
    if get_text(status, "phase") not in _WELL:
        return False
    return all(
        as_mapping(each).get("ready") is True or get_text(status, "phase") == "Succeeded"
        for each in get_list(status, "containerStatuses")
    )


def _describe_pod(pod: Document) -> Iterator[str]:
    metadata, spec, status = (get_mapping(pod, name) for name in ("metadata", "spec", "status"))
    yield f"Name:         {_line(metadata, 'name')}"
    yield f"Namespace:    {_line(metadata, 'namespace')}"
    yield f"Node:         {_line(spec, 'nodeName') or '<none>'}"
    yield f"Status:       {_line(status, 'phase')}"
    for key in ("reason", "message"):
        if get_text(status, key):
            yield f"{key.title()}:       {_line(status, key)}"
    for title, kind in (("Init Containers", "initContainer"), ("Containers", "container")):
        specs = {
            get_text(as_mapping(each), "name"): as_mapping(each)
            for each in get_list(spec, f"{kind}s")
        }
        yield f"{title}:"
        for each in map(as_mapping, get_list(status, f"{kind}Statuses")):
            yield from _describe_container(each, specs.get(get_text(each, "name"), {}))
    yield "Conditions:"
    for each in map(as_mapping, get_list(status, "conditions")):
        if get_text(each, "message"):
            yield f"  {_line(each, 'type')} {_line(each, 'reason')} {_line(each, 'message')}"


def _describe_container(status: Document, spec: Document) -> Iterator[str]:
    yield f"  {_line(status, 'name')}:"
    yield f"    Image:          {_line(status, 'image')}"
    for title, member in (("State", "state"), ("Last State", "lastState")):
        yield from _describe_state(title, get_mapping(status, member))
    yield f"    Ready:          {status.get('ready') is True}"
    yield f"    Restart Count:  {_line(status, 'restartCount')}"
    for title in ("Limits", "Requests"):
        sizes = get_mapping(get_mapping(spec, "resources"), title.lower())
        yield f"    {title}:"
        yield from (f"      {_clean(name)}:  {_clean(size)}" for name, size in sizes.items())


def _describe_state(title: str, states: Document) -> Iterator[str]:
    name = next(iter(states), "")
    state = get_mapping(states, name)
    if not name:
        return
    yield f"    {title}:          {_clean(name).title()}"
    for key in ("reason", "message", "exitCode"):
        if key in state:
            yield f"      {_KEYS[key]}:  {_line(state, key)}"
    for key in ("startedAt", "finishedAt"):
        if time := _write_time(state.get(key)):
            yield f"      {_KEYS[key]}:  {time}"


_KEYS = {
    "reason": "Reason",
    "message": "Message",
    "exitCode": "Exit Code",
    "startedAt": "Started",
    "finishedAt": "Finished",
}


def _line(document: Document, name: str) -> str:
    return _clean(document.get(name, ""))


def _clean(value: object) -> str:
    """Return a value as a line of text; empty if the value is a list, a mapping or None."""
    text = "" if value is None or isinstance(value, dict | list) else str(value)
    return " ".join(text[:_LONGEST_TEXT].split())


def _write_time(value: object) -> str:
    text = value.isoformat() if isinstance(value, datetime) else _clean(value)
    time = parse_time(text)
    return "" if time is None else format_datetime(datetime.fromtimestamp(time, timezone.utc))
