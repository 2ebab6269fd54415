"""OOM kills, and other kills with the same exit code."""

from __future__ import annotations

import pytest

from tests.support.deaths import reasons_of, tell
from tests.unit.verdicts.causes.evidences import DIED, ID, MIB, death, event, oom_kill
from trainvitals.sources.containers.evidence import Evidence, Host, OomKill, Sample, Settings, State
from trainvitals.verdicts.causes.judge import judge

OOMS = {"oom-cgroup", "oom-missed", "oom-host", "oom-parent", "oom-worker"}
FULL = Sample(DIED - 4, 1, memory_peak_bytes=63 * MIB, memory_limit_bytes=64 * MIB)
LOW = Sample(DIED - 4, 1, memory_peak_bytes=20 * MIB, memory_limit_bytes=64 * MIB)


@pytest.mark.parametrize(
    ("reason", "events"),
    [
        ("kill-operator", (event(0.05, "kill", signal=9),)),
        ("stop-timeout", (event(10.1, "kill", signal=15), event(0.05, "kill", signal=9))),
        ("kill-outside", ()),
    ],
)
def test_a_137_without_an_oom_is_none(reason, events):
    """Exit code 137 without an OOM kill is a kill or stop, even if memory was nearly full."""
    for sample in (None, LOW, FULL):
        verdict = judge(death(137, *events, sample=sample, host_oom_kills=0))
        assert verdict.reason == reason
        assert not reasons_of(verdict) & OOMS


def test_an_event_alone_is_enough():
    """Without a kernel log, the engine's `oom` event right before the end is an OOM kill."""
    verdict = judge(death(137, event(0.05, "oom"), oom_kills=None))
    assert (verdict.reason, verdict.finding.confidence) == ("oom-cgroup", "high")


def test_an_event_after_the_end_counts():
    """An `oom` event up to 1 s after `die` counts."""
    late = death(137, oom_kills=None)
    events = (*(late.events or ()), event(-0.005, "oom"))
    evidence = death(137, oom_kills=None)
    assert judge(evidence).reason == "kill-outside"
    assert judge(type(evidence)(**{**_members(evidence), "events": events})).reason == "oom-cgroup"


def _members(evidence):
    return {name: getattr(evidence, name) for name in evidence.__dataclass_fields__}


def test_the_flag_of_an_earlier_start_does_not_count():
    """`OOMKilled` left from an earlier start is ignored if this start has no `oom` event."""
    verdict = judge(death(137, is_oom_killed=True, restarts=2))
    assert verdict.reason == "kill-outside"
    assert not reasons_of(verdict) & OOMS


def test_an_oom_kill_before_the_restart_is_none_of_a_worker():
    """An OOM kill before the last start is not the kill of a worker of the running container."""
    state = State("running", 0, is_oom_killed=True, started=DIED - 60, finished=DIED - 61)
    evidence = Evidence(
        "container",
        "train",
        id=ID,
        started=DIED - 60,
        state=state,
        oom_kills=(oom_kill(before=61.1),),
        restarts=1,
    )
    assert judge(evidence).reason == "running"


def test_a_kernel_line_of_an_earlier_start_does_not_count():
    """An OOM kill in the kernel log from before the last start is ignored."""
    verdict = judge(death(137, oom_kills=(oom_kill(before=90),)))
    assert verdict.reason == "kill-outside"


def test_a_kernel_line_that_the_engine_missed():
    """An OOM kill in the kernel log counts even if the engine reported none."""
    verdict = judge(death(137, oom_kills=(oom_kill(),)))
    assert (verdict.reason, verdict.finding.confidence) == ("oom-missed", "high")
    assert "The engine reported no `oom`" in tell(verdict.finding)


@pytest.mark.parametrize(
    ("sample", "risen", "reason", "confidence"),
    [
        (FULL, 1, "oom-missed", "medium"),
        (FULL, 0, "kill-outside", "medium"),
        (FULL, None, "kill-outside", "medium"),
        (LOW, 1, "kill-outside", "medium"),
        (None, 1, "kill-outside", "medium"),
    ],
)
def test_counts_stand_in_for_the_kernel_log(sample, risen, reason, confidence):
    """Without a kernel log, full memory and a risen OOM count together are an OOM kill."""
    verdict = judge(death(137, oom_kills=None, sample=sample, host_oom_kills=risen))
    assert (verdict.reason, verdict.finding.confidence) == (reason, confidence)


