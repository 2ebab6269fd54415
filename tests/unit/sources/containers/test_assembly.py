"""The evidence about a container describes the relevant start and end of the container."""

from dataclasses import replace

from tests.support.container_stage import ID, OTHER, write_inspection
from trainvitals.sources.containers.assembly import Pieces, assemble, fill
from trainvitals.sources.containers.events import ContainerEvent
from trainvitals.sources.containers.evidence import (
    Evidence,
    Gap,
    HealthProbe,
    OomKill,
    State,
    XidError,
)
from trainvitals.sources.containers.inspection import parse_inspection
from trainvitals.sources.host.kernel_lines import DatedLine

TEN = 1_795_298_400.0
CREATE = ContainerEvent(TEN - 1, "create", ID, "train", "acme/train:1")
START = ContainerEvent(TEN, "start", ID, "train")
DIE = ContainerEvent(TEN + 8, "die", ID, "train", exit_code=137)
AGAIN = ContainerEvent(TEN + 9, "start", ID, "train")


def inspect(*arguments, **settings):
    """Return a parsed inspection of a container."""
    return parse_inspection(write_inspection(*arguments, **settings))


def test_a_death_is_told_though_the_container_runs_again():
    """The evidence describes the last death even if the container has been restarted."""
    running = inspect(TEN + 9, TEN + 8, status="running", exit_code=0)
    evidence = assemble(Pieces("", inspection=running, events=(CREATE, START, DIE, AGAIN)))
    assert (evidence.started, evidence.ended, evidence.exit_code) == (TEN, TEN + 8, 137)
    assert evidence.state is None
    assert [event.action for event in evidence.events] == ["create", "start", "die"]


def test_present_trouble_goes_before_a_death_of_before():
    """The failing health check of a running container takes precedence over an earlier death."""
    sick = inspect(
        TEN + 9,
        TEN + 8,
        status="running",
        exit_code=0,
        health={"Status": "unhealthy", "FailingStreak": 3, "Log": []},
    )
    evidence = assemble(Pieces("", inspection=sick, events=(START, DIE, AGAIN)))
    assert (evidence.started, evidence.ended, evidence.exit_code) == (TEN + 9, None, None)
    assert evidence.state.failing_streak == 3
    assert evidence.earlier_deaths == (TEN + 8,)


def test_a_kill_for_memory_since_the_last_start_is_present_trouble():
    """An OOM kill in a running container takes precedence over an earlier death."""
    running = inspect(TEN + 9, TEN + 8, status="running", exit_code=0)
    oom = ContainerEvent(TEN + 10, "oom", ID, "train")
    evidence = assemble(Pieces("", inspection=running, events=(START, DIE, AGAIN, oom)))
    assert evidence.ended is None
    assert [event.action for event in evidence.events] == ["start", "oom"]


def test_each_death_before_the_last_is_an_earlier_one():
    """The evidence of the last death lists the times of the earlier deaths."""
    second = replace(DIE, time=TEN + 12, exit_code=3)
    evidence = assemble(Pieces("", events=(START, DIE, AGAIN, second)))
    assert (evidence.ended, evidence.exit_code) == (TEN + 12, 3)
    assert evidence.earlier_deaths == (TEN + 8,)


def test_a_start_that_failed_has_no_event_die():
    """The exit code of a failed start comes from the state, and its time from the `create` event."""
    never = inspect(None, None, status="created", exit_code=127, error="not found")
    evidence = assemble(Pieces("", inspection=never, events=(CREATE,)))
    assert (evidence.started, evidence.ended, evidence.exit_code) == (None, TEN - 1, 127)
    assert not evidence.is_exit_code_witnessed


def test_what_was_made_and_not_started_has_not_ended():
    """A container that was created but not started has no end and no exit code."""
    made = inspect(None, None, status="created", exit_code=0)
    evidence = assemble(Pieces("", inspection=made, events=(CREATE,)))
    assert (evidence.ended, evidence.exit_code, evidence.state.status) == (None, None, "created")


def test_a_death_that_nobody_heard_of_goes_before_one_that_was_heard():
    """A later end in the container's state takes precedence over the last `die` event."""
    later = inspect(TEN + 100, TEN + 200, exit_code=1)
    evidence = assemble(Pieces("", inspection=later, events=(START, DIE)))
    assert (evidence.started, evidence.ended, evidence.exit_code) == (TEN + 100, TEN + 200, 1)
    assert not evidence.is_exit_code_witnessed


def test_events_of_others_are_left_out():
    """Without an inspection, the container is selected by name, or else by the last `die` event."""
    other = ContainerEvent(TEN + 1, "die", OTHER, "other", exit_code=3)
    assert assemble(Pieces("train", events=(START, other, DIE))).id == ID
    assert assemble(Pieces("folder", events=(START, DIE, other))).name == "train"


def test_no_events_is_not_the_same_as_nobody_listened():
    """An empty list of events counts as unknown, since an engine forgets old events."""
    ended = inspect(TEN, TEN + 8)
    assert assemble(Pieces("", inspection=ended, events=())).events is None
    assert assemble(Pieces("", inspection=ended)).exit_code == 137


def kill(task_memcg, oom_memcg, time=TEN + 7.9):
    """Return an OOM kill with the given control groups."""
    return OomKill(time, "CONSTRAINT_MEMCG", oom_memcg, task_memcg, "python3", 4242)


def test_kills_beside_count_where_the_limit_was_over_both():
    """A sibling's OOM kill is evidence only if the exceeded limit belongs to the parent group."""
    own, beside = f"/jobs/{ID}", f"/jobs/{OTHER}"
    pieces = Pieces("", events=(START, DIE), cgroup=own, oom_kills=(kill(beside, "/jobs"),))
    assert len(assemble(pieces).oom_kills) == 1
    alone = replace(pieces, oom_kills=(kill(beside, beside),))
    assert assemble(alone).oom_kills == ()
    (line,) = assemble(alone).kernel_lines
    assert line.startswith("OOM killer: python3 (pid 4242) in container 9a3b7c11d2e0, CONSTRAINT")
    assert line.endswith(", 100ms before this end")


def test_the_kernel_log_is_told_around_the_end():
    """Kernel lines near the end, and GPU errors up to ten minutes before it, are evidence."""
    pieces = Pieces(
        "",
        events=(START, DIE),
        oom_kills=(),
        xids=(XidError(TEN - 500, "0000:3b:00", 79), XidError(TEN - 5000, "0000:3b:00", 79)),
        kernel_lines=(DatedLine(TEN - 100, "before"), DatedLine(TEN, "near")),
    )
    evidence = assemble(pieces)
    assert [xid.time for xid in evidence.xids] == [TEN - 500]
    assert evidence.kernel_lines == ("near",)


def test_a_record_keeps_what_it_has():
    """Only the missing parts of a recorded evidence are filled in."""
    state = State("exited", 137, probes=(HealthProbe(None, 1, "x"),))
    record = Evidence("container", "train", exit_code=0, gaps=(Gap("a", "b", "c"),))
    found = Evidence("container", "other", exit_code=137, state=state, log=())
    filled = fill(record, found)
    assert (filled.name, filled.exit_code, filled.state) == ("train", 0, state)
    assert filled.gaps == (Gap("a", "b", "c"),)
