"""The log formats of programs that train vision models."""

from __future__ import annotations

from trainvitals.sources.runs.formats.bars import RATE
from trainvitals.sources.runs.formats.entry import Format, line

_IGNORED = dict.fromkeys(("time", "data_time", "data", "last_time", "last_data_time"), "")
_PERCENT = dict.fromkeys(
    ("acc1", "Acc@1", "accuracy", "accuracy/top1", "accuracy_top-1", "top1_acc"), "accuracy%"
)
_IN_EPOCH = r"\[ *<epoch>\]\[ *<epoch_step>/ *<epoch_steps>\]"

YOLO = Format(
    name="YOLO (Ultralytics, YOLOv5, YOLOv7, YOLOv9)",
    lines=(
        line(
            r"^ {0,24}(?P<heading>Epoch +[Gg][Pp][Uu]_mem +\w+ +obj.*)",
            "Epoch ",
            "_mem",
            marks="heading",
            first_epoch=0,
        ),
        line(r"^ {0,24}(?P<heading>Epoch +[Gg][Pp][Uu]_mem .*)", "Epoch ", "_mem", marks="heading"),
        line(
            r"^ {0,24}(?P<row><epoch>/<shown_epochs> +[\d.]{1,12}G(?: +[-\d.naif]{1,16}){2,12}):?"
            rf"(?: +\d{{1,3}}%[^\d\[]{{0,160}}<epoch_step>/<epoch_steps>"
            rf"(?: \[[^,\]]{{0,40}}, *| +)?{RATE}?)?",
            "G ",
            repeats=True,
        ),
        line(
            r"^ +all +\d{1,12} +\d{1,12} +<precision> +<recall> +<mAP50> +<mAP50_95>",
            " all ",
            split="validation",
        ),
    ),
    fields=dict.fromkeys(("Instances", "Size", "labels", "img_size"), ""),
    example="""\
      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
       3/50      2.61G      1.125       3.25      1.375         14        640:  50%|█████     | 20/40 [00:05<00:05,  4.00it/s]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 4/4 [00:01<00:00,  3.10it/s]
                   all         64        228      0.625       0.75      0.688      0.438
""",
    reads={
        "step": 100, "epoch": 3, "total_epochs": 50, "epoch_step": 20, "epoch_steps": 40,
        "step_seconds": 0.25,
    },
)  # fmt: skip

YOLOX = Format(
    name="YOLOX",
    lines=(
        line(
            r"epoch: <epoch>/<total_epochs>, iter: <epoch_step>/<epoch_steps>, <pairs>",
            "epoch: ",
            ", iter: ",
        ),
    ),
    example="2024-03-02 10:11:12 | INFO     | yolox.core.trainer:261 - epoch: 2/300, iter: 30/500, "
    "gpu mem: 5120Mb, mem: 9.8Gb, iter_time: 0.250s, data_time: 0.002s, total_loss: 9.5, "
    "iou_loss: 3.5, l1_loss: 0.0, conf_loss: 4.5, cls_loss: 1.5, lr: 1.250e-03, size: 640, ETA: 10:24:30",
    reads={
        "step": 530, "epoch": 2, "total_epochs": 300, "epoch_step": 30, "epoch_steps": 500,
        "step_seconds": 0.25, "loss": 9.5, "learning_rate": 0.00125,
    },
)  # fmt: skip

MMENGINE = Format(
    name="MMEngine, MMDetection 3 and MMPretrain",
    lines=(
        line(rf"Epoch\(train\) +{_IN_EPOCH} +<pairs>", "Epoch(train)"),
        line(r"Iter\(train\) +\[ *<step>/ *<total_steps>\] +<pairs>", "Iter(train)"),
        line(
            r"(?:Epoch|Iter)\(val\) +(?:\[ *<epoch>\])?\[ *<epoch_step>/ *<epoch_steps>\] +<pairs>",
            "(val)",
            "/",
            split="validation",
            at_end=True,
            fields=_IGNORED,
        ),
    ),
    fields={"time": "step_seconds", "base_lr": "", "data_time": "", "memory": "", **{
        name: word for name, word in _PERCENT.items() if "/" in name or "_" in name}},
    first_epoch=1,
    example="""\
2024/03/02 10:11:12 - mmengine - INFO - Epoch(train)  [3][  50/1000]  base_lr: 2.0000e-02 lr: 1.0000e-02  eta: 1:02:03  time: 0.2500  data_time: 0.0100  memory: 3540  loss: 1.5000  loss_cls: 0.5000
2024/03/02 10:21:12 - mmengine - INFO - Epoch(val)  [3][100/625]    eta: 0:01:00  time: 0.0500  data_time: 0.0010  memory: 640
2024/03/02 10:22:12 - mmengine - INFO - Epoch(val) [3][625/625]    coco/bbox_mAP: 0.3750  coco/bbox_mAP_50: 0.5625  data_time: 0.0010  time: 0.0500
""",
    reads={
        "step": 2050, "epoch": 3, "epoch_step": 50, "epoch_steps": 1000, "step_seconds": 0.25,
        "loss": 1.5, "learning_rate": 0.01,
    },
)  # fmt: skip

