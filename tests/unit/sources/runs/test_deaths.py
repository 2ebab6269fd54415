"""Tests for the register that logs and counts the ending of each rank once."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.sources.runs.rows import NOON, write_record
from trainvitals.runfile import Identity, State
from trainvitals.sources.runs.deaths import DeathRegister
from trainvitals.sources.runs.endings import Ending, describe_ending, read_ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.processes import Exit
from trainvitals.sources.runs.rankfile import FileKey
from trainvitals.sources.runs.seen_files import SeenFile

KILLED = Liveness(is_alive=False, evidence="lock", host_pid=42)
BY_SIGNAL = replace(KILLED, exit=Exit(None, 9))


@pytest.fixture
def told(caplog):
    """Return a function that returns the messages that were logged so far."""
    caplog.set_level(logging.INFO, logger="trainvitals")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def see(directory: Path, liveness: Liveness = KILLED, **words: float) -> SeenFile:
    """Return the run file of rank 3 after 1200 steps."""
    record = write_record(
        identity=Identity("llama", rank=3, created_time=NOON - 60), global_step=1200, **words
    )
    return SeenFile(directory / "llama.tv", FileKey(1, 2), record, liveness, is_current=True)


def test_a_death_that_the_kernel_explains_is_told_and_counted_at_once(tmp_path: Path, told):
    """An ending that the kernel explains is logged and counted immediately, and only once."""
    register = DeathRegister(lambda uuids: {"gpus": len(uuids)})
    register.note_living("key")
    for later in (0, 5, 50):
        ending = register.find_ending(
            "key", see(tmp_path, BY_SIGNAL), NOON + later, ["GPU-0"], run="llama"
        )
        assert (ending.reason, ending.signal, ending.time) == ("signal", 9, NOON)
        assert ending.machine == {"gpus": 1}
    assert register.count_exits("llama")["signal"] == 1
    assert told() == [("WARNING", "run llama rank 3 was killed by signal 9 (SIGKILL) at step 1200")]


def test_the_kernel_has_ten_seconds_to_explain_a_death(tmp_path: Path, told):
    """An unexplained ending is not reported for ten seconds, in which the kernel may explain it."""
    register = DeathRegister()
    register.note_living("key")
    assert register.find_ending("key", see(tmp_path), NOON, [], run="llama").reason == "unknown"
    assert register.find_ending("key", see(tmp_path), NOON + 9, [], run="llama").reason == "unknown"
    assert told() == []
    assert sum(register.count_exits("llama").values()) == 0
    ending = register.find_ending("key", see(tmp_path, BY_SIGNAL), NOON + 9.5, [], run="llama")
    assert (ending.reason, ending.time) == ("signal", NOON)
    assert told() == [("WARNING", "run llama rank 3 was killed by signal 9 (SIGKILL) at step 1200")]
    note = read_ending(tmp_path / "llama.tv")
    assert note is not None
    assert note.signal == 9


def test_a_death_that_nobody_explains_is_told_as_such(tmp_path: Path, told):
    """After ten seconds the reason is reported as unknown, and a later explanation is ignored."""
    register = DeathRegister()
    register.note_living("key")
    register.find_ending("key", see(tmp_path), NOON, [], run="llama")
    register.find_ending("key", see(tmp_path), NOON + 10, [], run="llama")
    assert told() == [("WARNING", "run llama rank 3 died for an unknown reason at step 1200")]
    late = register.find_ending("key", see(tmp_path, BY_SIGNAL), NOON + 20, [], run="llama")
    assert late.reason == "unknown"
    assert register.count_exits("llama") == {
        "finished": 0,
        "exception": 0,
        "signal": 0,
        "oom": 0,
        "unknown": 1,
    }


def test_a_run_that_finished_is_no_warning(tmp_path: Path, told):
    """A finished run is logged at level INFO, and ended at the time that the run recorded."""
    register = DeathRegister()
    file = see(tmp_path, state=float(State.FINISHED), state_time=NOON - 30)
    assert register.find_ending("key", file, NOON, [], run="llama").time == NOON - 30
    assert told() == [("INFO", "run llama rank 3 finished at step 1200")]


def test_a_rank_that_was_never_seen_alive_ended_with_its_last_record(tmp_path: Path):
    """If a rank was never seen alive, its last record dates its end, without a machine state."""
    register = DeathRegister(lambda _: {"memory_available_bytes": 1.0})
    ending = register.find_ending(
        "key", see(tmp_path, BY_SIGNAL, wall_time=NOON - 40), NOON, [], run="llama"
    )
    assert ending.time == NOON - 40
    assert ending.machine == {}


def test_a_note_of_another_exporter_is_believed_and_not_told_again(tmp_path: Path, told):
    """An ending that another exporter noted is counted, but is not logged again."""
    DeathRegister().find_ending("key", see(tmp_path, BY_SIGNAL), NOON, [], run="llama")
    before = told()
    register = DeathRegister()
    assert register.find_ending("key", see(tmp_path), NOON + 50, [], run="llama").signal == 9
    assert register.count_exits("llama")["signal"] == 1
    assert told() == before


def test_what_was_counted_stays_counted_when_files_go(tmp_path: Path):
    """The exit count of a run is kept when the file of its rank is deleted."""
    register = DeathRegister()
    register.find_ending("key", see(tmp_path, BY_SIGNAL), NOON, [], run="llama")
    register.forget(set(), set())
    assert register.count_exits("llama")["signal"] == 1


@pytest.mark.parametrize("can_be_noted", [True, False])
def test_a_rank_that_comes_back_is_not_counted_again(tmp_path: Path, told, can_be_noted):
    """A rank whose file disappears for a while and reappears is counted and logged once."""
    register = DeathRegister()
    file = replace(see(tmp_path, BY_SIGNAL), can_be_noted=can_be_noted)
    register.find_ending("key", file, NOON, [], run="llama")
    register.forget(set(), set())
    register.find_ending("key", file, NOON + 20, [], run="llama")
    assert register.count_exits("llama")["signal"] == 1
    assert len(told()) == 1


def test_what_is_counted_of_a_run_that_is_here_is_never_forgotten(tmp_path: Path):
    """The exit count of an existing run is kept, even if 1100 other runs come and go."""
    register = DeathRegister()
    register.find_ending("key", see(tmp_path, BY_SIGNAL), NOON, [], run="llama")
    for number in range(1100):
        register._count(number, f"run {number}", register._deaths["key"].ending)
        register.forget({"key"}, {"llama"})
    assert register.count_exits("llama")["signal"] == 1
    assert len(register._exits) == 512


@pytest.mark.parametrize("told_time", [NOON + 3600, float("inf"), 1e300])
def test_nobody_ended_in_the_future(tmp_path: Path, told_time: float):
    """An end time in the future is replaced by the current time, as the rank would never expire."""
    said = see(tmp_path, state=float(State.FINISHED), state_time=told_time)
    assert DeathRegister().find_ending("key", said, NOON, [], run="llama").time == NOON
    silent = replace(see(tmp_path / "silent", wall_time=told_time), can_be_noted=False)
    assert DeathRegister().find_ending("key", silent, NOON, [], run="llama").time == NOON


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending("finished", 0, None, None, NOON, ""), "finished"),
        (Ending("exception", None, None, "KeyError", NOON, ""), "failed with KeyError"),
        (Ending("exception", 3, None, None, NOON, ""), "failed with exit code 3"),
        (Ending("exception", None, None, None, NOON, ""), "failed"),
        (Ending("oom", None, 9, None, NOON, ""), "was killed because memory ran out"),
        (Ending("signal", None, 11, None, NOON, ""), "was killed by signal 11 (SIGSEGV)"),
        (Ending("unknown", None, None, None, NOON, ""), "died for an unknown reason"),
    ],
)
def test_an_ending_is_told_in_a_few_words(ending: Ending, words: str):
    """The description of an ending contains only the values that are known."""
    assert describe_ending(ending) == words
