"""Tests for the choice of the ranks that are shown if there are more ranks than the limits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainvitals.runfile import Identity, Record
from trainvitals.sources.runs.endings import Ending
from trainvitals.sources.runs.liveness import Liveness
from trainvitals.sources.runs.machine_state import MachineState
from trainvitals.sources.runs.rankfile import FileKey
from trainvitals.sources.runs.seen_files import SeenFile
from trainvitals.sources.runs.starts import Start, StartRegister, choose_shown, find_latest

NOW = 1_000_000.0
ADA, BOB, MALLORY = 1001, 1002, 1003
ENDED = Ending("unknown", None, None, None, NOW - 10.0, "It is gone.")


def start(
    run: str, owner: int, *, rank: int = 0, made: float = NOW, device: int = 1, dead: bool = False
) -> Start:
    """Return a start of a rank whose file contains a false creation time."""
    identity = Identity(run, rank=rank, pid=42, created_time=-made - owner)
    liveness = Liveness(is_alive=not dead, evidence="lock")
    path, key = Path(f"{run}.{rank}.tv"), FileKey(device, hash((run, rank, owner)))
    file = SeenFile(
        path,
        key,
        Record(identity=identity),
        liveness,
        is_current=True,
        can_be_noted=False,
        owner=owner,
        made_time=made,
    )
    ending = ENDED if dead else None
    return Start(key, file, identity, run, ending, gpu_uuids=(), alerts_seen=0)


def runs_of(*arguments) -> list[str]:
    """Return the sorted names of the shown runs."""
    shown, _ = choose_shown(*arguments)
    return sorted({each.run for each in shown})


def many(owner: int, count: int, **keywords) -> list[Start]:
    """Return many runs of one user."""
    return [start(f"{owner}-{number:03}", owner, **keywords) for number in range(count)]


class Dead(MachineState):
    """A machine on which no process holds an accelerator."""

    def holders(self) -> dict[int, tuple[str, ...]]:
        """Return no accelerators."""
        return {}


def take_up(*starts: Start) -> list[str]:
    """Return the names under which the runs are shown, in the given order."""
    return [each.run for each in StartRegister(Dead()).take_up([s.file for s in starts], NOW)]


@given(st.permutations([("mine", 0), ("mine", MALLORY), ("mine (uid 0)", MALLORY)]))
def test_no_user_has_the_name_of_another_s_run(runs):
    """No user can use the shown name of another user's run, in whatever order the runs appear."""
    names = take_up(*(start(run, owner) for run, owner in runs))
    assert len(set(names)) == 3


def test_a_name_stays_while_its_run_is_there():
    """A run keeps the name under which it was shown first."""
    register = StartRegister(Dead())
    files = [start("mine", MALLORY).file, start("mine", 0).file]
    assert [each.run for each in register.take_up(files[:1], NOW)] == ["mine"]
    for _ in range(3):
        assert [each.run for each in register.take_up(files, NOW)] == ["mine", "mine (uid 0)"]
    assert [each.run for each in register.take_up(files[1:], NOW)] == ["mine (uid 0)"]


@given(st.permutations([(0, NOW), (ADA, NOW - 60), (MALLORY, NOW - 30)]))
def test_a_restart_gives_names_to_the_first_by_the_kernel(files):
    """After a restart, a shared name goes to root's run, or else to the oldest file's run."""
    starts = [start("mine", owner, made=made) for owner, made in files]
    register = StartRegister(Dead())
    named = register.take_up([each.file for each in starts], NOW)
    assert {each.file.owner: each.run for each in named}[0] == "mine"
    starts = [each for each in starts if each.file.owner]
    named = StartRegister(Dead()).take_up([each.file for each in starts], NOW)
    assert {each.file.owner: each.run for each in named} == {
        ADA: "mine",
        MALLORY: f"mine (uid {MALLORY})",
    }


def test_one_user_s_runs_take_no_places_of_another():
    """Many old runs of one user leave places for the runs of others and are counted as omitted."""
    starts = [*many(MALLORY, 100, made=0.0), start("a", ADA), start("b", BOB), start("c", 0)]
    shown, omitted = choose_shown(starts, NOW)
    names = [each.run for each in shown]
    assert len(names) == 16
    assert {"a", "b", "c"} <= set(names)
    assert {each.file.owner for each in omitted} == {MALLORY}
    assert len(omitted) == 103 - 16


