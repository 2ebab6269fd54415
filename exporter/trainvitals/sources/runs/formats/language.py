"""The formats of programs that train models of text."""

from __future__ import annotations

from trainvitals.sources.runs.formats.entry import Format, line

_HUGGING_DICT = r"\{(?P<pairs>'[^{}]*)\}"
_DICT_WITH_LOSS = r"\{(?=[^{}]{0,400}loss': '?-?[\d.nNiI])(?P<pairs>'[^{}]*)\}"

MS_SWIFT = Format(
    name="ms-swift",
    lines=(
        line(
            r"'global_step/max_steps': '<step>/<total_steps>'",
            "'global_step/max_steps': ",
            marks="part",
        ),
        line(_HUGGING_DICT, "'global_step/max_steps': "),
    ),
    fields={
        "train_speed(iter/s)": "steps_per_second",
        "train_speed(s/it)": "step_seconds",
        "percentage": "",
        "elapsed_time": "",
        "remaining_time": "",
        "token_acc": "accuracy",
        "eval_token_acc": "eval_accuracy",
    },
    example="Train:  10%|█         | 6/60 [00:42<06:22,  7.00s/it]{'loss': '0.375', 'grad_norm': '0.875', "
    "'learning_rate': '5e-05', 'token_acc': '0.75', 'epoch': '0.5', 'global_step/max_steps': '6/60', "
    "'percentage': '10.00%', 'elapsed_time': '42s', 'remaining_time': '6m 22s', 'memory(GiB)': '14.5', "
    "'train_speed(iter/s)': '0.125'}",
    reads={
        "step": 6, "epoch": 0.5, "total_steps": 60, "loss": 0.375, "accuracy": 0.75,
        "learning_rate": 5e-05, "gradient_norm": 0.875, "step_seconds": 8.0,
    },
)  # fmt: skip

LLAMA_FACTORY = Format(
    name="LLaMA-Factory",
    lines=(
        line(_HUGGING_DICT, "llamafactory", "{'", "oss"),
        line(_HUGGING_DICT, "{'", "'throughput': "),
    ),
    fields={"throughput": "tokens_per_second"},
    example="[INFO|2024-03-02 10:11:12] llamafactory.train.callbacks:157 >> {'loss': 1.25, "
    "'learning_rate': 4.5000e-05, 'epoch': 0.5, 'throughput': 1500.25}",
    reads={"epoch": 0.5, "loss": 1.25, "learning_rate": 4.5e-05, "tokens_per_second": 1500.25},
)

HUGGING_FACE = Format(
    name="Hugging Face Trainer (TRL, Axolotl, sentence-transformers, Whisper)",
    lines=(
        line(r"\{'train_runtime'", "rain", "{'train_runtime'", marks="finished"),
        line(
            rf"%\|[^|]*\| *<step>/<total_steps> \[[^\]]{{0,80}}\]\s*{_HUGGING_DICT}",
            "{'",
            "%|",
            "loss'",
        ),
        line(_DICT_WITH_LOSS, "{'", "loss': "),
        line(_HUGGING_DICT, "{'", "'epoch': "),
        line(r"^  (?P<name>eval_(?:loss|accuracy)) {1,60}= {1,60}<value>$", "  eval_"),
    ),
    example="""\
{'loss': 1.25, 'grad_norm': 0.5, 'learning_rate': 0.0001}
{'eval_loss': 1.125, 'eval_runtime': 4.5, 'eval_samples_per_second': 22.5, 'epoch': 0.5}
 50%|#####     | 100/200 [00:10<00:10,  9.50it/s]{'loss': 1.0, 'grad_norm': 0.25, 'learning_rate': 5e-05, 'epoch': 0.5}
  eval_loss               =     1.0625
""",
    reads={
        "step": 100, "epoch": 0.5, "total_steps": 200, "loss": 1.0, "gradient_norm": 0.25,
        "learning_rate": 5e-05, "validation_loss": 1.0625,
    },
)  # fmt: skip

