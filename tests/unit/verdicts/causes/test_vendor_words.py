"""Errors documented by Linux, CUDA, NCCL, Slurm, the Hugging Face Hub and Python packages."""

from __future__ import annotations

import os

import pytest

from tests.unit.verdicts.causes.test_words import STEPS, judge_log, raised

ERRNO = {
    "io-error": (5, 6, 19, 61, 70, 74, 107, 108, 112, 116, 117, 121, 123),
    "disk-full": (27, 28, 122),
    "fd-limit": (24,),
    "read-only": (30,),
    "permission": (1, 13),
    "missing-file": (2,),
}
RAISED = {
    "cuda-illegal": (
        *(
            f"RuntimeError: CUDA error: {words}"
            for words in (
                "an illegal memory access was encountered",
                "an illegal instruction was encountered",
                "misaligned address",
                "operation not supported on global/shared address space",
                "invalid program counter",
                "hardware stack error",
                "unspecified launch failure",
                "invalid address space",
            )
        ),
        "RuntimeError: CUDA_ERROR_INVALID_PC",
        "RuntimeError: CUDA_ERROR_HARDWARE_STACK_ERROR",
        "RuntimeError: cudaErrorMisalignedAddress",
    ),
    "cpu-alloc": ("RuntimeError: $ Torch: not enough memory: you tried to allocate 1GB.",),
    "hf-gated": (
        "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://huggingface.co/a/b",
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/a/b",
    ),
    "net-connect": (
        "urllib.error.HTTPError: HTTP Error 503: Service Unavailable",
        "urllib.error.HTTPError: HTTP Error 502: Bad Gateway",
        "socket.timeout: The read operation timed out",
        "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
        "OSError: [Errno 100] Network is down",
    ),
    "credentials": (
        "google.auth.exceptions.RefreshError: ('invalid_grant: Token has been expired or revoked.')",
        "azure.core.exceptions.ClientAuthenticationError: Server failed to authenticate the request.",
        "wandb.errors.errors.AuthenticationError: API key must have 40+ characters, has 32.",
    ),
    "library-mismatch": (
        "google.protobuf.runtime_version.VersionError: Detected incompatible Protobuf Gencode/Runtime versions",
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (8, 5, 0)",
    ),
    "extension-build": (
        "triton.compiler.errors.CompilationError: at 1:0",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
    ),
    "bad-arguments": (
        "absl.flags._exceptions.UnrecognizedFlagError: Unknown command line flag 'x'",
        "hydra.errors.ConfigCompositionException",
    ),
    "shape-error": (
        "RuntimeError: Kernel size: (3 x 3). Kernel size can't be greater than actual input size",
        "RuntimeError: input.size(-1) must be equal to input_size. Expected 1, got 2",
    ),
    "nccl-timeout": (
        "RuntimeError: [Rank 0] Received a dump signal due to a collective timeout from this local rank",
    ),
}
PRINTED = {
    "oom-cgroup": ("JobState=OUT_OF_MEMORY Reason=OutOfMemory",),
    "slurm-time-limit": ("State: TIMEOUT (exit code 0)", "JobState=TIMEOUT Reason=TimeLimit"),
    "slurm-node-fail": ("State: NODE_FAIL (exit code 1)", "JobState=BOOT_FAIL Reason=x"),
    "slurm-preempted": ("State: PREEMPTED (exit code 0)",),
    "slurm-cancelled": (
        "State: CANCELLED by 1000 (exit code 0)",
        "TERM_OWNER: job killed by owner.",
    ),
    "time-limit": ("job_killed: hard limit h_rt exceeded",),
    "abort": ("free(): double free detected in tcache 2", "zsh: abort      python train.py"),
    "sigbus-shm": ("[1]  + 75076 bus error  python train.py",),
    "segfault": ("zsh: segmentation fault  python train.py",),
    "illegal-instr": ("zsh: illegal hardware instruction  python train.py",),
    "kill-outside": ("zsh: killed     python train.py", "[1]    75076 killed     python train.py"),
}
BAR = "Epoch 0:  16%|#5  | 7/45 [13:43<68:36, 6.44s/it, train_loss=0.08]"
_FRAMES = ('  File "/w/train.py", line 8, in <module>', "    main()")


