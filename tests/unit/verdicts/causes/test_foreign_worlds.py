"""Wordings and clocks of other schedulers, hosts and pods, and advice that suits them."""

import pytest

from tests.unit.verdicts.causes.test_pods import WAITING, write_pod
from tests.unit.verdicts.causes.test_words import STEPS, judge_log, raised
from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.evidence_files import read_files
from trainvitals.sources.containers.pod import is_pending, parse_pod
from trainvitals.verdicts.causes.diagnosis import diagnose_evidence
from trainvitals.verdicts.causes.judge import judge
from trainvitals.views.death.report import format_report

KILLED = (
    "{stamp} n4 kernel: Out of memory: Kill process 611 (python3) score 902 or sacrifice child\n"
    "{stamp} n4 kernel: Killed process 611 (python3) total-vm:900kB, anon-rss:800kB, file-rss:0kB\n"
)
OFF_THE_BUS = """\
[  61.10] NVRM: The NVIDIA GPU 0000:41:00.0
[  61.20]                NVRM: (PCI ID: 10de:20b5) installed in this system has
[  61.31]                NVRM: fallen off the bus and is not responding to commands.
"""
PROBE = """\
[  61.10] nvidia: probe of 0000:41:00.0 failed with error -1
[  61.20] NVRM: The NVIDIA probe routine failed for 1 device(s).
"""
NO_GPU = "\n".join(raised("RuntimeError: No CUDA GPUs are available")) + "\n"
OOM_LIMIT = """\
[ 710.0] memory: usage 67108864kB, limit 67108864kB, failcnt 4
[ 712.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0,oom_memcg=/job,task_memcg=/job,task=python,pid=88,uid=0
[ 712.2] Memory cgroup out of memory: Killed process 88 (python) total-vm:9kB, anon-rss:8kB
"""


def read(tmp_path, log=None, kernel=None):
    """Return the evidence of a log file and a kernel log file."""
    paths = []
    for name, text in (("a.log", log), ("k.log", kernel)):
        if text is not None:
            (tmp_path / name).write_text(text)
        paths.append(None if text is None else tmp_path / name)
    return read_files(paths[0], paths[1], clock=lambda: 1_795_300_100.0)


def steps_of(verdict):
    """Return the advice of a verdict as one text."""
    return "\n".join(verdict.finding.steps)


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGTERM"])
@pytest.mark.parametrize(
    ("reason", "words"),
    [("slurm-preempted", "preempted"), ("slurm-time-limit", "timed-out")],
)
def test_submitit_says_why_it_was_signalled(name, reason, words):
    """Submitit's reason for a signal is the cause, whatever the signal's name."""
    verdict = judge_log(
        *STEPS,
        "submitit WARNING (2024-02-03 10:00:00,001) - Bypassing signal SIGTERM",
        f"submitit WARNING (2024-02-03 10:00:00,114) - Caught signal {name} on n4: this job is {words}.",
        "submitit INFO (2024-02-03 10:00:00,120) - Requeued job 71 (2 remaining timeouts)",
        "submitit INFO (2024-02-03 10:00:00,130) - Exiting gracefully after preemption/timeout.",
    )
    assert verdict.reason == reason
    assert [each.reason for each in verdict.contributing] == ["slurm-requeued"]


def test_a_job_that_has_not_timed_out_has_no_time_limit():
    """Submitit's message that a job has not timed out is not read as a time limit."""
    verdict = judge_log(
        *STEPS,
        "submitit INFO (2024-02-03 10:00:00,1) - Job has not timed out. Ran 3 minutes out of requested 60 minutes.",
        "submitit INFO (2024-02-03 10:00:00,2) - Requeued job 71 (2 remaining timeouts)",
    )
    assert verdict.reason == "slurm-requeued"


@pytest.mark.parametrize(
    ("line", "is_terminal"),
    [
        ("Received SIGHUP, saving checkpoint and leaving", False),
        ("got SIGHUP, reloading the configuration", False),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: got signal: 1", True),
        ("./run.sh: line 4: 811 Hangup                  python train.py", True),
    ],
)
def test_a_handled_signal_is_no_closed_terminal(line, is_terminal):
    """SIGHUP that a program handles is not a hangup, because a scheduler may send that signal."""
    assert (judge_log(*STEPS, line).reason == "hangup") is is_terminal


