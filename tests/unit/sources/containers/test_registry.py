"""Tests for the registry of containers and of the counts that it keeps."""

from __future__ import annotations

from trainvitals.sources.containers.container_state import (
    ContainerState,
    choose_shown,
    name_health,
    name_status,
)
from trainvitals.sources.containers.reading import Death, Usage
from trainvitals.sources.containers.registry import ContainerRegistry

A, B = "a1" * 32, "b2" * 32


def test_one_made_anew_under_a_name_goes_on_with_its_counts():
    """A new container with the name of a removed container continues its counts."""
    registry = ContainerRegistry(clock=lambda: 5.0)
    known = registry.take_up("train", A)
    known.deaths["segfault"] += 1
    known.status = "running"
    registry.remove(known)
    assert (known.removed, known.status) == (5.0, "exited")
    assert registry.take_up("train", B) is known
    assert (known.id, known.removed, known.status, dict(known.deaths)) == (
        B,
        None,
        None,
        {"segfault": 1},
    )
    assert (registry.find(A), registry.find(B)) == (None, known)


def test_one_without_a_name_is_called_by_its_id():
    """A container without a name is called by the first twelve characters of its ID."""
    assert ContainerRegistry().take_up("", A).name == "a1a1a1a1a1a1"


def test_the_name_of_one_that_is_there_is_not_taken():
    """Renaming to an existing container's name, the same name or an empty name has no effect."""
    registry = ContainerRegistry()
    one, other = registry.take_up("one", A), registry.take_up("other", B)
    registry.rename(other, "one")
    registry.rename(one, "one")
    registry.rename(one, "")
    assert registry.containers == {"one": one, "other": other}


def test_the_name_of_one_that_is_gone_is_taken_with_its_counts():
    """A container that is renamed to a removed container's name takes over its counts."""
    registry = ContainerRegistry()
    old, new = registry.take_up("train", A), registry.take_up("a1_train", B)
    old.deaths["segfault"], new.deaths["segfault"] = 2, 1
    old.restarts = 3
    old.count_oom_kills("event", 4)
    old.last_death = Death(9.0, 139, "segfault", "SIGSEGV", "high", "It crashed.")
    registry.remove(old)
    registry.rename(new, "train")
    assert registry.containers == {"train": new}
    assert registry.find(A) is None
    assert (new.deaths["segfault"], new.restarts, new.oom_kills["event"]) == (3, 3, 4)
    assert new.last_death == old.last_death
    assert old.newest is new


def test_those_that_are_gone_long_enough_are_forgotten():
    """A container is dropped ten minutes after its removal, or earlier to make room."""
    now = 0.0
    registry = ContainerRegistry(clock=lambda: now)
    for number in range(1024):
        now = float(number)
        registry.take_up(f"job-{number}", f"{number:064x}")
    registry.remove(registry.containers["job-1000"])
    registry.take_up("one-more", A)
    assert len(registry.containers) == 1024
    assert "job-1000" not in registry.containers
    assert registry.find(f"{1000:064x}") is None
    registry.remove(registry.containers["job-7"])
    now = 1023.0 + 599.9
    registry.tidy()
    assert "job-7" in registry.containers
    now = 1023.0 + 600.0
    registry.tidy()
    assert "job-7" not in registry.containers
    assert len(registry.list_present()) == 1023


def test_kills_are_counted_by_the_rise_of_the_group():
    """Kills are counted by increases of the group's counter, and a new group counts from 0."""
    known = ContainerState("train", A)
    for number in (1, 1, 3):
        known.take_usage(Usage(1.0, 2, oom_kills=number), None)
    known.take_usage(Usage(1.0, 2, oom_kills=None), None)
    known.take_usage(Usage(1.0, 2, oom_kills=0), None)
    known.take_usage(Usage(1.0, 2, oom_kills=1), None)
    assert known.oom_kills["cgroup"] == 4


def test_what_runs_is_told_first_then_what_changed_last():
    """Running containers are chosen first, then those that changed last, up to the limit."""
    one, two, three = ContainerState("c", A), ContainerState("b", B), ContainerState("a", "c3" * 32)
    one.status, one.changed = "running", 1.0
    two.status, two.changed = "exited", 3.0
    three.status, three.changed = "exited", 2.0
    assert choose_shown([three, two, one], 2) == ([two, one], 1)
    assert choose_shown([], 2) == ([], 0)


def test_words_of_engines_become_those_of_the_metrics():
    """Podman's statuses are mapped to Docker's, and an unknown status becomes None."""
    words = ("running", "configured", "initialized", "removing", "dead", "stopped", "new")
    assert [name_status(word) for word in words] == [
        "running",
        "created",
        "created",
        "exited",
        "exited",
        "exited",
        None,
    ]
    assert [name_health(word) for word in ("unhealthy", "", None)] == ["unhealthy", None, None]
