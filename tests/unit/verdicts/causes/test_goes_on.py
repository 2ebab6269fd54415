"""Logs that continue after trouble or quote it, and wordings of launchers and engines."""

import pytest

from trainvitals.sources.containers.evidence import Evidence
from trainvitals.sources.containers.evidence_folder import read_folder
from trainvitals.sources.containers.pod import parse_pod
from trainvitals.verdicts.causes.judge import judge

STEPS = tuple(f"epoch 3 step {step} loss 0.{step}" for step in range(40, 60))
RAISED = (
    "Traceback (most recent call last):",
    '  File "/w/go.py", line 9, in <module>',
    "    go()",
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB."
WELL = {"unknown", "finished", "running"}


def judge_log(*lines, **known):
    """Return the verdict on a process with this log."""
    return judge(Evidence("process", "p", log=lines, **known))


@pytest.mark.parametrize(
    "line",
    [
        "[data] clip 17: [Errno 2] No such file or directory: '/v/17.mp4', taking the next",
        "[data] cannot identify image file '/v/3.png', using a random sample",
        "UnidentifiedImageError for 8.png, substituted by a blank image",
        "could not read /v/9.npy: No space left on device, using default",
        "loader: sample 881: [Errno 2] No such file or directory: '/v/881.jpg'",
    ],
)
def test_an_interrupt_is_the_end_after_a_warning_about_an_item(line):
    """After a warning about a skipped item, a later KeyboardInterrupt is the cause of the end."""
    log = (*STEPS, line, "epoch 3 step 61 loss 0.1", "Detected KeyboardInterrupt, shutting down")
    assert judge_log(*log).reason == "interrupted"


def test_an_interrupt_in_the_line_of_a_bar_is_the_end():
    """A KeyboardInterrupt in the line of a progress bar is the cause of the end."""
    bar = "Epoch 60:  41%|████      | 90/218 [00:28<00:39,  3.21it/s, train_loss=0.073]"
    warning = (
        "^C/venv/lib/trainer/call.py:54: Detected KeyboardInterrupt, attempting graceful shutdown"
    )
    log = (*STEPS, bar + warning, "best model: /out/checkpoints/epoch=52.ckpt")
    assert judge_log(*log).reason == "interrupted"


@pytest.mark.parametrize("last", ["Fertig nach 46 min.", "   Exit Status:        0"])
def test_words_of_a_success(last):
    """A success in German or in a report of PBS is recognised."""
    assert judge_log(*STEPS, last).reason == "finished"


def test_figures_of_a_summary_are_no_progress():
    """Tables that Transformers and XLA print at the end are not read as training progress."""
    table = ("  epoch     =  2.0", "  train_loss  =  0.77", "  train_steps_per_second =  0.24")
    assert judge_log(*STEPS, "{'train_runtime': 4690.1}", *table).reason == "finished"
    hbm = "XlaRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 21.37G"
    operator = '     Operator: op_name="jit(train_step)/jvp(mlp)/epoch" source_line=179'
    assert (
        judge_log(*STEPS, *RAISED, f"jaxlib.xla_extension.{hbm}", *[operator] * 5).reason
        == "tpu-oom"
    )


def test_an_interrupt_outranks_an_untraced_error():
    """A KeyboardInterrupt after an error without a traceback is the cause."""
    log = (*STEPS, "No such file or directory: '/v/x.bin'", "Detected KeyboardInterrupt, stopping")
    assert judge_log(*log).reason == "interrupted"


@pytest.mark.parametrize("rest", [(), STEPS])
@pytest.mark.parametrize("head", ["===== samples at step 1140 =====", "--- final sample ---"])
def test_text_after_a_prompt_in_samples_is_not_the_end(head, rest):
    """A crash that is quoted in generated samples is not the end of the run."""
    asked = '>>> My job ended with "Segmentation fault (core dumped)". Why?'
    assert judge_log(*STEPS, head, asked, "A crash in native code.", *rest).reason in WELL


@pytest.mark.parametrize(
    "quoted",
    [
        ("~~~text", *RAISED, OOM, "~~~"),
        ("<|user|> Help.", "```", *RAISED, OOM, "```", "<|assistant|> Free some."),
        ("## generation 4 ##", *RAISED, OOM, "--- end of generations ---"),
        ("[rank0]: ```python", *RAISED, OOM, "[rank0]: ```"),
        ("[sample 1] a", *RAISED, OOM, "[sample 2] b"),
    ],
)
@pytest.mark.parametrize("rest", [(), STEPS])
def test_generated_text_is_not_the_end(quoted, rest):
    """An error inside code fences, chat tokens or sample marks is not the end of the run."""
    assert judge_log(*STEPS, *quoted, *rest).reason in WELL


@pytest.mark.parametrize(
    "last",
    [
        ("All instances run.", "Instances with errors: 3", "Report written to out.json"),
        ("All 40 tasks evaluated", "Errors: 2"),
        ("Results saved to runs/7",),
    ],
)
def test_an_evaluation_goes_on_after_the_error_of_an_item(last):
    """An evaluation that continues after the error of an item is finished."""
    bars = (f"Items: {done}%|##  | {done}/100 [01:0{done % 10}<02:10]" for done in range(50, 60))
    assert judge_log(*RAISED, "ItemError: it-7: tests timed out", *bars, *last).reason == "finished"


@pytest.mark.parametrize(
    "frame",
    [
        ('  File "/usr/lib/python3.12/multiprocessing/util.py", line 303, in _run_finalizers',),
        ('  File "/w/pool.py", line 12, in __del__',),
        ('  File "/usr/lib/python3.12/multiprocessing/util.py", line 136, in _remove_temp_dir',),
    ],
)
def test_an_error_of_a_finalizer_is_not_the_end(frame):
    """An error in a finalizer, which Python prints and ignores, is not the end."""
    error = "OSError: [Errno 16] Device or resource busy: '.nfs0000'"
    verdict = judge_log(*STEPS, "Test accuracy: 0.91", RAISED[0], *frame, "    x()", error)
    assert verdict.reason == "finished"


def test_a_busy_file_is_not_a_full_disk():
    """The advice for errno 16 does not mention a full disk."""
    verdict = judge_log(*RAISED, "OSError: [Errno 16] Device or resource busy: '/w/lock'")
    text = " ".join((*verdict.finding.speaks_for, *verdict.finding.steps))
    assert "full disk" not in text
    assert "df -h" not in text


@pytest.mark.parametrize("status", [200, 400, 499, 500])
def test_a_server_goes_on_after_the_error_of_a_request(status):
    """A server that logs the response to a failed request has not ended."""
    access = f'INFO: 10.1.1.1:99 - "POST /v1/chat HTTP/1.1" {status}'
    assert judge_log("ready", *RAISED, "ValueError: too many tokens", access).reason in WELL


def test_a_server_whose_engine_died_has_ended():
    """A server that answers 500 after its engine died has ended."""
    access = 'INFO: 10.1.1.1:99 - "POST /v1/chat HTTP/1.1" 500'
    assert judge_log(*RAISED, "EngineDeadError: EngineCore failed", access).reason not in WELL


@pytest.mark.parametrize(
    "line",
    [
        "30 epochs completed in 1.2 hours.",
        "Saved results to /o",
        "Study statistics:",
        "Best trial: 4",
    ],
)
def test_a_success_has_many_words(line):
    """Various reports of completion are recognised as success."""
    assert judge_log(*STEPS, line).reason == "finished"


POD = """\
Name:         fit-1
Namespace:    lab
Status:       {status}
{more}{init}Containers:
  fit:
    Image:        lab/fit:4
{state}    Limits:
      nvidia.com/gpu:  1
{others}Events:          <none>
"""
RUNS = "    State:        Running\n    Ready:        True\n"
INIT = """\
Init Containers:
  wait:
    Image:        lab/wait:1
    State:        Terminated
      Reason:     {}
      Exit Code:  {}
"""
LOOPS = """\
  {}:
    Image:        lab/side:1
    State:        Waiting
      Reason:     CrashLoopBackOff
    Last State:   Terminated
      Reason:     Error
      Exit Code:  1
    Ready:        False
"""


def judge_pod(state=RUNS, *, init="", others="", status="Running", more=""):
    """Return the verdict on a pod with these parts."""
    text = POD.format(state=state, init=init, others=others, status=status, more=more)
    return judge(parse_pod(text))


@pytest.mark.parametrize("end", [("Completed", 0), ("Error", 1)])
def test_the_end_of_an_init_container_is_not_that_of_the_pod(end):
    """A pod whose init container has ended is still running."""
    assert judge_pod(init=INIT.format(*end)).reason == "running"


@pytest.mark.parametrize("name", ["log-shipper", "istio-proxy", "cache"])
def test_a_sidecar_that_fails_is_named(name):
    """A failing sidecar is named if the main container runs."""
    verdict = judge_pod(others=LOOPS.format(name))
    assert verdict.reason == "crash-loop"
    assert f"`{name}`" in verdict.finding.summary


def test_a_pod_has_a_deadline():
    """A pod that exceeded its deadline has the reason `time-limit`, although its code is 137."""
    state = "    State:        Terminated\n      Reason:     Error\n      Exit Code:  137\n"
    verdict = judge_pod(state, status="Failed", more="Reason:       DeadlineExceeded\n")
    assert verdict.reason == "time-limit"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (("Error: crun: executable file `tran` not found in $PATH: No such file",), "start-cmd"),
        (("Error: setting up CDI devices: failed to inject devices",), "start-gpu-device"),
        (
            (
                "prterun noticed that process rank 5 with PID 91 on node c7 exited on",
                "signal 11 (x).",
            ),
            "segfault",
        ),
        (
            ("9.1s: flux-shell[1]: ERROR: oom: Memory cgroup out of memory: killed 2 tasks",),
            "oom-cgroup",
        ),
        (
            ("FatalError: `Termination signal` is detected by the operating system.",),
            "term-outside",
        ),
        (("[2025-02-03 01:02:03] Error: CUDA error 999 'unknown error' - /m/x.cu:5",), "gpu-lost"),
    ],
)
def test_the_words_of_engines_and_launchers(lines, reason):
    """Failure messages of engines and launchers are recognised."""
    assert judge_log(*lines).reason == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "traps: python3[91] general protection fault ip:7f1 sp:7f2 error:0 in libc.so.6",
            "segfault",
        ),
        (
            (
                "amdgpu 0000:c1:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24, for process"
                " python3 pid 5 thread python3 pid 5)"
            ),
            "cuda-illegal",
        ),
        ("oom_reaper: reaped process 91 (python3), now anon-rss:0kB, file-rss:0kB", "oom-host"),
        ("general protection fault, probably for non-canonical address 0x1: 0000 [#1]", "unknown"),
    ],
)
def test_a_line_of_the_kernel(tmp_path, line, reason):
    """A single kernel line determines the reason without advice to add the kernel log."""
    (tmp_path / "kernel.txt").write_text(f"[ 1000.100000] {line}\n")
    verdict = judge(read_folder(tmp_path))
    assert verdict.reason == reason
    assert not any("--kernel-log FILE" in step and "add" in step for step in verdict.finding.steps)


