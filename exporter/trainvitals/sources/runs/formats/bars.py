"""The formats of progress bars, and of frameworks that log through progress bars."""

from __future__ import annotations

from trainvitals.sources.runs.formats.entry import Format, line

RATE = (
    r"(?:<steps_per_second> ?(?:it|ba|batch|batches|step|steps|iter)/s"
    r"|<step_seconds> ?s/(?:it|ba|batch|step|iter)|\?[a-z]{2,8}/s)"
)
_COUNT = r"<epoch_step>/<epoch_steps>"
_TIMES = rf"\[[^,\]]{{0,40}}(?:, *{RATE})?"
_BAR = rf"\d{{1,3}}%\|[^|]*\| *{_COUNT} {_TIMES}"

IGNITE = Format(
    name="PyTorch Ignite",
    lines=(
        line(
            r"Epoch \[<epoch>/<total_epochs>\]:? \[<epoch_step>/<epoch_steps>\] +\d{1,3}%\|"
            r"[^,|]{0,200},(?P<pairs>[^\[|]*)",
            "%|",
            "Epoch [",
            repeats=True,
        ),
    ),
    example="Epoch [2/5]: [30/120]  25%|██▌       , loss=0.71, acc=0.8 [00:04<00:12]",
    reads={
        "step": 150, "epoch": 2, "total_epochs": 5, "epoch_step": 30, "epoch_steps": 120,
        "loss": 0.71, "accuracy": 0.8,
    },
)  # fmt: skip

TORCHTUNE = Format(
    name="torchtune",
    lines=(
        line(
            rf"^<epoch>\|<step>\|Loss: <loss>:? +\d{{1,3}}%\|[^|]*\| *{_COUNT} {_TIMES}",
            "|Loss: ",
            repeats=True,
        ),
        line(r"^Step <step> \| <pairs>", "Step ", " | loss:"),
    ),
    example="""\
1|24|Loss: 1.8125:   3%|▎         | 24/808 [00:31<16:53,  1.29s/it]
Step 25 | loss:1.75 lr:2e-05 tokens_per_second_per_gpu:512.5 peak_memory_active:8.25
""",
    reads={
        "step": 25, "epoch": 1, "epoch_step": 24, "epoch_steps": 808, "loss": 1.75,
        "learning_rate": 2e-05, "step_seconds": 1.29,
    },
)  # fmt: skip

ALLENNLP = Format(
    name="AllenNLP",
    lines=(
        line(
            rf"^(?P<pairs>[^|%]{{5,240}}) \|\|: *{_BAR}",
            "||:",
            "%|",
            repeats=True,
        ),
        line(r"trainer - Epoch <epoch>/<last_epoch>\s*$", "trainer - Epoch "),
        line(r"console_logger - loss +\| +<loss> +\| +<val_loss>", "console_logger - loss "),
        line(
            r"console_logger - accuracy +\| +<accuracy> +\| +<val_accuracy>",
            "rain",
            "console_logger - accuracy ",
        ),
    ),
    fields={"batch_loss": ""},
    first_epoch=0,
    example="""\
2024-03-02 10:11:12,130 - INFO - allennlp.training.gradient_descent_trainer - Epoch 1/9
accuracy: 0.8125, batch_loss: 0.3510, loss: 0.4375 ||:  50%|#####     | 60/120 [00:03<00:03, 20.00it/s]
2024-03-02 10:11:18,131 - INFO - allennlp.training.callbacks.console_logger - loss               |     0.425  |     0.510
""",
    reads={
        "step": 180, "epoch": 1, "total_epochs": 10, "epoch_step": 60, "epoch_steps": 120,
        "accuracy": 0.8125, "loss": 0.425, "validation_loss": 0.51, "step_seconds": 0.05,
    },
)  # fmt: skip

