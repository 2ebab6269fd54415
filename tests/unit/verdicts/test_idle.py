"""The reasons why a held device is idle, determined from synthetic processes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from trainvitals.runfile import Phase, Record
from trainvitals.sources.accelerators.idleness import IdleDevice
from trainvitals.sources.accelerators.reading import (
    AcceleratorReading,
    Identity,
    Measurements,
    ProcessMemory,
)
from trainvitals.sources.host.activity import Activity, Surroundings
from trainvitals.verdicts.idle import judge_idle
from trainvitals.verdicts.waits import classify

WORLD = ("10.0.0.1", "29500", "2")
MIB = 1 << 20


def device(index: int = 0, *pids: int) -> AcceleratorReading:
    """Return a device that is held by these processes."""
    identity = Identity("gpu", index, f"G{index}", "H100", f"0:{index}b", "570")
    processes = tuple(ProcessMemory(pid, 1) for pid in pids)
    return AcceleratorReading(identity, "ok", 1.0, Measurements(utilization_ratio=0.0), processes)


def act(pid: int = 7, letter: str = "S", wait: str | None = "futex_do_wait", **others) -> Activity:
    """Return an idle process with these differences."""
    others = {"name": "python", "cores": 0.0, "bytes_per_second": 0.0, **others}
    return Activity(pid, letter=letter, wait=wait, **others)


def judge(*seen: Surroundings, busy=(), ranks=()) -> tuple[str, str]:
    """Return the reason and the summary of a device that the first process holds."""
    idle = judge_idle(
        IdleDevice(
            device(0, seen[0].pid),
            dict(busy),
            {one.pid: one for one in seen},
            SimpleNamespace(ranks=ranks) if ranks else None,
        )
    )
    assert idle.pid == seen[0].pid
    return idle.reason, idle.summary


def alone(**own) -> Surroundings:
    """Return a process without relatives."""
    return Surroundings(7, act(**own), was_seen=True)


def with_workers(*workers: Activity, **own) -> Surroundings:
    """Return a process with these descendants."""
    return replace(alone(**own), workers=workers)


def worker(**does) -> Activity:
    """Return a loader worker."""
    return act(8, **{"name": "pt_data_worker", **does})


def compiler(name: str) -> Activity:
    """Return a compiler that the process started."""
    return act(8, name=name, wait="do_wait")


EACH = [
    (Surroundings(7, None, was_seen=True), "ended", "PID 7 has ended"),
    (Surroundings(7, None, shows_all=True), "ended", "PID 7 has ended"),
    (Surroundings(7), "unseen", "another PID namespace"),
    (alone(letter="Z", wait=""), "ended", "python (PID 7) has ended, and its parent"),
    (alone(letter="T", wait="do_signal_stop"), "stopped", "kill -CONT 7"),
    (alone(letter="t", wait="ptrace_stop"), "stopped", "by a debugger"),
    (with_workers(compiler("nvcc"), compiler("cicc")), "compiles", "nvcc, cicc, which it started"),
    (with_workers(compiler("ninja"), cores=1.0), "compiles", "ninja"),
    (
        with_workers(worker(is_compile_worker=True, cores=0.9)),
        "compiles",
        "1 compile workers of torch.compile",
    ),
    (with_workers(worker(is_compile_worker=True)), "sleeps", "futex_do_wait"),
    (
        replace(alone(letter="D"), blocked=("uvm_va_space_down_write",)),
        "blocked_in_driver",
        "in uvm_va_space_down_write",
    ),
    (replace(alone(), blocked=("os_acquire_mutex",)), "blocked_in_driver", "os_acquire_mutex"),
    (replace(alone(), blocked=("ioctl",)), "blocked_in_driver", "ioctl"),
    (
        replace(alone(letter="D"), blocked=("rwsem_down_read_slowpath",)),
        "blocked_in_driver",
        "cannot be interrupted, in rwsem_down_read_slowpath",
    ),
    (replace(alone(letter="D", wait=None), blocked=("",)), "blocked_in_driver", "a system call"),
    (
        replace(alone(letter="D", wait=None), blocked=("",), io_pressure_ratio=0.6),
        "waits_for_data",
        "with an I/O pressure of 60%",
    ),
    (
        replace(alone(letter="D"), blocked=("folio_wait_bit_common",)),
        "waits_for_data",
        "in folio_wait_bit_common",
    ),
    (replace(alone(letter="D"), blocked=("rpc_wait_bit_killable",)), "waits_for_data", "rpc_wait"),
    (alone(bytes_per_second=80.0 * MIB), "waits_for_data", "reads files at 80.0 MiB/s"),
    (replace(alone(letter="D"), blocked=("kernel_clone",)), "sleeps", "futex"),
    (alone(letter="R", wait="", cores=0.98), "computes_on_cpu", "uses 1.0 CPU cores"),
    (alone(cores=3.5, bytes_per_second=80.0 * MIB), "computes_on_cpu", "uses 3.5 CPU cores"),
    (replace(alone(cores=0.2), running=1), "computes_on_cpu", "uses 0.2"),
    (
        replace(alone(cores=0.01), running=1, cpu_pressure_ratio=0.9),
        "computes_on_cpu",
        "with a CPU pressure of 90%",
    ),
    (
        with_workers(worker(cores=1.0), worker(cores=0.9)),
        "waits_for_data",
        "its 2 child processes, which use 1.9 CPU cores",
    ),
    (with_workers(worker(letter="D"), worker()), "waits_for_data", "of which 1 read files"),
    (
        with_workers(worker(wait="sk_wait_data"), worker()),
        "waits_for_data",
        "of which 1 wait for the network",
    ),
    # A helper program such as an uploader always waits for the network.
    (with_workers(act(8, name="wandb-core", wait="sk_wait_data")), "sleeps", "futex_do_wait"),
    (alone(wait="wait_woken", waits_on="socket"), "waits_for_data", "from the network"),
    (alone(wait="sk_wait_data"), "waits_for_data", "from the network"),
    (alone(wait="anon_pipe_read", waits_on="pipe"), "waits_for_data", "through a pipe"),
    (alone(wait="pipe_read"), "waits_for_data", "through a pipe"),
    (alone(wait="wait_woken", waits_on="terminal"), "sleeps", "input at a terminal"),
    (replace(alone(wait="ep_poll"), threads=frozenset({"ZMQbg/IO/0"})), "sleeps", "notebook"),
    (alone(wait="hrtimer_nanosleep"), "sleeps", "sleeps, in hrtimer_nanosleep"),
    (alone(wait=""), "sleeps", "sleeps"),
    (alone(wait=None, bytes_per_second=None), "unseen", "may not read what it waits for"),
]


@pytest.mark.parametrize(("seen", "reason", "evidence"), EACH)
def test_a_process_has_one_reason_with_its_evidence(seen, reason, evidence):
    """The state and activity of a process determine the reason and its evidence."""
    found, summary = judge(seen)
    assert (found, evidence in summary) == (reason, True), (found, summary)


def test_a_device_without_a_known_process_is_unseen():
    """A device for which the driver lists no process has the reason `unseen`."""
    idle = judge_idle(IdleDevice(device(), {}, {}))
    assert (idle.reason, idle.pid) == ("unseen", None)


def test_of_several_processes_the_most_telling_one_is_the_reason():
    """Of several processes, one that waits for data takes precedence over a sleeping one."""
    sleeper = Surroundings(8, act(8, wait="ep_poll"))
    reader = Surroundings(9, act(9, bytes_per_second=5.0 * MIB))
    idle = judge_idle(IdleDevice(device(0, 8, 9), {}, {8: sleeper, 9: reader}))
    assert (idle.reason, idle.pid) == ("waits_for_data", 9)


# ---- other ranks ----


def waiting(**others) -> Surroundings:
    """Return a rank that waits for the network."""
    return replace(alone(wait="ep_poll"), world=WORLD, **others)


def test_a_rank_waits_for_a_sibling_that_is_busy():
    """A rank waits for a busy process that was started with the same launcher variables."""
    sibling = act(8, cores=1.0)
    assert judge(waiting(siblings=(sibling,))) == (
        "waits_for_rank",
        "python (PID 7) waits for process 8 of the same launch, which uses 1.0 CPU cores",
    )
    assert judge(waiting(siblings=(act(8),)))[0] == "sleeps"


def test_processes_of_one_parent_are_ranks_only_with_evidence():
    """Two processes of one parent are ranks only if a thread of torch.distributed shows it."""
    kernel = replace(alone(wait="ep_poll"), siblings=(act(8, cores=1.0),))
    assert judge(kernel)[0] == "sleeps"
    rank = replace(kernel, threads=frozenset({"pt_gloo_runloop"}))
    assert judge(rank)[0] == "waits_for_rank"


def test_a_rank_waits_for_one_whose_device_is_busy():
    """A rank waits for an idle process whose device is busy."""
    seen = waiting(siblings=(act(8),))
    reason, summary = judge(seen, busy={8: device(3, 8)}.items())
    assert (reason, summary.endswith("whose gpu3 is busy")) == ("waits_for_rank", True)


def test_a_busy_rank_does_not_wait_for_another_one():
    """A rank that uses the CPU does not wait for another busy rank."""
    seen = replace(waiting(siblings=(act(8, cores=1.0),)), own=act(cores=0.8))
    assert judge(seen)[0] == "computes_on_cpu"


def make_rank(rank: str, pid: int, *, ended: bool = False, phase: Phase | None = None):
    """Return a rank of a run."""
    live = None if phase is None else (0, phase)
    return SimpleNamespace(
        run="llama",
        rank=rank,
        liveness=SimpleNamespace(is_alive=not ended, host_pid=pid),
        ending=object() if ended else None,
        record=Record(live=live),
    )


def test_the_ranks_of_a_run_are_those_of_its_files():
    """Ranks are recognised by their run files, even without a common launcher."""
    stopped = Surroundings(8, act(8, letter="T"))
    ranks = (make_rank("0", 7), make_rank("1", 8))
    reason, summary = judge(alone(), stopped, ranks=ranks)
    assert reason == "waits_for_rank"
    assert "waits for rank 1 of its run, which is stopped by a signal" in summary


def test_a_rank_waits_for_one_that_ended():
    """A rank waits for another rank that has ended."""
    ranks = (make_rank("0", 7), make_rank("1", 8, ended=True))
    reason, summary = judge(alone(), ranks=ranks)
    assert (reason, summary.endswith("rank 1 of its run, which has ended")) == (
        "waits_for_rank",
        True,
    )


@pytest.mark.parametrize(
    ("phase", "reason"), [(Phase.COMPILE, "compiles"), (Phase.DATA_WAIT, "waits_for_data")]
)
def test_a_run_knows_its_phase(phase, reason):
    """The phase in the run file is the reason if the process itself shows none."""
    assert judge(alone(), ranks=(make_rank("0", 7, phase=phase),))[0] == reason


@pytest.mark.parametrize(
    ("function", "kind", "wait"),
    [
        ("nv_ioctl_wait_open_complete", "", "driver"),
        ("hl_wait_ioctl", "", "driver"),
        ("io_schedule", "", "disk"),
        ("nfs_wait_bit_killable", "", "disk"),
        ("request_wait_answer", "", "disk"),
        ("unix_stream_read_generic", "", "network"),
        ("tcp_recvmsg_locked", "", "network"),
        ("wait_for_partner", "file", "pipe"),
        ("n_tty_read", "", "terminal"),
        ("wait_woken", "socket", "network"),
        ("do_fork", "", "fork"),
        ("hrtimer_nanosleep", "", "other"),
        ("", "", "unknown"),
        (None, "", "unknown"),
    ],
)
def test_a_kernel_function_tells_what_is_waited_for(function, kind, wait):
    """A kernel function and the file's type determine what a process waits for."""
    assert classify(function, kind) == wait
