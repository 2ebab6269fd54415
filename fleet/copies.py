"""The past of a fleet as Prometheus blocks, with one sample a minute.

Samples are derived from the golden scrape, so that names and labels are those of the exporter: the
samples of one accelerator, one rank and one container are written for the required number of each,
with different values over time. Only the metrics that the dashboards query are written. Recorded
series are written directly and not evaluated: there are as many as the rules would record, and
their states are consistent with the other samples. On every eighth machine, one rank is dead.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

STEP_SECONDS = 60
BLOCK_SECONDS = 2 * 3600
DEVICES = 8
CONTAINERS = 10
HOSTS_PER_RUN = 8
JOB = "trainvitals"

_ROOT = Path(__file__).resolve().parent.parent
_GOLDEN = _ROOT / "tests/golden/metrics.prom"
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_DEVICE, _RUN, _CONTAINER = "0", "llama-7b", "llama-train-1"
_FIRST = {("gpu", _DEVICE), (_RUN, "0"), (_CONTAINER,)}
_VARIANTS = 8
_SEED = 23

# The ranks or machines that have a series: all, only those without a dead rank, or only dead ranks
# and their machines.
_ALL, _LIVING, _DEAD = "all", "living", "dead"
_DIED, _TRAINS, _THROTTLED = 33, 3, 25  # the state numbers of grafana/build/run_verdict.py
# The number of a machine's eight accelerators whose busy ratio is at most the bucket's bound, for a
# mean of two thirds with some noise.
_BUCKETS = {"0.05": 0, "0.2": 0, "0.4": 0, "0.6": 2, "0.8": 8, "0.95": 8, "+Inf": 8}

# Recorded series: the labels other than job and instance, and a typical value.
_ON_DEVICE = {"kind": "gpu", "device": _DEVICE, "uuid": ""}
_ON_RUN = {"run": _RUN}
_ON_RANK = {**_ON_RUN, "rank": "0"}
_RECORDED: dict[str, tuple[dict[str, str], float]] = {
    "accelerator:temperature_headroom:celsius": (_ON_DEVICE, 20),
    "accelerator:utilization_percent:avg10m": (_ON_DEVICE, 80),
    "accelerator:training_utilization_percent:avg10m": (_ON_DEVICE, 85),
    "accelerator:memory_used:ratio": (_ON_DEVICE, 0.7),
    "accelerator:memory_needed:ratio": (_ON_DEVICE, 0.6),
    "run:training_samples:rate10m": (_ON_RUN, 900),
    "run:training_step_seconds:mean10m": (_ON_RUN, 0.4),
    "run:training_step_seconds:median6h": (_ON_RUN, 0.4),
    "run:training_steady:bool10m": (_ON_RUN, 1),
    "run:training_data_wait:ratio10m": (_ON_RUN, 0.1),
    "run:training_loss:avg": (_ON_RUN, 2),
    "run:training_loss:mean15m": (_ON_RUN, 2),
    "run:accelerator_held:bool": ({**_ON_RUN, "uuid": ""}, 1),
    "run:accelerator_fault:bool": (_ON_RUN, 1),
    "accelerator:fault:bool": ({"uuid": ""}, 1),
    "accelerator:missing:count": ({"kind": "gpu"}, 8),
    "accelerator:busy:ratio5m": (_ON_DEVICE, 0.67),
    "accelerator:verdict:number": (_ON_DEVICE, _THROTTLED),
    "instance:accelerators_busy:sum": ({}, 5.3),
    "instance:accelerators_held_busy:avg": ({}, 0.67),
    "instance:memory_used:ratio": ({}, 0.5),
    "up": ({}, 1),
    "scrape_duration_seconds": ({}, 0.02),
    "scrape_samples_post_metric_relabeling": ({}, 1600),
}
# Values that differ from the golden scrape: one accelerator is missing.
_VALUES = {"accelerator_devices_expected": 9.0}
# Samples that differ between ranks or disks, with the ranks or machines that have the sample.
_DIFFERING: Sequence[tuple[str, dict[str, str], float, str]] = (
    ("run:other_phases:ratio_avg10m", {**_ON_RANK, "gpu_uuid": "", "uuid": ""}, 0.1, _LIVING),
    ("accelerator:allocator_reserve:bytes", {"uuid": ""}, 2e9, _LIVING),
    ("run:rank_death:timestamp_seconds", _ON_RANK, 1.70004957e9, _DEAD),
    ("run:rank_state:number", _ON_RANK, _DIED, _DEAD),
    ("run:rank_state:number", _ON_RANK, _TRAINS, _LIVING),
    ("run:training_state:number", _ON_RUN, _DIED, _DEAD),
    ("run:training_state:number", _ON_RUN, _TRAINS, _LIVING),
    ("run:training_verdict:number", _ON_RUN, _DIED, _DEAD),
    ("run:training_verdict:number", _ON_RUN, _THROTTLED, _LIVING),
    ("training_process_up", _ON_RANK, 0, _DEAD),
    *(
        (f"instance:disk_{what}:bytes", {"mountpoint": where}, size, _ALL)
        for what, size in (("size", 4e12), ("avail", 2e12))
        for where in ("/", "/data", "/run")
    ),
)
# Metrics that only living ranks have, and metrics that only dead ranks have.
_OF_LIVING = ("training_process_up", "training_phase", "training_stalled")
_OF_DEAD = ("training_process_end_timestamp_seconds", "training_process_exit_code")
_FIRING = {"severity": "warning", "kind": "gpu", "device": _DEVICE, "uuid": ""}
_NOT_MADE = ("prometheus_", "alertmanager_", "trainvitals_collector_failure_info")
_HOSTS_PER_ALERT = 4  # every fourth machine has one accelerator with a firing alert


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample that a machine would serve.

    Attributes:
        name: The name of the metric.
        labels: The labels.
        value: The value, or the initial value of a counter.
        whose: The ranks or machines that have the sample: `all`, `living` or `dead`.
    """

    name: str
    labels: dict[str, str]
    value: float
    whose: str = _ALL