def test_one_that_died_before_the_first_look_may_have_been_missed():
    """If a container died before its first sample, the host's count makes an OOM kill possible."""
    evidence = death(137, oom_kills=None, host_oom_kills=1, started=DIED - 0.8)
    verdict = judge(evidence)
    assert (verdict.reason, verdict.finding.confidence) == ("oom-missed", "low")


@pytest.mark.parametrize(
    ("task", "before", "reason", "confidence"),
    [
        ("python", 0.1, "oom-missed", "medium"),
        ("sh", 0.1, "oom-missed", "low"),
        ("python", 30.0, "kill-outside", "medium"),
    ],
)
def test_a_kill_without_a_control_group_may_have_been_its(task, before, reason, confidence):
    """A kernel line without control groups is matched by the process name and the time."""
    kill = OomKill(DIED - before, "CONSTRAINT_MEMCG", None, "", task, 3181)
    finding = judge(death(137, oom_kills=(kill,))).finding
    assert (finding.reason, finding.confidence) == (reason, confidence)


def test_whose_limit_it_was_decides():
    """The host's memory, a parent's limit and the container's own limit are three causes."""
    host = oom_kill(oom=None, constraint="CONSTRAINT_NONE")
    node = oom_kill(oom=None, constraint="CONSTRAINT_CPUSET")
    for kill, reason in (
        (oom_kill(), "oom-cgroup"),
        (oom_kill(oom="parent"), "oom-parent"),
        (host, "oom-host"),
        (node, "oom-host"),
    ):
        verdict = judge(death(137, event(0.05, "oom"), oom_kills=(kill,), is_oom_killed=True))
        assert verdict.reason == reason
        assert not (reasons_of(verdict) - {reason}) & OOMS
    assert "NUMA nodes" in judge(death(137, oom_kills=(node,))).finding.summary


def test_the_sibling_of_a_killed_container_was_not_killed():
    """An OOM kill of a sibling under the same parent limit is not attributed to the container."""
    beside = (oom_kill(before=5, oom="parent", task="other"),)
    flagged = {"oom_kills": beside, "is_oom_killed": True}
    for code, reason in ((137, "kill-outside"), (0, "finished"), (3, "unknown")):
        verdict = judge(death(code, event(5, "oom"), **flagged))
        assert verdict.reason == reason
        assert not reasons_of(verdict) & (OOMS | {"oom-hidden-exit0"})
    alive = Evidence(
        "container",
        "b",
        id="4f" * 32,
        started=DIED - 60,
        oom_kills=beside,
        events=(event(60, "start"), event(5, "oom")),
        state=State("running", 0, is_oom_killed=True),
    )
    assert judge(alive).reason == "running"


def test_the_new_limit_fits_the_host():
    """No limit above the host's memory is advised."""
    small = Host(DIED, memory_total_bytes=80 * MIB)
    text = tell(judge(death(137, event(0.05, "oom"), oom_kills=None, host=small)).finding)
    assert "The host has only 80.0 MiB of memory" in text
    assert "docker update --memory" not in text


def test_the_new_limit_has_the_containers_name():
    """The advised command suits Docker, Podman and containers that are removed at their end."""
    limit = Settings(command=("python",), memory_limit_bytes=16 * 1024 * MIB)
    gone = Settings(memory_limit_bytes=16 * 1024 * MIB, is_removed_at_end=True)
    for more, words in (
        ({"settings": limit}, "`docker update --memory 24g --memory-swap 24g train`"),
        ({"settings": limit, "engine": "podman 4.3.1"}, "`podman update --memory 24g"),
        ({"settings": gone}, "`docker run --memory 24g --memory-swap 24g …`"),
    ):
        assert words in tell(judge(death(137, event(0.05, "oom"), **more)).finding)


def test_a_worker_that_a_person_killed_is_no_oom():
    """A worker's SIGKILL is not an OOM kill if the kernel log and the events have none."""
    log = ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.",)
    verdict = judge(death(1, log=log))
    assert "oom-worker" not in reasons_of(verdict)
    assert verdict.reason == "kill-outside"