MMCV = Format(
    name="MMCV, MMDetection 2",
    lines=(
        line(rf"Epoch {_IN_EPOCH}\s+(?P<pairs>lr: .*)", "Epoch [", "lr: "),
        line(r"Iter \[<step>/<total_steps>\]\s+(?P<pairs>lr: .*)", "oss", "Iter [", "lr: "),
        line(
            r"(?:Epoch|Iter)\(val\) \[<epoch>\]\[\d{1,12}\]\s+<pairs>",
            "(val)",
            split="validation",
            fields=_IGNORED,
        ),
    ),
    fields={"time": "step_seconds", "data_time": "", "memory": "", **{
        name: word for name, word in _PERCENT.items() if "_" in name}},
    first_epoch=1,
    example="""\
2022-03-02 10:11:12,130 - mmdet - INFO - Epoch [2][50/800]\tlr: 1.000e-02, eta: 3:02:01, time: 0.500, data_time: 0.011, memory: 3540, loss_cls: 0.5000, loss: 1.2500, grad_norm: 4.5000
2022-03-02 10:15:12,130 - mmdet - INFO - Epoch(val) [2][625]\tbbox_mAP: 0.3750, bbox_mAP_50: 0.5625
""",
    reads={
        "step": 850, "epoch": 2, "epoch_step": 50, "epoch_steps": 800, "step_seconds": 0.5,
        "loss": 1.25, "learning_rate": 0.01, "gradient_norm": 4.5,
    },
)  # fmt: skip

DETECTRON2 = Format(
    name="Detectron2, maskrcnn-benchmark",
    lines=(line(r"\biter: <step> +(?P<pairs>(?:total_)?loss: .*)", "iter: ", "loss: ", "max"),),
    fields={**_IGNORED, "time": "step_seconds", "last_time": ""},
    example="[03/02 10:11:12 d2.utils.events]:  eta: 1:02:03  iter: 1199  total_loss: 1.75  "
    "loss_cls: 0.5  loss_box_reg: 0.75  time: 0.2500  last_time: 0.2750  data_time: 0.0100  "
    "last_data_time: 0.0090  lr: 0.005  max_mem: 2120M",
    reads={"step": 1199, "loss": 1.75, "step_seconds": 0.25, "learning_rate": 0.005},
)

DETECTRON = Format(
    name="Detectron",
    lines=(line(r"json_stats: \{<pairs>", "json_stats: ", "oss"),),
    fields={"time": "step_seconds", "eta": ""},
    example='json_stats: {"accuracy_cls": "0.9375", "eta": "1:02:03", "iter": 120, "loss": "0.5", '
    '"lr": "0.01", "mb_qsize": 64, "mem": 5120, "time": "0.25"}',
    reads={"step": 120, "loss": 0.5, "learning_rate": 0.01, "step_seconds": 0.25},
)

TORCHVISION = Format(
    name="torchvision references, DETR, MAE and DINO",
    lines=(
        line(
            r"Epoch: \[<epoch>\] +\[ *<epoch_step>/<epoch_steps>\] +<pairs>",
            "Epoch: [",
            "eta: ",
        ),
        line(r"^(?:\S+ +)?Test: +\[ *<epoch_step>/<epoch_steps>\][^(]{0,80}\bloss: [\d.]+ \(<loss>\)"
             r"(?: +acc1: [\d.]+ \(<accuracy>\))?",
             "Test", "eta: ", split="validation", at_end=True),
        line(r"^(?:\S+ +)?Test: +\[", "Test", "eta: "),
        line(r"Test: +(?:\S+ )?Acc@1 <accuracy>", "Test", "Acc@1 ", split="validation"),
        line(r"^\* Acc@1 <accuracy> Acc@5 [\d.]+(?: loss <loss>)?", "* Acc@1 ", split="validation"),
        line(r"Training +\[ *<step>/<total_steps>\] +<pairs>", "Training  [", "eta: "),
        line(r"^Averaged stats:", "Averaged stats:", "oss"),
    ),
    fields={**_IGNORED, "time": "step_seconds", **_PERCENT},
    first_epoch=0,
    example="""\
Epoch: [2]  [  50/1000]  eta: 0:05:10  lr: 0.1  img/s: 512.0  loss: 2.5000 (2.7500)  acc1: 40.6250 (39.0000)  acc5: 65.6250 (66.0000)  time: 0.2500  data: 0.0100  max mem: 5120
Epoch: [2] Total time: 0:04:10
Test:   [ 99/100]  eta: 0:00:00  loss: 1.2500 (1.5000)  acc1: 62.5000 (60.0000)  acc5: 87.5 (85.0)  time: 0.1000  data: 0.0500  max mem: 5120
Test:  Acc@1 60.000 Acc@5 85.000
""",
    reads={
        "step": 2050, "epoch": 2, "epoch_step": 50, "epoch_steps": 1000, "step_seconds": 0.25,
        "samples_per_second": 512.0, "loss": 2.5, "accuracy": 0.40625, "learning_rate": 0.1,
        "validation_loss": 1.5, "validation_accuracy": 0.6,
    },
)  # fmt: skip

