"""Advice on memory, with the limit, the name and the settings of what died."""

from __future__ import annotations

from trainvitals.causes.case import Case
from trainvitals.causes.figures import suggest_limit, write_option, write_size
from trainvitals.causes.hints import advise_fewer_workers, advise_smaller_batch

_BIG_SHM_BYTES = 256 * 1024**2
_STREAM = (
    "Stream or map the data instead of loading it whole (`streaming=True`,"
    " `numpy.load(…, mmap_mode='r')`)."
)


def name_limit(case: Case) -> str:
    """Name its limit: `its memory limit of 16.0 GiB`."""
    limit = case.memory_limit_bytes
    return f"its memory limit of {write_size(limit)}" if limit else "its memory limit"


def advise_higher_limit(case: Case) -> str:
    """Give the step that raises the limit, with the number and the name to put in."""
    limit, host = case.memory_limit_bytes, case.evidence.host
    if not limit:
        return "Raise the limit that it ran under (`--memory`, `mem_limit`, `MemoryMax=`)."
    wanted = suggest_limit(max(limit, case.most_memory_bytes or 0))
    total = host.memory_total_bytes if host is not None else None
    if total is not None and wanted > total:
        return (
            f"The host has {write_size(total)} in all: there is little to add to"
            f" `--memory {write_option(limit)}`, so make the job smaller or move it."
        )
    return _write_step(case, f"Raise the limit of {write_size(limit)}", write_option(wanted))


def _write_step(case: Case, start: str, option: str) -> str:
    evidence = case.evidence
    if not case.is_container:
        return f"{start}: `MemoryMax={option.upper()}` of its unit, or `--mem` of its job."
    if service := evidence.compose_service:
        return (
            f"{start}: `mem_limit: {option}` for the service `{service}` in the Compose file,"
            f" then `docker compose up -d {service}`."
        )
    options = f"--memory {option} --memory-swap {option}"
    if evidence.settings is not None and evidence.settings.is_removed_at_end:
        return f"{start}: `{case.program} run {options} …` the next time."
    return f"{start}: `{case.program} update {options} {evidence.name}`, then start it again."


def advise_less_memory(case: Case) -> tuple[str, ...]:
    """Give the steps that make the job need less memory of the host."""
    settings = case.evidence.settings
    shm = settings.shm_size_bytes if settings is not None else None
    steps = (advise_fewer_workers(case), advise_smaller_batch(case), _STREAM)
    if shm is None or shm < _BIG_SHM_BYTES:
        return steps
    more = f"What lies in /dev/shm counts too, and `--shm-size` lets it be {write_size(shm)}."
    return (*steps, more)
