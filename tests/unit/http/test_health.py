"""Tests for the status and the checks of `/health` and `/ready`."""

from dataclasses import replace

import pytest

from tests.unit.sources.runs.rows import write_record
from tests.unit.verdicts.ranks import dead, living, observed
from trainvitals.http import health
from trainvitals.http.health import judge_readiness
from trainvitals.metrics.collector_metrics import Report
from trainvitals.metrics.runner import Snapshot
from trainvitals.runfile import Phase
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    AcceleratorsReading,
    Identity,
)
from trainvitals.sources.host.filesystem import Filesystem, FilesystemReading, Space
from trainvitals.sources.host.memory import MemoryReading
from trainvitals.sources.host.pressure import PressureReading, Stall
from trainvitals.sources.runs.reading import RunsReading
from trainvitals.verdicts.machine import Alerts
from trainvitals.views.machine.observer import Observer

MIB = 1 << 20
NOON = 1_700_049_600.0


def judge_health(found, expected, *, now=NOON):
    """Return the health of a first snapshot with the default thresholds."""
    judged = Observer("1.2.3", name_host=lambda: "ada").judge(found, now, Alerts(()))
    return health.judge_health(found, expected, judged, now=now)


def report(collector, reason=None, *, success=None, answered=True):
    """Return the report of a collector, a success unless a reason is given."""
    success = reason is None if success is None else success
    return Report(collector, success, answered, 0.001, reason, 0, 0, None)


def devices(*states):
    """Return a reading with one accelerator for each "KIND STATE"."""
    found = []
    for index, words in enumerate(states):
        kind, state = words.split()
        identity = Identity(kind, index, f"uuid-{index}", "model", "bus", "driver")
        found.append(AcceleratorReading(identity, state, None, None))
    return AcceleratorsReading(devices=tuple(found), expected=(), complaint=None)


def memory(available, total=1000):
    """Return a reading of a memory with sizes in MiB."""
    rest = (0,) * 7
    return MemoryReading(total * MIB, available * MIB, *rest, None, None, None)


def disk(available, size=1000, mountpoint="/"):
    """Return a reading of two file systems: one at the mount point, and a full one at /boot."""
    found = []
    for where, size_bytes, avail_bytes in (("/boot", 100, 0), (mountpoint, size, available)):
        space = Space(size_bytes * MIB, avail_bytes * MIB, None, None, readonly=False)
        found.append(Filesystem(where, "/dev/sda1", "ext4", space, responding=True, trouble=None))
    return FilesystemReading(tuple(found), 0)


def snapshot(reports=(), **readings):
    """Return a snapshot with these reports and readings."""
    return Snapshot((), readings, tuple(reports))


def test_a_whole_machine_is_healthy():
    """A machine without problems is healthy, and its document has all documented checks."""
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
            "troubles": [],
            "unknowns": [],
        },
    }


def test_a_machine_without_accelerators_is_healthy():
    """A machine without accelerators is healthy if none is expected."""
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
    """Fewer responding accelerators than expected make the machine unhealthy and not ready."""
    found = snapshot([report("accelerator")], accelerator=devices(*states))
    health, readiness = judge_health(found, expected), judge_readiness(found, expected)
    assert health.document["checks"]["problems"] == problems
    is_well = not any(state.endswith(("lost", "hung", "no_driver")) for state in states)
    status = "unhealthy" if problems else "healthy" if is_well else "degraded"
    assert health.document["status"] == status
    assert health.good == readiness.good == (not problems)
    assert readiness.document["ready"] is (not problems)
    assert readiness.document["checks"]["accelerators"] is (not problems)


def test_expected_accelerators_are_missing_while_nothing_was_read():
    """If no accelerator could be read, the expected accelerators are reported as missing."""
    verdict = judge_health(snapshot([report("accelerator", "it hangs")]), {"gpu": 8})
    assert not verdict.good
    assert verdict.document["checks"]["problems"] == ["0 of 8 expected gpus answer"]


@pytest.mark.parametrize(("available", "status"), [(101, "healthy"), (99, "degraded")])
def test_memory_that_is_nearly_full_degrades(available, status):
    """A memory use above the alert's threshold of 90% makes the status degraded."""
    verdict = judge_health(snapshot([report("memory")], memory=memory(available)), {})
    assert verdict.good
    assert verdict.document["status"] == status
    names = [each["alert"] for each in verdict.document["checks"]["troubles"]]
    assert names == ([] if status == "healthy" else ["HostHighMemoryUsage"])


