"""A fleet of 64 hosts with 8 accelerators each: copies of a recorded host in a Prometheus."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from tests.integration.dashboards.live.grafana import Asked
from tests.integration.dashboards.live.recording import Recording

HOSTS = 64
SCRAPE_SECONDS = 15
_RANKS_ON_A_HOST = 2
_HOSTS_OF_A_RUN = 8
_UUID = re.compile(r"[^,]+")


def write_fleet(
    recording: Recording, metrics: AbstractSet[str], original: str, big_run: str, path: Path
) -> int:
    """Write the samples of a fleet of copies of a host, in the OpenMetrics format.

    Args:
        recording: The recording.
        metrics: The names of the metrics to copy.
        original: The host that is copied.
        big_run: The run that becomes one run on all hosts; other runs become one per eight hosts.
        path: The file.

    Returns:
        The number of series in the file.
    """
    names = f'__name__=~"{"|".join(sorted(metrics))}"'
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for labels, samples in _list_series(recording, f'{{{names},instance="{original}"}}'):
            for host in range(HOSTS):
                count += 1
                file.writelines(_write(_move(labels, host, big_run), samples))
        # Thresholds, and the own metrics of Prometheus and Alertmanager.
        for labels, samples in _list_series(recording, f'{{{names},job!="trainvitals"}}'):
            count += 1
            file.writelines(_write(labels, samples))
        file.write("# EOF\n")
    return count


def make_blocks(promtool: Path, path: Path, directory: Path) -> None:
    """Create Prometheus blocks from an OpenMetrics file."""
    command = [promtool, "tsdb", "create-blocks-from", "openmetrics", path, directory]
    subprocess.run(command, check=True, capture_output=True)


def _list_series(
    recording: Recording, selector: str
) -> Iterator[tuple[Mapping[str, str], list[tuple[float, str]]]]:
    seconds = (recording.end - recording.begin) // SCRAPE_SECONDS * SCRAPE_SECONDS
    found = Asked(recording.server).ask(
        "query_range",
        query=selector,
        start=f"{recording.end - seconds:.3f}",
        end=f"{recording.end:.3f}",
        step=str(SCRAPE_SECONDS),
    )
    assert found["status"] == "success", found
    result = found["data"]["result"]
    last = max(time for series in result for time, _ in series["values"])
    for series in result:
        # Ended series are left out: blocks have no stale markers, so they would last 5 min more.
        if series["values"][-1][0] == last:
            yield series["metric"], series["values"]


def _move(labels: Mapping[str, str], host: int, big_run: str) -> Mapping[str, str]:
    """Return the labels that a series has on another host."""
    moved = {**labels, "instance": f"node-{host:02}:9200"}
    for name in ("uuid", "gpu_uuid"):
        if name in labels:
            moved[name] = _UUID.sub(lambda found: f"{found[0]}-{host}", labels[name])
    if labels.get("run") == big_run:
        if "rank" in labels:
            moved["rank"] = str(_RANKS_ON_A_HOST * host + int(labels["rank"]))
    elif "run" in labels:
        group, place = divmod(host, _HOSTS_OF_A_RUN)
        moved["run"] = f"{labels['run']}-{group}"
        if "rank" in labels:
            moved["rank"] = str(place)
    return moved


def _write(labels: Mapping[str, str], samples: list[tuple[float, str]]) -> Iterator[str]:
    pairs = ",".join(
        f'{name}="{_escape(value)}"' for name, value in labels.items() if name != "__name__"
    )
    for time, value in samples:
        yield f"{labels['__name__']}{{{pairs}}} {value} {time:.3f}\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
