"""Advice with the actual limits and settings, so that its commands can be copied."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.signs import contains, matches

_BATCH = re.compile(
    r"(?<![\w-])(--?)?((?:per[_-]device[_-])?(?:(?:train|micro|mini|global|local)[_-]?)*"
    r"batch[_ -]?size(?:[_ -]per[_ -](?:gpu|device))?)[\"']?\s*(?:[=:]\s*|\s)(\d{1,6})(?![\w.])",
    re.IGNORECASE,
)
_WORKERS = re.compile(
    r"(?<![\w-])(--?)?((?:dataloader[_-])?num[_-]workers)[\"']?\s*(?:[=:]\s*|\s)(\d{1,4})(?![\w.])",
    re.IGNORECASE,
)
_SLURM = contains("srun: ", "slurmstepd: ", "SLURM_JOB_ID")
_BIG_SHM_BYTES = 256 * 1024**2
_STREAM = (
    "Stream or map the data instead of loading it whole (`streaming=True`,"
    " `numpy.load(…, mmap_mode='r')`)."
)
_OFFLOADED = matches(
    r"Adam Optimizer #[0-9]{1,4} is created with|Parameter Offload: Total|offload_(?:optimizer|param)\b"
    r"|DeepSpeedCPUAdam|\bcpu_offload\b|ZeRO-Offload"
)
_OFFLOAD_LESS = (
    "DeepSpeed's CPU offload keeps the optimizer's states in host memory, about 16 bytes for each"
    " parameter: give the job that much, or offload less in its configuration (`offload_param`,"
    " `offload_optimizer`; `device: nvme`)."
)
_MIB, _GIB = 1024.0**2, 1024.0**3
_STEP_BELOW_GIB = 64
_HALVES_BELOW_GIB = 4
_MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class Hint:
    """A numeric setting found in the command line or in the log.

    Attributes:
        name: The name of the setting as written, such as `--batch-size` or `batch_size`.
        value: The value of the setting.
    """

    name: str
    value: int

    @property
    def text(self) -> str:
        """The setting with its value, such as `--batch-size 32` or `batch_size=32`."""
        return self.write(self.value)

    def write(self, value: int) -> str:
        """Return the setting with the given value."""
        return f"{self.name}{' ' if self.name.startswith('-') else '='}{value}"


def is_in_engine(case: Case) -> bool:
    """Return whether the subject is a container that the engine knows.

    The result is False if the evidence consists only of a folder or a log file.
    """
    evidence = case.evidence
    return case.is_container and (
        evidence.state is not None or bool(evidence.id or evidence.events)
    )


def is_in_slurm(case: Case) -> bool:
    """Return whether a control group, an OOM kill or the log shows that Slurm ran the subject."""
    groups = (case.evidence.cgroup, *(kill.task_memcg for kill in case.evidence.oom_kills or ()))
    return any("slurm" in group for group in groups) or case.search(_SLURM) is not None


def find_batch_size(case: Case) -> Hint | None:
    """Return the batch size in the command, or else the last batch size in the log.

    The result is None if the batch size is unknown.
    """
    return _find(case, _BATCH)


def find_workers(case: Case) -> Hint | None:
    """Return the number of data loader workers in the command, or else in the log.

    The result is None if the number is unknown.
    """
    return _find(case, _WORKERS)


def _find(case: Case, pattern: re.Pattern[str]) -> Hint | None:
    for text in _list_texts(case):
        for match in reversed(list(pattern.finditer(text))):
            if int(match[3]) > 0:
                return Hint((match[1] or "") + match[2], int(match[3]))
    return None


def _list_texts(case: Case) -> Iterator[str]:
    settings = case.evidence.settings
    if settings is not None:
        yield " ".join(settings.command)
    yield from reversed(case.lines)


def advise_smaller_batch(case: Case) -> str:
    """Return the advice to reduce the batch size, with the old and the new size if known."""
    hint = find_batch_size(case)
    if hint is None or hint.value == 1:
        return (
            "Reduce the batch size (`--batch-size`) and compensate with gradient accumulation"
            " (`gradient_accumulation_steps`)."
        )
    half = hint.value // 2
    return (
        f"Halve the batch size from `{hint.text}` to `{hint.write(half)}`, with"
        " `gradient_accumulation_steps=2` for the same effective batch."
    )


def advise_fewer_workers(case: Case) -> str:
    """Return the advice to use fewer data loader workers, with the numbers if known."""
    hint = find_workers(case)
    if hint is None or hint.value <= 1:
        return (
            "Reduce the data loader workers (`num_workers`) and `prefetch_factor`, and do not load"
            " the data in `Dataset.__init__`: every worker holds a copy."
        )
    return (
        f"Reduce the data loader workers from `{hint.text}` to"
        f" `{hint.write(max(1, hint.value // 2))}`, and lower `prefetch_factor`."
    )


def name_limit(case: Case) -> str:
    """Return the subject's memory limit in words, such as `its memory limit of 16.0 GiB`."""
    limit = case.memory_limit_bytes
    return f"its memory limit of {format_bytes(limit)}" if limit else "its memory limit"