MEGATRON = Format(
    name="Megatron-LM and Megatron-DeepSpeed",
    lines=(
        line(r"\[after training is done\]", "[after training is done]", marks="finished"),
        line(r"iteration +<step>/ *<total_steps> *\|<pairs>", "oss", "iteration ", " | "),
        line(
            r"validation loss at iteration <step>(?!\d)[^|]{0,200}\|<pairs>",
            "validation loss at iteration ",
            split="validation",
        ),
    ),
    fields={
        "elapsed time per iteration (ms)": "step_milliseconds",
        "elapsed time per iteration (s)": "step_seconds",
        "number of nan iterations": "nonfinite_losses",
    },
    example=" [2024-03-02 10:11:12] iteration      100/    1000 | consumed samples:        25600 | "
    "elapsed time per iteration (ms): 1600.0 | learning rate: 1.250E-04 | global batch size:   256 | "
    "lm loss: 7.500000E+00 | loss scale: 1.0 | grad norm: 1.500 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |",
    reads={
        "step": 100, "total_steps": 1000, "step_seconds": 1.6, "samples_per_second": 160.0,
        "learning_rate": 0.000125, "loss": 7.5, "gradient_norm": 1.5,
    },
)  # fmt: skip

DEEPSPEED = Format(
    name="DeepSpeed",
    lines=(
        line(r"\bstep=<step>, skipped=\d{1,12}, lr=\[<learning_rate>", ", skipped=", "lr=[", "tep"),
        line(
            r"global_step=<step>, RunningAvgSamplesPerSec=[^,]{1,40}, CurrSamplesPerSec=<samples_per_second>",
            "tep",
            "CurrSamplesPerSec=",
        ),
        line(
            r"\bsteps: <step> loss: <loss> iter time \(s\): <step_seconds> "
            r"samples/sec: <samples_per_second>",
            "steps: ",
            "iter time (s): ",
        ),
    ),
    example="""\
[2024-03-02 10:11:12,130] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=1, lr=[4.5e-05, 4.5e-05], mom=[(0.9, 0.95), (0.9, 0.95)]
[2024-03-02 10:11:12,131] [INFO] [timer.py:260:stop] epoch=0/micro_step=80/global_step=20, RunningAvgSamplesPerSec=25.5, CurrSamplesPerSec=26.25, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
steps: 20 loss: 1.2500 iter time (s): 0.500 samples/sec: 64.000
""",
    reads={
        "step": 20, "learning_rate": 4.5e-05, "samples_per_second": 64.0, "loss": 1.25,
        "step_seconds": 0.5,
    },
)  # fmt: skip

NANOGPT = Format(
    name="nanoGPT, build-nanogpt, llm.c and modded-nanogpt",
    lines=(
        line(r"\biter <step>: loss <loss>, time <step_milliseconds>ms", "iter ", ": loss "),
        line(r"\bstep <step>: train loss [^,]{1,40}, val loss <val_loss>", "val loss ", "step "),
        line(
            r"\bstep +<step> \| loss: <loss> \| lr:? <learning_rate> \| norm:? <grad_norm> \| "
            r"dt: <step_milliseconds>ms \| tok/sec: <tokens_per_second>",
            "step ",
            "tok/sec: ",
        ),
        line(r"\| \(?<step_milliseconds> ms \|", "loss ", " tok/s", " ms |", marks="part"),
        line(r"\| {1,8}<tokens_per_second> tok/s", "loss ", " tok/s", " ms |", marks="part"),
        line(
            r"\bstep +<step>/ *<total_steps> \| (?P<pairs>(?:train )?loss .*)",
            "step ",
            " tok/s",
            spaced=True,
        ),
        line(
            r"\bstep:<step>/<total_steps> (?P<pairs>(?:(?:train|val)_loss|train_time):.*)",
            "step:",
            "step_avg:",
        ),
        line(r"^\s*val(?:idation)? loss:? <val_loss>\s*$", "val", " loss"),
    ),
    fields={"step_avg": "step_seconds", "train_time": "", "norm": "grad_norm"},
    example="""\
step 200: train loss 2.0625, val loss 2.1250
iter 210: loss 2.0000, time 50.00ms, mfu 12.50%
""",
    reads={"step": 210, "loss": 2.0, "step_seconds": 0.05, "validation_loss": 2.125},
)

LITGPT = Format(
    name="LitGPT",
    lines=(
        line(
            r"Epoch <epoch> \| iter \d{1,12} step <step> \| loss train: <loss>, val: "
            r"(?:<val_loss>|n/a) \|",
            "Epoch ",
            "loss train: ",
        ),
        line(r"^iter \d{1,12} step <step>: loss <loss>,", "iter ", ": loss "),
        line(r"^iter \d{1,12}: val loss <val_loss>, val time", "iter ", ": val loss "),
    ),
    first_epoch=1,
    example="""\
Epoch 1 | iter 48 step 12 | loss train: 1.750, val: n/a | iter time: 125.50 ms (step)
iter 48: val loss 1.6250, val time: 1520.25 ms
""",
    reads={"step": 12, "epoch": 1, "loss": 1.75, "validation_loss": 1.625},
)

