"""Deaths of programs to which the kernel refused memory, open files, processes or threads."""

from __future__ import annotations

import re
from dataclasses import replace

from trainvitals.units import format_bytes
from trainvitals.verdicts.causes.advice import advise_fewer_workers
from trainvitals.verdicts.causes.case import Case
from trainvitals.verdicts.causes.frameworks import find_framework
from trainvitals.verdicts.causes.log_matches import find_match
from trainvitals.verdicts.causes.notices import describe_kernel, find_kernel_line
from trainvitals.verdicts.causes.signs import contains, matches
from trainvitals.verdicts.causes.text_causes import text_cause
from trainvitals.verdicts.causes.verdict import Cause, Finding

_OF_GPU = matches(r"Out of memory error on GPU [0-9]")
_TRIED = re.compile(
    r"you tried to allocate (\d{1,20}) bytes|Unable to allocate ([\d.]{1,12} [KMGTPE]?i?B)"
)
_CPU_ALLOC = contains(
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "not enough memory: you tried to allocate",
    "Cannot allocate memory",
    "std::bad_alloc",
    "ArrayMemoryError",
    "ArrowMemoryError",
    "Insufficient memory) Failed to allocate",
    "OpenBLAS error: Memory allocation still failed",
    "java.lang.OutOfMemoryError",
    "[WinError 1455]",
    "paging file is too small",
    "memory allocation of ",
    # Errors of a network library that is not allowed to lock more memory.
    without=(
        "CUDA",
        "Resource temporarily",
        "NCCL ",
        "NET/",
        "ibv_",
        "fi_mr_",
        "libfabric:",
        "prov_errno",
    ),
)
_MEMORY_ERROR = matches(
    r"(?:^|[. ])_?(?:Array)?MemoryError\b|^Unable to allocate [\d.]{1,12} [KMGTP]i?B"
    r"|^(?:LLVM ERROR|fatal error|ERROR): [Oo]ut of memory$"
)
_THREADS = contains(
    "can't start new thread",
    "thread: Resource temporarily unavailable",
    "pthread_create: Resource temporarily",
    "fork: retry: Resource temporarily unavailable",
    "fork: Resource temporarily unavailable",
    "pthread_create failed",
    "pthread_create() failed",
    "hread creation failed",
    ": Cannot fork",
    "unable to create new native thread",
    "unable to create native thread",
    "unable to start new thread",
    without=("Operation not permitted",),
)
_AGAIN = contains(
    "Resource temporarily unavailable",
    "[Errno 11]",
    without=("lock file", "Operation not permitted", "unavailable: '/"),  # errors about files
)
_REFUSED_FORK = contains("fork rejected by pids controller")
_OPEN_FILES = contains(
    "Too many open files",
    "[Errno 24]",
    "received 0 items of ancdata",
    "EMFILE",
    "(os error 24)",
    "error code: 24",
    ignore_case=True,
)
_FORBIDDEN = matches(
    r"(?:pthread_create|blas_thread_init|clone3?|start (?:a )?new thread).{0,80}Operation not permitted"
    r"|Operation not permitted.{0,40}(?:clone3|pthread_create)"
    r"|(?:move_pages|set_mempolicy|get_mempolicy|mbind).{0,60}Operation not permitted"
    r"|\bseccomp\b.{0,80}(?:denied|blocked|killed|violation)|[Bb]ad system call"
)


def detect_cpu_alloc(case: Case) -> Finding | None:
    """Detect an allocation of host memory that was refused."""
    match = find_match(case, _CPU_ALLOC) or find_match(case, _MEMORY_ERROR)
    # PaddlePaddle raises MemoryError for GPU memory too, and names the GPU in a later line.
    if match is None or case.search(_OF_GPU) is not None:
        return None
    found = _TRIED.search(match.text)
    size = ""
    if found is not None:
        size = found[2] or format_bytes(int(found[1]))
    limit = case.memory_limit_bytes
    sentences = (f"The memory limit is {format_bytes(limit)}.",) if limit else ()
    return match.conclude(
        "cpu-alloc",
        f"An allocation of host memory{f' ({size})' if size else ''} was refused.",
        (
            (
                "Print the shapes before that line: the usual cause is a wrong shape, or a batch that"
                " contains the whole data set."
            ),
            (
                "Read large files in parts: `np.load(..., mmap_mode='r')`, `load_dataset(...,"
                " streaming=True)`."
            ),
            (
                "Check the host's limits: `sysctl vm.overcommit_memory` (2 refuses overcommit),"
                " `ulimit -v`, `free -h`."
            ),
        ),
        speaks_for=sentences,
    )


def detect_fd_limit(case: Case) -> Finding | None:
    """Detect a program that could not open a file because too many files were open."""
    match = find_match(case, _OPEN_FILES)
    if match is None:
        return None
    return match.conclude(
        "fd-limit",
        "The limit of open files (`nofile`) was reached.",
        (
            _advise_nofile(case),
            *((_SHARE_BY_NAME,) if find_framework(case, match.text) == "torch" else ()),
            (
                "Close files that `Dataset.__getitem__` opens (`with open(...)`), and count the open ones"
                " while it runs: `ls /proc/PID/fd | wc -l`."
            ),
        ),
    )


