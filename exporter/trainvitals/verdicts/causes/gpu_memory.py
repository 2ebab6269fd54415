"""Failures of programs because a GPU ran out of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.advice import advise_smaller_batch
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import Framework, find_framework, is_rocm
from trainvitals.verdicts.causes.log_matches import find_surest
from trainvitals.verdicts.causes.signs import Sign, contains, matches
from trainvitals.verdicts.causes.verdict import Cause, Finding

_SIZE = r"(\d{1,7}(?:\.\d{1,3})?) (bytes|[KMGT]i?B)"
_TRIED = re.compile(rf"[Tt]ried to allocate {_SIZE}")
_GPU = re.compile(r"GPU (\d{1,3})\b")
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capaci?ty")
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free")
_ALLOCATED = re.compile(rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated")
_UNALLOCATED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} reserved in total")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_PROCESS = re.compile(rf"Process (\d{{1,10}}) has {_SIZE} memory in use")
_UNITS = {"bytes": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OUT = re.compile(
    r"cuda runtime error \(2\)|error=2 : out of memory|(?<!exceptions\.)(?<!lang\.)\bOutOfMemoryError"
    r"|cudaErrorMemoryAllocation|CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_STATUS_ALLOC_FAILED"
    r"|OOM when allocating tensor|Out of memory (?:allocating|while trying to allocate)"
    r"|Dst tensor is not initialized|No available memory for the cache blocks|enforce allocating <= available failed"
    r"|Free memory on device .{1,80}is less than desired GPU memory utilization|[Ee]rror out of memory at line"
    r"|larger than the (?:available KV cache memory|maximum number of tokens that can be stored in KV cache)"
    r"|Not enough memory\. Please try .{0,40}mem.fraction|BFCArena.{0,200}Failed to allocate memory"
    r"|smaller than requested bytes of [0-9]"
)
# Words for exhausted memory, near which a word for a device must be found.
_EXHAUSTED = re.compile(
    r"out[ _]of[ _](?:(?:gpu|video|device)[ _])?(?:memory|resources)(?! (?:problem|issue))|outofmemory"
    r"|failed to (?:\w{1,8} )?[mc]?alloc|alloc\w{0,8}(?: (?:retry|has))? failed"
    r"|(?:insufficient|not enough) (?:\w{1,8} )?memory|memory on (?:the )?\w{1,8} is exhausted",
    re.IGNORECASE,
)
_DEVICE = re.compile(
    r"cuda|hip(?:error|malloc)|\b(?:gpus?|hip|mps|xpu|npu|vram|cumem\w{1,20})\b|\bur_result_"
    r"|\bdevice (?:ordinal|memory|[0-9])|from device|resource_?[ ]?exhausted|pooled_storage_manager",
    re.IGNORECASE,
)
# XLA and TensorFlow warn about a failed allocation and then try another way to allocate.
_NOT_A_DEVICE = (
    "The caller indicates that this is not a failure",
    "memory space hbm",
    "on TPU",
    "Insufficient memory)",
    "java.lang.",
    "ray.exceptions",
    "device:CPU",
    "DefaultCPUAllocator",
    "host alloc",
    "ost memory",
    "HostAlloc",
    "MallocHost",
    "static TLS",
    "shared memory",
    "dev/shm",
    "JobState=",  # a Slurm job's record, which names a partition
)
# Messages about memory that may run out but has not run out.
_NOT_YET = (
    "run out of",
    "running out of",
    "avoid out of",
    "prevent out of",
    "get out of",
    "if out of",
    "when out of",
)
_CUDA_OOM = Sign(_OUT, without=_NOT_A_DEVICE[:5])
_NEAR_A_DEVICE = Sign(_EXHAUSTED, without=(*_NOT_A_DEVICE, *_NOT_YET), near=_DEVICE)
_OF_LIBRARY = contains("_STATUS_ALLOC_FAILED")
_OF_MEMORY = contains("out of memory", "OutOfMemoryError", "RESOURCE_EXHAUSTED", "free,")
# Memory that PyTorch reserved but does not use is called fragmented if it reaches both limits.
_LARGE_BYTES = 512 << 20
_LARGE_RATIO = 0.05
# PyTorch counts neither the CUDA context nor the memory of CUDA's libraries.
_CONTEXT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The values in PyTorch's out-of-memory message.

    Sizes are in bytes; a value that is absent from the message is None.

    Attributes:
        gpu: The number of the GPU in the program's own numbering.
        tried: The size of the allocation that failed.
        total: The total memory of the GPU.
        free: The free memory of the GPU.
        allocated: The memory allocated for the program's tensors.
        unallocated: The memory that PyTorch reserved but that no tensor uses.
        others: The process ID on the host and the memory of every other process on this GPU.
    """

    gpu: int | None = None
    tried: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    others: tuple[tuple[int, int], ...] = ()