IMAGENET = Format(
    name="PyTorch's ImageNet example",
    lines=(
        line(r"Epoch: \[<epoch>\]\[ *<epoch_step>/ *<epoch_steps>\]\s+(?P<pairs>Time.*)", "Epoch: [",
             "Time", spaced=True),
        line(
            r"^Test: \[ *<epoch_step>/ *<epoch_steps>\]\s.{0,80}?Loss +[-+\d.e]{1,16} \( *<loss>\)"
            r"(?:.{0,20}?Acc@1 +[\d.]{1,12} \( *<accuracy>\))?",
            "Test: [",
            "Loss",
            split="validation",
            at_end=True,
        ),
        line(r"^ *\* +(?:Acc@1|Prec@1) +<accuracy> ", "@1 ", "* ", split="validation"),
    ),
    fields={"Time": "step_seconds", "Data": "", **_PERCENT, "Prec@1": "accuracy%"},
    first_epoch=0,
    example="""\
Epoch: [1][ 100/5005]\tTime  0.250 ( 0.275)\tData  0.010 ( 0.012)\tLoss 4.5000e+00 (4.7500e+00)\tAcc@1  12.50 ( 10.00)\tAcc@5  31.25 ( 30.00)
Test: [196/196]\tTime  0.100 ( 0.120)\tLoss 2.0000e+00 (2.2500e+00)\tAcc@1  50.00 ( 45.00)\tAcc@5  75.00 ( 70.00)
 *   Acc@1 45.000 Acc@5 70.000
""",
    reads={
        "step": 5105, "epoch": 1, "epoch_step": 100, "epoch_steps": 5005, "step_seconds": 0.25,
        "loss": 4.5, "accuracy": 0.125, "validation_loss": 2.25, "validation_accuracy": 0.45,
    },
)  # fmt: skip

TIMM = Format(
    name="timm",
    lines=(
        line(
            r"Train: <epoch> \[ *<epoch_step>/ *<epoch_steps> [^\]]{0,12}\] +Loss: +<loss> [^T]{0,30}"
            r"Time: <step_seconds>s, +<samples_per_second>/s[^L]{0,60}LR: <learning_rate>",
            "rain",
            "Train: ",
            "LR: ",
        ),
        line(
            r"Test[^:\[]{0,16}: \[ *<epoch_step>/ *<epoch_steps>\] +Time: .{0,30}?"
            r"Loss: +[\d.]{1,12} +\( *<loss>\) +Acc@1: +[\d.]{1,12} +\( *<accuracy>\)",
            "Loss: ",
            "Acc@1: ",
            split="validation",
            at_end=True,
        ),
    ),
    fields=_PERCENT,
    first_epoch=0,
    example="""\
Train: 2 [  50/1251 (  4%)]  Loss: 4.500 (4.75)  Time: 0.250s, 1024.00/s  (0.275s,  930.91/s)  LR: 5.000e-04  Data: 0.010 (0.015)
Test: [  48/48]  Time: 0.100 (0.150)  Loss:   1.500 ( 1.750)  Acc@1:  62.500 ( 60.000)  Acc@5:  87.500 ( 85.000)
""",
    reads={
        "step": 2552, "epoch": 2, "epoch_step": 50, "epoch_steps": 1251, "step_seconds": 0.25,
        "samples_per_second": 1024.0, "loss": 4.5, "learning_rate": 0.0005,
        "validation_loss": 1.75, "validation_accuracy": 0.6,
    },
)  # fmt: skip