def test_an_unobserved_end_of_a_worker_may_be_an_oom_kill():
    """Without any kernel data, a killed worker is an OOM kill of low confidence."""
    log = ("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed.",)
    verdict = judge(Evidence("run", "a", ended=DIED, exit_code=1, log=log))
    assert (verdict.reason, verdict.finding.confidence) == ("oom-worker", "low")


def test_a_parent_that_noticed_late_is_less_sure():
    """Exit code 137 at 50 s after the last OOM kill has medium confidence."""
    verdict = judge(death(137, event(50, "oom"), oom_kills=(oom_kill(50),), is_oom_killed=True))
    assert (verdict.reason, verdict.finding.confidence) == ("oom-cgroup", "medium")
    assert "50s before the end, not immediately before it" in tell(verdict.finding)


def test_the_count_of_its_group_is_a_sign_of_a_killed_worker():
    """Without other data, the control group's OOM count is evidence of a killed worker."""
    counted = Sample(DIED - 4, 2, memory_limit_bytes=64 * MIB, oom_kills=2)
    for code, reason in ((1, "oom-worker"), (0, "oom-hidden-exit0")):
        verdict = judge(death(code, oom_kills=None, sample=counted))
        assert verdict.reason == reason
        assert "had counted 2 OOM kills" in tell(verdict.finding)
    running = Evidence("container", "a", state=State("running", 0), sample=counted)
    assert judge(running).reason == "oom-worker-alive"
    assert judge(death(137, sample=counted)).reason == "kill-outside"


@pytest.mark.parametrize(
    ("line", "is_named"),
    [
        ("./run.sh: line 9: 4242 Killed    python3 worker.py", True),
        ("Killed", True),
        ("./run.sh: Zeile 22: 44120 Getötet    tensorboard --logdir runs", False),
        ("all done", False),
        ("/entry.sh: line 22:    61 Killed      python3 fit.py", True),
        ("/entry.sh: line 22:    61 Killed      gzip -9 logs", False),
    ],
)
def test_a_kill_behind_exit_code_0_is_named_by_the_log_alone(line, is_named):
    """With exit code 0, a host's OOM kill counts only if the log reports a matching kill."""
    kill = OomKill(100.0, "CONSTRAINT_NONE", None, "/user.slice", "python3", 4242)
    log = ("step 1 loss 2.1", line)
    verdict = judge(Evidence("process", "a", log=log, exit_code=0, oom_kills=(kill,)))
    assert verdict.reason == ("oom-hidden-exit0" if is_named else "finished")


@pytest.mark.parametrize(
    ("group", "reason"), [("/job_8", "oom-parent"), ("/job_8/task_6", "oom-cgroup")]
)
def test_the_kernel_names_the_group_whose_limit_a_job_reached(group, reason):
    """The kernel log decides whether the limit was the Slurm job's or the task's."""
    kill = OomKill(100.0, "CONSTRAINT_MEMCG", group, "/job_8/task_6", "python", 70291)
    log = ("step 1 loss 2.1", "srun: error: n15: task 6: Out Of Memory")
    verdict = judge(Evidence("process", "a", log=log, exit_code=137, oom_kills=(kill,)))
    assert verdict.reason == reason


def test_a_kill_on_the_host_accuses_no_log_that_reports_success():
    """If the log reports success, a kill on the host gives `unknown` and a contradiction."""
    kill = OomKill(100.0, "CONSTRAINT_NONE", None, "/user.slice", "python3", 4242)
    log = ("step 1 loss 2.1", "Training completed in 3 h")
    verdict = judge(Evidence("process", "a", log=log, oom_kills=(kill,)))
    assert verdict.reason == "unknown"
    assert "but the kernel log has an OOM kill of `python3`" in tell(verdict.finding)


def test_unreclaimable_memory_and_pressure_are_evidence():
    """The memory figures and the pressure of the last sample are part of the evidence."""
    seen = Sample(
        DIED - 4,
        2,
        memory_unreclaimable_bytes=60 * MIB,
        memory_peak_bytes=62 * MIB,
        memory_limit_bytes=64 * MIB,
        memory_pressure_ratio=0.42,
    )
    text = tell(judge(death(137, event(0.05, "oom"), sample=seen)).finding)
    assert "the highest recorded usage was 62.0 MiB (97%)" in text
    assert "60.0 MiB of its memory could not be reclaimed" in text
    assert "All its tasks waited for memory in 42% of the last 10 s" in text
