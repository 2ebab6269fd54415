"""An edit of thresholds.yml changes the rules and all verdicts in Python."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.support.rulebook import RULES
from tests.unit.doctor.patient import Patient
from tests.unit.verdicts.alerts import evaluate
from tests.unit.verdicts.machines import NOW, Device, Disk, Machine
from trainvitals.http.health import judge_health
from trainvitals.metrics.runner import Snapshot
from trainvitals.verdicts.machine import Alerts
from trainvitals.verdicts.thresholds import ThresholdsFile
from trainvitals.views.machine.document import read_document, write_document
from trainvitals.views.machine.observer import Observer
from trainvitals.views.page.page import PageWriter
from trainvitals.views.terminal.headline import draw_headline

# 60 °C is 27 °C below the assumed limit, and 60 % of the device memory is in use.
MACHINE = Machine(devices=(Device(celsius=60.0, memory=0.6),), disks=(Disk(avail=0.3),))
EDITS = {
    "GPUHighTemperature": ("gpu_high_temperature:headroom_celsius", 30, "gpu0 too hot"),
    "HighMemoryUsage": ("high_memory_usage:ratio", 0.5, "gpu0 memory nearly full"),
    "HostDiskSpaceLow": ("host_disk_space_low:avail_ratio", 0.4, "/ nearly full"),
    "HostHighMemoryUsage": ("host_high_memory_usage:used_ratio", 0.4, "host memory nearly full"),
}


def edit(directory, name, number):
    """Write the shipped rules with one threshold changed, and return the path of the thresholds."""
    shutil.copytree(RULES, directory)
    path = directory / "thresholds.yml"
    text, count = re.subn(
        rf"(record: threshold:{name}\n\s+expr: )vector\([^)]+\)",
        rf"\g<1>vector({number})",
        path.read_text(encoding="utf-8"),
    )
    assert count == 1
    path.write_text(text, encoding="utf-8")
    return path


def look(thresholds):
    """Return the picture and the `/health` document for a thresholds file."""
    observer = Observer("1.2.3", name_host=lambda: "ada", thresholds=ThresholdsFile(thresholds))
    seen = Snapshot((), MACHINE.read(NOW), MACHINE.report())
    picture = observer.picture(seen, NOW, alerts=())
    return picture, judge_health(seen, {}, observer.judge(seen, NOW, Alerts(())), now=NOW).document


@pytest.mark.parametrize("alert", EDITS)
def test_one_edit_moves_all(alert, promtool, tmp_path):
    """After an edit of one threshold, the rules and every view report the same alert."""
    name, number, words = EDITS[alert]
    before, healthy = look(RULES / "thresholds.yml")
    assert before.troubles == ()
    assert healthy["status"] == "healthy"
    thresholds = edit(tmp_path / "rules", name, number)
    picture, health = look(thresholds)
    assert [trouble.alert for trouble in picture.troubles] == [alert]
    assert read_document(write_document(picture)).troubles == picture.troubles
    assert words in PageWriter().write_fragment(picture).decode()
    assert draw_headline(picture, 100)[0].plain == words
    assert [each["alert"] for each in health["checks"]["troubles"]] == [alert]
    (ruled,) = evaluate([MACHINE], promtool, tmp_path, rules=tmp_path / "rules")
    assert alert in {each.labels["alertname"] for each in ruled.alerts}


def test_the_doctor_reads_the_same_file(tmp_path):
    """The doctor command uses the edited threshold for devices that are held."""
    thresholds = edit(tmp_path / "rules", "accelerator_held_idle:memory_ratio", 0.05)
    (tmp_path / "patient").mkdir()
    patient = Patient(tmp_path / "patient")
    with patient.stack:
        machine = patient.add_gpus(1)
        machine.gpu(0).memory_used_bytes = 6 << 30
        assert patient.find("free-accelerators").status == "ok"
        patient.environ["TRAINVITALS_THRESHOLDS_FILE"] = str(thresholds)
        assert patient.find("free-accelerators").status == "problem"
