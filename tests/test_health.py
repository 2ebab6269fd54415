"""The verdicts of /health and /ready."""

import pytest

from trainvitals.health import judge_health, judge_readiness
from trainvitals.reports import Report
from trainvitals.scrape import Snapshot
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
)
from trainvitals.sources.filesystem import Filesystem, FilesystemReading, Space
from trainvitals.sources.memory import MemoryReading

MIB = 1 << 20


def report(collector, reason=None, *, success=None, answered=True):
    """Give a report that is a success unless there is a reason."""
    success = reason is None if success is None else success
    return Report(collector, success, answered, 0.001, reason, 0, 0, 0, None)


def devices(*states):
    """Give accelerators, one for each "KIND STATE"."""
    found = []
    for index, words in enumerate(states):
        kind, state = words.split()
        identity = Identity(kind, index, f"uuid-{index}", "model", "bus", "driver")
        found.append(AcceleratorReading(identity, state, None, None))
    return AcceleratorsReading(devices=tuple(found), expected=(), complaint=None)


def memory(available, total=1000):
    """Give a memory of so many MiB."""
    rest = (0,) * 7
    return MemoryReading(total * MIB, available * MIB, *rest, None, None, None)


def disk(available, size=1000, mountpoint="/"):
    """Give file systems: one at the mount point, and one that is full elsewhere."""
    found = []
    for where, size_bytes, avail_bytes in (("/boot", 100, 0), (mountpoint, size, available)):
        space = Space(size_bytes, avail_bytes, None, None, readonly=False)
        found.append(Filesystem(where, "/dev/sda1", "ext4", space, responding=True, trouble=None))
    return FilesystemReading(tuple(found), 0)


def snapshot(reports=(), **readings):
    """Give what one scrape found."""
    return Snapshot((), readings, tuple(reports))


def test_a_whole_machine_is_healthy():
    """All checks are there, under the names that were promised."""
    verdict = judge_health(
        snapshot(
            [report("accelerator"), report("memory"), report("filesystem")],
            accelerator=devices("gpu ok", "gpu ok", "hpu ok"),
            memory=memory(250),
            filesystem=disk(400),
        ),
        {"gpu": 2},
        now=1_700_000_000.0,
    )
    assert verdict.good
    assert verdict.document == {
        "status": "healthy",
        "timestamp": "2023-11-14T22:13:20Z",
        "checks": {
            "hpu_available": True,
            "hpu_count": 1,
            "gpu_available": True,
            "gpu_count": 2,
            "memory_usage": 75.0,
            "disk_space": 60.0,
            "problems": [],
            "collectors": {"accelerator": "ok", "memory": "ok", "filesystem": "ok"},
        },
    }


def test_a_machine_without_accelerators_is_healthy():
    """Nothing was expected, so nothing is missing."""
    verdict = judge_health(snapshot([report("accelerator")], accelerator=devices()), {})
    assert verdict.good
    assert verdict.document["status"] == "healthy"
    checks = verdict.document["checks"]
    assert (checks["hpu_available"], checks["hpu_count"]) == (False, 0)
    assert (checks["memory_usage"], checks["disk_space"]) == (None, None)


@pytest.mark.parametrize(
    ("states", "expected", "problems"),
    [
        (("gpu ok",), {"gpu": 2}, ["1 of 2 expected gpus answer"]),
        (("gpu ok", "gpu lost"), {"gpu": 2}, ["1 of 2 expected gpus answer"]),
        (("gpu ok", "gpu hung", "gpu ok"), {"gpu": 2}, []),
        (("gpu ok",), {"hpu": 8}, ["0 of 8 expected hpus answer"]),
        (
            ("gpu no_driver",),
            {"gpu": 1, "hpu": 1},
            ["0 of 1 expected gpus answer", "0 of 1 expected hpus answer"],
        ),
        ((), {"gpu": 0}, []),
    ],
)
def test_expected_accelerators_that_do_not_answer_are_unhealthy(states, expected, problems):
    """A device counts when it answers, and fewer than expected are a problem for both verdicts."""
    found = snapshot([report("accelerator")], accelerator=devices(*states))
    health, readiness = judge_health(found, expected), judge_readiness(found, expected)
    assert health.document["checks"]["problems"] == problems
    assert health.document["status"] == ("unhealthy" if problems else "healthy")
    assert health.good == readiness.good == (not problems)
    assert readiness.document["ready"] is (not problems)
    assert readiness.document["checks"]["accelerators"] is (not problems)


def test_expected_accelerators_are_missing_while_nothing_was_read():
    """A collector that brought nothing shows no device."""
    verdict = judge_health(snapshot([report("accelerator", "it hangs")]), {"gpu": 8})
    assert not verdict.good
    assert verdict.document["checks"]["problems"] == ["0 of 8 expected gpus answer"]


@pytest.mark.parametrize(
    ("available", "good", "usage"), [(21, True, 97.9), (20, False, 98.0), (0, False, 100.0)]
)
def test_memory_that_runs_out_is_unhealthy(available, good, usage):
    """98 percent in use is the limit."""
    verdict = judge_health(snapshot([report("memory")], memory=memory(available)), {})
    assert verdict.good is good
    assert verdict.document["checks"]["memory_usage"] == usage
    assert verdict.document["checks"]["problems"] == (
        [] if good else [f"memory is {usage} % in use"]
    )


@pytest.mark.parametrize(
    ("available", "good", "usage"), [(11, True, 98.9), (10, False, 99.0), (0, False, 100.0)]
)
def test_a_root_file_system_that_is_full_is_unhealthy(available, good, usage):
    """99 percent in use is the limit, and other file systems do not count."""
    verdict = judge_health(snapshot([report("filesystem")], filesystem=disk(available)), {})
    assert verdict.good is good
    assert verdict.document["checks"]["disk_space"] == usage
    elsewhere = judge_health(snapshot(filesystem=disk(available, mountpoint="/data")), {})
    assert elsewhere.good
    assert elsewhere.document["checks"]["disk_space"] is None


def test_a_failed_collector_degrades_without_failing():
    """The status says so and names the reason, and the status code stays 200."""
    found = snapshot([report("cpu"), report("disk", "cannot read /proc/diskstats")])
    verdict = judge_health(found, {})
    assert verdict.good
    assert verdict.document["status"] == "degraded"
    assert verdict.document["checks"]["collectors"] == {
        "cpu": "ok",
        "disk": "cannot read /proc/diskstats",
    }
    assert judge_readiness(found, {}).good


def test_a_machine_is_ready_when_every_collector_has_answered():
    """One that hangs since the start has not, and one that failed has."""
    waiting = snapshot([report("cpu"), report("disk", "it hangs", answered=False)])
    assert not judge_readiness(waiting, {}).good
    assert judge_readiness(waiting, {}).document == {
        "ready": False,
        "checks": {"collectors": False, "accelerators": True},
    }
    assert judge_health(waiting, {}).good
