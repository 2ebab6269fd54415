"""The training collector, which collects the training runs on the machine."""

from __future__ import annotations

from trainvitals.metrics.collectors.collector import Collector
from trainvitals.metrics.families import Block, Family, label_samples
from trainvitals.sources.runs.reading import RunsReading, choose_runs
from trainvitals.sources.runs.source import TrainingSource
from trainvitals.workers import attempt_without_faulty


class TrainingCollector(Collector[RunsReading]):
    """The training collector, which turns readings of training runs into metric families.

    Args:
        source: The reader of training runs.
    """

    name = "training"

    def __init__(self, source: TrainingSource) -> None:
        self._source = source
        self.latest: RunsReading | None = None
        self._left_out = 0
        self._faulty: list[tuple[str, Exception]] = []

    def read(self, deadline: float) -> RunsReading:
        """Read all training runs before the deadline."""
        self.latest = self._source.read(deadline)
        return self.latest

    def express(self, reading: RunsReading) -> tuple[Block, ...]:
        """Return the metric families of a training reading; a value that is None has no sample."""
        blocks = [_express_files(reading), _express_followed(reading)]
        self._left_out, self._faulty = 0, []
        if reading.ranks:
            # The module is imported with the first run, so that the exporter starts faster on a
            # machine without runs.
            from trainvitals.metrics.collectors.training_series import express_runs  # noqa: PLC0415

            (of_runs, self._left_out), self._faulty = attempt_without_faulty(
                lambda names: express_runs(choose_runs(reading, names)),
                [run.run for run in reading.runs],
            )
            blocks += of_runs
        return tuple(block for block in blocks if block.values)

    def complaint(self, reading: RunsReading) -> str | None:
        """Return the sources that could not be read, and the first run that `express` left out."""
        failed = [f"run {run}: {type(error).__name__}: {error}" for run, error in self._faulty[:1]]
        return "; ".join(filter(None, (reading.complaint, *failed))) or None

    def omitted(self, reading: RunsReading) -> int:
        """Return the total number of faulty runs and of ranks and series omitted due to limits."""
        return reading.omitted + self._left_out + len(self._faulty)

    def close(self) -> None:
        """Close all files that the training run reader has opened."""
        self._source.close()


def _express_files(reading: RunsReading) -> Block:
    values = [reading.incompatible_files, reading.omitted_alive]
    return Block(("training", "files"), _describe_files, values)


def _express_followed(reading: RunsReading) -> Block:
    followed = reading.followed
    values = [
        followed.understood,
        len(followed.not_understood),
        followed.unreadable,
        len(followed.unmatched),
    ]
    return Block(("training", "followed"), _describe_followed, values)


def _describe_followed() -> tuple[Family, ...]:
    return (
        Family(
            "training_followed_files",
            "gauge",
            "Files that are followed for runs without a run file, by whether a line was understood. "
            "Source: files of runs.",
            label_samples("state", ("understood", "not_understood", "unreadable")),
        ),
        Family(
            "training_file_globs_unmatched",
            "gauge",
            "Flags that name files of runs and match no file. Source: file systems.",
        ),
    )


def _describe_files() -> tuple[Family, ...]:
    return (
        Family(
            "training_client_incompatible_files",
            "gauge",
            "Files that are no run files, damaged, or of an unknown version. Source: run directory.",
        ),
        Family(
            "training_ranks_omitted",
            "gauge",
            "Living ranks that the bounds on runs and ranks leave out. Source: run directory.",
        ),
    )
