"""All views report the same troubles of a machine.

Machines are drawn by Hypothesis, and the page, the terminal, `/api/v1/overview`, `/health`,
`doctor` and the alerts must name the same troubles with the same severity, and the same unknown
values.
"""

from __future__ import annotations

import dataclasses
import html
import io
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.rulebook import RULES
from tests.unit.verdicts.alerts import JUDGED, REPORTED, evaluate, inhibit
from tests.unit.verdicts.machines import (
    LOST_RUN,
    NOW,
    Container,
    Device,
    Disk,
    Machine,
    Rank,
    draw_batch,
)
from trainvitals.doctor import CHECKS
from trainvitals.doctor.facts import Facts, judge_devices
from trainvitals.doctor.finding import STATUSES
from trainvitals.http.health import judge_health
from trainvitals.metrics.runner import Snapshot
from trainvitals.runfile import Phase as RunPhase
from trainvitals.sources.alerts import Alert, select_alerts
from trainvitals.sources.files import Roots
from trainvitals.verdicts.machine import Alerts
from trainvitals.verdicts.run_states import NUMBERS
from trainvitals.verdicts.thresholds import ThresholdsFile
from trainvitals.views.machine.document import read_document, write_document
from trainvitals.views.machine.observer import Observer
from trainvitals.views.page.page import PageWriter
from trainvitals.views.terminal.frame import Source, write_all
from trainvitals.views.terminal.headline import draw_headline
from trainvitals.views.terminal.terminal import make_console
from trainvitals.views.terminal.view import View

BATCH = 80  # Hypothesis draws up to 8 KiB
# A short test always draws the same machines, a long one draws different ones each time.
IS_LONG = bool(os.environ.get("TRAINVITALS_TEST_LONG"))
PARTS, BATCHES_EACH = (20, 32) if IS_LONG else (9, 3)
_SETTINGS = settings(
    # The first batch is empty.
    max_examples=BATCHES_EACH + 1,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)
TONES = {"critical": "bad", "warning": "warning", "info": "busy"}
# The numbers are those of grafana/build/run_verdict.py.
BOUNDS = {
    21: "compute-bound",
    22: "underused",
    23: "not in steps",
    24: "slow rank",
    25: "throttled",
    26: "input-bound",
    27: "loss is NaN",
}
STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}
_MATTER = re.compile(r'<li class="(\w+)"><a href="#[\w-]+">(.*?)</a></li>')
_WRITER, _THRESHOLDS = PageWriter(), ThresholdsFile(RULES / "thresholds.yml")


