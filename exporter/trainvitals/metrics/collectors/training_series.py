"""The metric families of ranks and runs; this module is imported when the first run appears."""

from __future__ import annotations

from collections.abc import Sequence

from trainvitals.metrics.collectors.tables import table_block
from trainvitals.metrics.collectors.training_row import write_row
from trainvitals.metrics.collectors.training_table import METRICS, MOST_SERIES
from trainvitals.metrics.families import Block, Family, Labels, label_samples
from trainvitals.runfile import ABSENT, STATE
from trainvitals.sources.runs.endings import REASONS
from trainvitals.sources.runs.reading import RankReading, RunReading, RunsReading

_METRICS = STATE["metric_0"]
_MOST_UUIDS = 8

_Names = tuple[tuple[str, str], ...]


def express_runs(reading: RunsReading) -> tuple[list[Block], int]:
    """Return the metric families of all ranks and runs, and the number of omitted series."""
    rows = []
    left_out = 0
    for rank in reading.ranks:
        row, surplus = write_row(rank)
        rows.append(row)
        left_out += surplus
    free = [
        _list_free(rank, MOST_SERIES - 1 - len(row) + row.count(ABSENT))
        for rank, row in zip(reading.ranks, rows, strict=True)
    ]
    left_out += sum(surplus for _, _, surplus in free)
    subjects = tuple([(("run", rank.run), ("rank", rank.rank)) for rank in reading.ranks])
    blocks = [
        _express_runs(reading.runs),
        _express_expected(reading.runs),
        _express_infos(reading.ranks),
        table_block(("training", "ranks"), METRICS, subjects, rows, absent=ABSENT),
        _express_free(reading.ranks, free),
    ]
    return blocks, left_out


def _express_infos(ranks: Sequence[RankReading]) -> Block:
    infos = tuple([_describe_rank(rank) for rank in ranks])

    def describe() -> tuple[Family, ...]:
        help_ = (
            "Which process and accelerator a rank is. "
            "Source: lock of the run file, nvmlDeviceGetComputeRunningProcesses_v3."
        )
        samples = tuple(("", labels) for labels in infos)
        return (Family("training_rank_info", "info", help_, samples),)

    return Block(("training", "infos", infos), describe, [1] * len(ranks))


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


def _list_free(rank: RankReading, room: int) -> tuple[_Names, list[float], int]:
    """Return up to `room` user-defined metrics: names, values and the number of omitted metrics."""
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


def _express_expected(runs: Sequence[RunReading]) -> Block:
    expected = {run.run: run.expected for run in runs if run.expected is not None}
    paces = {run: one.epoch_seconds for run, one in expected.items() if one.epoch_seconds}
    sizes = {run: one.memory_bytes for run, one in expected.items() if one.memory_bytes}
    names = (tuple(paces), tuple(sizes))
    values: list[float] = [*paces.values(), *sizes.values()]
    return Block(("training", "expected", names), lambda: _describe_expected(*names), values)


def _describe_expected(paces: Sequence[str], sizes: Sequence[str]) -> tuple[Family, ...]:
    families = (
        Family(
            "training_expected_epoch_seconds",
            "gauge",
            "How long an epoch should take. Source: file of baselines.",
            label_samples("run", paces),
        ),
        Family(
            "training_expected_memory_bytes",
            "gauge",
            "Memory that each accelerator of the run should need. Source: file of baselines.",
            label_samples("run", sizes),
        ),
    )
    return tuple(family for family in families if family.samples)


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