class Fleet(NamedTuple):
    """The number of machines and the length of their past.

    Attributes:
        hosts: The number of machines.
        seconds: The length of the past in seconds, a multiple of two hours.
        end: The end of the past in Unix seconds, a multiple of two hours.
    """

    hosts: int
    seconds: int
    end: int


@dataclass(slots=True)
class Written:
    """The result of writing blocks.

    Attributes:
        series: The number of series.
        samples: The number of samples.
        missing: The required metrics that are not written, because they belong to programs outside
            the fleet.
    """

    series: int = 0
    samples: int = 0
    missing: set[str] = field(default_factory=set)


def write_blocks(
    fleet: Fleet,
    wanted: Collection[str],
    directory: Path,
    *,
    promtool: Path,
    report: Callable[[str], None],
) -> Written:
    """Write the blocks of a fleet's past.

    Args:
        fleet: The fleet.
        wanted: The names of the required metrics.
        directory: Prometheus' data directory.
        promtool: The path of promtool, which creates the blocks.
        report: A function that receives progress messages.

    Raises:
        ValueError: A required metric is neither in the golden scrape nor listed in this module.
    """
    samples = [one for one in list_samples() if one.name in wanted]
    missing = set(wanted) - {one.name for one in samples}
    if unknown := {name for name in missing if not name.startswith(_NOT_MADE)}:
        raise ValueError(f"there is no way to make {', '.join(sorted(unknown))}")
    written = Written(missing=missing)
    text = directory.parent / "part.om"
    for start in range(fleet.end - fleet.seconds, fleet.end, BLOCK_SECONDS):
        times = range(start, start + BLOCK_SECONDS, STEP_SECONDS)
        first = (start - fleet.end + fleet.seconds) // STEP_SECONDS
        with text.open("w", encoding="utf-8", newline="\n") as file:
            series = sum(_write_sample(file.write, one, fleet, times, first) for one in samples)
            file.write("# EOF\n")
        report(f"a block of {series} series, {text.stat().st_size / 1e9:.1f} GB of text")
        command = [str(promtool), "tsdb", "create-blocks-from", "openmetrics", "-q"]
        subprocess.run([*command, text, directory], check=True, stdout=subprocess.DEVNULL)
        written.series, written.samples = series, written.samples + series * len(times)
    text.unlink()
    return written


