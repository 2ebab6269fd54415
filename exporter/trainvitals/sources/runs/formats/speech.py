"""The formats of programs that train models of speech."""

from __future__ import annotations

from trainvitals.sources.runs.formats.entry import Format, line

ESPNET = Format(
    name="ESPnet",
    lines=(
        line(r"\b<epoch>epoch:train:\d{1,12}-<epoch_step>batch: <pairs>", "epoch:train:"),
        line(
            r"\b<epoch>epoch results: \[train\] (?P<pairs>[^\[]*)\[valid\] (?P<validation_pairs>[^\[]*)",
            "epoch results: [train]",
        ),
    ),
    fields={
        "train_time": "step_seconds", "iter_time": "", "time": "", "total_count": "",
        "optim0_lr0": "lr", "lr_0": "lr",
    },
    first_epoch=1,
    example="""\
[host] 2024-03-02 10:11:12,130 (trainer:737) INFO: 2epoch:train:401-500batch: iter_time=0.002, forward_time=0.125, loss_ctc=50.5, loss_att=40.25, acc=0.5, loss=45.5, backward_time=0.15, grad_norm=2.5, clip=100.0, loss_scale=1.0, optim_step_time=0.01, optim0_lr0=5.0e-04, train_time=0.25
[host] 2024-03-02 10:21:12,130 (trainer:338) INFO: 2epoch results: [train] iter_time=0.002, loss=45.25, acc=0.5, optim0_lr0=5.0e-04, train_time=0.25, time=10 minutes and 2.5 seconds, total_count=1000, [valid] loss_ctc=30.5, acc=0.625, loss=35.5, time=30.25 seconds, total_count=50, [att_plot] time=4.5 seconds, total_count=0
""",
    reads={
        "epoch": 2, "epoch_step": 500, "loss": 45.25, "accuracy": 0.5, "learning_rate": 0.0005,
        "gradient_norm": 2.5, "step_seconds": 0.25, "validation_loss": 35.5,
        "validation_accuracy": 0.625,
    },
)  # fmt: skip

ICEFALL = Format(
    name="icefall",
    lines=(
        line(
            r"Epoch <epoch>, batch <epoch_step>, loss\[loss=<loss>,[^|]{0,500}?, lr: <learning_rate>",
            ", batch ",
            "loss[loss=",
        ),
        line(
            r"Epoch <epoch>, validation: loss=<loss>,", ", validation: loss=", split="validation"
        ),
    ),
    first_epoch=1,
    example="""\
2024-03-02 10:11:12,130 INFO [train.py:895] (0/4) Epoch 2, batch 50, loss[loss=1.25, simple_loss=0.5, pruned_loss=0.75, over 5000.00 frames. ], tot_loss[loss=1.5, simple_loss=0.625, over 200000.00 frames. ], batch size: 30, lr: 4.50e-02, grad_scale: 8.0
2024-03-02 10:12:12,130 INFO [train.py:929] (0/4) Epoch 2, validation: loss=1.125, simple_loss=0.5, over 900000.00 frames.
""",
    reads={
        "epoch": 2, "epoch_step": 50, "loss": 1.25, "learning_rate": 0.045, "validation_loss": 1.125
    },
)  # fmt: skip

COQUI = Format(
    name="Coqui TTS",
    lines=(
        line(r"> EPOCH: <epoch>/<total_epochs>", "> EPOCH: "),
        line(
            r"\bSTEP: <epoch_step>/<epoch_steps> -- GLOBAL_STEP: <step>",
            "-- GLOBAL_STEP: ",
            "--> ",
            marks="section",
            split="train",
        ),
        line(
            r"--> EVAL PERFORMANCE", "--> EVAL PERFORMANCE", marks="section", split="validation"
        ),
        line(r"-->.{0,60}\b(?:STEP|EVALUATION|TRAINING)\b", "--> ", marks="section"),
        line(r"^\s*\| > (?P<name>\w{1,60}): <value>", "| > ", in_section=True),
    ),
    fields={"step_time": "step_seconds", "avg_step_time": "", "loader_time": ""},
    first_epoch=0,
    example="""\
 > EPOCH: 1/1000
   --> STEP: 24/100 -- GLOBAL_STEP: 125
     | > loss: 0.50000  (0.62500)
     | > grad_norm: 1.25000  (1.50000)
     | > current_lr: 0.00025
     | > step_time: 0.50000  (0.52500)
 > EVALUATION
   --> STEP: 3
     | > loss: 0.75000  (0.80000)
  --> EVAL PERFORMANCE
     | > avg_loss: 0.81250 (+0.00000)
""",
    reads={
        "step": 125, "epoch": 1, "total_epochs": 1000, "epoch_step": 24, "epoch_steps": 100,
        "loss": 0.5, "gradient_norm": 1.25, "learning_rate": 0.00025, "step_seconds": 0.5,
        "validation_loss": 0.8125,
    },
)  # fmt: skip
