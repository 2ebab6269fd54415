"""Advice that suits the framework, the scheduler and the GPUs in the log."""

from __future__ import annotations

import pytest

from tests.unit.verdicts.causes.test_words import STEPS, judge_log, raised


def advise(*lines, **known):
    """Return the advice of the verdict on a log as one text."""
    return " ".join(judge_log(*lines, exit_code=1, **known).finding.steps)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (
            "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 512 bytes",
            "cupy.get_default",
        ),
        ("mxnet.base.MXNetError: cudaMalloc retry failed: out of memory", "MXNET_GPU_MEM"),
        (
            "RuntimeError: level_zero backend failed (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
            "torch.xpu",
        ),
        ("darknet: CUDA Error: out of memory", "subdivisions"),
    ],
)
def test_a_gpu_out_of_memory_gets_the_advice_of_its_framework(message, named):
    """The advice for a GPU OOM names settings of the framework in the log, not PyTorch's."""
    steps = advise(*raised(message))
    assert named in steps
    assert "FSDP" not in steps
    assert "torch.cuda" not in steps


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("Batch 8: Invalid loss, terminating training", "clipnorm"),
        ("paddle.fluid: found NaN in loss", "FLAGS_check_nan_inf"),
        ("chainer.training: loss is nan", "chainer.set_debug"),
        ("jax.numpy: loss is nan, stopping", "JAX_DEBUG_NANS"),
        ("mxnet.gluon: loss is nan", "clip_global_norm"),
    ],
)
def test_a_loss_that_is_nan_gets_the_advice_of_its_framework(line, named):
    """The advice for a NaN loss names settings of the framework in the log, not PyTorch's."""
    steps = advise(*STEPS, line)
    assert named in steps
    assert "torch." not in steps


def test_tasks_that_never_came_are_named():
    """JAX's missing tasks are quoted, and the advice names no option of torchrun."""
    message = (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Names:",
        "/job:jax_worker/replica:0/task:2",
        "/job:jax_worker/replica:0/task:5",
    )
    finding = judge_log(*raised(*message), exit_code=1).finding
    assert "/job:jax_worker/replica:0/task:5" in finding.speaks_for[-1]
    assert "coordinator_address" in finding.steps[0]
    assert "--rdzv-id" not in " ".join(finding.steps)


def test_offline_mode_is_not_an_unreachable_server():
    """In offline mode, the advice is to unset the variable and not to test the server."""
    steps = advise(
        *raised("ConnectionError: Couldn't reach 'a/b' on the Hub (OfflineModeIsEnabled)")
    )
    assert "unset `HF_HUB_OFFLINE`" in steps
    assert "curl" not in steps


@pytest.mark.parametrize(
    ("message", "host"),
    [
        (
            "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='data.lab.example')",
            "data.lab.example",
        ),
        ("wandb.errors.CommError: Run initialization has timed out after 60 sec", "api.wandb.ai"),
        ("URLError: <urlopen error timed out> https://mirror.example/x.tar", "mirror.example"),
    ],
)
def test_the_server_of_the_log_is_tried(message, host):
    """The advice tests the server that the log names, not the Hugging Face Hub."""
    steps = advise(*raised(message))
    assert f"https://{host}`" in steps
    assert "huggingface.co" not in steps


def test_cards_for_data_centres_do_not_pass_for_another():
    """The override of the GPU's version is not advised for AMD's data centre GPUs."""
    message = "RuntimeError: HIP error: invalid device function"
    assert "HSA_OVERRIDE" in advise(*raised(message))
    assert "HSA_OVERRIDE" not in advise("device 0: gfx942", *raised(message))


def test_a_job_of_slurm_asks_for_more_memory():
    """In a Slurm job, the advice is to request more memory from Slurm, not from Docker."""
    lines = (
        "srun: job 7 queued",
        *STEPS,
        "RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.",
    )
    steps = advise(*lines)
    assert "sbatch --mem=" in steps
    assert "mem_limit" not in steps


@pytest.mark.parametrize(
    ("line", "kernel", "reason", "shown"),
    [
        (
            "HSA_STATUS_ERROR_MEMORY_FAULT: queue aborted",
            "amdgpu 0000:0c:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:8, for process p pid 9)",
            "cuda-illegal",
            "no-retry page fault",
        ),
        (
            "RuntimeError: synStatus=8 [Device not found] Device acquire failed.",
            "habanalabs 0000:4d:00.0: Failed to initialize hl3. Device is NOT usable !",
            "hpu-acquire",
            "NOT usable",
        ),
        (
            "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "cgroup: fork rejected by pids controller in /system.slice/docker-0a.scope",
            "pids-limit",
            "pids controller",
        ),
    ],
)
def test_the_kernel_log_is_a_second_sign(line, kernel, reason, shown):
    """A matching kernel line is quoted and raises the confidence to high."""
    verdict = judge_log(*STEPS, line, exit_code=1, kernel_lines=(kernel,))
    assert (verdict.reason, verdict.confidence) == (reason, "high")
    assert shown in " ".join(verdict.finding.speaks_for)


def test_a_card_that_the_driver_gave_up_is_not_in_use():
    """For a device that the driver gave up, the advice is to reload the driver."""
    line = "RuntimeError: synStatus=8 [Device not found] Device acquire failed."
    kernel = ("habanalabs hl3: Failed to communicate with Device CPU (CPU-CP timeout)",)
    assert "modprobe -r habanalabs" in advise(*raised(line), kernel_lines=kernel)
    assert "lsof" in advise(*raised(line))


def test_the_remedy_in_a_message_is_shown_whole():
    """The advice repeats the remedy in an exception's message, also after an empty line."""
    message = (
        "ValueError: the loader cannot be resumed.",
        "    Please set `resume=False`,",
        "",
        "    or call `state.reset()` before.",
        "",
        "3 files left behind",
    )
    steps = judge_log(*raised(*message), exit_code=1).finding.steps
    assert steps[0].endswith("Please set 'resume=False', or call 'state.reset()' before.")
    assert "python -m pdb -c continue /srv/a/train.py" in steps[-1]
    plain = judge_log(*raised("ValueError: 7"), exit_code=1).finding.steps
    assert not any(step.startswith("Follow") for step in plain)


def test_the_first_warning_of_nccl_comes_first():
    """The first of several NCCL warnings is quoted."""
    lines = tuple(
        f"n1:2:3 [0] NCCL WARN NET/IB : Got completion with status={code}" for code in (12, 5)
    )
    assert "status=12" in judge_log(*STEPS, *lines, exit_code=1).finding.speaks_for[0]
