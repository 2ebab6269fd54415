"""The formats of tables, JSON lines, and log lines from hand-written training loops."""

from __future__ import annotations

from trainvitals.sources.runs.formats.entry import Format, line

_COUNT = r"<epoch_step>/<epoch_steps>"

TABLES = Format(
    name="fastai, spaCy, skorch and other tables",
    lines=(
        line(r"^ *(?P<heading>epoch\s+train_loss\b.*)", "epoch", "train_loss", marks="heading"),
        line(r"^\s*(?P<heading>E +# +LOSS.*)", "LOSS", "E ", "# ", marks="heading"),
        line(r"^[ |]{0,20}(?P<row>\d{1,9}[ |]{1,40}[-\d][-\d. |:naife]{3,400})$", "  "),
    ),
    fields={"E": "epoch", "#": "step", "valid_acc": "val_accuracy", "time": "", "dur": ""},
    example="""\
epoch     train_loss  valid_loss  accuracy  time
0         0.750000    0.625000    0.750000  00:12
1         0.500000    0.562500    0.812500  00:11
""",
    reads={"epoch": 1, "loss": 0.5, "validation_loss": 0.5625, "accuracy": 0.8125},
)

JSON_LINES = Format(
    name="JSON lines",
    lines=(
        line(
            r"\{(?=[^{}]{0,400}(?:loss\w{0,40}|epoch|step|iter)\": ?\"?-?[\dnNI])(?P<pairs>\"[^{}]*)\}",
            '{"',
        ),
    ),
    example='{"step": 100, "epoch": 1, "loss": 0.5, "val_loss": 0.625, "lr": 0.001, "grad_norm": 1.5}',
    reads={
        "step": 100, "epoch": 1, "loss": 0.5, "validation_loss": 0.625, "learning_rate": 0.001,
        "gradient_norm": 1.5,
    },
)  # fmt: skip

_SET = r"(?:[Tt]rain|TRAIN|[Vv]al|VAL|[Ee]val|[Tt]est|TEST)"

TUTORIALS = Format(
    name="PyTorch's tutorials and examples",
    lines=(
        line(r"^train Loss: <loss> Acc: <accuracy>", "oss", "train Loss", "Acc"),
        line(r"^val Loss: <loss> Acc: <accuracy>", "oss", "val Loss", "Acc", split="validation"),
        line(
            r"^\s{0,40}(?:Average |Avg\.? )?"
            rf"(?P<pairs>{_SET}[\w.]{{0,12}} (?:[Ll]oss|LOSS) ?[:=].*)",
            "oss",
        ),
        line(
            r"^\| epoch +<epoch> \| +<epoch_step>/ *<epoch_steps> batches \| lr <learning_rate> \| "
            r"ms/batch <step_milliseconds> \| loss +<loss>",
            "oss",
            "ms/batch ",
        ),
        line(
            r"^\s*Test set: Average loss: <loss>, Accuracy: \d{1,12}/\d{1,12} \(<accuracy>\)",
            "oss",
            "Test set: ",
            split="validation",
        ),
        line(r"^loss: <loss> +\[ *\d{1,12}/ *\d{1,12}\]\s*$", "loss: ", "/"),
        line(
            r"^ *Accuracy: <accuracy>, Avg loss: <loss>", "Accuracy: ", "Avg loss: ", split="validation"
        ),
        line(
            r"^\[<epoch>/<total_epochs>\]\[<epoch_step>/<epoch_steps>\]\s+(?P<pairs>Loss_D: .*)",
            "oss",
            "Loss_D: ",
            first_epoch=0,
        ),
        line(
            r"^\s*\[<epoch>, +<epoch_step>\] loss: <loss>\s*$",
            "] loss: ",
            "[",
        ),
    ),
    example="""\
Epoch 2/9
----------
train Loss: 0.5000 Acc: 0.7500
val Loss: 0.6250 Acc: 0.6875
""",
    reads={
        "epoch": 2, "total_epochs": 9, "loss": 0.5, "accuracy": 0.75, "validation_loss": 0.625,
        "validation_accuracy": 0.6875,
    },
)  # fmt: skip

EPOCH_LINES = Format(
    name="lines with an epoch",
    lines=(
        line(r"^Epoch: <epoch> \| (?:Epoch )?Time: [\dms :]{1,16}$", "poch", "Time: "),
        line(
            r"(?:^\W{0,40}|[:\]|-] |INFO )[Ee]poch:? {0,4}\[?<epoch>\]?"
            r"(?: ?(?:/|of) ?<total_epochs>\]?)?[-:.=\s]{0,80}$",
            "poch",
        ),
        # `Epoch 1: val_loss: 0.9 | val_iou: 0.1`, `Epoch [1/10], Step [100/600], Loss: 0.5`,
        # `Train Epoch: 1 [640/60000 (1%)] Loss: 2.3`.
        line(
            r"\b[Ee]poch[:=]? *\[?<epoch>(?: *(?:/|of) *<total_epochs>)?\]?[\s:|,-]+"
            rf"(?:\[?[A-Za-z][a-z]+[:=]? \[?{_COUNT}\]?[\s:|,-]+)?<pairs>",
            "poch",
            spaced=True,
        ),
    ),
    example="Epoch [2/10], Step [30/100], Loss: 0.5, Val Loss: 0.625",
    reads={
        "step": 130, "epoch": 2, "total_epochs": 10, "epoch_step": 30, "epoch_steps": 100,
        "loss": 0.5, "validation_loss": 0.625,
    },
)  # fmt: skip

STEP_LINES = Format(
    name="lines with a step",
    lines=(
        line(
            r"^\s{0,40}\[ *<epoch_step>/ *<epoch_steps>\]\s{0,8}[:,|-]?\s{0,8}(?P<pairs>[Ll]oss.*)",
            "oss",
            spaced=True,
        ),
        line(
            r"\b(?:[Gg]lobal[ _])?(?:[Ss]tep|[Ii]ter(?:ation)?|STEP|[Uu]pdate)s?(?:[:=#] ?| )\[?<step>"
            r"(?: ?(?:/|of) ?<total_steps>)?\]?(?P<pairs>[^\w/%].*)",
            "oss",
            spaced=True,
        ),
    ),
    example="step 120/1000 | loss 0.5000 | lr 1.0e-03 | grad_norm: 1.25 | step_time: 250ms | tokens/s: 4096",
    reads={
        "step": 120, "total_steps": 1000, "loss": 0.5, "learning_rate": 0.001, "gradient_norm": 1.25,
        "step_seconds": 0.25, "tokens_per_second": 4096.0,
    },
)  # fmt: skip
