"""Precedence among several possible causes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings

from tests.support.deaths import reasons_of, tell
from tests.unit.verdicts.causes.evidences import ANY_EVIDENCE, DIED, MIB, death, event, oom_kill
from trainvitals.sources.containers.evidence import Evidence, Gap, Sample, Settings, State
from trainvitals.verdicts.causes.judge import CAUSES, REASONS, judge

CUDA_OOM = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 88, in <module>',
    "    loss.backward()",
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total"
        " capacity of 79.15 GiB of which 41.25 MiB is free."
    ),
)
WATCHDOG = (
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    (
        "  what():  [PG 1 Rank 2] Process group watchdog thread terminated with exception: [Rank 2]"
        " Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=_ALLGATHER_BASE,"
        " NumelIn=20480, NumelOut=81920, Timeout(ms)=600000) ran for 600037 milliseconds before timing"
        " out."
    ),
)


@settings(max_examples=100)
@given(ANY_EVIDENCE)
@example(Evidence("container", ""))
@example(death(137, oom_kills=None, started=None, host_oom_kills=-5))
def test_every_evidence_gets_a_verdict_of_the_closed_set(evidence):
    """Any evidence gets a verdict of the table with a summary, and no evidence raises an error."""
    verdict = judge(evidence)
    for finding in (verdict.finding, *verdict.contributing):
        assert finding.reason in REASONS
        assert finding.summary.strip()
    assert len(reasons_of(verdict)) == 1 + len(verdict.contributing)


def test_reasons_are_distinct():
    """Every reason is in the table once, in lower case with hyphens."""
    assert len(set(REASONS)) == len(REASONS) == len(CAUSES)
    assert all(reason.replace("-", "").isalnum() and reason.islower() for reason in REASONS)
    assert len(CAUSES) >= 35
    assert {"finished", "running", "unknown"} <= set(REASONS)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.reason)
def test_every_cause_names_a_command_or_a_setting(cause):
    """Every cause in the table has a step with a command or a setting."""
    assert cause.steps
    assert any("`" in step for step in cause.steps)
    assert cause.meaning.endswith(".")
    assert cause.title
    assert cause.signs


def test_an_operators_kill_goes_before_an_earlier_oom_of_a_child():
    """After `docker kill`, an earlier OOM kill of a child only contributes, with its time."""
    verdict = judge(
        death(
            137,
            event(3.1, "oom"),
            event(0.08, "kill", signal=9),
            oom_kills=(oom_kill(3.1),),
            is_oom_killed=True,
        )
    )
    assert verdict.reason == "kill-operator"
    (worker,) = verdict.contributing
    assert worker.reason == "oom-worker"
    assert "3.1s before the end" in worker.summary


def test_a_sure_line_of_the_log_goes_before_a_bare_signal():
    """A CUDA traceback takes precedence over exit code 139, which contributes as a segfault."""
    verdict = judge(death(139, log=CUDA_OOM))
    assert verdict.reason == "cuda-oom"
    assert "segfault" in reasons_of(verdict)


def test_what_was_thrown_goes_before_the_abort():
    """If NCCL's watchdog aborts the process, the verdict is `nccl-timeout`."""
    for code in (134, 139):
        verdict = judge(death(code, log=WATCHDOG))
        assert verdict.reason == "nccl-timeout"
        assert "abort" in reasons_of(verdict)
        assert "segfault" not in reasons_of(verdict)


def test_a_sure_oom_goes_before_the_log():
    """A kernel OOM kill takes precedence over a handled error in the log."""
    verdict = judge(death(137, event(0.05, "oom"), oom_kills=(oom_kill(),), log=CUDA_OOM))
    assert verdict.reason == "oom-cgroup"


def test_an_early_oom_of_a_worker_gives_way_to_the_last_traceback():
    """A worker's OOM kill 50 minutes before the end only contributes to the last traceback."""
    evidence = death(
        1, event(3000, "oom"), oom_kills=None, log=CUDA_OOM, started=DIED - 4000, is_oom_killed=True
    )
    verdict = judge(evidence)
    assert verdict.reason == "cuda-oom"
    assert "oom-worker" in reasons_of(verdict)


def test_exit_code_0_is_finished_for_any_log():
    """Exit code 0 is a finished run, even if the log has a traceback."""
    verdict = judge(death(0, log=CUDA_OOM))
    assert verdict.reason == "finished"


def test_what_runs_has_no_cause_of_death():
    """The errors in the log of a running container only contribute."""
    verdict = judge(Evidence("container", "train", state=State("running", 0), log=CUDA_OOM))
    assert verdict.reason == "running"
    assert "cuda-oom" in reasons_of(verdict)


def test_a_loop_contributes_where_the_cause_is_known():
    """If the last death has a known cause, the crash loop only contributes."""
    looped = {"earlier_deaths": (DIED - 120, DIED - 60), "restarts": 2}
    assert judge(death(3, **looped)).reason == "crash-loop"
    verdict = judge(death(1, log=CUDA_OOM, **looped))
    assert verdict.reason == "cuda-oom"
    assert "crash-loop" in reasons_of(verdict)