TORCHTITAN = Format(
    name="torchtitan",
    lines=(
        line(r"Training completed", "rain", "[titan]", "Training completed", marks="finished"),
        line(r"validate step: *<step> +(?P<pairs>loss: .*)", "validate step: ", split="validation"),
        line(r"\bstep: *<step> +(?P<pairs>loss: .*)", "step:", "loss:"),
    ),
    fields={"wps": "tokens_per_second"},
    example="[titan] 2024-03-02 10:11:12,130 - root - INFO - step: 10  loss:  7.5000  grad_norm:  1.5000  "
    "memory: 10.25GiB(12.50%)  tps: 1,500  tflops: 31.25  mfu: 12.50%",
    reads={"step": 10, "loss": 7.5, "gradient_norm": 1.5, "tokens_per_second": 1500.0},
)

MAXTEXT = Format(
    name="MaxText",
    lines=(
        line(
            r"completed step: <step>, seconds: <step_seconds>, <pairs>",
            "completed step: ",
            "seconds: ",
        ),
        line(
            r"eval metrics after step: <step>, loss=<loss>",
            "eval metrics after step: ",
            split="validation",
        ),
    ),
    example="""\
completed step: 10, seconds: 1.250, TFLOP/s/device: 150.500, Tokens/s/device: 3276.800, total_weights: 65536, loss: 8.125
eval metrics after step: 10, loss=8.250, total_weights=65536.0
""",
    reads={"step": 10, "step_seconds": 1.25, "loss": 8.125, "validation_loss": 8.25},
)

COMPOSER = Format(
    name="Composer",
    lines=(
        line(r"^\s*\[batch=<step>/<total_steps>\]:?", "[batch="),
        line(
            r"^\s*\[epoch=<epoch>(?:/<total_epochs>)?\]\[batch=<epoch_step>/<epoch_steps>\]",
            "[batch=",
            "[epoch=",
        ),
        line(r"^\s*Train (?P<name>[\w./-]{1,80}): <value>\s*$", "rain", "Train "),
        line(r"^\s*Eval (?P<name>[\w./-]{1,80}): <value>\s*$", "Eval ", split="validation"),
    ),
    fields={
        "loss/train/total": "loss", "time/batch": "", "time/epoch": "",
        "throughput/batches_per_sec": "steps_per_second",
        "throughput/samples_per_sec": "samples_per_second",
        "throughput/tokens_per_sec": "tokens_per_second",
        "metrics/eval/LanguageCrossEntropy": "loss",
    },
    first_epoch=1,
    example="""\
[batch=20/1000]:
     Train time/batch: 19
     Train loss/train/total: 2.5000
     Train throughput/batches_per_sec: 4.0000
     Train throughput/samples_per_sec: 128.0000
     Train throughput/device/samples_per_sec: 16.0000
     Train lr-DecoupledAdamW/group0: 0.0005
     Eval metrics/eval/LanguageCrossEntropy: 2.7500
""",
    reads={
        "step": 20, "total_steps": 1000, "loss": 2.5, "step_seconds": 0.25,
        "samples_per_second": 128.0, "learning_rate": 0.0005, "validation_loss": 2.75,
    },
)  # fmt: skip

OLMO = Format(
    name="OLMo",
    lines=(
        line(r"\[step=<step>(?:/<total_steps>)?(?:,epoch=<epoch>)?[,\]]", "[step="),
        line(r"^ +(?P<name>(?:train|optim|throughput)/[^=]{1,64})=<value>\s*$", "  ", "=", "/"),
        line(
            r"^ +(?P<name>eval/[^=]{1,80})=<value>\s*$", "  ", "=", "eval/", split="validation"
        ),
    ),
    fields={
        "train/CrossEntropyLoss": "loss", "train/CE loss": "loss",
        "optim/total_grad_norm": "grad_norm", "optim/total grad norm": "grad_norm",
        "optim/learning_rate_group0": "lr", "optim/LR (group 0)": "lr",
        "throughput/device/batches_per_second": "steps_per_second",
        "throughput/device/BPS": "steps_per_second",
    },
    example="""\
[2024-03-02 10:11:12] INFO     [olmo.train:816, rank=0] [step=20/739328,epoch=0]
    optim/total_grad_norm=1.500
    optim/learning_rate_group0=0.0001
    train/CrossEntropyLoss=7.500
    train/Perplexity=1,808
    throughput/total_tokens=83,886,080
    throughput/device/batches_per_second=0.2500
""",
    reads={
        "step": 20, "total_steps": 739328, "epoch": 0, "loss": 7.5, "gradient_norm": 1.5,
        "learning_rate": 0.0001, "step_seconds": 4.0,
    },
)  # fmt: skip