SWIN = Format(
    name="Swin Transformer",
    lines=(
        line(
            r"Train: \[<epoch>/<total_epochs>\]\[<epoch_step>/<epoch_steps>\]\s+eta \S+ <pairs>",
            "Train: [",
            "eta ",
            spaced=True,
        ),
        line(
            r"Test: \[ *<epoch_step>/<epoch_steps>\]\s[^L]{0,60}Loss [\d.]{1,12} \(<loss>\)\s"
            r"[^A]{0,40}Acc@1 [\d.]{1,12} \(<accuracy>\)",
            "Test: [",
            "Loss",
            split="validation",
            at_end=True,
        ),
        line(r"INFO +\* Acc@1 <accuracy> Acc@5", " * Acc@1 ", split="validation"),
    ),
    fields={"time": "step_seconds", **_PERCENT},
    first_epoch=0,
    example="""\
[2024-03-02 10:11:12 swin_tiny](main.py 222): INFO Train: [2/300][50/1251]\teta 0:10:00 lr 0.000250\t wd 0.0500\ttime 0.2500 (0.2750)\tloss 4.5000 (4.7500)\tgrad_norm 1.5000 (1.7500)\tloss_scale 65536.0000 (65536.0000)\tmem 5120MB
[2024-03-02 10:21:12 swin_tiny](main.py 289): INFO  * Acc@1 60.000 Acc@5 85.000
""",
    reads={
        "step": 2552, "epoch": 2, "total_epochs": 300, "epoch_step": 50, "epoch_steps": 1251,
        "step_seconds": 0.25, "loss": 4.5, "learning_rate": 0.00025, "gradient_norm": 1.5,
        "validation_accuracy": 0.6,
    },
)  # fmt: skip

NNUNET = Format(
    name="nnU-Net 1 and 2",
    lines=(
        line(r"^[\d-]{10} [\d:.]{8,16}: (?:Epoch|epoch:) +<epoch>\s*$", "poch", ": "),
        line(
            r"^[\d-]{10} [\d:.]{8,16}: Current learning rate: <learning_rate>",
            "learn",
            "learning rate: ",
        ),
        line(r"^[\d-]{10} [\d:.]{8,16}: lr: <learning_rate>", "lr: "),
        line(r"^[\d-]{10} [\d:.]{8,16}: train[_ ]loss(?: :)? <loss>\s*$", "train", "loss"),
        line(
            r"^[\d-]{10} [\d:.]{8,16}: val(?:_|idation )loss(?: ?:)? <val_loss>\s*$", "val", "loss"
        ),
    ),
    first_epoch=0,
    example="""\
2024-03-02 10:11:12.130201: Epoch 12
2024-03-02 10:11:12.130455: Current learning rate: 0.00875
2024-03-02 10:13:12.230101: train_loss -0.5625
2024-03-02 10:13:12.230201: val_loss -0.4375
2024-03-02 10:13:12.230301: Pseudo dice [0.75, 0.5]
2024-03-02 10:13:12.230401: Epoch time: 120.1 s
""",
    reads={"epoch": 12, "loss": -0.5625, "validation_loss": -0.4375, "learning_rate": 0.00875},
)

OPENCLIP = Format(
    name="OpenCLIP",
    lines=(
        line(r"Batch \(t\): [\d.]{1,12}, <samples_per_second>/s", "poch", "Batch (t): ", marks="part"),
        line(
            r"Train Epoch: <epoch> \[[^\]]{1,60}\] <pairs>", "Train Epoch: ", "Batch (t): "
        ),
        line(r"Eval Epoch: <epoch> <pairs>", "Eval Epoch: ", split="validation"),
    ),
    fields={"clip_val_loss": "loss", "Batch (t)": "step_seconds", "Data (t)": ""},
    first_epoch=0,
    example="""\
2024-03-02,10:11:12 | INFO | Train Epoch: 1 [  51200/1000000 (5%)] Data (t): 0.010 Batch (t): 0.250, 1024.00/s, 128.00/s/gpu LR: 0.000500 Logit Scale: 14.250 Contrastive_loss: 5.0000 (5.2500) Loss: 5.0000 (5.2500)
2024-03-02,10:21:12 | INFO | Eval Epoch: 1 image_to_text_R@1: 0.2500\tclip_val_loss: 4.5000\tepoch: 1.0000
""",
    reads={
        "epoch": 1, "step_seconds": 0.25, "samples_per_second": 1024.0, "loss": 5.0,
        "learning_rate": 0.0005, "validation_loss": 4.5,
    },
)  # fmt: skip