def parse_report(text: str) -> MemoryReport:
    """Parse an out-of-memory message from PyTorch 1 or 2."""
    gpu = _GPU.search(text)
    allocated, reserved = _read(_ALLOCATED, text), _read(_RESERVED, text)
    unallocated = _read(_UNALLOCATED, text)
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(0, reserved - allocated)
    return MemoryReport(
        gpu=int(gpu[1]) if gpu else None,
        tried=_read(_TRIED, text),
        total=_read(_TOTAL, text),
        free=_read(_FREE, text),
        allocated=allocated,
        unallocated=unallocated,
        others=_read_others(text, allocated, unallocated),
    )


def _read(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = [group for group in found.groups() if group is not None]
    return _to_bytes(number, unit)


def _to_bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS["bytes" if unit == "bytes" else unit[0]])


def _read_others(
    text: str, allocated: int | None, unallocated: int | None
) -> tuple[tuple[int, int], ...]:
    found = [(int(one[1]), _to_bytes(one[2], one[3])) for one in _PROCESS.finditer(text)]
    if _OWN.search(text) is not None or allocated is None:
        return tuple(found)
    # In a container, PyTorch does not know its own process ID on the host, so it also lists itself.
    own = allocated + (unallocated or 0)
    near = [one for one in found if 0 <= one[1] - own <= _CONTEXT_BYTES]
    itself = min(near, key=lambda one: one[1] - own, default=None)
    return tuple(one for one in found if one is not itself)


def detect_cuda_oom(case: Case) -> Finding | None:
    """Detect a GPU that ran out of memory, and describe which processes used the memory."""
    match = find_surest(case, _CUDA_OOM, _NEAR_A_DEVICE)
    if match is None:
        return None
    if _OF_LIBRARY(match.text) and not _OF_MEMORY(match.text):
        why = "A library's call also fails so after an assertion in an earlier kernel."
        match = match.cap("medium", why)
    report = parse_report(match.text)
    which = "A GPU" if report.gpu is None else f"GPU {report.gpu}"
    tried = f": an allocation of {format_bytes(report.tried)} failed" if report.tried else ""
    free = ""
    if report.total is not None and report.free is not None:
        free = f" with {format_bytes(report.free)} of {format_bytes(report.total)} free"
    return match.conclude(
        "cuda-oom",
        f"{which} ran out of memory{tried}{free}.",
        _advise_cuda(case, report, match.text),
        speaks_for=_describe(report),
    )


def _describe(report: MemoryReport) -> tuple[str, ...]:
    sentences = []
    if report.allocated is not None:
        spare = (
            f", and PyTorch reserved {format_bytes(report.unallocated)} more"
            if report.unallocated
            else ""
        )
        sentences.append(f"The program's tensors used {format_bytes(report.allocated)}{spare}.")
    sentences += [
        f"Process {pid} used {format_bytes(size)} of the same GPU." for pid, size in report.others
    ]
    return tuple(sentences)


def _advise_cuda(case: Case, report: MemoryReport, text: str) -> tuple[str, ...]:
    if _OF_MPS(text):
        return (_SMALLER, *_ADVICE_MPS)
    steps: list[str] = []
    if report.others:
        pids = ",".join(str(pid) for pid, _ in report.others)
        which = "" if report.gpu is None else f" {report.gpu}"
        steps.append(
            f"Find the other program on GPU{which}: `ps -o pid,user,cmd -p {pids}` on the host; end it,"
            " or move one of the two with `CUDA_VISIBLE_DEVICES`."
        )
    is_vllm = case.search(_VLLM) is not None
    framework = "torch" if is_vllm else find_framework(case, text)
    if framework == "torch":
        steps += _advise_fragments(case, report)
    if is_vllm:
        steps.append(_SHARE_VLLM)
    smaller = advise_smaller_batch(case) if framework in _ACCUMULATE else _SMALLER
    return (*steps, smaller, *_ADVICE.get(framework, ()))


def _advise_fragments(case: Case, report: MemoryReport) -> tuple[str, ...]:
    spare = report.unallocated or 0
    if spare < _LARGE_BYTES or spare < _LARGE_RATIO * (report.total or 0):
        return ()
    variable = "PYTORCH_HIP_ALLOC_CONF" if is_rocm(case) else "PYTORCH_CUDA_ALLOC_CONF"
    return (
        (
            f"Reduce fragmentation, because {format_bytes(spare)} was reserved but not allocated: set"
            f" `{variable}=expandable_segments:True`."
        ),
    )


