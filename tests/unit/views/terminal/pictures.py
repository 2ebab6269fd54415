"""Example pictures: healthy, in trouble, empty, with Gaudi cards and with malicious names."""

from __future__ import annotations

import math
from dataclasses import replace

from trainvitals.sources.containers.reading import Death
from trainvitals.verdicts.trouble import Trouble, Unknown
from trainvitals.views.machine.picture import (
    TRACE_POINTS,
    Accelerator,
    Alert,
    Collector,
    Container,
    Filesystem,
    Holder,
    Host,
    Laggard,
    Metric,
    Picture,
    Run,
    Trace,
)

GIB = 1 << 30
NOW = 1_795_357_400.0  # 2026-11-22 14:23:20 UTC
COLLECTORS = (
    "cpu",
    "memory",
    "disk",
    "filesystem",
    "network",
    "pressure",
    "kernel",
    "accelerator",
    "container",
    "training",
)


def wave(low: float, high: float, *, turns: float = 3.0, known: int = TRACE_POINTS) -> Trace:
    """Return a trace that rises and falls, of which only the newest points are known."""
    middle, reach = (low + high) / 2, (high - low) / 2
    values = [
        round(middle + reach * math.sin(turns * math.tau * at / TRACE_POINTS), 4)
        for at in range(TRACE_POINTS)
    ]
    return (None,) * (TRACE_POINTS - known) + tuple(values[TRACE_POINTS - known :])


def fall(first: float, last: float) -> Trace:
    """Return a trace that falls, first fast and then slowly."""
    return tuple(round(last + (first - last) * math.exp(-at / 20), 4) for at in range(TRACE_POINTS))


def make_gpu(device: int, **changes: object) -> Accelerator:
    """Return an H100 that is used for training, with these changes."""
    gpu = Accelerator(
        kind="gpu",
        device=device,
        uuid=f"GPU-8f1c2f3e-0000-0000-0000-00000000000{device}",
        model="NVIDIA H100 80GB HBM3",
        driver="570.124.06",
        last_seen=NOW,
        utilization_ratio=0.97,
        memory_used_bytes=71 * GIB,
        memory_total_bytes=int(79.6 * GIB),
        temperature_celsius=63.0,
        temperature_limit_celsius=87.0,
        power_watts=512.0,
        power_limit_watts=700.0,
        holders=(Holder(4021 + device, 70 * GIB, "python", "ann", "bert-large", "bert-large"),),
        utilization_trace=wave(0.9, 1.0),
        memory_trace=wave(0.88, 0.9),
        temperature_trace=wave(58.0, 64.0),
        power_trace=wave(420.0, 540.0),
    )
    return replace(gpu, **changes)  # type: ignore[arg-type]


BERT = Run(
    name="bert-large",
    phase="forward",
    bound="compute-bound",
    started=NOW - 7400,
    step=12_300,
    steps=50_000,
    epoch=3,
    epochs=10,
    progress_ratio=0.246,
    eta_seconds=22_750.0,
    samples_per_second=1302.0,
    step_seconds=0.197,
    loss=2.114,
    validation_loss=2.208,
    loss_trace=fall(3.9, 2.1),
    ranks_alive=8,
    ranks=8,
    world_size=8,
    devices=tuple(f"gpu{device}" for device in range(8)),
)
TRAINER = Container(
    name="bert-large",
    image="nvcr.io/nvidia/pytorch:25.01-py3",
    status="running",
    health="healthy",
    started=NOW - 7500,
    restarts=0,
    memory_used_bytes=112 * GIB,
    memory_limit_bytes=256 * GIB,
    cpu_cores=31.4,
    cpu_limit_cores=64.0,
    processes=412,
    devices=BERT.devices,
)
NODE_EXPORTER = Container(
    name="node-exporter",
    image="prom/node-exporter:v1.9.0",
    status="running",
    memory_used_bytes=21 << 20,
    memory_limit_bytes=0,
    cpu_cores=0.01,
    processes=6,
)
HOST = Host(
    cpu_percent=34.0,
    cores=128,
    io_wait_ratio=0.012,
    load=(41.2, 40.02, 38.75),
    memory_total_bytes=1007 * GIB,
    memory_available_bytes=804 * GIB,
    swap_total_bytes=8 * GIB,
    swap_free_bytes=8 * GIB,
    oom_kills=0,
    disk_read_bytes_per_second=412e6,
    disk_written_bytes_per_second=3.5e6,
    received_bytes_per_second=1.2e6,
    transmitted_bytes_per_second=0.4e6,
    filesystems=(
        Filesystem("/data", "xfs", 7000 * GIB, 1900 * GIB, 0.99, is_readonly=False),
        Filesystem("/", "ext4", 437 * GIB, 250 * GIB, 0.92, is_readonly=False),
    ),
    cpu_trace=wave(20.0, 40.0),
    memory_trace=wave(0.19, 0.21),
)
GOOD_DAY = Picture(
    time=NOW,
    hostname="gpu-07",
    version="0.1.0",
    accelerators=tuple(make_gpu(device) for device in range(8)),
    accelerators_expected=(("gpu", 8),),
    runs=(BERT,),
    containers=(TRAINER, NODE_EXPORTER),
    host=HOST,
    alerts=(),
    collectors=tuple(
        Collector(name, success=True, reason="", duration_seconds=0.004, last_success=NOW)
        for name in COLLECTORS
    ),
)