_PADDLE = {
    "batch_cost": "step_seconds", "avg_batch_cost": "step_seconds", "ips": "samples_per_second",
    "data_cost": "", "reader_cost": "", "avg_reader_cost": "", "avg_samples": "", "eta": "",
    "interval_samples_per_second": "samples_per_second",
    "interval_steps_per_second": "steps_per_second", "interval_runtime": "",
    "progress_or_epoch": "epoch",
}  # fmt: skip

PADDLE = Format(
    name="PaddlePaddle (PaddleDetection, PaddleClas, PaddleOCR, PaddleSeg, PaddleNLP)",
    lines=(
        line(
            r"Epoch: \[<epoch>\] \[ *<epoch_step>/<epoch_steps>\] (?P<pairs>learning_rate: .*)",
            "Epoch: [",
            "batch_cost: ",
            first_epoch=0,
        ),
        line(
            r"\[Train\]\[Epoch <epoch>/<total_epochs>\]\[Iter: <epoch_step>/<epoch_steps>\]"
            r"(?:lr(?:\(\w{1,30}\))?: <learning_rate>, )?<pairs>",
            "[Train][Epoch ",
        ),
        line(r"\[Eval\]\[Epoch <epoch>\]\[Avg\]<pairs>", "[Eval][Epoch ", split="validation",
             fields={"top1": "accuracy"}),
        line(r"\[Eval\]\[Epoch", "[Eval][Epoch "),
        line(
            r"epoch: \[<epoch>/<total_epochs>\], global_step: <step>, <pairs>",
            "epoch: [",
            "global_step: ",
        ),
        line(r"\[TRAIN\] epoch: <epoch>, iter: <step>/<total_steps>, <pairs>", "[TRAIN] epoch: "),
        line(r"\bloss: <loss>, learning_rate: <learning_rate>, global_step: <step>, <pairs>",
             "loss: ", ", global_step: "),
    ),
    fields=_PADDLE,
    example="""\
[03/02 10:11:12] ppdet.engine INFO: Epoch: [2] [  50/1000] learning_rate: 0.005000 loss_cls: 0.500000 loss: 1.250000 eta: 1:02:03 batch_cost: 0.2500 data_cost: 0.0010 ips: 32.0000 images/s
""",
    reads={
        "step": 2050, "epoch": 2, "epoch_step": 50, "epoch_steps": 1000, "step_seconds": 0.25,
        "samples_per_second": 32.0, "loss": 1.25, "learning_rate": 0.005,
    },
)  # fmt: skip

CAFFE = Format(
    name="Caffe",
    lines=(
        line(
            r"Iteration <step>(?: \(<steps_per_second> iter/s[^)]{0,40}\))?, loss = <loss>",
            "oss = ",
            "Iter",
        ),
        line(r"Iteration <step>, lr = <learning_rate>", "Iter", ", lr = "),
        line(
            r"Test net output #\d{1,4}: (?P<name>\w{1,60}) = <value>",
            "Test",
            "Test net output #",
            split="validation",
        ),
        line(r"Train net output #", "Train net output #"),
    ),
    example="""\
I0302 10:11:12.130201  1201 solver.cpp:330] Iteration 1000, Testing net (#0)
I0302 10:11:13.130201  1201 solver.cpp:397]     Test net output #0: accuracy = 0.75
I0302 10:11:13.130201  1201 solver.cpp:397]     Test net output #1: loss = 0.625 (* 1 = 0.625 loss)
I0302 10:11:14.130201  1201 solver.cpp:218] Iteration 1000 (4 iter/s, 25s/100 iters), loss = 0.5
I0302 10:11:14.130301  1201 solver.cpp:237]     Train net output #0: loss = 0.5 (* 1 = 0.5 loss)
I0302 10:11:14.130401  1201 sgd_solver.cpp:105] Iteration 1000, lr = 0.01
""",
    reads={
        "step": 1000, "step_seconds": 0.25, "loss": 0.5, "learning_rate": 0.01,
        "validation_loss": 0.625, "validation_accuracy": 0.75,
    },
)  # fmt: skip

DARKNET = Format(
    name="Darknet",
    lines=(
        line(
            r"^ *<step>: [-\d.naif]{1,24}, <loss> avg(?: loss)?, <learning_rate> rate, "
            r"<step_seconds> seconds, ",
            " avg",
            " rate, ",
        ),
    ),
    example=" 1200: 4.250000, 4.500000 avg loss, 0.001000 rate, 3.250000 seconds, 76800 images, 12.5 hours left",
    reads={"step": 1200, "loss": 4.5, "learning_rate": 0.001, "step_seconds": 3.25},
)
