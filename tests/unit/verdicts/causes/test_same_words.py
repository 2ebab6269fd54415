"""Error messages with several possible causes, which the surrounding lines distinguish."""

from __future__ import annotations

import pytest

from tests.unit.verdicts.causes.test_words import STEPS, judge_log, raised

_START = "Traceback (most recent call last):"


def fail_in(*frames, error):
    """Return the log of a program whose traceback has these frames."""
    return (*STEPS, _START, *frames, error)


_IN_DATASET = (
    '  File "/srv/a/fit.py", line 9, in <module>',
    "    for batch in loader:",
    '  File "/srv/a/scans.py", line 31, in __getitem__',
    "    with reader(path) as file:",
)
_IN_CHECKPOINT = (
    '  File "/srv/a/fit.py", line 9, in <module>',
    "    start = resume_run(model, args.resume)",
    '  File "/srv/a/fit.py", line 4, in load_checkpoint',
    "    state = reader(path)",
)
_EITHER = (
    "OSError: Unable to synchronously open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
    "OSError: Unable to open file (file signature not found)",
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    "_pickle.UnpicklingError: pickle data was truncated",
    "_pickle.UnpicklingError: invalid load key, 'v'.",
    "zipfile.BadZipFile: File is not a zip file",
    "tarfile.ReadError: unexpected end of data",
    "EOFError: Ran out of input",
)


@pytest.mark.parametrize("error", _EITHER)
@pytest.mark.parametrize(
    ("frames", "reason"), [(_IN_DATASET, "data-corrupt"), (_IN_CHECKPOINT, "ckpt-corrupt")]
)
def test_the_frames_show_which_file_is_broken(frames, reason, error):
    """The frames decide whether a read error is of the data or of a checkpoint."""
    assert judge_log(*fail_in(*frames, error=error)).reason == reason


def test_a_worker_of_the_loader_read_the_data():
    """A read error raised in a data loader's worker is corrupt data."""
    lines = fail_in(
        '  File "/opt/v/lib/python3.11/site-packages/torch/_utils.py", line 722, in reraise',
        error="OSError: Caught OSError in DataLoader worker process 1.",
    )
    inner = (
        '  File "/opt/v/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 349, in _worker_loop',
        "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0, stored_eof = 2048)",
    )
    found = judge_log(*lines, "Original Traceback (most recent call last):", *inner)
    assert found.reason == "data-corrupt"


@pytest.mark.parametrize(
    "line",
    [
        "Could not load library libcudnn_ops_train.so.8. Error: /opt/cuda/lib64/libcudnn_ops_train.so.8: undefined symbol: cudnnAbc",
        f"/opt/a.so.9: symbol {'_ZN5cudnn' + 'Ab' * 120}, version libcudnn_graph.so.9 not defined in file libcudnn_graph.so.9",
        "python: symbol lookup error: /opt/v/libcudnn_cnn.so.9: undefined symbol: cudnnGetX",
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: GET was unable to find an engine to execute this computation",
        "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    ],
)
def test_a_library_that_was_not_loaded_explains_the_call(line, error):
    """A cuDNN library that could not be loaded is the cause of the failed call after it."""
    assert judge_log(*STEPS, line, *raised(error)[len(STEPS) :]).reason == "library-mismatch"


@pytest.mark.parametrize(
    "line",
    [
        "Installed CUDA version 12.1 does not match the version torch was compiled with 12.4 but since the APIs are compatible, accepting this combination",
        "[WARNING] Unable to JIT load the fused op, continuing with the plain one",
        "WARNING: unsupported gpu architecture compute_30, it was accepted: the op is skipped",
    ],
)
def test_what_was_accepted_is_not_the_cause(line):
    """A version mismatch that the program accepted is not the cause."""
    killed = "[2025-03-04 05:06:07,890] [ERROR] [launch.py:325:sigkill_handler] ['python', 'a.py'] exits with return code = -9"
    assert judge_log(line, *STEPS, killed).reason in {"kill-outside", "oom-worker"}


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("library-mismatch", "ModuleNotFoundError: No module named 'torch._six'"),
        ("library-mismatch", "ModuleNotFoundError: No module named 'numpy._core'"),
        (
            "library-mismatch",
            "ImportError: cannot import name 'Xy' from 'peft.utils' (/opt/v/lib/python3.11/site-packages/peft/utils/__init__.py)",
        ),
        (
            "library-mismatch",
            "ImportError: cannot import name 'Mapping' from 'collections' (/usr/lib/python3.10/collections/__init__.py)",
        ),
        (
            "missing-module",
            "ImportError: cannot import name 'build' from 'nets' (/srv/a/nets/__init__.py)",
        ),
        ("missing-module", "ModuleNotFoundError: No module named 'nets.wide'"),
        ("missing-module", "ModuleNotFoundError: No module named 'einops'"),
        (
            "missing-module",
            "ModuleNotFoundError: No module named 'torch.nn'; 'torch' is not a package",
        ),
    ],
)
def test_a_package_that_lacks_a_name_is_there(reason, error):
    """A name missing from an installed package is a version mismatch, not a missing module."""
    assert judge_log(*raised(error)).reason == reason


