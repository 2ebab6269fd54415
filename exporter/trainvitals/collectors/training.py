"""The training collector: every run on this machine, whoever tells of it."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.collectors.training_row import FIELDS, write_row
from trainvitals.collectors.training_table import METRICS, MOST_SERIES, STEP_DURATIONS
from trainvitals.families import Block, Family, Labels, label_samples
from trainvitals.runfile import ABSENT, STATE
from trainvitals.sources.training.endings import REASONS
from trainvitals.sources.training.reading import RankReading, RunReading, RunsReading
from trainvitals.sources.training.source import TrainingSource

_METRICS = STATE["metric_0"]
_MOST_UUIDS = 8
_HISTOGRAM = slice(
    FIELDS.index(STEP_DURATIONS.fields[0]), FIELDS.index(STEP_DURATIONS.fields[-1]) + 1
)

_Who = tuple[str, str]
_Mask = bytes
_Names = tuple[tuple[str, str], ...]


class TrainingCollector:
    """Turns the readings of all training runs into families.

    Args:
        source: Reads them.
    """

    name = "training"

    def __init__(self, source: TrainingSource) -> None:
        self._source = source
        self._left_out = 0

    def read(self, deadline: float) -> RunsReading:
        """Read every run by the deadline (monotonic)."""
        return self._source.read(deadline)

    def express(self, reading: RunsReading) -> tuple[Block, ...]:
        """Name what was read; what a run did not tell has no sample."""
        blocks = [_express_files(reading)]
        self._left_out = 0
        if reading.ranks:
            rows = []
            for rank in reading.ranks:
                row, left_out = write_row(rank)
                rows.append(row)
                self._left_out += left_out
            blocks += [_express_runs(reading.runs), _express_ranks(reading.ranks, rows)]
            free = [
                _list_free(rank, MOST_SERIES - 1 - len(row) + row.count(ABSENT))
                for rank, row in zip(reading.ranks, rows, strict=True)
            ]
            self._left_out += sum(left_out for _, _, left_out in free)
            blocks.append(_express_free(reading.ranks, free))
        return tuple(block for block in blocks if block.values)

    def complaint(self, reading: RunsReading) -> str | None:
        """Say what could not be read."""
        return reading.complaint

    def omitted(self, reading: RunsReading) -> int:
        """Count the ranks, and the series of those that were expressed last, that bounds left out."""
        return reading.omitted + self._left_out

    def close(self) -> None:
        """Close all files."""
        self._source.close()


def _express_files(reading: RunsReading) -> Block:
    return Block(("training", "files"), _describe_files, [reading.incompatible_files])


def _describe_files() -> tuple[Family, ...]:
    return (
        Family(
            "training_client_incompatible_files",
            "gauge",
            "Files that are no run files, damaged, or of an unknown version. Source: run directory.",
        ),
    )


def _express_ranks(ranks: Sequence[RankReading], rows: Sequence[Sequence[float]]) -> Block:
    who = tuple([(rank.run, rank.rank) for rank in ranks])
    infos = tuple([_describe_rank(rank) for rank in ranks])
    masks = tuple([bytes([value != ABSENT for value in row]) for row in rows])
    values: list[float] = [1] * len(ranks)
    columns = list(zip(*rows, strict=True))
    del columns[_HISTOGRAM]
    values += [value for column in columns for value in column if value != ABSENT]
    # The samples of a histogram stand together, rank by rank, as OpenMetrics demands.
    values += [value for row in rows for value in row[_HISTOGRAM] if value != ABSENT]
    shape = ("training", "ranks", infos, masks)
    return Block(shape, lambda: _describe_ranks(who, infos, masks), values)


def _describe_rank(rank: RankReading) -> Labels:
    identity, liveness = rank.record.identity, rank.liveness
    local_rank = identity.local_rank if identity is not None else -1
    pid = liveness.host_pid if liveness is not None else None
    return (
        ("run", rank.run),
        ("rank", rank.rank),
        ("local_rank", str(local_rank) if local_rank >= 0 else ""),
        ("host_pid", str(pid) if pid is not None else ""),
        ("gpu_uuid", ",".join(rank.gpu_uuids[:_MOST_UUIDS])),
        ("attempt", str(identity.attempt) if identity is not None else ""),
    )


def _describe_ranks(
    who: Sequence[_Who], infos: Sequence[Labels], masks: Sequence[_Mask]
) -> tuple[Family, ...]:
    families = [
        Family(
            "training_rank_info",
            "info",
            "Which process and accelerator a rank is. Source: lock of the run file, nvmlDeviceGetComputeRunningProcesses_v3.",
            tuple(("", labels) for labels in infos),
        )
    ]
    at = 0
    for metric in METRICS:
        columns = range(at, at + len(metric.samples))
        at = columns.stop
        if metric.type != "histogram":
            samples = tuple(
                (suffix, (("run", run), ("rank", rank), *extra))
                for column, (suffix, extra) in zip(columns, metric.samples, strict=True)
                for (run, rank), mask in zip(who, masks, strict=True)
                if mask[column]
            )
            families.append(Family(metric.name, metric.type, metric.help, samples))
    families.append(_describe_histogram(who, masks))
    return tuple(family for family in families if family.samples)


def _describe_histogram(who: Sequence[_Who], masks: Sequence[_Mask]) -> Family:
    samples = tuple(
        (suffix, (("run", run), ("rank", rank), *extra))
        for (run, rank), mask in zip(who, masks, strict=True)
        for (suffix, extra), is_there in zip(STEP_DURATIONS.samples, mask[_HISTOGRAM], strict=True)
        if is_there
    )
    return Family(STEP_DURATIONS.name, STEP_DURATIONS.type, STEP_DURATIONS.help, samples)


def _list_free(rank: RankReading, room: int) -> tuple[_Names, list[float], int]:
    """Give the free metrics of a rank for which there is room, and count the others."""
    found: dict[tuple[str, str], float] = {}
    for number, name in enumerate(rank.record.metrics):
        value = rank.record.state[_METRICS + number]
        if value != ABSENT and name[0]:
            found.setdefault(name, value)
    kept = list(found.items())[: max(0, room)]
    return tuple([name for name, _ in kept]), [value for _, value in kept], len(found) - len(kept)


def _express_free(
    ranks: Sequence[RankReading], free: Sequence[tuple[_Names, list[float], int]]
) -> Block:
    keys = tuple(
        [
            (rank.run, rank.rank, names)
            for rank, (names, _, _) in zip(ranks, free, strict=True)
            if names
        ]
    )
    values = [value for _, numbers, _ in free for value in numbers]
    return Block(("training", "free", keys), lambda: _describe_free(keys), values)


def _describe_free(keys: Sequence[tuple[str, str, _Names]]) -> tuple[Family, ...]:
    samples = tuple(
        ("", (("run", run), ("rank", rank), ("name", name), ("split", split)))
        for run, rank, names in keys
        for name, split in names
    )
    return (
        Family(
            "training_metric",
            "gauge",
            "Latest value that the run logged under a name of its own. Source: run file, name table.",
            samples,
        ),
    )


def _express_runs(runs: Sequence[RunReading]) -> Block:
    infos = tuple([_describe_run(run) for run in runs])
    worlds = [run for run in runs if run.world_size is not None]
    here = [run for run in runs if run.ranks_alive is not None]
    lost = [run for run in runs if run.losses is not None]
    values: list[float] = [1] * len(runs)
    values += [run.world_size or 0 for run in worlds]
    values += [run.ranks_alive or 0 for run in here]
    values += [run.exits.get(reason, 0) for run in here for reason in REASONS]
    losses = [run.losses for run in lost if run.losses is not None]
    values += [loss.restarts for loss in losses]
    values += [loss.steps for loss in losses]
    values += [loss.seconds for loss in losses]
    names = tuple([tuple([run.run for run in group]) for group in (worlds, here, lost)])
    return Block(("training", "runs", infos, names), lambda: _describe_runs(infos, *names), values)


def _describe_run(run: RunReading) -> Labels:
    described = [
        (name, value if isinstance(value := run.static.get(name), str) else "")
        for name in ("framework", "framework_version", "client_version", "clock")
    ]
    return (("run", run.run), *described, ("source", run.source))


def _describe_runs(
    infos: Sequence[Labels], worlds: Sequence[str], here: Sequence[str], lost: Sequence[str]
) -> tuple[Family, ...]:
    exits = tuple(("", (("run", run), ("reason", reason))) for run in here for reason in REASONS)
    families = (
        Family(
            "training_run_info",
            "info",
            "What a run is and who tells of it. Source: run file, static JSON.",
            tuple(("", labels) for labels in infos),
        ),
        Family(
            "training_world_size",
            "gauge",
            "Ranks that the run has on all machines. Source: run file, header.",
            label_samples("run", worlds),
        ),
        Family(
            "training_ranks_seen",
            "gauge",
            "Ranks of the run that live on this machine. Source: lock of the run file.",
            label_samples("run", here),
        ),
        Family(
            "training_process_exits_total",
            "counter",
            "Processes of the run that ended, by reason. Source: run file, pidfd, cgroup memory.events.",
            exits,
        ),
        Family(
            "training_restarts_total",
            "counter",
            "Starts of the run after it had died, by the rank that had the most. Source: run directory.",
            label_samples("run", lost),
        ),
        Family(
            "training_lost_steps_total",
            "counter",
            "Steps that were done in vain because the run died, by the rank that lost the most. Source: run file, word first_global_step.",
            label_samples("run", lost),
        ),
        Family(
            "training_lost_seconds_total",
            "counter",
            "Time that steps took that were done in vain, by the rank that lost the most. Source: run file, word train_seconds.",
            label_samples("run", lost),
        ),
    )
    return tuple(family for family in families if family.samples)