@pytest.mark.parametrize(
    "log",
    [
        ("FloatingPointError: invalid value (nan) encountered in jit(step)",),
        ("3/9 ━━━━━━ 1s 5ms/step - loss: nan", "Batch 3: Invalid loss, terminating training"),
    ],
)
def test_advice_about_nan_is_of_the_framework(log):
    """Advice about NaN in JAX and Keras does not mention PyTorch's anomaly detection."""
    verdict = judge_log(*log)
    assert verdict.reason == "nan-loss"
    assert "torch" not in " ".join(verdict.finding.steps)


def test_apex_is_nvidias():
    """The advice for a missing `apex` names NVIDIA's repository, not the PyPI package."""
    steps = judge_log(*RAISED, "ModuleNotFoundError: No module named 'apex'").finding.steps
    assert "github.com/NVIDIA/apex" in " ".join(steps)


@pytest.mark.parametrize(
    "line",
    [
        "проход {0}0/900, качество 0.{0}",
        "[信息] 步数 {0} 损失 2.{0}",
        "エポック {0} 損失 1.{0}",
        "에폭 {0} 손실 1.{0}",
        "Schritt {0}, Verlust 1.{0}",
        "vuelta {0} / 90",
        "    {0}00 | 1.{0} | 0.0003 | 20.1 GB",
        '{{"step": {0}, "error": null, "oom_kills": 0}}',
    ],
)
def test_progress_is_known_in_any_language(line):
    """Progress lines in any language show that the program continued after an error."""
    rest = [line.format(number) for number in range(10, 24)]
    assert judge_log("hi", OOM, *rest).reason in WELL