def list_samples() -> list[Sample]:
    """Return the samples of one machine, one accelerator, one rank and one container."""
    golden = _GOLDEN.read_text(encoding="utf-8")
    found = [
        Sample(name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(golden)
    ]
    kept = []
    for name in dict.fromkeys(one.name for one in found):
        same = [one for one in found if one.name == name]
        first = min((_group(one) for one in same), key=lambda group: group not in _FIRST)
        whose = _LIVING if name in _OF_LIVING else _DEAD if name in _OF_DEAD else _ALL
        kept += [
            replace(one, value=_VALUES.get(name, one.value), whose=whose)
            for one in same
            if _group(one) == first
        ]
    recorded = [Sample(name, dict(own), value) for name, (own, value) in _RECORDED.items()]
    recorded += [Sample(name, dict(own), value, whose) for name, own, value, whose in _DIFFERING]
    recorded += [
        Sample("instance:accelerators_busy:bucket", {"le": le}, count)
        for le, count in _BUCKETS.items()
    ]
    alert = {"alertname": "AcceleratorTemperatureNearLimit", **_FIRING}
    firing = Sample("ALERTS", {**alert, "alertstate": "firing"}, 1)
    return [*kept, *recorded, firing, Sample("ALERTS_FOR_STATE", alert, 1.7e9), *_list_thresholds()]


def _group(sample: Sample) -> tuple[str, ...]:
    """Return a sample's accelerator, rank or container; an empty tuple means the machine."""
    labels = sample.labels
    if sample.name.startswith(("accelerator_", "gpu_", "hpu_")):
        return (labels.get("kind", "gpu"), labels.get("device", _DEVICE))
    if "run" in labels:
        return (labels.get("run", _RUN), labels.get("rank", "0"))
    return (labels["name"],) if sample.name.startswith("container_") else ()


def _list_thresholds() -> list[Sample]:
    text = (_ROOT / "prometheus/rules/thresholds.yml").read_text(encoding="utf-8")
    found = re.findall(r"record: (\S+)\n\s+expr: vector\((\S+)\)", text)
    return [Sample(name, {}, float(value)) for name, value in found]


def _write_sample(
    write: Callable[[str], object], sample: Sample, fleet: Fleet, times: range, first: int
) -> int:
    """Write all series derived from a sample, and return their number."""
    tails = [
        [f" {value} {at}\n" for value, at in zip(course, times, strict=True)]
        for course in _list_courses(sample, first, len(times))
    ]
    count = 0
    for count, labels in enumerate(_multiply(sample, fleet.hosts), 1):
        head = sample.name + labels
        write(head + head.join(tails[count % len(tails)]))
    return count


def _list_courses(sample: Sample, first: int, count: int) -> list[Sequence[str]]:
    """Return several sequences of values for a sample, which continue from block to block."""
    courses: list[Sequence[str]] = []
    for variant in range(_VARIANTS):
        chance = random.Random(f"{_SEED} {sample.name} {sample.labels} {variant}")
        value, pace = sample.value, _find_pace(sample)
        values = []
        for at in range(first + count):
            noise = chance.random()
            value = value + pace * (0.5 + noise) if pace else sample.value
            if at >= first:
                is_still = pace or _is_still(sample)
                values.append(f"{value:.10g}" if is_still else f"{value * (0.9 + 0.2 * noise):.6g}")
        courses.append(values if not pace else [f"{float(one):.10g}" for one in values])
    return courses


def _is_still(sample: Sample) -> bool:
    """Return whether a gauge is constant: a state, a limit, a time or an info metric."""
    if {"state", "phase", "status", "reason", "version", "le"} & set(sample.labels):
        return True
    words = r"_info$|timestamp|_time_seconds$|_up$|^up$|_total_bytes|_limit|_max|^ALERTS|threshold:"
    return float(sample.value).is_integer() or bool(re.search(words, sample.name))


def _find_pace(sample: Sample) -> float:
    """Return a counter's increase per minute; 0 for other types and for error counters."""
    if not sample.name.endswith(("_total", "_sum", "_count", "_bucket")):
        return 0.0
    if re.search(r"error|death|kill|restart|exits|nonfinite|spike|oom|gaps|timeouts", sample.name):
        return 0.0
    if "bytes" in sample.name:
        return 6e9
    if "joules" in sample.name:
        return 24_000.0
    return 40.0 if "seconds" in sample.name and not sample.name.endswith("count") else 100.0


def _multiply(sample: Sample, hosts: int) -> Iterator[str]:
    """Return the labels of each series derived from a sample."""
    if sample.name.startswith("threshold:"):
        yield ""
        return
    for host in range(hosts):
        if host % _find_every(sample):
            continue
        for place in range(_count(sample)):
            is_dead = host % HOSTS_PER_RUN == 0 and place == 0
            if sample.whose == (_LIVING if is_dead else _DEAD):
                continue
            labels = {**sample.labels, **_name(sample, host, place)}
            labels |= {"job": JOB, "instance": f"node-{host:02}"}
            yield "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _find_every(sample: Sample) -> int:
    """Return n if only every n-th machine has the sample, which is the case for alerts."""
    return _HOSTS_PER_ALERT if sample.name.startswith("ALERTS") else 1


def _count(sample: Sample) -> int:
    if sample.name.startswith("ALERTS"):
        return 1
    if {"rank", "uuid"} & set(sample.labels):
        return DEVICES
    return CONTAINERS if sample.name.startswith("container_") else 1


def _name(sample: Sample, host: int, place: int) -> dict[str, str]:
    """Return the labels of one of a machine's accelerators, ranks or containers."""
    uuid = f"GPU-{host:08}-0000-0000-0000-{place:012}"
    run, rank = f"run-{host // HOSTS_PER_RUN}", host % HOSTS_PER_RUN * DEVICES + place
    names = {
        "rank": str(rank),
        "local_rank": str(place),
        "run": run,
        "gpu_uuid": uuid,
        "uuid": uuid,
        "name": f"train-{place}" if sample.name.startswith("container_") else "",
    }
    if "uuid" in sample.labels:
        names |= {"kind": "gpu", "device": str(place)}
    return {name: value for name, value in names.items() if value and name in sample.labels}
