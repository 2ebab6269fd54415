"""Pictures of recorded machines, and the history that an observer keeps."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleet.machines import build_machines
from tests.unit.verdicts import machines
from trainvitals.metrics.collector_metrics import Report
from trainvitals.sources.accelerators.reading import AcceleratorsReading, Owner, ProcessMemory
from trainvitals.sources.alerts import Alert
from trainvitals.sources.files import Roots, name_machine
from trainvitals.views.machine.document import read_document, write_document
from trainvitals.views.machine.observer import Observer
from trainvitals.views.machine.picture import TRACE_POINTS, Holder

NOON = 1_700_049_600.0
NAMES = ("vega", "atlas", "orion", "hera", "lyra")
NOWHERE = Roots(Path("/nonexistent/proc"), Path("/nonexistent/sys"), Path("/nonexistent"))


def _report(name, time, *, is_here):
    return Report(
        collector=name,
        success=is_here,
        answered=True,
        seconds=0.01,
        reason=None if is_here else "hangs",
        timeouts=0,
        omitted=0,
        last_success=time,
    )


def see(machine, time, without=()):
    """Return the snapshot of a recorded machine in which these collectors fail."""
    readings = {name: read(time) for name, read in machine.readers.items() if name not in without}
    reports = tuple(_report(name, time, is_here=name in readings) for name in machine.readers)
    return SimpleNamespace(readings=readings, reports=reports)


def watch(name, seconds=900, step=15):
    """Return an observer that saw a machine for this many seconds, and the machine."""
    machine = next(each for each in build_machines(NOON) if each.name == name)
    observer = Observer("1.2.3", roots=NOWHERE, name_host=lambda: name)
    for at in range(-seconds, 0, step):
        observer.note(see(machine, NOON + at), NOON + at)
    return observer, machine


@pytest.fixture(scope="module")
def pictures():
    """Return the picture of every recorded machine after a quarter of an hour."""
    drawn = {}
    for name in NAMES:
        observer, machine = watch(name)
        drawn[name] = observer.picture(see(machine, NOON), NOON)
    return drawn


def test_a_machine_without_anything(pictures):
    """A machine without accelerators and runs has only the host's values."""
    vega = pictures["vega"]
    assert (vega.hostname, vega.version) == ("vega", "1.2.3")
    assert vega.accelerators == vega.runs == ()
    assert vega.host.cpu_percent is not None
    assert vega.alerts is None


def test_a_hot_and_a_lost_gpu(pictures):
    """GPU 3 throttles and slows its rank down, and GPU 5 is lost and has no values."""
    atlas = pictures["atlas"]
    hot, lost = atlas.accelerators[3], atlas.accelerators[5]
    assert "hw_thermal" in hot.throttled
    assert hot.temperature_limit_celsius == 87
    assert (lost.state, lost.utilization_ratio, lost.utilization_trace) == ("lost", None, ())
    assert lost.xids == ((79, 1),)
    llama = next(run for run in atlas.runs if run.name == "llama-7b")
    assert (llama.state, llama.bound) == ("training", "throttled")
    assert [laggard.rank for laggard in llama.laggards] == ["3"]
    assert llama.laggards[0].phase == "forward"
    assert llama.devices == ("gpu0", "gpu1", "gpu2", "gpu3")


@pytest.mark.parametrize(("configured", "shown"), [(80.0, 80.0), (None, 87.0), (95.0, 87.0)])
def test_the_lower_limit_of_a_temperature_is_shown(configured, shown):
    """The lower of the device's and the configured temperature limit is shown."""
    device = machines.Device(celsius=60.0, headroom=27.0)
    machine = machines.Machine(devices=(device,), temperature_limit=configured)
    seen = SimpleNamespace(readings=machine.read(machines.NOW), reports=machine.report())
    observer = Observer("1.2.3", roots=NOWHERE, name_host=lambda: "ada")
    (drawn,) = observer.picture(seen, machines.NOW).accelerators
    assert drawn.temperature_limit_celsius == shown


def test_a_trace_of_a_machine_that_is_scraped_every_15_s_has_no_gaps(pictures):
    """The points of a trace between two scrapes are interpolated."""
    trace = pictures["atlas"].accelerators[0].utilization_trace
    assert len(trace) == TRACE_POINTS
    assert None not in trace[1:]


def test_a_run_that_stands_still(pictures):
    """A stalled run has the time since its last progress, but no bottleneck and no end time."""
    bert = next(run for run in pictures["orion"].runs if run.name == "bert-large")
    assert (bert.state, bert.tone, bert.bound, bert.eta_seconds) == ("stalled", "bad", None, None)
    assert bert.stalled_seconds > 60


def test_alerts_are_in_the_order_of_the_troubles():
    """Alerts are in the order of the troubles, and those of other machines are last."""
    observer, machine = watch("atlas", seconds=60)
    alerts = (
        Alert("GPUHighTemperature", "critical", "gpu0", "", is_elsewhere=True),
        Alert("AcceleratorTemperatureNearLimit", "warning", "gpu3", ""),
        Alert("HostClockSkew", "critical", "", ""),
        Alert("AcceleratorLost", "critical", "gpu5", ""),
    )
    picture = observer.picture(see(machine, NOON), NOON, alerts=alerts)
    assert picture.alerts == (alerts[3], alerts[2], alerts[1], alerts[0])


