"""Tests for running several checks: their order, their time limit, failures and hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.unit.doctor.patient import GPU, NVIDIA, Patient
from trainvitals.doctor import CHECKS, Options, choose_checks, run_checks
from trainvitals.doctor.finding import Check, Finding, fail, ok, warn
from trainvitals.errors import ConfigurationError, SourceError
from trainvitals.http.listen import Address

ALL = tuple(check.name for check in CHECKS)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Yield an event that is set when the test ends; calls that wait for it hang until then."""
    gate = threading.Event()
    yield gate
    gate.set()


def check(name: str, run, **more) -> Check:
    """Return a check that calls a function."""
    return Check(name, "tests", "nothing", "it does not", run, **more)


def test_the_names_of_checks_are_their_own():
    """The names of checks are unique and differ from the names of subjects."""
    assert len(set(ALL)) == len(ALL)
    assert not {each.subject for each in CHECKS} & set(ALL)


def test_a_machine_where_all_is_well_has_no_problem(patient: Patient):
    """On a machine without problems, no check reports a problem, and only clock may warn."""
    patient.set_space(1000, 500)
    patient.set_limit(65536, 65536)
    patient.install("numpy", "2.1.0")
    told = patient.look(*ALL)
    assert len(told.results) == len(CHECKS)
    found = {result.check.name: result.finding for result in told.results}
    assert found.pop("clock").status in {"ok", "warning", "not applicable"}
    assert {
        name: each.what for name, each in found.items() if each.status in {"problem", "warning"}
    } == {}


def test_what_hangs_is_reported_and_does_not_delay_the_rest(
    patient: Patient, gate: threading.Event
):
    """If name resolution, disks, hosts and the driver hang, the other checks finish in time."""
    patient.plug(NVIDIA, GPU, "nvidia", count=2)
    patient.add_gpus().hang("nvml*")
    patient.wish(reach=(Address("10.0.0.7", 29500),))
    patient.world |= {
        "resolve": lambda *_: gate.wait(),
        "connect": lambda *_: gate.wait(),
        "statvfs": lambda _: gate.wait(),
    }
    told = patient.look(*ALL, timeout_seconds=1.5)
    found = {result.check.name: result.finding for result in told.results}
    assert not gate.is_set()
    assert found["memory"].status == "ok"
    assert found["ports"].status == "ok"
    assert found["checkpoint-space"].what.startswith("not checked: no answer within ")
    for name in ("accelerator-states", "nvidia-library", "names", "reach"):
        assert found[name].status == "problem", name
    assert "10.0.0.7:29500: no answer" in found["reach"].what


@pytest.mark.flaky(reruns=5, only_rerun="AssertionError")  # a stalled process looks like a hang
def test_one_gpu_that_hangs_is_named_and_the_others_are_examined(patient: Patient):
    """A GPU that hangs is named, and the temperature of the other GPU is still checked."""
    machine = patient.add_gpus()
    machine.hang("nvmlDeviceGetTemperature", device=0)
    machine.gpu(1).temperature = 81
    told = patient.look("accelerator-states", "idle-temperature", timeout_seconds=3.0)
    found = {result.check.name: result.finding.what for result in told.results}
    assert found["accelerator-states"] == "1 of 2 respond: gpu0 hung"
    assert found["idle-temperature"].startswith("gpu1 81 °C")


def test_a_setting_that_hangs_costs_the_other_gpu_nothing(patient: Patient):
    """If reading a setting of one GPU hangs, the setting of the other GPU is still reported."""
    machine = patient.add_gpus()
    machine.hang("nvmlDeviceGetPersistenceMode", device=0)
    machine.gpu(1).persistence_mode = 0
    (result,) = patient.look("persistence-mode", timeout_seconds=2.0).results
    assert result.finding.what == "off for GPU 1"


