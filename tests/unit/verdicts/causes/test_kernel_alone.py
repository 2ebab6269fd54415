"""Verdicts on a kernel log alone, and beside evidence that may name a process."""

import json

import pytest

from tests.unit.verdicts.causes.evidences import death
from trainvitals.sources.accelerators.xids import XIDS, explain_xid
from trainvitals.sources.containers.evidence import Evidence, Gap, OomKill, Training
from trainvitals.sources.containers.evidence_document import to_json
from trainvitals.sources.containers.evidence_folder import read_folder
from trainvitals.verdicts.causes.judge import judge

ID = "4f0e77a2d3d1c0b9a8f7e6d5c4b3a29180706050403020100ffeeddccbbaa998"
OLD_HOST = """\
May 11 23:07:34 wren kernel: Out of memory: Kill process 26381 (python3) score 689 or sacrifice child
May 11 23:07:34 wren kernel: Killed process 26381 (python3) total-vm:11567576kB, anon-rss:11235272kB
"""
OLD_LIMIT = f"""\
[ 100.1] Task in /docker/{ID} killed as a result of limit of /docker/{ID}
[ 100.2] Memory cgroup out of memory: Kill process 23235 (python) score 968 or sacrifice child
[ 100.2] Killed process 23235 (python), UID 0, total-vm:65423436kB, anon-rss:42401308kB
"""
NEW_LIMIT = (
    "[ 100.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/slurm/job_7,task_memcg=/slurm/job_7,task=python,pid=4242,uid=0\n"
    "[ 100.1] Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB\n"
)
PARENT = NEW_LIMIT.replace("task_memcg=/slurm/job_7", "task_memcg=/slurm/job_7/step_0")
HARDWARE = ("gpu-lost", "gpu-ecc", "gpu-nvlink", "gpu-firmware", "gpu-reset")
STEPS = "step 10 loss 2.1\nstep 11 loss 2.0\n"


def read(folder, **files):
    """Return the evidence of a folder with these files."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return read_folder(folder)


@pytest.mark.parametrize(
    ("text", "reason", "confidence"),
    [
        (OLD_HOST, "oom-host", "high"),
        (OLD_LIMIT, "oom-cgroup", "medium"),
        (NEW_LIMIT, "oom-cgroup", "high"),
        (PARENT, "oom-parent", "high"),
    ],
    ids=["old-host", "old-container", "new-group", "new-parent"],
)
def test_the_last_kill_of_a_kernel_log_alone_is_the_death(tmp_path, text, reason, confidence):
    """The last OOM kill of a kernel log is the verdict, with medium confidence for a container."""
    verdict = judge(read(tmp_path, kernel_txt=text))
    assert (verdict.reason, verdict.confidence) == (reason, confidence)
    assert not [each for each in verdict.contributing if each.reason.startswith("oom")]


def test_the_killed_process_names_the_subject(tmp_path):
    """A kill in a container's control group makes the container the subject."""
    evidence = read(tmp_path, kernel_txt=OLD_LIMIT)
    assert (evidence.subject, evidence.id) == ("container", ID)


def test_a_log_beside_it_is_only_of_what_may_have_trained(tmp_path):
    """The OOM kill of a browser is not the cause of a training log's end."""
    assert judge(read(tmp_path, kernel_txt=NEW_LIMIT, log_txt=STEPS)).reason == "oom-cgroup"
    chrome = NEW_LIMIT.replace("python", "chrome")
    assert judge(read(tmp_path, kernel_txt=chrome, log_txt=STEPS)).reason == "unknown"


def test_a_kernel_log_fills_the_gap_of_a_record(tmp_path):
    """A kernel log added to a record closes its gap, and the process is found by its ID."""
    record = Evidence(
        "run",
        "bert",
        ended=2000.0,
        signal=9,
        training=Training(pid=4242),
        gaps=(Gap("the kernel log", "no permission", "run it as root"),),
    )
    host = json.dumps({"time": 2001.0, "boot_time": 1900.0})
    evidence = read(
        tmp_path, evidence_json=json.dumps(to_json(record)), kernel_txt=NEW_LIMIT, host_json=host
    )
    verdict = judge(evidence)
    sentences = " ".join((*verdict.finding.speaks_for, *verdict.finding.speaks_against))
    assert verdict.reason == "oom-cgroup"
    assert "could not be read" not in sentences
    assert "no OOM kill" not in sentences
    assert evidence.gaps == ()


