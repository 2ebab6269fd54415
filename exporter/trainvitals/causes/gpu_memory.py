"""Deaths because a GPU's memory ran out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_size
from trainvitals.causes.hints import advise_smaller_batch
from trainvitals.causes.signs import find, has
from trainvitals.causes.verdict import Cause, Finding

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
_CUDA_OOM = has(
    "CUDA out of memory",
    "CUDA error: out of memory",
    "OutOfMemoryError",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "OOM when allocating tensor",
    "RESOURCE_EXHAUSTED: Out of memory",
    "HIP out of memory",
)
# What is reserved and not used is worth a setting when it is this much, and this much of the total.
_LARGE_BYTES = 512 << 20
_LARGE_RATIO = 0.05
# A process holds some memory that PyTorch does not count: the CUDA context and its libraries.
_CONTEXT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What PyTorch says when a GPU has no memory left; sizes in bytes, None where it is not said.

    Attributes:
        gpu: The GPU as the program numbers them.
        tried: What was asked for.
        total: What the GPU has.
        free: What nobody held.
        allocated: What tensors of the program hold.
        unallocated: What the program holds and does not use.
        others: Other processes on that GPU, by the host's number, and what they hold.
    """

    gpu: int | None = None
    tried: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    unallocated: int | None = None
    others: tuple[tuple[int, int], ...] = ()


def parse_report(text: str) -> MemoryReport:
    """Read what PyTorch 1 and 2 say in their ways; what is not there stays None."""
    gpu = _GPU.search(text)
    allocated, reserved = _read(_ALLOCATED, text), _read(_RESERVED, text)
    unallocated = _read(_UNALLOCATED, text)
    if unallocated is None and reserved is not None and allocated is not None:
        unallocated = max(0, reserved - allocated)
    report = MemoryReport(
        gpu=int(gpu[1]) if gpu else None,
        tried=_read(_TRIED, text),
        total=_read(_TOTAL, text),
        free=_read(_FREE, text),
        allocated=allocated,
        unallocated=unallocated,
    )
    return MemoryReport(
        report.gpu,
        report.tried,
        report.total,
        report.free,
        report.allocated,
        report.unallocated,
        _read_others(text, report),
    )


def _read(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = [group for group in found.groups() if group is not None]
    return _to_bytes(number, unit)


def _to_bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS["bytes" if unit == "bytes" else unit[0]])


def _read_others(text: str, report: MemoryReport) -> tuple[tuple[int, int], ...]:
    found = [(int(one[1]), _to_bytes(one[2], one[3])) for one in _PROCESS.finditer(text)]
    if _OWN.search(text) is not None or report.allocated is None:
        return tuple(found)
    # In a container PyTorch does not know its own number on the host, and lists itself too.
    own = report.allocated + (report.unallocated or 0)
    near = [one for one in found if 0 <= one[1] - own <= _CONTEXT_BYTES]
    itself = min(near, key=lambda one: one[1] - own, default=None)
    return tuple(one for one in found if one is not itself)


def look_cuda_oom(case: Case) -> Finding | None:
    """Look for a GPU whose memory ran out, and read who held it."""
    sign = find(case, _CUDA_OOM)
    if sign is None:
        return None
    report = parse_report(sign.text)
    which = "A GPU" if report.gpu is None else f"GPU {report.gpu}"
    tried = f": another {write_size(report.tried)} did not fit" if report.tried else ""
    if report.total is not None and report.free is not None:
        tried += f", {write_size(report.free)} of {write_size(report.total)} were free"
    return sign.conclude(
        "cuda-oom",
        f"{which} ran out of memory{tried}.",
        _advise_cuda(case, report),
        speaks_for=_tell(report),
    )


def _tell(report: MemoryReport) -> tuple[str, ...]:
    told = []
    if report.allocated is not None:
        spare = (
            f", and {write_size(report.unallocated)} more was kept" if report.unallocated else ""
        )
        told.append(f"Its own tensors held {write_size(report.allocated)}{spare}.")
    told += [f"Process {pid} held {write_size(size)} of it." for pid, size in report.others]
    return tuple(told)


def _advise_cuda(case: Case, report: MemoryReport) -> tuple[str, ...]:
    steps = []
    if report.others:
        pids = ",".join(str(pid) for pid, _ in report.others)
        which = "" if report.gpu is None else f" {report.gpu}"
        steps.append(
            f"Another program is on GPU{which}: `ps -o pid,user,cmd -p {pids}` on the host says"
            f" whose; end it, or move one of the two with `CUDA_VISIBLE_DEVICES`."
        )
    spare = report.unallocated or 0
    if spare >= _LARGE_BYTES and spare >= _LARGE_RATIO * (report.total or 0):
        steps.append(
            f"{write_size(spare)} was reserved and not used, so the memory is in pieces: set"
            " `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`."
        )
    return (
        *steps,
        advise_smaller_batch(case),
        (
            "Save memory at the same batch: `bf16=True`, `gradient_checkpointing=True`, shorter"
            " sequences, or a sharded optimizer (FSDP, ZeRO)."
        ),
        (
            "To see what holds it, call `torch.cuda.memory._record_memory_history()` and"
            " `torch.cuda.memory._dump_snapshot('memory.pickle')`."
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="cuda-oom",
        title="A GPU ran out of memory",
        signs="The log says `CUDA out of memory` or `OutOfMemoryError`; who held how much is read"
        " from PyTorch's message.",
        meaning="The batch, the model's state or another program on the same GPU needs too much.",
        steps=(
            "Use a smaller batch with gradient accumulation, `bf16` and gradient checkpointing.",
            "Move the other process away where the message names one.",
            (
                "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` where much is reserved and"
                " not allocated."
            ),
        ),
        confidence="high",
        look=look_cuda_oom,
    ),
)