def test_one_run_of_many_ranks_takes_no_places_of_another():
    """A run with 64 ranks of one user leaves places for the eight ranks of another user."""
    starts = [start("big", MALLORY, rank=rank, made=0.0) for rank in range(64)]
    starts += [start("mine", ADA, rank=rank) for rank in range(8)]
    shown, omitted = choose_shown(starts, NOW)
    assert sum(each.run == "mine" for each in shown) == 8
    assert [(each.run, each.identity.rank) for each in omitted] == [
        ("big", rank) for rank in range(56, 64)
    ]


def test_runs_of_many_ranks_keep_their_places_beside_many_runs():
    """Runs are chosen before ranks, so many runs of one user do not displace others' ranks."""
    starts = many(MALLORY, 100, made=0.0)
    starts += [
        start(f"{user}-{run}", user, rank=rank)
        for user in (0, ADA, BOB)
        for run in range(4)
        for rank in range(4)
    ]
    shown, _ = choose_shown(starts, NOW)
    assert Counter(each.file.owner for each in shown) == {0: 16, ADA: 16, BOB: 16, MALLORY: 4}


def test_many_users_leave_root_its_place():
    """A user who controls many user IDs, such as those of containers, comes after root."""
    starts = [start(f"{user}", user, made=0.0) for user in range(2000, 2100)]
    assert "root" in runs_of([*starts, start("root", 0)], NOW)


def test_many_directories_are_one_user_s():
    """A user with many containers has the turns of one user.

    The directories of root's containers take turns among root's runs.
    """
    starts = [start(f"m{device}", MALLORY, device=device, made=0.0) for device in range(2, 60)]
    starts += [start(f"r{number}", 0, device=1, made=0.0) for number in range(60)]
    starts += [start("container", 0, device=99)]
    shown = runs_of(starts, NOW)
    assert "container" in shown
    assert sum(name.startswith("m") for name in shown) == 8


def test_the_dead_give_way_to_the_living():
    """Ended runs are left out before living runs, regardless of their owners."""
    starts = [*many(0, 20, dead=True), *many(ADA, 10)]
    shown, omitted = choose_shown(starts, NOW)
    assert sum(each.ending is None for each in shown) == 10
    assert len(shown) == 16
    assert all(each.ending for each in omitted)


def test_one_that_has_just_ended_is_told_amid_many_living():
    """A run that was shown and has just ended keeps its place, even if many runs are alive."""
    starts = [*many(MALLORY, 100), start("mine", ADA, dead=True)]
    assert "mine" in runs_of(starts, NOW, {"mine"})
    assert "mine" not in runs_of(starts, NOW)


def test_of_one_user_the_first_made_are_shown():
    """The oldest runs by the kernel's creation time are shown, not by the time in their files."""
    starts = [start(f"{number:02}", ADA, made=NOW + number) for number in reversed(range(20))]
    assert runs_of(starts, NOW) == [f"{number:02}" for number in range(16)]


EVIL = st.builds(
    start,
    st.sampled_from(["mine", "1001-0", "mine (uid 0)", "a", "b", "c"]) | st.text(max_size=3),
    st.just(MALLORY),
    rank=st.integers(0, 100),
    made=st.floats(0.0, 2 * NOW),
    device=st.integers(1, 100),
    dead=st.booleans(),
)


@given(
    evil=st.lists(EVIL, max_size=200, unique_by=lambda each: each.key),
    others=st.fixed_dictionaries(
        {user: st.tuples(st.integers(0, 5), st.integers(1, 8)) for user in (0, ADA, BOB)}
    ),
    shown=st.sets(st.sampled_from(["mine", "a", "1001-0"])),
)
def test_whatever_one_user_does_each_other_keeps_a_share(evil, others, shown):
    """With four users, each user keeps a quarter of the places for runs and ranks if needed."""
    starts = [
        start(f"{user}-{number}", user, rank=rank)
        for user, (runs, ranks) in others.items()
        for number in range(runs)
        for rank in range(ranks)
    ]
    register = StartRegister(Dead())
    taken = register.take_up([each.file for each in (*evil, *starts)], NOW)
    latest = find_latest(taken)
    chosen, omitted = choose_shown(latest, NOW, shown)
    assert len(chosen) <= 64
    assert len({each.run for each in chosen}) <= 16
    assert {each.key for each in chosen}.isdisjoint(each.key for each in omitted)
    for user, (runs, ranks) in others.items():
        of_user = [each for each in chosen if each.file.owner == user]
        assert len({each.run for each in of_user}) >= min(runs, 4, 64 // 4 // ranks)
        assert len(of_user) >= min(min(runs, 4) * ranks, 16)
