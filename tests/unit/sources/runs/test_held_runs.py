"""Tests for the choice among the files that one process writes about its run."""

from __future__ import annotations

from dataclasses import replace

from trainvitals.sources.runs.held_runs import choose_held
from trainvitals.sources.runs.scalars import FoundRun, RunScalars, Source


def make_run(
    path: str, source: Source, *pids: int, time: float = 1.0, named: bool = False
) -> FoundRun:
    """Return a run that was found in a file."""
    name = path.rpartition("/")[2]
    run = RunScalars().describe(name, source, path, started_time=None, last_time=time)
    place = "/work" if pids else ""
    return replace(run, is_named=named, holders=pids, place=place)


def choose(*runs: FoundRun, instrumented: tuple[int, ...] = ()) -> list[str]:
    """Return the paths of the chosen runs."""
    return sorted(run.path for run in choose_held(runs, instrumented))


LOG = make_run("/data/train.log", "log", 7, time=9.0)
TABLE = make_run("/data/a/metrics.csv", "csv", 7)
EVENTS = make_run("/data/a/events.out.tfevents.1", "tensorboard", 7)
STATE = make_run("/data/out/trainer_state.json", "json", 7, time=20.0)


def test_a_process_alone_has_one_run():
    """Event files come before tables, tables before logs, and a Trainer's state file comes last."""
    assert choose(LOG, TABLE, EVENTS, STATE) == [EVENTS.path]
    assert choose(LOG, TABLE, STATE) == [TABLE.path]
    assert choose(LOG, STATE) == [LOG.path]
    assert choose(STATE) == [STATE.path]


def test_the_latest_file_of_a_kind_is_chosen():
    """If a process trains one model after another, the file that was written last is chosen."""
    later = make_run("/data/b/metrics.csv", "csv", 7, time=2.0)
    assert choose(TABLE, later) == [later.path]


def test_processes_in_one_folder_have_a_run_for_each_folder():
    """The files of one folder, or of a folder and its subfolder, count as one run."""
    both = [replace(run, holders=(7, 8)) for run in (TABLE, EVENTS)]
    other = replace(TABLE, path="/data/b/metrics.csv", holders=(7, 8))
    assert choose(*both, other) == ["/data/a/events.out.tfevents.1", "/data/b/metrics.csv"]
    assert choose(*both, other, replace(LOG, holders=(7, 8))) == [EVENTS.path, other.path]


def test_a_run_file_comes_before_all_files():
    """A file that a flag names is kept even if the process also has a run file."""
    named = make_run("/data/x.log", "log", 7, named=True)
    assert choose(LOG, TABLE, instrumented=(7,)) == []
    assert choose(named, LOG, TABLE) == [named.path]


def test_runs_with_the_same_name_are_told_apart():
    """The PID is added to the name of a process's run if another run has the same name."""
    named = make_run("/logs/train.log", "log", named=True)
    names = {run.run for run in choose_held([named, LOG])}
    assert names == {"train.log", "train.log (pid 7)"}