def test_an_import_that_is_wrapped_names_the_releases():
    """A wrapped import error gives the advice to install another release of the package."""
    caller = '  File "/opt/v/lib/python3.11/site-packages/peft/model.py", line 3, in <module>'
    inner = fail_in(
        caller, "    import x", error="ModuleNotFoundError: No module named 'torch._six'"
    )
    joint = (
        "",
        "The above exception was the direct cause of the following exception:",
        "",
    )
    outer = "RuntimeError: Failed to import transformers.trainer because of the following error (look up to see its traceback):"
    last = (outer, "No module named 'torch._six'")
    finding = judge_log(*inner, *joint, *raised()[len(STEPS) :], *last).finding
    assert finding.reason == "library-mismatch"
    assert "`torch._six`, which `peft` was written for" in finding.summary
    assert "pip install 'torch==VERSION'" in finding.steps[0]


_NOTICE = (
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-01-02T03:04:05 DUE TO TIME LIMIT ***"
)
_WAITING = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
_STEPD = "slurmstepd: error: *** JOB 7 STEPD TERMINATED ON n1 AT 2025-01-02T03:05:05 DUE TO JOB NOT ENDING WITH SIGNALS ***"


def count_steps(start, end):
    """Return lines of training progress."""
    return tuple(f"epoch 3 step {number} loss 2.{number}" for number in range(start, end))


def test_a_run_goes_on_until_slurm_kills_it():
    """Steps after Slurm's time limit notice do not change the verdict `slurm-time-limit`."""
    found = judge_log(*count_steps(40, 60), _NOTICE, _WAITING, *count_steps(60, 99))
    assert (found.reason, found.confidence) == ("slurm-time-limit", "high")


def test_a_step_that_would_not_end_had_a_reason():
    """Slurm's time limit notice takes precedence over its later report of a killed step."""
    lines = (*count_steps(40, 60), _NOTICE, "Bypassing SIGTERM: 15", *count_steps(60, 99))
    assert judge_log(*lines, _STEPD).reason == "slurm-time-limit"
    assert judge_log(*count_steps(40, 99), _STEPD).reason == "slurm-cancelled"


def test_a_notice_of_an_earlier_start_is_history():
    """Slurm's notice is ignored if the step numbers then restart at a lower value."""
    lines = (*count_steps(40, 60), _NOTICE, _WAITING, *count_steps(50, 90))
    assert judge_log(*lines).reason == "unknown"


def test_advice_about_memory_is_of_the_device_and_of_the_server():
    """OOM advice suits Apple's GPUs and vLLM."""
    apple = "RuntimeError: MPS backend out of memory (MPS allocated: 17.03 GB, other allocations: 1.11 GB, max allowed: 18.13 GB). Tried to allocate 96.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure)."
    advice = " ".join(judge_log(*raised(apple)).finding.steps)
    assert "PYTORCH_MPS_HIGH_WATERMARK_RATIO" in advice
    assert "cuda" not in advice.lower()
    frame = '  File "/opt/v/lib/python3.11/site-packages/vllm/device_allocator/cumem.py", line 12, in wake_up'
    vllm = fail_in(frame, error="RuntimeError: CUDA Error: out of memory at cumem_allocator.cpp:62")
    finding = judge_log(*vllm).finding
    assert finding.reason == "cuda-oom"
    assert any("gpu_memory_utilization" in step for step in finding.steps)