def advise_higher_limit(case: Case) -> str:
    """Return the advice to raise the memory limit, with a suggested limit if possible."""
    limit, host = case.memory_limit_bytes, case.evidence.host
    if is_in_slurm(case):
        option = format_option(suggest_limit(limit)) if limit else "64g"
        return (
            f"Request more memory for the job: `sbatch --mem={option.upper()}`; `sacct -j JOB -o MaxRSS`"
            " shows what it used."
        )
    if not limit:
        return "Raise the memory limit (`--memory`, `mem_limit`, `MemoryMax=`)."
    wanted = suggest_limit(max(limit, case.peak_memory_bytes or 0))
    total = host.memory_total_bytes if host is not None else None
    if total is not None and wanted > total:
        return (
            f"The host has only {format_bytes(total)} of memory, so `--memory"
            f" {format_option(limit)}` cannot be raised much: reduce the job or move it to a larger host."
        )
    start = f"Raise the memory limit of {format_bytes(limit)}"
    return _write_step(case, start, format_option(wanted))


def _write_step(case: Case, start: str, option: str) -> str:
    evidence = case.evidence
    if not case.is_container:
        return f"{start}: `MemoryMax={option.upper()}` in the systemd unit, or `--mem` of the Slurm job."
    if service := evidence.compose_service:
        return (
            f"{start}: `mem_limit: {option}` for the service `{service}` in the Compose file,"
            f" then `docker compose up -d {service}`."
        )
    options = f"--memory {option} --memory-swap {option}"
    if evidence.settings is not None and evidence.settings.is_removed_at_end:
        return f"{start} in the next start: `{case.program} run {options} …`."
    name = evidence.name if evidence.state is not None or evidence.events else evidence.id[:12]
    return (
        f"{start}: `{case.program} update {options} {name or 'NAME'}`, then restart the container."
    )


def advise_less_memory(case: Case) -> tuple[str, ...]:
    """Return the advice to reduce the host memory that the job uses."""
    settings = case.evidence.settings
    shm = settings.shm_size_bytes if settings is not None else None
    offload = (_OFFLOAD_LESS,) if case.search(_OFFLOADED) is not None else ()
    steps = (*offload, advise_fewer_workers(case), advise_smaller_batch(case), _STREAM)
    if shm is None or shm < _BIG_SHM_BYTES:
        return steps
    more = (
        "Check the size of the files in /dev/shm: they count towards the memory limit, and"
        f" `--shm-size` allows {format_bytes(shm)}."
    )
    return (*steps, more)


def format_option(size_bytes: float) -> str:
    """Return a size in the format of Docker's options, such as `96m`, `24g` or `1536m`."""
    mebibytes = math.ceil(size_bytes / _MIB)
    return f"{mebibytes}m" if mebibytes % 1024 else f"{mebibytes // 1024}g"


def suggest_limit(needed_bytes: float) -> int:
    """Return a memory limit in bytes that is 1.5 times the needed memory, rounded up.

    The limit is a multiple of 64 MiB below 1 GiB, of 512 MiB below 4 GiB, and of 1 GiB otherwise.

    Args:
        needed_bytes: The amount of memory that was not sufficient, in bytes.
    """
    wanted = needed_bytes * _MARGIN
    if wanted < _GIB:
        step = _STEP_BELOW_GIB * _MIB
    elif wanted < _HALVES_BELOW_GIB * _GIB:
        step = _GIB / 2
    else:
        step = _GIB
    return int(math.ceil(wanted / step) * step)