def test_a_machine_on_which_everything_waits_for_memory_is_unhealthy():
    """A machine whose tasks wait for memory 20% of the time is unhealthy."""
    observer = Observer("1.2.3", name_host=lambda: "ada")
    for seconds in (0, 300):
        stall = Stall("memory", 0.2 * seconds, 0.2 * seconds)
        found = snapshot([report("pressure")], pressure=PressureReading((stall,)))
        judged = observer.judge(found, NOON + seconds, Alerts())
    verdict = health.judge_health(found, {}, judged, now=NOON + 300)
    assert not verdict.good
    assert verdict.document["checks"]["problems"] == [
        "host is stalled for lack of memory: all tasks waited for memory in 20% of the last 2 minutes"
    ]


@pytest.mark.parametrize(
    ("available", "status"), [(20_000, "healthy"), (9_000, "degraded"), (190, "unhealthy")]
)
def test_a_root_file_system_that_is_full_is_unhealthy(available, status):
    """Little space on `/` makes the status degraded, and less than 200 MB makes it unhealthy."""
    verdict = judge_health(
        snapshot([report("filesystem")], filesystem=disk(available, 100_000)), {}
    )
    assert verdict.document["status"] == status
    assert verdict.good is (status != "unhealthy")
    full = disk(available, 100_000, mountpoint="/data")
    elsewhere = judge_health(snapshot(filesystem=full), {})
    assert elsewhere.good
    assert elsewhere.document["checks"]["disk_space"] is None


def test_a_failed_collector_degrades_without_failing():
    """A failed collector makes the status degraded and is named with its reason."""
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
    """The machine is not ready until every collector has answered, with success or failure."""
    waiting = snapshot([report("cpu"), report("disk", "it hangs", answered=False)])
    assert not judge_readiness(waiting, {}).good
    assert judge_readiness(waiting, {}).document == {
        "ready": False,
        "checks": {
            "collectors": False,
            "accelerators": True,
            "model_loaded": None,
            "data_available": None,
            "hpu_initialized": None,
        },
    }
    assert judge_health(waiting, {}).good


@pytest.mark.parametrize(
    ("states", "expected", "initialized"),
    [
        (["gpu ok"], {}, None),
        (["hpu ok"], {}, True),
        (["hpu lost", "hpu ok"], {"hpu": 2}, True),
        (["hpu lost"], {}, False),
        ([], {"hpu": 8}, False),
    ],
)
def test_readiness_tells_of_gaudi_cards(states, expected, initialized):
    """`hpu_initialized` is true if a Gaudi card responds, and null if none is expected or found."""
    found = snapshot([report("accelerator")], accelerator=devices(*states))
    checks = judge_readiness(found, expected).document["checks"]
    assert checks["hpu_initialized"] is initialized


@pytest.mark.parametrize(
    ("ranks", "model", "data"),
    [
        ([], None, None),
        ([dead("finished")], None, None),
        ([observed(write_record())], None, None),
        ([living(phase=Phase.INIT)], False, False),
        ([living(phase=Phase.COMPILE)], True, False),
        ([living(phase=Phase.DATA_WAIT)], True, False),
        ([living(phase=Phase.FORWARD)], True, True),
        ([living(phase=Phase.DATA_WAIT, steps=7)], True, True),
        ([living(phase=Phase.VALIDATION, steps=7), living(1, Phase.INIT)], False, False),
        ([dead("signal"), living(1, Phase.OPTIMIZER)], True, True),
    ],
)
def test_readiness_tells_how_far_runs_have_started(ranks, model, data):
    """`model_loaded` and `data_available` follow the phases of running processes."""
    verdict = judge_readiness(snapshot(training=RunsReading(ranks=tuple(ranks))), {})
    assert verdict.good
    assert verdict.document["checks"]["model_loaded"] is model
    assert verdict.document["checks"]["data_available"] is data


def test_memory_that_the_kernel_does_not_report_is_unknown():
    """If the kernel does not report MemAvailable, the memory usage is null and no problem."""
    unknown = replace(memory(250), available_bytes=None)
    verdict = judge_health(snapshot([report("memory")], memory=unknown), {})
    assert verdict.document["status"] == "healthy"
    assert verdict.document["checks"]["memory_usage"] is None