@pytest.mark.parametrize(
    ("code", "reason"),
    [(271, "term-outside"), (265, "kill-outside"), (-15, "term-outside"), (-11, "segfault")],
)
def test_pbs_and_python_have_signals_in_their_codes(code, reason):
    """Exit codes of PBS (256 plus the signal) and of `subprocess` (negated) are read as signals."""
    assert judge_log(*STEPS, exit_code=code).reason == reason


@pytest.mark.parametrize(
    "stamp",
    [
        "апр 28 01:24:43",
        "28. Apr 01:24:43",
        "Okt  3 01:24:43",
        "mars 28 01:24:43",
        "4月 28 01:24:43",
        "28 avril 01:24:43",
        "Xyz 28 01:24:43",
        "[Пт апр 28 01:24:43 2023]",
        "[Fr Mär 28 01:24:43 2025]",
    ],
)
@pytest.mark.parametrize("is_beside", [False, True])
def test_a_kernel_log_speaks_the_language_of_its_machine(tmp_path, stamp, is_beside):
    """A kernel log is read whatever the language of its month names."""
    text = KILLED.format(stamp=stamp)
    if stamp.startswith("["):
        text = text.replace("n4 kernel: ", "")
    log = "step 1 loss 2.0\nKilled\n" if is_beside else None
    assert judge(read(tmp_path, log, text)).reason == "oom-host"
    (tmp_path / "alone.log").write_text(text)
    assert judge(read_files(tmp_path / "alone.log")).reason == "oom-host"


def test_the_month_of_another_language_is_known(tmp_path):
    """Russian month names are read, so that lines of two months are in order."""
    lines = KILLED.format(stamp="июл 30 10:00:00") + KILLED.format(stamp="окт  3 10:00:00")
    first, second = (kill.time for kill in read(tmp_path, None, lines).oom_kills)
    assert second - first == 65 * 86_400


def test_times_since_the_boot_of_another_machine_are_no_clock_times(tmp_path):
    """Times in a `dmesg` file are reported as durations since boot, not as clock times."""
    evidence = read(tmp_path, None, OOM_LIMIT)
    assert [kill.time for kill in evidence.oom_kills] == [712.1]
    report = format_report(diagnose_evidence(evidence, asked=1_795_300_100.0), width=100)
    assert "12m after boot" in report or "11m 52s after boot" in report


@pytest.mark.parametrize("kernel", [OFF_THE_BUS, PROBE], ids=["messages", "probe"])
def test_a_gpu_that_the_driver_lost_is_the_cause_of_no_gpu(tmp_path, kernel):
    """A GPU that the driver lost is the cause if the program finds no GPU."""
    verdict = judge(read(tmp_path, NO_GPU, kernel))
    assert (verdict.reason, verdict.confidence) == ("gpu-lost", "high")
    assert "41:00" in verdict.summary
    assert "cuda-no-driver" in {each.reason for each in verdict.contributing}
    assert judge(read(tmp_path, None, kernel)).reason == "gpu-lost"


def test_a_card_that_the_driver_does_not_support_is_not_lost(tmp_path):
    """A GPU that the driver does not support is not reported as lost."""
    old = (
        "[ 61.1] NVRM: The NVIDIA GeForce 8400 GPU is not supported by the 570.1 driver release.\n"
    )
    assert judge(read(tmp_path, NO_GPU, old + PROBE)).reason == "cuda-no-driver"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            135,
            "Memory failure: 0x1: Sending SIGBUS to python3:77 due to hardware memory corruption",
        ),
        (137, "Memory failure: 0x1: Killing python3:77 due to hardware memory corruption"),
        (135, "mce: Uncorrected hardware memory error in user-access at 1000"),
        (135, "EDAC MC0: 1 UE memory read error on CPU#0Channel#1_DIMM#0 (channel:1 slot:0)"),
    ],
)
def test_faulty_memory_of_the_host_has_its_own_reason(tmp_path, code, line):
    """A hardware memory error of the host explains SIGBUS instead of a full /dev/shm."""
    evidence = read(tmp_path, "step 1 loss 2.0\n", f"[ 9.1] {line}\n")
    verdict = judge(
        Evidence(
            **{
                **{name: getattr(evidence, name) for name in Evidence.__dataclass_fields__},
                "exit_code": code,
            }
        )
    )
    assert verdict.reason == "memory-hardware"
    assert line in "\n".join(verdict.finding.speaks_for)
    assert judge(read(tmp_path, None, f"[ 9.1] {line}\n")).reason == "memory-hardware"