def test_two_deaths_are_no_loop_yet():
    """Two deaths are not a crash loop, and neither are three deaths over an hour."""
    two = judge(death(3, earlier_deaths=(DIED - 60,), restarts=1))
    slow = judge(death(3, earlier_deaths=(DIED - 3600, DIED - 1800), restarts=2))
    assert "crash-loop" not in reasons_of(two) | reasons_of(slow)


def test_unknown_lists_what_to_collect():
    """The steps of an `unknown` verdict are the remedies of the gaps and the data to collect."""
    gap = Gap("the kernel log", "permission denied", "run it as root, or with `CAP_SYSLOG`")
    verdict = judge(death(3, log=("epoch 1",), gaps=(gap,), oom_kills=None))
    text = tell(verdict.finding)
    assert verdict.reason == "unknown"
    assert verdict.finding.steps[0] == "run it as root, or with `CAP_SYSLOG`"
    assert "Could not be read: the kernel log (permission denied)." in text
    assert "The log ends with: `epoch 1`." in text
    assert "PYTHONUNBUFFERED=1" in text


def test_findings_about_a_process_mention_no_container():
    """Findings about a process mention neither an engine nor a container."""
    for signal in (4, 6, 7, 8, 9, 11, 15, 2):
        verdict = judge(Evidence("process", "train.py", ended=DIED, signal=signal, log=()))
        text = "\n".join(map(tell, (verdict.finding, *verdict.contributing)))
        assert "docker" not in text.replace("docker kill -s INT", ""), (signal, text)
        assert "container" not in text, (signal, text)
        assert verdict.reason != "unknown"


def test_an_oom_kill_of_a_process_is_by_its_groups_limit():
    """An OOM kill in a process's own control group is attributed to the group's limit."""
    group = "/user.slice/job.scope"
    kill = oom_kill()
    own = type(kill)(kill.time, kill.constraint, group, group, "python", 7)
    verdict = judge(
        Evidence(
            "run",
            "llama",
            started=DIED - 60,
            ended=DIED,
            signal=9,
            cgroup=group,
            oom_kills=(own,),
            sample=Sample(DIED - 5, 2, memory_limit_bytes=64 * MIB, memory_peak_bytes=64 * MIB),
        )
    )
    assert verdict.reason == "oom-cgroup"
    assert "`MemoryMax=128M`" in tell(verdict.finding)


def test_a_start_that_failed_goes_before_everything():
    """The engine's error at the start takes precedence over all other causes."""
    error = 'OCI runtime create failed: exec: "nosuch": executable file not found in $PATH'
    evidence = Evidence(
        "container",
        "train",
        exit_code=127,
        ended=DIED,
        state=State("created", 127, error=error),
        settings=Settings(command=("nosuch",)),
        log=(),
    )
    verdict = judge(evidence)
    assert (verdict.reason, verdict.contributing) == ("start-cmd", ())


def test_a_port_in_use_at_the_start_has_its_reason():
    """The engine's error about an allocated port has the reason `port-in-use`."""
    error = (
        "driver failed programming external connectivity on endpoint train: Bind for"
        " 0.0.0.0:8080 failed: port is already allocated"
    )
    evidence = Evidence(
        "container", "train", exit_code=128, ended=DIED, state=State("created", 128, error=error)
    )
    assert judge(evidence).reason == "port-in-use"


def test_an_empty_log_is_lost_only_where_a_signal_threw_it_away():
    """An empty log is called lost only if a signal ended a Python process with buffered output."""
    unbuffered = Settings(command=("python", "train.py"), is_unbuffered=True)
    other = Settings(command=("sleep", "60"))
    assert "log-lost" in reasons_of(judge(death(137, log=())))
    for code, more in (
        (1, {"log": ()}),
        (137, {"log": None}),
        (137, {"log": ("epoch 1",)}),
        (137, {"log": (), "settings": unbuffered}),
        (137, {"log": (), "settings": other}),
    ):
        assert "log-lost" not in reasons_of(judge(death(code, **more)))


def test_a_threshold_that_was_edited_moves_the_verdict(tmp_path, monkeypatch):
    """The number of deaths that make a crash loop is read from the thresholds file."""
    ends = death(1, earlier_deaths=(DIED - 60, DIED - 30), restarts=2)
    assert "crash-loop" in reasons_of(judge(ends))
    path = tmp_path / "thresholds.yml"
    path.write_text(
        "groups:\n- name: mine\n  rules:\n"
        "  - {record: 'threshold:container_restart_loop:restarts', expr: vector(4)}\n"
    )
    monkeypatch.setenv("TRAINVITALS_THRESHOLDS_FILE", str(path))
    assert "crash-loop" not in reasons_of(judge(ends))