FAIRSEQ = Format(
    name="fairseq",
    lines=(
        line(r"\| train(?:_inner)? \| \{<pairs>", " | train", " | {"),
        line(r"\| \w{1,40} \| \{(?P<pairs>\"epoch\": .*)", "valid_loss", " | {"),
        line(
            r"\bepoch <epoch>: +<epoch_step> / <epoch_steps> <pairs>", " | train_inner | ", " / "
        ),
        line(r"\| train \| epoch <epoch> \| <pairs>", " | train | epoch ", spaced=True),
        line(
            r"\| epoch <epoch> \| valid on '[^']{1,40}' subset \| <pairs>",
            "| valid on ",
            spaced=True,
            split="validation",
        ),
    ),
    fields={
        "wps": "tokens_per_second", "ups": "steps_per_second", "num_updates": "step",
        "bsz": "batch_size", "wall": "", "train_wall": "", "update": "", "best_loss": "",
        "valid_best_loss": "", "valid_num_updates": "step", "train_num_updates": "step",
        "train_wps": "tokens_per_second", "train_ups": "steps_per_second", "train_bsz": "batch_size",
        "train_gnorm": "gnorm", "train_lr": "lr", "train_loss": "loss", "train_train_wall": "",
        "train_wall_": "",
    },
    first_epoch=1,
    example="""\
2024-03-02 10:11:12 | INFO | train_inner | epoch 002:    100 / 500 loss=5.25, nll_loss=4.5, ppl=22.63, wps=10240, ups=4, wpb=2560, bsz=64, num_updates=600, lr=0.0003, gnorm=1.5, train_wall=25, gb_free=9.5, wall=151
2024-03-02 10:12:12 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 5.5 | nll_loss 4.75 | ppl 26.91 | wps 25600 | wpb 2500 | bsz 60 | num_updates 1000
""",
    reads={
        "step": 1000, "epoch": 2, "epoch_step": 100, "epoch_steps": 500, "loss": 5.25,
        "tokens_per_second": 10240.0, "step_seconds": 0.25, "samples_per_second": 256.0,
        "learning_rate": 0.0003, "gradient_norm": 1.5, "validation_loss": 5.5,
    },
)  # fmt: skip

VERL = Format(
    name="verl",
    lines=(line(r"\bstep:<step> - (?P<pairs>\S+:.*)", "step:", " - "),),
    fields={
        "actor/loss": "loss", "actor/grad_norm": "grad_norm", "actor/lr": "lr",
        "timing_s/step": "step_seconds", "training/global_step": "",
    },
    example="(TaskRunner pid=1201) step:12 - actor/entropy:0.5 - actor/pg_loss:0.0125 - "
    "actor/grad_norm:0.25 - actor/lr:1e-06 - training/global_step:12 - training/epoch:1 - "
    "timing_s/gen:30.5 - timing_s/step:50.25 - perf/total_num_tokens:131072 - perf/throughput:652.0",
    reads={
        "step": 12, "epoch": 1, "gradient_norm": 0.25, "learning_rate": 1e-06, "step_seconds": 50.25
    },
)  # fmt: skip


FLAIR = Format(
    name="Flair",
    lines=(
        line(
            r"epoch <epoch> - iter <epoch_step>/<epoch_steps> - loss <loss> - <pairs>",
            "epoch ",
            " - iter ",
        ),
        line(r"EPOCH <epoch> done: loss:? <loss>", "EPOCH ", " done: loss"),
        line(r"\bDEV : loss <val_loss>", "DEV : loss "),
        line(r"\bTEST : loss <test_loss>", "TEST : loss "),
    ),
    first_epoch=1,
    example="""\
2024-03-02 10:11:12,130 epoch 2 - iter 50/200 - loss 0.51250000 - time (sec): 12.50 - samples/sec: 256.00 - lr: 0.100000 - momentum: 0.000000
2024-03-02 10:12:12,130 EPOCH 2 done: loss 0.5000 - lr: 0.100000
2024-03-02 10:12:22,130 DEV : loss 0.375 - f1-score (micro avg)  0.8125
""",
    reads={
        "step": 250, "epoch": 2, "epoch_step": 50, "epoch_steps": 200, "loss": 0.5,
        "learning_rate": 0.1, "samples_per_second": 256.0, "validation_loss": 0.375,
    },
)  # fmt: skip