@pytest.mark.parametrize(
    "line",
    [
        "Memory failure: 0x1: Sending SIGBUS to mysqld:77 due to hardware memory corruption",
        "EDAC MC0: 1 CE memory read error on CPU#0Channel#1_DIMM#0 (channel:1 slot:0)",
    ],
)
def test_memory_errors_of_others_and_corrected_ones_are_not_the_cause(tmp_path, line):
    """Memory errors of other programs and corrected errors are not the cause."""
    verdict = judge(
        read(tmp_path, "step 1 loss 2.0\nBus error (core dumped)\n", f"[ 9.1] {line}\n")
    )
    assert verdict.reason == "sigbus-shm"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("disk quota exceeded", "disk-full"),
        ("no space left on device", "disk-full"),
        ("too many open files", "fd-limit"),
        ("read-only file system", "read-only"),
        ("permission denied", "permission"),
        ("input/output error", "io-error"),
    ],
)
def test_the_words_of_an_errno_may_be_in_lower_case(words, reason):
    """TensorFlow's lower-case error messages are recognised, with the path that precedes them."""
    error = f"tensorflow.python.framework.errors_impl.UnknownError: /data/run 2/ckpt-1; {words} [Op:SaveV2]"
    verdict = judge_log(*raised(error), exit_code=1)
    assert verdict.reason == reason
    if reason in {"disk-full", "read-only", "permission"}:
        assert "`/data/run 2/ckpt-1`" in verdict.summary


def test_what_is_uncertain_is_not_a_fact():
    """A summary with low confidence does not state that the OOM killer was the cause."""
    for line in (
        "mpirun noticed that process rank 1 with PID 9 on node n7 exited on signal 9 (Killed).",
        "[2024-01-02 10:00:00,001] [ERROR] [launch.py:1:main] ['python'] exits with return code = -9",
    ):
        verdict = judge_log(*STEPS, line)
        assert verdict.confidence == "low"
        assert "OOM killer killed" not in verdict.summary
        assert "unknown" in verdict.summary


DRIVER = (
    "failed to create containerd task: OCI runtime create failed: error running hook #0: exit status 1,"
    " stderr: Auto-detected mode as 'legacy'\n{indent}nvidia-container-cli: initialization error: nvml"
    " error: driver/library version mismatch: unknown\n"
)
START_ERROR = """\
    State:       Waiting
      Reason:    CrashLoopBackOff
    Last State:  Terminated
      Reason:    StartError
      Message:   {message}      Exit Code:    128
      Started:      Thu, 01 Jan 1970 01:00:00 +0100
      Finished:     Fri, 15 Sep 2023 09:56:47 +0200
"""


@pytest.mark.parametrize("indent", ["", "        ", "  "])
def test_a_message_goes_on_in_the_next_line(indent):
    """A start error on two lines is read whole, as are the lines that follow."""
    text = write_pod(
        START_ERROR.format(message=DRIVER.format(indent=indent)),
        f"  Warning  Failed  1m  kubelet  Error: {DRIVER.format(indent=indent)}",
        restarts=5,
    )
    evidence = parse_pod(text)
    assert judge(evidence).reason == "start-nvidia-init"
    assert evidence.restarts == 5
    assert evidence.ended == 1_694_764_607.0
    assert parse_pod("\n".join(evidence.pod)).pod == evidence.pod
    assert "version mismatch" in "\n".join(judge(evidence).finding.speaks_for)