def test_a_check_that_fails_by_itself_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    """An exception in a check is a warning with its type, a source error a problem with advice."""

    def fail(_):
        raise ZeroDivisionError("division by zero")

    def refuse(_):
        raise SourceError("cannot read /proc/stat: it is not there; mount it")

    told = run_checks(
        Options(), (check("fails", fail), check("refuses", refuse)), timeout_seconds=9
    )
    refused, failed = told.results
    assert refused.finding == Finding(
        "problem", "cannot read /proc/stat: it is not there", advice="mount it"
    )
    assert failed.finding.status == "warning"
    assert "ZeroDivisionError" in failed.finding.what


def test_the_worst_comes_first():
    """Results are ordered by severity, and within one severity by the order of the checks."""
    checks = (
        check("a", lambda _: ok("fine")),
        check("b", lambda _: warn("so so")),
        check("c", lambda _: fail("bad")),
        check("d", lambda _: fail("bad too")),
    )
    told = run_checks(Options(), checks, timeout_seconds=9)
    assert [result.check.name for result in told.results] == ["c", "d", "b", "a"]
    assert told.status == "problem"
    assert run_checks(Options(), checks[:2], timeout_seconds=9).status == "warning"
    assert run_checks(Options(), checks[:1], timeout_seconds=9).status == "ok"


def test_secrets_in_findings_are_masked():
    """Tokens in the text, the command or the advice of a finding are masked."""
    token = "hf_" + "a1" * 17
    bad = fail(f"asked with {token}", f"export HF_TOKEN={token}", advice=f"or {token}")
    (result,) = run_checks(Options(), (check("leaks", lambda _: bad),), timeout_seconds=9).results
    assert token not in repr(result)


def test_checks_are_chosen_by_name_and_by_subject():
    """Checks can be selected by name or by subject, and keep the order of the list."""
    assert [each.name for each in choose_checks(["swap", "memory"])] == ["memory", "swap"]
    assert {each.subject for each in choose_checks(["disks"])} == {"disks"}
    assert choose_checks([]) == CHECKS
    assert {each.subject for each in choose_checks([], is_quick=True)} == {
        "accelerators",
        "containers",
        "disks",
        "network",
    }
    with pytest.raises(ConfigurationError, match="--checks weather: there is no such check"):
        choose_checks(["memory", "weather"])


def test_silence_of_a_driver_is_a_problem():
    """A timeout is a problem if the check says so, for example for the driver."""
    hang = threading.Event()
    each = replace(check("hangs", lambda _: hang.wait()), on_timeout="problem")
    told = run_checks(Options(), (each,), timeout_seconds=0.1)
    hang.set()
    assert told.results[0].finding.status == "problem"


def test_a_python_that_does_not_run_is_reported_once(patient: Patient):
    """A Python that does not run is one problem, and checks of its packages are not applicable."""
    patient.put_python("no answer", code=1)
    told = patient.look("python", "pytorch", "package-conflicts")
    assert [result.finding.status for result in told.results] == [
        "problem",
        "not applicable",
        "not applicable",
    ]


def test_an_edited_threshold_moves_the_checks(patient: Patient):
    """The check of memory uses the threshold of the alert, also if a user has edited it."""
    assert patient.find("memory").status == "ok"
    rule = "{record: 'threshold:host_high_memory_usage:used_ratio', expr: vector(0.2)}"
    file = patient.write("thresholds.yml", f"groups: [{{name: thresholds, rules: [{rule}]}}]")
    patient.environ["TRAINVITALS_THRESHOLDS_FILE"] = str(file)
    assert patient.find("memory").status == "problem"


def test_what_the_kernel_does_not_report_is_not_judged(patient: Patient):
    """Without MemAvailable, or with more free swap than swap, the checks are not applicable."""
    patient.set_memory(used=-1.0)
    meminfo = patient.proc / "meminfo"
    meminfo.write_text(meminfo.read_text().replace("MemAvailable", "MemOther"))
    assert patient.find("memory").status == "not applicable"
    assert patient.find("swap").status == "not applicable"
    patient.set_memory(swap_gib=0)
    assert patient.find("swap").status == "ok"
