"""No two views disagree about a machine, whatever is wrong with it.

Machines are made up, and the page, the terminal, `/api/v1/overview`, `/health`, `doctor` and the
alerts must name the same troubles with the same severity, each with what is not known.
"""

from __future__ import annotations

import html
import json
import os
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.support.rulebook import RULES
from tests.unit.verdicts.alerts import JUDGED, evaluate, inhibit
from tests.unit.verdicts.machines import NOW, Device, Machine, Rank, draw_machine
from trainvitals.doctor.accelerators import CHECKS
from trainvitals.http.health import judge_health
from trainvitals.metrics.runner import Snapshot
from trainvitals.sources.alerts import select_alerts
from trainvitals.sources.files import Roots
from trainvitals.verdicts.thresholds import ThresholdsFile
from trainvitals.views.machine.document import read_document, write_document
from trainvitals.views.machine.observer import Observer
from trainvitals.views.page.page import PageWriter
from trainvitals.views.terminal.headline import draw_headline

BATCH = 100
BATCHES = 500 if os.environ.get("TRAINVITALS_TEST_LONG") else 20
TONES = {"critical": "bad", "warning": "warning", "info": "busy"}
# By the numbers of grafana/build/run_verdict.py; a run of which no rank lives has ended for the
# rules, however it did.
STATES = {
    2: ("finished", "ended", "terminated"),
    3: ("training",),
    4: ("evaluating",),
    5: ("saving",),
    6: ("compiling",),
    7: ("starting",),
    8: ("idle",),
    30: ("terminated",),
    31: ("stalled",),
    33: ("died",),
}
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
    """One machine as an exporter sees it that was asked for ten minutes."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.observer = Observer("1.2.3", name_host=lambda: name, thresholds=_THRESHOLDS)
        for ago in (600, 560, 300, 60, 0):
            self.seen = Snapshot((), machine.read(NOW - ago), machine.report())
            self.observer.note(self.seen, NOW - ago)
        alerts = () if machine.alerts is None else None
        reason = machine.alerts or ""
        self.picture = self.observer.picture(self.seen, NOW, alerts=alerts, alerts_trouble=reason)

    def name_troubles(self, alerts=None):
        """Return the troubles that an alert tells of, by alert, subject and severity."""
        picture = self.picture
        if alerts is not None:
            picture = self.observer.picture(self.seen, NOW, alerts=alerts)
        return {(each.alert, each.subject, each.severity) for each in picture.troubles}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_all_views_and_the_rules_say_the_same(batch, promtool, tmp_path):
    """Of a hundred machines in each batch."""
    random = Random(batch)
    looked = [Looked(draw_machine(random), str(at)) for at in range(BATCH)]
    for each in looked:
        check_views(each)
    ruled = evaluate([each.machine for each in looked], promtool, tmp_path)
    for each, said in zip(looked, ruled, strict=True):
        check_runs(each, said.numbers)
        sent = select_alerts(inhibit(said.alerts), each.name)
        expected = {(alert.name, alert.subject, alert.severity) for alert in sent}
        assert each.name_troubles() == expected, each.machine
        # Prometheus adds nothing to what was seen without it.
        assert each.name_troubles(select_alerts(said.alerts, each.name)) == expected, each.machine


def check_views(looked: Looked) -> None:
    """Demand of every view that it names the troubles and what is not known, and nothing else."""
    picture = looked.picture
    troubles = [(each.subject, each.name, each.severity, each.summary) for each in picture.troubles]
    assert read_document(write_document(picture)).troubles == picture.troubles
    assert read_document(write_document(picture)).unknowns == picture.unknowns
    check_page(looked, troubles)
    check_terminal(looked, troubles)
    check_health(looked, troubles)
    check_doctor(looked, troubles)
    is_blind = looked.machine.alerts is not None
    assert any(each.subject_kind == "alert" for each in picture.unknowns) is is_blind
    for name in looked.machine.failing:
        assert any(f"collector {name}" in each.why for each in picture.unknowns)


def check_page(looked: Looked, troubles) -> None:
    """The headline has a line for each trouble and for each thing that is not known."""
    text = _WRITER.write_fragment(looked.picture).decode()
    head = text[: text.index("</header>")]
    lines = [(tone, html.unescape(words)) for tone, words in _MATTER.findall(head)]
    said = [
        (TONES[severity], f"{subject or 'host'} {name}: {summary}")
        for subject, name, severity, summary in troubles
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


def check_terminal(looked: Looked, troubles) -> None:
    """The lines of `top --once` name each trouble, and those of `top` the first ones."""
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
    """`/health` lists the same, and is well only where nothing is wrong."""
    judged = looked.observer.judge(looked.seen, NOW)
    expected = dict(_read_expected(looked))
    document = json.loads(json.dumps(judge_health(looked.seen, expected, judged, now=NOW).document))
    checks = document["checks"]
    found = [
        (each["subject"], each["name"], each["severity"], each["summary"])
        for each in checks["troubles"]
    ]
    assert found == troubles
    unknown = [each.why for each in looked.picture.unknowns if each.subject_kind != "alert"]
    assert [each["why"] for each in checks["unknowns"]] == unknown
    if any(severity != "info" for _, _, severity, _ in troubles):
        assert document["status"] in ("degraded", "unhealthy")
    if any(each.alert == "AcceleratorMissing" for each in judged.troubles):
        assert document["status"] == "unhealthy"


def check_doctor(looked: Looked, troubles) -> None:
    """The check of states complains about every device that is lost, and of no other."""
    reading = looked.seen.readings.get("accelerator")
    if reading is None or not reading.devices:
        return
    check = next(check for check in CHECKS if check.name == "accelerator-states")
    facts = SimpleNamespace(
        accelerators=lambda: reading,
        pci=lambda: (),
        is_in_container=False,
        machine=SimpleNamespace(roots=Roots(*map(Path, ("/none/proc", "/none/sys", "/none")))),
    )
    lost = [subject for subject, name, _, _ in troubles if name in ("lost", "hung", "no driver")]
    finding = check.run(facts)
    if lost:
        assert finding.status == "problem"
    for subject in lost:
        assert subject in finding.what


def check_runs(looked: Looked, numbers) -> None:
    """The recorded rules have the same word for the state of each run, and for what it loses time to."""
    for run in looked.picture.runs:
        state = numbers["run:training_state:number", run.name]
        assert run.state in STATES[state], (run, looked.machine)
        verdict = numbers["run:training_verdict:number", run.name]
        assert run.bound == BOUNDS.get(verdict), (run, verdict, looked.machine)


def _read_expected(looked: Looked):
    reading = looked.seen.readings.get("accelerator")
    return () if reading is None else reading.expected


def test_every_judged_alert_is_met():
    """Among the made-up machines there is one for each alert that is judged here."""
    random = Random(0)
    looked = [Looked(draw_machine(random), "0") for _ in range(10 * BATCH)]
    found = {trouble.alert for each in looked for trouble in each.picture.troubles}
    assert found - {""} == JUDGED


def test_a_card_close_to_its_limit_is_the_same_on_the_page_and_in_top():
    """At 84 of 89 °C the page said so, and top said that nothing was wrong."""
    picture = Looked(Machine(devices=(Device(celsius=84.0, headroom=5.0),)), "0").picture
    assert draw_headline(picture, 100)[0].plain == "gpu0 close to its thermal limit"
    page = _WRITER.write_fragment(picture).decode()
    assert "1 thing needs attention" in page
    assert "gpu0 close to its thermal limit: 84 °C, 5 °C below" in page


def test_a_missing_card_explains_the_stalls_that_it_may_have_caused(promtool, tmp_path):
    """Of four cards two are up, one is lost and one was never seen: runs on the first two are told."""
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
    shown = Looked(machine, "0").picture.troubles
    assert {each.subject for each in shown if each.alert == "TrainingStalled"} == expected


def test_a_disagreement_is_noticed(promtool, tmp_path):
    """A machine that is hot is not as well as one that is cold."""
    (said,) = evaluate([Machine(devices=(Device(celsius=95.0),))], promtool, tmp_path)
    names = {alert.name for alert in select_alerts(inhibit(said.alerts), "0")}
    assert names == {"GPUHighTemperature"}
    assert Looked(Machine(devices=(Device(),)), "0").name_troubles() == set()
