"""Deaths because the system refused memory, files or threads that the program asked for."""

from __future__ import annotations

import re

from trainvitals.causes.case import Case
from trainvitals.causes.figures import write_size
from trainvitals.causes.hints import advise_fewer_workers
from trainvitals.causes.signs import find, has, matches
from trainvitals.causes.verdict import Cause, Finding

_TRIED = re.compile(
    r"you tried to allocate (\d{1,20}) bytes|Unable to allocate ([\d.]{1,12} [KMGTPE]?i?B)"
)
_CPU_ALLOC = has(
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "ArrayMemoryError",
    without=("CUDA", "Resource temporarily"),
)
_MEMORY_ERROR = re.compile(r"^MemoryError\b")
_THREADS = has(
    "can't start new thread",
    "pthread_create failed",
    "Thread creation failed",
    "unable to create new native thread",
)


def look_cpu_alloc(case: Case) -> Finding | None:
    """Look for a request for memory that the system refused at once."""
    sign = find(case, _CPU_ALLOC) or find(case, matches(_MEMORY_ERROR))
    if sign is None:
        return None
    found = _TRIED.search(sign.text)
    size = ""
    if found is not None:
        size = found[2] or write_size(int(found[1]))
    limit = case.memory_limit_bytes
    told = (f"Its limit is {write_size(limit)}.",) if limit else ()
    return sign.conclude(
        "cpu-alloc",
        f"One request for memory{f' ({size})' if size else ''} was refused: more than there is.",
        (
            (
                "Print the shapes before that line: a size like this is mostly a wrong shape, or a batch"
                " that holds the whole data set."
            ),
            (
                "Read large files in pieces: `np.load(..., mmap_mode='r')`, `load_dataset(...,"
                " streaming=True)`."
            ),
            (
                "See whether the host promises no more than it has: `sysctl vm.overcommit_memory` (2 does"
                " so), `ulimit -v`, `free -h`."
            ),
        ),
        speaks_for=told,
    )


def look_fd_limit(case: Case) -> Finding | None:
    """Look for too many open files."""
    sign = find(case, has("Too many open files", "[Errno 24]", "received 0 items of ancdata"))
    if sign is None:
        return None
    return sign.conclude(
        "fd-limit",
        "It had as many files open as it may.",
        (
            (
                "Allow more: `docker run --ulimit nofile=1048576:1048576`, in Compose `ulimits: {nofile:"
                " 1048576}`."
            ),
            (
                "Let workers pass tensors through files, not through open ones:"
                " `torch.multiprocessing.set_sharing_strategy('file_system')`."
            ),
            (
                "Close what `Dataset.__getitem__` opens (`with open(...)`), and count them while it runs:"
                " `ls /proc/PID/fd | wc -l`."
            ),
        ),
    )


def look_pids_limit(case: Case) -> Finding | None:
    """Look for a thread or a process that the system refused."""
    sample, settings = case.evidence.sample, case.evidence.settings
    refused = sample.processes_refused if sample is not None else None
    sign = find(case, _THREADS)
    if sign is None:
        again = find(case, has("Resource temporarily unavailable", "[Errno 11]"))
        if again is None:
            return None
        sign = (
            again if refused else again.cap("medium", "Other calls than a new thread say so too.")
        )
    limit = sample.processes_limit if sample is not None else None
    limit = limit or (settings.pids_limit if settings is not None else None)
    told = []
    if refused:
        told.append(f"Its control group refused {refused} processes or threads.")
    if sample is not None and sample.processes is not None:
        told.append(f"It was last seen with {sample.processes} processes and threads.")
    return sign.conclude(
        "pids-limit",
        f"It may have no more processes and threads{f' than {limit}' if limit else ''}.",
        (
            (
                f"Allow more: `docker run --pids-limit {max(4096, 4 * (limit or 0))}`"
                " (`pids_limit` in Compose), or `--ulimit nproc=65535` for its user."
            ),
            (
                "Let libraries start fewer: `OMP_NUM_THREADS=8`, `OPENBLAS_NUM_THREADS=8`,"
                " `TOKENIZERS_PARALLELISM=false`."
            ),
            advise_fewer_workers(case),
        ),
        speaks_for=told,
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        reason="cpu-alloc",
        title="A request for memory was refused",
        signs="The log says `DefaultCPUAllocator: can't allocate memory`, `MemoryError`,"
        " `std::bad_alloc` or `Cannot allocate memory`.",
        meaning="One huge request, mostly a wrong shape; or the host promises no more than it has.",
        steps=(
            "Print the shapes before that line.",
            "Check `sysctl vm.overcommit_memory` and `ulimit -v`.",
        ),
        confidence="high",
        look=look_cpu_alloc,
    ),
    Cause(
        reason="fd-limit",
        title="Too many open files",
        signs="The log says `Too many open files` (`Errno 24`) or `received 0 items of ancdata`.",
        meaning="The limit `nofile` is low, or files are opened and not closed.",
        steps=(
            "Raise it: `--ulimit nofile=1048576:1048576`.",
            "Use `torch.multiprocessing.set_sharing_strategy('file_system')`.",
        ),
        confidence="high",
        look=look_fd_limit,
    ),
    Cause(
        reason="pids-limit",
        title="No more processes or threads",
        signs="The log says `can't start new thread`, `pthread_create failed` or `Resource temporarily"
        " unavailable`; the control group counts refused ones.",
        meaning="The container's `--pids-limit` or its user's `nproc` was reached.",
        steps=(
            "Raise it: `--pids-limit 4096`.",
            "Start fewer: `OMP_NUM_THREADS`, fewer data loader workers.",
        ),
        confidence="high",
        look=look_pids_limit,
    ),
)