class Looked:
    """A machine as an exporter sees it after ten minutes of readings."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.observer = Observer("1.2.3", name_host=lambda: name, thresholds=_THRESHOLDS)
        for ago in (600, 560, 300, 60, 0):
            readings = machine.read(NOW - ago, is_early=ago > 300)
            self.seen = Snapshot((), readings, machine.report())
            self.observer.note(self.seen, NOW - ago)

    def look(self, fired) -> None:
        """Compute the picture, with the alerts of Prometheus if the machine knows them."""
        reason = self.machine.alerts
        known = Alerts(fired) if reason is None else Alerts(None, reason)
        self.picture = self.observer.picture(
            self.seen, NOW, alerts=known.firing, alerts_trouble=known.reason
        )
        self.page = _WRITER.write_fragment(self.picture).decode()
        self.document = read_document(write_document(self.picture))
        self.judged = self.observer.judge(self.seen, NOW, known)

    def name_troubles(self, fired=None):
        """Return the troubles that have an alert, by alert, subject and severity."""
        judged = self.observer.judge(self.seen, NOW, Alerts(fired))
        return {(each.alert, each.subject, each.severity) for each in judged.troubles if each.alert}


# Hypothesis shrinks a failing batch for up to five minutes.
@pytest.mark.untraced
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_views_and_the_rules_say_the_same(part, promtool, tmp_path):
    """The rules and all views report the same troubles for each machine of a batch."""

    @settings(_SETTINGS, derandomize=not IS_LONG)
    @given(draw_batch(BATCH))
    def check(machines):
        check_machines(machines, promtool, tmp_path)

    (check if IS_LONG else seed(part)(check))()


def check_machines(machines, promtool, directory):
    """Assert that the rules and every view report the same troubles of each machine."""
    looked = [Looked(machine, str(at)) for at, machine in enumerate(machines)]
    ruled = evaluate(machines, promtool, directory) if machines else ()
    for each, said in zip(looked, ruled, strict=True):
        fired = select_alerts(said.alerts, each.name)
        sent = select_alerts(inhibit(said.alerts), each.name)
        expected = {(alert.name, alert.subject, alert.severity) for alert in sent}
        # Prometheus adds only alerts that the machine cannot assess itself.
        assert each.name_troubles(fired) == expected
        assert each.name_troubles() == {one for one in expected if one[0] not in REPORTED}
        each.look(fired)
        check_views(each)
        check_runs(each, said.numbers)


def check_views(looked: Looked) -> None:
    """Assert that every view names exactly the troubles and the unknown values."""
    picture = looked.picture
    troubles = [(each.subject, each.name, each.severity, each.summary) for each in picture.troubles]
    assert looked.document.troubles == picture.troubles
    assert looked.document.unknowns == picture.unknowns
    check_idleness(looked)
    check_page(looked, troubles)
    check_terminal(looked, troubles)
    check_health(looked, troubles)
    check_doctor(looked)
    is_blind = looked.machine.alerts is not None
    assert any(each.subject_kind == "alert" for each in picture.unknowns) is is_blind
    for name in looked.machine.failing:
        assert any(f"collector {name}" in each.why for each in picture.unknowns)


def check_idleness(looked: Looked) -> None:
    """Assert that all views show the reason of each idle device in the metrics."""
    picture = looked.picture
    reading = looked.seen.readings.get("accelerator")
    idle = {each.identity.uuid: each.idle for each in reading.devices} if reading else {}
    assert {each.uuid: each.idle for each in looked.document.accelerators} == idle
    if reasons := [each for each in idle.values() if each is not None]:
        page = html.unescape(looked.page)
        screen = io.StringIO()
        console = make_console(screen, None, width=4096)
        write_all(console, picture, View(), Source("here"), width=None)
        for each in reasons:
            assert f"idle: <bdi>{each.summary}</bdi>" in page
            assert each.summary in screen.getvalue()
    for trouble in picture.troubles:
        if trouble.alert in ("AcceleratorHeldIdle", "GPULowUtilization", "HPULowUtilization"):
            (device,) = (one for one in picture.accelerators if one.name == trouble.subject)
            assert (device.idle is not None) == ("is stopped" in trouble.summary)


def check_page(looked: Looked, troubles) -> None:
    """Assert that the page's headline has a line for each trouble and each unknown value."""
    head = looked.page[: looked.page.index("</header>")]
    lines = [(tone, html.unescape(words)) for tone, words in _MATTER.findall(head)]
    said = [
        (TONES[each.severity], f"{_name_subject(each)} {each.name}: {each.summary}".strip())
        for each in looked.picture.troubles
    ]
    unknown = [f" not known: {each.why}" for each in looked.picture.unknowns]
    assert lines[: len(said)] == said[:16]
    rest = lines[len(said) :]
    assert [words.endswith(why) for (_, words), why in zip(rest, unknown, strict=False)] == [
        True
    ] * len(rest)
    assert len(lines) == min(16, len(said) + len(unknown))
    is_well = not any(severity != "info" for _, _, severity, _ in troubles)
    assert ("nothing needs attention" in head) is (is_well and not unknown)


def _name_subject(trouble) -> str:
    return "host" if trouble.subject_kind == "host" else trouble.subject


def check_terminal(looked: Looked, troubles) -> None:
    """Assert that `top --once` names each trouble, and `top` the first ones."""
    lines = draw_headline(looked.picture, 100)
    spans = [
        (line.plain[span.start : span.end], str(span.style))
        for line in lines
        for span in line.spans
    ]
    spans += [(line.plain, str(line.style)) for line in lines if line.style]
    for _, name, severity, _ in troubles:
        assert any(words.endswith(name) and style == STYLES[severity] for words, style in spans)
    words = ", ".join(line.plain for line in lines)
    for kind, noun in (("alert", "alerts"), ("run", "runs"), ("container", "containers")):
        is_unknown = any(each.subject_kind == kind for each in looked.picture.unknowns)
        assert (f"{noun} not known" in words) is is_unknown
    is_well = not any(severity != "info" for _, _, severity, _ in troubles)
    is_blind = bool(looked.picture.unknowns)
    assert ("nothing needs attention" in words) is (is_well and not is_blind)
    assert ("nothing found that needs attention" in words) is (is_well and is_blind)
    first = draw_headline(looked.picture, 100, most_lines=1)[0].plain
    if troubles and troubles[0][2] != "info":
        assert first.split(",")[0].endswith(troubles[0][1]) or len(first) == 100


def check_health(looked: Looked, troubles) -> None:
    """Assert that `/health` lists the same troubles, and is healthy only without any."""
    expected = dict(_read_expected(looked))
    verdict = judge_health(looked.seen, expected, looked.judged, now=NOW)
    document = json.loads(json.dumps(verdict.document))
    checks = document["checks"]
    found = [
        (each["subject"], each["name"], each["severity"], each["summary"])
        for each in checks["troubles"]
    ]
    assert found == troubles
    unknown = [each.why for each in looked.picture.unknowns]
    assert [each["why"] for each in checks["unknowns"]] == unknown
    is_well = not any(severity != "info" for _, _, severity, _ in troubles)
    is_whole = all(report.success for report in looked.seen.reports)
    assert (document["status"] == "healthy") is (is_well and is_whole)
    if any(each.alert == "AcceleratorMissing" for each in looked.judged.troubles):
        assert document["status"] == "unhealthy"


