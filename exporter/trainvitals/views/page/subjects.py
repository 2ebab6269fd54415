"""The names of the subjects on the live page, and the `id` of each subject's HTML element."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

from trainvitals.verdicts.trouble import SubjectKind
from trainvitals.views.machine.headline import TONES
from trainvitals.views.machine.picture import Accelerator, Container, Picture, Run, Tone

_KINDS = {"gpu": "GPU", "hpu": "HPU"}
_SECTIONS: Mapping[SubjectKind, str] = {
    "accelerator": "accelerators",
    "run": "runs",
    "container": "containers",
    "filesystem": "host",
    "host": "host",
    "collector": "collectors",
    "alert": "alerts",
    "exporter": "collectors",
}


def list_findings(picture: Picture) -> Iterator[tuple[str, str, Tone]]:
    """Yield the text, link target and tone of each problem, and then of each unknown subject."""
    anchors = dict(_list_anchors(picture))
    for trouble in picture.troubles:
        kind = trouble.subject_kind
        target = anchors.get((kind, trouble.subject), _SECTIONS[kind])
        yield trouble.words, target, TONES[trouble.severity]
    for unknown in picture.unknowns:
        kind = unknown.subject_kind
        # Without Prometheus, the page has no alerts section.
        target = "content" if kind == "alert" and picture.alerts is None else _SECTIONS[kind]
        yield unknown.words, target, "unknown"


def anchor_device(device: Accelerator) -> str:
    """Return the `id` of the row for a device."""
    return _anchor(device.kind, device.uuid)


def anchor_run(run: Run) -> str:
    """Return the `id` of the card for a run."""
    return _anchor("run", run.name)


def anchor_container(container: Container) -> str:
    """Return the `id` of the row for a container."""
    return _anchor("container", container.name)


def label_device(device: Accelerator) -> str:
    """Return the display name of a device, such as `GPU 3`."""
    return f"{_KINDS.get(device.kind, device.kind)} {device.device}"


def fold_devices(devices: Sequence[str]) -> str:
    """Return a short list of devices, such as `gpu0\N{EN DASH}3, gpu6` for five devices."""
    ranges: list[list[str]] = []
    for device in devices:
        kind = device.rstrip("0123456789")
        last = ranges[-1][-1] if ranges else ""
        is_next = last.startswith(kind) and last[len(kind) :].isdecimal()
        if is_next and device == f"{kind}{int(last[len(kind) :]) + 1}":
            ranges[-1].append(device)
        else:
            ranges.append([device])
    return ", ".join(map(_name_range, ranges))


def _list_anchors(picture: Picture) -> Iterator[tuple[tuple[str, str], str]]:
    for device in picture.accelerators:
        yield ("accelerator", device.name), anchor_device(device)
    for run in picture.runs:
        yield ("run", run.name), anchor_run(run)
    for container in picture.containers or ():
        yield ("container", container.name), anchor_container(container)


def _anchor(kind: str, name: str) -> str:
    return f"{kind}-{zlib.crc32(name.encode(errors='surrogatepass')):08x}"


def _name_range(devices: Sequence[str]) -> str:
    first, last = devices[0], devices[-1]
    if len(devices) <= 2:  # noqa: PLR2004 - a range of two is not shorter
        return ", ".join(devices)
    return f"{first}\N{EN DASH}{last[len(last.rstrip('0123456789')) :]}"