_LOST = make_gpu(
    1,
    state="lost",
    last_seen=NOW - 125,
    utilization_ratio=None,
    memory_used_bytes=None,
    temperature_celsius=None,
    power_watts=None,
    xids=((79, 1),),
    holders=(),
)
_SLOW = make_gpu(
    3,
    utilization_ratio=0.61,
    temperature_celsius=86.0,
    power_watts=268.0,
    throttled=("hw_thermal", "sw_power_cap"),
    temperature_trace=wave(70.0, 87.0, turns=0.25),
)
_KILLED = Container(
    name="sweep-17",
    image="registry.example.com/research/sweep:latest",
    status="exited",
    restarts=2,
    memory_limit_bytes=16 * GIB,
    oom_kills=1,
    deaths=3,
    last_death=Death(
        NOW - 190,
        137,
        "oom-cgroup",
        "SIGKILL",
        "high",
        "The kernel killed the container because it reached its memory limit of 16.0 GiB.",
    ),
)
_STALLED = replace(
    BERT,
    name="llama-ft",
    state="stalled",
    tone="warning",
    phase="backward",
    bound=None,
    stalled_seconds=312.0,
    samples_per_second=None,
    eta_seconds=None,
    ranks_alive=2,
    ranks=2,
    devices=("gpu2", "gpu3"),
    metrics=(Metric("ppl", "val", 9.81),),
)
_BEHIND = replace(BERT, laggards=(Laggard("3", 1.34), Laggard("6", 1.05)))
_DIED = replace(
    BERT,
    name="vit-b16",
    state="died",
    tone="bad",
    phase=None,
    ended=NOW - 700,
    ending="CUDA out of memory, exit code 1",
    progress_ratio=0.61,
    eta_seconds=None,
    samples_per_second=None,
    ranks_alive=0,
    ranks=1,
    restarts=2,
    devices=(),
)
BAD_DAY = replace(
    GOOD_DAY,
    accelerators=(
        make_gpu(0),
        _LOST,
        make_gpu(2, utilization_ratio=0.0, power_watts=118.0),
        _SLOW,
        *(make_gpu(device) for device in range(4, 7)),
        make_gpu(7, memory_used_bytes=int(78.9 * GIB), memory_limit_bytes=75 * GIB),
    ),
    runs=(_BEHIND, _STALLED, _DIED),
    containers=(_KILLED, replace(TRAINER, memory_used_bytes=246 * GIB), NODE_EXPORTER),
    host=replace(
        HOST,
        cpu_percent=91.0,
        io_wait_ratio=0.41,
        memory_available_bytes=61 * GIB,
        swap_free_bytes=1 * GIB,
        oom_kills=3,
        recent_oom_kills=1,
        filesystems=(
            Filesystem("/mnt/nfs", "nfs4", trouble="does not answer"),
            Filesystem("/", "ext4", 437 * GIB, 9 * GIB, 0.02, is_readonly=False),
            Filesystem("/data", "xfs", 7000 * GIB, 1100 * GIB, 0.99, is_readonly=True),
        ),
    ),
    alerts=(
        Alert("AcceleratorLost", "critical", "gpu1", "GPU 1 no longer answers.", NOW - 95),
        Alert("TrainingStalled", "critical", "llama-ft", "Nothing moves for 5 min.", NOW - 130),
        Alert("ContainerOOMKilled", "warning", "sweep-17", "Killed for memory.", NOW - 180),
        Alert("HostDiskSpaceLow", "warning", "/", "9.0 GiB are left.", NOW - 4100),
    ),
    troubles=(
        Trouble("accelerator", "gpu1", "lost", "critical", "it vanished", "AcceleratorLost"),
        Trouble("accelerator", "gpu3", "too hot", "critical", "86 of 87 °C", "GPUHighTemperature"),
        Trouble("run", "llama-ft", "is stalled", "critical", "no progress", "TrainingStalled"),
        Trouble("run", "vit-b16", "died", "critical", "out of memory", "TrainingOutOfMemory"),
        Trouble(
            "container", "sweep-17", "died", "critical", "reached 16.0 GiB", "ContainerOOMKilled"
        ),
        Trouble(
            "filesystem",
            "/mnt/nfs",
            "does not answer",
            "critical",
            "",
            "HostFilesystemNotResponding",
        ),
        Trouble("host", "", "out of memory", "critical", "1 process killed", "HostOOMKill"),
        Trouble(
            "accelerator",
            "gpu7",
            "above its memory limit",
            "warning",
            "78.9 / 75.0 GiB",
            "AcceleratorMemoryOverLimit",
        ),
        Trouble("run", "bert-large", "has a slow rank", "warning", "3", "TrainingStragglerRank"),
        Trouble(
            "container",
            "bert-large",
            "near its memory limit",
            "warning",
            "246 / 256 GiB",
            "ContainerMemoryNearLimit",
        ),
        Trouble("filesystem", "/", "nearly full", "warning", "9.0 GiB free", "HostDiskSpaceLow"),
        Trouble("filesystem", "/", "few inodes", "warning", "2% free", "HostInodesLow"),
        Trouble("host", "", "memory nearly full", "warning", "94% used", "HostHighMemoryUsage"),
    ),
    collectors=(
        *(
            Collector(name, success=True, reason="", duration_seconds=0.004, last_success=NOW)
            for name in COLLECTORS[:-3]
        ),
        Collector(
            "accelerator",
            success=False,
            reason="gpu 1 does not answer",
            duration_seconds=0.5,
            last_success=NOW - 125,
        ),
        Collector("container", success=True, reason="", duration_seconds=0.02, last_success=NOW),
        Collector("training", success=True, reason="", duration_seconds=0.003, last_success=NOW),
    ),
)