def test_containers_that_died_come_first(pictures):
    """Containers that died come first, the latest first, and the others are sorted by name."""
    names = [each.name for each in pictures["orion"].containers]
    died = [each for each in pictures["orion"].containers if each.last_death is not None][:2]
    assert names[:2] == [each.name for each in died]
    assert died[0].last_death.time >= died[1].last_death.time
    assert names[2:] == sorted(names[2:])


def test_a_run_that_waits_for_its_data(pictures):
    """A run that waits for data is `input-bound`, as on the dashboard and in the alert."""
    assert pictures["hera"].runs[0].bound == "input-bound"


def test_a_file_system_that_does_not_answer_comes_first(pictures):
    """A file system that does not answer is the first one and has no size."""
    first = pictures["lyra"].host.filesystems[0]
    assert (first.mountpoint, first.size_bytes) == ("/backup", None)
    assert first.trouble


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_survives_its_document(pictures, name):
    """A picture that is written and read again is equal, except for the digits of traces."""
    read = read_document(write_document(pictures[name]))
    assert read_document(write_document(read)) == read
    assert replace(read, accelerators=(), runs=(), host=None) == replace(
        pictures[name], accelerators=(), runs=(), host=None
    )


def test_rates_are_known_from_the_second_look_on():
    """Rates are known from the second reading on."""
    observer, machine = watch("orion", seconds=0)
    first = observer.picture(see(machine, NOON), NOON)
    second = observer.picture(see(machine, NOON + 5), NOON + 5)
    assert first.host.disk_read_bytes_per_second is None
    assert second.host.disk_read_bytes_per_second > 0


def test_a_collector_that_fails_is_told_and_leaves_a_gap():
    """A failed collector is reported, its devices are missing, and their traces have a gap."""
    observer, machine = watch("atlas", seconds=60)
    broken = observer.picture(see(machine, NOON, without=("accelerator",)), NOON)
    assert broken.accelerators == ()
    assert broken.runs != ()
    failed = [(each.name, each.reason) for each in broken.collectors if not each.success]
    assert failed == [("accelerator", "hangs")]
    back = observer.picture(see(machine, NOON + 10), NOON + 10)
    assert back.accelerators[0].utilization_trace[-2:-1] == (None,)


def test_a_scrape_of_some_collectors_leaves_the_past_of_the_others_alone():
    """A scrape of one collector leaves no gap in the traces of the others."""
    observer, machine = watch("atlas", seconds=60, step=10)
    part = see(machine, NOON)
    some = SimpleNamespace(
        readings={"cpu": part.readings["cpu"]},
        reports=tuple(each for each in part.reports if each.collector == "cpu"),
    )
    observer.note(some, NOON)
    drawn = observer.picture(see(machine, NOON + 10), NOON + 10)
    assert None not in drawn.accelerators[0].utilization_trace[-5:]


def test_what_vanishes_is_forgotten():
    """The history of devices that no longer exist is discarded."""
    observer, machine = watch("atlas", seconds=0)
    seen = see(machine, NOON)
    devices = seen.readings["accelerator"].devices
    for round_ in range(400):
        fresh = tuple(
            replace(each, identity=replace(each.identity, uuid=f"{round_}-{at}"))
            for at, each in enumerate(devices)
        )
        readings = {**seen.readings, "accelerator": AcceleratorsReading(fresh)}
        at = NOON + 60 * round_
        observer.note(SimpleNamespace(readings=readings, reports=seen.reports), at)
    past = observer._accelerators
    assert len(past._counters) <= len(devices)
    assert len(past._traces._rings) <= 16 * 4 * len(devices)


def test_who_holds_memory_is_named():
    """A process that holds device memory is shown with its name, user and job."""
    observer, machine = watch("lyra", seconds=0)
    observer = Observer("1", name_host=lambda: "lyra")
    seen = see(machine, NOON)
    reading = seen.readings["accelerator"]
    owner = Owner("python", "ada", slurm_job="77")
    held = replace(reading.devices[0], processes=(ProcessMemory(42, None, 0.5, owner),))
    readings = {**seen.readings, "accelerator": replace(reading, devices=(held,))}
    drawn = observer.picture(SimpleNamespace(readings=readings, reports=seen.reports), NOON)
    (holder,) = drawn.accelerators[0].holders
    assert holder == Holder(42, None, "python", "ada", utilization_ratio=0.5, slurm_job="77")


@pytest.mark.skipif(sys.platform != "linux", reason="a container's root is a Linux matter")
def test_a_machine_in_a_container_has_its_host_s_name(tmp_path):
    """In a container the name is that of the mounted /etc/hostname, or else the system's."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hostname").write_text("node-7\n", encoding="utf-8")
    assert name_machine(Roots(rootfs=tmp_path)) == "node-7"
    assert name_machine() == os.uname().nodename