def test_a_pending_pod_has_not_died():
    """A pending pod is reported as not starting, because the node's disk is full."""
    event = (
        '  Warning  Failed  6m (x3 over 15m)  kubelet  Failed to pull image "a/b:1": rpc error: code = Unknown'
        " desc = failed to extract layer sha256:1: write /var/lib/x: no space left on device: unknown\n"
        '  Normal   BackOff  8s (x9 over 9m)   kubelet  Back-off pulling image "a/b:1"\n'
    )
    evidence = parse_pod(write_pod(WAITING.format("ImagePullBackOff"), event, status="Pending"))
    diagnosis = diagnose_evidence(evidence, asked=0.0)
    assert is_pending(evidence)
    assert format_report(diagnosis, width=100).startswith("Pod fit-0 does not start.")
    assert diagnosis.verdict.reason == "image-pull"
    assert "disk of the node is full" in diagnosis.verdict.summary
    assert "no space left" in diagnosis.verdict.finding.speaks_for[0]


def test_the_year_1_is_not_2001():
    """The kubelet's date in the year 1 is read as an unknown time."""
    lost = (
        "    State:          Terminated\n      Reason:       ContainerStatusUnknown\n      Exit Code:    137\n"
        "      Started:      Mon, 01 Jan 0001 00:00:00 +0000\n      Finished:     Mon, 01 Jan 0001 00:00:00 +0000\n"
    )
    evidence = parse_pod(
        write_pod(
            lost,
            status="Failed",
            more='Reason:       Evicted\nMessage:      Usage of EmptyDir volume "shm" exceeds the limit "2Gi". \n',
        )
    )
    assert (evidence.started, evidence.ended) == (None, None)
    verdict = judge(evidence)
    assert (verdict.reason, "2Gi" in verdict.summary) == ("pod-evicted", True)
    assert "sizeLimit" in steps_of(verdict)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            ("=>> PBS: job killed: walltime 360021 exceeded limit 360000",),
            "walltime=200:00:00",
        ),
        (
            (
                "+ srun --time=3-00:00:00 --mem=900G python a.py",
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
            ),
            "--time=144:00:00",
        ),
        (
            (
                "+ srun --time=3-00:00:00 --mem=900G python a.py",
                "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0. Some were killed.",
            ),
            "--mem=1350G",
        ),
        (
            (
                "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
                "    Total Requested Memory :                     64000.00 MB",
            ),
            "#BSUB -M 94G",
        ),
        (("slurmstepd: error: Exceeded job memory limit at some point.",), "--mem=SIZE"),
    ],
)
def test_advice_requests_more_than_the_job_had(lines, words):
    """Advice requests more time or memory than the log shows, or names no figure without one."""
    assert words in steps_of(judge_log(*STEPS, *lines))


def test_the_limit_of_the_kernel_log_is_in_the_advice(tmp_path):
    """The memory limit in the kernel log appears in the summary and determines the advice."""
    verdict = judge(read(tmp_path, "step 1 loss 2.0\nKilled\n", OOM_LIMIT))
    assert "64.0 GiB" in verdict.summary
    assert "96" in steps_of(verdict)


def test_offloading_comes_before_the_data_loader(tmp_path):
    """For DeepSpeed, advice on offloading precedes advice on the data loader."""
    log = "Adam Optimizer #0 is created with AVX512 arithmetic capability.\nKilled\n"
    steps = judge(read(tmp_path, log, OOM_LIMIT)).finding.steps
    places = [
        next(i for i, step in enumerate(steps) if word in step)
        for word in ("96", "offload", "num_workers")
    ]
    assert places == sorted(places)


def test_advice_is_of_the_framework_and_of_the_world():
    """Advice suits the framework and the container runtime of the run."""
    error = (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /d/x; Too many open files"
    )
    verdict = judge_log(*raised(error), exit_code=1)
    assert verdict.finding.steps[0].count("ulimit -n") == 1
    assert "set_sharing_strategy" not in steps_of(verdict)
    assert "docker" not in steps_of(verdict)
    error = "jaxlib.xla_extension.XlaRuntimeError: cuInit: CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
    assert "NCCL" not in steps_of(judge_log(*raised(error), exit_code=1))
    denied = "PermissionError: [Errno 13] Permission denied: '/models/out.pt'"
    inside = judge_log(
        "INFO:    Converting SIF file to temporary sandbox...", *raised(denied), exit_code=1
    )
    assert "--bind" in steps_of(inside)
    assert "--user" not in steps_of(inside)