EMPTY = Picture(
    time=NOW,
    hostname="laptop",
    version="0.1.0",
    collectors=(
        Collector("cpu", success=True, reason="", duration_seconds=0.001, last_success=NOW),
    ),
    unknowns=(Unknown("alert", "no Prometheus is named"),),
)

GAUDI = replace(
    GOOD_DAY,
    hostname="gaudi-02",
    accelerators=tuple(
        make_gpu(
            device,
            kind="hpu",
            uuid=f"01P0-HL2080A0-15-TNPS34-0{device}",
            model="HL-225",
            driver="1.22.1-97ec1a4",
            memory_used_bytes=90 * GIB,
            memory_total_bytes=96 * GIB,
            temperature_celsius=44.0,
            temperature_limit_celsius=None,
            power_limit_watts=600.0,
            holders=(),
            power_trace=wave(300.0, 420.0, known=30),
        )
        for device in range(8)
    ),
    accelerators_expected=(("hpu", 8),),
    runs=(replace(BERT, tokens_per_second=52_100.0, samples_per_second=None, devices=()),),
    containers=None,
    alerts=None,
    unknowns=(Unknown("alert", "no Prometheus is named"),),
)

HOSTILE_NAMES = (
    "\x1b[2J\x1b[31mred\x1b]0;title\x07",
    "モデル訓練の実行その二",
    "🔥🚀 rocket-run",
    "evil\u202egnp.exe\u2066\u200b",
    "z̷̧̢̛͎̥̘̗̈́̈́̓̽͘͝a̸̡͙͔̻͊̈́͆̕l̵̢̠̈́̈́g̶̙͝o",
    "line\nbreak\r\tand\0null\x9b31m\x85",
    "\ud800 lone surrogate",
)
HOSTILE = replace(
    GOOD_DAY,
    hostname=HOSTILE_NAMES[0],
    accelerators=tuple(
        make_gpu(
            at,
            model=name,
            throttled=("hw_thermal", name),
            holders=(Holder(4000 + at, GIB, name, name, name, name),),
        )
        for at, name in enumerate(HOSTILE_NAMES)
    ),
    runs=tuple(
        replace(BERT, name=name, ending=name, ended=NOW - 9, phase=name, bound=name)
        for name in HOSTILE_NAMES
    ),
    containers=tuple(
        replace(_KILLED, name=name, image=name, status=name) for name in HOSTILE_NAMES
    ),
    host=replace(HOST, filesystems=tuple(Filesystem(name, name) for name in HOSTILE_NAMES)),
    alerts=tuple(Alert(name, name, name, name, NOW) for name in HOSTILE_NAMES),
    collectors=tuple(
        Collector(name, success=False, reason=name, duration_seconds=1.0, last_success=NOW)
        for name in HOSTILE_NAMES
    ),
    troubles=tuple(Trouble("run", name, name, "critical", name, name) for name in HOSTILE_NAMES),
    unknowns=tuple(Unknown("run", name) for name in HOSTILE_NAMES),
)

PICTURES = {
    "good": GOOD_DAY,
    "bad": BAD_DAY,
    "empty": EMPTY,
    "gaudi": GAUDI,
    "hostile": HOSTILE,
}