DIFFUSERS = Format(
    name="diffusers and sd-scripts",
    lines=(
        line(
            rf"^\W{{0,8}}[Ss]teps?:? {{0,4}}\d{{1,3}}%\|[^|]*\| *<step>/<total_steps> {_TIMES}"
            r"(?:, (?P<pairs>[A-Za-z_].*)|\])",
            "%|",
            "tep",
            repeats=True,
        ),
    ),
    example="""\
epoch 2/10
steps:  12%|█▎        | 200/1600 [06:48<47:36,  2.04s/it, avr_loss=0.125]
Steps:  13%|█▎        | 201/1600 [06:50<47:34,  2.04s/it, lr=0.0001, step_loss=0.25]
""",
    reads={
        "step": 201, "epoch": 2, "total_epochs": 10, "total_steps": 1600, "step_seconds": 2.04,
        "loss": 0.25, "learning_rate": 0.0001,
    },
)  # fmt: skip

LIGHTNING = Format(
    name="Lightning and NeMo",
    lines=(
        line(r"`Trainer\.fit` stopped", "rain", "`Trainer.fit` stopped", marks="finished"),
        line(r"^Validation DataLoader \d+: 100%", "%|", "Validation Data", marks="evaluation"),
        line(
            r"Training epoch <epoch>, iteration \d{1,12}/\d{1,12} \| <pairs>",
            "Training epoch ",
            ", iteration ",
        ),
        line(
            rf"[Ee]poch:? *<epoch>[^\d/]{{1,120}}<epoch_step>/\? {_TIMES}"
            r"(?:, (?P<pairs>[A-Za-z_].*)|\])",
            "/? [",
            "poch",
            repeats=True,
        ),
        line(
            r"^Epoch <epoch>/<last_epoch> [^\w/]{1,200}<epoch_step>/<epoch_steps> [\d:]{4,10} . [-\d:]{4,10} "
            r"(?:<steps_per_second>it/s)?(?P<pairs>.*)",
            "poch",
            "•",
            repeats=True,
        ),
        line(
            rf"[Ee]poch:? *<epoch>\W+<epoch_step>it {_TIMES}(?:, (?P<pairs>[A-Za-z_].*)|\])",
            "it [",
            "poch",
            repeats=True,
        ),
    ),
    first_epoch=0,
    example="""\
Epoch 0: 40it [00:02, 20.00it/s, v_num=3, train_loss=0.875]
Epoch 1: |          | 10/? [00:01<?, 10.00it/s, v_num=3, train_loss=0.75]
Training epoch 1, iteration 49/99 | lr: 0.0003 | global_batch_size: 8 | global_step: 49 | \
reduced_train_loss: 0.5 | train_step_timing in s: 0.25 | val_loss: 0.625
""",
    reads={
        "step": 49, "epoch": 1, "epoch_step": 10, "loss": 0.75, "learning_rate": 0.0003,
        "step_seconds": 0.1, "validation_loss": 0.625, "samples_per_second": 80.0,
    },
)  # fmt: skip

BARS = Format(
    name="tqdm",
    lines=(
        line(r"(?i)^\W*(?:val|eval|test|sanity|predict)[^|]*%\|", "%|", repeats=True),
        line(
            rf"[Ee]poch:? *\[?<epoch>/<total_epochs>[\]: -]{{0,6}}{_BAR}(?:, (?P<pairs>[A-Za-z_].*)|\])",
            "%|",
            "poch",
            repeats=True,
        ),
        # Lightning counts epochs from 0.
        line(
            rf"[Ee]poch:? *<epoch>[: -]{{0,6}}{_BAR}(?:, (?P<pairs>[A-Za-z_].*)|\])",
            "%|",
            "poch",
            repeats=True,
            first_epoch=0,
        ),
        line(rf"{_BAR}, (?P<pairs>[A-Za-z_].*)", "%|", repeats=True),
        line(rf"(?<!\d)<epoch_step>it {_TIMES}, (?P<pairs>[A-Za-z_].*)", "it [", repeats=True),
        # The step bar of the Hugging Face Trainer, which is used once the run has logged a loss.
        line(
            rf"^\s*\d{{1,3}}%\|[^|]*\| *<bar_step>/<bar_steps> {_TIMES}\]\s*$", "%|", repeats=True
        ),
    ),
    example="Epoch 3/4:  25%|##5       | 50/200 [00:10<00:30,  5.00it/s, loss=0.5, lr=0.001]",
    reads={
        "step": 450, "epoch": 3, "total_epochs": 4, "epoch_step": 50, "epoch_steps": 200,
        "step_seconds": 0.2, "loss": 0.5, "learning_rate": 0.001,
    },
)  # fmt: skip