_OF_MPS = contains("MPS backend out of memory", "MPSNDArray", "PYTORCH_MPS_HIGH_WATERMARK_RATIO")
_ADVICE_MPS = (
    (
        "Read what is held: `torch.mps.current_allocated_memory()`, `torch.mps.driver_allocated_memory()`; free it"
        " with `torch.mps.empty_cache()`."
    ),
    (
        "The limit is 1.7 times the memory that Metal recommends; `PYTORCH_MPS_HIGH_WATERMARK_RATIO=2.0` raises it,"
        " and 0.0 removes it, after which the whole system may run out."
    ),
)
_VLLM = matches(r"\bvllm[._/]|\bvLLM\b|gpu[_-]memory[_-]utilization")
_SHARE_VLLM = (
    "Set the share that vLLM takes at its start, which is 0.9: lower `gpu_memory_utilization` (with verl"
    " `actor_rollout_ref.rollout.gpu_memory_utilization=0.4`) where a trainer shares the GPU, raise it or lower"
    " `max_model_len` where the KV cache has no room."
)
_ACCUMULATE = frozenset({"torch", "jax", "xpu"})
_SMALLER = "Reduce the batch size, or the size of the inputs."
_ADVICE: dict[Framework, tuple[str, ...]] = {
    "torch": (
        (
            "Save memory at the same batch size: `bf16=True`, `gradient_checkpointing=True`, shorter"
            " sequences, or a sharded optimizer (FSDP, ZeRO)."
        ),
        (
            "To find what uses it, call `torch.cuda.memory._record_memory_history()` and"
            " `torch.cuda.memory._dump_snapshot('memory.pickle')`."
        ),
    ),
    "jax": (
        (
            "XLA takes 75 % of the GPU at the start; another program on it needs"
            " `XLA_PYTHON_CLIENT_MEM_FRACTION=0.4` or `XLA_PYTHON_CLIENT_PREALLOCATE=false`."
        ),
        "Save memory at the same batch size: `jax.checkpoint`, `bfloat16`, `jax.jit(donate_argnums=…)`.",
        "To find what uses it: `jax.profiler.save_device_memory_profile('memory.prof')`.",
    ),
    "tensorflow": (
        (
            "Take only what is needed: `tf.config.experimental.set_memory_growth(gpu, True)`, and less"
            " fragmentation with `TF_GPU_ALLOCATOR=cuda_malloc_async`."
        ),
        (
            "Save memory at the same batch size: `keras.mixed_precision.set_global_policy('mixed_float16')`,"
            " smaller inputs or layers."
        ),
    ),
    "paddle": (
        (
            "Set how much it takes: `FLAGS_fraction_of_gpu_memory_to_use=0.9`,"
            " `FLAGS_allocator_strategy=auto_growth`."
        ),
        "Save memory at the same batch size: `paddle.amp.auto_cast()`, recomputation.",
    ),
    "mxnet": (
        "Take less for the pool: `MXNET_GPU_MEM_POOL_RESERVE=10`, `MXNET_GPU_MEM_POOL_TYPE=Round`.",
        "Save memory at the same batch size: `mxnet.contrib.amp`, `MXNET_BACKWARD_DO_MIRROR=1`.",
    ),
    "chainer": (
        (
            "Free what the pool holds before a larger step:"
            " `cupy.get_default_memory_pool().free_all_blocks()`; `used_bytes()` shows what is in use."
        ),
        "Save memory at the same batch size: `chainer.global_config.dtype = chainer.mixed16`, `F.forget`.",
    ),
    "native": (
        "With Darknet raise `subdivisions` in the `.cfg`; with LightGBM and XGBoost lower `max_bin`.",
    ),
    "xpu": (
        "Save memory at the same batch size: `bf16`, gradient checkpointing, shorter sequences.",
        "To find what uses it: `torch.xpu.memory_summary()`, `xpu-smi stats -d 0`.",
    ),
}

CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="cuda-oom",
        title="A GPU ran out of memory",
        signs="The log contains `CUDA out of memory`, `HIP out of memory`, `OOM when allocating tensor` or"
        " `RESOURCE_EXHAUSTED: Out of memory`; PyTorch's message has the memory of each process.",
        meaning="The batch, the model's state or another program on the same GPU needs too much"
        " memory.",
        steps=(
            "Reduce the batch size with gradient accumulation; use `bf16` and gradient checkpointing.",
            "Move the other process to another GPU if the message names one.",
            (
                "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` if much memory is reserved but"
                " not allocated."
            ),
        ),
        confidence="high",
        detect=detect_cuda_oom,
    ),
)