def _advise_nofile(case: Case) -> str:
    if not case.is_container:
        return (
            "Raise the limit before the start: `ulimit -n 65536`; `ulimit -Hn` shows the highest that is"
            " permitted (`LimitNOFILE=` of a unit)."
        )
    return (
        "Raise the limit: `docker run --ulimit nofile=1048576:1048576`, in Compose `ulimits:"
        " {nofile: 1048576}`."
    )


_SHARE_BY_NAME = (
    "Share tensors between workers by file name instead of file descriptor:"
    " `torch.multiprocessing.set_sharing_strategy('file_system')`."
)


def detect_pids_limit(case: Case) -> Finding | None:
    """Detect a thread or a process that the kernel refused to create."""
    sample, settings = case.evidence.sample, case.evidence.settings
    refused = sample.processes_refused if sample is not None else None
    match = find_match(case, _THREADS)
    match = match or find_kernel_line(case, _REFUSED_FORK)
    logged = describe_kernel(case, _REFUSED_FORK)
    if match is None:
        again = find_match(case, _AGAIN)
        if again is None:
            return None
        match = (
            again
            if refused or logged
            else again.cap("medium", "Calls other than the start of a thread have this error too.")
        )
    limit = sample.processes_limit if sample is not None else None
    limit = limit or (settings.pids_limit if settings is not None else None)
    if logged and match.confidence == "medium" and case.evidence.log is not None and case.has_ended:
        match = replace(match, confidence="high")  # two independent pieces of evidence
    sentences = []
    if refused:
        sentences.append(f"Its control group refused {refused} processes or threads.")
    if sample is not None and sample.processes is not None:
        sentences.append(f"At the last sample it had {sample.processes} processes and threads.")
    return match.conclude(
        "pids-limit",
        f"The limit of processes and threads{f' ({limit})' if limit else ''} was reached.",
        (
            (
                f"Raise the limit: `docker run --pids-limit {max(4096, 4 * (limit or 0))}`"
                " (`pids_limit` in Compose), or `--ulimit nproc=65535` for its user."
            ),
            (
                "Reduce the threads of libraries: `OMP_NUM_THREADS=8`, `OPENBLAS_NUM_THREADS=8`,"
                " `TOKENIZERS_PARALLELISM=false`."
            ),
            advise_fewer_workers(case),
        ),
        speaks_for=(*sentences, *logged) if case.evidence.log is not None else sentences,
    )


CAUSES: tuple[Cause, ...] = (
    text_cause(
        "seccomp",
        "The engine forbids a system call",
        "The log contains `pthread_create failed …: Operation not permitted`.",
        "The seccomp profile of an old engine does not know a system call of the image's newer C library,"
        " such as `clone3`, so that no thread can be made though no limit is reached.",
        (
            "Update the engine and its libraries: Docker 20.10.10, runc 1.0.2, libseccomp 2.5 or newer.",
            "Until then run it with `--security-opt seccomp=unconfined`, or use an older base image.",
        ),
        summary="The engine's seccomp profile forbids a system call that the image's C library needs.",
        lines=_FORBIDDEN,
    ),
    Cause(
        reason="cpu-alloc",
        title="An allocation of host memory was refused",
        signs="The log contains `DefaultCPUAllocator: can't allocate memory`, `MemoryError`,"
        " `std::bad_alloc` or `Cannot allocate memory`.",
        meaning="A very large allocation, usually from a wrong shape; or a host without memory"
        " overcommit.",
        steps=(
            "Print the shapes before that line.",
            "Check `sysctl vm.overcommit_memory` and `ulimit -v`.",
        ),
        confidence="high",
        detect=detect_cpu_alloc,
    ),
    Cause(
        reason="fd-limit",
        title="Too many open files",
        signs="The log contains `Too many open files` (`Errno 24`) or `received 0 items of ancdata`.",
        meaning="The limit `nofile` is low, or files are opened and not closed.",
        steps=(
            "Raise the limit: `ulimit -n 65536`, `--ulimit nofile=1048576:1048576` of a container.",
            "With PyTorch use `torch.multiprocessing.set_sharing_strategy('file_system')`.",
        ),
        confidence="high",
        detect=detect_fd_limit,
    ),
    Cause(
        reason="pids-limit",
        title="Too many processes or threads",
        signs="The log contains `can't start new thread`, `pthread_create failed` or `Resource"
        " temporarily unavailable`; the control group counts refused processes.",
        meaning="The container's `--pids-limit` or its user's `nproc` was reached.",
        steps=(
            "Raise the limit: `--pids-limit 4096`.",
            "Reduce threads and workers: `OMP_NUM_THREADS`, `num_workers`.",
        ),
        confidence="high",
        detect=detect_pids_limit,
    ),
)