@pytest.mark.parametrize("line", ["attempt {0}/20", "waiting for peer, {0}/20", "retry {0} / 20"])
def test_counting_attempts_is_not_progress(line):
    """A counter of attempts is not read as progress, so that the error before is the cause."""
    rest = [line.format(number) for number in range(10, 14)]
    assert judge_log("hi", *RAISED, OOM, *rest).reason == "cuda-oom"


@pytest.mark.parametrize(
    "line",
    [
        "训练完成 2 小时",
        "学習が完了しました",
        "훈련 완료",
        "Обучение завершено",
        "Training erfolgreich abgeschlossen",
        "Entraînement terminé",
        "Entrenamiento finalizado",
        "Treinamento concluído",
        "7 of 7 drills passed, see drills.html",
        "test f1=0.91 precision=0.92 recall=0.9",
    ],
)
def test_success_is_known_in_the_main_languages(line):
    """A last line that reports completion is recognised in several languages."""
    assert judge_log(OOM, line).reason == "finished"


def test_some_that_passed_are_not_all():
    """The line "6 of 7 drills passed" is not a success."""
    assert judge_log("start", "6 of 7 drills passed").reason != "finished"


@pytest.mark.parametrize("line", ["wrote out/adapter", "2025-01-02 fit: saved /w/out/final.bin"])
def test_a_written_result_ends_a_log_well(line):
    """A last line about a written result means that the earlier error was not the end."""
    assert judge_log("start", OOM, line).reason in WELL


@pytest.mark.parametrize(
    "line", ["wrote /w/core.71", "saved crash/dump.json", "saved partial results to out/a.json"]
)
def test_what_is_written_of_a_crash_is_not_a_result(line):
    """A core dump or partial result in the last line is not a success."""
    assert judge_log("start", OOM, line).reason == "cuda-oom"