def test_a_fall_off_the_bus_is_understood_without_an_xid(tmp_path):
    """The driver's three lines about a GPU that fell off the bus are read as Xid 79."""
    text = (
        "[ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "               NVRM: (PCI ID: 10de:26b9) installed in this system has\n"
        "               NVRM: fallen off the bus and is not responding to commands.\n"
    )
    evidence = read(tmp_path, kernel_txt=text)
    assert [(xid.bus_id, xid.code) for xid in evidence.xids] == [("0000:b3:00.0", 79)]
    assert judge(evidence).reason == "gpu-lost"


def test_without_an_engine_the_same_death_is_less_sure():
    """Without the engine's data, a kill in a container's control group has medium confidence."""
    kill = {"time": 100.0, "constraint": "CONSTRAINT_MEMCG", "oom_memcg": f"/docker/{ID}"}
    evidence = Evidence("container", "train", id=ID, oom_kills=(_kill(**kill),))
    assert (judge(evidence).reason, judge(evidence).confidence) == ("oom-cgroup", "medium")


def _kill(**known):
    return OomKill(task_memcg=f"/docker/{ID}", task="python", pid=7, **known)


def test_a_crash_has_the_library_that_the_kernel_names(tmp_path):
    """The kernel's segfault line names the library, and an Xid takes precedence over it."""
    line = (
        "python[187]: segfault at 18 ip 00007ff5 sp 00007ff6 error 4 in libcuda.so.390.30[7ff9+b3d]"
    )
    log = STEPS + "Segmentation fault (core dumped)\n"
    for files in ({}, {"log_txt": log}):
        verdict = judge(read(tmp_path, kernel_txt=f"[ 84110.112011] {line}\n", **files))
        assert verdict.reason == "segfault"
        assert "libcuda.so.390.30" in " ".join(verdict.finding.speaks_for)
    xid = "[ 84110.0] NVRM: Xid (PCI:0000:41:00): 79, pid=187, GPU has fallen off the bus.\n"
    (tmp_path / "log.txt").unlink()
    assert judge(read(tmp_path, kernel_txt=f"{xid}[ 84110.112011] {line}\n")).reason == "gpu-lost"


# Xids that end no program by themselves, or that no cause describes.
NO_CAUSE = frozenset({45, 54, 92, 110, 151, 154})


@pytest.mark.parametrize("code", [*(xid.code for xid in XIDS), 999])
def test_an_xid_of_any_class_counts_from_the_kernel_log_alone(tmp_path, code):
    """Every Xid is either a cause, or is reported with its meaning and the needed action."""
    line = f"[ 84110.0] NVRM: Xid (PCI:0000:41:00): {code}, pid=187, name=python, Ch 00000010\n"
    verdict = judge(read(tmp_path, kernel_txt=line))
    said = " ".join(verdict.finding.speaks_for)
    assert f"The kernel logged Xid {code} of GPU 0000:41:00" in said
    if code in NO_CAUSE or code == 999:
        assert verdict.reason == "unknown"
        assert f", {explain_xid(code).meaning}: the GPU needs {explain_xid(code).action}." in said
    else:
        assert verdict.reason in {"cuda-illegal", *HARDWARE}
        assert (verdict.reason == "cuda-illegal") == (explain_xid(code).severity == "app")
        assert verdict.confidence == "medium"


def test_guards_of_the_host_are_read_from_syslog(tmp_path):
    """A line of earlyoom between kernel lines in syslog is read as the cause."""
    text = (
        "Jun  3 17:05:00 lab3 kernel: perf: interrupt took too long\n"
        'Jun  3 17:20:52 lab3 earlyoom[988]: sending SIGTERM to process 11166 uid 1004 "python3"\n'
    )
    assert judge(read(tmp_path, kernel_txt=text)).reason == "oom-guard"


@pytest.mark.parametrize(
    "line",
    [
        "traps: python3[991] trap invalid opcode ip:55d0 sp:7ffe error:0 in python3.11[400000+1000]",
        "python3[991]: segfault at 0 ip 00007f sp 00007f error 4 in libcuda.so.1[7f00+1000]",
    ],
)
def test_a_crash_of_another_process_is_not_that_of_a_silent_container(line):
    """A crash in the kernel log is not the cause if the container ended with exit code 3."""
    verdict = judge(death(3, log=(), kernel_lines=(line,)))
    assert verdict.reason not in {"illegal-instr", "segfault"}


@pytest.mark.parametrize(("signal", "is_advised"), [(None, True), (9, False)])
def test_what_records_a_signal_is_advised_where_the_signal_is_unknown(signal, is_advised):
    """The advice to run `trainvitals serve` is given only if the signal is unknown."""
    training = Training(pid=4242, is_end_seen=False)
    verdict = judge(Evidence("run", "bert", ended=2000.0, signal=signal, training=training))
    assert any("trainvitals serve" in step for step in verdict.finding.steps) == is_advised