def test_a_removed_disk_is_not_checked_for_errors(tmp_path):
    """For a removed disk, the advice repeats the kernel's hint and does not mention `fsck`."""
    kernel = (
        "[ 7.1] nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff\n"
        '[ 7.2] nvme nvme1: Try "nvme_core.default_ps_max_latency_us=0 pcie_aspm=off pcie_port_pm=off" and report a bug\n'
        "[ 7.3] nvme nvme1: Removing after probe failure status: -19\n"
        "[ 7.4] EXT4-fs (nvme1n1): Remounting filesystem read-only\n"
    )
    log = "\n".join(raised("OSError: [Errno 30] Read-only file system: '/mnt/a/b.pt'")) + "\n"
    verdict = judge(read(tmp_path, log, kernel))
    assert verdict.reason == "read-only"
    assert "pcie_port_pm=off" in steps_of(verdict)
    assert "fsck" not in steps_of(verdict)


def test_a_missing_ldconfig_is_the_hooks():
    """A missing `ldconfig.real` is a fault of NVIDIA's container hook, not of the driver."""
    verdict = judge_log(
        "docker: Error response from daemon: OCI runtime create failed: error running hook: stderr:"
        " nvidia-container-cli: ldcache error: open failed: /sbin/ldconfig.real:"
        " no such file or directory: unknown."
    )
    assert verdict.reason == "start-nvidia-hook"
    assert 'ldconfig = "@/sbin/ldconfig"' in steps_of(verdict)
    alone = judge_log("nvidia-container-cli: /sbin/ldconfig.real: no such file or directory")
    assert alone.reason == "start-nvidia-hook"


def test_drivers_in_the_image_are_removed_from_it():
    """If NVIDIA's libraries exist in the image, the advice is to remove them."""
    verdict = judge_log(
        "docker: Error response from daemon: OCI runtime create failed: error running hook: stderr:"
        " nvidia-container-cli: mount error: file creation failed: /m/usr/lib/libnvidia-ml.so.1: file exists: unknown."
    )
    assert verdict.reason == "start-nvidia-hook"
    assert "libnvidia-" in steps_of(verdict)
    assert "ldconfig" not in steps_of(verdict)


def test_nothing_is_accused_that_is_not_there():
    """JAX's probe for a TPU and MPI's messages do not add causes to a Slurm time limit."""
    verdict = judge_log(
        "xla_bridge.py:863] Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so:"
        " libtpu.so: cannot open shared object file: No such file or directory",
        *STEPS,
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***",
        "ORTE has lost communication with a remote daemon.",
    )
    assert verdict.reason == "slurm-time-limit"
    assert verdict.contributing == ()


def test_the_evidence_has_the_decisive_line(tmp_path):
    """The evidence quotes the decisive part of long messages, paths, Xids and kernel lines."""
    ray = raised(
        "ray.exceptions.RayActorError: The actor died.",
        "ip: 10.0.0.2",
        "The actor is dead because its node has died.",
    )
    assert "its node has died" in "\n".join(judge_log(*ray, exit_code=1).finding.speaks_for)
    path = "/scratch/" + "a" * 250
    full = judge_log(
        *raised(f"x.errors_impl.ResourceExhaustedError: {path}; disk quota exceeded [Op:SaveV2]"),
        exit_code=1,
    )
    assert "disk quota exceeded" in "\n".join(full.finding.speaks_for)
    assert "quota -s" in full.finding.steps[0]
    xids = "".join(
        f"[ {at}.1] NVRM: Xid (PCI:0000:9c:00): {code}, x\n"
        for at, code in enumerate((48, 63, 94, 94, 94))
    )
    assert "Xid 48 " in judge(read(tmp_path, None, xids)).finding.speaks_for[0]
    eio = "\n".join(raised("OSError: [Errno 5] Input/output error")) + "\n"
    beside = judge(read(tmp_path, eio, "[ 1.1] nfs: server 10.0.0.9 not responding, timed out\n"))
    assert "10.0.0.9" in "\n".join(beside.finding.speaks_for)


def test_the_end_of_a_sentence_is_not_of_the_path():
    """The full stop after a checkpoint's path is not part of the path."""
    verdict = judge_log(
        "INFO:tensorflow:Saving checkpoints for 10 into /models/net.",
        *raised("OSError: [Errno 28] No space left on device"),
        exit_code=1,
    )
    assert "`/models/net`" in verdict.summary
