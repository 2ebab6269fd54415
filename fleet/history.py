"""The past of simulated machines, as Prometheus would have stored it.

The samples of past times are written as text, one file for each two-hour block of Prometheus, and
`promtool` creates a block from each file. The text contains only samples, because blocks store
neither types nor HELP texts.

A backfilled series has no staleness marker at its end, so Prometheus assumes that the series
continues for the lookback period; `LOOKBACK` limits this period to the time until the next sample.
"""

from __future__ import annotations

import subprocess
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.exporter import Replayed, build_collectors
from fleet.machine import Machine
from trainvitals.errors import StackError
from trainvitals.metrics.collector_metrics import Report, express_reports
from trainvitals.metrics.exposition import Exposition
from trainvitals.metrics.families import Block

JOB = "trainvitals"
STEP_SECONDS = 30
"""The interval between the samples of the past, in seconds."""

LOOKBACK = "29s999ms"
"""The time for which Prometheus looks back for the latest sample; before version 3, both ends count."""

_BLOCK_SECONDS = 7200
_SCRAPE = (
    "scrape_duration_seconds",
    "scrape_samples_post_metric_relabeling",
    "scrape_samples_scraped",
    "scrape_series_added",
    "up",
)


@dataclass(slots=True)
class Scribe:
    """A writer of an exporter's samples at past times, with the labels that Prometheus adds.

    Attributes:
        machine: The machine whose exporter is simulated.
    """

    machine: Machine
    _collectors: tuple[Replayed, ...] = field(init=False)
    _exposition: Exposition = field(init=False)
    _kept: dict[Hashable, list[str]] = field(init=False)
    _now: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._collectors = build_collectors(self.machine, lambda: self._now)
        self._exposition = Exposition(openmetrics=True)
        self._kept = {}

    def write(self, now: int) -> str:
        """Return the samples of a scrape, including those that Prometheus adds about the scrape."""
        self._now = now
        lines: list[str] = []
        for block in self._read():
            names = self._kept.get(block.shape) or self._keep(block)
            lines += [
                f"{name} {+value} {now}" for name, value in zip(names, block.values, strict=True)
            ]
        seconds = 0.004 + len(lines) / 250_000
        for name, value in zip(_SCRAPE, (seconds, len(lines), len(lines), 0, 1), strict=True):
            lines.append(f"{self._label(name)} {value} {now}")
        return "\n".join(lines) + "\n"

    def _read(self) -> Iterator[Block]:
        reports = []
        for number, collector in enumerate(self._collectors):
            reading = collector.read(0.0)
            yield from collector.express(reading)
            reports.append(_report(collector, reading, self._now, number))
        yield express_reports(tuple(reports))

    def _keep(self, block: Block) -> list[str]:
        page = self._exposition.write([block]).decode()
        samples = [line.rpartition(" ")[0] for line in page.splitlines() if line[0] != "#"]
        self._kept[block.shape] = [self._label(sample) for sample in samples]
        return self._kept[block.shape]

    def _label(self, sample: str) -> str:
        name, brace, labels = sample.partition("{")
        more = f'instance="{self.machine.name}",job="{JOB}"'
        return f"{name}{{{more},{labels}" if brace else f"{name}{{{more}}}"


def _report(collector: Replayed, reading: object, now: float, number: int) -> Report:
    complaint = collector.complaint(reading)
    return Report(
        collector=collector.name,
        success=complaint is None,
        answered=True,
        seconds=0.0003 * (number + 1),
        reason=complaint,
        timeouts=0,
        omitted=collector.omitted(reading),
        last_success=now if complaint is None else None,
    )


def list_moments(since: float, until: float) -> range:
    """Return the sample times within an interval, which are the same in every process."""
    return range(-(-int(since) // STEP_SECONDS) * STEP_SECONDS, int(until) + 1, STEP_SECONDS)


def split_moments(moments: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split sample times at the boundaries of Prometheus blocks."""
    first = 0
    for place, moment in enumerate(moments):
        if place > first and moment // _BLOCK_SECONDS != moments[place - 1] // _BLOCK_SECONDS:
            yield moments[first:place]
            first = place
    if len(moments) > first:
        yield moments[first:]


class Past:
    """A writer of blocks with the samples of machines at past times.

    Args:
        machines: The machines.
        promtool: The path of promtool, which creates the blocks.
        directory: A directory for temporary files.
        blocks: The directory of the blocks, which is Prometheus' data directory.
    """

    def __init__(
        self, machines: Iterable[Machine], *, promtool: Path, directory: Path, blocks: Path
    ) -> None:
        self._scribes = [Scribe(machine) for machine in machines]
        self._promtool, self._directory, self._blocks = promtool, directory, blocks

    def write(self, moments: Sequence[int]) -> None:
        """Create the blocks for ascending sample times, later than those of previous calls.

        Raises:
            StackError: promtool cannot create a block.
        """
        making: Making | None = None
        for part in split_moments(moments):
            path = self._write_text(part)
            if making is not None:
                making.wait()
            making = Making(path, promtool=self._promtool, blocks=self._blocks)
        if making is not None:
            making.wait()

    def _write_text(self, moments: Sequence[int]) -> Path:
        path = self._directory / f"past-{moments[0]}.txt"
        with path.open("w", encoding="utf-8") as file:
            for moment in moments:
                file.writelines(scribe.write(moment) for scribe in self._scribes)
            file.write("# EOF\n")
        return path


class Making:
    """A promtool process that creates a block in the background.

    Args:
        path: The path of the text file with the samples, which is removed at the end.
        promtool: The path of promtool.
        blocks: The directory of the blocks.
    """

    def __init__(self, path: Path, *, promtool: Path, blocks: Path) -> None:
        self._path = path
        words = ("tsdb", "create-blocks-from", "openmetrics", str(path), str(blocks))
        self._process = subprocess.Popen(
            (str(promtool), *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> None:
        """Wait until the block has been created.

        Raises:
            StackError: The block cannot be created.
        """
        _, words = self._process.communicate()
        if self._process.returncode:
            raise StackError(f"promtool cannot make a block of {self._path}: {words.strip()}")
        self._path.unlink()