@pytest.mark.parametrize(
    ("reason", "number"), [(reason, each) for reason, numbers in ERRNO.items() for each in numbers]
)
def test_an_errno_of_a_file_has_its_cause(reason, number):
    """An OSError with a Linux errno has the corresponding reason."""
    assert (
        judge_log(*raised(f"OSError: [Errno {number}] {os.strerror(number)}: '/data/a.bin'")).reason
        == reason
    )


@pytest.mark.parametrize(
    ("reason", "message"), [(reason, each) for reason, texts in RAISED.items() for each in texts]
)
def test_an_exception_of_a_vendor_has_its_cause(reason, message):
    """An exception that a vendor documents has the corresponding reason."""
    assert judge_log(*raised(message)).reason == reason


@pytest.mark.parametrize(
    ("reason", "line"), [(reason, each) for reason, texts in PRINTED.items() for each in texts]
)
def test_a_state_or_a_shell_s_word_has_its_cause(reason, line):
    """A scheduler's job state or a shell's signal message has the corresponding reason."""
    assert judge_log(*STEPS, line).reason == reason


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "[default3]:"])
def test_a_traceback_may_begin_behind_a_progress_bar(prefix):
    """A traceback that begins in the line of a progress bar is read."""
    error = "OSError: [Errno 5] Input/output error: '/data'"
    first, *others = ("Traceback (most recent call last):", *_FRAMES, error)
    log = (f"{BAR}{prefix}{first}", *(prefix + line for line in others))
    ends = "[rank: 3] Child process with PID 7 terminated with code 1. Forcefully terminating all"
    assert judge_log(*log).reason == "io-error"
    assert (
        judge_log(*log, f"{ends} other processes to avoid zombies", "Killed").reason == "io-error"
    )


def test_the_summary_of_a_tracker_is_no_progress():
    """The run summary that wandb prints after a traceback is not progress."""
    names = ("step 20", "epoch 3", "train/loss 0.2", "train/global_step 20", "lr 0.1", "loss 1")
    summary = (f"wandb: {name}" for name in ("Run summary:", *names))
    assert judge_log(*raised("KeyError: 'image'"), *summary).reason == "exception"


def test_srun_kills_the_others_after_one_that_failed():
    """The kill of other tasks by srun is a consequence of the failed task's exception."""
    tail = (
        "srun: error: n1: task 3: Exited with exit code 1",
        "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-05-01T12:00:00 ***",
        "srun: error: n1: tasks 0-2: Killed",
    )
    assert judge_log(*raised("KeyError: 'image'"), *tail).reason == "exception"


@pytest.mark.parametrize("message", ["Connection reset by peer", "Broken pipe"])
def test_a_connection_lost_while_the_ranks_meet_is_of_the_rendezvous(message):
    """A connection lost in `init_process_group` is `rendezvous-timeout`, but not a later one."""
    frames = (
        "Traceback (most recent call last):",
        '  File "train.py", line 8, in main',
        '    dist.init_process_group("nccl")',
        '  File "/env/torch/distributed/distributed_c10d.py", line 318, in _store_based_barrier',
        "    store.add(store_key, 1)",
    )
    assert judge_log(*frames, f"RuntimeError: {message}").reason == "rendezvous-timeout"
    assert judge_log(*raised(f"RuntimeError: {message}")).reason != "rendezvous-timeout"


def test_a_script_s_exception_about_a_program_that_it_started_is_no_cause():
    """A script's exception about a failed program is not the cause, but the program's error is."""
    frames = (
        "Traceback (most recent call last):",
        '  File "run.py", line 7, in main',
        "    launch()",
    )
    end = "RuntimeError: Step 1 exited with non-zero status 1"
    log = (*raised("torch.cuda.OutOfMemoryError: CUDA out of memory."), *frames, end)
    assert judge_log(*log).reason == "cuda-oom"


def test_a_checkpoint_that_memory_did_not_suffice_for_is_no_full_disk():
    """A writer's error that follows a MemoryError is not reported as a full disk."""
    first = raised("MemoryError")
    joint = "During handling of the above exception, another exception occurred:"
    frames = (
        "Traceback (most recent call last):",
        '  File "a.py", line 7, in __exit__',
        "    end()",
    )
    end = "RuntimeError: [enforce fail at inline_container.cc:300] . unexpected pos 64 vs 8"
    assert judge_log(*first, "", joint, "", *frames, end).reason == "cpu-alloc"
    assert judge_log(*raised(end)).reason == "disk-full"