def check_doctor(looked: Looked) -> None:
    """Assert that each check has the status of the worst trouble of its alerts."""
    if looked.machine.failing:
        return
    facts = make_facts(looked)
    for check in (check for check in CHECKS if check.alerts):
        finding = check.run(facts)
        reported = {
            STATUSES[each.severity]
            for each in looked.picture.troubles
            if each.alert in check.alerts and _is_of(each.subject, check.name)
        }
        worst = next((status for status in STATUSES.values() if status in reported), "ok")
        if not EXCUSES.get(check.name, lambda _: False)(looked.machine):
            expected = (worst, "not applicable") if worst == "ok" else (worst,)
            assert finding.status in expected, (check.name, finding)


def _is_of(subject: str, check: str) -> bool:
    """Return whether a trouble is about the place on a disk that a check examines."""
    places = {"checkpoint-space": "/", "checkpoint-inodes": "/", "shared-memory": "/dev/shm"}
    return check not in places or subject == places[check]


# Conditions under which a check may report a problem without an alert of its own.
EXCUSES = {
    # The check also counts PCIe lanes of idle cards.
    "pcie-width": lambda machine: any(each.lanes[0] != each.lanes[1] for each in machine.devices),
    # The check reports an idle card at 60 °C or more.
    "idle-temperature": lambda machine: any((each.celsius or 0) >= 60 for each in machine.devices),
    # A run cannot use a device that the driver does not support.
    "accelerator-states": lambda machine: any(
        each.state == "unsupported" for each in machine.devices
    ),
    # The check uses the kernel's estimate and needs no Prometheus.
    "clock": lambda machine: machine.alerts is not None,
    # The check requires 4 GiB of shared memory.
    "shared-memory": lambda machine: any(
        each.size < 4 << 30 or not each.answers for each in machine.disks
    ),
    # OOM kills explain the trouble.
    "memory": lambda machine: machine.kills or machine.stalled[0] > 0.1,
}


def make_facts(looked: Looked) -> SimpleNamespace:
    """Return the facts of `doctor` about a machine, with a run in its root file system."""
    machine = looked.machine
    every = dataclasses.replace(machine, failing=frozenset()).read(NOW)
    disks = {disk.mountpoint: disk for disk in (Disk("/dev/shm"), *machine.disks)}
    facts = SimpleNamespace(
        accelerators=lambda: every["accelerator"],
        pci=lambda: (),
        is_in_container=False,
        options=SimpleNamespace(checkpoints=Path("/"), checkpoint_bytes=None),
        machine=SimpleNamespace(
            roots=Roots(*map(Path, ("/none/proc", "/none/sys", "/"))),
            statvfs=lambda path: disks[str(path)].answer(),
        ),
        filesystems=lambda: every["filesystem"],
        memory=lambda: every["memory"],
        kernel=lambda: dataclasses.replace(every["kernel"], time_seconds=2e9),
        thresholds=lambda: _THRESHOLDS.latest()[0],
    )
    facts.device_troubles = lambda: judge_devices(every["accelerator"], facts.thresholds(), now=NOW)
    facts.find_troubles = lambda alerts: Facts.find_troubles(facts, alerts)
    facts.list_accelerators = lambda kind: Facts.list_accelerators(facts, kind)
    return facts


def check_runs(looked: Looked, numbers) -> None:
    """Assert that the recording rules have the same state and verdict for each run."""
    for run in looked.picture.runs:
        state = numbers["run:training_state:number", run.name]
        assert run.state in NUMBERS[state], run
        verdict = numbers["run:training_verdict:number", run.name]
        assert run.bound == BOUNDS.get(verdict), (run, verdict)
    is_gone = looked.machine.has_lost_run and "training" not in looked.machine.failing
    gone = numbers.get(("run:training_state:number", LOST_RUN))
    assert (NUMBERS[gone] if gone else None) == (("gone",) if is_gone else None)


def _read_expected(looked: Looked):
    reading = looked.seen.readings.get("accelerator")
    return () if reading is None else reading.expected


def test_every_judged_alert_is_met():
    """The drawn machines include at least one for each judged alert."""
    found = set()

    @seed(0)
    @settings(_SETTINGS, max_examples=11)
    @given(draw_batch(BATCH))
    def collect(machines):
        for machine in machines:
            found.update(alert for alert, _, _ in Looked(machine, "0").name_troubles())

    collect()
    assert found == JUDGED


def test_a_card_close_to_its_limit_is_the_same_on_the_page_and_in_top():
    """A GPU close to its thermal limit is reported on the page and in `top`."""
    looked = Looked(Machine(devices=(Device(celsius=84.0, headroom=5.0),)), "0")
    looked.look(())
    assert draw_headline(looked.picture, 100)[0].plain == "gpu0 close to its thermal limit"
    assert "1 thing needs attention" in looked.page
    assert "gpu0 close to its thermal limit: 84 °C, 5 °C below" in looked.page


def test_a_missing_card_explains_the_stalls_that_it_may_have_caused(promtool, tmp_path):
    """A stalled run is reported only if all its GPUs work, as a missing GPU explains the rest."""
    held = {"run0": (0,), "run1": (0, 1), "run2": (1, 7), "run3": (2,), "run4": (), "run5": (8,)}
    machine = Machine(
        devices=(Device(), Device(), Device(state="lost")),
        missing=1,
        runs=tuple((Rank(devices=each, cause="no_progress"),) for each in held.values()),
    )
    (said,) = evaluate([machine], promtool, tmp_path)
    expected = {"run0", "run1"}
    sent = select_alerts(inhibit(said.alerts), "0")
    assert {each.subject for each in sent if each.name == "TrainingStalled"} == expected
    looked = Looked(machine, "0")
    looked.look(select_alerts(said.alerts, "0"))
    assert {
        each.subject for each in looked.picture.troubles if each.alert == "TrainingStalled"
    } == expected


def test_a_disagreement_is_noticed(promtool, tmp_path):
    """The comparison can fail: the rules and a view differ for two different machines."""
    (said,) = evaluate([Machine(devices=(Device(celsius=95.0),))], promtool, tmp_path)
    names = {alert.name for alert in select_alerts(inhibit(said.alerts), "0")}
    assert names == {"GPUHighTemperature"}
    assert Looked(Machine(devices=(Device(),)), "0").name_troubles() == set()


def test_a_monitor_that_is_off_says_nothing_of_low_utilization(promtool, tmp_path):
    """The last phase of a switched-off monitor does not excuse low utilization."""
    off = Rank(devices=(0,), phase=RunPhase.CHECKPOINT, is_off=True)
    busy = [Device(busy=share) for share in (0.25, 0.005)]
    machines = [Machine(devices=(each,), runs=((off,),), disks=(Disk(),)) for each in busy]
    check_machines(machines, promtool, tmp_path)


def test_a_batch_that_fails_is_narrowed_to_one_machine():
    """Hypothesis shrinks a failing batch to one machine without irrelevant parts."""
    failing = []

    @seed(0)
    @settings(_SETTINGS, max_examples=50)
    @given(draw_batch(4))
    def check(machines):
        troubles = {each for machine in machines for each in Looked(machine, "0").name_troubles()}
        if any(alert == "ContainerUnhealthy" for alert, _, _ in troubles):
            failing.append(machines)
            raise AssertionError

    with pytest.raises(AssertionError):
        check()
    machine = Machine(containers=(Container(health="unhealthy"),), disks=(Disk(),))
    assert failing[-1] == [machine]


DIVERGING = Alert("TrainingLossDiverging", "critical", "llama", "Training loss diverges", NOW - 60)


def test_an_alert_that_only_prometheus_knows_is_in_every_view():
    """An alert that only Prometheus reports appears in every view, including `/health`."""
    looked = Looked(Machine(), "0")
    looked.look((DIVERGING,))
    check_views(looked)
    verdict = judge_health(looked.seen, {}, looked.judged, now=NOW)
    assert (verdict.good, verdict.document["status"]) == (True, "degraded")


def test_a_limit_that_only_an_alert_reports_is_no_reason_to_restart():
    """An alert alone leaves the status code of `/health` at 200, as it outlasts the trouble."""
    looked = Looked(Machine(), "0")
    looked.look((Alert("HostMemoryPressure", "critical", "", "All tasks wait for memory", NOW),))
    verdict = judge_health(looked.seen, {}, looked.judged, now=NOW)
    assert (verdict.good, verdict.document["status"]) == (True, "degraded")


@pytest.mark.parametrize("reason", ["", "Prometheus does not answer"])
def test_unknown_alerts_are_an_unknown_and_no_degradation(reason):
    """Unknown alerts are listed in `/health` as unknown, and its status stays healthy."""
    looked = Looked(Machine(alerts=reason), "0")
    looked.look(None)
    document = judge_health(looked.seen, {}, looked.judged, now=NOW).document
    assert document["status"] == "healthy"
    assert [each["subject_kind"] for each in document["checks"]["unknowns"]] == ["alert"]
